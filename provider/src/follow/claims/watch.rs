//! Which claims of the host are waiting for us, changed or went.

use std::{collections::HashSet, sync::Arc};

use futures::StreamExt;
use kube::{
    Api,
    api::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        Follow,
        place::{Origin, Place, Resource},
    },
    decide,
};
use crate::{json::text, references::Kind};

/// How long one watch request lives. A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

impl Follow {
    /// Watches the host's claims until told to stop. Few of them concern us, and none is kept.
    pub(in super::super) async fn watch_claims(self: Arc<Self>, stop: CancellationToken) {
        let api: Api<DynamicObject> = Api::all_with(self.site.host.own.clone(), &Resource::Claim.api());
        let mut events =
            watcher(api, watcher::Config::default().timeout(WATCH_SECONDS)).default_backoff().boxed();
        let mut listed = HashSet::new();
        // Claims that the host had when it last listed all, until they were compared with the member's.
        let mut compare: Option<HashSet<Place>> = None;
        let mut timer = tokio::time::interval(self.settings.sweep);
        let mut refused = false;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                _ = timer.tick(), if compare.is_some() => {
                    if let Some(copies) = self.inventory.all(Resource::Claim) {
                        self.visit_forgotten(&copies, &compare.take().unwrap_or_default());
                    }
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(Ok(watcher::Event::Init)) => listed.clear(),
                Some(Ok(watcher::Event::InitApply(claim))) => {
                    if let Some(place) = self.claim_changed(claim) {
                        listed.insert(place);
                    }
                }
                Some(Ok(watcher::Event::InitDone)) => compare = Some(std::mem::take(&mut listed)),
                Some(Ok(watcher::Event::Apply(claim))) => {
                    self.claim_changed(claim);
                }
                Some(Ok(watcher::Event::Delete(claim))) => {
                    if let Some((place, origin)) = self.claim_place(&json(claim)) {
                        self.visit(&place, origin);
                    }
                }
                Some(Err(error)) => {
                    if !std::mem::replace(&mut refused, true) {
                        tracing::warn!(%error, "cannot watch the host's claims: volumes are not made or reclaimed for now");
                    }
                    continue;
                }
                None => return,
            }
            refused = false;
        }
    }

    /// A claim of the host is there, or is another than before. Where its copy belongs.
    fn claim_changed(&self, claim: DynamicObject) -> Option<Place> {
        let claim = json(claim);
        let (place, origin) = self.claim_place(&claim)?;
        if decide::waits_for_us(&claim, self.site.host.node.as_str()) {
            self.visit(&place, origin);
        } else if self.desk.ledger().knows(&place) {
            let version = claim.get("metadata").and_then(|metadata| text(metadata, "resourceVersion"));
            self.desk.host_changed(&place, version);
        } else if !self.inventory.lacks(&place) {
            self.visit(&place, origin);
        }
        Some(place)
    }

    fn claim_place(&self, claim: &Value) -> Option<(Place, Origin)> {
        let metadata = claim.get("metadata")?;
        let (namespace, name) = (text(metadata, "namespace")?, text(metadata, "name")?);
        let there = self.site.target().namespaces.map(namespace).ok()?;
        let origin = Origin::Object { kind: Kind::Claim, namespace: namespace.into(), name: name.into() };
        Some((Place::new(Resource::Claim, &there, name), origin))
    }

    fn visit(&self, place: &Place, origin: Origin) {
        self.desk.change(|ledger, now| ledger.visit(place, Some(origin), now));
    }

    /// Copies whose claim went while nobody looked.
    fn visit_forgotten(&self, copies: &[Place], listed: &HashSet<Place>) {
        let gone = copies.iter().filter(|place| !listed.contains(place));
        self.desk.change(|ledger, now| gone.for_each(|place| ledger.visit(place, None, now)));
    }
}

fn json(claim: DynamicObject) -> Value {
    serde_json::to_value(claim).unwrap_or_default()
}
