//! Workloads in full, each read once per change of its spec.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use kube::{Api, Client, core::DynamicObject};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    owners::{Meta, Owner, Owners},
    workload::pod_path,
};

/// So many are kept; beyond, all are read again.
const KEPT: usize = 1000;

pub(crate) struct Workloads {
    client: Client,
    owners: Arc<Owners>,
    known: Mutex<HashMap<String, (i64, Arc<Value>)>>,
}

impl Workloads {
    pub(crate) fn new(client: Client, owners: Arc<Owners>) -> Self {
        Self { client, owners, known: Mutex::default() }
    }

    /// The workload with the template from which this pod was made: that of the ReplicaSet or Job between them, which
    /// may be of an earlier revision.
    pub(crate) async fn of(
        &self,
        namespace: &str,
        maker: Option<Owner>,
        workload: &Meta,
    ) -> Result<Value, kube::Error> {
        let mut object = (*self.read(namespace, workload).await?).clone();
        let identity = &workload.identity;
        label(&mut object, &identity.labels);
        let Some(maker) = maker.filter(|maker| maker.uid != workload.uid) else { return Ok(object) };
        let Some(path) = pod_path(&identity.api_version, &identity.kind) else { return Ok(object) };
        let Some(maker) = self.owners.get(namespace, &maker).await? else { return Ok(object) };
        let maker = self.read(namespace, &maker).await?;
        if let (Some(template), Some(into)) = (maker.pointer("/spec/template"), object.pointer_mut(path)) {
            *into = template.clone();
        }
        Ok(object)
    }

    async fn read(&self, namespace: &str, meta: &Meta) -> Result<Arc<Value>, kube::Error> {
        let known = self.known.lock().get(&meta.uid).cloned();
        if let Some((generation, object)) = known
            && generation == meta.generation
            && generation != 0
        {
            return Ok(object);
        }
        let identity = &meta.identity;
        let resource = self.owners.resource(&identity.api_version, &identity.kind).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let mut object =
            serde_json::to_value(api.get(&identity.name).await?).map_err(kube::Error::SerdeError)?;
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
            fields.entry("apiVersion").or_insert(identity.api_version.clone().into());
            fields.entry("kind").or_insert(identity.kind.clone().into());
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let object = Arc::new(object);
        let mut known = self.known.lock();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(meta.uid.clone(), (generation, object.clone()));
        Ok(object)
    }
}

/// Labels change without a new generation, and overrides select by them: those that are known now count.
fn label(object: &mut Value, labels: &BTreeMap<String, String>) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".into(), json!(labels));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        affinity::tests::cluster,
        api::OverrideSpec,
        overrides::{self, Policy},
    };

    #[test]
    fn an_override_selects_by_the_labels_of_now() {
        let spec: OverrideSpec = serde_json::from_value(json!({
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment",
                "labelSelector": {"matchLabels": {"tier": "edge"}}}],
            "overrideRules": [{"overriders": {"plaintext": [
                {"path": "/spec/paused", "operator": "add", "value": true}]}}]}))
        .unwrap();
        let m1 = cluster("m1", json!({}), json!({}));
        let read = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {},
            "metadata": {"name": "web", "namespace": "n", "labels": {"tier": "core"}}});
        for (tier, overridden) in [("core", false), ("edge", true)] {
            let mut object = read.clone();
            label(&mut object, &[("tier".to_owned(), tier.to_owned())].into());
            let policy = Policy { namespace: Some("n"), name: "o", spec: &spec };
            let made = overrides::render(&object, &m1, [policy]).unwrap().object;
            assert_eq!(made.pointer("/spec/paused").is_some(), overridden, "{tier}");
        }
    }
}
