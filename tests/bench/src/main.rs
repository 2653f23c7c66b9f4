//! Federlet measured beside a floor or a peer, in one run on one machine, so that only ratios matter.

mod apart;
mod arms;
mod bars;
mod clusters;
mod kubelets;
mod load;
mod matching;
mod members;
mod process;
mod spent;
mod webhook;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Compares Federlet with a peer and prints ratios.
#[derive(Debug, Parser)]
#[command(name = "cargo compare", bin_name = "cargo compare", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One virtual node of Federlet, with its in-memory provider, beside one node of KWOK, in the same cluster
    Kubelets(kubelets::Args),
    /// Pods through the virtual node of a member beside pods created in the member itself
    Members(members::Args),
    /// Pods created where a policy covers their namespace beside pods where none does
    Webhook(webhook::Args),
    /// How long it takes to find the policy of a workload among many; needs no cluster
    Matching(matching::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Kubelets(args) => kubelets::run(&args).await,
        Command::Members(args) => members::run(&args).await,
        Command::Webhook(args) => webhook::run(&args).await,
        Command::Matching(args) => matching::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
