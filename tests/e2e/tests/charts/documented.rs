//! What docs/install.md tells people to type in a sandbox.

use anyhow::{Result, ensure};

use crate::{
    installed::{Installed, before_it_is_installed},
    text::{commands, document, section},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_installation_with_the_sandbox_is_true() -> Result<()> {
    before_it_is_installed(async |installed| {
        let text = document("docs/install.md")?;
        let lines = commands(section(&text, "### With the sandbox", "## What it may read")?);
        // The tests have one of these.
        let (given, typed) = lines.split_at(2);
        ensure!(given == ["cargo sandbox up --edge", "eval \"$(cargo sandbox env)\""], "{given:?}");
        ensure!(typed.iter().filter(|line| line.starts_with("helm")).count() == 5, "{typed:?}");
        for line in typed {
            run(installed, line).await?;
        }
        Ok(())
    })
    .await
}

/// Types a line in the root of the checkout, beside the sandbox of the tests.
async fn run(installed: &Installed, line: &str) -> Result<()> {
    let mut line = line.replace("charts/", concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/"));
    for cluster in installed.sandbox.clusters()? {
        let file = format!("target/sandbox/{}.kubeconfig", cluster.name());
        line = line.replace(&file, &cluster.admin_kubeconfig().display().to_string());
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.split_first() {
        Some((&"helm", words)) => installed.helm.run(words).await.map(drop),
        Some((&"kubectl", words)) => installed.host.kubectl_output(words).await.map(drop),
        _ => anyhow::bail!("what does `{line}` do?"),
    }
}
