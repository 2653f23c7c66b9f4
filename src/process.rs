//! What every process that stays has: signals, a thread for heartbeats, metrics.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use federlet_node::metrics::{self, Metrics};
use tokio::{net::TcpListener, signal::unix::SignalKind};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A thread for heartbeats alone: a burst of pods must not make a node look dead.
pub(crate) struct Heartbeat {
    pub(crate) handle: tokio::runtime::Handle,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Heartbeat {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new().name("heartbeat".into()).spawn(move || runtime.block_on(stopped))?;
        Ok(Self { handle, _stop: stop })
    }
}

/// Cancelled by SIGTERM and by SIGINT.
pub(crate) fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signal = tokio::signal::unix::signal(kind).context("cannot listen for signals")?;
        let stop = stop.clone();
        tokio::spawn(async move {
            signal.recv().await;
            tracing::info!("told to stop: finishing what is under way");
            stop.cancel();
        });
    }
    Ok(stop)
}

/// Serves metrics in the background, if an address was given.
pub(crate) async fn serve_metrics(
    address: &str,
    metrics: &Arc<Metrics>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    if let Some(address) = listen_address(address)? {
        let listener =
            TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        tasks.spawn(metrics::serve(listener, metrics.clone(), stop.clone()));
    }
    Ok(())
}

/// `:10255` is every address, as in Go's flags.
fn listen_address(text: &str) -> anyhow::Result<Option<SocketAddr>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let whole = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    whole.parse().map(Some).with_context(|| format!("--metrics-addr {text:?} is not an address with a port"))
}

/// The name of this machine.
pub(crate) fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The architecture of this machine, as Kubernetes calls it.
pub(crate) fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_leave_out_the_host() {
        assert_eq!(listen_address("").unwrap(), None);
        assert_eq!(listen_address(":10255").unwrap(), Some(SocketAddr::from(([0, 0, 0, 0], 10255))));
        assert_eq!(listen_address("127.0.0.1:1").unwrap(), Some(SocketAddr::from(([127, 0, 0, 1], 1))));
        assert!(listen_address("10255").is_err());
    }
}
