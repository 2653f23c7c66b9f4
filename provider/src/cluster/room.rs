//! How much room the member has, as the host's scheduler sees it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use federlet_node::contract::{NodeReport, ProviderError};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{NodeCondition, NodeStatus, NodeSystemInfo, Taint as NodeTaint},
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, apis::meta::v1::Time},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ClusterProvider, reach::Reach};
use crate::{
    capacity::{
        Capacity, MemberNode, NodeSummary, PodLoad, Resources, Scope, Settled, agreed_label, coarse,
        declared_features, room_labels,
    },
    quantity::Quantity,
    settings::{MemberSettings, Offline},
    version::Version,
};

/// Changes that come together are looked at together.
const TOGETHER: Duration = Duration::from_millis(300);
/// How long more room must last before it is offered.
const HOLD: u64 = 3;
/// While something waits to be offered, how often to look.
const LOOK: Duration = Duration::from_secs(1);
/// How often the version is asked for.
const VERSION_EVERY: Duration = Duration::from_secs(300);
/// A member that has not been listed by then is described without its room, so that the node can say that it is down.
const PATIENCE: Duration = Duration::from_secs(10);

/// The feature by which a host passes websockets on as they are, and the first members that take them.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";
const WEBSOCKETS_SINCE: Version = Version::v1(31);

/// How a member is, for its Cluster object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberReport {
    /// The version of its API server, as it says it.
    pub version: String,
    /// Whether it can be reached.
    pub reach: Reach,
    /// What it has; none before it was seen.
    pub summary: Option<Summary>,
}

/// What a member, or a region of it, has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Its machines.
    pub nodes: NodeSummary,
    /// What they can give to pods.
    pub allocatable: Resources,
    /// What pods hold on them.
    pub allocated: Resources,
}

/// What is remembered between two looks.
#[derive(Default)]
struct Memory {
    begun: Option<Instant>,
    version: String,
    asked: Option<Instant>,
    allocatable: BTreeMap<String, Settled<Quantity>>,
    labels: BTreeMap<String, Settled<i64>>,
}

impl ClusterProvider {
    /// Whether any machine of the scope is Ready. Without one there is no node to speak of.
    pub(super) fn has_machines(&self) -> Result<(), ProviderError> {
        let settings = self.site.settings();
        // Nothing is known of machines that were not listed yet.
        if settings.offline == Offline::Keep || self.report.borrow().is_none() {
            return Ok(());
        }
        let nodes = self.watch.nodes();
        let mut scope = nodes.iter().filter(|node| in_scope(node, &settings));
        if scope.any(|node| node.ready) {
            return Ok(());
        }
        Err(ProviderError::rejected("NoReadyNodes", "no node of the member is Ready"))
    }

    /// Keeps the report current until told to stop.
    pub(super) async fn follow_room(self: Arc<Self>, stop: CancellationToken) {
        let mut room = self.watch.room();
        let mut memory = Memory { begun: Some(Instant::now()), ..Memory::default() };
        let listed = tokio::time::timeout(PATIENCE, self.watch.complete());
        tokio::select! {
            () = stop.cancelled() => return,
            _ = listed => {}
        }
        loop {
            self.ask_version(&mut memory).await;
            room.borrow_and_update();
            let waits = self.look(&mut memory);
            let again = if waits { LOOK } else { VERSION_EVERY };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = room.changed() => if changed.is_err() { return },
                () = self.reconsider.notified() => {}
                () = tokio::time::sleep(again) => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    async fn ask_version(&self, memory: &mut Memory) {
        if memory.asked.is_some_and(|at| at.elapsed() < VERSION_EVERY) {
            return;
        }
        let answer =
            tokio::time::timeout(Duration::from_secs(5), self.site.member.pods.apiserver_version()).await;
        let Ok(Ok(info)) = answer else { return };
        memory.asked = Some(Instant::now());
        if let Ok(version) = info.git_version.parse::<Version>() {
            memory.version = info.git_version;
            if self.site.target().version != version {
                self.site.change_target(|target| target.version = version);
            }
        }
    }

    /// Looks at the member and says what is new. True if something waits to be said later.
    fn look(&self, memory: &mut Memory) -> bool {
        let settings = self.site.settings();
        let reach = self.reach.lock().now();
        let (nodes, loads) = (self.watch.nodes(), self.watch.loads(&settings.name));
        let scope = Scope { region: settings.region.clone(), limits: settings.limits.clone() };
        let capacity = Capacity::of(&nodes, &loads, &scope);
        self.learn(&capacity);

        let now = memory.begun.map_or(0, |begun| begun.elapsed().as_secs());
        let allocatable: BTreeMap<String, Quantity> =
            capacity.allocatable.iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
        let labels: BTreeMap<String, i64> =
            room_labels(&capacity.largest).into_iter().map(|(label, n)| (label, coarse(n))).collect();
        let waits =
            settle(&mut memory.allocatable, &allocatable, now) | settle(&mut memory.labels, &labels, now);

        let in_scope: Vec<&MemberNode> = nodes.iter().filter(|node| in_scope(node, &settings)).collect();
        let seen = Seen {
            settings: &settings,
            capacity: &capacity,
            nodes: &in_scope,
            reach: &reach,
            version: &memory.version,
            member: self.site.target().version,
        };
        let report = seen.report(&memory.allocatable, &memory.labels);
        self.report.send_if_modified(|before| {
            let changed = before.as_ref() != Some(&report);
            *before = Some(report);
            changed
        });
        let summary = (!nodes.is_empty()).then(|| summary(&in_scope, &loads, capacity.nodes));
        let member = MemberReport { version: memory.version.clone(), reach, summary };
        self.member.send_if_modified(|before| {
            let changed = *before != member;
            *before = member;
            changed
        });
        waits
    }

    /// What the next pods depend on.
    fn learn(&self, capacity: &Capacity) {
        let (target, offers) = (self.site.target(), self.watch.offers());
        let tolerations = capacity.taints.tolerations();
        let new_tolerations = target.region.as_ref().is_some_and(|region| region.tolerations != tolerations);
        if target.offers != offers || new_tolerations {
            self.site.change_target(|target| {
                target.offers = offers.clone();
                if let Some(region) = &mut target.region {
                    region.tolerations = tolerations.clone();
                }
            });
        }
    }
}

/// Whether a machine belongs to what the node stands for.
pub(super) fn in_scope(node: &MemberNode, settings: &MemberSettings) -> bool {
    !node.is_virtual && settings.region.as_ref().is_none_or(|region| node.is_in(region))
}

/// Takes in what is true now. True if a value waits to rise.
fn settle<T: Copy + Ord>(
    known: &mut BTreeMap<String, Settled<T>>,
    actual: &BTreeMap<String, T>,
    now: u64,
) -> bool {
    known.retain(|name, _| actual.contains_key(name));
    let mut waits = false;
    for (name, value) in actual {
        let settled =
            known.get(name).map_or_else(|| Settled::new(*value), |before| before.next(*value, now, HOLD));
        waits |= settled.value() != *value;
        known.insert(name.clone(), settled);
    }
    waits
}

fn summary(nodes: &[&MemberNode], loads: &[PodLoad], count: NodeSummary) -> Summary {
    let mut summary = Summary { nodes: count, ..Summary::default() };
    for node in nodes.iter().filter(|node| node.ready && node.schedulable) {
        summary.allocatable.add(&node.allocatable);
    }
    for load in loads.iter().filter(|load| nodes.iter().any(|node| node.name == load.node)) {
        summary.allocated.add(&load.requests);
    }
    summary
}

/// All that a report is made of.
struct Seen<'a> {
    settings: &'a MemberSettings,
    capacity: &'a Capacity,
    nodes: &'a [&'a MemberNode],
    reach: &'a Reach,
    version: &'a str,
    member: Version,
}

impl Seen<'_> {
    fn report(
        &self,
        allocatable: &BTreeMap<String, Settled<Quantity>>,
        room: &BTreeMap<String, Settled<i64>>,
    ) -> NodeReport {
        let mut labels = self.labels();
        labels.extend(room.iter().map(|(label, amount)| (label.clone(), amount.value().to_string())));
        let amounts = |all: &Resources| {
            all.iter().map(|(name, amount)| (name.to_owned(), ApiQuantity(amount.to_string()))).collect()
        };
        let settled = allocatable
            .iter()
            .map(|(name, amount)| (name.clone(), ApiQuantity(amount.value().to_string())))
            .collect();
        let taints = self.settings.taints.iter().cloned();
        let common = self.capacity.taints.common.iter().map(|taint| NodeTaint {
            key: taint.key.to_string(),
            value: Some(taint.value.to_string()).filter(|value| !value.is_empty()),
            effect: taint.effect.to_string(),
            time_added: None,
        });
        NodeReport {
            labels,
            annotations: BTreeMap::new(),
            taints: taints.chain(common).collect(),
            status: NodeStatus {
                capacity: Some(amounts(&self.capacity.capacity)),
                allocatable: Some(settled),
                conditions: Some(vec![self.reachable()]),
                node_info: Some(self.info()),
                declared_features: Some(self.features()),
                ..NodeStatus::default()
            },
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for key in ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "nvidia.com/gpu.product"]
        {
            if let Some(value) = agreed_label(self.nodes.iter().copied(), key) {
                labels.insert(key.to_owned(), value.to_owned());
            }
        }
        labels.extend(self.settings.labels.clone());
        // What the ROLES column of `kubectl get nodes` shows.
        let role = if self.settings.region.is_some() { "region" } else { "cluster" };
        labels.insert("kubernetes.io/role".into(), role.into());
        labels
    }

    fn reachable(&self) -> NodeCondition {
        NodeCondition {
            type_: "MemberReachable".into(),
            status: if self.reach.reachable { "True" } else { "False" }.into(),
            reason: Some(self.reach.reason.clone()),
            message: Some(self.reach.message.clone()),
            last_transition_time: (self.reach.since > Timestamp::UNIX_EPOCH)
                .then_some(Time(self.reach.since)),
            last_heartbeat_time: None,
        }
    }

    fn info(&self) -> NodeSystemInfo {
        let agreed = |key: &str| agreed_label(self.nodes.iter().copied(), key).unwrap_or_default().to_owned();
        NodeSystemInfo {
            architecture: agreed("kubernetes.io/arch"),
            operating_system: agreed("kubernetes.io/os"),
            kubelet_version: self.version.to_owned(),
            ..NodeSystemInfo::default()
        }
    }

    /// What all machines can do, and what the way there can.
    fn features(&self) -> Vec<String> {
        let mut features = declared_features(self.nodes.iter().copied());
        features.retain(|feature| feature != WEBSOCKETS);
        if self.member >= WEBSOCKETS_SINCE {
            features.push(WEBSOCKETS.to_owned());
        }
        features.sort();
        features
    }
}
