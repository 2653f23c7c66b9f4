//! How much room the member has, as the host's scheduler sees it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use federlet_node::contract::{NodeReport, ProviderError};
use k8s_openapi::{
    api::core::v1::{NodeStatus, NodeSystemInfo, Taint as NodeTaint},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ClusterProvider, reach::Reach};
use crate::{
    capacity::{
        Capacity, MemberNode, NodeSummary, PodLoad, Resources, Scope, Settled, Taint, agreed_label, coarse,
        declared_features, differ_in, room_labels,
    },
    errors::brief,
    quantity::Quantity,
    settings::{MemberSettings, Offline},
    target::{Region, TAINT},
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
/// Of a member that has not been listed by then, it is said whether it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Labels that say of a machine which programs it runs.
const KINDS: [&str; 2] = ["kubernetes.io/arch", "kubernetes.io/os"];

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
    /// Taints that all its machines have, which its node has too; none before any machine was seen.
    pub taints: Option<Vec<NodeTaint>>,
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
    /// The most that is free on any one of them.
    pub largest: Resources,
}

/// What is remembered between two looks.
#[derive(Default)]
struct Memory {
    begun: Option<Instant>,
    /// What the Node was told before the member was listed.
    told: Option<Reach>,
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
        if settings.offline == Offline::Keep || !self.watch.has_nodes() {
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
        let version = self.member.borrow().version.clone();
        let mut memory = Memory { begun: Some(Instant::now()), version, ..Memory::default() };
        let listed = tokio::time::timeout(PATIENCE, self.watch.complete());
        tokio::select! {
            () = stop.cancelled() => return,
            _ = listed => {}
        }
        loop {
            self.ask_version(&mut memory).await;
            room.borrow_and_update();
            let waits = if self.is_listed(&memory) {
                self.look(&mut memory)
            } else {
                // Boxed, because it is rare and large.
                Box::pin(self.look_from_afar(&mut memory)).await
            };
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

    /// Whether all is known that a Node says of its member. What was not listed to the end says nothing: with machines
    /// alone the Node would offer what pods of others hold.
    fn is_listed(&self, memory: &Memory) -> bool {
        self.watch.has_pods() && self.watch.has_nodes() && !memory.version.is_empty()
    }

    /// Says whether the member answers, of which not all is known yet. True if that has to be tried again.
    async fn look_from_afar(&self, memory: &mut Memory) -> bool {
        self.learn();
        let reach = self.reach.lock().now();
        // Lists say when they are complete; the version has to be asked for.
        let mut waits = self.watch.has_pods() && self.watch.has_nodes();
        if reach.is_known() && memory.told.as_ref() != Some(&reach) {
            // A node that was registered without any room is ours to describe until there is more to say.
            let is_bare = self.report.borrow().is_some();
            let told = if is_bare { Ok(true) } else { self.tell_unlisted(&reach).await };
            match told {
                Ok(register) => {
                    if register {
                        self.publish(self.bare(&reach));
                    }
                    memory.told = Some(reach.clone());
                }
                Err(error) => {
                    tracing::debug!(error = brief(&error), "the node does not say how its member is");
                    waits = true;
                }
            }
        }
        self.tell_of_member(MemberReport {
            version: memory.version.clone(),
            reach,
            ..MemberReport::default()
        });
        waits
    }

    /// A node of which nothing is known but whether its member answers.
    fn bare(&self, reach: &Reach) -> NodeReport {
        let (settings, capacity) = (self.site.settings(), Capacity::default());
        let member = self.site.target().version;
        let seen = Seen { settings: &settings, capacity: &capacity, nodes: &[], reach, version: "", member };
        seen.report(&BTreeMap::new(), &BTreeMap::new())
    }

    fn publish(&self, report: NodeReport) {
        self.report.send_if_modified(|before| {
            let changed = before.as_ref() != Some(&report);
            *before = Some(report);
            changed
        });
    }

    fn tell_of_member(&self, member: MemberReport) {
        self.member.send_if_modified(|before| {
            let changed = *before != member;
            *before = member;
            changed
        });
    }

    /// Looks at the member and says what is new. True if something waits to be said later.
    fn look(&self, memory: &mut Memory) -> bool {
        let settings = self.site.settings();
        let reach = self.reach.lock().now();
        let (nodes, loads) = (self.watch.nodes(), self.watch.loads(&settings.name));
        let scope = Scope { region: settings.region.clone(), limits: settings.limits.clone() };
        let capacity = Capacity::of(&nodes, &loads, &scope);
        self.learn();
        self.learn_taints(&capacity);

        let now = memory.begun.map_or(0, |begun| begun.elapsed().as_secs());
        let published = capacity.published(&settings.limits);
        let allocatable: BTreeMap<String, Quantity> =
            published.iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
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
        // Until the member was asked, or what was said of it before is known, the Node goes on saying what it does.
        if reach.is_known() {
            self.publish(seen.report(&memory.allocatable, &memory.labels));
        }
        let summary = (!nodes.is_empty()).then(|| summary(&in_scope, &loads, &capacity));
        let taints = (!in_scope.is_empty()).then(|| machine_taints(&capacity));
        self.tell_of_member(MemberReport { version: memory.version.clone(), reach, summary, taints });
        waits
    }

    /// What the next pods depend on, before anybody looked at the room: the classes that there are, and the first time
    /// also the taints.
    pub(super) fn learn(&self) {
        let (target, offers) = (self.site.target(), self.watch.offers());
        if target.offers != offers {
            self.site.change_target(|target| target.offers = offers.clone());
        }
        if target.region.as_ref().is_some_and(|region| region.tolerations.is_none()) {
            let settings = self.site.settings();
            let scope = Scope { region: settings.region.clone(), limits: settings.limits.clone() };
            self.learn_taints(&Capacity::of(&self.watch.nodes(), &[], &scope));
        }
    }

    /// Of machines that were not listed yet, nobody knows the taints.
    fn learn_taints(&self, capacity: &Capacity) {
        let tolerations = capacity.taints.tolerations();
        let is_new = |region: &Region| region.tolerations.as_ref() != Some(&tolerations);
        if self.watch.has_nodes() && self.site.target().region.as_ref().is_some_and(is_new) {
            self.site.change_target(|target| {
                if let Some(region) = &mut target.region {
                    region.tolerations = Some(tolerations.clone());
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

/// The taints of the node that come from its machines. Its own is not among them: that one stays when they go.
fn machine_taints(capacity: &Capacity) -> Vec<NodeTaint> {
    let common = capacity.taints.common.iter().filter(|taint| &*taint.key != TAINT);
    let taint = |taint: &Taint| NodeTaint {
        key: taint.key.to_string(),
        value: Some(taint.value.to_string()).filter(|value| !value.is_empty()),
        effect: taint.effect.to_string(),
        time_added: None,
    };
    common.map(taint).collect()
}

fn summary(nodes: &[&MemberNode], loads: &[PodLoad], capacity: &Capacity) -> Summary {
    let mut summary =
        Summary { nodes: capacity.nodes, largest: capacity.largest.clone(), ..Summary::default() };
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
        // Unlike machines that nobody has seen yet, those that differ are certain.
        let differ = KINDS.into_iter().filter(|key| differ_in(self.nodes.iter().copied(), key));
        NodeReport {
            labels,
            without: differ.map(str::to_owned).collect(),
            annotations: BTreeMap::new(),
            taints: taints.chain(machine_taints(self.capacity)).collect(),
            status: NodeStatus {
                capacity: Some(amounts(&self.capacity.capacity)),
                allocatable: Some(settled),
                conditions: Some(vec![self.reach.condition()]),
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
