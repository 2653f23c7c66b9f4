//! What users do with Federlet, against the real clusters of the sandbox: the helpers that tests share.

pub mod audit;
pub mod fleet;
pub mod helm;
pub mod here;
pub mod keeper;
pub mod objects;
pub mod own;
pub mod scene;
pub mod sent;
pub mod stage;
pub mod terminal;

use std::{net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context, Result};
use federlet_sandbox::Cluster;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

/// How long anything may take that a person would call immediate.
pub const SOON: Duration = Duration::from_secs(60);

/// kubectl, as a person uses it in one namespace of one cluster.
#[derive(Debug, Clone)]
pub struct Kubectl {
    cluster: Cluster,
    namespace: String,
    environment: Vec<(String, String)>,
}

impl Kubectl {
    /// For the namespace of a test.
    pub fn new(cluster: Cluster, namespace: &str) -> Self {
        Self { cluster, namespace: namespace.to_owned(), environment: Vec::new() }
    }

    /// The same, with a variable in the environment of the commands that a test starts itself.
    #[must_use]
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.environment.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Its words, separated by spaces; what it printed.
    pub async fn run(&self, words: &str) -> Result<String> {
        self.args(&words.split_whitespace().collect::<Vec<_>>()).await
    }

    /// Its words one by one, for those that contain spaces.
    pub async fn args(&self, words: &[&str]) -> Result<String> {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(words);
        self.cluster.kubectl_output(&all).await
    }

    /// A command to be started by the test itself.
    pub fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = self.cluster.kubectl()?;
        command.args(["--namespace", &self.namespace]).args(words).kill_on_drop(true);
        command.envs(self.environment.iter().map(|(variable, value)| (variable, value)));
        Ok(command)
    }

    /// Forwards a free port of this machine to a port over there, until dropped.
    pub async fn port_forward(&self, target: &str, port: u16) -> Result<Forward> {
        let mut child = self
            .command(&["port-forward", target, &format!(":{port}")])?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("kubectl has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(SOON, lines.next_line()).await??.context("kubectl ended")?;
        // Forwarding from 127.0.0.1:43210 -> 80
        let local = line.split(':').nth(1).and_then(|rest| rest.split_whitespace().next());
        let local =
            local.and_then(|port| port.parse().ok()).with_context(|| format!("kubectl said: {line}"))?;
        // kubectl dies when nobody reads what it says.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Forward { _kubectl: child, local })
    }
}

/// A port of this machine that leads to a pod.
#[derive(Debug)]
pub struct Forward {
    _kubectl: Child,
    local: u16,
}

impl Forward {
    /// What an HTTP server at the other end answers for a path.
    pub async fn get(&self, path: &str) -> Result<String> {
        http_get(([127, 0, 0, 1], self.local).into(), path).await
    }
}

/// What a plain HTTP server answers for a path, head and body.
pub async fn http_get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
