//! `kill -9` at every step of a pod's life.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use serde_json::{Value, json};

use super::{
    embedded::proxied,
    link::{Link, Passes},
    objects::{create, pod, spec},
    process::Process,
};

/// The last that the memory provider wrote down about a pod of this name: the pod, and its run while it has one.
fn written_down(node: &Process, name: &str) -> Result<Value> {
    let text = std::fs::read_to_string(node.state_file())?;
    let mut entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries.rfind(|entry| entry["pod"]["metadata"]["name"] == name).context("nothing")
}

/// A pod bound to the node that names no other objects, so that nothing is asked of the host before it starts.
fn bound(node: &Process, name: &str, annotations: &Value) -> Value {
    let spec = spec(&node.name, json!({"nodeName": node.name, "automountServiceAccountToken": false}));
    let mut pod = pod(name, &spec);
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

/// Each step is met exactly: a link lets the process hear the host but not answer, so that it acts on its pods and is
/// killed before the host can learn of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_each_step_loses_and_repeats_nothing() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let link = Link::to(&host).await?;
    let mut node = Process::new(&host, "e2e-steps").await?.over(&link)?;
    node.begin().await?;
    let result = sandbox
        .in_namespace("steps", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            let mut steps = Steps { host: &host, link: &link, node: &mut node, kubectl };
            steps.before_it_is_created().await.context("before it is created")?;
            steps.created_and_not_reported().await.context("created and not reported")?;
            steps.running().await.context("running")?;
            steps.while_it_ends().await.context("while it ends")?;
            steps.ended_and_not_removed().await.context("ended and not removed")
        })
        .await;
    result.with_context(|| node.log())?;
    node.finish().await
}

struct Steps<'a> {
    host: &'a Cluster,
    link: &'a Link,
    node: &'a mut Process,
    kubectl: Kubectl,
}

impl Steps<'_> {
    async fn before_it_is_created(&mut self) -> Result<()> {
        self.node.kill().await?;
        self.create("early", json!({})).await?;
        self.node.restart().await?;
        self.runs_once("early").await
    }

    async fn created_and_not_reported(&mut self) -> Result<()> {
        self.link.let_through(Passes::OnlyFromHost);
        self.create("between", json!({})).await?;
        self.wait_for("between", |entry| !entry["run"].is_null()).await?;
        ensure!(self.kubectl.run("get pod between -o jsonpath={.status.phase}").await? == "Pending");
        self.crash().await?;
        self.runs_once("between").await
    }

    async fn running(&mut self) -> Result<()> {
        let before = self.kubectl.run("get pod between -o jsonpath={.metadata.resourceVersion}").await?;
        self.crash().await?;
        eventually("it is compared", SOON, async || {
            let updates = self.node.operations("update").await?;
            ensure!(updates >= 2, "{updates} of 2");
            Ok(())
        })
        .await?;
        self.runs_once("between").await?;
        let after = self.kubectl.run("get pod between -o jsonpath={.metadata.resourceVersion}").await?;
        ensure!(before == after, "something was written though nothing changed");
        Ok(())
    }

    async fn while_it_ends(&mut self) -> Result<()> {
        self.create("ending", json!({"memory.federlet.io/stop-after": "4"})).await?;
        self.runs_once("ending").await?;
        self.kubectl.run("delete pod ending --wait=false").await?;
        self.wait_for("ending", |entry| entry["pod"]["metadata"]["deletionTimestamp"].is_string()).await?;
        self.crash().await?;
        self.gone("ending").await
    }

    async fn ended_and_not_removed(&mut self) -> Result<()> {
        self.link.let_through(Passes::OnlyFromHost);
        self.kubectl.run("delete pod early --wait=false").await?;
        self.wait_for("early", |entry| entry["run"].is_null()).await?;
        ensure!(!self.kubectl.run("get pod early -o name").await?.is_empty(), "the host has it still");
        self.crash().await?;
        self.gone("early").await?;
        self.runs_once("between").await
    }

    async fn create(&self, name: &str, annotations: Value) -> Result<()> {
        create(&self.kubectl, &bound(self.node, name, &annotations)).await
    }

    /// Waits until the provider has written something down.
    async fn wait_for(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        eventually(&format!("the provider writes down {name}"), SOON, async || {
            let entry = written_down(self.node, name)?;
            ensure!(wanted(&entry), "{entry}");
            Ok(())
        })
        .await
    }

    /// Kills it, and starts it again with an open link.
    async fn crash(&mut self) -> Result<()> {
        self.node.kill().await?;
        self.link.let_through(Passes::Everything);
        self.node.restart().await
    }

    /// The pod runs, there is one of it, and it is the one that was started first.
    async fn runs_once(&self, name: &str) -> Result<()> {
        self.kubectl.run(&format!("wait pod/{name} --for=condition=Ready --timeout=60s")).await?;
        let began = self.kubectl.run(&format!("get pod {name} -o jsonpath={{.status.startTime}}")).await?;
        let entry = written_down(self.node, name)?;
        let written = entry["run"]["podBegan"].as_str().unwrap_or_default();
        ensure!(written.starts_with(began.trim_end_matches('Z')), "began {began}, then again {written}");
        eventually("it is listed", SOON, async || {
            let list: Value =
                serde_json::from_str(&proxied(self.host, &self.node.name, "runningpods/").await?)?;
            let items = list["items"].as_array().context("no list")?;
            let count = items.iter().filter(|pod| pod["metadata"]["name"] == name).count();
            ensure!(count == 1, "{count} times");
            Ok(())
        })
        .await
    }

    async fn gone(&self, name: &str) -> Result<()> {
        eventually(&format!("{name} is gone"), SOON, async || {
            let found = self.kubectl.args(&["get", "pod", name, "--ignore-not-found", "-o", "name"]).await?;
            ensure!(found.is_empty(), "the host has it");
            Ok(())
        })
        .await?;
        let entry = written_down(self.node, name);
        ensure!(entry.as_ref().map_or(true, |entry| entry["run"].is_null()), "{entry:?}");
        Ok(())
    }
}

/// What happened on the host while nobody served the node, and what the provider forgot meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn what_happened_meanwhile_is_made_up_for() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::start(&host, "e2e-meanwhile").await?;
    let result = sandbox
        .in_namespace("meanwhile", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            for name in ["forced", "ended", "stays"] {
                create(&kubectl, &bound(&node, name, &json!({}))).await?;
                kubectl.run(&format!("wait pod/{name} --for=condition=Ready --timeout=60s")).await?;
            }
            node.kill().await?;
            kubectl.run("delete pod forced --force --grace-period=0").await?;
            kubectl.run("delete pod ended --wait=false").await?;
            node.restart().await?;
            eventually("only one is left", SOON, async || {
                let pods = kubectl.run("get pods -o name").await?;
                ensure!(pods.trim() == "pod/stays", "{pods}");
                for name in ["forced", "ended"] {
                    ensure!(written_down(&node, name)?["run"].is_null(), "the provider has {name}");
                }
                Ok(())
            })
            .await?;

            // A pod that finished, and one that may have, are not run again by a provider that forgot them.
            let once = |name: &str, seconds: &str| {
                let mut pod = bound(&node, name, &json!({"memory.federlet.io/run-for": seconds}));
                pod["spec"]["restartPolicy"] = json!("Never");
                pod
            };
            create(&kubectl, &once("finished", "1")).await?;
            create(&kubectl, &once("unknown", "3600")).await?;
            let phase = "--for=jsonpath={.status.phase}";
            kubectl.run(&format!("wait pod/finished {phase}=Succeeded --timeout=60s")).await?;
            kubectl.run("wait pod/unknown --for=condition=Ready --timeout=60s").await?;
            node.kill().await?;
            std::fs::remove_file(node.state_file())?;
            node.restart().await?;
            kubectl.run(&format!("wait pod/unknown {phase}=Failed --timeout=60s")).await?;
            let reasons =
                "get pods finished unknown -o jsonpath={.items[*].status.phase},{.items[*].status.reason}";
            let reasons = kubectl.run(reasons).await?;
            ensure!(reasons == "Succeeded Failed,PodLost", "{reasons}");
            for name in ["finished", "unknown"] {
                ensure!(written_down(&node, name).is_err(), "{name} was started again");
            }
            Ok(())
        })
        .await;
    result.with_context(|| node.log())?;
    node.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_moment_loses_and_repeats_nothing() -> Result<()> {
    const PODS: usize = 60;
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::start(&host, "e2e-crash").await?;
    let result = sandbox
        .in_namespace("crash", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            let bound = spec(&node.name, json!({"nodeName": node.name}));
            for round in 0..6 {
                let items: Vec<Value> =
                    (0..PODS / 6).map(|n| pod(&format!("p{}", round * PODS / 6 + n), &bound)).collect();
                create(&kubectl, &json!({"apiVersion": "v1", "kind": "List", "items": items})).await?;
                // A different moment in the life of these pods each time.
                tokio::time::sleep(Duration::from_millis(30 * round as u64)).await;
                node.kill().await?;
                node.restart().await?;
            }
            eventually("all run", SOON, async || {
                let names = kubectl.run("get pods --field-selector=status.phase=Running -o name").await;
                let count = names.map_err(|e| e.to_string())?.lines().count();
                if count == PODS { Ok(()) } else { Err(format!("{count} run")) }
            })
            .await?;
            let versions = "get pods -o jsonpath={.items[*].metadata.resourceVersion}";
            let before = kubectl.run(versions).await?;
            node.kill().await?;
            node.restart().await?;
            eventually("all are compared", SOON, async || {
                let updates = node.operations("update").await?;
                ensure!(updates >= PODS, "{updates} of {PODS}");
                Ok(())
            })
            .await?;
            ensure!(kubectl.run(versions).await? == before, "a restart wrote to pods that did not change");
            kubectl.run("delete pods --all --wait=false").await?;
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(120)).await;
                node.kill().await?;
                node.restart().await?;
            }
            eventually("all are gone", SOON, async || {
                let names = kubectl.run("get pods -o name").await.map_err(|e| e.to_string())?;
                if names.is_empty() { Ok(()) } else { Err(names) }
            })
            .await
        })
        .await;
    result.with_context(|| node.log())?;
    node.finish().await
}
