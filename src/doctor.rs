//! `federlet doctor`: looks at the host and at every member, and says what is wrong and what to do.

mod accounts;
mod certificate;
mod clock;
mod finding;
mod host;
mod member;
mod renew;
mod rights;
mod webhook;

use anyhow::bail;
use clap::{Args, ValueEnum};
use federlet_provider::api::Cluster;
use futures::{StreamExt, stream};

use self::finding::{Finding, Verdict};
use crate::{
    clusters,
    host::{HostArgs, command_client},
    output::{self, say},
    progress::Spinner,
};

/// The flags of `federlet doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Only these members.
    clusters: Vec<String>,

    #[command(flatten)]
    host: HostArgs,

    /// Fail also if something works that somebody should know of, such as a certificate that ends soon.
    #[arg(long)]
    strict: bool,

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
    /// YAML.
    Yaml,
}

/// So many members are looked at together.
const TOGETHER: usize = 8;

impl DoctorArgs {
    /// Looks, and fails if anything is wrong.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let config = self.host.config().await?;
        let url = config.cluster_url.clone();
        let client = command_client(config).await?;
        let mut spinner = Spinner::start("looking at the host");
        let (mut findings, host) = host::look(&client, &url).await;
        if let Some(host) = host {
            let clusters = self.clusters(&client).await?;
            let mut members =
                stream::iter(clusters.iter().map(|cluster| member::look(&client, &host, cluster)))
                    .buffered(TOGETHER);
            let (mut done, all) = (0, clusters.len());
            while done < all {
                spinner.say(format!("looking at the members: {done} of {all} are done"));
                findings.extend(members.next().await.into_iter().flatten());
                done += 1;
            }
        }
        drop(spinner);
        show(&findings, self.output)?;
        let of = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
        match (of(Verdict::Wrong), of(Verdict::Notice)) {
            (0, notices) if notices > 0 && self.strict => {
                bail!("{notices} of {} checks found something to look after", findings.len())
            }
            (0, _) => Ok(()),
            (wrong, _) => bail!("{wrong} of {} checks found something wrong", findings.len()),
        }
    }

    async fn clusters(&self, client: &kube::Client) -> anyhow::Result<Vec<Cluster>> {
        // That the host does not know of Clusters, its findings say.
        match clusters::choose(clusters::read(client, None).await?, &self.clusters) {
            Ok(wanted) => Ok(wanted),
            Err(name) => bail!("there is no Cluster {name}: see `federlet get clusters`"),
        }
    }
}

fn show(findings: &[Finding], format: Output) -> anyhow::Result<()> {
    match format {
        Output::Json => output::json(&findings)?,
        Output::Yaml => output::yaml(&findings)?,
        Output::Text => {
            let colour = output::colourful();
            findings.iter().for_each(|finding| say!("{}", finding.line(colour)));
        }
    }
    Ok(())
}
