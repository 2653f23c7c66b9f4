//! How pods end, and which pod it is that ends.

use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_e2e::SOON;
use federlet_node::contract::ProviderError;
use federlet_sandbox::eventually;
use serde_json::json;

use super::stage::on_stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_name_used_again_waits_for_the_earlier_pod() -> Result<()> {
    on_stage("e2e-again", async |stage| {
        stage.provider.linger(true);
        let key = stage.start("db-0", json!({})).await?;
        let before = stage.field("db-0", "{.metadata.uid}").await?;
        // Gone from the host at once, and not at all at the provider.
        stage.kubectl.run("delete pod db-0 --force --grace-period=0").await?;
        stage.provider.called("db-0", "delete 0").await?;
        stage.create("db-0", json!({})).await?;
        let after = stage.field("db-0", "{.metadata.uid}").await?;
        stage.looked_at(3, async || stage.provider.tell(&key)).await?;
        ensure!(stage.provider.calls("db-0") == ["create", "delete 0"], "{:?}", stage.provider.calls("db-0"));
        stage.provider.vanish(&key);
        stage.ready("db-0").await?;
        ensure!(stage.provider.calls("db-0") == ["create", "delete 0", "create"]);
        ensure!(before != after && stage.field("db-0", "{.metadata.uid}").await? == after);
        let held = stage.provider.has(&key).map(|pod| pod.uid().to_owned());
        ensure!(held.as_deref() == Some(after.as_str()), "{held:?}");
        stage.provider.linger(false);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_containers_have_ended_is_not_waited_for() -> Result<()> {
    on_stage("e2e-ended", async |stage| {
        stage.provider.linger(true);
        let key = stage.start("p", json!({"terminationGracePeriodSeconds": 3600})).await?;
        stage.kubectl.run("delete pod p --wait=false").await?;
        stage.provider.called("p", "delete 3600").await?;
        stage.provider.report(&key, |status| {
            status["phase"] = json!("Failed");
            status["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 1}});
        });
        stage.provider.called("p", "delete 0").await?;
        stage.provider.vanish(&key);
        stage.gone("p").await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_provider_lost_while_it_ended_goes_from_the_host() -> Result<()> {
    on_stage("e2e-lostend", async |stage| {
        stage.provider.linger(true);
        let key = stage.start("p", json!({"terminationGracePeriodSeconds": 1})).await?;
        ensure!(
            stage.field("p", "{.metadata.finalizers}").await?.is_empty(),
            "we need no finalizer for that"
        );
        stage.kubectl.run("delete pod p --wait=false").await?;
        stage.provider.called("p", "delete 1").await?;
        stage.provider.lose(&key);
        stage.gone("p").await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_evicted_over_there_is_replaced_here() -> Result<()> {
    on_stage("e2e-evicted", async |stage| {
        stage.provider.linger(true);
        let key = stage.start("p", json!({})).await?;
        stage.provider.change(&key, |pod| pod.with_deletion(jiff::Timestamp::now(), Duration::from_secs(40)));
        eventually("the host ends it too", SOON, async || {
            let grace = stage.field("p", "{.metadata.deletionGracePeriodSeconds}").await?;
            ensure!(grace == "40", "{grace}");
            Ok(())
        })
        .await?;
        stage.told("p", "EvictedByProvider").await?;
        stage.provider.vanish(&key);
        stage.gone("p").await?;
        ensure!(stage.provider.calls("p") == ["create"], "it ends already");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_host_never_had_is_ended_only_when_that_is_certain() -> Result<()> {
    on_stage("e2e-orphan", async |stage| {
        let orphan = json!({"metadata": {"namespace": stage.namespace, "name": "orphan", "uid": "of-nobody"},
                            "spec": {"terminationGracePeriodSeconds": 7}});
        let key = stage.key("orphan");
        stage.provider.fail("get", Some(ProviderError::unavailable("the list broke off")));
        stage.provider.hold(orphan.try_into()?);
        eventually("it is looked at", SOON, async || {
            stage.provider.tell(&key);
            ensure!(stage.count("get", "unavailable") > 1);
            Ok(())
        })
        .await?;
        ensure!(stage.provider.calls("orphan").is_empty());
        stage.provider.fail("get", None);
        stage.provider.tell(&key);
        stage.provider.called("orphan", "delete 7").await?;
        ensure!(stage.provider.has(&key).is_none());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_loses_patience_is_heard() -> Result<()> {
    on_stage("e2e-hurry", async |stage| {
        stage.provider.linger(true);
        let key = stage.start("p", json!({"terminationGracePeriodSeconds": 3600})).await?;
        for (words, call) in [
            ("delete pod p --wait=false", "delete 3600"),
            ("delete pod p --wait=false --grace-period=20", "delete 20"),
            ("delete pod p --wait=false --force --grace-period=0", "delete 0"),
        ] {
            stage.kubectl.run(words).await?;
            stage.provider.called("p", call).await?;
        }
        stage.provider.vanish(&key);
        stage.gone("p").await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_holds_a_finalizer_hears_how_it_ended() -> Result<()> {
    on_stage("e2e-final", async |stage| {
        let mut pod = stage.pod("p", json!({}));
        pod["metadata"]["finalizers"] = json!(["example.com/reads"]);
        super::objects::create(&stage.kubectl, &pod).await?;
        stage.ready("p").await?;
        stage.kubectl.run("delete pod p --wait=false").await?;
        stage.says("p", "{.status.phase}", "Failed").await?;
        stage.says("p", "{.metadata.deletionGracePeriodSeconds}", "0").await?;
        stage.kubectl.args(&["patch", "pod", "p", "-p", r#"{"metadata":{"finalizers":null}}"#]).await?;
        stage.gone("p").await
    })
    .await
}
