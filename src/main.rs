//! The `federlet` binary: commands and wiring, nothing else.

mod cli;
mod crds;
mod get;
mod host;
mod join;
mod kubelet;
mod node;
mod node_commands;
mod policies;
mod process;
mod progress;
mod serve;
mod simulate;
mod telemetry;
mod unjoin;
mod work;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
