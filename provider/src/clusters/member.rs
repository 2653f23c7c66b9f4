//! One member, from its Cluster to its node and back. Each has a task of its own: a broken one disturbs no other.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    conditions::{Say, ready},
    connection::{Connection, Connections},
    context::HostContext,
    keeper::wanted,
    node::RunningNode,
    plan::{Input, Intent, Plan},
    status::{Told, differ_in_more_than_room, enablements},
};
use crate::{
    api::{ApiEnablement, Cluster},
    cluster::MemberReport,
    errors::brief,
    join::{
        FINALIZER,
        account::Account,
        node::{is_machine, name_taken},
        token::{FreshToken, rotation},
    },
    member::{Access, Trouble, TroubleReason, Way},
    settings::MemberSettings,
    version::Version,
};

/// How soon is soon.
const SOON: Duration = Duration::from_millis(500);
/// How soon something that went wrong is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often the APIs of a member are asked for.
const ENABLEMENTS_EVERY: Duration = Duration::from_secs(300);
/// How often a status is written in which only the room changed.
const ROOM_EVERY: Duration = Duration::from_secs(10);
/// While another process serves the node, how often it is looked whether it still does.
const LEASE_LOOK: Duration = Duration::from_secs(1);
/// How soon a token that could not be renewed is tried again.
const ROTATE_AGAIN: Duration = Duration::from_secs(60);

/// By this name the host remembers what is ours in a Cluster.
pub(super) const FIELD_MANAGER: &str = "federlet";

/// The task of one member.
pub(super) struct Member {
    pub(super) host: HostContext,
    pub(super) connections: Arc<Connections>,
    node: Option<RunningNode>,
    settings: Option<MemberSettings>,
    enablements: Option<(Instant, Vec<ApiEnablement>)>,
    wrote: Option<Instant>,
    rotated: Option<Instant>,
    /// A way to the member that is being left.
    pub(super) leaving: Option<Client>,
}

/// What came of a look at a member.
pub(super) struct Outcome {
    pub(super) ready: Say,
    pub(super) reachable: Say,
    /// When to look again, whatever happens.
    pub(super) again: Option<Duration>,
}

impl Member {
    pub(super) const fn new(host: HostContext, connections: Arc<Connections>) -> Self {
        Self {
            host,
            connections,
            node: None,
            settings: None,
            enablements: None,
            wrote: None,
            rotated: None,
            leaving: None,
        }
    }

    /// Serves the member as its Cluster says until told to stop.
    pub(super) async fn run(mut self, mut inputs: watch::Receiver<Input>, stop: CancellationToken) {
        loop {
            let input = inputs.borrow_and_update().clone();
            let again = tokio::select! {
                () = stop.cancelled() => break,
                again = self.look(&input) => again,
            };
            tokio::select! {
                () = stop.cancelled() => break,
                changed = inputs.changed() => if changed.is_err() { break },
                () = changed(self.node.as_mut()) => {}
                () = pause(again) => {}
            }
        }
        self.stop_node().await;
    }

    async fn stop_node(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop(&self.host).await;
        }
    }

    /// Looks at everything once and does what is to be done. Returns when to look again.
    async fn look(&mut self, input: &Input) -> Option<Duration> {
        let outcome = match Plan::of(input, &self.host.id) {
            Plan::Rest => {
                self.stop_node().await;
                return None;
            }
            Plan::Depart => {
                self.stop_node().await;
                match self.depart(input).await {
                    Some(outcome) => outcome,
                    None => return None,
                }
            }
            Plan::Refuse(why) => self.refused(why),
            Plan::Serve(intent) => self.serve(input, *intent).await,
        };
        let kept = self.keep_node(input).await;
        let told = self.tell(input, &outcome).await;
        [outcome.again, kept, told].into_iter().flatten().min()
    }

    /// What was served stays served as it was: a mistake in a Cluster must not cost its pods.
    fn refused(&self, mut why: Say) -> Outcome {
        let reachable = match &self.node {
            Some(node) => {
                why.message += "; it goes on as before";
                self.reachable(&node.report.borrow())
            }
            None => Say::unknown(&why.reason, why.message.clone()),
        };
        Outcome { ready: why, reachable, again: None }
    }

    async fn serve(&mut self, input: &Input, intent: Intent) -> Outcome {
        let spec = &input.cluster.spec;
        let fits =
            self.node.as_ref().is_some_and(|node| node.connection.fits(&spec.id, &intent.way.endpoint));
        if !fits {
            // A way that leads nowhere is found before the one that is in use is given up.
            let _opened = match &self.node {
                Some(_) => match self.open(input, intent.way.clone()) {
                    Ok(connection) => Some(connection),
                    Err(why) => return self.refused(why),
                },
                None => None,
            };
            self.stop_node().await;
            if let Err(outcome) = self.start(input, intent.clone()).await {
                return outcome;
            }
        }
        let Some(node) = &self.node else {
            return not_yet("Starting", "the member is being connected", Some(AGAIN));
        };
        node.connection.renew(&intent.way);
        if self.settings.as_ref() != Some(&intent.settings) {
            node.change(&self.host, &intent.settings);
            self.settings = Some(intent.settings);
        }
        let again = self.rotate(input).await;
        self.ask_enablements().await;
        self.state(again)
    }

    /// Connects and begins to serve, or says why not.
    async fn start(&mut self, input: &Input, intent: Intent) -> Result<(), Outcome> {
        let cluster = &*input.cluster;
        self.has_its_name(input).await?;
        if !cluster.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            self.claim(cluster).await.map_err(|error| host_trouble(&error))?;
        }
        // A member that was there before is served though it does not answer: its node must not seem dead for that.
        let before =
            cluster.status.as_ref().map(|status| status.kubernetes_version.as_str()).unwrap_or_default();
        let known = !cluster.spec.id.is_empty() && before.parse::<Version>().is_ok();
        let version = if known {
            before.to_owned()
        } else {
            let access = Access::new(intent.way.clone(), self.host.metrics.clone());
            let facts = access.facts().await.map_err(|trouble| unreachable(&trouble))?;
            if cluster.spec.id.is_empty() {
                // What it is goes into the Cluster first, so that it is compared with all others before it is served.
                self.name_it(cluster, &facts.id).await.map_err(|error| host_trouble(&error))?;
                return Err(not_yet("Connected", "the member answers", None));
            }
            facts.version
        };
        let version = version
            .parse::<Version>()
            .map_err(|error| not_yet("NotHealthy", &error.to_string(), Some(AGAIN)))?;
        let connection = self.open(input, intent.way).map_err(|why| self.refused(why))?;
        if !known {
            connection.gate.check().await.map_err(|error| unreachable(&Trouble::from(&error)))?;
        }
        let settings = intent.settings;
        let node = RunningNode::start(
            &self.host,
            &self.connections.tasks,
            connection,
            settings.clone(),
            version,
            known,
        )
        .await;
        let node = node.map_err(|why| Outcome {
            ready: why,
            reachable: Say::unknown("Connecting", "the node is not served yet"),
            again: Some(AGAIN),
        })?;
        (self.node, self.settings, self.enablements) = (Some(node), Some(settings), None);
        Ok(())
    }

    /// The connection by this way, which others may have opened.
    fn open(&self, input: &Input, way: Way) -> Result<Arc<Connection>, Say> {
        let (host, spec) = (&self.host, &input.cluster.spec);
        let opened = self.connections.get(&host.id, &spec.id, spec.secret_ref.as_ref(), way, &host.metrics);
        opened.map_err(|error| Say::no("InvalidCredentials", error.to_string()))
    }

    /// Refuses the name of a machine of the host, which would be overwritten, and deleted with the Cluster.
    async fn has_its_name(&self, input: &Input) -> Result<(), Outcome> {
        // Only virtual nodes are watched.
        if input.node.is_some() {
            return Ok(());
        }
        let name = input.cluster.name_any();
        match is_machine(&self.host.client, &name).await {
            Ok(false) => Ok(()),
            Ok(true) => Err(not_yet("NameTaken", &name_taken(&name), Some(AGAIN))),
            Err(error) => Err(host_trouble(&error)),
        }
    }

    async fn claim(&self, cluster: &Cluster) -> Result<(), kube::Error> {
        let mut finalizers = cluster.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": cluster.resource_version() } });
        self.clusters()
            .patch(&cluster.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
    }

    async fn name_it(&self, cluster: &Cluster, id: &str) -> Result<(), kube::Error> {
        let patch = json!({ "spec": { "id": id } });
        self.clusters()
            .patch(&cluster.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
    }

    pub(super) fn clusters(&self) -> Api<Cluster> {
        Api::all(self.host.client.clone())
    }

    /// How the member is.
    fn state(&self, again: Option<Duration>) -> Outcome {
        let Some(node) = &self.node else {
            return not_yet("Starting", "the member is being connected", again);
        };
        let (report, healthy) = (node.report.borrow(), *node.healthy.borrow() == Some(true));
        let reachable = self.reachable(&report);
        let machines = report.summary.as_ref().map(|summary| summary.nodes);
        let ready = ready(&reachable, healthy, machines);
        Outcome { ready, reachable, again }
    }

    fn reachable(&self, report: &MemberReport) -> Say {
        let reach = &report.reach;
        if reach.reachable {
            return Say::yes("Reachable", "the member answers");
        }
        let trouble = self.node.as_ref().and_then(|node| node.connection.gate.trouble());
        match trouble {
            Some(trouble) => Say::no(trouble.reason.as_str(), trouble.message),
            None if reach.is_away() => Say::no(&reach.reason, reach.message.clone()),
            None => Say::unknown("Connecting", reach.message.clone()),
        }
    }

    /// Asks for the next token of our account when it is time.
    async fn rotate(&mut self, input: &Input) -> Option<Duration> {
        let (secret, node) = (input.secret.as_ref()?, self.node.as_ref()?);
        let due = rotation(secret)?;
        let wait = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
        let rest = self.rotated.map_or(Duration::ZERO, |at| ROTATE_AGAIN.saturating_sub(at.elapsed()));
        if !wait.max(rest).is_zero() {
            return Some(wait.max(rest));
        }
        self.rotated = Some(Instant::now());
        let fresh = FreshToken::request(&node.connection.clients.pods, &Account::of(&self.host.id)).await;
        let stored = match fresh {
            Ok(token) => token.store(&self.host.client, secret).await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(()) => {
                tracing::info!(cluster = input.cluster.name_any(), "the token for the member was renewed");
            }
            Err(error) => tracing::warn!(
                cluster = input.cluster.name_any(),
                error = brief(&error),
                "the token for the member was not renewed, trying again"
            ),
        }
        Some(ROTATE_AGAIN)
    }

    async fn ask_enablements(&mut self) {
        let Some(node) = &self.node else { return };
        let is_fresh = self.enablements.as_ref().is_some_and(|(at, _)| at.elapsed() < ENABLEMENTS_EVERY);
        if is_fresh || !node.report.borrow().reach.reachable {
            return;
        }
        match enablements(&node.connection.clients.pods).await {
            Ok(found) => self.enablements = Some((Instant::now(), found)),
            Err(error) => tracing::debug!(error = brief(&error), "the APIs of a member are not known"),
        }
    }

    /// Labels and taints of the Node.
    async fn keep_node(&self, input: &Input) -> Option<Duration> {
        let (node, settings, live) = (self.node.as_ref()?, self.settings.as_ref()?, input.node.as_ref()?);
        if !node.fence.holds() {
            return None;
        }
        let wanted = wanted(settings, &node.report.borrow());
        let patch = wanted.patch(live)?;
        let nodes: Api<Node> = Api::all(self.host.client.clone());
        match nodes.patch(&live.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => None,
            Err(error) => {
                tracing::warn!(
                    node = live.name_any(),
                    error = brief(&error),
                    "cannot write labels and taints"
                );
                Some(AGAIN)
            }
        }
    }

    /// Writes the status if it says something else now. Returns when to look again.
    async fn tell(&mut self, input: &Input, outcome: &Outcome) -> Option<Duration> {
        // While another process serves the node, how the member is is for that one to say.
        if self.node.as_ref().is_some_and(|node| !node.fence.holds()) {
            return Some(LEASE_LOOK);
        }
        let report = self.node.as_ref().map(|node| node.report.borrow().clone()).unwrap_or_default();
        let told = Told {
            ready: outcome.ready.clone(),
            reachable: outcome.reachable.clone(),
            report,
            enablements: self.enablements.as_ref().map(|(_, found)| found.clone()),
        };
        let cluster = &*input.cluster;
        let before = cluster.status.clone().unwrap_or_default();
        let status = told.status(cluster, Timestamp::now());
        if status == before {
            return None;
        }
        let rest = self.wrote.map_or(Duration::ZERO, |at| ROOM_EVERY.saturating_sub(at.elapsed()));
        if !differ_in_more_than_room(&status, &before) && !rest.is_zero() {
            return Some(rest);
        }
        let name = cluster.name_any();
        let document = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": { "name": name }, "status": status,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match self.clusters().patch_status(&name, &params, &Patch::Apply(document)).await {
            Ok(_) => {
                self.wrote = Some(Instant::now());
                None
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => None,
            Err(error) => {
                tracing::warn!(
                    cluster = name,
                    error = brief(&error),
                    "cannot write the status of the Cluster"
                );
                Some(AGAIN)
            }
        }
    }
}

fn not_yet(reason: &str, message: &str, again: Option<Duration>) -> Outcome {
    let reachable = Say::unknown("Connecting", message);
    Outcome { ready: Say::no(reason, message), reachable, again }
}

pub(super) fn unreachable(trouble: &Trouble) -> Outcome {
    let reason = match trouble.reason {
        TroubleReason::IdentityMismatch => "IdentityMismatch",
        _ => "ClusterNotReachable",
    };
    Outcome {
        ready: Say::no(reason, trouble.message.clone()),
        reachable: Say::no(trouble.reason.as_str(), trouble.message.clone()),
        again: Some(AGAIN),
    }
}

/// The host did not take what we wrote.
pub(super) fn host_trouble(error: &kube::Error) -> Outcome {
    match error {
        // Somebody else was quicker; what they wrote is on its way to us.
        kube::Error::Api(status) if status.is_conflict() => {
            not_yet("Starting", "the Cluster changed meanwhile", Some(SOON))
        }
        error => not_yet("HostForbids", &format!("the host refused: {}", brief(error)), Some(AGAIN)),
    }
}

/// Waits until something about the node changes; for ever if there is none.
async fn changed(node: Option<&mut RunningNode>) {
    let Some(node) = node else { return std::future::pending().await };
    tokio::select! {
        changed = node.report.changed() => if changed.is_err() { std::future::pending::<()>().await },
        changed = node.healthy.changed() => if changed.is_err() { std::future::pending::<()>().await },
    }
}

async fn pause(again: Option<Duration>) {
    match again {
        Some(again) => tokio::time::sleep(again).await,
        None => std::future::pending().await,
    }
}
