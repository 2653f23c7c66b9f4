use super::*;

fn widgets() -> Kind {
    ("x.io/v1beta1".into(), "Widget".into())
}

/// A kind whose one object was seen.
fn seen_once() -> Watched {
    let watched = Watched::default();
    let meta = ObjectMeta { name: Some("w".into()), namespace: Some("shop".into()), ..ObjectMeta::default() };
    watched.note(seen(&widgets(), meta), None);
    watched.state.write().listed = true;
    watched
}

#[test]
fn objects_are_gone_only_with_their_kind() {
    let (jobs, mut handed_in) = Jobs::new();
    let v1 = ["x.io/v1".to_owned()];
    let watched = seen_once();
    let objects = |watched: &Watched| watched.state.read().objects.len();
    // The version went, and its objects are alive under another one.
    for misses in 1..10 {
        watched.is_missing(&widgets(), &v1, misses, &Definition::NotAsked, &jobs);
        assert_eq!(objects(&watched), 1);
        assert!(!watched.state.read().listed, "what is not seen is not gone");
    }
    let trouble = watched.state.read().trouble.clone().unwrap();
    assert!(trouble.lasts && trouble.said.contains("x.io/v1"), "{trouble:?}");
    // Neither version is served, for as long as somebody repairs the definition.
    for misses in 1..10 {
        watched.is_missing(&widgets(), &[], misses, &Definition::There, &jobs);
        assert_eq!(objects(&watched), 1);
    }
    while handed_in.try_recv().is_ok() {}
    // The definition went, and with it all of them. That is news once.
    for misses in serving::CERTAIN..10 {
        watched.is_missing(&widgets(), &[], misses, &Definition::Gone, &jobs);
        assert!(watched.is_known_to_be_gone());
    }
    assert!(handed_in.try_recv().is_ok());
    assert!(handed_in.try_recv().is_err());
}

#[test]
fn what_was_never_seen_is_not_gone_before_that_is_certain() {
    let (jobs, _handed_in) = Jobs::new();
    let watched = Watched::default();
    watched.is_missing(&widgets(), &[], 1, &Definition::NotAsked, &jobs);
    watched.is_missing(&widgets(), &["x.io/v1".to_owned()], 9, &Definition::NotAsked, &jobs);
    assert!(!watched.state.read().listed);
    watched.is_missing(&widgets(), &[], serving::CERTAIN, &Definition::Gone, &jobs);
    assert!(watched.state.read().listed);
}
