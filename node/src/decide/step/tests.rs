use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Clone, Debug)]
struct Sketch {
    uid: &'static str,
    phase: &'static str,
    grace: Option<u64>,
    started: bool,
    always: bool,
    finalizers: bool,
    mirror: bool,
}

const PENDING: Sketch = Sketch {
    uid: "new",
    phase: "Pending",
    grace: None,
    started: false,
    always: true,
    finalizers: false,
    mirror: false,
};
const RUNNING: Sketch = Sketch { phase: "Running", started: true, ..PENDING };

impl Sketch {
    fn pod(&self) -> Pod {
        let mut pod = json!({
            "metadata": {"namespace": "web", "name": "a", "uid": self.uid},
            "spec": {"restartPolicy": if self.always { "Always" } else { "Never" }, "terminationGracePeriodSeconds": 20},
            "status": {"phase": self.phase},
        });
        if let Some(grace) = self.grace {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        if self.started {
            pod["status"]["startTime"] = json!("2026-01-01T00:00:00Z");
        }
        if self.finalizers {
            pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
        }
        if self.mirror {
            pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        }
        Pod::try_from(pod).unwrap()
    }
}

#[test]
fn impatience_is_passed_on_also_when_the_object_is_gone_already() {
    let (ending, again) = (Sketch { uid: "old", grace: Some(10), ..RUNNING }.pod(), PENDING.pod());
    let step_with = |host: Option<&Pod>, departed: Option<u64>| {
        let departed = departed.map(Duration::from_secs);
        next_step(Seen {
            host,
            provider: Some(&ending),
            accepted: None,
            desired: 0,
            just_created: false,
            departed,
        })
    };
    let step = |departed: Option<u64>| step_with(None, departed);
    assert_eq!(step(None), Step::Rest(Rest::Ending));
    assert_eq!(step(Some(10)), Step::Rest(Rest::Ending));
    let now = Step::Delete { id: ending.id().clone(), grace: Duration::ZERO, confirm: true };
    assert_eq!(step(Some(0)), now);
    // A StatefulSet has made the next one by then.
    assert_eq!(step_with(Some(&again), Some(0)), now);
}

fn decide(host: Option<&Sketch>, provider: Option<&Sketch>) -> Step {
    decide_with(host, provider, Some(1), false)
}

fn decide_with(
    host: Option<&Sketch>,
    provider: Option<&Sketch>,
    accepted: Option<u64>,
    just_created: bool,
) -> Step {
    let (host, provider) = (host.map(Sketch::pod), provider.map(Sketch::pod));
    next_step(Seen {
        host: host.as_ref(),
        provider: provider.as_ref(),
        accepted,
        desired: 1,
        just_created,
        departed: None,
    })
}

fn delete(sketch: &Sketch, grace: u64, confirm: bool) -> Step {
    Step::Delete { id: sketch.pod().id().clone(), grace: Duration::from_secs(grace), confirm }
}

#[test]
fn the_life_of_a_pod() {
    assert_eq!(decide(Some(&PENDING), None), Step::Create);
    assert_eq!(decide(Some(&PENDING), Some(&RUNNING)), Step::Rest(Rest::Settled));
    assert_eq!(decide_with(Some(&RUNNING), Some(&RUNNING), Some(0), false), Step::Update);
    // After a restart nothing is known about what was accepted.
    assert_eq!(decide_with(Some(&RUNNING), Some(&RUNNING), None, false), Step::Update);
    let deleting = Sketch { grace: Some(30), ..RUNNING };
    assert_eq!(decide(Some(&deleting), Some(&RUNNING)), delete(&RUNNING, 30, false));
    assert_eq!(decide(Some(&deleting), Some(&deleting)), Step::Rest(Rest::Ending));
    assert_eq!(decide(Some(&deleting), None), Step::Remove { say_how_it_ended: false });
    assert_eq!(decide(None, None), Step::Rest(Rest::Gone));
}

#[test]
fn a_shorter_grace_period_is_passed_on_and_a_longer_one_is_not() {
    let host = Sketch { grace: Some(5), ..RUNNING };
    let provider = Sketch { grace: Some(30), ..RUNNING };
    assert_eq!(decide(Some(&host), Some(&provider)), delete(&provider, 5, false));
    assert_eq!(decide(Some(&provider), Some(&host)), Step::Rest(Rest::Ending));
}

#[test]
fn a_pod_whose_containers_have_ended_is_not_waited_for() {
    let host = Sketch { grace: Some(30), ..RUNNING };
    let ended = Sketch { phase: "Failed", grace: Some(30), ..RUNNING };
    assert_eq!(decide(Some(&host), Some(&ended)), delete(&ended, 0, false));
}

#[test]
fn a_pod_that_was_deleted_before_it_ever_started_goes_at_once() {
    let host = Sketch { grace: Some(30), ..PENDING };
    assert_eq!(decide(Some(&host), None), Step::Remove { say_how_it_ended: false });
}

#[test]
fn whoever_holds_a_finalizer_hears_how_it_ended() {
    let running = Sketch { grace: Some(30), finalizers: true, ..RUNNING };
    assert_eq!(decide(Some(&running), None), Step::Remove { say_how_it_ended: true });
    let ended = Sketch { phase: "Succeeded", ..running };
    assert_eq!(decide(Some(&ended), None), Step::Remove { say_how_it_ended: false });
    let removed = Sketch { grace: Some(0), ..ended };
    assert_eq!(decide(Some(&removed), None), Step::Rest(Rest::Finalizing));
}

#[test]
fn an_orphan_is_deleted_only_after_asking_again() {
    assert_eq!(decide(None, Some(&RUNNING)), delete(&RUNNING, 20, true));
    let ending = Sketch { grace: Some(20), ..RUNNING };
    assert_eq!(decide(None, Some(&ending)), Step::Rest(Rest::Ending));
}

#[test]
fn a_name_used_again_waits_for_the_earlier_pod() {
    let earlier = Sketch { uid: "old", ..RUNNING };
    // The host is asked which of the two it has: our picture of it may be the one from before.
    assert_eq!(decide(Some(&PENDING), Some(&earlier)), delete(&earlier, 20, true));
    let ended = Sketch { phase: "Failed", ..PENDING };
    assert_eq!(decide(Some(&ended), Some(&earlier)), delete(&earlier, 20, true));
    let ending = Sketch { grace: Some(20), ..earlier };
    assert_eq!(decide(Some(&PENDING), Some(&ending)), Step::Rest(Rest::Ending));
    // And the new one can be deleted without waiting for the old.
    let deleted = Sketch { grace: Some(30), ..PENDING };
    assert_eq!(decide(Some(&deleted), Some(&ending)), Step::Remove { say_how_it_ended: false });
}

#[test]
fn what_ended_never_runs_again() {
    for phase in ["Succeeded", "Failed"] {
        let ended = Sketch { phase, ..RUNNING };
        assert_eq!(decide(Some(&ended), None), Step::Rest(Rest::Finished));
        assert_eq!(decide(Some(&ended), Some(&ended)), Step::Rest(Rest::Finished));
        assert_eq!(decide(Some(&ended), Some(&RUNNING)), delete(&RUNNING, 20, false));
        assert_eq!(decide(Some(&RUNNING), Some(&ended)), Step::Rest(Rest::Finished));
    }
}

#[test]
fn a_pod_that_ran_and_is_gone_is_lost_and_not_run_twice() {
    assert_eq!(decide(Some(&RUNNING), None), Step::Lost);
    let job = Sketch { phase: "Pending", always: false, ..RUNNING };
    assert_eq!(decide(Some(&job), None), Step::Lost);
    // It was accepted once, but nothing of it ever ran and it could not have finished.
    let server = Sketch { phase: "Pending", ..RUNNING };
    assert_eq!(decide(Some(&server), None), Step::Create);
}

#[test]
fn a_pod_created_a_moment_ago_is_neither_lost_nor_created_again() {
    assert_eq!(decide_with(Some(&PENDING), None, Some(1), true), Step::Rest(Rest::Appearing));
    assert_eq!(decide_with(Some(&RUNNING), None, Some(1), true), Step::Rest(Rest::Appearing));
}

#[test]
fn a_pod_evicted_by_the_provider_is_evicted_on_the_host() {
    let evicted = Sketch { grace: Some(7), ..RUNNING };
    assert_eq!(decide(Some(&RUNNING), Some(&evicted)), Step::Evict { grace: Duration::from_secs(7) });
    // A finished pod that is tidied away there keeps its result here.
    let tidied = Sketch { phase: "Succeeded", grace: Some(0), ..RUNNING };
    assert_eq!(decide(Some(&RUNNING), Some(&tidied)), Step::Rest(Rest::Ending));
    // And it must be this pod that was evicted.
    let other = Sketch { uid: "old", ..evicted };
    assert_eq!(decide(Some(&RUNNING), Some(&other)), Step::Rest(Rest::Ending));
}

#[test]
fn mirrors_of_static_pods_are_ignored() {
    let mirror = Sketch { mirror: true, grace: Some(0), ..RUNNING };
    assert_eq!(decide(Some(&mirror), None), Step::Rest(Rest::NotOurs));
}

fn sketch() -> impl Strategy<Value = Sketch> {
    (
        prop::sample::select(vec!["new", "old"]),
        prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
        prop::option::of(0..60u64),
        any::<(bool, bool, bool)>(),
    )
        .prop_map(|(uid, phase, grace, (started, always, finalizers))| Sketch {
            uid,
            phase,
            grace,
            started,
            always,
            finalizers,
            mirror: false,
        })
}

proptest! {
    #[test]
    fn promises(host in prop::option::of(sketch()), provider in prop::option::of(sketch()),
                accepted in prop::option::of(0..2u64), fresh in any::<bool>()) {
        let step = decide_with(host.as_ref(), provider.as_ref(), accepted, fresh);
        let terminal = |s: &Sketch| ["Succeeded", "Failed"].contains(&s.phase);
        match &step {
            // Never two pods under one name, nothing that ended or is ending is started, nothing twice.
            Step::Create => {
                let host = host.as_ref().unwrap();
                prop_assert!(provider.is_none() && !terminal(host) && host.grace.is_none() && !fresh);
                prop_assert!(host.phase != "Running");
            }
            // What is deleted is what the provider has, and it is not what the host wants running.
            Step::Delete { id, grace, confirm } => {
                let provider = provider.as_ref().unwrap();
                prop_assert_eq!(id.uid(), provider.uid);
                prop_assert!(provider.grace.is_none_or(|g| Duration::from_secs(g) > *grace));
                prop_assert_eq!(*confirm, host.as_ref().is_none_or(|host| host.uid != provider.uid));
                if let Some(host) = &host {
                    prop_assert!(host.uid != provider.uid || host.grace.is_some() || terminal(host));
                }
            }
            // An object leaves the host only if its deletion was asked for and the provider has no such pod.
            Step::Remove { .. } => {
                let host = host.as_ref().unwrap();
                prop_assert!(host.grace.is_some());
                prop_assert!(provider.as_ref().is_none_or(|p| p.uid != host.uid));
            }
            Step::Evict { .. } => {
                let (host, provider) = (host.as_ref().unwrap(), provider.as_ref().unwrap());
                prop_assert!(host.uid == provider.uid && provider.grace.is_some() && !terminal(provider));
                prop_assert!(host.grace.is_none() && !terminal(host));
            }
            Step::Lost => {
                let host = host.as_ref().unwrap();
                prop_assert!(provider.is_none() && !fresh && !terminal(host) && host.grace.is_none());
            }
            Step::Update => {
                let (host, provider) = (host.as_ref().unwrap(), provider.as_ref().unwrap());
                prop_assert!(host.uid == provider.uid && !terminal(provider) && provider.grace.is_none());
            }
            Step::Rest(_) => {}
        }
    }
}
