use std::path::PathBuf;

use clap::{Args, ValueEnum};
use federlet_node::contract::NodeName;
use federlet_provider::names::MemberName;

use crate::{
    host::HostArgs,
    kubelet::KubeletArgs,
    serve::WithinHostArgs,
    telemetry::TelemetryArgs,
    work::{RegisterArgs, WorkArgs},
};

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

    /// Serve only pods of this namespace [default: all].
    #[arg(long, env = "FEDERLET_NAMESPACE", value_name = "NAMESPACE", help_heading = "Host")]
    pub(crate) namespace: Option<String>,

    /// Who runs the pods.
    #[arg(
        long,
        env = "FEDERLET_PROVIDER",
        default_value = "memory",
        value_name = "PROVIDER",
        help_heading = "Provider"
    )]
    pub(crate) provider: ProviderKind,

    /// A file of the provider's own settings: JSON for `memory`, YAML or JSON for `cluster`.
    #[arg(long, env = "FEDERLET_PROVIDER_CONFIG", value_name = "FILE", help_heading = "Provider")]
    pub(crate) provider_config: Option<PathBuf>,

    /// Serve this Cluster of the host, by its own name and with all that it says. Other processes leave it to this one
    /// if its annotation `federlet.io/served-by` has its name.
    #[arg(
        long,
        env = "FEDERLET_CLUSTER",
        value_name = "CLUSTER",
        help_heading = "Cluster",
        conflicts_with_all = ["nodename", "os", "enable_node_lease", "namespace", "provider", "provider_config"]
    )]
    pub(crate) cluster: Option<MemberName>,

    /// Make no overrides for its pods, because the host obeys no policies.
    #[arg(long, env = "FEDERLET_DISABLE_OVERRIDES", help_heading = "Cluster", requires = "cluster")]
    pub(crate) disable_overrides: bool,

    #[command(flatten)]
    pub(crate) within: WithinHostArgs,

    #[command(flatten)]
    pub(crate) host: HostArgs,

    #[command(flatten)]
    pub(crate) register: RegisterArgs,

    #[command(flatten)]
    pub(crate) work: WorkArgs,

    #[command(flatten)]
    pub(crate) kubelet: KubeletArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderKind {
    /// Pretends to run pods, in memory: for tests and demos.
    Memory,
    /// A member cluster, or a region of one, that --provider-config describes.
    Cluster,
}
