//! What became of an object, where people look: its binding, its own status where that is ours to write, and Events.

use std::sync::Arc;

use federlet_provider::errors::brief;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};

use super::{Entry, Shared, copies::There, serving::Served, templates::kind, wanted::Wanted};
use crate::{
    api::{AggregatedStatusItem, ClusterResourceBinding, ResourceBinding, ResourceBindingStatus},
    health::health,
    inventory::Key,
    status::{aggregate, reflect},
    store::from_cluster,
};

const SCHEDULED: &str = "Scheduled";
const FULLY_APPLIED: &str = "FullyApplied";

/// The name under which we write the status of objects on the host.
const STATUS_MANAGER: &str = "federlet-objects";

/// Reasons of Events about objects. What is not the case any more is news again when it comes back.
const REASONS: [&str; 13] = [
    "ApplyFailed",
    "ApplyOverridePolicyFailed",
    "Conflict",
    "HostRefuses",
    "MissingRight",
    "NamespaceNotReady",
    "NoClusterFit",
    "NotAllowed",
    "NotInRegions",
    "NotServed",
    "Unreachable",
    "Unschedulable",
    "Held",
];

impl Shared {
    pub(super) async fn report(&self, key: &Arc<Key>) {
        let (wanted, binding, items) = {
            let desk = self.desk.lock();
            let Some(entry) = desk.get(&**key) else { return };
            let Some(wanted) = entry.wanted.clone() else { return };
            self.tell_troubles(&wanted, entry);
            let Some(binding) = self.binding(&wanted.seen) else { return };
            let before = binding.status.as_ref().map(|status| status.aggregated_status.as_slice());
            let item = |cluster: &String| {
                let before = before.unwrap_or_default().iter().find(|item| item.cluster_name == *cluster);
                self.item(key, &wanted, entry, cluster, before)
            };
            let items: Vec<AggregatedStatusItem> = wanted.clusters.keys().map(item).collect();
            (wanted, binding, items)
        };
        if let Err(error) = self.write(&wanted, &binding, &items).await {
            tracing::warn!(object = %key, error = brief(&error), "cannot record what became of an object");
            self.jobs.after(super::Job::Report(key.clone()), super::job::backoff(3));
        }
        if let Err(error) = self.write_status(&wanted, &items).await {
            tracing::warn!(object = %key, error = brief(&error), "cannot write the status of an object");
        }
    }

    /// How the object is in one cluster. What is not known is as it was.
    fn item(
        &self,
        key: &Key,
        wanted: &Wanted,
        entry: &Entry,
        cluster: &str,
        before: Option<&AggregatedStatusItem>,
    ) -> AggregatedStatusItem {
        let unknown = AggregatedStatusItem { cluster_name: cluster.to_owned(), ..Default::default() };
        let mut item = before.cloned().unwrap_or(unknown);
        let Some(sent) = entry.sent.get(cluster) else { return item };
        item.applied = sent.applied;
        item.applied_message =
            sent.trouble.as_ref().map(|trouble| trouble.message.clone()).unwrap_or_default();
        let resource = self.templates.served(&kind(key)).map(|served| served.resource);
        let Some((link, resource)) = self.members.get(cluster).ok().zip(resource) else { return item };
        if let There::Known(copy) = link.copies(&resource).find(key, &link.target.load()) {
            item.status = copy.as_ref().and_then(|copy| reflect(copy, wanted.seen.generation));
            item.health = copy.as_ref().map(|copy| health(copy));
        }
        item
    }

    /// Events on the template, each piece of news once.
    fn tell_troubles(&self, wanted: &Wanted, entry: &Entry) {
        let object = &wanted.seen.identity;
        let about = || v1::ObjectReference {
            api_version: Some(object.api_version.clone()),
            kind: Some(object.kind.clone()),
            namespace: Some(object.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(object.name.clone()),
            uid: Some(wanted.seen.uid.clone()),
            ..v1::ObjectReference::default()
        };
        let mut troubles: std::collections::BTreeMap<&str, Vec<String>> = Default::default();
        for (cluster, sent) in &entry.sent {
            // What is held back is so by somebody's will.
            if let Some(trouble) = sent.trouble.as_ref().filter(|trouble| trouble.reason != "Held") {
                troubles.entry(trouble.reason).or_default().push(format!("{cluster}: {}", trouble.message));
            }
        }
        if let Some((reason, why)) = &wanted.waiting {
            troubles.entry(reason).or_default().push(why.clone());
        }
        for reason in REASONS.iter().filter(|reason| !troubles.contains_key(**reason)) {
            self.tell.over(&wanted.seen.uid, reason);
        }
        for (reason, all) in troubles {
            self.tell.warn(about(), reason, &all.join("; "));
        }
    }

    async fn write(
        &self,
        wanted: &Wanted,
        binding: &ResourceBinding,
        items: &[AggregatedStatusItem],
    ) -> Result<(), kube::Error> {
        let before = binding.status.clone().unwrap_or_default();
        let status = status_of(&before, wanted, items, Timestamp::now());
        if status == before || !self.leading.holds() {
            return Ok(());
        }
        let name = binding.metadata.name.clone().unwrap_or_default();
        let patch = json!({ "metadata": { "uid": binding.metadata.uid }, "status": status });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let gone = |status: &kube::core::Status| matches!(status.code, 404 | 409);
        let namespace = &wanted.seen.identity.namespace;
        if namespace.is_empty() {
            let api: Api<ClusterResourceBinding> = Api::all(self.client.clone());
            match api.patch_status(&name, &params, &patch).await {
                Ok(made) => self.cluster_bindings.note(from_cluster(made)),
                Err(kube::Error::Api(status)) if gone(&status) => {}
                Err(error) => return Err(error),
            }
        } else {
            let api: Api<ResourceBinding> = Api::namespaced(self.client.clone(), namespace);
            match api.patch_status(&name, &params, &patch).await {
                Ok(made) => self.bindings.note(made),
                Err(kube::Error::Api(status)) if gone(&status) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what load balancers of members say onto the object itself, unless somebody on the host does.
    async fn write_status(&self, wanted: &Wanted, items: &[AggregatedStatusItem]) -> Result<(), kube::Error> {
        let object = &wanted.seen.identity;
        if !matches!(object.kind.as_str(), "Service" | "Ingress") || !self.leading.holds() {
            return Ok(());
        }
        let Some(status) = aggregate(&wanted.template, items) else { return Ok(()) };
        if same_balancer(&status, wanted.template.get("status").unwrap_or(&Value::Null)) {
            return Ok(());
        }
        let served = self.templates.served(&(object.api_version.clone(), object.kind.clone()));
        let Some(Served { resource, .. }) = served else { return Ok(()) };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &object.namespace, &resource);
        let Some(now) = api.get_opt(&object.name).await? else { return Ok(()) };
        if now.metadata.uid.as_deref() != Some(&wanted.seen.uid) || is_kept_by_others(&now) {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "uid": wanted.seen.uid },
            "status": { "loadBalancer": { "ingress": status.pointer("/loadBalancer/ingress") } },
        });
        let params = PatchParams { field_manager: Some(STATUS_MANAGER.into()), ..PatchParams::default() };
        api.patch_status(&object.name, &params, &Patch::Merge(&patch)).await.map(drop)
    }
}

fn same_balancer(one: &Value, two: &Value) -> bool {
    let entries = |status: &Value| {
        status.pointer("/loadBalancer/ingress").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    entries(one) == entries(two)
}

/// Whether a controller of the host looks after the load balancer: two writers would never agree.
fn is_kept_by_others(object: &DynamicObject) -> bool {
    object.metadata.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| fields.0.clone()).unwrap_or_default();
        entry.manager.as_deref() != Some(STATUS_MANAGER)
            && fields.pointer("/f:status/f:loadBalancer/f:ingress").is_some()
    })
}

fn status_of(
    before: &ResourceBindingStatus,
    wanted: &Wanted,
    items: &[AggregatedStatusItem],
    now: Timestamp,
) -> ResourceBindingStatus {
    let mut status = before.clone();
    let (scheduled, reason, message) = match &wanted.waiting {
        None => (true, "Success", "Binding has been scheduled successfully.".to_owned()),
        Some((reason, message)) => (false, *reason, message.clone()),
    };
    if set(&mut status, SCHEDULED, scheduled, reason, message, now) {
        status.last_scheduled_time = Some(Time(now));
    }
    let missing: Vec<&str> =
        items.iter().filter(|item| !item.applied).map(|item| item.cluster_name.as_str()).collect();
    if missing.is_empty() {
        let message = "All works have been successfully applied".to_owned();
        set(&mut status, FULLY_APPLIED, true, "FullyAppliedSuccess", message, now);
    } else {
        let message = format!("not in {}", missing.join(", "));
        set(&mut status, FULLY_APPLIED, false, "FullyAppliedFailed", message, now);
    }
    if let Some(affinity) = &wanted.affinity {
        status.scheduler_observed_affinity_name.clone_from(affinity);
    }
    status.aggregated_status = items.to_vec();
    status
}

/// Sets a condition. Whether it says something else now.
fn set(
    status: &mut ResourceBindingStatus,
    type_: &str,
    value: bool,
    reason: &str,
    message: String,
    now: Timestamp,
) -> bool {
    let value = if value { "True" } else { "False" };
    let at = status.conditions.iter().position(|condition| condition.type_ == type_);
    let last = at.map(|at| &status.conditions[at]);
    if last.is_some_and(|last| last.status == value && last.reason == reason && last.message == message) {
        return false;
    }
    let since = last.filter(|last| last.status == value).map(|last| last.last_transition_time.clone());
    let condition = Condition {
        type_: type_.into(),
        status: value.into(),
        reason: reason.into(),
        message,
        last_transition_time: since.unwrap_or(Time(now)),
        observed_generation: None,
    };
    match at {
        Some(at) => status.conditions[at] = condition,
        None => status.conditions.push(condition),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(waiting: Option<(&'static str, String)>) -> Wanted {
        Wanted { waiting, ..Wanted::default() }
    }

    fn item(cluster: &str, applied: bool) -> AggregatedStatusItem {
        AggregatedStatusItem { cluster_name: cluster.into(), applied, ..AggregatedStatusItem::default() }
    }

    #[test]
    fn a_binding_says_where_an_object_is_not_and_keeps_still_otherwise() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (first, later) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let items = [item("m1", true), item("m2", false)];
        let status = status_of(&ResourceBindingStatus::default(), &wanted(None), &items, first);
        let said: Vec<(&str, &str, &str)> =
            status.conditions.iter().map(|one| (&*one.type_, &*one.status, &*one.message)).collect();
        assert_eq!(said[1], ("FullyApplied", "False", "not in m2"));
        assert_eq!((said[0].0, said[0].1), ("Scheduled", "True"));
        assert_eq!(status_of(&status, &wanted(None), &items, later), status, "nothing is new");
        let now = status_of(&status, &wanted(None), &[item("m1", true), item("m2", true)], later);
        assert_eq!(now.conditions[1].status, "True");
        assert_eq!(now.conditions[1].last_transition_time, Time(later));
        assert_eq!(now.conditions[0], status.conditions[0]);
        let held = status_of(&now, &wanted(Some(("NoClusterFit", "why".into()))), &[], later);
        assert_eq!((&*held.conditions[0].status, &*held.conditions[0].reason), ("False", "NoClusterFit"));
    }

    #[test]
    fn a_balancer_of_the_host_is_left_to_the_host() {
        let object = |manager: &str| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "s", "managedFields": [{"manager": manager, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}}}]}}))
            .unwrap()
        };
        assert!(is_kept_by_others(&object("cloud-controller-manager")));
        assert!(!is_kept_by_others(&object(STATUS_MANAGER)));
        assert!(same_balancer(&json!({"loadBalancer": {}}), &Value::Null));
        assert!(!same_balancer(&json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}), &Value::Null));
    }
}
