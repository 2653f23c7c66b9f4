//! `federlet version`.

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::{
    host::{HostArgs, answered},
    output::say,
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
    output: Option<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl VersionArgs {
    /// Prints it.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let own = env!("CARGO_PKG_VERSION");
        let host = if self.client { None } else { Some(self.ask().await) };
        let known = host.as_ref().and_then(|host| host.as_ref().ok());
        match self.output {
            Some(Output::Json) => say!("{}", json!({ "federlet": own, "host": known })),
            Some(Output::Yaml) => {
                say!("{}", serde_saphyr::to_string(&json!({ "federlet": own, "host": known }))?.trim_end());
            }
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
        let version = client.apiserver_version().await.map_err(|error| answered("the host", &error))?;
        Ok(version.git_version)
    }
}
