//! What people run: Deployments, StatefulSets, Jobs, a thousand pods at once; and their logs.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Sandbox, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{
    audit::{longest_without_heartbeat, writes},
    embedded::proxied,
    objects::{create, pod, spec, workload},
    process::Process,
};

#[tokio::test(flavor = "multi_thread")]
async fn workloads_run_roll_scale_and_complete() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::start(&host, "e2e-workloads").await?;
    sandbox
        .in_namespace("workloads", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            let template = |app: &str| {
                json!({"metadata": {"labels": {"app": app}}, "spec": spec(&node.name, json!({}))})
            };
            let selector = |app: &str| json!({"matchLabels": {"app": app}});
            let web = json!({"replicas": 3, "selector": selector("web"), "template": template("web")});
            create(&kubectl, &workload("Deployment", "web", &web)).await?;
            let db = json!({"replicas": 2, "serviceName": "db", "selector": selector("db"), "template": template("db")});
            create(&kubectl, &workload("StatefulSet", "db", &db)).await?;
            let once = spec(&node.name, json!({"restartPolicy": "Never"}));
            let job = json!({"completions": 3, "parallelism": 2, "template": {"spec": once}});
            create(&kubectl, &workload("Job", "once", &job)).await?;

            kubectl.run("rollout status deployment/web --timeout=60s").await?;
            kubectl.run("rollout status statefulset/db --timeout=60s").await?;
            kubectl.run("wait job/once --for=condition=Complete --timeout=60s").await?;
            kubectl.run("set image deployment/web app=nginx:2").await?;
            kubectl.run("rollout status deployment/web --timeout=60s").await?;
            kubectl.run("scale statefulset/db --replicas=4").await?;
            kubectl.run("rollout status statefulset/db --timeout=60s").await?;
            // The name of a StatefulSet's pod comes back with another pod.
            let before = kubectl.run("get pod db-0 -o jsonpath={.metadata.uid}").await?;
            // kubectl must not wait: the next pod is there before it looks, and then it would wait for that one's end.
            kubectl.run("delete pod db-0 --wait=false").await?;
            eventually("another pod has the name", SOON, async || {
                let after = kubectl.run("get pod db-0 -o jsonpath={.metadata.uid}").await?;
                ensure!(before != after, "db-0 is still the same pod");
                Ok(())
            })
            .await?;
            kubectl.run("rollout status statefulset/db --timeout=60s").await?;
            // A DaemonSet is for machines, and the taint says that this is none.
            let agents = json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}});
            let agent = json!({"selector": selector("agent"), "template": agents});
            create(&kubectl, &workload("DaemonSet", "agent", &agent)).await?;
            kubectl.run("rollout status daemonset/agent --timeout=60s").await?;
            let nodes = kubectl.run("get pods -l app=agent -o jsonpath={.items[*].spec.nodeName}").await?;
            ensure!(!nodes.is_empty() && !nodes.contains(&node.name), "{nodes}");
            logs(&kubectl).await?;
            // The pod whose log was followed to its end has a successor, which may not be bound yet.
            eventually("exec says why it cannot be", SOON, async || {
                let refused = kubectl.run("exec db-0 -- ls").await.err().map(|error| error.to_string());
                let why = refused.unwrap_or_default();
                ensure!(why.contains("only pretends to run containers"), "{why:?}");
                Ok(())
            })
            .await
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}

async fn logs(kubectl: &Kubectl) -> Result<()> {
    let lines = async |options: &str| {
        let said = kubectl.run(&format!("logs db-0 {options}")).await?;
        Ok::<_, anyhow::Error>(said.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    eventually("there are some lines", SOON, async || {
        if lines("").await.is_ok_and(|all| all.len() > 4) { Ok(()) } else { Err("few lines") }
    })
    .await?;
    ensure!(lines("").await?[0].starts_with("0 "));
    ensure!(lines("--tail=0").await?.is_empty());
    ensure!(lines("--tail=2").await?.len() == 2);
    ensure!(lines("--since=2s").await?.len() <= 3);
    ensure!(lines("--since-time=2100-01-01T00:00:00Z").await?.is_empty());
    ensure!(kubectl.run("logs db-0 --limit-bytes=3").await?.len() == 3);
    let dated = lines("--timestamps --tail=1").await?;
    ensure!(dated[0].split(' ').next().is_some_and(|time| time.ends_with('Z')), "{dated:?}");
    ensure!(kubectl.run("logs db-0 --previous").await.is_err());
    follow(kubectl).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ran_before_left_its_log() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::start(&host, "e2e-previous").await?;
    sandbox
        .in_namespace("previous", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            let mut restarts = pod("p", &spec(&node.name, json!({})));
            restarts["metadata"]["annotations"] =
                json!({"memory.federlet.io/run-for": "3", "memory.federlet.io/exit-code": "7"});
            create(&kubectl, &restarts).await?;
            eventually("it was started again", SOON, async || {
                let code = "{.status.containerStatuses[0].lastState.terminated.exitCode}";
                let code = kubectl.run(&format!("get pod p -o jsonpath={code}")).await?;
                ensure!(code == "7", "{code:?}");
                Ok(())
            })
            .await?;
            let said = kubectl.run("logs p --previous").await?;
            let lines: Vec<&str> = said.lines().collect();
            ensure!(lines.len() >= 3 && lines[0].starts_with("0 "), "{said}");
            ensure!(kubectl.run("logs p --previous --tail=1").await?.lines().count() == 1);

            // Hosts pass this option on only with a feature that is off; who asks the node itself has it.
            let of = |output: &str| format!("containerLogs/{}/p/app?stream={output}", space.namespace);
            ensure!(proxied(&host, &node.name, &of("Stdout")).await?.contains("is running"));
            ensure!(proxied(&host, &node.name, &of("Stderr")).await?.is_empty());
            Ok(())
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}

/// The log ends with the pod, and so does the one who reads it.
async fn follow(kubectl: &Kubectl) -> Result<()> {
    let mut following =
        kubectl.command(&["logs", "-f", "--tail=1", "db-0"])?.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(following.stdout.take().context("no output")?).lines();
    for _ in 0..3 {
        let line = tokio::time::timeout(SOON, lines.next_line()).await??.context("it ended")?;
        ensure!(line.ends_with("is running"), "{line}");
    }
    kubectl.run("delete pod db-0 --wait=false").await?;
    let end = async {
        while lines.next_line().await?.is_some() {}
        Ok::<_, anyhow::Error>(following.wait().await?)
    };
    tokio::time::timeout(SOON, end).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pods_at_once_cost_two_writes_each() -> Result<()> {
    const PODS: usize = 1000;
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::start(&host, "e2e-thousand").await?;
    sandbox
        .in_namespace("thousand", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            let bound = spec(&node.name, json!({"nodeName": node.name}));
            let items: Vec<Value> = (0..PODS).map(|n| pod(&format!("p{n}"), &bound)).collect();
            create(&kubectl, &json!({"apiVersion": "v1", "kind": "List", "items": items})).await?;
            eventually("all run", Duration::from_secs(120), async || {
                let names = kubectl.run("get pods --field-selector=status.phase=Running -o name").await;
                let count = names.map_err(|e| e.to_string())?.lines().count();
                if count == PODS { Ok(()) } else { Err(format!("{count} run")) }
            })
            .await?;
            let raw = format!("/api/v1/nodes/{}/proxy/runningpods/", node.name);
            let running: Value = serde_json::from_str(&host.kubectl_output(&["get", "--raw", &raw]).await?)?;
            let listed = running["items"].as_array().context("no items")?.len();
            ensure!(listed == PODS, "{listed} are listed");
            kubectl.run("delete pods --all --wait=false").await?;
            eventually("all are gone", Duration::from_secs(120), async || {
                let names = kubectl.run("get pods -o name").await.map_err(|e| e.to_string())?;
                if names.is_empty() { Ok(()) } else { Err(format!("{} are left", names.lines().count())) }
            })
            .await?;
            let written = writes(&host, &space.namespace)?;
            let most = written.values().max().copied().unwrap_or_default();
            let all: usize = written.values().sum();
            ensure!(written.len() == PODS, "{} pods were written", written.len());
            ensure!(most <= 3 && all <= PODS * 2 + PODS / 10, "{all} writes, {most} for one pod");
            // All that work must not have cost the node its good name: a lease lasts 40 s.
            let gap = longest_without_heartbeat(&host, &node.name)?;
            ensure!(gap < jiff::SignedDuration::from_secs(40), "no heartbeat for {gap:?}");
            Ok(())
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}
