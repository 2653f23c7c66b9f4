//! What a person may choose when a member joins, and seldom does.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::eventually;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::ground::{Ground, on_ground, pod};

const NODE: &str = "j-two";

/// Starts a pod on the node and waits until it is Ready.
async fn started(ground: &Ground, namespace: &str, name: &str) -> Result<Kubectl> {
    let kubectl = ground.kubectl(namespace);
    let mut object = pod(name, NODE);
    object["metadata"]["namespace"] = namespace.into();
    ground.apply(&object).await?;
    kubectl.run(&format!("wait pod/{name} --for=condition=Ready --timeout=60s")).await?;
    Ok(kubectl)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_may_keep_its_pods_while_it_is_away() -> Result<()> {
    on_ground("keeps", async |ground| {
        ground.join(NODE, "member2", &["--offline", "keep", "--namespace-prefix", "pre-"]).await?;
        let member = ground.member("member2")?;
        ground
            .sandbox
            .in_namespace("keeps", async |space| {
                let kubectl = started(ground, &space.namespace, "stays").await?;
                let there = Kubectl::new(member.clone(), &format!("pre-{}", space.namespace));
                let lives = async || {
                    let path = "jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}";
                    let here = kubectl.args(&["get", "pod", "stays", "-o", path]).await?;
                    Ok::<_, anyhow::Error>((here, there.args(&["get", "pod", "stays", "-o", path]).await?))
                };
                let before = lives().await?;
                let node = format!("node/{NODE}");
                member.partition().await?;
                let played = eventually("the member is away and its node is not", 2 * SOON, async || {
                    let reach = ".status.conditions[?(@.type==\"MemberReachable\")].status";
                    let reach = ground.field(&node, reach).await?;
                    let taints = ground.field(&node, ".spec.taints[*].key").await?;
                    ensure!(
                        reach == "False" && taints.contains("federlet.io/member-unreachable"),
                        "{reach} {taints}"
                    );
                    ground.is_ready(NODE).await?;
                    let phase = kubectl.run("get pod stays -o jsonpath={.status.phase}").await?;
                    ensure!(phase == "Running", "{phase}");
                    Ok(())
                })
                .await;
                member.heal().await?;
                played?;
                kubectl.run("wait pod/stays --for=condition=Ready --timeout=120s").await?;
                let after = lives().await?;
                ensure!(before == after, "before {before:?}, after {after:?}");
                Ok(())
            })
            .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_may_be_behind_a_proxy() -> Result<()> {
    on_ground("proxy", async |ground| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let proxy = tokio::spawn(proxy(listener, asked.clone()));
        ground.join(NODE, "member2", &["--proxy-url", &url]).await?;
        let endpoint = ground.field(&format!("cluster/{NODE}"), ".spec.apiEndpoint").await?;
        let played = ground
            .sandbox
            .in_namespace("proxy", async |space| {
                let kubectl = started(ground, &space.namespace, "web").await?;
                ensure!(kubectl.run("exec web -- hostname").await?.trim() == "web");
                Ok(())
            })
            .await;
        let there = endpoint.strip_prefix("https://").context("not https")?.to_owned();
        let asked = asked.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.clone();
        ensure!(!asked.is_empty() && asked.iter().all(|to| *to == there), "{asked:?}");
        ground.federlet(&["unjoin", NODE]).await?;
        proxy.abort();
        played
    })
    .await
}

/// A proxy as every company has one: CONNECT and nothing else. Notes where people wanted to go.
async fn proxy(listener: TcpListener, asked: Arc<Mutex<Vec<String>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let asked = asked.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await? > 0 {}
            let to = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
            let to = to.unwrap_or_default().to_owned();
            if let Ok(mut asked) = asked.lock() {
                asked.push(to.clone());
            }
            let mut there = TcpStream::connect(to).await?;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            tokio::io::copy_bidirectional(&mut stream, &mut there).await
        });
    }
}
