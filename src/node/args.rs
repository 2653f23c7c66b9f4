use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::bail;
use clap::{Args, ValueEnum};
use federlet_node::contract::NodeName;
use k8s_openapi::api::core::v1::Taint;

use crate::telemetry::TelemetryArgs;

/// The flags of `federlet node`.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The name of the node.
    #[arg(
        long,
        env = "FEDERLET_NODENAME",
        default_value = "federlet",
        value_name = "NAME",
        help_heading = "Node"
    )]
    pub(crate) nodename: NodeName,

    /// `kubernetes.io/os` of the node, when the provider names none.
    #[arg(long, env = "FEDERLET_OS", default_value = "linux", value_name = "OS", help_heading = "Node")]
    pub(crate) os: String,

    /// A taint to register with, as `key[=value]:Effect`; can be given several times.
    #[arg(
        long = "taint",
        env = "FEDERLET_TAINTS",
        value_delimiter = ',',
        default_value = "virtual-kubelet.io/provider=federlet:NoSchedule",
        value_parser = parse_taint,
        value_name = "TAINT",
        help_heading = "Node"
    )]
    pub(crate) taints: Vec<Taint>,

    /// Register without any taint, so that every pod may land on the node.
    #[arg(long, env = "FEDERLET_DISABLE_TAINT", help_heading = "Node")]
    pub(crate) disable_taint: bool,

    /// Renew a Lease every 10 s, so that the host notices when this process is gone.
    #[arg(
        long,
        env = "FEDERLET_ENABLE_NODE_LEASE",
        default_value_t = true,
        action = clap::ArgAction::Set,
        value_name = "BOOL",
        help_heading = "Node"
    )]
    pub(crate) enable_node_lease: bool,

    /// As whom the Lease is held. A process waits while another identity holds it [default: the machine's hostname].
    #[arg(long, env = "FEDERLET_IDENTITY", value_name = "NAME", help_heading = "Node")]
    pub(crate) identity: Option<String>,

    /// The kubeconfig of the host [default: the one that kubectl uses, or the pod's service account].
    #[arg(long, env = "FEDERLET_KUBECONFIG", value_name = "FILE", help_heading = "Host")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Serve only pods of this namespace [default: all].
    #[arg(long, env = "FEDERLET_NAMESPACE", value_name = "NAMESPACE", help_heading = "Host")]
    pub(crate) namespace: Option<String>,

    /// Give up when the host cannot be reached for so long at the start; 0 to wait for ever.
    #[arg(
        long,
        env = "FEDERLET_STARTUP_TIMEOUT",
        default_value = "0s",
        value_parser = parse_duration,
        value_name = "DURATION",
        help_heading = "Host"
    )]
    pub(crate) startup_timeout: Duration,

    /// Who runs the pods.
    #[arg(
        long,
        env = "FEDERLET_PROVIDER",
        default_value = "memory",
        value_name = "PROVIDER",
        help_heading = "Provider"
    )]
    pub(crate) provider: ProviderKind,

    /// A file of the provider's own settings, as JSON.
    #[arg(long, env = "FEDERLET_PROVIDER_CONFIG", value_name = "FILE", help_heading = "Provider")]
    pub(crate) provider_config: Option<PathBuf>,

    /// How often the provider is asked whether it is well.
    #[arg(
        long,
        env = "FEDERLET_PING_INTERVAL",
        default_value = "10s",
        value_parser = parse_duration,
        value_name = "DURATION",
        help_heading = "Provider"
    )]
    pub(crate) ping_interval: Duration,

    /// After so many failures in a row the node is NotReady.
    #[arg(
        long,
        env = "FEDERLET_PING_FAILURES",
        default_value_t = 3,
        value_name = "N",
        help_heading = "Provider"
    )]
    pub(crate) ping_failures: u32,

    /// After so many successes in a row it is Ready again.
    #[arg(
        long,
        env = "FEDERLET_PING_SUCCESSES",
        default_value_t = 2,
        value_name = "N",
        help_heading = "Provider"
    )]
    pub(crate) ping_successes: u32,

    /// How many pods are worked on at the same time [default: 8 for each core, up to 64].
    #[arg(long, env = "FEDERLET_POD_SYNC_WORKERS", value_name = "N", help_heading = "Pods")]
    pub(crate) pod_sync_workers: Option<usize>,

    /// How often everything is compared, whether or not anything changed.
    #[arg(
        long,
        env = "FEDERLET_FULL_RESYNC_PERIOD",
        default_value = "10m",
        value_parser = parse_duration,
        value_name = "DURATION",
        help_heading = "Pods"
    )]
    pub(crate) full_resync_period: Duration,

    /// The DNS domain of the host cluster.
    #[arg(
        long,
        env = "FEDERLET_CLUSTER_DOMAIN",
        default_value = "cluster.local",
        value_name = "DOMAIN",
        help_heading = "Pods"
    )]
    pub(crate) cluster_domain: String,

    #[command(flatten)]
    pub(crate) kubelet: KubeletArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// Where the host's API server reaches the node.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubelet API")]
pub(crate) struct KubeletArgs {
    /// The address to listen on.
    #[arg(long, env = "FEDERLET_ADDRESS", default_value = "0.0.0.0", value_name = "IP")]
    pub(crate) address: IpAddr,

    /// The port to listen on.
    #[arg(long, env = "FEDERLET_PORT", default_value_t = 10250, value_name = "PORT")]
    pub(crate) port: u16,

    /// The address that the node publishes [default: --address, or the one from which the host is reached].
    #[arg(long, env = "FEDERLET_NODE_ADDRESS", value_name = "IP")]
    pub(crate) node_address: Option<IpAddr>,

    /// The certificate to serve with [default: one that the host signs on request, once somebody approves it].
    #[arg(long, env = "FEDERLET_TLS_CERT_FILE", value_name = "FILE", requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,

    /// Its private key. Both files are read again when they change.
    #[arg(long, env = "FEDERLET_TLS_PRIVATE_KEY_FILE", value_name = "FILE", requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,

    /// Serve with a certificate that nobody signed; a host that verifies its kubelets refuses it.
    #[arg(long, env = "FEDERLET_TLS_SELF_SIGNED", conflicts_with = "tls_cert_file")]
    pub(crate) tls_self_signed: bool,

    /// Where a certificate that the host signed is kept for the next start.
    #[arg(long, env = "FEDERLET_CERT_DIR", value_name = "DIRECTORY")]
    pub(crate) cert_dir: Option<PathBuf>,

    /// The CA of those who may call [default: the one that the host publishes for its client certificates].
    #[arg(long, env = "FEDERLET_CLIENT_CA_FILE", value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderKind {
    /// Pretends to run pods, in memory: for tests and demos.
    Memory,
}

/// Reads `key[=value]:Effect`, as kubectl does.
fn parse_taint(text: &str) -> anyhow::Result<Taint> {
    let Some((what, effect)) = text.rsplit_once(':') else { bail!("a taint is key[=value]:Effect") };
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        bail!("the effect of a taint is NoSchedule, PreferNoSchedule or NoExecute, not {effect:?}");
    }
    let (key, value) =
        what.split_once('=').map_or((what, None), |(key, value)| (key, Some(value.to_owned())));
    if key.is_empty() {
        bail!("a taint needs a key");
    }
    Ok(Taint { key: key.into(), value, effect: effect.into(), time_added: None })
}

/// Reads a duration as Kubernetes' own flags write it: `90s`, `5m`, `1h30m`; a bare number is seconds.
fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    match text.parse::<jiff::SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok()) {
        Some(duration) => Ok(duration),
        None => bail!("a duration is written like 90s, 5m or 1h30m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_read_as_kubectl_reads_them() {
        let taint = parse_taint("a.b/c=d:NoExecute").unwrap();
        assert_eq!(
            (taint.key.as_str(), taint.value.as_deref(), taint.effect.as_str()),
            ("a.b/c", Some("d"), "NoExecute")
        );
        assert_eq!(parse_taint("k:NoSchedule").unwrap().value, None);
        for bad in ["", "k", "k:Sometimes", "=v:NoSchedule", ":NoSchedule"] {
            assert!(parse_taint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_read_as_kubernetes_writes_them() {
        for (text, seconds) in [("0", 0), ("15", 15), ("90s", 90), ("5m", 300), ("1h30m", 5400)] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        for bad in ["", "x", "-5s", "5 parsecs"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
