//! Pods on a machine that left the region. They move as the host moves pods: by eviction, so that budgets count and
//! their controllers make new ones.

use std::{collections::HashMap, time::Duration};

use federlet_node::contract::{Pod, PodKey};
use k8s_openapi::api::core::v1::Pod as TypedPod;
use kube::{
    Api,
    api::{DeleteParams, EvictParams, Preconditions},
    runtime::events::EventType,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ClusterProvider, mirror, room::in_scope};
use crate::{capacity::MemberNode, errors::brief, json::text, settings::MemberSettings};

/// A label that somebody changes by mistake and changes back is not a move.
const SETTLED: Duration = Duration::from_secs(10);
/// How often it is looked while a pod is where it should not be.
const AGAIN: Duration = Duration::from_secs(5);

/// A pod of ours on a machine that is not of the region any more.
struct Stray {
    key: PodKey,
    uid: String,
    machine: String,
}

/// Since when a pod is a stray, and whether that was told.
struct Seen {
    since: Instant,
    told: bool,
}

impl ClusterProvider {
    /// Moves pods off machines that left the region, until told to stop.
    pub(super) async fn evict_strays(&self, stop: CancellationToken) {
        let mut room = self.watch.room();
        let mut seen: HashMap<String, Seen> = HashMap::new();
        loop {
            room.borrow_and_update();
            let strays = self.strays();
            seen.retain(|uid, _| strays.iter().any(|stray| stray.uid == *uid));
            for stray in &strays {
                let seen = seen
                    .entry(stray.uid.clone())
                    .or_insert_with(|| Seen { since: Instant::now(), told: false });
                if seen.since.elapsed() >= SETTLED {
                    self.evict(stray, seen).await;
                }
            }
            let wait = if strays.is_empty() { Duration::MAX } else { AGAIN };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = room.changed(), if strays.is_empty() => if changed.is_err() { return },
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn strays(&self) -> Vec<Stray> {
        let settings = self.site.settings();
        let outside = outside(&self.watch.nodes(), &settings);
        // Most of the time nobody left, and then no pod is looked at.
        let loads = self.watch.loads(&settings.name);
        if !loads.iter().any(|load| load.ours && outside.contains(&load.node)) {
            return vec![];
        }
        let stray = |pod: crate::watch::OurPod| {
            let json = pod.json();
            let machine = text(&json["spec"], "nodeName").filter(|name| outside.contains(&(*name).into()))?;
            let ended = matches!(text(&json["status"], "phase"), Some("Succeeded" | "Failed"));
            let leaving = !json["metadata"]["deletionTimestamp"].is_null();
            (!ended && !leaving).then_some(())?;
            let key = mirror::key_of(&self.site, &pod)?;
            Some(Stray { key, uid: pod.host_uid().to_owned(), machine: machine.to_owned() })
        };
        self.watch.pods_of(&settings.name).into_iter().filter_map(stray).collect()
    }

    async fn evict(&self, stray: &Stray, seen: &mut Seen) {
        let host = self.site.host_pod(&stray.key).filter(|host| host.uid() == stray.uid);
        let Some(host) = host.filter(|host| host.deletion().is_none()) else { return };
        let only_this = Preconditions { uid: Some(stray.uid.clone()), resource_version: None };
        let params = EvictParams {
            delete_options: Some(DeleteParams::default().preconditions(only_this)),
            ..EvictParams::default()
        };
        let pods: Api<TypedPod> = Api::namespaced(self.site.host.client.clone(), stray.key.namespace());
        let machine = &stray.machine;
        match pods.evict(stray.key.name(), &params).await {
            Ok(_) => self.say(&host, seen, &format!("evicted: {machine} is not of the region any more")),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                let why = brief(&error);
                let note =
                    format!("{machine} is not of the region any more, and the pod cannot leave yet: {why}");
                self.say(&host, seen, &note);
            }
        }
    }

    fn say(&self, host: &Pod, seen: &mut Seen, note: &str) {
        if !std::mem::replace(&mut seen.told, true) {
            self.site.host.events.tell(EventType::Normal, host, "Evicting", "MachineLeftRegion", note);
        }
    }
}

/// Machines that are there, and not of the region. Of one that is not there nobody knows whether it left.
fn outside(nodes: &[MemberNode], settings: &MemberSettings) -> Vec<Box<str>> {
    nodes.iter().filter(|node| !in_scope(node, settings)).map(|node| node.name.clone()).collect()
}
