use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    completion::CompletionArgs,
    describe::DescribeArgs,
    doctor::DoctorArgs,
    explain::ExplainArgs,
    get::GetArgs,
    join::JoinArgs,
    node::NodeArgs,
    node_commands::{CordonArgs, DrainArgs},
    serve::ServeArgs,
    simulate::SimulateArgs,
    top::TopArgs,
    unjoin::UnjoinArgs,
    version::VersionArgs,
    workload::{exec::ExecArgs, logs::LogsArgs},
};

/// Under this name kubectl finds it.
const PLUGIN: &str = "kubectl-federlet";

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  it failed, or `doctor` or `simulate` found something wrong
  2  the command line makes no sense
  `exec` ends as its command does, with any code.";

/// Federates clusters as nodes of one host cluster.
#[derive(Debug, Parser)]
#[command(name = "federlet", version, about, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves one virtual node.
    ///
    /// The node appears in `kubectl get nodes`; pods that the host's scheduler binds to it run at its provider, or, with
    /// --cluster, in the member that this Cluster stands for. Each flag can also be given by the environment.
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

    /// Takes a member from the host, and what was made there from the member.
    Unjoin(UnjoinArgs),

    /// Shows the members of the host.
    Get(GetArgs),

    /// Shows all that there is to know of a member.
    Describe(DescribeArgs),

    /// Shows how full the members are.
    Top(TopArgs),

    /// Shows what all pods of a workload say, in all clusters together.
    Logs(LogsArgs),

    /// Runs a command in a Ready pod of a workload, in a cluster of choice.
    Exec(ExecArgs),

    /// Lets no new pods onto the node of a member.
    Cordon(CordonArgs),

    /// Lets them again.
    Uncordon(CordonArgs),

    /// Evicts the pods from the node of a member, as fast as their budgets allow.
    Drain(DrainArgs),

    /// Looks at the host and its members, and says what is wrong and what to do.
    ///
    /// Versions, rights, the way to each member and back, certificates and tokens and how long they last, clocks,
    /// webhooks. Fails if anything is wrong.
    Doctor(DoctorArgs),

    /// Shows what policies would do with the objects in files, without any cluster.
    ///
    /// Reads objects, propagation policies, override policies and Clusters, and prints where each object goes, why, and
    /// what each cluster gets. Fails if anything is wrong, so that CI can test policies.
    Simulate(SimulateArgs),

    /// Says why an object is where it is: its policy, its overrides, and each cluster, with the reason for or against it.
    ///
    /// Decides anew, with the same code as `serve` and `simulate`, from what the host says now.
    Explain(ExplainArgs),

    /// Prints the version of this program, and of the host.
    Version(VersionArgs),

    /// Prints what makes a shell complete these commands, such as `source <(federlet completion bash)`.
    Completion(CompletionArgs),
}

/// As a plugin of kubectl it speaks of itself as people call it.
fn parse() -> Cli {
    let program = std::env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(Path::file_name);
    let command = match name.is_some_and(|name| name == PLUGIN) {
        true => Cli::command().bin_name("kubectl federlet"),
        false => Cli::command(),
    };
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// Reads the command line and does what it says.
pub(crate) fn run() -> anyhow::Result<()> {
    let Cli { command } = parse();
    // One crypto provider for every connection of the process. Only a second call can fail.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    match command {
        Command::Node(args) => runtime.block_on(args.run()),
        Command::Serve(args) => runtime.block_on(args.run()),
        Command::Join(args) => runtime.block_on(args.run()),
        Command::Unjoin(args) => runtime.block_on(args.run()),
        Command::Get(args) => runtime.block_on(args.run()),
        Command::Cordon(args) => runtime.block_on(args.run(true)),
        Command::Uncordon(args) => runtime.block_on(args.run(false)),
        Command::Drain(args) => runtime.block_on(args.run()),
        Command::Doctor(args) => runtime.block_on(args.run()),
        Command::Describe(args) => runtime.block_on(args.run()),
        Command::Explain(args) => runtime.block_on(args.run()),
        Command::Top(args) => runtime.block_on(args.run()),
        Command::Logs(args) => runtime.block_on(args.run()),
        Command::Exec(args) => runtime.block_on(args.run()),
        Command::Version(args) => runtime.block_on(args.run()),
        Command::Completion(args) => {
            args.run(&mut Cli::command());
            Ok(())
        }
        Command::Simulate(args) => args.run(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_flag_of_what_serves_can_be_given_by_the_environment() {
        let cli = Cli::command();
        for name in ["node", "serve"] {
            let command = cli.find_subcommand(name).unwrap();
            let flags =
                command.get_arguments().filter(|flag| flag.get_long().is_some_and(|long| long != "help"));
            for flag in flags {
                let variable = flag.get_env().and_then(|variable| variable.to_str()).unwrap_or_default();
                let ours = variable.starts_with("FEDERLET_") || variable == "KUBECONFIG";
                assert!(ours, "--{} of {name} has no variable, or {variable:?}", flag.get_long().unwrap());
            }
        }
    }

    #[test]
    fn a_cluster_says_by_itself_what_its_node_is() {
        let parses = |words: &str| {
            let words = ["federlet", "node"].into_iter().chain(words.split_whitespace());
            Cli::command().try_get_matches_from(words).map(drop)
        };
        assert!(parses("--cluster member1 --disable-overrides --host-api 192.0.2.1:6443").is_ok());
        for words in [
            "--cluster member1 --nodename other",
            "--cluster member1 --provider cluster",
            "--cluster member1 --provider-config member.yaml",
            "--cluster Not_A_Name",
            "--disable-overrides",
        ] {
            assert!(parses(words).is_err(), "{words}");
        }
    }
}
