//! A namespace with policies, and ways to count where pods are.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use federlet_sandbox::eventually;
use serde_json::{Value, json};
use tokio::sync::RwLock;

use crate::{
    SOON,
    fleet::{MEMBER1, MEMBER2},
    objects::pipe,
    stage::{Stage, on_stage},
};

/// Tests that stop `federlet serve` want it for themselves.
static SERVED: RwLock<()> = RwLock::const_new(());

/// Plays a test beside others.
pub async fn beside(name: &str, play: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    let _others = SERVED.read().await;
    on_stage(name, play).await
}

/// Plays a test alone. `federlet serve` runs again afterwards, whatever the test did.
pub async fn alone(name: &str, play: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    let _nobody = SERVED.write().await;
    on_stage(name, async |stage| {
        let played = play(stage).await;
        if stage.fleet.serve.pid().await.is_none() {
            stage.fleet.serve.restart().await?;
        }
        played
    })
    .await
}

/// A placement on both members, one to two.
pub fn one_to_two() -> Value {
    weights(1, 2)
}

/// A placement on both members with these weights.
pub fn weights(first: i64, second: i64) -> Value {
    json!({
        "clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [
                {"targetCluster": {"clusterNames": [MEMBER1]}, "weight": first},
                {"targetCluster": {"clusterNames": [MEMBER2]}, "weight": second}]},
        },
    })
}

/// A policy for one object.
pub fn policy(name: &str, kind: &str, object: &str, placement: &Value) -> Value {
    let version = match kind {
        "Pod" => "v1",
        "Job" | "CronJob" => "batch/v1",
        _ => "apps/v1",
    };
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": name},
        "spec": {
            "resourceSelectors": [{"apiVersion": version, "kind": kind, "name": object}], "placement": placement,
        },
    })
}

/// Containers that start at once and end at once, for a name.
pub fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "app", "image": "nginx"}]},
    })
}

/// A Deployment.
pub fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name),
        },
    })
}

/// A namespace of a test, with policies in it.
#[expect(async_fn_in_trait, reason = "nobody needs to name these futures")]
pub trait Scene {
    /// Creates or changes an object.
    async fn apply(&self, object: &Value) -> Result<()>;
    /// Creates or changes a policy, and waits until the namespace is covered.
    async fn obey(&self, policy: &Value) -> Result<()>;
    /// Pods that are not ending, by node.
    async fn counts(&self, selector: &str) -> Result<BTreeMap<String, usize>>;
    /// Waits until so many pods are Ready in each member, and no others are there.
    async fn has(&self, selector: &str, first: usize, second: usize) -> Result<()>;
}

impl Scene for Stage {
    async fn apply(&self, object: &Value) -> Result<()> {
        pipe(&self.host, &["apply", "-f", "-"], object).await.map(drop)
    }

    async fn obey(&self, policy: &Value) -> Result<()> {
        self.apply(policy).await?;
        eventually("the namespace is covered", SOON, async || {
            let words = ["get", "namespace", &self.namespace, "--show-labels"];
            let shown = self.fleet.host.kubectl_output(&words).await?;
            ensure!(shown.contains("federlet.io/policies=cover"), "{shown}");
            Ok(())
        })
        .await
    }

    async fn counts(&self, selector: &str) -> Result<BTreeMap<String, usize>> {
        let found = self.host.args(&["get", "pods", "-l", selector, "-o", "json"]).await?;
        let found: Value = serde_json::from_str(&found)?;
        let mut counts = BTreeMap::new();
        for pod in found["items"].as_array().context("a list")? {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            let ready = pod["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"));
            let node = pod["spec"]["nodeName"].as_str().filter(|_| ready).unwrap_or("not ready");
            *counts.entry(node.to_owned()).or_default() += 1;
        }
        Ok(counts)
    }

    async fn has(&self, selector: &str, first: usize, second: usize) -> Result<()> {
        let wanted: BTreeMap<String, usize> = [(MEMBER1.to_owned(), first), (MEMBER2.to_owned(), second)]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        eventually(&format!("{selector} is divided {first}:{second}"), 2 * SOON, async || {
            let found = self.counts(selector).await?;
            ensure!(found == wanted, "there are {found:?}");
            Ok(())
        })
        .await
    }
}
