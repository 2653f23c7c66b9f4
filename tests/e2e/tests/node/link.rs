//! A way to the host's API server that a test can cut.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result};
use federlet_sandbox::Cluster;
use kube::Config;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

use super::embedded::config;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passes {
    Everything,
    /// What the host says comes through, what is said to it does not arrive.
    OnlyFromHost,
    /// Connections break, and no new ones are made.
    Nothing,
}

/// Passes bytes between this machine and the host. Its end is the end of every connection.
pub(crate) struct Link {
    port: u16,
    passes: watch::Sender<Passes>,
    counts: Arc<Counts>,
    _task: AbortOnDropHandle<()>,
}

impl Link {
    pub(crate) async fn to(host: &Cluster) -> Result<Self> {
        let there = address(host).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let passes = watch::Sender::new(Passes::Everything);
        let (watched, counts) = (passes.clone(), Arc::<Counts>::default());
        let counted = counts.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, there.clone(), watched.subscribe(), counted.clone()));
            }
        });
        Ok(Self { port, passes, counts, _task: AbortOnDropHandle::new(task) })
    }

    /// How much was held up since the last change, in pieces.
    pub(crate) fn held(&self) -> usize {
        self.counts.held.load(Ordering::SeqCst)
    }

    /// How many clients gave up while what they said was held up.
    pub(crate) fn broken(&self) -> usize {
        self.counts.broken.load(Ordering::SeqCst)
    }

    pub(crate) fn let_through(&self, passes: Passes) {
        self.counts.held.store(0, Ordering::SeqCst);
        self.passes.send_replace(passes);
    }

    /// Where the host is found over this link. The API server's certificate is also for this machine.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// How a client reaches the host over this link.
    pub(crate) async fn config(&self, host: &Cluster) -> Result<Config> {
        let mut config = config(host).await?;
        config.cluster_url = self.url().parse()?;
        Ok(config)
    }
}

async fn address(host: &Cluster) -> Result<String> {
    let url = config(host).await?.cluster_url;
    Ok(format!("{}:{}", url.host().context("no host")?, url.port_u16().unwrap_or(443)))
}

#[derive(Default)]
struct Counts {
    held: AtomicUsize,
    broken: AtomicUsize,
}

async fn pass(client: TcpStream, there: String, mut passes: watch::Receiver<Passes>, counts: Arc<Counts>) {
    if *passes.borrow() == Passes::Nothing {
        return;
    }
    let Ok(server) = TcpStream::connect(there).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = copy(from_client, to_server, passes.clone(), &counts) => {}
        _ = copy_freely(from_server, to_client) => {}
        _ = passes.wait_for(|passes| *passes == Passes::Nothing) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut passes: watch::Receiver<Passes>,
    counts: &Counts,
) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let mut pending = buffer[..read].to_vec();
        while *passes.borrow_and_update() == Passes::OnlyFromHost {
            counts.held.fetch_add(1, Ordering::SeqCst);
            tokio::select! {
                changed = passes.changed() => changed?,
                more = from.read(&mut buffer) => match more {
                    Ok(more) if more > 0 => pending.extend_from_slice(&buffer[..more]),
                    // Whoever gives up closes the connection.
                    _ => {
                        counts.broken.fetch_add(1, Ordering::SeqCst);
                        return Ok(());
                    }
                },
            }
        }
        to.write_all(&pending).await?;
    }
}

async fn copy_freely(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    Ok(())
}
