use std::io::IsTerminal;

use anyhow::Context;
use clap::{Args, ValueEnum};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// How the process tells what it does.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs and metrics")]
pub(crate) struct TelemetryArgs {
    /// What to log: error, warn, info, debug, trace, or directives such as `info,federlet_node=debug`.
    #[arg(long, env = "FEDERLET_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    log_level: String,

    /// Lines for people or for machines.
    #[arg(long, env = "FEDERLET_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,

    /// Where Prometheus finds `/metrics`, over plain HTTP; empty for nowhere.
    #[arg(long, env = "FEDERLET_METRICS_ADDR", default_value = ":10255", value_name = "ADDRESS")]
    pub(crate) metrics_addr: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl TelemetryArgs {
    /// Starts to log. Logs go to standard error.
    pub(crate) fn init(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log_level).with_context(|| {
            format!("--log-level {:?} is not a level or a list of directives", self.log_level)
        })?;
        let registry = tracing_subscriber::registry().with(filter);
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init(),
            LogFormat::Json => registry.with(lines.json()).try_init(),
        }
        .context("cannot start to log")
    }
}
