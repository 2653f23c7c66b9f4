//! What of ours is in the member: names and versions, no content.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    api::DynamicObject,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use super::{
    desk::Desk,
    place::{Place, Resource},
};
use crate::{marks, names::anchor, site::Site};

/// How long one watch request lives. A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

/// Every copy in the member, as its API server tells it.
#[derive(Debug)]
pub(super) struct Inventory {
    desk: Arc<Desk>,
    held: RwLock<Held>,
}

#[derive(Debug, Default)]
struct Held {
    copies: HashMap<Place, Found>,
    /// The resources that were listed to the end.
    listed: HashSet<Resource>,
}

#[derive(Debug)]
struct Found {
    uid: Box<str>,
    version: Box<str>,
    /// Whether a policy sent it.
    propagated: bool,
}

impl Inventory {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { desk, held: RwLock::default() }
    }

    /// Whether the member has nothing of ours in this place, as far as we know.
    pub(super) fn lacks(&self, place: &Place) -> bool {
        let held = self.held.read();
        held.listed.contains(&place.resource) && !held.copies.contains_key(place)
    }

    /// Whether the copy in this place is of exactly this UID and version.
    pub(super) fn confirms(&self, place: &Place, uid: &str, version: &str) -> bool {
        let held = self.held.read();
        held.copies.get(place).is_some_and(|it| (&*it.uid, &*it.version) == (uid, version))
    }

    /// Every place of this resource where something is that goes along with pods, once it was listed to the end.
    pub(super) fn all(&self, resource: Resource) -> Option<Vec<Place>> {
        let held = self.held.read();
        let goes_along = |(place, it): &(&Place, &Found)| place.resource == resource && !it.propagated;
        let ours = || held.copies.iter().filter(goes_along).map(|(place, _)| place.clone()).collect();
        held.listed.contains(&resource).then(ours)
    }

    /// Keeps itself current until told to stop.
    pub(super) async fn run(self: Arc<Self>, site: Arc<Site>, resource: Resource, stop: CancellationToken) {
        let (client, target) = (site.member.watch.clone(), site.target());
        let ours = format!("{}={},{}={}", marks::HOST, target.host, marks::NODE, target.node);
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &resource.api());
        let config = watcher::Config::default().labels(&ours).timeout(WATCH_SECONDS);
        let mut events = watcher(api, config).default_backoff().boxed();
        let anchor = anchor(&target.host, &target.node);
        let is_anchor = |copy: &PartialObjectMeta<DynamicObject>| {
            resource == Resource::ConfigMap && copy.metadata.name.as_deref() == Some(&*anchor)
        };
        let (mut listed, mut anchors) = (HashSet::new(), HashSet::new());
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(Ok(watcher::Event::Init)) => {
                    listed.clear();
                    anchors.clear();
                }
                Some(Ok(watcher::Event::InitApply(copy))) if is_anchor(&copy) => {
                    anchors.extend(living(&copy));
                }
                Some(Ok(watcher::Event::InitApply(copy))) => {
                    if let Some(place) = self.apply(resource, &copy) {
                        listed.insert(place);
                    }
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    self.keep_only(resource, &std::mem::take(&mut listed));
                    if resource == Resource::ConfigMap {
                        site.spaces.anchors_are(&std::mem::take(&mut anchors));
                    }
                }
                Some(Ok(watcher::Event::Apply(copy))) if is_anchor(&copy) => match living(&copy) {
                    Some(uid) => site.spaces.anchor_is(&copy.namespace().unwrap_or_default(), &uid),
                    None => site.spaces.anchor_went(&copy.uid().unwrap_or_default()),
                },
                Some(Ok(watcher::Event::Apply(copy))) => {
                    self.apply(resource, &copy);
                }
                Some(Ok(watcher::Event::Delete(copy))) if is_anchor(&copy) => {
                    site.spaces.anchor_went(&copy.uid().unwrap_or_default());
                }
                Some(Ok(watcher::Event::Delete(copy))) => {
                    if let Some(place) = place(resource, &copy) {
                        self.gone(&place, &copy.uid().unwrap_or_default());
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, kind = resource.kind(), "watching copies in the member failed, trying again");
                }
                None => return,
            }
        }
    }

    fn apply(&self, resource: Resource, copy: &PartialObjectMeta<DynamicObject>) -> Option<Place> {
        let place = place(resource, copy)?;
        let uid = copy.uid().unwrap_or_default();
        let version = copy.resource_version().unwrap_or_default();
        let propagated = copy.labels().contains_key(marks::PROPAGATED);
        self.held.write().copies.insert(
            place.clone(),
            Found { uid: uid.as_str().into(), version: version.as_str().into(), propagated },
        );
        self.desk.member_changed(&place, &uid, Some(&version));
        Some(place)
    }

    fn gone(&self, place: &Place, uid: &str) {
        self.held.write().copies.remove(place);
        self.desk.member_changed(place, uid, None);
    }

    /// What a complete list does not name is gone.
    fn keep_only(&self, resource: Resource, listed: &HashSet<Place>) {
        let mut gone = vec![];
        {
            let mut held = self.held.write();
            held.copies.retain(|place, it| {
                let stays = place.resource != resource || listed.contains(place);
                if !stays {
                    gone.push((place.clone(), it.uid.clone()));
                }
                stays
            });
            held.listed.insert(resource);
        }
        for (place, uid) in gone {
            self.desk.member_changed(&place, &uid, None);
        }
    }
}

/// The UID of an anchor that is not about to go.
fn living(anchor: &PartialObjectMeta<DynamicObject>) -> Option<String> {
    anchor.uid().filter(|_| anchor.metadata.deletion_timestamp.is_none())
}

fn place(resource: Resource, copy: &PartialObjectMeta<DynamicObject>) -> Option<Place> {
    let (namespace, name) = (copy.metadata.namespace.as_deref()?, copy.metadata.name.as_deref()?);
    Some(Place { resource, namespace: namespace.into(), name: name.into() })
}
