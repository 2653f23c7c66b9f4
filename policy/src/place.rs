//! The whole decision for one object: filter the clusters, choose among them, divide the replicas.

mod peers;

use std::collections::{BTreeMap, BTreeSet};

pub use peers::{Peer, Peers};

use crate::{
    affinity,
    api::{Cluster, ClusterAffinity, ClusterAffinityTerm, Placement},
    divide::{Candidate, DivideError, Division, Method, Shares, TieBreak, static_weights},
    spread::{self, Key, Need, SpreadError},
    taints,
};

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// API version of the object.
    pub api_version: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// UID of the object, if it has one already. It decides ties.
    pub uid: &'a str,
    /// Replicas that the object asks for; `None` for an object that has no such number.
    pub replicas: Option<u32>,
    /// What the policy says.
    pub placement: &'a Placement,
    /// Where the object is now.
    pub previous: &'a Shares,
    /// The affinity group that was used last.
    pub observed_affinity: Option<&'a str>,
    /// Clusters that the object is being moved away from, or was.
    pub leaving: &'a BTreeSet<String>,
    /// Workloads to be together with or apart from.
    pub peers: &'a Peers,
    /// Whether a person asked for a decision that forgets the last one.
    pub fresh: bool,
}

impl Request<'_> {
    /// Whether there is anything to divide.
    fn has_replicas(&self) -> bool {
        self.replicas.is_some_and(|replicas| replicas > 0)
    }
}

/// A cluster that may be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// How many more replicas of the object it has room for.
    pub free: u32,
}

/// Why a cluster was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// It is being deleted.
    #[error("it is being deleted")]
    Deleting,
    /// The object is being moved away from it, or was.
    #[error("the object is leaving it, or has left it")]
    Leaving,
    /// The policy does not want it.
    #[error(transparent)]
    Affinity(#[from] affinity::Mismatch),
    /// It does not serve the object's API.
    #[error("it does not serve {0}")]
    NoApi(String),
    /// It has a taint that is not tolerated.
    #[error("it has the taint {0}, which is not tolerated")]
    Taint(String),
    /// It is in no group that a spread constraint asks for.
    #[error("it has no {0} to spread by")]
    NoGroup(String),
    /// A workload to be together with is not there.
    #[error("a workload to be together with is not there")]
    NotNear,
    /// A workload to be apart from is there.
    #[error("a workload to be apart from is there")]
    NotApart,
    /// Nobody knows how much room it has.
    #[error("nobody said how much room it has, in status.resourceSummary or in an annotation")]
    NoRoomKnown,
    /// It would do, but others were preferred.
    #[error("it would do, but others were preferred")]
    NotNeeded,
}

/// Where an object goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Its clusters and the replicas in each; zero for an object that has none.
    pub shares: Shares,
    /// The affinity group that was used.
    pub affinity: Option<String>,
    /// Why each other cluster was not chosen.
    pub rejected: BTreeMap<String, Rejection>,
}

/// Why an object goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// No cluster will do: what runs is taken away.
    #[error("no cluster fits ({} looked at)", rejected.len())]
    NoClusterFit {
        /// Why each cluster was not chosen.
        rejected: BTreeMap<String, Rejection>,
    },
    /// Clusters would do, but not enough of them: what runs stays, and it is tried again.
    #[error("not enough clusters: {0}")]
    Spread(#[source] SpreadError),
    /// Clusters would do, but have too little room: what runs stays, and it is tried again.
    #[error("not enough room: {0}")]
    Divide(#[source] DivideError),
}

impl PlaceError {
    /// The reason in the condition `Scheduled`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoClusterFit { .. } => "NoClusterFit",
            Self::Spread(_) | Self::Divide(_) => "Unschedulable",
        }
    }
}

/// Decides where an object goes.
///
/// Affinity groups are tried in order, from the one that was used last; the first that takes the whole object
/// is it. If none does, the error is that of the first group for which waiting may help.
pub fn place(request: &Request<'_>, members: &[Member<'_>]) -> Result<Placed, PlaceError> {
    let groups = groups(request);
    if groups.is_empty() {
        return Attempt { request, group: None }.run(members);
    }
    let mut failure: Option<PlaceError> = None;
    for group in groups {
        match (Attempt { request, group: Some(group) }.run(members), &failure) {
            (Ok(placed), _) => return Ok(placed),
            (Err(error), None | Some(PlaceError::NoClusterFit { .. })) => failure = Some(error),
            (Err(_), Some(_)) => {}
        }
    }
    Err(failure.unwrap_or(PlaceError::NoClusterFit { rejected: BTreeMap::new() }))
}

/// Why each cluster is out of the question, whatever room there is; by the affinity group that would be tried first.
#[must_use]
pub fn rejections(request: &Request<'_>, members: &[Member<'_>]) -> BTreeMap<String, Rejection> {
    let attempt = Attempt { request, group: groups(request).first() };
    let each = members
        .iter()
        .filter_map(|member| Some((name(member.cluster).to_owned(), attempt.check(member.cluster).err()?)));
    each.collect()
}

/// The affinity groups to try: from the one that was used last, unless a person asked for a fresh decision.
fn groups<'a>(request: &Request<'a>) -> &'a [ClusterAffinityTerm] {
    let groups = &request.placement.cluster_affinities;
    let last = request.observed_affinity.filter(|_| !request.fresh);
    let start = groups.iter().position(|group| Some(group.affinity_name.as_str()) == last).unwrap_or(0);
    &groups[start..]
}

/// One affinity group, or none.
struct Attempt<'a> {
    request: &'a Request<'a>,
    group: Option<&'a ClusterAffinityTerm>,
}

impl Attempt<'_> {
    fn run(&self, members: &[Member<'_>]) -> Result<Placed, PlaceError> {
        let request = self.request;
        let mut rejected = BTreeMap::new();
        let mut fitting: Vec<Member<'_>> = Vec::new();
        for member in members {
            match self.check(member.cluster) {
                Ok(()) => fitting.push(*member),
                Err(reason) => drop(rejected.insert(name(member.cluster).to_owned(), reason)),
            }
        }
        if fitting.is_empty() {
            return Err(PlaceError::NoClusterFit { rejected });
        }
        let chosen = self.spread(&fitting)?;
        // What has nothing to divide is the same everywhere, whatever the policy says about dividing.
        let shares = match request.replicas.filter(|total| *total > 0) {
            None => chosen.iter().map(|member| (name(member.cluster).to_owned(), 0)).collect(),
            Some(total) => self.divide(Method::of(request.placement), total, &chosen)?,
        };
        for member in &fitting {
            if !shares.contains_key(name(member.cluster)) {
                rejected.insert(name(member.cluster).to_owned(), Rejection::NotNeeded);
            }
        }
        Ok(Placed { shares, affinity: self.group.map(|group| group.affinity_name.clone()), rejected })
    }

    fn check(&self, cluster: &Cluster) -> Result<(), Rejection> {
        let request = self.request;
        let name = name(cluster);
        if cluster.metadata.deletion_timestamp.is_some() {
            return Err(Rejection::Deleting);
        }
        if request.leaving.contains(name) {
            return Err(Rejection::Leaving);
        }
        self.affinity(cluster)?;
        // Where the object is, it may stay: a taint or a lost API keeps only new ones away.
        if !request.previous.contains_key(name) {
            if !serves(cluster, request.api_version, request.kind) {
                return Err(Rejection::NoApi(format!("{} {}", request.api_version, request.kind)));
            }
            if let Some(taint) =
                taints::untolerated(&cluster.spec.taints, &request.placement.cluster_tolerations)
            {
                return Err(Rejection::Taint(format!("{}:{}", taint.key, taint.effect)));
            }
        }
        // A cluster must say where it is even if fixed weights decide how many clusters are used.
        for key in request.placement.spread_constraints.iter().map(Key::of) {
            let matters = !matches!(key, Key::Label(_)) || !ignores_spread(request.placement);
            if matters && key.groups(cluster).is_empty() {
                return Err(Rejection::NoGroup(key.to_string()));
            }
        }
        if request.peers.apart.contains(name) {
            return Err(Rejection::NotApart);
        }
        if !request.peers.near.iter().all(|peer| peer.contains(name)) {
            return Err(Rejection::NotNear);
        }
        Ok(())
    }

    fn affinity(&self, cluster: &Cluster) -> Result<(), affinity::Mismatch> {
        let Some(group) = self.group else {
            return self
                .request
                .placement
                .cluster_affinity
                .as_ref()
                .map_or(Ok(()), |set| affinity::check(set, cluster));
        };
        let first = affinity::check(&group.affinity, cluster);
        let overflows = self.tiers().skip(1).any(|tier| affinity::check(tier, cluster).is_ok());
        if overflows { Ok(()) } else { first }
    }

    /// The sets of clusters to fill in order: the group itself, then its overflow if room matters at all.
    fn tiers(&self) -> impl Iterator<Item = &ClusterAffinity> {
        let tiered = self.request.has_replicas() && Method::of(self.request.placement).looks_at_room();
        let overflow = self.group.filter(|_| tiered).into_iter().flat_map(|group| &group.overflow_affinities);
        self.group.map(|group| &group.affinity).into_iter().chain(overflow.map(|tier| &tier.affinity))
    }

    fn spread<'m>(&self, fitting: &[Member<'m>]) -> Result<Vec<Member<'m>>, PlaceError> {
        let request = self.request;
        if ignores_spread(request.placement) {
            return Ok(fitting.to_vec());
        }
        let in_use = request.previous.values().any(|replicas| *replicas > 0);
        let candidates: Vec<_> = fitting
            .iter()
            .map(|member| {
                let now = request.previous.get(name(member.cluster)).copied();
                // What needs no room finds as much as anybody could want.
                let free = if request.has_replicas() { u64::from(member.free) } else { u64::from(u32::MAX) };
                let inside = |tier: &ClusterAffinity| affinity::check(tier, member.cluster).is_ok();
                spread::Candidate {
                    cluster: member.cluster,
                    tier: self.tiers().position(inside).unwrap_or(0),
                    current: in_use && now.is_some(),
                    room: free + u64::from(now.unwrap_or(0)),
                }
            })
            .collect();
        let replicas = u64::from(request.replicas.unwrap_or(0));
        let need = match Method::of(request.placement) {
            Method::Duplicated => Need::Each(replicas),
            _ => Need::Together(replicas),
        };
        let chosen = spread::select(&request.placement.spread_constraints, &candidates, need);
        Ok(chosen.map_err(PlaceError::Spread)?.into_iter().map(|index| fitting[index]).collect())
    }

    fn divide(&self, method: Method, total: u32, chosen: &[Member<'_>]) -> Result<Shares, PlaceError> {
        let request = self.request;
        let clusters: Vec<&Cluster> = chosen.iter().map(|member| member.cluster).collect();
        let scheduling = request.placement.replica_scheduling.as_ref();
        let rules = scheduling.and_then(|scheduling| scheduling.weight_preference.as_ref());
        let weights = static_weights(rules.map_or(&[], |rules| &rules.static_weight_list), &clusters);
        let candidate = |(member, weight): (&Member<'_>, u64)| Candidate {
            name: name(member.cluster).to_owned(),
            free: member.free,
            weight,
        };
        let candidates: Vec<Candidate> = chosen.iter().zip(weights).map(candidate).collect();
        let division = Division {
            method,
            total,
            previous: request.previous,
            ties: TieBreak::by_uid(request.uid),
            fresh: request.fresh,
        };
        let tiers: Vec<Vec<Candidate>> = self
            .tiers()
            .map(|tier| {
                let inside = chosen
                    .iter()
                    .zip(&candidates)
                    .filter(|(member, _)| affinity::check(tier, member.cluster).is_ok());
                inside.map(|(_, candidate)| candidate.clone()).collect()
            })
            .collect();
        let shares = if tiers.len() > 1 { division.among_tiers(&tiers) } else { division.among(&candidates) };
        let mut shares = shares.map_err(PlaceError::Divide)?;
        // A cluster without replicas does not get the object.
        shares.retain(|_, share| *share > 0);
        Ok(shares)
    }
}

/// Fixed weights already say which clusters are used. An empty list of weights says nothing.
fn ignores_spread(placement: &Placement) -> bool {
    let weights = placement.replica_scheduling.as_ref().and_then(|one| one.weight_preference.as_ref());
    Method::of(placement) == Method::StaticWeights
        && weights.is_none_or(|weights| !weights.static_weight_list.is_empty())
}

/// Whether a cluster serves an API. One that has not said what it serves is given the benefit of the doubt.
fn serves(cluster: &Cluster, api_version: &str, kind: &str) -> bool {
    let served = cluster.status.as_ref().map_or(&[][..], |status| &status.api_enablements);
    served.is_empty()
        || served.iter().any(|group| {
            group.group_version == api_version && group.resources.iter().any(|resource| resource.kind == kind)
        })
}

fn name(cluster: &Cluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
