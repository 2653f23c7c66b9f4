//! What the documents tell people to type works when it is typed.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{address_towards, program},
    own::Own,
};
use federlet_sandbox::{Cluster, Sandbox, eventually, up::checkout};
use tokio::process::{Child, Command};

/// The text of a document.
fn document(path: &str) -> Result<String> {
    std::fs::read_to_string(checkout().join(path)).with_context(|| format!("cannot read {path}"))
}

/// The blocks of a document in this language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// What follows a prompt, with lines that a backslash continues.
fn commands(text: &str) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    let mut goes_on = false;
    for line in blocks(text, "console").into_iter().flat_map(str::lines) {
        let part = line.trim_end_matches('\\').trim();
        match line.strip_prefix("$ ") {
            Some(_) => all.push(part.trim_start_matches("$ ").to_owned()),
            None if goes_on => {
                if let Some(last) = all.last_mut() {
                    *last += &format!(" {part}");
                }
            }
            None => {}
        }
        goes_on = line.ends_with('\\');
    }
    // A remark is for people.
    all.into_iter().map(|line| line.split("  #").next().unwrap_or_default().trim().to_owned()).collect()
}

#[test]
fn commands_are_found_whole() {
    let text = "```console\n$ one   # first\nsaid\n$ two \\\n    three\n```\n```yaml\n$ not\n```\n";
    assert_eq!(commands(text), ["one", "two three"]);
}

/// A shell in a folder of its own, where both programs and the kubeconfigs are.
struct Shell {
    folder: PathBuf,
    path: String,
}

impl Shell {
    async fn open(host: &Cluster, files: &[(&str, &Cluster)]) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("federlet-e2e-documents-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        for (name, cluster) in files {
            std::fs::copy(cluster.admin_kubeconfig(), folder.join(name))?;
        }
        let kubectl = host.kubectl()?.as_std().get_program().to_owned();
        let kubectl = PathBuf::from(kubectl).parent().context("no folder")?.display().to_string();
        let federlet = program().await?.parent().context("no folder")?.display().to_string();
        let path = format!("{federlet}:{kubectl}:{}", std::env::var("PATH").unwrap_or_default());
        Ok(Self { folder, path })
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("KUBECONFIG", self.folder.join("host.kubeconfig"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, line: &str) -> Result<String> {
        let output = tokio::time::timeout(4 * SOON, self.command(line).output())
            .await
            .with_context(|| format!("`{line}` does not end"))??;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "`{line}`: {}{}", said(&output.stdout), said(&output.stderr));
        Ok(said(&output.stdout))
    }

    /// What goes on while the next commands are typed.
    fn beside(&self, line: &str) -> Result<Child> {
        // Or only the shell is ended in the end.
        Ok(self.command(&format!("exec {line}")).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_is_true() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let (member, edge) = (sandbox.cluster("member1")?, sandbox.cluster("edge")?);
    let files = [("host.kubeconfig", &host), ("member1.kubeconfig", &member), ("edge.kubeconfig", &edge)];
    let shell = Shell::open(&host, &files).await?;
    let text = document("docs/quickstart.md")?;
    let yaml = blocks(&text, "yaml");
    std::fs::write(shell.folder.join("hello.yaml"), yaml.first().context("no manifest")?)?;
    let address = address_towards(&host).await?.to_string();
    let mut running: Vec<Child> = vec![];
    for line in commands(&text) {
        let line = line.replace("192.0.2.10", &address);
        match line.as_str() {
            // The tests have built one.
            line if line.starts_with("cargo build") => {}
            line if line.starts_with("federlet serve") => running.push(shell.beside(line)?),
            line if line.starts_with("kubectl port-forward") => {
                running.push(shell.beside(line)?);
                eventually("the page comes", SOON, async || {
                    let page = shell.run("busybox wget -qO- http://127.0.0.1:8080").await?;
                    ensure!(page.contains("Welcome"), "{page}");
                    Ok(())
                })
                .await?;
            }
            line if line.starts_with("federlet") => {
                let said = shell.run(line).await?;
                ensure!(!said.trim().is_empty(), "`{line}` says nothing");
            }
            line => {
                // Pods need a moment to start, and usage one to be measured.
                eventually(&format!("`{line}` works"), 2 * SOON, async || shell.run(line).await).await?;
            }
        }
    }
    ensure!(running.len() == 2, "the quickstart serves and forwards a port: {}", running.len());
    shell.run("kubectl delete -f hello.yaml --wait=false").await?;
    ensure!(shell.run("kubectl get node member1").await.is_err(), "it has left");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_command_of_the_readme_is_true() -> Result<()> {
    let text = document("README.md")?;
    ensure!(
        commands(&text).first().is_some_and(|line| line == "cargo sandbox demo"),
        "{:?}",
        commands(&text)
    );
    let own = Own::run("readme", &["demo"]).await?;
    let host = own.cluster("host")?;
    let nodes = host.kubectl_output(&["get", "nodes", "--no-headers"]).await?;
    let shown = blocks(&text, "text").first().context("the README shows no nodes")?.lines().skip(2);
    for name in shown.filter_map(|line| line.split_whitespace().next()) {
        let ready = |line: &str| line.starts_with(&format!("{name} ")) && line.contains(" Ready ");
        ensure!(nodes.lines().any(ready), "{name} is not there: {nodes}");
    }
    let pods = host.kubectl_output(&["get", "pods", "--no-headers"]).await?;
    ensure!(pods.lines().count() >= 4 && pods.lines().all(|line| line.contains(" Running ")), "{pods}");
    Ok(())
}
