//! The host cluster, as every command reaches it.

use std::{
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use federlet_node::{client::client, metrics::Metrics, node::HostVersion};
use federlet_provider::names::HostId;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio_util::sync::CancellationToken;

use crate::progress::noted;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which cluster a command is about.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Host")]
pub(crate) struct HostArgs {
    /// The kubeconfig of the host [default: the one that kubectl uses, or the pod's service account].
    #[arg(long, env = "FEDERLET_KUBECONFIG", value_name = "FILE", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context in it [default: the current one].
    #[arg(long, env = "FEDERLET_CONTEXT", value_name = "NAME", global = true)]
    pub(crate) context: Option<String>,
}

impl HostArgs {
    /// How to reach the host.
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
        read_config(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }

    /// A client for a command that a person waits for.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        command_client(self.config().await?).await
    }

    /// A client for what goes on as long as a person likes.
    pub(crate) async fn streaming_client(&self) -> anyhow::Result<Client> {
        let mut config = answering(self.config().await?);
        config.read_timeout = None;
        logged_in(config).await
    }
}

/// A client for a command that a person waits for.
pub(crate) async fn command_client(config: Config) -> anyhow::Result<Client> {
    logged_in(answering(config)).await
}

/// A client, once the login plugin of its kubeconfig has run, if it has one. That may take long, and ask questions.
async fn logged_in(config: Config) -> anyhow::Result<Client> {
    let log_in = tokio::task::spawn_blocking(|| client(config, "command", Metrics::default().into()));
    Ok(noted("waiting for the login plugin of the kubeconfig", log_in).await.context("logging in")??)
}

/// For requests that are answered in time or not at all.
pub(crate) fn answering(mut config: Config) -> Config {
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(PATIENCE);
    // Or the time that a connection was idle counts as time without an answer.
    config.reset_reader_on_write = true;
    config
}

/// Reads a kubeconfig; without one, what kubectl would use.
pub(crate) async fn read_config(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    match file {
        Some(file) => {
            let read = Kubeconfig::read_from(file)
                .with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(read, &options)
                .await
                .with_context(|| format!("the kubeconfig {} cannot be used", file.display()))
        }
        None if context.is_some() => {
            Config::from_kubeconfig(&options).await.context("the kubeconfig cannot be used")
        }
        None => Config::infer().await.context("no kubeconfig and no service account: use --kubeconfig"),
    }
}

/// What tells this host from every other.
pub(crate) async fn host_id(client: &Client) -> anyhow::Result<HostId> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system = namespaces.get("kube-system").await.map_err(|error| answered("the host", &error))?;
    Ok(HostId::new(&system.metadata.uid.unwrap_or_default())?)
}

/// An error of an API server, in one line.
pub(crate) fn answered(who: &str, error: &kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(_) => anyhow!("{who} says: {}", federlet_provider::errors::brief(error)),
        _ => anyhow!("{who} does not answer: {}", federlet_provider::errors::brief(error)),
    }
}

/// How long one answer of the host may take when it is asked for the first time.
const ONE_ANSWER: Duration = Duration::from_secs(10);

/// Waits for the host's API server. None if told to stop meanwhile.
pub(crate) async fn reach_host(
    client: &Client,
    patience: Duration,
    stop: &CancellationToken,
) -> anyhow::Result<Option<HostVersion>> {
    let begun = tokio::time::Instant::now();
    loop {
        // One that accepts and says nothing is no better than one that refuses.
        let rest = if patience.is_zero() {
            ONE_ANSWER
        } else {
            patience.saturating_sub(begun.elapsed()).min(ONE_ANSWER)
        };
        let answer = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            answer = tokio::time::timeout(rest, client.apiserver_version()) => answer,
        };
        let answer = match answer {
            Ok(answer) => answer.map_err(anyhow::Error::from),
            Err(_) => Err(anyhow!("it takes the connection and says nothing")),
        };
        match answer {
            Ok(version) => return Ok(Some(HostVersion::new(&version.git_version, &version.minor))),
            Err(error) if !patience.is_zero() && begun.elapsed() >= patience => {
                return Err(error).with_context(|| format!("the host did not answer within {patience:?}"));
            }
            Err(error) => tracing::warn!(%error, "the host does not answer yet, trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// The address to publish: as told, or the one to listen on, or the one from which the host is reached.
pub(crate) fn published_address(
    listen: IpAddr,
    published: Option<IpAddr>,
    config: &Config,
) -> anyhow::Result<Option<IpAddr>> {
    let told = published.or(Some(listen).filter(|address| !address.is_unspecified()));
    match told.or_else(|| address_towards(config)) {
        Some(address) if !is_callable(address) => bail!(
            "API servers refuse to call a node at {address}: say with --node-address where the host reaches this process"
        ),
        address => Ok(address),
    }
}

fn address_towards(config: &Config) -> Option<IpAddr> {
    // Connecting a datagram socket sends nothing; it only asks the kernel for a route.
    let host: IpAddr = config.cluster_url.host()?.trim_matches(['[', ']']).parse().ok()?;
    let socket = UdpSocket::bind(if host.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    socket.connect((host, config.cluster_url.port_u16().unwrap_or(443))).ok()?;
    socket.local_addr().ok().map(|local| local.ip()).filter(|address| is_callable(*address))
}

/// Whether an API server proxies to such an address: not to itself, and not to what is only around it.
fn is_callable(address: IpAddr) -> bool {
    let near = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(near || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_api_servers_call_are_published() {
        for (address, callable) in [
            ("10.0.0.1", true),
            ("198.18.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("0.0.0.0", false),
            ("169.254.1.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_callable(address.parse().unwrap()), callable, "{address}");
        }
    }
}
