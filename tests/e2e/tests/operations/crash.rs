use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::MEMBER1,
    objects::{pipe, pod, spec},
    stage::on_stage,
};
use federlet_provider::names::{HostId, MemberName, anchor};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::{MEMBERS, REGIONS};

/// How many pods there are.
const PODS: u64 = 200;
/// How often the process is killed.
const KILLS: u32 = 8;
/// Which kills to repeat, if not new ones.
const SEED: &str = "FEDERLET_CRASH_SEED";

/// Numbers that look random and can be had again (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

fn name(number: u64) -> String {
    format!("pod-{number}")
}

/// Pods that are deleted while others are created.
fn doomed() -> Vec<String> {
    (0..PODS).step_by(4).map(name).collect()
}

/// One in eight really runs, and half of those are doomed. No machine of the member takes the others: kubelets have more
/// work with each than API servers do.
fn runs(number: u64) -> bool {
    number % 16 < 2
}

async fn delete(kubectl: &Kubectl, pods: &[String]) -> Result<String> {
    let mut words = vec!["delete", "pod", "--wait=false", "--ignore-not-found"];
    words.extend(pods.iter().map(String::as_str));
    kubectl.args(&words).await
}

fn sorted(text: &str) -> Vec<String> {
    let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    words.sort();
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_leaves_one_pod_for_each_and_no_orphans() -> Result<()> {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    play(seed).await.with_context(|| format!("to have the same kills again, set {SEED}={seed}"))
}

async fn play(seed: u64) -> Result<()> {
    let _members = MEMBERS.lock().await;
    let _regions = REGIONS.lock().await;
    on_stage("killed", async |stage| {
        let (serve, mut dice) = (&stage.fleet.serve, Dice(seed));
        let uid = ["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"];
        let host = HostId::new(&stage.fleet.host.kubectl_output(&uid).await?)?;
        let anchor = anchor(&host, &MemberName::new(MEMBER1)?);
        let mut object = pod("pod", &spec(MEMBER1, json!({"nodeName": MEMBER1, "terminationGracePeriodSeconds": 1})));
        stage.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"}, "stringData": {"a": "b"}})).await?;
        object["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "own"}}]);
        let list: Vec<Value> = (0..PODS)
            .map(|number| {
                let mut object = object.clone();
                object["metadata"]["name"] = name(number).into();
                if !runs(number) {
                    object["metadata"]["annotations"] =
                        json!({"federlet.io/constraints": json!({"nodeSelector": {"no": "where"}}).to_string()});
                }
                object
            })
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": list});
        let create = pipe(&stage.host, &["create", "-f", "-"], &list);
        let disturb = async {
            for _ in 0..KILLS {
                tokio::time::sleep(Duration::from_millis(100 + dice.below(2500))).await;
                serve.kill().await?;
                serve.restart().await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        let remove = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            for some in doomed().chunks(5) {
                let _ = delete(&stage.host, some).await;
            }
            Ok::<_, anyhow::Error>(())
        };
        let (created, disturbed, removed) = tokio::join!(create, disturb, remove);
        created?;
        disturbed?;
        removed?;
        // Some may have been deleted before they were created.
        delete(&stage.host, &doomed()).await?;
        let doomed: BTreeSet<String> = doomed().into_iter().collect();
        let left: Vec<String> = (0..PODS).map(name).filter(|name| !doomed.contains(name)).collect();
        eventually("each host pod has its one pod in the member", 3 * SOON, async || {
            let host = sorted(&stage.host.run("get pods -o jsonpath={.items[*].metadata.uid}").await?);
            let path = "get pods -o jsonpath={.items[*].metadata.labels.federlet\\.io/host-uid}";
            let member = sorted(&stage.member.run(path).await?);
            ensure!(host.len() == left.len(), "the host has {} pods", host.len());
            ensure!(host == member, "{} pods on the host, {} in the member", host.len(), member.len());
            Ok(())
        })
        .await
        .with_context(|| serve.tail())?;
        let running = (0..PODS).filter(|number| runs(*number)).map(name).filter(|name| !doomed.contains(name));
        let mut running: Vec<String> = running.collect();
        running.sort();
        eventually("those that can run do, on both sides, and never began again", 3 * SOON, async || {
            let path = "jsonpath={range .items[?(@.status.phase==\"Running\")]}{.metadata.name} {end}";
            for side in [&stage.host, &stage.member] {
                let found = sorted(&side.args(&["get", "pods", "-o", path]).await?);
                ensure!(found == running, "{} of {} run", found.len(), running.len());
                let counts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
                let counts = sorted(&side.args(&["get", "pods", "-o", counts]).await?);
                ensure!(counts.iter().all(|count| count == "0"), "{counts:?}");
            }
            Ok(())
        })
        .await
        .with_context(|| serve.tail())?;
        stage.host.run("delete pods --all --wait=false").await?;
        eventually("nothing of ours is left but the anchor", 2 * SOON, async || {
            let kinds = "get pods,secrets,configmaps,services,pvc -l federlet.io/host -o name";
            let left = stage.member.run(kinds).await?;
            let left: Vec<&str> = left.lines().filter(|name| *name != format!("configmap/{anchor}")).collect();
            ensure!(left.is_empty(), "{left:?}");
            let pods = stage.host.run("get pods -o name").await?;
            ensure!(pods.is_empty(), "on the host: {pods}");
            Ok(())
        })
        .await
    })
    .await
}
