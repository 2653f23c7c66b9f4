//! What hinders policies, said in their conditions: that the host does not let us read what they select, and fields
//! without effect. Their authors look there first.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use federlet_provider::errors::brief;
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::core::ApiResource;
use tokio::time::Instant;

use super::{
    Shared,
    job::{Job, backoff},
    kinds::{is_copied, selected},
    rights::on_host,
    templates::{Found, kind},
    wanted::Seen,
};
use crate::{
    api::{ClusterPropagationPolicy, PropagationPolicy},
    claim::PolicyKey,
    conditions::{Verdict, conditions, write},
    effect::without_effect,
    govern::claim_of,
    inventory::Key,
    object::Identity,
    store::{Kind, Propagation},
};

/// Whether what a policy selects can be read.
const READABLE: &str = "ObjectsReadable";
/// Whether everything that it says has an effect.
const EFFECTIVE: &str = "FieldsEffective";
/// Why it is not so; the Event has the same reason.
const CANNOT_READ: &str = "CannotRead";
/// The name under which we write it.
const FIELD_MANAGER: &str = "federlet-objects";
/// Within this time the watch brings what was written.
const SETTLED: Duration = Duration::from_secs(5);

/// What is known of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reading {
    /// All its objects are known.
    Read,
    /// Not yet, or not now.
    Unknown,
    /// It stays so until somebody does this.
    Refused(String),
}

impl Shared {
    fn reading(&self, kind: &Kind) -> Reading {
        match self.templates.trouble(kind) {
            Some(trouble) if trouble.lasts => {
                Reading::Refused(on_host(kind, self.templates.served(kind).as_ref(), &trouble.said))
            }
            None if self.templates.listed(kind) => Reading::Read,
            _ => Reading::Unknown,
        }
    }

    /// Writes it on every policy that does not say so already.
    pub(super) async fn say_on_policies(&self) {
        let view = self.store.view();
        let mut needed = self.needed();
        for policy in view.propagation.iter().filter(|policy| !policy.deleting) {
            let mut kinds = selected(policy);
            kinds.extend(
                needed.remove(&policy.key()).filter(|_| policy.spec.propagate_deps).unwrap_or_default(),
            );
            let kinds: Vec<Reading> = kinds.iter().map(|kind| self.reading(kind)).collect();
            match refusals(&kinds) {
                Some(why) => self.tell.warn(policy.reference(), CANNOT_READ, &why),
                None => self.tell.over(&policy.uid, CANNOT_READ),
            }
            let verdicts = [(READABLE, readable(&kinds)), (EFFECTIVE, effective(policy))];
            let Some(conditions) = conditions(&policy.conditions, &verdicts, Timestamp::now()) else {
                continue;
            };
            if self.was_just_written(&policy.uid) {
                self.jobs.after(Job::Policies, SETTLED);
                continue;
            }
            if let Err(error) = self.write_conditions(policy, &conditions).await {
                let (policy, error) = (&policy.name, brief(&error));
                tracing::warn!(policy, error, "cannot say on a policy what hinders it, trying again");
                self.jobs.after(Job::Policies, backoff(3));
            }
        }
    }

    /// The kinds that objects of each policy need.
    fn needed(&self) -> BTreeMap<PolicyKey, BTreeSet<Kind>> {
        // Whoever has the desk may want to note what goes along, so nothing is asked while that is held.
        let along: Vec<(Key, BTreeSet<Key>)> = {
            let along = self.along.lock();
            along.needs().map(|(source, needs)| (source.clone(), needs.clone())).collect()
        };
        needed(&along, |source| match self.templates.find(source) {
            Found::There(seen) => Some((seen.identity.clone(), claim_of(&*self.binding(&seen)?)?.policy)),
            Found::Gone | Found::Unknown => None,
        })
    }

    fn was_just_written(&self, uid: &str) -> bool {
        let mut written = self.written.lock();
        written.retain(|_, at| at.elapsed() < SETTLED);
        written.contains_key(uid)
    }

    async fn write_conditions(
        &self,
        policy: &Propagation,
        conditions: &[Condition],
    ) -> Result<(), kube::Error> {
        let resource = match policy.namespace {
            Some(_) => ApiResource::erase::<PropagationPolicy>(&()),
            None => ApiResource::erase::<ClusterPropagationPolicy>(&()),
        };
        if write(&self.client, &policy.reference(), &resource, FIELD_MANAGER, conditions).await? {
            self.written.lock().insert(policy.uid.clone(), Instant::now());
        }
        Ok(())
    }

    /// Says on an object that what it needs stays behind, because its kind cannot be read.
    pub(super) fn tell_about_needs<'a>(&self, seen: &Seen, needs: impl Iterator<Item = &'a Key>) {
        let refused: Vec<String> = needs
            .filter_map(|needed| match self.reading(&kind(needed)) {
                Reading::Refused(why) => {
                    Some(format!("{} {} does not go along: {why}", needed.kind, needed.name))
                }
                Reading::Read | Reading::Unknown => None,
            })
            .collect();
        if refused.is_empty() {
            return self.tell.over(&seen.uid, CANNOT_READ);
        }
        let object = &seen.identity;
        let about = ObjectReference {
            api_version: Some(object.api_version.clone()),
            kind: Some(object.kind.clone()),
            namespace: Some(object.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(object.name.clone()),
            uid: Some(seen.uid.clone()),
            ..ObjectReference::default()
        };
        self.tell.warn(about, CANNOT_READ, &refused.join("; "));
    }
}

/// The kinds that objects of each policy need, given who has an object. What pods of the host need goes along with the
/// pods: their node may read it.
fn needed(
    along: &[(Key, BTreeSet<Key>)],
    holder: impl Fn(&Key) -> Option<(Identity, PolicyKey)>,
) -> BTreeMap<PolicyKey, BTreeSet<Kind>> {
    let mut needed: BTreeMap<PolicyKey, BTreeSet<Kind>> = BTreeMap::new();
    for (source, needs) in along {
        if let Some((_, policy)) = holder(source).filter(|(object, _)| is_copied(object)) {
            needed.entry(policy).or_default().extend(needs.iter().map(kind));
        }
    }
    needed
}

fn refusals(kinds: &[Reading]) -> Option<String> {
    let said: Vec<&str> = kinds
        .iter()
        .filter_map(|kind| match kind {
            Reading::Refused(why) => Some(why.as_str()),
            Reading::Read | Reading::Unknown => None,
        })
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn readable(kinds: &[Reading]) -> Verdict {
    match refusals(kinds) {
        Some(why) => Verdict::Wrong(CANNOT_READ, why),
        None if kinds.contains(&Reading::Unknown) => Verdict::Unknown,
        None => Verdict::Fine("Readable", "all that it selects can be read"),
    }
}

fn effective(policy: &Propagation) -> Verdict {
    let notes = without_effect(&policy.spec);
    if notes.is_empty() {
        Verdict::Fine("Effective", "every field has its effect")
    } else {
        Verdict::Wrong("NoEffect", notes.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use federlet_provider::marks;

    use super::*;

    fn key(api_version: &str, kind: &str) -> Key {
        Key { api_version: api_version.into(), kind: kind.into(), ..Key::default() }
    }

    #[test]
    fn a_policy_is_hindered_by_what_its_copies_need() {
        let (secret, account) = (key("v1", "Secret"), key("v1", "ServiceAccount"));
        let along = [
            (key("networking.k8s.io/v1", "Ingress"), BTreeSet::from([secret.clone()])),
            (key("apps/v1", "DaemonSet"), BTreeSet::from([secret.clone(), account.clone()])),
            // Its pods come from the host and bring along what they need.
            (key("apps/v1", "Deployment"), BTreeSet::from([secret.clone()])),
            // Nobody has it.
            (key("v1", "Service"), BTreeSet::from([secret.clone()])),
        ];
        let holder = |source: &Key| {
            let mut object = Identity {
                api_version: source.api_version.clone(),
                kind: source.kind.clone(),
                ..Identity::default()
            };
            if source.kind == "DaemonSet" {
                object.annotations.insert(marks::RUN_BY.into(), "member".into());
            }
            let policy = PolicyKey { namespace: None, name: source.kind.clone() };
            (source.kind != "Service").then_some((object, policy))
        };
        let found = needed(&along, holder);
        let of = |name: &str| found.get(&PolicyKey { namespace: None, name: name.into() }).cloned();
        assert_eq!(of("Ingress"), Some(BTreeSet::from([kind(&secret)])));
        assert_eq!(of("DaemonSet"), Some(BTreeSet::from([kind(&secret), kind(&account)])));
        assert_eq!((of("Deployment"), of("Service")), (None, None));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let refused = || Reading::Refused("Secret of v1 cannot be read: no".into());
        for (kinds, expected) in [
            (vec![], "fine"),
            (vec![Reading::Read], "fine"),
            (vec![Reading::Read, Reading::Unknown], "unknown"),
            (vec![Reading::Unknown, refused()], "wrong"),
        ] {
            let found = match readable(&kinds) {
                Verdict::Fine(..) => "fine",
                Verdict::Unknown => "unknown",
                Verdict::Wrong(..) => "wrong",
            };
            assert_eq!(found, expected, "{kinds:?}");
        }
    }
}
