//! `federlet explain`: why an object is where it is.

mod find;
mod words;

use anyhow::Context;
use clap::Args;
use federlet_policy::{
    claim::Claim,
    inventory::{Inventory, Key},
    survey::survey,
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};
use serde_json::{Value, json};

use self::{find::Finder, words::Explanation};
use crate::{
    host::{HostArgs, answered},
    output::say,
};

/// The flags of `federlet explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The kind, as kubectl takes it: `deployment`, `cm`, `widgets.example.com`. A pod is explained by its workload.
    kind: String,

    /// The name.
    name: String,

    #[command(flatten)]
    host: HostArgs,

    /// The namespace [default: that of the context].
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// `json` for programs.
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json"])]
    output: Option<String>,
}

/// Everything that decisions look at, of the group of policies and of clusters.
const LOOKED_AT: [(&str, &str, &str); 5] = [
    ("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies"),
    ("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies"),
    ("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies"),
    ("policy.karmada.io/v1alpha1", "ClusterOverridePolicy", "clusteroverridepolicies"),
    ("cluster.karmada.io/v1alpha1", "Cluster", "clusters"),
];

impl ExplainArgs {
    /// Reads, decides as `federlet serve` does, and says why.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let config = self.host.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = crate::host::command_client(config)?;
        let finder = Finder::new(client.clone());
        let asked = finder.object(&self.kind, &namespace, &self.name).await?;
        let mut inventory = Inventory::default();
        let mut refused = vec![];
        for object in policies_and_clusters(&client).await? {
            // What cannot be read has no effect on a running host either.
            if let Err(error) = inventory.add(object) {
                refused.push(error.to_string());
            }
        }
        let mut object = workload(&finder, &asked, &inventory).await?;
        let binding = binding(&client, &object).await?;
        if let Some(binding) = &binding {
            claim(&mut object, binding);
            let _ = inventory.add(binding.clone());
        }
        let key = Key::of(&object);
        inventory.add(object.clone())?;
        let entries = survey(&inventory);
        let entry = entries.iter().find(|entry| entry.key == key).context("nothing was decided")?;
        let pods = pods(&client, &object, &asked).await?;
        let explanation = Explanation {
            asked: &asked,
            object: &object,
            entry,
            overrides: &inventory.world().overrides,
            destinations: inventory.world().destinations,
            binding: binding.as_ref(),
            pods: &pods,
            refused: &refused,
        };
        if self.output.is_some() {
            say!("{}", serde_json::to_string_pretty(&explanation.json())?);
        } else {
            say!("{}", explanation.text().trim_end());
        }
        Ok(())
    }
}

fn resource((api_version, kind, plural): (&str, &str, &str)) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

async fn policies_and_clusters(client: &Client) -> anyhow::Result<Vec<Value>> {
    let mut all = vec![];
    for looked_at in LOOKED_AT {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(looked_at));
        match api.list(&ListParams::default()).await {
            Ok(found) => all.extend(found.items.into_iter().filter_map(|object| {
                let mut object = serde_json::to_value(object).ok()?;
                object["apiVersion"] = json!(looked_at.0);
                object["kind"] = json!(looked_at.1);
                Some(object)
            })),
            // Nobody ever joined, or wrote a policy.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(answered("the host", &error)),
        }
    }
    Ok(all)
}

/// The object that decides: of a pod, the topmost of its owners that a policy selects, or else the topmost.
async fn workload(finder: &Finder, asked: &Value, inventory: &Inventory) -> anyhow::Result<Value> {
    let world = inventory.world();
    let selected = |object: &Value| {
        let identity = federlet_policy::object::Identity::of(object);
        !matches!(
            world.policies.decide(&identity, None),
            federlet_policy::matching::Decision::Nothing | federlet_policy::matching::Decision::Release
        )
    };
    let (mut object, mut best) = (asked.clone(), None);
    loop {
        if selected(&object) {
            best = Some(object.clone());
        }
        match finder.owner(&object).await? {
            Some(owner) => object = owner,
            None => return Ok(best.unwrap_or(object)),
        }
    }
}

async fn binding(client: &Client, object: &Value) -> anyhow::Result<Option<Value>> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = format!("{}-{}", text("/metadata/name"), text("/kind")).to_lowercase().replace(':', ".");
    let (kind, plural) = match text("/metadata/namespace") {
        "" => ("ClusterResourceBinding", "clusterresourcebindings"),
        _ => ("ResourceBinding", "resourcebindings"),
    };
    let resource = resource(("work.karmada.io/v1alpha2", kind, plural));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let found = match api.get_opt(&name).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => return Err(answered("the host", &error)),
    };
    let found = found.map(serde_json::to_value).transpose()?;
    Ok(found.filter(|binding| binding.pointer("/spec/resource/uid") == object.pointer("/metadata/uid")))
}

/// A running host keeps claims on bindings, so that objects stay as people wrote them.
fn claim(object: &mut Value, binding: &Value) {
    let kept: [(&str, &[&str]); 2] = [("labels", &Claim::LABELS), ("annotations", &Claim::ANNOTATIONS)];
    for (field, keys) in kept {
        for key in keys {
            if let Some(value) = binding.pointer(&format!("/metadata/{field}")).and_then(|all| all.get(key)) {
                object["metadata"][field][key] = value.clone();
            }
        }
    }
}

/// The pods of a workload, or the pod itself.
async fn pods(client: &Client, object: &Value, asked: &Value) -> anyhow::Result<Vec<Value>> {
    if asked["kind"] == "Pod" {
        return Ok(vec![asked.clone()]);
    }
    let Some(namespace) = object.pointer("/metadata/namespace").and_then(Value::as_str) else {
        return Ok(vec![]);
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource(("v1", "Pod", "pods")));
    let found = match api.list(&ListParams::default()).await {
        Ok(found) => found.items,
        // Whoever may not see pods still may ask why.
        Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(vec![]),
        Err(error) => return Err(answered("the host", &error)),
    };
    let found: Vec<Value> = found.into_iter().filter_map(|pod| serde_json::to_value(pod).ok()).collect();
    Ok(found.into_iter().filter(|pod| words::is_of(pod, object)).collect())
}
