//! What hinders override policies, said in their conditions and by Events: changes of a workload that mean nothing for
//! its pods, and rules that cannot be made. It is found out from the workloads themselves, before pods are made and for
//! each policy on its own.

mod found;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use federlet_provider::errors::brief;
use jiff::Timestamp;
use kube::core::ApiResource;
use tokio_util::sync::CancellationToken;

use self::found::{APPLICABLE, APPLIED, Finding, Findings, find, verdicts};
use super::Shared;
use crate::{
    affinity,
    api::{Cluster, ClusterOverridePolicy, OverridePolicy},
    conditions::{Verdict, conditions, write},
    divide::Method,
    effect::overrides_without_effect,
    govern::{Governed, govern},
    object::Identity,
    owners::Meta,
    propagate::kinds::is_copied,
    steer,
    store::{Override, View},
    workload::pod_path,
};

const FIELD_MANAGER: &str = "federlet-overrides";
/// Changes that come together are looked at together. Meanwhile the watch brings what was written.
const SETTLE: Duration = Duration::from_secs(3);
/// How soon what could not be read or written is tried again.
const AGAIN: Duration = Duration::from_secs(15);
/// How often all is looked at, whether or not anything changed.
const EVERY: Duration = Duration::from_secs(300);

/// Says it while this process leads.
pub(super) async fn run(shared: &Arc<Shared>, stop: &CancellationToken) {
    let (mut policies, mut bindings) = (shared.store.changes(), shared.bindings.changes());
    let mut owners = shared.owners.changes();
    let mut known: HashMap<String, (Basis, Findings)> = HashMap::new();
    loop {
        let done = shared.look_at_overrides(&mut known).await;
        tokio::select! {
            () = stop.cancelled() => return,
            _ = policies.changed() => {}
            _ = bindings.changed() => {}
            _ = owners.recv() => {}
            () = tokio::time::sleep(if done { EVERY } else { AGAIN }) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SETTLE) => {}
        }
    }
}

/// What is found out about a workload depends on this; as long as it is the same, nothing is read again.
#[derive(Clone, Debug)]
struct Basis {
    workload: Arc<Meta>,
    policies: Vec<Arc<Override>>,
    clusters: Vec<Arc<Cluster>>,
    /// Whether it is in those clusters; else it may come to be there.
    certain: bool,
    /// Whether its pods have copies in each of them.
    copied: bool,
}

impl Basis {
    /// None if no override is about pods of the workload.
    fn of(
        workload: &Arc<Meta>,
        governed: &Governed,
        view: &View,
        chosen: &[&str],
        fleet: bool,
    ) -> Option<Self> {
        let is_about = |policy: &&Arc<Override>| policy.policy().precision(&workload.identity).is_some();
        let policies: Vec<_> = view.overrides.iter().filter(is_about).cloned().collect();
        let placement = &governed.placement;
        let certain = !chosen.is_empty();
        let may_be_in = |name: &str, cluster: &Cluster| {
            if certain {
                chosen.contains(&name)
            } else {
                affinity::includes(placement.cluster_affinity.as_ref(), cluster)
            }
        };
        let clusters = view
            .clusters
            .iter()
            .filter(|(name, cluster)| may_be_in(name, cluster))
            .map(|(_, one)| one.clone());
        let copied =
            fleet && Method::of(placement) == Method::Duplicated && steer::only_cluster(placement).is_none();
        let basis =
            Self { workload: workload.clone(), clusters: clusters.collect(), certain, copied, policies };
        (!basis.policies.is_empty()).then_some(basis)
    }

    fn is_like(&self, other: &Self) -> bool {
        let place = |cluster: &Arc<Cluster>| {
            let (meta, spec) = (&cluster.metadata, &cluster.spec);
            let zones: Vec<String> = spec.zones().map(str::to_owned).collect();
            (meta.name.clone(), meta.labels.clone(), spec.provider.clone(), spec.region.clone(), zones)
        };
        let rule = |policy: &Arc<Override>| (policy.uid.clone(), policy.spec.clone());
        self.workload == other.workload
            && (self.certain, self.copied) == (other.certain, other.copied)
            && self.policies.iter().map(rule).eq(other.policies.iter().map(rule))
            && self.clusters.iter().map(place).eq(other.clusters.iter().map(place))
    }
}

impl Shared {
    /// False if something must be tried again.
    async fn look_at_overrides(&self, known: &mut HashMap<String, (Basis, Findings)>) -> bool {
        let (view, mut done) = (self.store.view(), true);
        let mut bases: HashMap<String, Basis> = HashMap::new();
        for workload in self.owners.all(None).iter().filter(|_| !view.overrides.is_empty()) {
            if let Some(basis) = self.basis(workload, &view) {
                bases.insert(workload.uid.clone(), basis);
            }
        }
        known.retain(|uid, _| bases.contains_key(uid));
        for (uid, basis) in bases {
            if known.get(&uid).is_some_and(|(before, _)| before.is_like(&basis)) {
                continue;
            }
            let identity = &basis.workload.identity;
            match self.workloads.of(&identity.namespace, None, &basis.workload).await {
                Ok(object) => {
                    let found = find(&object, &basis);
                    known.insert(uid, (basis, found));
                }
                Err(kube::Error::Api(status)) if status.code == 404 => drop(known.remove(&uid)),
                // What was found before stays.
                Err(error) => {
                    let name = &identity.name;
                    tracing::debug!(workload = name, error = brief(&error), "cannot read a workload");
                    done = false;
                }
            }
        }
        for policy in &view.overrides {
            let about = known.values().filter_map(|(basis, found)| {
                let Identity { kind, namespace, name, .. } = &basis.workload.identity;
                let whole = format!("{namespace}/{name}");
                let name = if policy.namespace.is_some() { name } else { &whole };
                Some((format!("{kind} {name}"), found.get(&policy.uid)?))
            });
            let about: BTreeMap<String, &Finding> = about.collect();
            let idle = overrides_without_effect(&policy.spec);
            done &= self.say_on_override(policy, verdicts(&about, &idle)).await;
        }
        done
    }

    fn basis(&self, workload: &Arc<Meta>, view: &View) -> Option<Basis> {
        let identity = &workload.identity;
        // What is copied as it is has no pods of ours to override.
        if pod_path(&identity.api_version, &identity.kind).is_none() || is_copied(identity) {
            return None;
        }
        let binding = self.bindings.get(&workload.uid);
        let governed = govern(workload, view, binding.as_deref())?;
        let targets = binding.iter().flat_map(|binding| &binding.spec.clusters);
        let chosen: Vec<&str> = targets.map(|target| target.name.as_str()).collect();
        Basis::of(workload, &governed, view, &chosen, self.fleet_node.is_some())
    }

    async fn say_on_override(&self, policy: &Override, verdicts: [(&'static str, Verdict); 2]) -> bool {
        for ((_, verdict), (_, reason)) in verdicts.iter().zip([APPLICABLE, APPLIED]) {
            match verdict {
                // Who makes pods says by Events which rules fail.
                Verdict::Wrong(_, what) if reason == APPLICABLE.1 => {
                    self.tell.warn(policy.reference(), reason, what);
                }
                Verdict::Fine(..) => self.tell.over(&policy.uid, reason),
                Verdict::Wrong(..) | Verdict::Unknown => {}
            }
        }
        let Some(conditions) = conditions(&policy.conditions, &verdicts, Timestamp::now()) else {
            return true;
        };
        if !self.leading.holds() {
            return true;
        }
        let resource = match policy.namespace {
            Some(_) => ApiResource::erase::<OverridePolicy>(&()),
            None => ApiResource::erase::<ClusterOverridePolicy>(&()),
        };
        match write(&self.client, &policy.reference(), &resource, FIELD_MANAGER, &conditions).await {
            Ok(_) => true,
            Err(error) => {
                let (policy, error) = (&policy.name, brief(&error));
                tracing::warn!(
                    policy,
                    error,
                    "cannot say on an override policy what hinders it, trying again"
                );
                false
            }
        }
    }
}
