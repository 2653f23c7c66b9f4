//! How much a caller can take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use federlet_e2e::{Kubectl, SOON};
use federlet_node::{
    api::ApiSettings,
    contract::{ByteStream, LogOptions, Pod, PodStreams, ProviderError, UpgradeAnswer, UpgradeRequest},
};
use federlet_sandbox::{Sandbox, eventually};
use futures::{StreamExt, stream};
use http::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    net::TcpStream,
};

use super::{
    callers::{Credentials, ask, caller},
    embedded::{Embedded, config},
    objects::{create, pod, spec},
    pretend::Pretend,
};

/// Its containers never stop to talk. It counts what was taken of it.
#[derive(Default)]
struct Talker {
    taken: Arc<AtomicU64>,
}

#[async_trait]
impl PodStreams for Talker {
    async fn logs(&self, _: &Pod, _: &str, _: &LogOptions) -> Result<ByteStream, ProviderError> {
        let taken = self.taken.clone();
        let block = bytes::Bytes::from(vec![b'x'; 64 * 1024]);
        let blocks = stream::repeat_with(move || {
            taken.fetch_add(block.len() as u64, Ordering::Relaxed);
            Ok(block.clone())
        });
        Ok(blocks.boxed())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_can_take_only_so_much() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let settings = ApiSettings { connections: 30, streams_per_pod: 2, ..ApiSettings::default() };
    let talker = Arc::new(Pretend::<Talker>::default());
    let taken = talker.streams.taken.clone();
    let mut embedded = Embedded::with(&host, config(&host).await?, settings).await?;
    let name = "e2e-limits";
    let port = embedded.serve(name, talker).await?;
    sandbox
        .in_namespace("limits", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            for pod_name in ["p", "q"] {
                create(&kubectl, &pod(pod_name, &spec(name, json!({})))).await?;
                kubectl.run(&format!("wait pod/{pod_name} --for=condition=Ready --timeout=60s")).await?;
            }
            let log = |pod: &str| format!("/containerLogs/{}/{pod}/app?follow=true", space.namespace);
            let admin = async || caller(&host, embedded.address, port, Credentials::Admin).await;

            // A client that asks and then reads nothing: what it does not take is not asked for.
            let stalled = admin().await?.send(Request::get(log("p")).body(Body::empty())?).await?;
            ensure!(stalled.status() == StatusCode::OK);
            let mut before = u64::MAX;
            eventually("nothing more is taken", SOON, async || {
                let now = taken.load(Ordering::Relaxed);
                let still = std::mem::replace(&mut before, now) == now;
                tokio::time::sleep(Duration::from_millis(300)).await;
                ensure!(still, "{now} bytes so far");
                Ok(())
            })
            .await?;
            // That much fits into the buffers of two kernels' ends of a connection.
            ensure!(before < 32 << 20, "{before} bytes for a client that reads nothing");

            // A pod has two places for streams. They are free again when their clients are gone.
            let second = admin().await?.send(Request::get(log("p")).body(Body::empty())?).await?;
            ensure!(second.status() == StatusCode::OK);
            let third = ask(&admin().await?, &log("p"), false).await?;
            ensure!(third == StatusCode::TOO_MANY_REQUESTS, "{third}");
            ensure!(
                ask(&admin().await?, &log("q"), false).await? == StatusCode::OK,
                "another pod has its own"
            );
            drop(stalled);
            eventually("its place is free", SOON, async || {
                let answer = ask(&admin().await?, &log("p"), false).await?;
                ensure!(answer == StatusCode::OK, "{answer}");
                Ok(())
            })
            .await?;
            drop(second);

            // Those who connect and say nothing wait outside once the places are taken, and the rest with them.
            let mut silent = Vec::new();
            for _ in 0..40 {
                silent.push(TcpStream::connect((embedded.address, port)).await?);
            }
            let waits =
                tokio::time::timeout(Duration::from_secs(1), ask(&admin().await?, "/healthz", false)).await;
            ensure!(waits.is_err(), "there was a place: {waits:?}");
            drop(silent);
            eventually("there is a place again", SOON, async || {
                let answer = ask(&admin().await?, "/healthz", false).await?;
                ensure!(answer == StatusCode::OK, "{answer}");
                Ok(())
            })
            .await?;

            // Heads are read up to a bound.
            let long = format!("/pods?{}", "x".repeat(200 * 1024));
            let answer = ask(&admin().await?, &long, false).await;
            ensure!(!answer.as_ref().is_ok_and(StatusCode::is_success), "{answer:?}");
            kubectl.run("delete pods --all --wait=false").await?;
            Ok(())
        })
        .await?;
    embedded.finish().await
}

/// Its containers have nothing to say. It knows who waits for a word.
#[derive(Default)]
struct Silent {
    listeners: Arc<()>,
    /// The other ends of streams.
    opened: Mutex<Vec<DuplexStream>>,
}

#[async_trait]
impl PodStreams for Silent {
    async fn logs(&self, _: &Pod, _: &str, _: &LogOptions) -> Result<ByteStream, ProviderError> {
        let listener = self.listeners.clone();
        // Dropped with the stream, and no sooner.
        Ok(stream::pending().inspect(move |_| drop(listener.clone())).boxed())
    }

    async fn upgrade(&self, _: &Pod, request: UpgradeRequest) -> Result<UpgradeAnswer, ProviderError> {
        let (ours, theirs) = tokio::io::duplex(1024);
        self.opened.lock().push(theirs);
        Ok(UpgradeAnswer::Switched { headers: request.headers, io: Box::pin(ours) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_on_which_nothing_is_said_ends() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let settings = ApiSettings { idle: Duration::from_secs(2), ..ApiSettings::default() };
    let silent = Arc::new(Pretend::<Silent>::default());
    let mut embedded = Embedded::with(&host, config(&host).await?, settings).await?;
    let name = "e2e-idle";
    let port = embedded.serve(name, silent.clone()).await?;
    sandbox
        .in_namespace("idle", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            create(&kubectl, &pod("p", &spec(name, json!({})))).await?;
            kubectl.run("wait pod/p --for=condition=Ready --timeout=60s").await?;
            let admin = caller(&host, embedded.address, port, Credentials::Admin).await?;
            let path = format!("/exec/{}/p/app?command=cat&input=1&output=1", space.namespace);
            let request = Request::post(path).header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
            let answer = admin.send(request.body(Body::empty())?).await?;
            ensure!(answer.status() == StatusCode::SWITCHING_PROTOCOLS, "{}", answer.status());
            let mut client = TokioIo::new(hyper::upgrade::on(answer).await?);
            let mut theirs = silent.streams.opened.lock().pop().context("nothing was opened")?;
            // While somebody says something it goes on, in either direction and for longer than silence may last.
            for word in *b"abcdef" {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let mut heard = [0];
                if word % 2 == 0 {
                    client.write_all(&[word]).await?;
                    theirs.read_exact(&mut heard).await?;
                } else {
                    theirs.write_all(&[word]).await?;
                    client.read_exact(&mut heard).await?;
                }
                ensure!(heard == [word]);
            }
            let (mut here, mut there) = (vec![], vec![]);
            let ends = async { tokio::join!(client.read_to_end(&mut here), theirs.read_to_end(&mut there)) };
            tokio::time::timeout(SOON, ends).await.context("it does not end")?.1?;
            ensure!(here.is_empty() && there.is_empty());
            kubectl.run("delete pods --all --wait=false").await?;
            Ok(())
        })
        .await?;
    embedded.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_follow_silent_logs_leave_room_for_others_and_nothing_behind() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let settings = ApiSettings { connections: 6, streams_per_pod: 20, ..ApiSettings::default() };
    let silent = Arc::new(Pretend::<Silent>::default());
    let listeners = silent.streams.listeners.clone();
    let mut embedded = Embedded::with(&host, config(&host).await?, settings).await?;
    let name = "e2e-silent-logs";
    let port = embedded.serve(name, silent).await?;
    sandbox
        .in_namespace("silent", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            create(&kubectl, &pod("p", &spec(name, json!({})))).await?;
            kubectl.run("wait pod/p --for=condition=Ready --timeout=60s").await?;
            let log = format!("/containerLogs/{}/p/app?follow=true", space.namespace);
            let admin = async || caller(&host, embedded.address, port, Credentials::Admin).await;
            let before = Arc::strong_count(&listeners);
            let mut following = Vec::new();
            // More than there are places.
            for _ in 0..12 {
                let follower = admin().await?;
                let answer = follower.send(Request::get(&log).body(Body::empty())?);
                let answer = tokio::time::timeout(SOON, answer).await??;
                ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
                following.push(answer);
            }
            ensure!(Arc::strong_count(&listeners) == before + 12);
            let healthy = tokio::time::timeout(SOON, ask(&admin().await?, "/healthz", false)).await??;
            ensure!(healthy == StatusCode::OK, "{healthy}");

            drop(following);
            eventually("nobody listens", SOON, async || {
                let left = Arc::strong_count(&listeners) - before;
                ensure!(left == 0, "{left} still do");
                Ok(())
            })
            .await?;
            kubectl.run("delete pods --all --wait=false").await?;
            Ok(())
        })
        .await?;
    embedded.finish().await
}
