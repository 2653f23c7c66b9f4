//! The certificate with which a node answers.

use anyhow::{Context, Result, ensure};
use federlet_e2e::SOON;
use federlet_sandbox::{Cluster, Sandbox, eventually};

use http::StatusCode;

use super::{
    authority::Authority,
    callers::{Credentials, ask, caller},
    embedded::{answers, proxied},
    process::{Process, approve, forget_requests},
};

async fn ready(host: &Cluster, node: &str) -> Result<()> {
    let words = format!("wait node/{node} --for=condition=Ready --timeout=5s");
    let words: Vec<&str> = words.split(' ').collect();
    eventually("the node is Ready", SOON, async || host.kubectl_output(&words).await).await.map(drop)
}

/// A certificate nears its end while the process runs: it asks the host for the next and uses it, and nobody notices.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_before_it_expires() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::new(&host, "e2e-renewal").await?;
    forget_requests(&host, &node.name).await?;
    // Good for forty seconds, of which twenty-two are over: it is renewed in eight to twelve.
    let begun = tokio::time::Instant::now();
    let old = Authority::of(&host)?.kubelet(node.address, -22, 18)?;
    let both = [std::fs::read(old.certificate())?, std::fs::read(old.key())?].concat();
    std::fs::write(node.folder.join(format!("{}-serving.pem", node.name)), both)?;
    node.restart().await?;
    let (answered, approved) = tokio::join!(answers(&host, &node.name), approve(&host, &node.name));
    answered.and(approved).with_context(|| node.log())?;
    ensure!(node.log().contains("using the serving certificate from before"), "{}", node.log());
    eventually("there is a new one", SOON, async || {
        ensure!(node.log().contains("have a new serving certificate"), "not yet");
        Ok(())
    })
    .await?;
    // Were it still the old one, nobody would accept it now.
    tokio::time::sleep_until(begun + std::time::Duration::from_secs(20)).await;
    let fresh = caller(&host, node.address, node.port, Credentials::Admin).await?;
    ensure!(ask(&fresh, "/healthz", false).await? == StatusCode::OK);
    proxied(&host, &node.name, "healthz").await.with_context(|| node.log())?;
    // And the next process has it from the start.
    node.terminate().await?;
    node.restart().await?;
    answers(&host, &node.name).await.with_context(|| node.log())?;
    ensure!(node.log().matches("asked for a serving certificate").count() == 1, "{}", node.log());
    node.finish().await
}

/// An administrator who does not approve has a node that runs pods, and a log line that says what is missing.
#[tokio::test(flavor = "multi_thread")]
async fn without_approval_there_is_a_node_but_no_answer() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::new(&host, "e2e-unapproved").await?;
    forget_requests(&host, &node.name).await?;
    node.restart().await?;
    ready(&host, &node.name).await.with_context(|| node.log())?;
    ensure!(proxied(&host, &node.name, "healthz").await.is_err());
    ensure!(node.log().contains("it waits for approval"), "{}", node.log());
    approve(&host, &node.name).await?;
    answers(&host, &node.name).await.with_context(|| node.log())?;
    node.finish().await
}

/// Files that somebody else keeps current, and first those of a stranger.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_from_files_is_read_again_when_they_change() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::new(&host, "e2e-files").await?;
    let (ours, theirs) = (Authority::of(&host)?, Authority::stranger()?);
    let files = theirs.kubelet(node.address, -60, 600)?;
    let (certificate, key) = (files.certificate().display().to_string(), files.key().display().to_string());
    let mut node = node.with(&["--tls-cert-file", &certificate, "--tls-private-key-file", &key]);
    node.restart().await?;
    ready(&host, &node.name).await.with_context(|| node.log())?;
    let refused = proxied(&host, &node.name, "healthz").await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("x509")));
    let next = ours.kubelet(node.address, -60, 600)?;
    std::fs::copy(next.key(), files.key())?;
    std::fs::copy(next.certificate(), files.certificate())?;
    answers(&host, &node.name).await.with_context(|| node.log())?;
    node.finish().await
}

/// Nobody signed it, so a host that verifies its kubelets, as this one does, does not believe it.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_our_own_is_a_choice() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::new(&host, "e2e-selfsigned").await?.with(&["--tls-self-signed"]);
    node.restart().await?;
    ready(&host, &node.name).await.with_context(|| node.log())?;
    let refused = proxied(&host, &node.name, "healthz").await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("x509")));
    ensure!(!node.log().contains("asked for a serving certificate"), "{}", node.log());
    node.finish().await
}

/// API servers call no loopback address, so a node there would look well and answer nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_nobody_calls_is_refused_at_the_start() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::new(&host, "e2e-loopback").await?;
    node.address = [127, 0, 0, 1].into();
    node.restart().await?;
    let ended = node.ends().await?;
    ensure!(!ended.success() && node.log().contains("--node-address"), "{ended}: {}", node.log());
    Ok(())
}
