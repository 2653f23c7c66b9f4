//! `federlet explain`: why an object is where it is.

mod find;
mod words;

use anyhow::Context;
use clap::Args;
use federlet_policy::{
    api::ResourceBinding,
    claim::Claim,
    inventory::{Inventory, Key},
    object::{Identity, whole},
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
    output::{Format, say},
    progress::awaited,
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

    /// For programs.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
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
        let client = crate::host::command_client(config).await?;
        let finder = Finder::new(client.clone());
        let asked = awaited("asking the host", finder.object(&self.kind, &namespace, &self.name)).await?;
        let mut inventory = Inventory::stored();
        let mut refused = vec![];
        let known = awaited("reading policies and Clusters", policies_and_clusters(&client)).await?;
        let hindered: Vec<Value> =
            known.iter().filter(|object| words::hindrance(object).is_some()).cloned().collect();
        for object in known {
            // What cannot be read has no effect on a running host either.
            if let Err(error) = inventory.add(object) {
                refused.push(error.to_string());
            }
        }
        let mut object = awaited("looking for its owners", workload(&finder, &asked, &inventory)).await?;
        let bindings = awaited("reading bindings", bindings(&client, &object)).await?;
        let uid = |of: &Value, pointer: &str| of.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let own = uid(&object, "/metadata/uid");
        let (ours, others): (Vec<Value>, Vec<Value>) =
            bindings.into_iter().partition(|binding| uid(binding, "/spec/resource/uid") == own);
        let binding = ours.into_iter().next();
        let peers = add_peers(&finder, &object, &others, &mut inventory);
        awaited("looking at workloads beside it", peers).await?;
        if let Some(binding) = &binding {
            claim(&mut object, binding);
            let _ = inventory.add(binding.clone());
        }
        let key = Key::of(&object);
        inventory.add(object.clone())?;
        let entries = survey(&inventory);
        let entry = entries.into_iter().find(|entry| entry.key == key).context("nothing was decided")?;
        let entry = words::along(entry, binding.as_ref());
        let pods = awaited("asking the host for its pods", pods(&client, &object, &asked)).await?;
        let explanation = Explanation {
            asked: &asked,
            object: &object,
            entry: &entry,
            overrides: &inventory.world().overrides,
            destinations: inventory.world().destinations,
            binding: binding.as_ref(),
            pods: &pods,
            refused: &refused,
            hindered: &hindered,
        };
        match self.output {
            Some(format) => format.write(&explanation.json())?,
            None => say!("{}", explanation.text().trim_end()),
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
        let identity = Identity::of(object);
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

/// The bindings beside an object, its own among them.
async fn bindings(client: &Client, object: &Value) -> anyhow::Result<Vec<Value>> {
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    let (kind, plural) = match namespace {
        "" => ("ClusterResourceBinding", "clusterresourcebindings"),
        _ => ("ResourceBinding", "resourcebindings"),
    };
    let looked_at = ("work.karmada.io/v1alpha2", kind, plural);
    let api: Api<DynamicObject> = match namespace {
        "" => Api::all_with(client.clone(), &resource(looked_at)),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource(looked_at)),
    };
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items.into_iter().map(|one| whole(&resource(looked_at), one)).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(vec![]),
        Err(error) => Err(answered("the host", &error)),
    }
}

/// Lets the workloads count that this one is to be together with, or apart from.
async fn add_peers(
    finder: &Finder,
    object: &Value,
    bindings: &[Value],
    inventory: &mut Inventory,
) -> anyhow::Result<()> {
    let looks_at_others = {
        let world = inventory.world();
        let identity = Identity::of(object);
        let said = world.policies.near(&identity).filter(|policy| policy.precision(&identity).is_some());
        said.map(|policy| &policy.spec.placement).any(|placement| placement.workload_affinity.is_some())
    };
    for binding in bindings.iter().filter(|_| looks_at_others) {
        let binding: ResourceBinding = match serde_json::from_value(binding.clone()) {
            Ok(binding) => binding,
            // What cannot be read counts for nobody.
            Err(_) => continue,
        };
        let reference = &binding.spec.resource;
        let found =
            finder.exact(&reference.api_version, &reference.kind, &reference.namespace, &reference.name);
        if let Some(peer) = found.await? {
            let clusters = binding.spec.clusters.into_iter().map(|target| target.name).collect();
            inventory.add_peer(Identity::of(&peer), clusters);
        }
    }
    Ok(())
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
