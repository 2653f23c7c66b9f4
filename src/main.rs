//! The `federlet` binary: commands and wiring, nothing else.

use clap::Parser;

/// Federates clusters as nodes of one host cluster.
#[derive(Debug, Parser)]
#[command(name = "federlet", version, about)]
struct Cli {}

fn main() -> anyhow::Result<()> {
    let Cli {} = Cli::parse();
    Ok(())
}
