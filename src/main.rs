//! The `federlet` binary: commands and wiring, nothing else.

mod cli;
mod clusters;
mod complaint;
mod completion;
mod crds;
mod describe;
mod doctor;
mod explain;
mod get;
mod host;
mod join;
mod kubelet;
mod node;
mod node_commands;
mod output;
mod policies;
mod process;
mod progress;
#[cfg(test)]
mod reference;
mod serve;
mod simulate;
mod table;
mod telemetry;
mod top;
mod unjoin;
mod version;
mod work;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", complaint::complaint(&error));
            ExitCode::FAILURE
        }
    }
}
