//! `federlet version`.

use clap::Args;
use serde_json::json;

use crate::{
    host::{HostArgs, answered},
    output::{Format, say},
    progress::awaited,
};

/// The flags of `federlet version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Only that of this program; the host is not asked.
    #[arg(long)]
    client: bool,

    #[command(flatten)]
    host: HostArgs,

    /// How it is shown.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

impl VersionArgs {
    /// Prints it.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let own = env!("CARGO_PKG_VERSION");
        let host = if self.client { None } else { Some(self.ask().await) };
        let known = host.as_ref().and_then(|host| host.as_ref().ok());
        match self.output {
            Some(format) => format.write(&json!({ "federlet": own, "host": known }))?,
            None => {
                say!("federlet {own}");
                if let Some(known) = known {
                    say!("host {known}");
                }
            }
        }
        host.transpose().map(drop)
    }

    async fn ask(&self) -> anyhow::Result<String> {
        let client = self.host.client().await?;
        let version = awaited("asking the host", client.apiserver_version())
            .await
            .map_err(|error| answered("the host", &error))?;
        Ok(version.git_version)
    }
}
