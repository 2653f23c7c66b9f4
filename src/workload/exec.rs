//! `federlet exec`: a command in a pod of a workload, in the cluster of choice.

use std::{io::IsTerminal as _, process::exit};

use anyhow::{Context, bail, ensure};
use clap::Args;
use futures::StreamExt as _;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Resource, ResourceExt,
    api::{AttachParams, Request},
    client::Connection,
};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{
    PodsArgs,
    channels::{receive, send},
    cluster, container,
};
use crate::{
    host::{HostArgs, answered},
    progress::awaited,
};

/// The flags of `federlet exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pods: PodsArgs,

    /// Pass standard input on.
    #[arg(short = 'i', long)]
    stdin: bool,

    /// Standard input is a terminal.
    #[arg(short, long)]
    tty: bool,

    /// What to run, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,

    #[command(flatten)]
    host: HostArgs,
}

impl ExecArgs {
    /// Runs it and ends as it does.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        ensure!(
            !self.tty || std::io::stdin().is_terminal(),
            "standard input is no terminal: leave out --tty"
        );
        let client = self.host.streaming_client().await?;
        let pods = self.pods.pods(&client).await?;
        let Some(pod) = pods.iter().find(|pod| is_ready(pod)) else {
            match pods.first() {
                Some(pod) => bail!("none of its {} pods is Ready, {} for one", pods.len(), pod.name_any()),
                None => bail!("it has no pods there: see `kubectl get pods -o wide`"),
            }
        };
        let name = container(pod, self.pods.container.as_deref())?;
        if pods.len() > 1 {
            eprintln!("in {} of {}", pod.name_any(), cluster(pod));
        }
        let params = AttachParams {
            container: Some(name),
            stdin: self.stdin || self.tty,
            stdout: true,
            // A terminal has one output.
            stderr: !self.tty,
            tty: self.tty,
            ..AttachParams::default()
        };
        let namespace = pod.namespace().unwrap_or_default();
        let pods = Request::new(Pod::url_path(&(), Some(&namespace)));
        let request = pods.exec(&pod.name_any(), &self.command, &params)?;
        let connect = awaited("connecting to the pod", client.connect(request));
        let connection = connect.await.map_err(|error| answered(&pod.name_any(), &error))?;
        let raw = if self.tty { Some(RawTerminal::enter()?) } else { None };
        let ended = relay(connection, params.stdin, self.tty).await;
        drop(raw);
        // Standard input is read by a thread that ends only with the process.
        exit(ended?)
    }
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let ready = |kind: &str, value: &str| kind == "Ready" && value == "True";
    pod.metadata.deletion_timestamp.is_none()
        && status.conditions.iter().flatten().any(|condition| ready(&condition.type_, &condition.status))
}

/// Passes everything on until the command ends; its exit code.
async fn relay(connection: Connection, stdin: bool, tty: bool) -> anyhow::Result<i32> {
    let closes = connection.supports_stream_close();
    let (to, from) = connection.into_stream().split();
    let (size, sizes) = watch::channel(None);
    let input = stdin.then(tokio::io::stdin);
    tokio::spawn(send(to, input, sizes, closes));
    if tty {
        let mut changed = signal(SignalKind::window_change())?;
        tokio::spawn(async move {
            while let Ok(now) = tcgetwinsize(std::io::stdin()) {
                size.send_replace(Some((now.ws_col, now.ws_row)));
                if changed.recv().await.is_none() {
                    return;
                }
            }
        });
    }
    code(&receive(from, tokio::io::stdout(), tokio::io::stderr()).await?)
}

/// What the host says of the end: an exit code, or why there is none.
fn code(status: &Status) -> anyhow::Result<i32> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let told = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = told.filter_map(|cause| cause.message.as_deref()?.parse().ok()).next();
    code.with_context(|| status.message.clone().unwrap_or_else(|| "it did not run".to_owned()))
}

/// A terminal that passes every key on, until dropped.
struct RawTerminal(Termios);

impl RawTerminal {
    fn enter() -> anyhow::Result<Self> {
        let before = tcgetattr(std::io::stdin()).context("cannot read the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).context("cannot change the terminal")?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_ends_with_its_own_code_or_a_reason() {
        let read = |value| code(&serde_json::from_value::<Status>(value).unwrap());
        assert_eq!(read(json!({"status": "Success"})).unwrap(), 0);
        let seven = json!({"status": "Failure", "message": "exit code 7", "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}});
        assert_eq!(read(seven).unwrap(), 7);
        let why = read(json!({"status": "Failure", "message": "no such file"})).unwrap_err();
        assert_eq!(why.to_string(), "no such file");
    }
}
