//! A virtual node on a real host: what people do with it, and what happens to it.

#[path = "node/callers.rs"]
mod callers;
#[path = "node/process.rs"]
mod process;
#[path = "node/relay.rs"]
mod relay;

use std::{collections::HashMap, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use process::{Process, remove_node};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

/// A pod spec for the node of a test.
fn spec(node: &str, extra: Value) -> Value {
    let mut spec = json!({
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"key": "virtual-kubelet.io/provider", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "app", "image": "nginx"}],
    });
    if let (Some(spec), Value::Object(extra)) = (spec.as_object_mut(), extra) {
        spec.extend(extra);
    }
    spec
}

async fn create(kubectl: &Kubectl, object: &Value) -> Result<()> {
    let mut command = kubectl.command(&["create", "-f", "-"])?;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(object.to_string().as_bytes()).await?;
    drop(stdin);
    let status = child.wait().await?;
    ensure!(status.success(), "kubectl create ended with {status}");
    Ok(())
}

fn workload(kind: &str, name: &str, spec: &Value) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn pod(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

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
            logs(&kubectl).await?;
            let refused = kubectl.run("exec db-0 -- ls").await;
            ensure!(refused.is_err_and(|e| e.to_string().contains("only pretends to run containers")));
            Ok(())
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
    let followed = kubectl.command(&["logs", "-f", "--tail=1", "db-0"])?.stdout(Stdio::piped()).spawn()?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    kubectl.run("delete pod db-0 --wait=false").await?;
    // The log ends with the pod, and so does the one who reads it.
    let said = tokio::time::timeout(Duration::from_secs(20), followed.wait_with_output()).await??;
    let count = String::from_utf8_lossy(&said.stdout).lines().count();
    ensure!(count >= 3, "followed {count} lines");
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
            Ok(())
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}

/// How often `federlet` wrote each pod of a namespace, by the host's audit log.
fn writes(host: &Cluster, namespace: &str) -> Result<HashMap<String, usize>> {
    let mut written = HashMap::new();
    for line in std::fs::read_to_string(host.audit_log())?.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let about = &event["objectRef"];
        let ours = event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("federlet/"))
            && about["namespace"] == namespace
            && about["resource"] == "pods"
            && event["stage"] == "ResponseComplete"
            && ["create", "update", "patch", "delete"].contains(&event["verb"].as_str().unwrap_or_default());
        if ours {
            *written.entry(about["name"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    Ok(written)
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
            tokio::time::sleep(Duration::from_secs(8)).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_comes_back_and_others_keep_what_they_wrote() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::start(&host, "e2e-node").await?;
    let name = node.name.clone();
    let get = async |path: &str| {
        host.kubectl_output(&["get", "node", &name, "-o", &format!("jsonpath={path}")]).await
    };
    host.kubectl_output(&["label", "node", &name, "team=a"]).await?;
    host.kubectl_output(&["taint", "node", &name, "theirs=x:NoSchedule"]).await?;
    let foreign = json!({"status": {"conditions": [{"type": "Foreign", "status": "True"}]}}).to_string();
    host.kubectl_output(&["patch", "node", &name, "--subresource=status", "-p", &foreign]).await?;
    node.terminate().await?;
    node.restart().await?;
    eventually("the new process wrote", SOON, async || {
        let holder = host
            .kubectl_output(&[
                "get",
                "lease",
                &name,
                "-n",
                "kube-node-lease",
                "-o",
                "jsonpath={.spec.holderIdentity}",
            ])
            .await?;
        ensure!(!holder.is_empty());
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(get("{.metadata.labels.team}").await? == "a");
    ensure!(get("{.spec.taints[*].key}").await?.contains("theirs"));
    ensure!(get("{.status.conditions[*].type}").await?.contains("Foreign"));
    let before = get("{.metadata.uid}").await?;
    host.kubectl_output(&["delete", "node", &name, "--wait=false"]).await?;
    eventually("the node is there again and Ready", SOON, async || {
        ensure!(get("{.metadata.uid}").await? != before);
        ensure!(get("{.status.conditions[?(@.type==\"Ready\")].status}").await? == "True");
        let taints = get("{.spec.taints[*].key}").await?;
        ensure!(taints.contains("virtual-kubelet.io/provider"), "{taints}");
        Ok(())
    })
    .await?;
    host.kubectl_output(&["annotate", "node", &name, "federlet.io/leaving=true"]).await?;
    host.kubectl_output(&["delete", "node", &name]).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(get("{.metadata.uid}").await.is_err(), "it came back though it was removed on purpose");
    node.terminate().await
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_reach_a_real_container() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let (host, member) = (sandbox.cluster("host")?, sandbox.cluster("member1")?);
    sandbox
        .in_namespace("streams", async |space| {
            let there = Kubectl::new(member.clone(), &space.namespace);
            let talks = "i=0; while true; do echo line $i; i=$((i+1)); sleep 1; done";
            let target = json!({"containers": [
                {"name": "app", "image": "busybox", "command": ["sh", "-c", talks], "stdin": true},
                {"name": "web", "image": "nginx"}]});
            create(&there, &pod("target", &target)).await?;
            there.run("wait pod/target --for=condition=Ready --timeout=90s").await?;
            let name = "e2e-streams";
            let _serving = relay::serve_relay(&host, &member, name, &space.namespace, "target").await?;
            let here = Kubectl::new(host.clone(), &space.namespace);
            let containers = json!([{"name": "app", "image": "busybox"}, {"name": "web", "image": "nginx"}]);
            create(&here, &pod("mirror", &spec(name, json!({"containers": containers})))).await?;
            here.run("wait pod/mirror --for=condition=Ready --timeout=60s").await?;
            for websockets in ["true", "false"] {
                streams(&here, websockets).await.with_context(|| format!("with websockets: {websockets}"))?;
            }
            remove_node(&host, name).await
        })
        .await
}

async fn streams(kubectl: &Kubectl, websockets: &str) -> Result<()> {
    let command = |words: &[&str]| {
        let mut command = kubectl.command(words)?;
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
        Ok::<_, anyhow::Error>(command)
    };
    eventually("exec works", SOON, async || {
        let said = command(&["exec", "mirror", "-c", "app", "--", "echo", "a b  c"])?.output().await?;
        ensure!(said.stdout == b"a b  c\n", "{}", String::from_utf8_lossy(&said.stderr));
        Ok(())
    })
    .await?;
    let ended =
        command(&["exec", "mirror", "-c", "app", "--", "sh", "-c", "echo out; echo err >&2; exit 7"])?
            .output()
            .await?;
    ensure!(ended.status.code() == Some(7), "{ended:?}");
    ensure!(ended.stdout == b"out\n" && ended.stderr.starts_with(b"err\n"), "{ended:?}");

    // A hundred million bytes through standard input, counted and summed on the other side.
    let mut sum = command(&["exec", "-i", "mirror", "-c", "app", "--", "md5sum"])?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = sum.stdin.take().context("no standard input")?;
    let block: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let feed = tokio::spawn(async move {
        for _ in 0..100 {
            stdin.write_all(&block).await?;
        }
        stdin.shutdown().await
    });
    let said = tokio::time::timeout(Duration::from_secs(180), sum.wait_with_output()).await??;
    feed.await??;
    let expected = md5_of_blocks().await?;
    ensure!(String::from_utf8_lossy(&said.stdout).starts_with(&expected), "{said:?} is not {expected}");

    // A terminal, of the size that its user's has.
    let script = format!(
        "stty rows 33 cols 77; {} exec -it mirror -c app -- sh -c 'sleep 1; stty size'",
        kubectl_line(&command(&[])?)
    );
    let mut terminal = tokio::process::Command::new("script");
    terminal.args(["-qec", &script, "/dev/null"]).stdin(Stdio::null());
    terminal.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets).env_remove("KUBECONFIG");
    let said = tokio::time::timeout(SOON, terminal.output()).await??;
    ensure!(String::from_utf8_lossy(&said.stdout).contains("33 77"), "{said:?}");

    let mut attached = command(&["attach", "mirror", "-c", "app"])?.stdout(Stdio::piped()).spawn()?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    attached.start_kill()?;
    let said = attached.wait_with_output().await?;
    ensure!(String::from_utf8_lossy(&said.stdout).contains("line "), "{said:?}");

    let forward = kubectl.port_forward("pod/mirror", 80).await?;
    ensure!(forward.get("/").await?.contains("Welcome"));
    let log = kubectl.run("logs mirror -c app --tail=3").await?;
    ensure!(log.lines().count() == 3 && log.contains("line "), "{log}");
    ensure!(kubectl.run("logs mirror -c app --tail=0").await?.is_empty());
    Ok(())
}

fn kubectl_line(command: &tokio::process::Command) -> String {
    let command = command.as_std();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| format!("'{}'", word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// The same sum, by this machine's own program.
async fn md5_of_blocks() -> Result<String> {
    let mut sum =
        tokio::process::Command::new("md5sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = sum.stdin.take().context("no standard input")?;
    let block: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..100 {
        stdin.write_all(&block).await?;
    }
    drop(stdin);
    let said = sum.wait_with_output().await?;
    Ok(String::from_utf8_lossy(&said.stdout).split_whitespace().next().unwrap_or_default().to_owned())
}
