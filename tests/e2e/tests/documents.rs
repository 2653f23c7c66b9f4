//! What the documents tell people to type works when it is typed.

#[path = "documents/shell.rs"]
mod shell;
#[path = "documents/text.rs"]
mod text;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{SOON, fleet::leave_all, here::address_towards, own::Own};
use federlet_sandbox::{Cluster, Sandbox, eventually};

use tokio::sync::Mutex;

use crate::{
    shell::Shell,
    text::{blocks, commands, document, section, shape, shown},
};

/// Both use the ports that the documents name.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Types them one after the other.
async fn typed(shell: &mut Shell, lines: &[String]) -> Result<()> {
    for line in lines {
        match line.as_str() {
            // They go on until somebody stops them.
            line if line.starts_with("federlet serve") || line.starts_with("kubectl port-forward") => {
                shell.beside(line)?;
            }
            line if line.starts_with("federlet") => {
                let said = shell.run(line).await?;
                ensure!(!said.trim().is_empty(), "`{line}` says nothing");
                as_shown(line, &said)?;
            }
            line => {
                // Pods need a moment to start, and usage one to be measured.
                eventually(&format!("`{line}` works"), 2 * SOON, async || {
                    as_shown(line, &shell.run(line).await?)
                })
                .await?;
            }
        }
    }
    Ok(())
}

/// It says what the quickstart shows, but for numbers.
fn as_shown(line: &str, said: &str) -> Result<()> {
    let expected = shown(&document("docs/quickstart.md")?);
    for (_, expected) in expected.iter().filter(|(command, _)| command == line) {
        let shape = shape(expected);
        ensure!(said.lines().any(|line| text::shape(line) == shape), "{expected:?} is not in:\n{said}");
    }
    Ok(())
}

/// What steps 3 to 5 came to.
async fn it_runs(shell: &Shell) -> Result<()> {
    let page = shell.run("curl -s http://127.0.0.1:8080").await?;
    ensure!(page.contains("Welcome"), "{page}");
    let nodes = shell.run("kubectl get pods -l app=shop -o jsonpath={.items[*].spec.nodeName}").await?;
    let on = |name: &str| nodes.split_whitespace().filter(|node| *node == name).count();
    ensure!(on("member1") == 2 && on("ke-beijing-cluster") == 2, "half of it is in each: {nodes}");
    Ok(())
}

/// The steps of the quickstart from one heading to another, as commands.
fn steps(from: &str, to: &str) -> Result<Vec<String>> {
    Ok(commands(section(&document("docs/quickstart.md")?, from, to)?))
}

/// How to leave: one member, the others, and what is left when nothing runs any more.
fn leave() -> Result<(Vec<String>, Vec<String>, Vec<String>)> {
    let mut first = steps("## 6.", "")?;
    let is_of_others = |line: &String| line.starts_with("federlet unjoin ke-beijing-cluster");
    let at = first.iter().position(is_of_others).context("the others do not leave")?;
    let last = first.split_off(at + 1);
    let others = first.split_off(at);
    ensure!(last.len() == 2, "{last:?}");
    Ok((first, others, last))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_is_true_with_clusters_of_ones_own() -> Result<()> {
    let _alone = ALONE.lock().await;
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let (member, edge) = (sandbox.cluster("member1")?, sandbox.cluster("edge")?);
    let files = [("host.kubeconfig", &host), ("member1.kubeconfig", &member), ("edge.kubeconfig", &edge)];
    let mut shell = Shell::open("own", &host, &files).await?;
    clear(&host).await?;
    leave_all(sandbox).await?;
    let played = with_own_clusters(&mut shell, &host).await;
    clear(&host).await?;
    played.with_context(|| shell.tail())
}

/// Takes away what is left when it ends in the middle.
async fn clear(host: &Cluster) -> Result<()> {
    let gone = ["--ignore-not-found", "--wait=false"];
    // First of all, or the host asks somebody who is gone, also about what other tests do.
    let kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration";
    host.kubectl_output(&[&["delete", kinds, "federlet"], &gone[..]].concat()).await?;
    host.kubectl_output(&[&["delete", "deployment", "hello", "shop"], &gone[..]].concat()).await?;
    if host.kubectl_output(&["get", "crd", "propagationpolicies.policy.karmada.io"]).await.is_ok() {
        host.kubectl_output(&[&["delete", "pp", "shop"], &gone[..]].concat()).await?;
    }
    Ok(())
}

async fn with_own_clusters(shell: &mut Shell, host: &Cluster) -> Result<()> {
    let address = address_towards(host).await?.to_string();
    let lines: Vec<String> =
        steps("## 2.", "## 3.")?.iter().map(|line| line.replace("192.0.2.10", &address)).collect();
    // The tests have built one, and it is on the PATH.
    let (build, rest) = lines.split_at(2);
    ensure!(build[0].starts_with("cargo build") && build[1].starts_with("sudo cp"), "{build:?}");
    ensure!(rest.iter().any(|line| line.starts_with("federlet serve")), "{rest:?}");
    typed(shell, rest).await?;
    typed(shell, &steps("## 3.", "## 6.")?).await?;
    it_runs(shell).await?;
    let (leave, others, last) = leave()?;
    typed(shell, &leave).await?;
    ensure!(shell.run("kubectl get node member1").await.is_err(), "it has left");
    typed(shell, &others).await?;
    ensure!(shell.run("kubectl get node ke-beijing-cluster").await.is_err(), "it has left");
    shell.stop().await?;
    typed(shell, &last).await?;
    ensure!(shell.run("kubectl get node fleet").await.is_err(), "its node stays");
    Ok(())
}

/// The README, what the demo itself offers, and the quickstart with the sandbox: all in one demo.
#[tokio::test(flavor = "multi_thread")]
async fn the_readme_and_the_quickstart_with_the_sandbox_are_true() -> Result<()> {
    let _alone = ALONE.lock().await;
    let readme = document("README.md")?;
    let mut lines = commands(&readme);
    ensure!(lines.remove(0) == "cargo sandbox demo" && lines.remove(0) == "cargo sandbox test", "{lines:?}");
    let own = Own::run("readme", &["demo"]).await?;
    let host = own.cluster("host")?;
    let mut shell = Shell::open("demo", &host, &[]).await?.in_sandbox(&own).await?;
    ensure!(lines == ["eval \"$(cargo sandbox env)\"", "kubectl get nodes"], "{lines:?}");
    let nodes = shell.run("kubectl get nodes --no-headers").await?;
    let shown = blocks(&readme, "text").first().context("the README shows no nodes")?.lines().skip(1);
    for name in shown.filter_map(|line| line.split_whitespace().next()) {
        let ready = |line: &str| line.starts_with(&format!("{name} ")) && line.contains(" Ready ");
        ensure!(nodes.lines().any(ready), "{name} is not there: {nodes}");
    }
    let pods = host.kubectl_output(&["get", "pods", "--no-headers"]).await?;
    ensure!(pods.lines().count() >= 4 && pods.lines().all(|line| line.contains(" Running ")), "{pods}");
    // Said again, it changes nothing and offers the same.
    let offered = shell.run("cargo sandbox demo").await?;
    let offered: Vec<String> = offered
        .lines()
        .filter_map(|line| Some(line.get(12..)?.trim()))
        .filter(|line| line.starts_with("cargo sandbox") && line.contains("kubectl host"))
        .map(str::to_owned)
        .collect();
    ensure!(offered.len() == 5, "the demo offers {offered:?}");
    typed(&mut shell, &offered).await?;
    a_policy_is_obeyed(&shell).await?;

    let begin = steps("## 1.", "## 2.")?;
    ensure!(begin[0] == "cargo sandbox demo" && begin[1] == "eval \"$(cargo sandbox env)\"", "{begin:?}");
    typed(&mut shell, &begin[2..]).await?;
    typed(&mut shell, &steps("## 3.", "## 6.")?).await?;
    it_runs(&shell).await?;
    typed(&mut shell, &leave()?.0).await?;
    ensure!(shell.run("kubectl get node member1").await.is_err(), "it has left");
    Ok(())
}

/// The example that the demo offers: six of its pods on one, three on the other.
async fn a_policy_is_obeyed(shell: &Shell) -> Result<()> {
    // One after the other, each when the last has found its place.
    eventually("the example is divided", 4 * SOON, async || {
        let path = "jsonpath={.items[?(@.status.phase==\"Running\")].spec.nodeName}";
        let nodes = shell.run(&format!("kubectl get pods -n weighted -o '{path}'")).await?;
        let on = |name: &str| nodes.split_whitespace().filter(|node| *node == name).count();
        ensure!(on("member1") == 6 && on("member2") == 3, "{nodes}");
        Ok(())
    })
    .await
}
