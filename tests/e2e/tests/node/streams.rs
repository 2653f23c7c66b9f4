//! exec, attach and port-forward, from kubectl through the host's API server and a virtual node to a real container.
//!
//! What reaches the node depends on the host. Up to 1.35 an API server turns the websockets of kubectl into SPDY; from
//! 1.36 it passes them on as they are, if the node declares that it understands them.

use std::{collections::HashSet, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    own::Own,
    terminal::{SEES_ITS_SIZE, knows_its_size},
};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use futures::future::try_join_all;
use http::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::AttachParams, client::Body};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use super::{
    embedded::Embedded,
    objects::{create, pod, spec},
    pretend::Pretend,
    relay::Relay,
};

const KINDS: [&str; 3] = ["exec", "attach", "port-forward"];
const SPDY: &str = "POST spdy/3.1";
const WEBSOCKET: &str = "GET websocket";

#[tokio::test(flavor = "multi_thread")]
async fn streams_on_a_host_that_translates_websockets() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let (host, member) = (sandbox.cluster("host")?, sandbox.cluster("member1")?);
    streams(sandbox, &host, &member, SPDY).await
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_on_a_host_that_passes_websockets_on() -> Result<()> {
    let words = ["--members", "1", "--kubernetes", "1.36.3", "--member-kubernetes", "1.35.4"];
    let own = Own::start("streams", &words).await?;
    let (host, member) = (own.cluster("host")?, own.cluster("member1")?);
    streams(&own.sandbox()?, &host, &member, WEBSOCKET).await
}

/// All of it, where the websockets of kubectl arrive in this protocol.
async fn streams(sandbox: &Sandbox, host: &Cluster, member: &Cluster, websockets: &str) -> Result<()> {
    sandbox
        .in_namespace("streams", async |space| {
            let there = Kubectl::new(member.clone(), &space.namespace);
            create(&there, &pod("target", &target())).await?;
            there.run("wait pod/target --for=condition=Ready --timeout=90s").await?;
            let name = "e2e-streams";
            let provider = Arc::new(Pretend::with(Relay::new(member, &space.namespace, "target").await?));
            let relay = &provider.streams;
            let mut embedded = Embedded::start(host).await?;
            embedded.serve(name, provider.clone()).await?;
            let declared = ["get", "node", name, "-o", "jsonpath={.status.declaredFeatures}"];
            let declared = host.kubectl_output(&declared).await?;
            ensure!(
                declared.contains("ExtendWebSocketsToKubelet") == (websockets == WEBSOCKET),
                "{declared}"
            );

            let here = Kubectl::new(host.clone(), &space.namespace);
            create(&here, &pod("mirror", &spec(name, target()))).await?;
            here.run("wait pod/mirror --for=condition=Ready --timeout=60s").await?;
            for (wanted, arrives) in [("true", websockets), ("false", SPDY)] {
                let kubectl = here.clone().with("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", wanted);
                let kubectl = kubectl.with("KUBECTL_PORT_FORWARD_WEBSOCKETS", wanted);
                every_kind(&kubectl).await.with_context(|| format!("with websockets: {wanted}"))?;
                let expected: HashSet<_> = KINDS.map(|kind| (kind, arrives.to_owned())).into();
                let arrived = relay.arrived();
                ensure!(arrived == expected, "with websockets: {wanted}: {arrived:?}");
            }
            a_library(host, &space.namespace).await.context("a library")?;
            let expected = [("exec", websockets.to_owned()), ("port-forward", WEBSOCKET.to_owned())];
            let arrived = relay.arrived();
            ensure!(arrived == expected.into(), "{arrived:?}");
            a_web_console(host, &space.namespace).await.context("a web console")?;
            let arrived = relay.arrived();
            ensure!(arrived == [("exec", WEBSOCKET.to_owned())].into(), "{arrived:?}");
            who_vanishes_leaves_nothing_open(&here, relay, &embedded).await?;
            embedded.finish().await
        })
        .await
}

fn target() -> serde_json::Value {
    let talks = "i=0; while true; do echo line $i; i=$((i+1)); sleep 1; done";
    json!({"containers": [
        {"name": "app", "image": "busybox", "command": ["sh", "-c", talks]},
        {"name": "echo", "image": "busybox", "command": ["cat"], "stdin": true},
        {"name": "web", "image": "nginx"}]})
}

async fn every_kind(kubectl: &Kubectl) -> Result<()> {
    exit_codes(kubectl).await.context("exit codes")?;
    a_lot_of_input(kubectl).await.context("a lot of input")?;
    terminal(kubectl).await.context("a terminal")?;
    attach(kubectl).await.context("attach")?;
    port_forward(kubectl).await.context("port-forward")?;
    let log = kubectl.run("logs mirror -c app --tail=3").await?;
    ensure!(log.lines().count() == 3 && log.contains("line "), "{log}");
    ensure!(kubectl.run("logs mirror -c app --tail=0").await?.is_empty());
    Ok(())
}

async fn exit_codes(kubectl: &Kubectl) -> Result<()> {
    let exec = async |words: &[&str]| {
        let mut command = kubectl.command(&["exec", "mirror", "-c", "app", "--"])?;
        Ok::<_, anyhow::Error>(tokio::time::timeout(SOON, command.args(words).output()).await??)
    };
    let said = exec(&["echo", "a b  c", "ä&=?#"]).await?;
    ensure!(said.stdout == "a b  c ä&=?#\n".as_bytes(), "{said:?}");
    for code in [0, 7, 255] {
        let ended = exec(&["sh", "-c", &format!("echo out; echo err >&2; exit {code}")]).await?;
        ensure!(ended.status.code() == Some(code), "{ended:?}");
        ensure!(ended.stdout == b"out\n" && ended.stderr.starts_with(b"err\n"), "{ended:?}");
    }
    let ended = exec(&["/no/such/program"]).await?;
    ensure!(!ended.status.success() && !ended.stderr.is_empty(), "{ended:?}");
    let mut missing = kubectl.command(&["exec", "mirror", "-c", "nobody", "--", "ls"])?;
    ensure!(!missing.output().await?.status.success());
    Ok(())
}

/// A hundred million bytes through standard input, summed up on the other side.
async fn a_lot_of_input(kubectl: &Kubectl) -> Result<()> {
    let mut there = kubectl.command(&["exec", "-i", "mirror", "-c", "app", "--", "md5sum"])?;
    let mut here = Command::new("md5sum");
    let (there, here) = tokio::try_join!(sum_of_blocks(&mut there), sum_of_blocks(&mut here))?;
    ensure!(there.len() == 32 && there == here, "{there} is not {here}");
    Ok(())
}

async fn sum_of_blocks(command: &mut Command) -> Result<String> {
    let mut sum = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = sum.stdin.take().context("no standard input")?;
    let block: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let feed = async move {
        for _ in 0..100 {
            stdin.write_all(&block).await?;
        }
        stdin.shutdown().await?;
        Ok(())
    };
    let end = async { Ok::<_, anyhow::Error>(sum.wait_with_output().await?) };
    let patience = Duration::from_secs(180);
    let ((), said) = tokio::time::timeout(patience, async { tokio::try_join!(feed, end) }).await??;
    Ok(String::from_utf8_lossy(&said.stdout).split_whitespace().next().unwrap_or_default().to_owned())
}

async fn terminal(kubectl: &Kubectl) -> Result<()> {
    let command =
        kubectl.command(&["exec", "-it", "mirror", "-c", "app", "--", "sh", "-c", SEES_ITS_SIZE])?;
    knows_its_size(&command).await
}

fn unique() -> String {
    format!("{}-{}", std::process::id(), jiff::Timestamp::now().as_nanosecond())
}

async fn attach(kubectl: &Kubectl) -> Result<()> {
    let mut attached = kubectl.command(&["attach", "-i", "mirror", "-c", "echo"])?;
    let mut attached = attached.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdin = attached.stdin.take().context("no standard input")?;
    let mut lines = BufReader::new(attached.stdout.take().context("no standard output")?).lines();
    let word = unique();
    stdin.write_all(format!("{word}\n").as_bytes()).await?;
    let said = async {
        while let Some(line) = lines.next_line().await? {
            if line == word {
                return Ok(());
            }
        }
        anyhow::bail!("it ended without a word")
    };
    tokio::time::timeout(SOON, said).await?
}

async fn port_forward(kubectl: &Kubectl) -> Result<()> {
    let forward = kubectl.port_forward("pod/mirror", 80).await?;
    // Several connections over one, one after the other and at once.
    for _ in 0..3 {
        let answer = forward.get("/").await?;
        ensure!(answer.contains("Welcome"), "{answer}");
    }
    for answer in try_join_all((0..5).map(|_| forward.get("/"))).await? {
        ensure!(answer.contains("Welcome"), "{answer}");
    }
    Ok(())
}

/// A library speaks the newest protocol for exec, and an older one for port-forward, which is passed on as it is.
async fn a_library(host: &Cluster, namespace: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(host.client().await?, namespace);
    let wanted = AttachParams::default().container("app").stderr(false);
    let mut process = pods.exec("mirror", ["echo", "from a library"], &wanted).await?;
    let mut said = String::new();
    process.stdout().context("no output")?.read_to_string(&mut said).await?;
    ensure!(said == "from a library\n", "{said}");

    let mut forward = pods.portforward("mirror", &[80]).await?;
    let mut stream = forward.take_stream(80).context("no stream")?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.contains("Welcome"), "{answer}");
    Ok(())
}

/// Web consoles speak an older protocol, which API servers have always passed on.
async fn a_web_console(host: &Cluster, namespace: &str) -> Result<()> {
    let query = "container=app&command=echo&command=from+a+browser&stdout=true";
    let request = Request::get(format!("/api/v1/namespaces/{namespace}/pods/mirror/exec?{query}"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "v4.channel.k8s.io");
    let response = host.client().await?.send(request.body(Body::empty())?).await?;
    ensure!(response.status() == StatusCode::SWITCHING_PROTOCOLS, "{response:?}");
    ensure!(response.headers()["sec-websocket-protocol"] == "v4.channel.k8s.io", "{response:?}");
    let mut said = Vec::new();
    let mut frames = TokioIo::new(hyper::upgrade::on(response).await?);
    tokio::time::timeout(SOON, frames.read_to_end(&mut said)).await??;
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(said.contains("from a browser") && said.contains("Success"), "{said}");
    Ok(())
}

/// A client that is killed cannot say good-bye. What it had open in the member goes all the same.
async fn who_vanishes_leaves_nothing_open(
    kubectl: &Kubectl,
    relay: &Relay,
    embedded: &Embedded,
) -> Result<()> {
    let nothing_open = async || {
        eventually("nothing is open", SOON, async || {
            ensure!(relay.open() == 0, "{} connections to the member", relay.open());
            let open = embedded.metrics.encode();
            let open = open.lines().filter(|l| l.starts_with("federlet_streams_open{") && !l.ends_with(" 0"));
            let open: Vec<_> = open.collect();
            ensure!(open.is_empty(), "{open:?}");
            Ok(())
        })
        .await
    };
    nothing_open().await.context("before")?;
    for words in [
        &["exec", "mirror", "-c", "app", "--", "sleep", "3600"][..],
        &["attach", "mirror", "-c", "app"],
        &["port-forward", "pod/mirror", ":80"],
        &["logs", "--follow", "mirror", "-c", "app"],
    ] {
        let mut client = kubectl.command(words)?;
        let mut client = client.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let kind = if words[0] == "port-forward" { "port-forward" } else { words[0] };
        eventually(&format!("{kind} is open"), SOON, async || {
            let open = format!("federlet_streams_open{{kind=\"{kind}\"}} 1");
            ensure!(embedded.metrics.encode().contains(&open), "not yet");
            Ok(())
        })
        .await?;
        client.kill().await?;
        nothing_open().await.with_context(|| kind.to_owned())?;
    }
    Ok(())
}
