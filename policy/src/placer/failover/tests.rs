use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A workload that was ill in `a` for 60 seconds and is well in `b`, unless a case says otherwise.
struct Case {
    rules: Option<Value>,
    tasks: Value,
    left: Value,
    ill: Vec<(&'static str, u64)>,
    well: Vec<&'static str>,
    present: Vec<&'static str>,
    elsewhere: Result<Vec<&'static str>, &'static str>,
    waiting: bool,
    copied: bool,
    template: &'static str,
    asked: Option<&'static str>,
    tainted: Option<Departure>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            rules: Some(rules("Gracefully")),
            tasks: json!([]),
            left: json!([]),
            ill: vec![("a", 60)],
            well: vec!["b"],
            present: vec!["a", "b"],
            elsewhere: Ok(vec!["b"]),
            waiting: false,
            copied: false,
            template: "t1",
            asked: None,
            tainted: None,
        }
    }
}

fn rules(purge: &str) -> Value {
    json!({"decisionConditions": {"tolerationSeconds": 30}, "purgeMode": purge})
}

fn task(extra: Value) -> Value {
    let mut task = json!({"fromCluster": "a", "reason": "ApplicationFailure", "producer": "federlet",
        "creationTimestamp": "2026-01-01T00:59:00Z"});
    task.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    task
}

impl Case {
    fn decide(&self) -> Outcome {
        let rules: Option<ApplicationFailover> =
            self.rules.clone().map(|rules| serde_json::from_value(rules).unwrap());
        let ill =
            self.ill.iter().map(|(name, _)| ((*name).to_owned(), Health::Ill(format!("pod x in {name}"))));
        let well = self.well.iter().map(|name| ((*name).to_owned(), Health::Well));
        let health = ill.chain(well).collect();
        let ill =
            self.ill.iter().map(|(name, time)| ((*name).to_owned(), Duration::from_secs(*time))).collect();
        let present = self.present.iter().map(|name| ((*name).to_owned(), 2)).collect();
        let elsewhere = |leaving: &BTreeSet<String>| match &self.elsewhere {
            Ok(names) => Ok(names
                .iter()
                .map(|name| (*name).to_owned())
                .filter(|name| !leaving.contains(name))
                .collect()),
            Err(why) => Err((*why).to_owned()),
        };
        Look {
            rules: rules.as_ref(),
            tainted: self.tainted.as_ref(),
            before: Departures {
                tasks: serde_json::from_value(self.tasks.clone()).unwrap(),
                left: serde_json::from_value(self.left.clone()).unwrap(),
            },
            health: &health,
            ill: &ill,
            present: &present,
            waiting: self.waiting,
            copied: self.copied,
            templates: &[self.template.to_owned()].into(),
            asked: self.asked.map(at),
            now: at(NOW),
            elsewhere: &elsewhere,
        }
        .decide()
    }

    fn leaves(&self) -> Vec<String> {
        self.decide().departures.tasks.into_iter().map(|task| task.from_cluster).collect()
    }
}

#[test]
fn who_leaves_and_who_stays() {
    for (what, case, leaves) in [
        ("long enough", Case::default(), vec!["a"]),
        ("not long enough", Case { ill: vec![("a", 29)], ..Case::default() }, vec![]),
        ("the policy does not say so", Case { rules: None, ..Case::default() }, vec![]),
        ("nowhere else", Case { elsewhere: Err("no cluster fits"), ..Case::default() }, vec![]),
        (
            "no better elsewhere",
            Case { ill: vec![("a", 60), ("b", 3)], well: vec![], ..Case::default() },
            vec![],
        ),
        (
            "two go together to a third",
            Case {
                ill: vec![("a", 60), ("b", 60)],
                well: vec!["c"],
                elsewhere: Ok(vec!["b", "c"]),
                ..Case::default()
            },
            vec!["a", "b"],
        ),
        (
            "somewhere that nothing is known of",
            Case { well: vec![], present: vec!["a"], elsewhere: Ok(vec!["c"]), ..Case::default() },
            vec!["a"],
        ),
        ("once", Case { tasks: json!([task(json!({}))]), ..Case::default() }, vec!["a"]),
        (
            "it left before",
            Case { left: json!([{"name": "a", "templates": ["t1"], "since": NOW}]), ..Case::default() },
            vec![],
        ),
    ] {
        assert_eq!(case.leaves(), leaves, "{what}");
    }
}

#[test]
fn a_departure_says_why_and_how() {
    let Outcome { departures, news, again, .. } = Case::default().decide();
    let message = "unhealthy in a for more than 30 s (pod x in a): it goes to b";
    assert_eq!(news, [News::Leaves(message.into())]);
    assert_eq!(again, Some(UNDER_WAY));
    let task = &departures.tasks[0];
    assert_eq!((task.message.as_str(), task.grace_period_seconds), (message, Some(600)));
    assert_eq!((task.replicas, task.suppress_deletion), (Some(2), None));
    assert_eq!(task.clusters_before_failover, ["a", "b"]);
    assert_eq!(
        (departures.left[0].name.as_str(), &departures.left[0].templates[..]),
        ("a", &["t1".to_owned()][..])
    );

    let stuck = Case { elsewhere: Err("no cluster fits"), ..Case::default() }.decide();
    let why = "unhealthy in a for more than 30 s, and stays, for no other cluster will do: no cluster fits";
    assert_eq!((stuck.news, stuck.departures), (vec![News::Stuck(why.into())], Departures::default()));
    let soon = Case { ill: vec![("a", 20)], ..Case::default() }.decide();
    assert_eq!((soon.again, soon.news), (Some(Duration::from_secs(10)), vec![]));
    let fine = Case { ill: vec![], well: vec!["a", "b"], ..Case::default() }.decide();
    assert_eq!((fine.again, fine.news), (None, vec![News::Over]));
}

#[test]
fn purge_modes_say_how_fast_pods_go() {
    for (mode, pace, keeps) in [
        ("Gracefully", Pace::Slowly, true),
        ("Graciously", Pace::Slowly, true),
        ("Directly", Pace::AtOnce, false),
        ("Immediately", Pace::AtOnce, false),
        ("Never", Pace::Never, true),
    ] {
        let outcome = Case { rules: Some(rules(mode)), ..Case::default() }.decide();
        let there = |pace| outcome.departures.at(pace, at(NOW)).contains("a");
        assert!(there(pace), "{mode}");
        assert_eq!(
            [Pace::Slowly, Pace::AtOnce, Pace::Never].into_iter().filter(|one| there(*one)).count(),
            1
        );
        assert_eq!(outcome.departures.tasks[0].keeps_old(), keeps, "{mode}");
        let later = at("2026-01-01T01:10:00Z");
        let late = outcome.departures.at(Pace::AtOnce, later).contains("a");
        assert_eq!(late, mode != "Never", "{mode}: after ten minutes nothing waits");
    }
}

#[test]
fn when_a_departure_is_over() {
    let graceful = || json!([task(json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 600}))]);
    let case = || Case { tasks: graceful(), ill: vec![], well: vec!["b"], ..Case::default() };
    for (what, case, over) in [
        ("pods are still there", case(), false),
        ("they are gone", Case { present: vec!["b"], ..case() }, true),
        ("their successors wait", Case { present: vec!["b"], waiting: true, ..case() }, false),
        (
            "their successors are not well",
            Case { present: vec!["b"], ill: vec![("b", 1)], well: vec![], ..case() },
            false,
        ),
        ("nothing is known of them", Case { present: vec!["b"], well: vec![], ..case() }, false),
        ("copies are elsewhere already", Case { copied: true, ..case() }, true),
        (
            "copies elsewhere are not well",
            Case { copied: true, ill: vec![("b", 1)], well: vec![], ..case() },
            false,
        ),
        (
            "it took too long",
            Case {
                tasks: json!([task(json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 60}))]),
                ..case()
            },
            true,
        ),
        (
            "a person keeps them",
            Case { tasks: json!([task(json!({"suppressDeletion": true}))]), ..case() },
            false,
        ),
        (
            "a person lets them go",
            Case { tasks: json!([task(json!({"suppressDeletion": false}))]), ..case() },
            true,
        ),
        (
            "at once, but they are there",
            Case { tasks: json!([task(json!({"purgeMode": "Directly"}))]), ..case() },
            false,
        ),
        (
            "copies, at once, but they are there",
            Case { tasks: json!([task(json!({"purgeMode": "Directly"}))]), copied: true, ..case() },
            false,
        ),
    ] {
        assert_eq!(case.leaves().is_empty(), over, "{what}");
    }
}

#[test]
fn it_goes_back_when_its_pods_are_others_or_a_person_asks() {
    let left = json!([{"name": "a", "templates": ["t1"], "since": "2026-01-01T00:30:00Z"}]);
    let case = || Case { left: left.clone(), ill: vec![], ..Case::default() };
    let away = |case: Case| !case.decide().departures.left.is_empty();
    assert!(away(case()));
    assert!(!away(Case { template: "t2", ..case() }));
    assert!(!away(Case { asked: Some("2026-01-01T00:45:00Z"), ..case() }));
    assert!(away(Case { asked: Some("2026-01-01T00:15:00Z"), ..case() }), "that was before");
    let theirs = json!([task(json!({"producer": "a person", "suppressDeletion": false}))]);
    assert!(away(Case { left: json!([]), tasks: theirs, ..case() }), "what others began is remembered, too");
}

fn by_taint(due: &[&str], doomed: &[&str], next: Option<&str>) -> Option<Departure> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Some(Departure { due: names(due), doomed: names(doomed), next: next.map(at) })
}

#[test]
fn a_taint_is_left_step_by_step_and_the_cluster_is_not_chosen_while_it_is_there() {
    let well = || Case { rules: None, ill: vec![], well: vec!["b"], ..Case::default() };
    let tainted = Case { tainted: by_taint(&["a"], &["a"], None), ..well() };
    let Outcome { departures, news, avoided, .. } = tainted.decide();
    let message = "a taint of a is not tolerated, or not any more: it goes to b";
    assert_eq!(news, [News::Leaves(message.into())]);
    assert_eq!((departures.tasks[0].reason.as_str(), departures.left.len()), ("TaintUntolerated", 0));
    assert_eq!(departures.at(Pace::Slowly, at(NOW)), ["a".to_owned()].into());
    assert_eq!(
        departures.at(Pace::AtOnce, at("2026-01-01T01:10:00Z")),
        ["a".to_owned()].into(),
        "it took too long"
    );
    assert_eq!(avoided, ["a".to_owned()].into());

    let gone = Case { present: vec!["b"], ..tainted };
    let Outcome { departures, avoided, .. } = gone.decide();
    assert_eq!(
        (departures, avoided),
        (Departures::default(), ["a".to_owned()].into()),
        "nothing is there any more"
    );

    let stuck = Case { elsewhere: Err("no cluster fits"), tainted: by_taint(&["a"], &["a"], None), ..well() };
    let Outcome { departures, news, avoided, .. } = stuck.decide();
    assert!(matches!(&news[..], [News::Stuck(_)]));
    assert_eq!((departures, avoided), (Departures::default(), BTreeSet::new()), "it could be nowhere else");

    let tolerated = Case { tainted: by_taint(&[], &["a"], Some("2026-01-01T01:00:30Z")), ..well() };
    let Outcome { departures, again, avoided, .. } = tolerated.decide();
    assert_eq!((departures, again), (Departures::default(), Some(Duration::from_secs(30))));
    assert!(avoided.is_empty(), "for a time");
}

#[test]
fn a_cluster_whose_taint_goes_is_not_left_any_more() {
    let begun = json!([task(
        json!({"reason": "TaintUntolerated", "purgeMode": "Gracefully", "gracePeriodSeconds": 30})
    )]);
    let case = |tainted| Case {
        rules: None,
        tasks: begun.clone(),
        ill: vec![],
        well: vec!["b"],
        tainted,
        ..Case::default()
    };
    assert_eq!(
        case(by_taint(&["a"], &["a"], None)).leaves(),
        ["a"],
        "it is late, and what is there has to go"
    );
    assert_eq!(case(by_taint(&[], &["a"], None)).leaves(), ["a"], "another replica counts anew");
    assert!(case(by_taint(&[], &[], None)).leaves().is_empty(), "it is back");
    assert!(case(None).leaves().is_empty(), "the policy does not say so any more");
}
