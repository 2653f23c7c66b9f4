//! One process at a time: a Lease says which.

use std::{fmt, sync::Arc, time::Duration};

use federlet_provider::errors::brief;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

const NAME: &str = "federlet-placer";
/// How often the Lease is renewed or looked at, how long it lasts, and how long before its end its holder stops.
const EVERY: Duration = Duration::from_secs(3);
const LASTS: Duration = Duration::from_secs(15);
const MARGIN: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(200);

/// Whether this process leads, as of now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leading(Arc<Mutex<Option<Instant>>>);

impl Leading {
    /// Whether it does, at this moment.
    pub(crate) fn holds(&self) -> bool {
        self.0.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until it does, or does not. False if told to stop meanwhile.
    pub(super) async fn until(&self, wanted: bool, stop: &CancellationToken) -> bool {
        while self.holds() != wanted {
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        !stop.is_cancelled()
    }
}

/// Keeps or awaits the Lease.
pub struct Lead {
    api: Api<Lease>,
    identity: String,
    leading: Leading,
    /// When another holder was last seen to renew. Its clock need not agree with ours.
    rival: Option<(Option<MicroTime>, Instant)>,
}

impl Lead {
    /// As `identity`, with an impatient client.
    #[must_use]
    pub fn new(heartbeat: Client, namespace: &str, identity: String) -> Self {
        Self {
            api: Api::namespaced(heartbeat, namespace),
            identity,
            leading: Leading::default(),
            rival: None,
        }
    }

    pub(super) fn leading(&self) -> Leading {
        self.leading.clone()
    }

    /// Keeps or awaits it until told to stop, then lets it go, so that nobody need wait.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut timer = tokio::time::interval(EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = timer.tick() => if let Err(error) = self.beat().await {
                    tracing::warn!(error = brief(&error), "cannot renew the lease of the placer");
                },
            }
        }
        if self.leading.holds() {
            self.leading.0.lock().take();
            let _ = self.release().await;
        }
    }

    async fn beat(&mut self) -> Result<(), kube::Error> {
        let sent = Instant::now();
        match self.api.get_opt(NAME).await? {
            None => {
                let metadata = ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.spec(&self.identity)) };
                self.api.create(&PostParams::default(), &lease).await?;
            }
            Some(mut lease) => {
                if self.belongs_to_another(&lease) {
                    self.leading.0.lock().take();
                    return Ok(());
                }
                // A replace that came too late is refused: the version is that of the answer above.
                lease.spec = Some(self.spec(&self.identity));
                self.api.replace(NAME, &PostParams::default(), &lease).await?;
            }
        }
        *self.leading.0.lock() = Some(sent + LASTS - MARGIN);
        Ok(())
    }

    fn belongs_to_another(&mut self, lease: &Lease) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder.is_empty() || holder == self.identity {
            self.rival = None;
            return false;
        }
        match &self.rival {
            Some((renewed, seen)) if *renewed == spec.renew_time => seen.elapsed() <= LASTS,
            _ => {
                self.rival = Some((spec.renew_time, Instant::now()));
                true
            }
        }
    }

    fn spec(&self, holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: i32::try_from(LASTS.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }
    }

    async fn release(&self) -> Result<(), kube::Error> {
        let mut lease = self.api.get(NAME).await?;
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        if holder == Some(self.identity.as_str()) {
            lease.spec = Some(self.spec(""));
            self.api.replace(NAME, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead").field("identity", &self.identity).finish_non_exhaustive()
    }
}
