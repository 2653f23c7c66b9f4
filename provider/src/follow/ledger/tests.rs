use federlet_node::contract::PodKey;

use super::*;
use crate::{names::NamespaceMap, references::Kind};

const LINGER: Duration = Duration::from_secs(10);

fn pod(name: &str) -> PodId {
    PodId::new(PodKey::new("shop", name), format!("uid-{name}"))
}

fn place(name: &str) -> Place {
    Place::new(super::super::place::Resource::ConfigMap, &NamespaceMap::same().map("shop").unwrap(), name)
}

fn need(name: &str, optional: bool) -> Need {
    let origin = Origin::Object { kind: Kind::ConfigMap, namespace: "shop".into(), name: name.into() };
    Need { place: place(name), origin, optional }
}

fn in_place(version: &str) -> Finished {
    let state = State::InPlace(Copied { uid: "m".into(), version: version.into(), digest: 1 });
    Finished { state, host_version: Some("h1".into()), again: None }
}

struct Fixture {
    ledger: Ledger,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        Self { ledger: Ledger::new(LINGER), now: Instant::now() }
    }

    fn want(&mut self, name: &str, needs: &[Need]) -> usize {
        self.ledger.want(&pod(name), needs, false, self.now).unwrap().len()
    }

    /// Looks at all that is due, each time with this outcome, and says what it was.
    fn work(&mut self, outcome: impl Fn(&Job) -> Finished) -> Vec<(String, bool)> {
        let mut seen = vec![];
        while let Some(job) = self.ledger.take(self.now) {
            assert!(seen.len() < 20, "it never rests: {seen:?}");
            seen.push((job.place.name.to_string(), job.wanted));
            let finished = outcome(&job);
            self.ledger.done(&job.place, finished, self.now);
        }
        seen
    }

    fn after(&mut self, pause: Duration) -> &mut Self {
        self.now += pause;
        self
    }
}

fn looked(name: &str, wanted: bool) -> Vec<(String, bool)> {
    vec![(name.to_owned(), wanted)]
}

#[test]
fn what_is_known_is_not_looked_at_again() {
    let mut f = Fixture::new();
    assert_eq!(f.want("a", &[need("x", false)]), 1);
    assert_eq!(f.work(|_| in_place("1")), looked("x", true));
    assert_eq!(f.ledger.verdict(&pod("a"), &[need("x", false)]), Ok(()));
    assert_eq!((f.want("a", &[need("x", false)]), f.want("b", &[need("x", false)])), (0, 0));
    assert_eq!(f.ledger.next(), None);
    // Our own write, as both sides announce it.
    f.ledger.host_changed(&place("x"), Some("h1"), f.now);
    f.ledger.member_changed(&place("x"), "m", Some("1"), f.now);
    assert_eq!(f.ledger.next(), None);
}

#[test]
fn every_change_that_is_not_ours_is_looked_at() {
    let changes: [fn(&mut Ledger, Instant); 5] = [
        |ledger, now| ledger.host_changed(&place("x"), Some("h2"), now),
        |ledger, now| ledger.host_changed(&place("x"), None, now),
        |ledger, now| ledger.member_changed(&place("x"), "m", Some("2"), now),
        |ledger, now| ledger.member_changed(&place("x"), "m", None, now),
        |ledger, now| ledger.doubt(&place("x"), now),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut f = Fixture::new();
        f.want("a", &[need("x", false)]);
        f.work(|_| in_place("1"));
        change(&mut f.ledger, f.now);
        assert_eq!(f.work(|_| in_place("1")), looked("x", true), "change {at}");
    }
}

#[test]
fn a_change_is_looked_at_though_another_pod_comes_or_the_last_one_goes_before() {
    for last_one_goes in [false, true] {
        let mut f = Fixture::new();
        f.want("a", &[need("x", false)]);
        f.work(|_| in_place("1"));
        f.ledger.host_changed(&place("x"), Some("h2"), f.now);
        if last_one_goes {
            f.ledger.release(&pod("a"), f.now);
        }
        assert_eq!(f.want("b", &[need("x", false)]), usize::from(last_one_goes));
        assert_eq!(f.work(|_| in_place("2")), looked("x", true), "{last_one_goes}");
    }
}

#[test]
fn changes_while_somebody_looks_are_not_lost_and_our_own_do_not_count() {
    for (host, member, again) in [
        (Some("h1"), Some("1"), false),
        (Some("h2"), Some("1"), true),
        (None, Some("1"), true),
        (Some("h1"), Some("2"), true),
        (Some("h1"), None, true),
    ] {
        let mut f = Fixture::new();
        f.want("a", &[need("x", false)]);
        let job = f.ledger.take(f.now).unwrap();
        f.ledger.host_changed(&job.place, host, f.now);
        f.ledger.member_changed(&job.place, "m", member, f.now);
        assert!(f.ledger.take(f.now).is_none(), "one at a time");
        f.ledger.done(&job.place, in_place("1"), f.now);
        assert_eq!(f.ledger.next().is_some(), again, "{host:?} {member:?}");
    }
    // A copy that was made again: the end of the first one is no news.
    let mut f = Fixture::new();
    f.want("a", &[need("x", false)]);
    f.work(|_| in_place("1"));
    f.ledger.member_changed(&place("x"), "the one before", None, f.now);
    assert_eq!(f.ledger.next(), None);
}

#[test]
fn a_copy_goes_some_time_after_the_last_pod() {
    let mut f = Fixture::new();
    f.want("a", &[need("x", false)]);
    f.want("b", &[need("x", false)]);
    f.work(|_| in_place("1"));
    f.ledger.release(&pod("a"), f.now);
    assert_eq!(f.ledger.next(), None, "one still needs it");
    f.ledger.release(&pod("b"), f.now);
    assert_eq!(f.work(|_| in_place("1")), vec![]);
    assert_eq!(f.after(LINGER).work(|_| State::Closed.into()), looked("x", false));
    assert!(!f.ledger.knows(&place("x")));
}

#[test]
fn a_copy_that_is_needed_again_in_time_stays() {
    let mut f = Fixture::new();
    f.want("a", &[need("x", false)]);
    f.work(|_| in_place("1"));
    f.ledger.release(&pod("a"), f.now);
    assert_eq!(f.want("b", &[need("x", false)]), 0);
    assert_eq!(f.after(LINGER).work(|_| State::Closed.into()), vec![]);
}

#[test]
fn a_change_after_the_last_pod_is_looked_at_before_the_next_one() {
    type Told = fn(&mut Ledger, Instant);
    let changes: [(Told, usize); 6] = [
        (|ledger, now| ledger.host_changed(&place("x"), Some("h2"), now), 1),
        (|ledger, now| ledger.host_changed(&place("x"), None, now), 1),
        (|ledger, now| ledger.member_changed(&place("x"), "m", Some("2"), now), 1),
        (|ledger, now| ledger.member_changed(&place("x"), "m", None, now), 1),
        // Our own write, as both sides announce it.
        (|ledger, now| ledger.host_changed(&place("x"), Some("h1"), now), 0),
        (|ledger, now| ledger.member_changed(&place("x"), "m", Some("1"), now), 0),
    ];
    for (at, (change, waits)) in changes.into_iter().enumerate() {
        for while_busy in [false, true] {
            let mut f = Fixture::new();
            f.want("a", &[need("x", false)]);
            let job = f.ledger.take(f.now).unwrap();
            if while_busy {
                f.ledger.release(&pod("a"), f.now);
                change(&mut f.ledger, f.now);
                f.ledger.done(&job.place, in_place("1"), f.now);
            } else {
                f.ledger.done(&job.place, in_place("1"), f.now);
                f.ledger.release(&pod("a"), f.now);
                change(&mut f.ledger, f.now);
            }
            assert_eq!(f.work(|_| in_place("1")), vec![], "change {at}: nobody needs it");
            assert_eq!(f.want("b", &[need("x", false)]), waits, "change {at}, {while_busy}");
            assert_eq!(f.work(|_| in_place("2")).len(), waits, "change {at}, {while_busy}");
        }
    }
}

#[test]
fn whoever_needs_what_the_host_lost_has_it_looked_for() {
    for (optional, started, waits) in [(false, false, 1), (false, true, 0), (true, false, 0)] {
        let mut f = Fixture::new();
        let needs = [need("x", optional)];
        f.want("a", &needs);
        f.work(|_| State::Kept.into());
        let found = f.ledger.want(&pod("b"), &needs, started, f.now).unwrap().len();
        assert_eq!(found, waits, "optional: {optional}, started: {started}");
    }
}

#[test]
fn who_needs_a_copy_while_it_goes_waits_for_the_next_one() {
    let mut f = Fixture::new();
    f.want("a", &[need("x", false)]);
    f.work(|_| in_place("1"));
    f.ledger.release(&pod("a"), f.now);
    f.after(LINGER);
    let job = f.ledger.take(f.now).unwrap();
    assert!(!job.wanted);
    assert_eq!(f.want("b", &[need("x", false)]), 1);
    f.ledger.done(&job.place, State::Closed.into(), f.now);
    assert_eq!(f.work(|_| in_place("2")), looked("x", true));
    assert_eq!(f.ledger.verdict(&pod("b"), &[need("x", false)]), Ok(()));
}

#[test]
fn a_pod_that_needs_something_else_leaves_the_first() {
    let mut f = Fixture::new();
    f.want("a", &[need("x", false)]);
    f.want("a", &[need("y", false)]);
    f.work(|_| in_place("1"));
    assert_eq!(f.after(LINGER).work(|_| State::Closed.into()), looked("x", false));
}

#[test]
fn services_come_and_go_beside_what_a_pod_needs_otherwise() {
    let service = |name: &str| Need {
        place: Place::new(
            super::super::place::Resource::Service,
            &NamespaceMap::same().map("n").unwrap(),
            name,
        ),
        origin: Origin::Service { namespace: "n".into(), name: name.into() },
        optional: true,
    };
    let mut f = Fixture::new();
    f.want("a", &[need("x", false), service("one")]);
    assert_eq!(f.work(|_| in_place("1")).len(), 2);
    f.ledger.select(&pod("a"), &[service("two")], f.now);
    assert_eq!(f.work(|_| in_place("1")), looked("two", true));
    assert_eq!(f.after(LINGER).work(|_| State::Closed.into()), looked("one", false));
    assert!(f.ledger.knows(&place("x")));
    // It has gone in between.
    f.ledger.select(&pod("b"), &[service("two")], f.now);
    assert!(f.ledger.pods().all(|known| *known == pod("a")));
    f.ledger.release(&pod("a"), f.now);
    assert_eq!(f.after(LINGER).work(|_| State::Closed.into()).len(), 2);
}

#[test]
fn verdicts() {
    let refused = ProviderError::rejected("StaysOnHost", "no");
    let taken = ProviderError::already_exists("taken");
    for (state, optional, fresh, running) in [
        (State::Missing, true, true, true),
        (State::Missing, false, false, true),
        (State::Kept, true, true, true),
        (State::Kept, false, false, true),
        (State::Refused(refused.clone()), true, true, true),
        (State::Refused(refused), false, false, false),
        // Something that is not ours must not be seen even by those who could do without.
        (State::Failed(taken.clone()), true, false, false),
        (State::Failed(taken), false, false, false),
    ] {
        for (started, well) in [(false, fresh), (true, running)] {
            let mut f = Fixture::new();
            let needs = [need("x", optional)];
            let _waits = f.ledger.want(&pod("a"), &needs, started, f.now).unwrap();
            let job = f.ledger.take(f.now).unwrap();
            f.ledger.done(&job.place, state.clone().into(), f.now);
            let verdict = f.ledger.verdict(&pod("a"), &needs);
            assert_eq!(verdict.is_ok(), well, "{state:?} {optional} {started}: {verdict:?}");
        }
    }
}

#[test]
fn who_has_seen_a_copy_keeps_it_when_the_host_loses_the_object() {
    let mut f = Fixture::new();
    let needs = [need("x", false)];
    f.want("a", &needs);
    f.work(|_| in_place("1"));
    f.ledger.verdict(&pod("a"), &needs).unwrap();
    f.ledger.host_changed(&place("x"), None, f.now);
    let job = f.ledger.take(f.now).unwrap();
    assert!(job.seen);
    f.ledger.done(&job.place, State::Kept.into(), f.now);
    assert_eq!(f.ledger.verdict(&pod("a"), &needs), Ok(()));
    f.want("b", &needs);
    let verdict = f.ledger.verdict(&pod("b"), &needs).unwrap_err();
    assert_eq!(verdict.reason(), "MandatoryConfigMapNotFound");
}

#[test]
fn failures_are_tried_again_with_growing_pauses_for_ever() {
    let mut f = Fixture::new();
    f.want("a", &[need("x", false)]);
    let mut before = Duration::ZERO;
    for attempt in 0..30 {
        let away = ProviderError::unavailable("away");
        assert_eq!(f.work(|_| State::Failed(away.clone()).into()), looked("x", true), "attempt {attempt}");
        let pause = f.ledger.next().unwrap() - f.now;
        assert!(pause >= before.mul_f64(0.7) && pause < Duration::from_secs(120), "{pause:?}");
        before = pause;
        f.after(pause);
    }
    // Whoever asks does not wait for the end of the pause.
    let _ = f.work(|_| State::Failed(ProviderError::unavailable("away")).into());
    assert_eq!(f.want("a", &[need("x", false)]), 1);
    assert_eq!(f.work(|_| in_place("1")), looked("x", true));
}

#[test]
fn a_token_is_looked_at_when_its_time_comes_also_after_a_visit() {
    let mut f = Fixture::new();
    f.want("a", &[need("x", false)]);
    let hour = Duration::from_secs(3600);
    f.work(|_| Finished { again: Some(hour), ..in_place("1") });
    f.want("a", &[need("x", false)]);
    assert_eq!(f.ledger.next(), Some(f.now + hour));
}

#[test]
fn one_place_is_never_for_two_things() {
    let mut f = Fixture::new();
    f.want("a", &[need("x", false)]);
    let mut other = need("x", false);
    other.origin = Origin::Object { kind: Kind::ConfigMap, namespace: "bank".into(), name: "x".into() };
    let error = f.ledger.want(&pod("b"), &[other], false, f.now).unwrap_err();
    assert!(error.to_string().contains("bank/x"), "{error}");
}

#[test]
fn a_visit_is_once_and_now_and_repeated_only_if_it_failed() {
    let mut f = Fixture::new();
    f.ledger.visit(&place("x"), Some(need("x", false).origin), f.now);
    let away = ProviderError::unavailable("away");
    assert_eq!(f.work(|_| State::Failed(away.clone()).into()), looked("x", false));
    f.now = f.ledger.next().unwrap();
    assert_eq!(f.work(|_| State::Closed.into()), looked("x", false));
    assert!(!f.ledger.knows(&place("x")));
}

#[test]
fn leftovers_go_unless_somebody_comes_for_them() {
    let mut f = Fixture::new();
    f.ledger.abandon(&place("x"), f.now);
    f.ledger.abandon(&place("y"), f.now);
    f.want("a", &[need("y", false)]);
    assert_eq!(f.work(|_| in_place("1")), looked("y", true));
    assert_eq!(f.after(LINGER).work(|_| State::Closed.into()), looked("x", false));
    assert!(f.ledger.knows(&place("y")));
}
