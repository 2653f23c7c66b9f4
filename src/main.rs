//! The `federlet` binary: commands and wiring, nothing else.

mod cli;
mod node;
mod telemetry;

fn main() -> anyhow::Result<()> {
    cli::run()
}
