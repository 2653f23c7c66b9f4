//! Pods of the member as the host should see them.

use federlet_node::contract::{Pod, PodKey, ProviderError};
use jiff::{Timestamp, Unit};
use serde_json::{Value, json};

use super::{ClusterProvider, lifecycle::LEAST_GRACE, phantom, reach::Word, writes::MemberPods};
use crate::{
    errors::from_member,
    json::Object,
    site::Site,
    status::{View, ended, status, unreachable},
    watch::{OurPod, Slot},
};

/// The host's name for a pod of ours.
pub(super) fn key_of(site: &Site, pod: &OurPod) -> Option<PodKey> {
    pod.host_key(&site.target().namespaces)
}

impl ClusterProvider {
    /// Where a pod of the host is in the member.
    pub(super) fn slot(&self, key: &PodKey) -> Result<Slot, ProviderError> {
        Ok(self.site.slot(&self.watch, key)?)
    }

    /// The pod of ours that has this name on the host, in its place. Another may have the place.
    pub(super) fn named(&self, key: &PodKey, slot: &Slot) -> Option<OurPod> {
        self.ours(slot).filter(|pod| pod.host_name() == key.name())
    }

    /// The pod of ours in this place, as it was last seen.
    pub(super) fn ours(&self, slot: &Slot) -> Option<OurPod> {
        self.watch.pod(slot).filter(|pod| pod.node() == self.site.settings().name.as_str())
    }

    /// A pod of the member in the host's terms.
    pub(super) fn shown(&self, key: &PodKey, pod: &OurPod) -> Result<Pod, ProviderError> {
        let member = pod.json();
        let host = self.site.host_pod(key).filter(|host| host.uid() == pod.host_uid());
        let nothing = json!({});
        let current = host.as_ref().map_or(&nothing, Pod::json);
        let mut shown = status(current, &member, &self.view());
        let reach = self.reach.lock().now();
        let word = Word::about(self.site.settings().offline, &reach);
        if word != Word::Members && host.is_some() {
            let since = Timestamp::round(reach.since, Unit::Second).unwrap_or(reach.since).to_string();
            let away = (word == Word::OutOfReach).then(|| unreachable(current, &since, &now())).flatten();
            shown = away.unwrap_or_else(|| current.get("status").cloned().unwrap_or_default());
        }
        self.as_host_pod(key, pod.host_uid(), &member, &shown)
    }

    fn view(&self) -> View {
        let (settings, target) = (self.site.settings(), self.site.target());
        View {
            host_version: self.site.host.version,
            pod_addresses: settings.pod_addresses,
            node_addresses: target.addresses.clone(),
        }
    }

    fn as_host_pod(
        &self,
        key: &PodKey,
        uid: &str,
        member: &Value,
        status: &Value,
    ) -> Result<Pod, ProviderError> {
        let mut metadata = json!({ "namespace": key.namespace(), "name": key.name(), "uid": uid });
        if let Value::Object(metadata) = &mut metadata {
            metadata.extend(deletion(member));
        }
        let spec = member.get("spec").cloned().unwrap_or_default();
        let pod = json!({ "metadata": metadata, "spec": spec, "status": status });
        Pod::try_from(pod).map_err(|error| ProviderError::unavailable(error.to_string()))
    }

    /// What is known of a pod that the member does not have.
    ///
    /// That a pod is gone is said only on a definite answer: of the API server itself, and of the cluster that joined.
    pub(super) async fn absent(&self, key: &PodKey, slot: &Slot) -> Result<Pod, ProviderError> {
        let host = self.site.host_pod(key);
        // It is nowhere but on the host, whether or not the member can be asked.
        if let Some(host) = host.as_ref().filter(|host| phantom::is_phantom(host)) {
            return match host.deletion() {
                None => Ok(phantom::shown(host)),
                Some(_) => Err(ProviderError::NotFound),
            };
        }
        if !self.watch.has_pods() {
            return Err(ProviderError::unavailable("the member's pods are not listed yet"));
        }
        let Some(host) = host else { return Err(ProviderError::NotFound) };
        let departure = self.watch.departed(host.uid());
        // One that never started may simply be started: creating it finds out whether it is there. Unless it was there and
        // went before the host heard of it.
        if (!host.was_started() && departure.is_none()) || host.phase().is_terminal() {
            return Err(ProviderError::NotFound);
        }
        // The member said itself that it deleted the pod, as we asked it to: that is as definite as asking again.
        if let Some(departure) = departure.as_ref().filter(|departure| departure.said)
            && host.deletion().is_some()
        {
            // A kubelet says how a pod ended, and takes it away at once. Whoever holds a finalizer has yet to read it.
            return if host.has_finalizers() && departure.is_over() {
                self.shown(key, departure.last())
            } else {
                Err(ProviderError::NotFound)
            };
        }
        self.watch.verify().await?;
        let there = MemberPods(self.site.member.pods.clone()).get(slot).await;
        if let Some(pod) = there.map_err(|error| from_member(&error))? {
            self.watch.note(&pod);
            return match self.named(key, slot) {
                Some(pod) => self.shown(key, &pod),
                None => Err(ProviderError::NotFound),
            };
        }
        // It ended there, and nobody on the host asked for it: say why, so that its controller replaces it.
        match departure {
            Some(departure) if host.deletion().is_none() && departure.is_over() => {
                self.shown(key, departure.last())
            }
            Some(departure) if host.deletion().is_none() => {
                let how = ended(host.status(), Some(&departure.last().json()), &now());
                self.as_host_pod(key, host.uid(), &json!({ "spec": host.spec() }), &how)
            }
            _ => Err(ProviderError::NotFound),
        }
    }
}

/// That the member ends a pod, and with which grace. The least that we ask it for stands for none at all: taken at its
/// word, it would never be as short as the host wants it, and the member would be told again and again.
fn deletion(member: &Value) -> Object {
    let said = |field: &str| member.pointer(&format!("/metadata/{field}")).filter(|value| !value.is_null());
    let fields = ["deletionTimestamp", "deletionGracePeriodSeconds"];
    let mut told: Object =
        fields.into_iter().filter_map(|field| Some((field.to_owned(), said(field)?.clone()))).collect();
    if let Some(grace) = told.get_mut("deletionGracePeriodSeconds")
        && grace.as_u64().is_some_and(|seconds| seconds <= LEAST_GRACE.as_secs())
    {
        *grace = 0.into();
    }
    told
}

fn now() -> String {
    let now = Timestamp::now();
    Timestamp::round(now, Unit::Second).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use federlet_node::decide::{Rest, Seen, Step, next_step};

    use super::*;

    /// What is to be done about a pod of the member that nobody on the host wants any more.
    fn step(spec: &Value, status: &Value, grace: Option<u64>, departed: Option<u64>) -> Step {
        let mut metadata = json!({"namespace": "shop", "name": "web", "uid": "p1"});
        if let Some(grace) = grace {
            let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}});
            metadata.as_object_mut().unwrap().extend(deletion(&ending));
        }
        let pod = Pod::try_from(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap();
        let departed = departed.map(Duration::from_secs);
        let seen = Seen {
            host: None,
            provider: Some(&pod),
            accepted: None,
            desired: 0,
            just_created: false,
            departed,
        };
        next_step(seen)
    }

    #[test]
    fn a_pod_that_ends_as_soon_as_can_be_is_not_ended_again() {
        let (running, ended) = (json!({"phase": "Running"}), json!({"phase": "Succeeded"}));
        let (at_once, usual) =
            (json!({"terminationGracePeriodSeconds": 0}), json!({"terminationGracePeriodSeconds": 30}));
        let least = Some(LEAST_GRACE.as_secs());
        assert!(matches!(step(&at_once, &running, None, None), Step::Delete { .. }));
        assert_eq!(step(&at_once, &running, least, None), Step::Rest(Rest::Ending));
        assert_eq!(step(&usual, &running, least, Some(0)), Step::Rest(Rest::Ending));
        assert_eq!(step(&usual, &ended, least, None), Step::Rest(Rest::Ending));
        let sooner = step(&usual, &running, Some(30), Some(0));
        assert!(matches!(sooner, Step::Delete { .. }), "one that takes its time is told to hurry");
    }
}
