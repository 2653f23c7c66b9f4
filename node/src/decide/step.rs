use std::time::Duration;

use crate::contract::{Phase, Pod, PodId};

/// All that a decision about one pod is based on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The pod on the host, from a complete list; none if the host has no pod of this name on this node.
    pub host: Option<&'a Pod>,
    /// The pod at the provider; none only if the provider is certain.
    pub provider: Option<&'a Pod>,
    /// The digest of what the provider accepted last, for the host pod's UID; none after a restart.
    pub accepted: Option<u64>,
    /// The digest of what the host wants now.
    pub desired: u64,
    /// Whether this process created the pod so recently that the provider may not see it yet.
    pub just_created: bool,
    /// The grace period with which the pod at the provider left the host, if that was not told to the provider yet.
    pub departed: Option<Duration>,
}

/// What to do next about one pod. One step at a time: what it changes leads to the next decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do about its life; its status may still want reporting.
    Rest(Rest),
    /// Start it at the provider.
    Create,
    /// Tell the provider what changed.
    Update,
    /// Stop this one at the provider.
    Delete {
        /// Which one: not always the pod that the host has now.
        id: PodId,
        /// How long it may take.
        grace: Duration,
        /// Ask the host once more before: the decision rests on the absence of something.
        confirm: bool,
    },
    /// It is over at the provider: remove the object from the host.
    Remove {
        /// Write how it ended first, because someone with a finalizer waits to read it.
        say_how_it_ended: bool,
    },
    /// Somebody ended it at the provider: end it on the host as well, so that its controller replaces it.
    Evict {
        /// What the provider gives it.
        grace: Duration,
    },
    /// It ran, and the provider is certain that it is no more. It cannot run twice, so it has failed.
    Lost,
}

/// Why there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Neither side has it.
    Gone,
    /// The provider has it as the host wants it.
    Settled,
    /// It is a static pod's mirror.
    NotOurs,
    /// It ended, and never runs again.
    Finished,
    /// The provider is ending it.
    Ending,
    /// Created a moment ago; the provider does not show it yet.
    Appearing,
    /// Only somebody's finalizer keeps the object.
    Finalizing,
}

/// Decides what to do about one pod.
pub fn next_step(seen: Seen<'_>) -> Step {
    let Some(host) = seen.host else {
        return seen.provider.map_or(Step::Rest(Rest::Gone), |orphan| end_orphan(orphan, seen.departed));
    };
    if host.is_static() {
        return Step::Rest(Rest::NotOurs);
    }
    let own = seen.provider.filter(|pod| pod.uid() == host.uid());
    if let Some(deletion) = host.deletion() {
        return match own {
            Some(pod) => end(pod, deletion.grace, false),
            None => remove(host, deletion.grace),
        };
    }
    if host.phase().is_terminal() {
        // What ended on the host, by whoever's word, must not go on elsewhere.
        return match (own, seen.provider) {
            (Some(pod), _) if !pod.phase().is_terminal() => end(pod, pod.termination_grace(), false),
            (None, Some(other)) => end_orphan(other, seen.departed),
            _ => Step::Rest(Rest::Finished),
        };
    }
    match (own, seen.provider) {
        (Some(pod), _) => keep(seen, pod),
        // The name is used again, and the earlier pod is still there. Unless it is the later one, and our picture of
        // the host is behind: another process served the node meanwhile.
        (None, Some(other)) => end_orphan(other, seen.departed),
        (None, None) => start(host, seen.just_created),
    }
}

fn keep(seen: Seen<'_>, pod: &Pod) -> Step {
    if let Some(deletion) = pod.deletion() {
        // A pod that ended by itself is only being tidied away there: its result is reported, not its removal.
        return if pod.phase().is_terminal() {
            Step::Rest(Rest::Ending)
        } else {
            Step::Evict { grace: deletion.grace }
        };
    }
    if pod.phase().is_terminal() {
        return Step::Rest(Rest::Finished);
    }
    if seen.accepted == Some(seen.desired) { Step::Rest(Rest::Settled) } else { Step::Update }
}

fn start(host: &Pod, just_created: bool) -> Step {
    if just_created {
        return Step::Rest(Rest::Appearing);
    }
    // Containers may have run, and ended, without our seeing it. One that restarts for ever cannot have finished,
    // and while Pending nobody saw it run; anything else might be run a second time.
    let may_have_finished = host.phase() != Phase::Pending || !host.restarts_always();
    if host.was_started() && may_have_finished { Step::Lost } else { Step::Create }
}

fn end_orphan(orphan: &Pod, departed: Option<Duration>) -> Step {
    // Whoever loses patience in the end says so with the very deletion that takes the object away.
    let grace = orphan.termination_grace();
    end(orphan, departed.map_or(grace, |departed| departed.min(grace)), true)
}

fn end(pod: &Pod, grace: Duration, confirm: bool) -> Step {
    // Nothing is left to wait for in a pod whose containers have ended.
    let grace = if pod.phase().is_terminal() { Duration::ZERO } else { grace };
    match pod.deletion() {
        Some(under_way) if under_way.grace <= grace => Step::Rest(Rest::Ending),
        _ => Step::Delete { id: pod.id().clone(), grace, confirm },
    }
}

fn remove(host: &Pod, grace: Duration) -> Step {
    let unfinished = !host.phase().is_terminal();
    if grace.is_zero() && host.has_finalizers() && !unfinished {
        return Step::Rest(Rest::Finalizing);
    }
    Step::Remove { say_how_it_ended: host.has_finalizers() && unfinished }
}

#[cfg(test)]
mod tests;
