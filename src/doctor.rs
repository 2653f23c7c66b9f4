//! `federlet doctor`: looks at the host and at every member, and says what is wrong and what to do.

mod certificate;
mod clock;
mod finding;
mod host;
mod member;
mod rights;

use std::io::IsTerminal;

use anyhow::bail;
use clap::{Args, ValueEnum};
use federlet_provider::api::Cluster;
use futures::{StreamExt, stream};

use self::finding::{Finding, Verdict};
use crate::{clusters, host::HostArgs, output::say, progress::Spinner};

/// The flags of `federlet doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Only these members.
    clusters: Vec<String>,

    #[command(flatten)]
    host: HostArgs,

    /// How findings are shown.
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line for each.
    Text,
    /// JSON.
    Json,
}

/// So many members are looked at together.
const TOGETHER: usize = 8;

impl DoctorArgs {
    /// Looks, and fails if anything is wrong.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let spinner = Spinner::start("looking at the host");
        let client = self.host.client().await?;
        let (mut findings, host) = host::look(&client).await;
        if let Some(host) = host {
            let clusters = self.clusters(&client).await?;
            let mut members =
                stream::iter(clusters.iter().map(|cluster| member::look(&client, &host, cluster)))
                    .buffered(TOGETHER);
            while let Some(of_one) = members.next().await {
                findings.extend(of_one);
            }
        }
        drop(spinner);
        show(&findings, self.output)?;
        let wrong = findings.iter().filter(|finding| finding.verdict == Verdict::Wrong).count();
        if wrong > 0 {
            bail!("{wrong} of {} checks found something wrong", findings.len());
        }
        Ok(())
    }

    async fn clusters(&self, client: &kube::Client) -> anyhow::Result<Vec<Cluster>> {
        // That the host does not know of Clusters, its findings say.
        match clusters::choose(clusters::list(client, None).await?, &self.clusters) {
            Ok(wanted) => Ok(wanted),
            Err(name) => bail!("there is no Cluster {name}: see `federlet get clusters`"),
        }
    }
}

fn show(findings: &[Finding], output: Output) -> anyhow::Result<()> {
    match output {
        Output::Json => say!("{}", serde_json::to_string_pretty(findings)?),
        Output::Text => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            findings.iter().for_each(|finding| say!("{}", finding.line(colour)));
        }
    }
    Ok(())
}
