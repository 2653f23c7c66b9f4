//! What keeps a pod from starting, and how its user hears of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_node::contract::ProviderError;
use federlet_sandbox::{Sandbox, eventually};
use serde_json::{Value, json};

use super::{
    objects::{create, pod, spec},
    process::Process,
    stage::on_stage,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_holds_a_pod_until_it_is_there() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::start(&host, "e2e-missing").await?;
    sandbox
        .in_namespace("missing", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            let needs = json!([{"secretRef": {"name": "creds"}}, {"configMapRef": {"name": "more", "optional": true}}]);
            let containers = json!([{"name": "app", "image": "nginx", "envFrom": needs}]);
            create(&kubectl, &pod("held", &spec(&node.name, json!({"containers": containers})))).await?;
            eventually("it says what is missing", SOON, async || {
                let events = kubectl.run("get events -o jsonpath={.items[*].reason}").await?;
                let reason = kubectl.run("get pod held -o jsonpath={.status.reason}").await?;
                ensure!(events.contains("MandatorySecretNotFound"), "{events}");
                ensure!(events.contains("OptionalConfigMapNotFound"), "{events}");
                ensure!(reason == "MandatorySecretNotFound", "{reason}");
                Ok(())
            })
            .await?;
            kubectl.run("create secret generic creds --from-literal=a=b").await?;
            kubectl.run("wait pod/held --for=condition=Ready --timeout=60s").await?;
            let reason = kubectl.run("get pod held -o jsonpath={.status.reason}").await?;
            ensure!(reason.is_empty(), "it still says {reason}");
            Ok(())
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}

/// Who waits looks for itself about once a minute, in case nobody says anything. A third of that is too short for it.
const NOTICED: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_because_what_it_waits_for_appears() -> Result<()> {
    on_stage("e2e-appearing", async |stage| {
        let with = |env: Value| json!({"containers": [{"name": "app", "image": "nginx", "envFrom": [env]}]});
        stage.create("a", with(json!({"configMapRef": {"name": "settings"}}))).await?;
        stage.create("b", with(json!({"secretRef": {"name": "creds"}}))).await?;
        let sources = json!([{"secret": {"name": "both-1"}}, {"configMap": {"name": "both-2"}}]);
        let volumes = json!([{"name": "both", "projected": {"sources": sources}}]);
        stage.create("c", json!({"volumes": volumes})).await?;
        for (name, reason) in [
            ("a", "MandatoryConfigMapNotFound"),
            ("b", "MandatorySecretNotFound"),
            ("c", "MandatorySecretNotFound"),
            ("c", "MandatoryConfigMapNotFound"),
        ] {
            stage.told(name, reason).await?;
        }
        // Who waits for two is looked at when one is there, and waits for the other from then on.
        let [map, secret] = ["create configmap", "create secret generic"];
        for (makes, object, starts) in [
            (secret, "both-1", None),
            (map, "settings", Some("a")),
            (secret, "creds", Some("b")),
            (map, "both-2", Some("c")),
        ] {
            stage.kubectl.run(&format!("{makes} {object} --from-literal=a=b")).await?;
            let Some(name) = starts else { continue };
            eventually(&format!("{name} starts"), NOTICED, async || {
                let calls = stage.provider.calls(name);
                ensure!(calls == ["create"], "{calls:?}");
                Ok(())
            })
            .await?;
            stage.ready(name).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_be_reached_is_tried_until_it_can() -> Result<()> {
    on_stage("e2e-outage", async |stage| {
        stage.provider.fail("create", Some(ProviderError::unavailable("connection refused")));
        stage.create("p", json!({"restartPolicy": "Never"})).await?;
        let told = stage.told("p", "ProviderUnavailable").await?;
        ensure!(told.contains("e2e-outage: connection refused, retrying in "), "{told}");
        ensure!(stage.field("p", "{.status.phase} {.status.reason}").await? == "Pending ProviderUnavailable");
        stage.provider.fail("create", None);
        stage.ready("p").await?;
        ensure!(stage.field("p", "{.status.reason}{.status.message}").await?.is_empty());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_and_fails_nobody() -> Result<()> {
    on_stage("e2e-refusal", async |stage| {
        for (name, error, reason) in [
            ("taken", ProviderError::already_exists("somebody's pod is there"), "ProviderNameTaken"),
            ("quota", ProviderError::rejected("QuotaExceeded", "3 of 3 pods"), "QuotaExceeded"),
            ("never", ProviderError::invalid("no Windows here"), "ProviderInvalidPod"),
        ] {
            let message = error.to_string();
            stage.provider.fail("create", Some(error));
            stage.create(name, json!({})).await?;
            let told = stage.told(name, reason).await?;
            ensure!(told.contains(&message), "{told}");
            stage.says(name, "{.status.phase} {.status.reason}", &format!("Pending {reason}")).await?;
            stage.kubectl.run(&format!("delete pod {name} --wait=false")).await?;
            stage.gone(name).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_slow_to_appear_is_neither_lost_nor_started_twice() -> Result<()> {
    on_stage("e2e-appears", async |stage| {
        stage.provider.fail("get", Some(ProviderError::NotFound));
        let key = stage.create("p", json!({"restartPolicy": "Never"})).await?;
        stage.provider.called("p", "create").await?;
        let seen = stage.count("get", "not_found");
        eventually("it is looked for", SOON, async || {
            stage.provider.tell(&key);
            ensure!(stage.count("get", "not_found") > seen + 3);
            Ok(())
        })
        .await?;
        ensure!(stage.field("p", "{.status.phase}").await? == "Pending");
        stage.provider.fail("get", None);
        stage.provider.tell(&key);
        stage.ready("p").await?;
        ensure!(stage.provider.calls("p") == ["create"], "{:?}", stage.provider.calls("p"));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn not_knowing_is_no_reason_for_anything() -> Result<()> {
    on_stage("e2e-unknown", async |stage| {
        let key = stage.start("p", json!({"restartPolicy": "Never"})).await?;
        stage.provider.fail("get", Some(ProviderError::unavailable("the cache is not filled")));
        stage.provider.fail("list", Some(ProviderError::unavailable("the cache is not filled")));
        eventually("it is asked for", SOON, async || {
            stage.provider.tell(&key);
            ensure!(stage.count("get", "unavailable") > 3);
            Ok(())
        })
        .await?;
        ensure!(stage.field("p", "{.status.phase}").await? == "Running");
        ensure!(stage.provider.calls("p") == ["create"], "{:?}", stage.provider.calls("p"));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picture_of_a_static_pod_is_not_a_pod_to_run() -> Result<()> {
    on_stage("e2e-static", async |stage| {
        let mut mirror = stage.pod("mirror", json!({}));
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        create(&stage.kubectl, &mirror).await?;
        stage.start("p", json!({})).await?;
        ensure!(stage.provider.calls("mirror").is_empty(), "{:?}", stage.provider.calls("mirror"));
        ensure!(stage.field("mirror", "{.status.phase}").await? == "Pending");
        Ok(())
    })
    .await
}
