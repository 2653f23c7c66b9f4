//! Policies: flags, and where the host asks about pods.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use clap::Args;
use federlet_policy::webhook::{Registration, Target};
use tokio::net::TcpListener;

/// How policies are obeyed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policies")]
pub(crate) struct PolicyArgs {
    /// The port on which the host's API server asks about pods and policies; 0 for none.
    #[arg(long, env = "FEDERLET_WEBHOOK_PORT", default_value_t = 9443, value_name = "PORT")]
    webhook_port: u16,

    /// Where the host's API server finds that port, as `https://NAME[:PORT]`. Without this or --webhook-service policies
    /// are not obeyed.
    #[arg(
        long,
        env = "FEDERLET_WEBHOOK_URL",
        value_name = "URL",
        value_parser = Target::url,
        conflicts_with = "webhook_service"
    )]
    webhook_url: Option<Target>,

    /// The Service in front of that port, as `NAMESPACE/NAME[:PORT]`.
    #[arg(long, env = "FEDERLET_WEBHOOK_SERVICE", value_name = "SERVICE", value_parser = Target::service)]
    webhook_service: Option<Target>,

    /// Somebody else, such as a chart, made the registrations of the webhook and takes them away again: they are only
    /// filled in.
    #[arg(long, env = "FEDERLET_WEBHOOK_REGISTERED")]
    webhook_registered: bool,
}

impl PolicyArgs {
    /// The port, open, and where it is found. None if nobody is to ask.
    pub(crate) async fn listen(self, address: IpAddr) -> anyhow::Result<Option<(TcpListener, Registration)>> {
        let target = self.webhook_url.or(self.webhook_service);
        let Some(target) = target.filter(|_| self.webhook_port != 0) else {
            tracing::info!(
                "policies are not obeyed: --webhook-service or --webhook-url says where the host can ask about pods"
            );
            return Ok(None);
        };
        let listen = SocketAddr::new(address, self.webhook_port);
        let listener = TcpListener::bind(listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {listen} for the webhook"))?;
        Ok(Some((listener, Registration { target, given: self.webhook_registered })))
    }
}
