//! Which claims of the host are waiting for us, changed or went.

use std::sync::Arc;

use serde_json::Value;

use super::{
    super::{
        Follow,
        place::{Origin, Place, Resource},
        shelf::Name,
    },
    decide,
};
use crate::{json::text, names::MappingError, references::Kind};

/// What is kept of a claim of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct WaitingClaim {
    version: Box<str>,
    /// The node that it waits for, if our provisioner is to make its volume.
    node: Option<Box<str>>,
}

impl WaitingClaim {
    pub(in super::super) fn of(claim: &Value) -> Option<Self> {
        let version = claim.get("metadata").and_then(|metadata| text(metadata, "resourceVersion"));
        let node = decide::waits_for(claim).map(Into::into);
        Some(Self { version: version.unwrap_or_default().into(), node })
    }
}

impl Follow {
    /// A claim of the host is another than before, or gone.
    pub(in super::super) fn claim_changed(&self, name: &Name) {
        let Some((place, origin)) = self.claim_place(name) else { return };
        let now = self.site.host.objects.claims.read().get(name).cloned();
        let waits =
            now.as_ref().is_some_and(|claim| claim.node.as_deref() == Some(self.site.host.node.as_str()));
        if waits {
            // What was refused and given back has its time set.
            if self.desk.ledger().failures(&place) == 0 {
                self.visit(&place, origin);
            }
            return;
        }
        let known = self.desk.ledger().knows(&place);
        match now {
            Some(claim) if known => self.desk.host_changed(&place, Some(&claim.version)),
            // What the member has nothing of does not concern us.
            _ if !known && self.inventory.lacks(&place) => {}
            _ => self.visit(&place, origin),
        }
    }

    /// All claims were seen: some may wait for us, and copies of others may be left.
    pub(in super::super) fn claims_listed(&self) {
        let here = Some(self.site.host.node.as_str());
        let waiting: Vec<Name> = {
            let claims = self.site.host.objects.claims.read();
            claims.all().filter(|(_, claim)| claim.node.as_deref() == here).map(|(name, _)| name).collect()
        };
        waiting.iter().for_each(|name| self.claim_changed(name));
        self.claims_compared.store(false, std::sync::atomic::Ordering::Relaxed);
        self.compare_claims();
    }

    /// Whether the member's claims are still to be compared with the host's.
    pub(in super::super) fn has_to_compare_claims(&self) -> bool {
        !self.claims_compared.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Looks at copies whose claim went while nobody listened. Only once both sides were listed to the end.
    pub(in super::super) fn compare_claims(&self) {
        let Some(copies) = self.inventory.all(Resource::Claim) else { return };
        let target = self.site.target();
        let gone: Vec<Place> = {
            let claims = self.site.host.objects.claims.read();
            if !claims.is_listed() {
                return;
            }
            let there = |name: &Name| {
                let namespace = target.namespaces.map(&name.namespace).ok()?;
                Some(Place::new(Resource::Claim, &namespace, &name.name))
            };
            let known: std::collections::HashSet<Place> =
                claims.all().filter_map(|(name, _)| there(&name)).collect();
            copies.into_iter().filter(|place| !known.contains(place)).collect()
        };
        self.desk.change(|ledger, now| gone.iter().for_each(|place| ledger.visit(place, None, now)));
        self.claims_compared.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    fn claim_place(&self, claim: &Name) -> Option<(Place, Origin)> {
        let there: Arc<str> = match self.site.target().namespaces.map(&claim.namespace) {
            Ok(there) => there.as_str().into(),
            // It is looked at where it would be, so that somebody says that it cannot be there.
            Err(MappingError::Reserved { member, .. }) => member.into(),
            Err(_) => return None,
        };
        let (namespace, name): (Arc<str>, Arc<str>) = ((*claim.namespace).into(), (*claim.name).into());
        let place = Place { resource: Resource::Claim, namespace: there, name: name.clone() };
        Some((place, Origin::Object { kind: Kind::Claim, namespace, name }))
    }

    fn visit(&self, place: &Place, origin: Origin) {
        self.desk.change(|ledger, now| ledger.visit(place, Some(origin), now));
    }
}
