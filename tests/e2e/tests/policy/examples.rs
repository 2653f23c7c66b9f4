//! Every example on real API servers: what `federlet simulate` says of it is what happens.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use federlet_e2e::{
    Kubectl, SOON,
    objects::{pipe, pipe_to},
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::played::{AVAILABLE, MEMBERS, Played, played};

/// Files that another test plays: the edge on machines that pull images, failover from its beginning to its end.
const ELSEWHERE: [&str; 3] = ["clusters", "edge", "failover"];

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

fn examples() -> Result<Vec<String>> {
    let mut names = vec![];
    for entry in std::fs::read_dir(file("examples"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|end| end == "yaml") && !ELSEWHERE.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Applies a file: policies first, so that no pod starts elsewhere and moves.
async fn apply(played: &Played, text: &str) -> Result<()> {
    let of_policies = |part: &&str| part.contains("apiVersion: policy.karmada.io");
    let is_space = |part: &&str| part.contains("kind: Namespace");
    let parts: Vec<&str> = text.split("\n---\n").collect();
    let first = parts.iter().copied().filter(|part| of_policies(part) || is_space(part));
    // What somebody may have to define first comes last.
    let (defines, last): (Vec<&str>, Vec<&str>) = parts
        .iter()
        .copied()
        .filter(|part| !of_policies(part) && !is_space(part))
        .partition(|part| part.contains("kind: CustomResourceDefinition"));
    let spaces: Vec<&str> = parts.iter().copied().filter(is_space).collect();
    for some in [spaces.clone(), first.collect(), defines] {
        if !some.is_empty() {
            applied(played, &some.join("\n---\n")).await?;
        }
    }
    let last = last.join("\n---\n");
    let take =
        async || eventually("the host takes the objects", SOON, async || applied(played, &last).await).await;
    // Only where pods may come is a namespace covered.
    let has_pods = text.contains("kind: Deployment") || text.contains("kind: Job");
    let Some(space) = spaces.first().filter(|_| has_pods) else { return take().await };
    let namespace = space.split("name: ").nth(1).context("a name")?.trim();
    played.is_covered(namespace).await?;
    // `simulate` decides about a whole workload at once: pods wait until all of them are there.
    suspend(played, namespace, "true").await?;
    take().await?;
    let host = played.on_host(namespace);
    eventually(&format!("all pods of {namespace} are there"), SOON, async || {
        let path = "jsonpath={.items[*].spec.replicas}{.items[*].spec.parallelism}";
        let wanted: usize = host.args(&["get", "deployments,jobs", "-o", path]).await?.trim().parse()?;
        let found = list(&host, "pods").await?.len();
        ensure!(found == wanted, "there are {found} of {wanted}");
        Ok(())
    })
    .await?;
    suspend(played, namespace, "null").await
}

/// Holds back what the policies of a namespace have, or lets it go.
async fn suspend(played: &Played, namespace: &str, held: &str) -> Result<()> {
    let host = played.on_host(namespace);
    for policy in host.run("get pp -o name").await?.lines() {
        let patch = format!(r#"{{"spec": {{"suspension": {{"dispatching": {held}}}}}}}"#);
        host.args(&["patch", policy, "--type=merge", "-p", &patch]).await?;
    }
    Ok(())
}

async fn applied(played: &Played, text: &str) -> Result<()> {
    pipe_to(&played.host, &["apply", "-f", "-"], text).await.map(drop)
}

/// What `federlet simulate` says of an example, of clusters that are here.
fn expected(name: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file(&format!("tests/simulate/{name}.json")))?;
    let entries: Vec<Value> = serde_json::from_str(&text)?;
    Ok(entries.into_iter().filter(|entry| !rendered(entry).is_empty()).collect())
}

fn rendered(entry: &Value) -> BTreeMap<&str, &Value> {
    let all = entry["rendered"].as_object().into_iter().flatten();
    all.filter(|(cluster, _)| MEMBERS.iter().any(|member| member.name == cluster.as_str()))
        .map(|(cluster, object)| (cluster.as_str(), object))
        .collect()
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().unwrap_or_default()
}

/// Whether all that is wanted is there.
fn holds(wanted: &Value, there: &Value) -> bool {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => {
            wanted.iter().all(|(key, value)| there.get(key).is_some_and(|found| holds(value, found)))
        }
        (Value::Array(wanted), Value::Array(there)) => {
            wanted.len() == there.len() && wanted.iter().zip(there).all(|(a, b)| holds(a, b))
        }
        _ => wanted == there,
    }
}

async fn list(kubectl: &Kubectl, what: &str) -> Result<Vec<Value>> {
    let found: Value = serde_json::from_str(&kubectl.run(&format!("get {what} -o json")).await?)?;
    Ok(found["items"].as_array().cloned().unwrap_or_default())
}

/// Pods by node, without those that stand for copies. What is not Ready is nowhere.
async fn counts(played: &Played, namespace: &str) -> Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for pod in list(&played.on_host(namespace), "pods").await? {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node == "fleet" || !pod["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
        *counts.entry(if ready { node } else { "nowhere" }.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// Whether pods of a workload are where they should be, each as its cluster should have it.
async fn runs(played: &Played, entry: &Value) -> Result<()> {
    let namespace = text(entry, "namespace");
    let field = if text(entry, "kind") == "Job" { "/spec/parallelism" } else { "/spec/replicas" };
    let replicas = |object: &Value| object.pointer(field).and_then(Value::as_u64).unwrap_or(0);
    let wanted: BTreeMap<String, u64> =
        rendered(entry).into_iter().map(|(cluster, object)| (cluster.to_owned(), replicas(object))).collect();
    let found = counts(played, namespace).await?;
    ensure!(found == wanted, "there are {found:?}, not {wanted:?}");
    for (cluster, object) in rendered(entry) {
        let template = &object["spec"]["template"];
        let pods = list(&played.in_member(cluster, namespace)?, "pods").await?;
        ensure!(pods.len() as u64 == wanted[cluster], "{cluster} has {} pods", pods.len());
        for pod in pods {
            let labels = template.pointer("/metadata/labels").unwrap_or(&Value::Null);
            ensure!(labels.is_null() || holds(labels, &pod["metadata"]["labels"]), "{cluster} has {pod}");
            let plain = |container: &Value| {
                let field = |name: &str| container.get(name).cloned().unwrap_or(Value::Null);
                json!([field("name"), field("image"), field("command"), field("args")])
            };
            let of = |spec: &Value| -> Vec<Value> {
                spec["containers"].as_array().into_iter().flatten().map(plain).collect()
            };
            let (wanted, found) = (of(&template["spec"]), of(&pod["spec"]));
            ensure!(wanted == found, "{cluster} runs {found:?}, not {wanted:?}");
        }
    }
    Ok(())
}

/// Whether an object is where it should be, as it should be, and nowhere else.
async fn is_copied(played: &Played, entry: &Value) -> Result<()> {
    let (group, version) = text(entry, "apiVersion").split_once('/').unwrap_or(("", "v1"));
    let kind = text(entry, "kind").to_lowercase();
    let kind = if group.is_empty() { kind } else { format!("{kind}.{version}.{group}") };
    let what = format!("{kind}/{}", text(entry, "name"));
    for member in MEMBERS.iter().filter(|member| !member.name.starts_with("gpu")) {
        let there = played.in_member(member.name, text(entry, "namespace"))?;
        // A cluster that lacks the definition lacks the object.
        let found = there.args(&["get", &what, "--ignore-not-found", "-o", "json"]).await.unwrap_or_default();
        let Some(wanted) = rendered(entry).get(member.name).copied().cloned() else {
            ensure!(found.is_empty(), "{} has {what}", member.name);
            continue;
        };
        let found: Value =
            serde_json::from_str(&found).with_context(|| format!("{what} in {}", member.name))?;
        ensure!(holds(&as_kept(wanted), &found), "{} has {found}", member.name);
    }
    Ok(())
}

/// An object as an API server keeps it: the text of a Secret as bytes, and here maybe in a namespace of its region.
fn as_kept(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    let texts = object.as_object_mut().and_then(|object| object.remove("stringData"));
    for (key, value) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
        let bytes = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        object["data"][key] = json!(bytes);
    }
    object
}

async fn does_as_expected(played: &Played, name: &str) -> Result<()> {
    for entry in expected(name)? {
        let what = format!("{name}: {} {} is as simulate says", text(&entry, "kind"), text(&entry, "name"));
        eventually(&what, 3 * SOON, async || {
            if ["Deployment", "Job"].contains(&text(&entry, "kind")) {
                runs(played, &entry).await
            } else {
                is_copied(played, &entry).await
            }
        })
        .await?;
    }
    Ok(())
}

/// What somebody has to allow, or to have, before the examples work.
async fn prepare(played: &Played) -> Result<()> {
    let role = |verbs: &[&str]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "federlet-backups", "labels": {"federlet.io/objects": "true"}},
            "rules": [{"apiGroups": ["example.com"], "resources": ["backups"], "verbs": verbs}]})
    };
    played.apply("default", &role(&["get", "list", "watch"])).await?;
    for member in ["member1", "member2", "member3"] {
        let there = played.in_member(member, "default")?;
        let copies = role(&["get", "list", "watch", "create", "patch", "delete"]);
        pipe(&there, &["apply", "-f", "-"], &copies).await?;
    }
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "batch"}, "value": 10});
    pipe(&played.in_member("member2", "default")?, &["apply", "-f", "-"], &class).await?;
    played.apply("default", &class).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_does_what_simulate_says() -> Result<()> {
    played(async |played| {
        prepare(played).await?;
        let read = |name: &str| std::fs::read_to_string(file(&format!("examples/{name}.yaml")));
        let names = examples()?;
        ensure!(names.len() >= 12, "{names:?}");
        // This one is about what machines have. The others are beside each other, so their clusters say what room there is.
        apply(played, &read("gpu")?).await?;
        does_as_expected(played, "gpu").await?;
        for member in &MEMBERS {
            let room = format!("{AVAILABLE}={}", member.room);
            played.host.kubectl_output(&["annotate", "cluster", member.name, &room]).await?;
        }
        let others = names.iter().filter(|name| *name != "gpu");
        for name in others.clone() {
            apply(played, &read(name)?).await.with_context(|| name.clone())?;
        }
        for name in others {
            does_as_expected(played, name).await?;
        }
        fails_over(played, &read("failover")?).await
    })
    .await
}

/// The example of a workload that leaves a cluster, in less than its minute.
async fn fails_over(played: &Played, example: &str) -> Result<()> {
    apply(played, &example.replace("tolerationSeconds: 60", "tolerationSeconds: 20")).await?;
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    eventually("all replicas run, some of them in member1", 2 * SOON, async || {
        let found = counts(played, "failover").await?;
        ensure!(
            sum(&found) == 6 && found.contains_key("member1") && !found.contains_key("nowhere"),
            "{found:?}"
        );
        Ok(())
    })
    .await?;
    let there = played.in_member("member1", "failover")?;
    eventually("the workload has left member1", 3 * SOON, async || {
        // None of its pods there is Ready any more.
        for pod in there.run("get pods -o name").await?.lines() {
            let unwell = r#"{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}"#;
            // It may just have gone.
            let _ = there.args(&["patch", pod, "--subresource=status", "-p", unwell]).await;
        }
        let found = counts(played, "failover").await?;
        let kept = found.keys().all(|node| ["member2", "member3"].contains(&node.as_str()));
        ensure!(sum(&found) == 6 && kept, "{found:?}");
        let path = "jsonpath={.spec.leftClusters[*].name}";
        let left = played.on_host("failover").args(&["get", "rb", "web-deployment", "-o", path]).await?;
        ensure!(left == "member1", "it left {left:?}");
        Ok(())
    })
    .await
}
