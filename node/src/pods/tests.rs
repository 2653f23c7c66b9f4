//! One pod at a time, against a host and a provider that do as they are told.

mod fakes;

use std::{sync::Arc, time::Duration};

use fakes::{FakeHost, Fixture, ScriptedProvider};
use http::{Method, StatusCode};
use serde_json::json;

use super::queue::Outcome;
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
    assert!(matches!(fixture.sync(0).await, Outcome::After(_)));
    assert_eq!(fixture.provider.calls(), ["create"], "the cache was wrong");
    fixture.host.remove();
    let outcome = fixture.sync(0).await;
    assert_eq!(fixture.provider.calls(), ["create", "delete 20s"], "{outcome:?}");
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

#[tokio::test]
async fn the_host_hears_which_generation_the_provider_has() {
    let fixture = Fixture::new(json!({"metadata": {"generation": 1}}));
    fixture.sync(0).await;
    fixture.sync(0).await;
    fixture.see_host();
    assert_eq!(fixture.host.pod()["status"]["observedGeneration"], 1);
    fixture.change_on_host(|pod| {
        pod["metadata"]["generation"] = json!(2);
        pod["spec"]["activeDeadlineSeconds"] = json!(60);
    });
    fixture.sync(0).await;
    assert_eq!(fixture.host.pod()["status"]["observedGeneration"], 2, "though nothing else changed");
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
}

#[tokio::test]
async fn a_provider_that_hangs_is_given_up_on() {
    tokio::time::pause();
    let fixture = Fixture::new(json!({}));
    fixture.provider.hang();
    assert!(matches!(fixture.sync(0).await, Outcome::Retry { .. }));
}

#[test]
fn the_fakes_are_what_the_contracts_say() {
    fn provider<P: crate::contract::Provider>(_: &Arc<P>) {}
    let (host, scripted) = (FakeHost::default(), Arc::new(ScriptedProvider::default()));
    provider(&scripted);
    assert!(host.writes().is_empty());
}
