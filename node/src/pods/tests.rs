//! One pod at a time, against a host and a provider that do as they are told.

mod fakes;
mod generations;

use std::{sync::Arc, time::Duration};

use fakes::{FakeHost, Fixture, ScriptedProvider};
use http::{Method, StatusCode};
use serde_json::json;

use tokio_util::sync::CancellationToken;

use super::{PodSettings, queue::Outcome, sync::CALL_TIMEOUT};
use crate::contract::ProviderError;

#[tokio::test]
async fn a_pod_is_created_once_and_its_status_written_once() {
    let fixture = Fixture::new(json!({}));
    assert!(matches!(fixture.sync(0).await, Outcome::After(_)));
    assert_eq!(fixture.provider.calls(), ["create"]);
    assert_eq!(fixture.sync(0).await, Outcome::Done);
    assert_eq!(fixture.host.writes(), ["PATCH status"]);
    assert_eq!(fixture.host.pod()["status"]["phase"], "Running");
    assert_eq!(fixture.host.pod()["status"]["qosClass"], "BestEffort");
    fixture.see_host();
    assert_eq!(fixture.sync(0).await, Outcome::Done);
    assert_eq!(fixture.provider.calls(), ["create"]);
    assert_eq!(fixture.host.writes().len(), 1);
}

#[tokio::test]
async fn an_outage_is_told_once_and_never_fails_a_pod() {
    let fixture = Fixture::new(json!({"spec": {"restartPolicy": "Never", "containers": []}}));
    fixture.provider.fail_next("create", 4, &ProviderError::unavailable("connection refused"));
    for failures in 0..4 {
        assert!(matches!(fixture.sync(failures).await, Outcome::Retry { .. }));
        fixture.see_host();
        // A single glitch is no news, and what was told is not told again.
        assert_eq!(fixture.host.writes().len(), usize::from(failures > 0));
    }
    let status = fixture.host.pod()["status"].clone();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Pending"), &json!("ProviderUnavailable")));
    assert_eq!(status["message"], "member1: connection refused");
    assert!(status.get("startTime").is_none());
    fixture.sync(4).await;
    fixture.sync(0).await;
    assert_eq!(fixture.host.pod()["status"]["phase"], "Running");
    assert!(fixture.host.pod()["status"].get("reason").is_none());
}

#[tokio::test]
async fn a_refusal_keeps_the_pod_pending_with_its_reason() {
    let fixture = Fixture::new(json!({}));
    fixture.provider.fail_next("create", 1, &ProviderError::rejected("QuotaExceeded", "pods: 3 of 3"));
    let Outcome::Retry { backoff, .. } = fixture.sync(0).await else { panic!() };
    assert!(backoff.first >= Duration::from_secs(5));
    assert_eq!(fixture.host.pod()["status"]["reason"], "QuotaExceeded");
}

#[tokio::test]
async fn not_knowing_changes_nothing() {
    let fixture = Fixture::new(json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}));
    fixture.provider.fail_next("get", 2, &ProviderError::unavailable("cache is not filled"));
    for failures in 0..2 {
        assert!(matches!(fixture.sync(failures).await, Outcome::Retry { .. }));
    }
    assert!(fixture.host.writes().is_empty());
    assert!(fixture.provider.calls().is_empty());
}

#[tokio::test]
async fn a_pod_that_ran_and_is_gone_fails_and_is_not_run_again() {
    let fixture = Fixture::new(json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}));
    fixture.sync(0).await;
    assert_eq!(fixture.host.pod()["status"]["phase"], "Failed");
    assert_eq!(fixture.host.pod()["status"]["reason"], "PodLost");
    fixture.see_host();
    fixture.sync(0).await;
    assert!(fixture.provider.calls().is_empty());
}

#[tokio::test]
async fn a_status_that_the_host_refuses_does_not_block_the_end() {
    let fixture = Fixture::running().await;
    fixture.provider.report(json!({"phase": "Running", "podIP": "not an address"}));
    fixture.host.answer(Method::PATCH, StatusCode::UNPROCESSABLE_ENTITY, 10);
    assert!(matches!(fixture.sync(0).await, Outcome::Retry { .. }));
    fixture.delete_on_host(5);
    fixture.sync(1).await;
    assert_eq!(fixture.provider.calls().last().unwrap(), "delete 5s");
    fixture.provider.is_gone();
    assert_eq!(fixture.sync(0).await, Outcome::Done);
    assert_eq!(fixture.host.writes().last().unwrap(), "DELETE uid-1 0");
}

#[tokio::test]
async fn a_conflict_is_read_again_once() {
    let fixture = Fixture::running().await;
    fixture.provider.report(json!({"phase": "Running", "message": "news"}));
    fixture.host.answer(Method::PATCH, StatusCode::CONFLICT, 1);
    assert_eq!(fixture.sync(0).await, Outcome::Done);
    assert_eq!(fixture.host.pod()["status"]["message"], "news");
    fixture.provider.report(json!({"phase": "Running", "message": "more"}));
    fixture.see_host();
    fixture.host.answer(Method::PATCH, StatusCode::CONFLICT, 2);
    assert!(matches!(fixture.sync(0).await, Outcome::Retry { .. }), "then it waits its turn");
}

#[tokio::test]
async fn the_grace_period_is_passed_on_and_again_when_it_shrinks() {
    let fixture = Fixture::running().await;
    fixture.delete_on_host(30);
    fixture.sync(0).await;
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "delete 30s"]);
    fixture.delete_on_host(2);
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "delete 30s", "delete 2s"]);
}

#[tokio::test]
async fn how_a_pod_ended_is_said_before_it_goes_to_whoever_holds_a_finalizer() {
    let fixture = Fixture::running().await;
    fixture.change_on_host(|pod| pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]));
    fixture.delete_on_host(30);
    fixture.sync(0).await;
    // The end of its containers and its phase come in one, and the pod is gone right after it was told to go.
    let ended = json!([{"name": "app", "state": {"terminated": {"exitCode": 0}}}]);
    fixture.provider.report(json!({"phase": "Succeeded", "containerStatuses": ended}));
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls().last().unwrap(), "delete 0ns");
    fixture.provider.is_gone();
    // The watch is behind: it still shows a pod that runs.
    fixture.sync(0).await;
    let status = &fixture.host.pod()["status"];
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["containerStatuses"], ended);
    assert_eq!(fixture.host.writes().last().unwrap(), "DELETE uid-1 0");
}

#[tokio::test]
async fn who_had_nothing_to_begin_with_is_asked_again_when_that_changed() {
    let fixture = Fixture::new(json!({}));
    fixture.sync(0).await;
    fixture.provider.is_gone();
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create"], "it may not show yet");
    fixture.reconsider();
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "create"]);
}

#[tokio::test]
async fn a_removal_names_the_uid_and_happens_once() {
    let fixture = Fixture::running().await;
    fixture.delete_on_host(30);
    fixture.provider.is_gone();
    fixture.sync(0).await;
    // The watch has not said so yet.
    fixture.sync(0).await;
    assert_eq!(fixture.host.writes().iter().filter(|w| w.starts_with("DELETE")).count(), 1);
}

#[tokio::test]
async fn an_orphan_goes_only_if_the_host_itself_does_not_have_it() {
    let fixture = Fixture::running().await;
    fixture.vanish_from_view();
    let Outcome::Retry { backoff, .. } = fixture.sync(0).await else { panic!() };
    assert!(
        backoff.pause(1, None) < backoff.pause(9, None),
        "a cache that stays wrong is asked less and less"
    );
    assert_eq!(fixture.provider.calls(), ["create"], "the cache was wrong");
    fixture.host.remove();
    let outcome = fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "delete 20s"], "{outcome:?}");
}

#[tokio::test]
async fn the_later_of_two_pods_of_a_name_is_not_ended_for_the_earlier() {
    let fixture = Fixture::running().await;
    // Another process served the node meanwhile: it started this one, and our watch is behind.
    fixture.see(|pod| pod["metadata"]["uid"] = json!("uid-0"));
    assert!(matches!(fixture.sync(0).await, Outcome::Retry { .. }));
    assert_eq!(fixture.provider.calls(), ["create"]);
    // And if it is the earlier one, it goes.
    fixture.host.replace("uid-2");
    fixture.see_host();
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "delete 20s"]);
}

#[tokio::test]
async fn a_provider_that_contradicts_itself_is_not_asked_in_a_loop() {
    let fixture = Fixture::running().await;
    fixture.delete_on_host(30);
    fixture.provider.fail_next("delete", 1, &ProviderError::NotFound);
    let Outcome::Retry { backoff, .. } = fixture.sync(0).await else { panic!() };
    assert!(backoff.pause(1, None) >= Duration::from_millis(100));
    assert!(backoff.pause(1, None) < backoff.pause(9, None));
}

#[tokio::test]
async fn pods_of_namespaces_that_are_not_served_are_left_alone() {
    let fixture = Fixture::serving_elsewhere().await;
    fixture.host.remove();
    assert_eq!(fixture.sync(0).await, Outcome::Done);
    assert_eq!(fixture.provider.calls(), ["create"]);
}

#[tokio::test]
async fn a_pod_that_ends_in_years_is_waited_for() {
    let fixture = Fixture::running().await;
    fixture.delete_on_host(i64::MAX.unsigned_abs());
    assert!(matches!(fixture.sync(0).await, Outcome::After(_)));
    assert!(fixture.provider.calls().last().unwrap().starts_with("delete "));
}

#[tokio::test]
async fn an_eviction_over_there_is_an_eviction_here() {
    let fixture = Fixture::running().await;
    fixture.provider.evict(7);
    fixture.sync(0).await;
    assert_eq!(fixture.host.writes().last().unwrap(), "DELETE uid-1 7");
}

#[tokio::test]
async fn while_the_node_is_not_ready_its_pods_are_not_and_nothing_else_is_said() {
    let fixture = Fixture::running().await;
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    fixture.provider.report(json!({"phase": "Running", "conditions": [ready]}));
    fixture.sync(0).await;
    fixture.see_host();
    let before = fixture.host.writes().len();
    let readiness = || fixture.host.pod()["status"]["conditions"][0]["status"].clone();

    // Nobody has asked the provider yet.
    fixture.healthy.send_replace(None);
    fixture.provider.report(json!({"phase": "Running", "message": "from before", "conditions": [ready]}));
    fixture.sync(0).await;
    assert_eq!((fixture.host.writes().len(), readiness()), (before, json!("True")));

    fixture.healthy.send_replace(Some(false));
    fixture.provider.fail_next("get", 1, &ProviderError::unavailable("connection refused"));
    for _ in 0..3 {
        fixture.sync(0).await;
        fixture.see_host();
    }
    assert_eq!((fixture.host.writes().len(), readiness()), (before + 1, json!("False")));
    assert!(fixture.host.pod()["status"].get("message").is_none());

    fixture.healthy.send_replace(Some(true));
    fixture.sync(0).await;
    assert_eq!((fixture.host.writes().len(), readiness()), (before + 2, json!("True")));
    assert_eq!(fixture.host.pod()["status"]["message"], "from before");
}

#[tokio::test]
async fn a_change_is_told_to_the_provider_once() {
    let fixture = Fixture::running().await;
    fixture.change_on_host(|pod| pod["metadata"]["labels"] = json!({"a": "b"}));
    fixture.sync(0).await;
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "update"]);
}

/// Between the question and the answer the provider may change its mind.
#[tokio::test]
async fn what_is_to_be_told_again_is_so_though_it_is_just_being_told() {
    let fixture = Fixture::new(json!({}));
    let meanwhile = |change: fn(&Fixture)| {
        let fixture = &fixture;
        async move {
            fixture.provider.hold();
            tokio::join!(fixture.sync(0), async {
                tokio::task::yield_now().await;
                change(fixture);
                fixture.provider.let_go();
            });
        }
    };
    meanwhile(Fixture::reconsider).await;
    assert_eq!(fixture.provider.calls(), ["create"]);
    meanwhile(Fixture::full_resync).await;
    assert_eq!(fixture.provider.calls(), ["create", "update"]);
    meanwhile(|_| {}).await;
    assert_eq!(fixture.provider.calls(), ["create", "update", "update"]);
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "update", "update"], "and not again");
}

#[tokio::test]
async fn a_change_that_the_provider_does_not_take_keeps_nothing_from_being_told() {
    let fixture = Fixture::new(json!({"metadata": {"generation": 1}}));
    fixture.sync(0).await;
    fixture.sync(0).await;
    fixture.see_host();
    fixture.provider.fail_next("update", 9, &ProviderError::invalid("ConfigMap \"settings\" not found"));
    fixture.change_on_host(|pod| {
        pod["metadata"]["generation"] = json!(2);
        pod["metadata"]["labels"] = json!({"a": "b"});
    });
    let conditions = json!([{"type": "Ready", "status": "False"}]);
    fixture.provider.report(json!({"phase": "Running", "conditions": conditions}));
    let before = fixture.host.writes().len();
    for failures in 0..3 {
        assert!(matches!(fixture.sync(failures).await, Outcome::Retry { .. }));
        fixture.see_host();
        let status = fixture.host.pod()["status"].clone();
        assert_eq!(status["conditions"][0]["status"], "False");
        assert_eq!(status["observedGeneration"], 1, "the provider does not have the second");
    }
    assert_eq!(fixture.host.writes().len(), before + 1);
    assert!(fixture.host.pod()["status"].get("reason").is_none(), "the pod itself is well");
}

#[tokio::test]
async fn a_host_that_drops_what_it_does_not_know_is_told_once() {
    let fixture = Fixture::running().await;
    fixture.host.drop_field("fromTheFuture");
    fixture.provider.report(json!({"phase": "Running", "fromTheFuture": 1, "message": "m"}));
    let before = fixture.host.writes().len();
    for _ in 0..3 {
        fixture.sync(0).await;
        fixture.see_host();
    }
    assert_eq!(fixture.host.writes().len(), before + 1);
    // Also when everything is compared.
    fixture.full_resync();
    fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "update"]);
    assert_eq!(fixture.host.writes().len(), before + 1);
}

#[tokio::test]
async fn the_picture_of_a_static_pod_is_nobodys_to_write() {
    let fixture = Fixture::new(json!({
        "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }));
    for healthy in [Some(true), Some(false)] {
        fixture.healthy.send_replace(healthy);
        assert_eq!(fixture.sync(0).await, Outcome::Done);
    }
    assert!(fixture.host.writes().is_empty());
    assert!(fixture.provider.calls().is_empty());
}

#[tokio::test]
async fn a_provider_that_hangs_is_given_up_on() {
    tokio::time::pause();
    let fixture = Fixture::new(json!({}));
    fixture.provider.hang();
    assert!(matches!(fixture.sync(0).await, Outcome::Retry { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_does_not_hold_up_the_end() {
    let fixture = Fixture::new(json!({}));
    fixture.provider.hang();
    let (controller, stop) = (fixture.controller(), CancellationToken::new());
    let running = tokio::spawn(controller.run(stop.clone()));
    while fixture.provider.hanging() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    // Less than a call may take, so it is not its end that is waited for.
    tokio::time::timeout(CALL_TIMEOUT / 2, running).await.unwrap().unwrap();
    assert_eq!(fixture.provider.hanging(), 0, "somebody else may serve the node now");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_done_when_it_ends_is_done_to_the_end() {
    let fixture = Fixture::new(json!({}));
    fixture.provider.hold();
    let (controller, stop) = (fixture.controller(), CancellationToken::new());
    let running = tokio::spawn(controller.run(stop.clone()));
    while fixture.provider.waiting() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!running.is_finished(), "it waits for the pod that is being made");
    fixture.provider.let_go();
    running.await.unwrap();
    assert_eq!(fixture.provider.calls(), ["create"]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_told_is_found_out_from_time_to_time() {
    let fixture = Fixture::running().await;
    let (controller, stop) = (fixture.controller(), CancellationToken::new());
    let running = tokio::spawn(controller.run(stop.clone()));
    // The provider's stream never says a word, and the host's watch is silent, too.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = fixture.host.writes().len();
    fixture.provider.report(json!({"phase": "Succeeded"}));
    tokio::time::sleep(PodSettings::default().full_resync / 2).await;
    assert_eq!(fixture.host.writes().len(), before, "nothing is written while nothing is known to be new");
    tokio::time::sleep(PodSettings::default().full_resync).await;
    assert_eq!(fixture.host.pod()["status"]["phase"], "Succeeded");
    let after = fixture.host.writes().len();
    fixture.see_host();
    tokio::time::sleep(4 * PodSettings::default().full_resync).await;
    assert_eq!(fixture.host.writes().len(), after, "and looking again writes nothing");
    stop.cancel();
    running.await.unwrap();
}

#[test]
fn the_fakes_are_what_the_contracts_say() {
    fn provider<P: crate::contract::Provider>(_: &Arc<P>) {}
    let (host, scripted) = (FakeHost::default(), Arc::new(ScriptedProvider::default()));
    provider(&scripted);
    assert!(host.writes().is_empty());
}
