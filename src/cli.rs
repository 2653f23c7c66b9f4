use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::{join::JoinArgs, node::NodeArgs, serve::ServeArgs};

/// Federates clusters as nodes of one host cluster.
#[derive(Debug, Parser)]
#[command(name = "federlet", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves one virtual node.
    ///
    /// The node appears in `kubectl get nodes`; pods that the host's scheduler binds to it run at its provider. Each
    /// flag can also be given by the environment.
    Node(Box<NodeArgs>),

    /// Serves every member that joined, as a node of the host.
    ///
    /// Clusters come and go while it runs. Several of these share the nodes; when one ends, the others take over its
    /// share. Each flag can also be given by the environment.
    Serve(Box<ServeArgs>),

    /// Joins a cluster, or a region of one, as a node of the host.
    ///
    /// Makes an account with few rights in the member, keeps its token in a Secret on the host, and writes a Cluster.
    /// Repeated, it changes what differs.
    Join(Box<JoinArgs>),
}

/// Reads the command line and does what it says.
pub(crate) fn run() -> anyhow::Result<()> {
    let Cli { command } = Cli::parse();
    // One crypto provider for every connection of the process. Only a second call can fail.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    match command {
        Command::Node(args) => runtime.block_on(args.run()),
        Command::Serve(args) => runtime.block_on(args.run()),
        Command::Join(args) => runtime.block_on(args.run()),
    }
}
