//! Flags that every process that serves nodes has.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use federlet_node::{
    node::{NodeSettings, PingThresholds},
    pods::PodSettings,
};
use k8s_openapi::api::core::v1::Taint;

use crate::process::hostname;

/// How nodes are registered.
#[derive(Debug, Args)]
#[command(next_help_heading = "Node")]
pub(crate) struct RegisterArgs {
    /// A taint to register with, as `key[=value]:Effect`; can be given several times.
    #[arg(
        long = "taint",
        env = "FEDERLET_TAINTS",
        value_delimiter = ',',
        default_value = "virtual-kubelet.io/provider=federlet:NoSchedule",
        value_parser = parse_taint,
        value_name = "TAINT"
    )]
    pub(crate) taints: Vec<Taint>,

    /// Register without any taint, so that every pod may land on the node.
    #[arg(long, env = "FEDERLET_DISABLE_TAINT")]
    pub(crate) disable_taint: bool,

    /// As whom the Lease is held. A process waits while another identity holds it [default: the machine's hostname].
    #[arg(long, env = "FEDERLET_IDENTITY", value_name = "NAME")]
    pub(crate) identity: Option<String>,
}

impl RegisterArgs {
    /// The taints of a new node.
    pub(crate) fn taints(&self) -> Vec<Taint> {
        if self.disable_taint { Vec::new() } else { self.taints.clone() }
    }

    /// As whom leases are held.
    pub(crate) fn identity(&self, or: &str) -> String {
        self.identity.clone().or_else(hostname).unwrap_or_else(|| or.to_owned())
    }
}

/// How nodes and pods are worked on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Work")]
pub(crate) struct WorkArgs {
    /// Give up when the host cannot be reached for so long at the start; 0 to wait for ever.
    #[arg(
        long,
        env = "FEDERLET_STARTUP_TIMEOUT",
        default_value = "0s",
        value_parser = parse_duration,
        value_name = "DURATION"
    )]
    pub(crate) startup_timeout: Duration,

    /// How often the provider is asked whether it is well.
    #[arg(
        long,
        env = "FEDERLET_PING_INTERVAL",
        default_value = "10s",
        value_parser = parse_interval,
        value_name = "DURATION"
    )]
    pub(crate) ping_interval: Duration,

    /// After so many failures in a row the node is NotReady.
    #[arg(long, env = "FEDERLET_PING_FAILURES", default_value_t = 3, value_name = "N")]
    pub(crate) ping_failures: u32,

    /// After so many successes in a row it is Ready again.
    #[arg(long, env = "FEDERLET_PING_SUCCESSES", default_value_t = 2, value_name = "N")]
    pub(crate) ping_successes: u32,

    /// How many pods are worked on at the same time [default: 8 for each core, up to 64].
    #[arg(long, env = "FEDERLET_POD_SYNC_WORKERS", value_name = "N")]
    pub(crate) pod_sync_workers: Option<usize>,

    /// How often everything is compared, whether or not anything changed.
    #[arg(
        long,
        env = "FEDERLET_FULL_RESYNC_PERIOD",
        default_value = "10m",
        value_parser = parse_interval,
        value_name = "DURATION"
    )]
    pub(crate) full_resync_period: Duration,

    /// The DNS domain of the host cluster.
    #[arg(long, env = "FEDERLET_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    pub(crate) cluster_domain: String,
}

impl WorkArgs {
    /// As the controllers want it.
    pub(crate) fn node(&self) -> NodeSettings {
        NodeSettings {
            ping_every: self.ping_interval,
            thresholds: PingThresholds { failures: self.ping_failures, successes: self.ping_successes },
            ..NodeSettings::default()
        }
    }

    /// As the controllers want it.
    pub(crate) fn pods(&self) -> PodSettings {
        let usual = PodSettings::default();
        PodSettings {
            full_resync: self.full_resync_period,
            workers: self.pod_sync_workers.unwrap_or(usual.workers),
        }
    }
}

/// Reads `key[=value]:Effect`, as kubectl does.
pub(crate) fn parse_taint(text: &str) -> anyhow::Result<Taint> {
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
pub(crate) fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    match text.parse::<jiff::SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok()) {
        Some(duration) => Ok(duration),
        None => bail!("a duration is written like 90s, 5m or 1h30m"),
    }
}

/// Reads how often something is done.
pub(crate) fn parse_interval(text: &str) -> anyhow::Result<Duration> {
    let duration = parse_duration(text)?;
    if duration < Duration::from_secs(1) {
        bail!("it cannot be done more often than every second: write 1s or more");
    }
    Ok(duration)
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
        assert_eq!(parse_interval("1s").unwrap(), Duration::from_secs(1));
        for bad in ["0", "0s", "10ms", "x"] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }
}
