//! When a workload leaves a cluster in which it is not well, and how what is there goes.
//!
//! A departure is a task in the binding, so that it outlives us, and the cluster is among those that were left until the
//! pods are made from another template: what failed there would fail again. Nothing leaves that could be nowhere else.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::health::Health;
use crate::{
    api::{ApplicationFailover, GracefulEvictionTask, LeftCluster, PurgeMode, ResourceBindingSpec},
    tainted::Departure,
};

/// Who decided it, as a task says.
const PRODUCER: &str = "federlet";
/// Why, as a task says.
const UNHEALTHY: &str = "ApplicationFailure";
const TAINTED: &str = "TaintUntolerated";
/// How long what is there waits for what comes elsewhere, if nobody says.
const GRACE: i32 = 600;
/// How soon a departure that is under way is looked at again.
const UNDER_WAY: Duration = Duration::from_secs(3);
/// A task says no more than this.
const MESSAGE_LIMIT: usize = 1024;

/// What the workload is leaving and has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Departures {
    pub(super) tasks: Vec<GracefulEvictionTask>,
    pub(super) left: Vec<LeftCluster>,
}

/// How pods go that are in a cluster that is being left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Not before a person says so.
    Never,
    /// A few, and the next when those that came for them are Ready.
    Slowly,
    /// All.
    AtOnce,
}

impl Departures {
    /// As the binding records them.
    pub(super) fn of(spec: Option<&ResourceBindingSpec>) -> Self {
        let Some(spec) = spec else { return Self::default() };
        Self { tasks: spec.graceful_eviction_tasks.clone(), left: spec.left_clusters.clone() }
    }

    /// The clusters that are not to be chosen.
    pub(super) fn clusters(&self) -> BTreeSet<String> {
        let tasks = self.tasks.iter().map(|task| &task.from_cluster);
        tasks.chain(self.left.iter().map(|left| &left.name)).cloned().collect()
    }

    /// The clusters whose pods go at this pace.
    pub(super) fn at(&self, wanted: Pace, now: Timestamp) -> BTreeSet<String> {
        let task = |cluster: &str| self.tasks.iter().find(|task| task.from_cluster == cluster);
        let pace = |cluster: &str| task(cluster).map_or(Pace::AtOnce, |task| pace(task, now));
        self.clusters().into_iter().filter(|cluster| pace(cluster) == wanted).collect()
    }
}

fn pace(task: &GracefulEvictionTask, now: Timestamp) -> Pace {
    match task.suppress_deletion {
        Some(true) => Pace::Never,
        None if task.keeps_old() && !is_late(task, now) => Pace::Slowly,
        _ => Pace::AtOnce,
    }
}

/// When what is there has waited long enough.
fn deadline(task: &GracefulEvictionTask) -> Option<Timestamp> {
    let waits = task.suppress_deletion.is_none() && task.keeps_old();
    let began = task.creation_timestamp.as_ref().filter(|_| waits)?;
    let grace = u64::try_from(task.grace_period_seconds.unwrap_or(GRACE)).unwrap_or(0);
    began.0.checked_add(Duration::from_secs(grace)).ok()
}

fn is_late(task: &GracefulEvictionTask, now: Timestamp) -> bool {
    deadline(task).is_some_and(|deadline| deadline <= now)
}

/// Where the workload would be without some clusters, or why nowhere.
pub(super) type Elsewhere<'a> = dyn Fn(&BTreeSet<String>) -> Result<BTreeSet<String>, String> + 'a;

/// What is known of a workload.
pub(super) struct Look<'a> {
    /// What its policy says; none if it does not leave by itself.
    pub(super) rules: Option<&'a ApplicationFailover>,
    /// The clusters that it leaves because of their taints, where its policy lets pods wait for those that come elsewhere;
    /// otherwise the host drives them out by itself.
    pub(super) tainted: Option<&'a Departure>,
    pub(super) before: Departures,
    pub(super) health: &'a BTreeMap<String, Health>,
    /// For how long it has been ill, by cluster.
    pub(super) ill: &'a BTreeMap<String, Duration>,
    /// The clusters that have anything of it, and how many pods.
    pub(super) present: &'a BTreeMap<String, usize>,
    /// Whether some of its pods have no place yet.
    pub(super) waiting: bool,
    /// Whether its pods have copies: then what is elsewhere is there already.
    pub(super) copied: bool,
    /// The templates that its pods have.
    pub(super) templates: &'a BTreeSet<String>,
    /// When a person asked for a fresh decision.
    pub(super) asked: Option<Timestamp>,
    pub(super) now: Timestamp,
    /// Where it would be without these clusters, or why it could not be anywhere.
    pub(super) elsewhere: &'a Elsewhere<'a>,
}

/// What people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It leaves a cluster.
    Leaves(String),
    /// It would leave a cluster if it could.
    Stuck(String),
    /// Nothing is under way any more, and nothing is wrong.
    Over,
}

/// What is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) departures: Departures,
    pub(super) news: Vec<News>,
    /// Clusters that are not to be chosen, though nothing has to leave them any more.
    pub(super) avoided: BTreeSet<String>,
    /// When to look again.
    pub(super) again: Option<Duration>,
}

/// Why a cluster is left, and how.
struct Cause {
    /// In words.
    says: String,
    /// More of them, which may change while the cause is the same.
    detail: String,
    reason: &'static str,
    purge: PurgeMode,
    grace: Option<i32>,
    /// Whether it stays away until its pods are others.
    stays_away: bool,
}

impl Look<'_> {
    /// Decides.
    pub(super) fn decide(&self) -> Outcome {
        let mut departures = self.go_on();
        let mut news = vec![];
        let mut waits: Vec<Duration> = vec![];
        if let Some(rules) = self.rules {
            let toleration = seconds(rules.decision_conditions.toleration_seconds);
            let leaving = departures.clusters();
            for (cluster, time) in self.ill.iter().filter(|(cluster, _)| !leaving.contains(*cluster)) {
                if *time < toleration {
                    waits.push(toleration - *time);
                } else {
                    news.push(self.leave(cluster, &self.unhealthy(cluster, rules), &mut departures));
                }
            }
        }
        let mut avoided = BTreeSet::new();
        if let Some(taints) = self.tainted {
            let here = |cluster: &&String, departures: &Departures| {
                self.present.contains_key(*cluster) && !departures.clusters().contains(*cluster)
            };
            for cluster in &taints.due {
                if here(&cluster, &departures) {
                    news.push(self.leave(cluster, &tainted(cluster), &mut departures));
                }
            }
            waits.extend(taints.next.map(|next| until(next, self.now)));
            // What could be nowhere else stays, and so may what comes.
            avoided = taints.due.iter().filter(|cluster| !here(cluster, &departures)).cloned().collect();
        }
        waits.extend((!departures.tasks.is_empty()).then_some(UNDER_WAY));
        if departures.tasks.is_empty() && self.ill.is_empty() && news.is_empty() {
            news.push(News::Over);
        }
        Outcome { departures, news, avoided, again: waits.into_iter().min() }
    }

    /// What was begun goes on, or is over.
    fn go_on(&self) -> Departures {
        let mut next = Departures::default();
        let (over, tasks) = self.before.tasks.iter().cloned().partition(|task| self.is_over(task));
        next.tasks = tasks;
        next.left = self.before.left.clone();
        let over: Vec<GracefulEvictionTask> = over;
        for task in over {
            // Somebody else's departure is remembered like ours, from when it was over.
            let known = next.left.iter().any(|left| left.name == task.from_cluster);
            if !known && task.producer != PRODUCER {
                next.left.push(self.left(&task.from_cluster));
            }
        }
        next.left.retain(|left| {
            let same =
                left.templates.is_empty() || left.templates.iter().any(|one| self.templates.contains(one));
            same && self.asked.is_none_or(|asked| asked <= left.since.0)
        });
        next
    }

    fn is_over(&self, task: &GracefulEvictionTask) -> bool {
        if task.suppress_deletion == Some(false) {
            return true;
        }
        let by_taint = task.producer == PRODUCER && task.reason == TAINTED;
        let doomed = || self.tainted.is_some_and(|taints| taints.doomed.contains(&task.from_cluster));
        // One that came back is not left. What waited too long in one that did not still has to go.
        if (by_taint && !doomed()) || (!by_taint && is_late(task, self.now)) {
            return true;
        }
        let leaving = self.before.clusters();
        let mut others = self.health.iter().filter(|(cluster, _)| !leaving.contains(*cluster)).peekable();
        let well =
            !self.waiting && others.peek().is_some() && others.all(|(_, health)| *health == Health::Well);
        let gone = !self.present.contains_key(&task.from_cluster);
        // What has copies elsewhere does not go one by one.
        let waits_for_others_only = self.copied && task.suppress_deletion.is_none() && task.keeps_old();
        well && (gone || waits_for_others_only)
    }

    fn unhealthy(&self, cluster: &str, rules: &ApplicationFailover) -> Cause {
        let time = rules.decision_conditions.toleration_seconds;
        let detail = match self.health.get(cluster) {
            Some(Health::Ill(why)) => format!(" ({why})"),
            _ => String::new(),
        };
        Cause {
            // What is said again and again is the same as long as nothing changes.
            says: format!("unhealthy in {cluster} for more than {time} s"),
            detail,
            reason: UNHEALTHY,
            purge: rules.purge_mode,
            grace: rules.grace_period_seconds,
            stays_away: true,
        }
    }

    fn leave(&self, cluster: &str, cause: &Cause, departures: &mut Departures) -> News {
        let says = &cause.says;
        let mut leaving = departures.clusters();
        leaving.insert(cluster.to_owned());
        let targets = match (self.elsewhere)(&leaving) {
            Ok(targets) => targets,
            Err(error) => {
                return News::Stuck(format!("{says}, and stays, for no other cluster will do: {error}"));
            }
        };
        let is_ill = |target: &&String| matches!(self.health.get(*target), Some(Health::Ill(_)));
        if targets.iter().all(|target| is_ill(&target)) {
            let names = targets.into_iter().collect::<Vec<_>>().join(", ");
            return News::Stuck(format!("{says}, and stays, for it is no better in {names}"));
        }
        let names = targets.into_iter().collect::<Vec<_>>().join(", ");
        let never = cause.purge == PurgeMode::Never;
        let stays =
            if never { "; what is there stays until its task says suppressDeletion: false" } else { "" };
        let message = format!("{says}{}: it goes to {names}{stays}", cause.detail);
        let graceful = cause.purge.is_graceful();
        departures.tasks.push(GracefulEvictionTask {
            from_cluster: cluster.to_owned(),
            purge_mode: Some(cause.purge),
            replicas: self.present.get(cluster).and_then(|count| i32::try_from(*count).ok()),
            reason: cause.reason.to_owned(),
            message: cut(&message),
            producer: PRODUCER.to_owned(),
            grace_period_seconds: graceful.then(|| cause.grace.unwrap_or(GRACE)),
            suppress_deletion: never.then_some(true),
            preserved_label_state: BTreeMap::new(),
            creation_timestamp: Some(Time(self.now)),
            clusters_before_failover: self.present.keys().cloned().collect(),
        });
        if cause.stays_away {
            departures.left.retain(|left| left.name != cluster);
            departures.left.push(self.left(cluster));
        }
        News::Leaves(message)
    }

    fn left(&self, cluster: &str) -> LeftCluster {
        let templates = self.templates.iter().cloned().collect();
        LeftCluster { name: cluster.to_owned(), templates, since: Time(self.now) }
    }
}

fn tainted(cluster: &str) -> Cause {
    Cause {
        says: format!("a taint of {cluster} is not tolerated, or not any more"),
        detail: String::new(),
        reason: TAINTED,
        purge: PurgeMode::Gracefully,
        grace: None,
        // While the taint is there, it is not chosen; afterwards nothing is wrong with it.
        stays_away: false,
    }
}

fn until(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or_default()
}

fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

fn cut(text: &str) -> String {
    let end = (0..=MESSAGE_LIMIT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests;
