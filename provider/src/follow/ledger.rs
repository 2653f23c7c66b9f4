//! Who needs what, what is known about it, and when to look at it again. It does nothing itself and asks nobody.

mod state;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use federlet_node::{
    contract::{PodId, ProviderError},
    decide::Backoff,
};
use tokio::{sync::oneshot, time::Instant};

pub(super) use self::state::{Copied, Finished, Job, State};
use super::{
    place::{Need, Origin, Place},
    shelf::Name,
};

/// One place of the member.
#[derive(Debug)]
struct Entry {
    origin: Option<Origin>,
    /// The pods that need it, and whether each has seen it.
    users: HashMap<PodId, bool>,
    state: State,
    host_version: Option<Box<str>>,
    failures: u32,
    due: Option<Instant>,
    /// When it is due for its own sake, whoever needs it.
    refresh: Option<Instant>,
    busy: Option<Busy>,
    waiting: Vec<oneshot::Sender<()>>,
}

/// What happens while somebody looks.
#[derive(Debug, Default)]
struct Busy {
    wanted: bool,
    /// Look again at once.
    again: bool,
    /// The version of the host's object that was announced last.
    host: Option<Option<Box<str>>>,
    /// The UID and version of the copy that were announced last.
    member: Option<(Box<str>, Option<Box<str>>)>,
}

/// All places of one virtual node.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: HashMap<Place, Entry>,
    pods: HashMap<PodId, Box<[Place]>>,
    due: BTreeSet<(Instant, Place)>,
    /// How long a copy stays after the last pod that needed it.
    linger: Duration,
}

impl Ledger {
    pub(super) fn new(linger: Duration) -> Self {
        Self { entries: HashMap::new(), pods: HashMap::new(), due: BTreeSet::new(), linger }
    }

    /// A pod needs exactly these. Gives something to wait for where it is not known yet that all is well.
    ///
    /// `started` is whether the pod ran before this process did: then it has seen what it needs.
    pub(super) fn want(
        &mut self,
        pod: &PodId,
        needs: &[Need],
        started: bool,
        now: Instant,
    ) -> Result<Vec<oneshot::Receiver<()>>, ProviderError> {
        for need in needs {
            if let Some(other) = self.entries.get(&need.place).and_then(|entry| entry.origin.as_ref())
                && *other != need.origin
                && self.entries.get(&need.place).is_some_and(|entry| !entry.users.is_empty())
            {
                return Err(ProviderError::already_exists(format!(
                    "{} of the member is for {other} already and cannot be for {} as well",
                    need.place, need.origin
                )));
            }
        }
        let places: HashSet<&Place> = needs.iter().map(|need| &need.place).collect();
        let before = self.pods.insert(pod.clone(), needs.iter().map(|need| need.place.clone()).collect());
        for gone in before.iter().flatten().filter(|place| !places.contains(place)) {
            self.leave(gone, pod, now);
        }
        Ok(needs.iter().filter_map(|need| self.add(pod, need, started, now)).collect())
    }

    /// A pod is selected by exactly these Services. What else it needs stays: it is known of the pod as the member has it,
    /// which may not be quite the host's.
    pub(super) fn select(&mut self, pod: &PodId, services: &[Need], now: Instant) {
        let Some(before) = self.pods.get(pod) else { return };
        let is_service = |place: &&Place| {
            let origin = self.entries.get(place).and_then(|entry| entry.origin.as_ref());
            matches!(origin, Some(Origin::Service { .. }))
        };
        let (selecting, mut rest): (Vec<Place>, Vec<Place>) =
            before.iter().cloned().partition(|place| is_service(&place));
        let stays = |place: &Place| services.iter().any(|need| need.place == *place);
        rest.extend(services.iter().map(|need| need.place.clone()));
        self.pods.insert(pod.clone(), rest.into());
        for gone in selecting.iter().filter(|place| !stays(place)) {
            self.leave(gone, pod, now);
        }
        for need in services {
            self.add(pod, need, false, now);
        }
    }

    /// A pod needs this. Gives something to wait for if it is not known that all is well.
    fn add(
        &mut self,
        pod: &PodId,
        need: &Need,
        started: bool,
        now: Instant,
    ) -> Option<oneshot::Receiver<()>> {
        let entry = self.entries.entry(need.place.clone()).or_insert_with(Entry::new);
        entry.origin = Some(need.origin.clone());
        let on_its_way_out = entry.users.is_empty();
        *entry.users.entry(pod.clone()).or_default() |= started;
        let known = match &entry.state {
            State::InPlace(_) => true,
            // A watch says when it appears. Who cannot start without it has reason to hope, so it is looked for.
            State::Kept => need.optional || entry.users.get(pod).is_some_and(|seen| *seen),
            State::Missing => need.optional,
            State::Unknown | State::Refused(_) | State::Failed(_) | State::Closed => false,
        };
        if known && entry.busy.as_ref().is_none_or(|busy| busy.wanted) {
            // What others use keeps its time: somebody may be about to look because it changed.
            if on_its_way_out {
                let refresh = entry.refresh;
                self.schedule(&need.place, refresh);
            }
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        entry.waiting.push(sender);
        match &mut entry.busy {
            Some(busy) => busy.again |= !busy.wanted,
            None => self.schedule(&need.place, Some(now)),
        }
        Some(receiver)
    }

    /// Whether all that a pod needs is there.
    pub(super) fn verdict(&mut self, pod: &PodId, needs: &[Need]) -> Result<(), ProviderError> {
        for need in needs.iter().filter(|need| !matches!(need.origin, Origin::Service { .. })) {
            let Some(entry) = self.entries.get_mut(&need.place) else {
                return Err(ProviderError::unavailable(format!("{} is not known yet", need.place)));
            };
            let seen = entry.users.get(pod).copied().unwrap_or(false);
            match &entry.state {
                State::InPlace(_) => {
                    entry.users.insert(pod.clone(), true);
                }
                State::Missing | State::Kept if need.optional || seen => {}
                State::Missing | State::Kept => return Err(missing(&need.origin)),
                State::Refused(_) if need.optional => {}
                State::Refused(error) | State::Failed(error) => return Err(error.clone()),
                State::Unknown | State::Closed => {
                    return Err(ProviderError::unavailable(format!("{} is not known yet", need.place)));
                }
            }
        }
        Ok(())
    }

    /// A pod needs nothing any more.
    pub(super) fn release(&mut self, pod: &PodId, now: Instant) {
        for place in self.pods.remove(pod).iter().flatten() {
            self.leave(place, pod, now);
        }
    }

    fn leave(&mut self, place: &Place, pod: &PodId, now: Instant) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        entry.users.remove(pod);
        if entry.users.is_empty() && entry.busy.is_none() {
            // Somebody was about to look. Should a pod come for it before it goes, somebody does so first.
            if entry.due.is_some() && entry.due != entry.refresh {
                entry.state = State::Unknown;
            }
            // A token is for one pod, which never comes back.
            let linger =
                if matches!(entry.origin, Some(Origin::Token(_))) { Duration::ZERO } else { self.linger };
            self.schedule(place, Some(now + linger));
        }
    }

    /// The pods that need anything.
    pub(super) fn pods(&self) -> impl Iterator<Item = &PodId> {
        self.pods.keys()
    }

    /// The Services of the host that are needed, by their names there.
    pub(super) fn services(&self) -> impl Iterator<Item = Name> {
        self.entries.values().filter_map(|entry| match &entry.origin {
            Some(Origin::Service { namespace, name }) => Some(Name::new(namespace, name)),
            _ => None,
        })
    }

    /// The pods that need this.
    pub(super) fn users(&self, place: &Place) -> impl Iterator<Item = &PodId> {
        self.entries.get(place).into_iter().flat_map(|entry| entry.users.keys())
    }

    pub(super) fn knows(&self, place: &Place) -> bool {
        self.entries.contains_key(place)
    }

    /// Something of ours in the member that no pod needs: it is looked at, and goes.
    pub(super) fn abandon(&mut self, place: &Place, now: Instant) {
        if !self.entries.contains_key(place) {
            self.entries.insert(place.clone(), Entry::new());
            self.schedule(place, Some(now + self.linger));
        }
    }

    /// Something to be looked at now, whether or not a pod needs it.
    pub(super) fn visit(&mut self, place: &Place, origin: Option<Origin>, now: Instant) {
        let entry = self.entries.entry(place.clone()).or_insert_with(Entry::new);
        if entry.origin.is_none() {
            entry.origin = origin;
        }
        self.doubt(place, now);
    }

    /// The host announced a version of the object, or that it is gone.
    pub(super) fn host_changed(&mut self, place: &Place, version: Option<&str>, now: Instant) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        match &mut entry.busy {
            Some(busy) => busy.host = Some(version.map(Into::into)),
            None if entry.host_version.as_deref() == version => {}
            // It is on its way out, and its time is set. Should a pod come for it before that, somebody looks first.
            None if entry.users.is_empty() => entry.state = State::Unknown,
            None => self.schedule(place, Some(now)),
        }
    }

    /// The member announced a version of the copy, or that it is gone.
    pub(super) fn member_changed(&mut self, place: &Place, uid: &str, version: Option<&str>, now: Instant) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        match &mut entry.busy {
            Some(busy) => busy.member = Some((uid.into(), version.map(Into::into))),
            None if entry.state.explains(uid, version) => {}
            None if entry.users.is_empty() => entry.state = State::Unknown,
            None => self.schedule(place, Some(now)),
        }
    }

    /// Look again, whatever is known.
    pub(super) fn doubt(&mut self, place: &Place, now: Instant) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        match &mut entry.busy {
            Some(busy) => busy.again = true,
            None => self.schedule(place, Some(now)),
        }
    }

    /// When there is something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next place to look at, if it is time.
    pub(super) fn take(&mut self, now: Instant) -> Option<Job> {
        if self.next()? > now {
            return None;
        }
        let (_, place) = self.due.pop_first()?;
        let entry = self.entries.get_mut(&place)?;
        entry.due = None;
        let wanted = !entry.users.is_empty();
        entry.busy = Some(Busy { wanted, ..Busy::default() });
        let seen = entry.users.values().any(|seen| *seen);
        Some(Job { origin: entry.origin.clone(), state: entry.state.clone(), place, wanted, seen })
    }

    /// Somebody looked. Whether the place is of no interest any more.
    pub(super) fn done(&mut self, place: &Place, finished: Finished, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(place) else { return true };
        let Finished { state, host_version, again } = finished;
        let busy = entry.busy.take().unwrap_or_default();
        let unexplained = busy.host.is_some_and(|version| version != host_version)
            || busy.member.is_some_and(|(uid, version)| !state.explains(&uid, version.as_deref()));
        entry.failures = if matches!(state, State::Failed(_)) { entry.failures.saturating_add(1) } else { 0 };
        let pause = match &state {
            State::Failed(ProviderError::Unavailable { retry_after, .. }) => {
                Some(Backoff::spread(Backoff::default().pause(entry.failures, *retry_after)))
            }
            State::Failed(_) => Some(Backoff::spread(Backoff::SLOW.pause(entry.failures, None))),
            _ => again,
        };
        entry.host_version = host_version;
        entry.refresh = pause.map(|pause| now + pause);
        let gone = state == State::Closed;
        let needed = !entry.users.is_empty();
        entry.state = if unexplained && !needed { State::Unknown } else { state };
        if !needed && gone && !busy.again {
            self.entries.remove(place);
            return true;
        }
        if busy.wanted {
            // Whoever waits reads what came out of it.
            for waiting in entry.waiting.drain(..) {
                let _ = waiting.send(());
            }
        }
        let due = if busy.again || (needed && (gone || unexplained)) {
            Some(now)
        } else if needed {
            entry.refresh
        } else if busy.wanted {
            Some(now + self.linger)
        } else {
            entry.refresh.or(Some(now + self.linger.max(Duration::from_secs(1))))
        };
        self.schedule(place, due);
        false
    }

    /// How often in a row looking at a place has failed.
    pub(super) fn failures(&self, place: &Place) -> u32 {
        self.entries.get(place).map_or(0, |entry| entry.failures)
    }

    /// Nobody will look at anything any more.
    pub(super) fn close(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.waiting.clear());
        self.due.clear();
    }

    fn schedule(&mut self, place: &Place, at: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        if entry.busy.is_some() {
            return;
        }
        if let Some(before) = entry.due.take() {
            self.due.remove(&(before, place.clone()));
        }
        if let Some(at) = at {
            entry.due = Some(at);
            self.due.insert((at, place.clone()));
        }
    }
}

impl Entry {
    fn new() -> Self {
        Self {
            origin: None,
            users: HashMap::new(),
            state: State::Unknown,
            host_version: None,
            failures: 0,
            due: None,
            refresh: None,
            busy: None,
            waiting: vec![],
        }
    }
}

fn missing(origin: &Origin) -> ProviderError {
    let reason = match origin {
        Origin::Object { kind: crate::references::Kind::Secret, .. } => "MandatorySecretNotFound",
        Origin::Object { kind: crate::references::Kind::ConfigMap, .. } => "MandatoryConfigMapNotFound",
        Origin::Object { .. } => "ClaimNotFound",
        Origin::Service { .. } => "ServiceNotFound",
        Origin::Token(_) => "ServiceAccountNotFound",
    };
    ProviderError::rejected(reason, format!("{origin} not found on the host"))
}

#[cfg(test)]
mod tests;
