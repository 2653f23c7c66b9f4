//! A workload as a person names it, and its pods wherever they are.

mod channels;
pub(crate) mod exec;
pub(crate) mod logs;

use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use clap::Args;
use federlet_provider::{fleet::FLEET, marks::COPY_OF};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    core::Selector,
};

use crate::{host::answered, progress::awaited};

/// Kinds that have pods, with the names that people use for them.
const KINDS: [(&str, &str, &[&str]); 5] = [
    ("apps", "Deployment", &["deployment", "deployments", "deploy"]),
    ("apps", "StatefulSet", &["statefulset", "statefulsets", "sts"]),
    ("apps", "DaemonSet", &["daemonset", "daemonsets", "ds"]),
    ("apps", "ReplicaSet", &["replicaset", "replicasets", "rs"]),
    ("batch", "Job", &["job", "jobs"]),
];

/// What has pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// A pod itself.
    Pod(String),
    /// The pods that an object selects: its group and kind, and its name.
    Selecting(&'static str, &'static str, String),
}

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let Some((kind, name)) = text.split_once('/') else {
            ensure!(!text.is_empty(), "a name is needed, such as deployment/web");
            return Ok(Self::Pod(text.to_owned()));
        };
        ensure!(!name.is_empty() && !name.contains('/'), "{text:?} is not KIND/NAME, such as deployment/web");
        let kind = kind.to_lowercase();
        if ["pod", "pods", "po"].contains(&kind.as_str()) {
            return Ok(Self::Pod(name.to_owned()));
        }
        let known = KINDS.iter().find(|(.., names)| names.contains(&kind.as_str()));
        let Some((group, kind, _)) = known else {
            bail!("{kind:?} is none of deployment, statefulset, daemonset, replicaset, job and pod");
        };
        Ok(Self::Selecting(group, kind, name.to_owned()))
    }
}

/// Which pods a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct PodsArgs {
    /// `deployment/NAME`, `statefulset/NAME`, `daemonset/NAME`, `replicaset/NAME`, `job/NAME`, or a pod's name
    workload: Workload,

    /// Its namespace [default: the one of the context].
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// Only pods in these clusters.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cluster: Vec<String>,

    /// The container [default: `kubectl.kubernetes.io/default-container`, or the first one].
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
}

impl PodsArgs {
    fn api(&self, client: &Client) -> Api<Pod> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::default_namespaced(client.clone()),
        }
    }

    /// The pods that have a node, by cluster and name.
    async fn pods(&self, client: &Client) -> anyhow::Result<Vec<Pod>> {
        awaited("asking the host for its pods", self.find(client)).await
    }

    async fn find(&self, client: &Client) -> anyhow::Result<Vec<Pod>> {
        let api = self.api(client);
        let found = match &self.workload {
            Workload::Pod(name) => {
                let found = api.get_opt(name).await.map_err(|error| answered("the host", &error))?;
                vec![found.with_context(|| format!("there is no pod {name}"))?]
            }
            Workload::Selecting(group, kind, name) => {
                let labels = self.selector(client, group, kind, name).await?;
                let listed = api.list(&ListParams::default().labels(&labels)).await;
                let listed = listed.map_err(|error| answered("the host", &error))?.items;
                let (on_fleet, mut elsewhere): (Vec<Pod>, Vec<Pod>) =
                    listed.into_iter().partition(|pod| cluster(pod) == FLEET);
                // What is there of several clusters at once is in its copies. Those of a workload that is scaled by itself
                // do not have its labels.
                if !on_fleet.is_empty() {
                    let copies = api.list(&ListParams::default().labels(COPY_OF)).await;
                    let copies = copies.map_err(|error| answered("the host", &error))?.items;
                    elsewhere.extend(copies.into_iter().filter(|copy| {
                        on_fleet.iter().any(|pod| copy.labels().get(COPY_OF) == pod.metadata.uid.as_ref())
                    }));
                    elsewhere.sort_by_cached_key(ResourceExt::uid);
                    elsewhere.dedup_by_key(|pod| pod.uid());
                }
                elsewhere
            }
        };
        Ok(chosen(found, &self.cluster))
    }

    async fn selector(&self, client: &Client, group: &str, kind: &str, name: &str) -> anyhow::Result<String> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::default_namespaced_with(client.clone(), &resource),
        };
        let found = api.get_opt(name).await.map_err(|error| answered("the host", &error))?;
        let found = found.with_context(|| format!("there is no {kind} {name}"))?;
        let selector = found.data.pointer("/spec/selector").cloned().unwrap_or_default();
        let selector: LabelSelector = serde_json::from_value(selector)?;
        Ok(Selector::try_from(selector)
            .with_context(|| format!("the selector of {kind} {name}"))?
            .to_string())
    }
}

/// The node of a pod, which is its cluster.
fn cluster(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Pods that have a node, only in these clusters if any are named, by cluster and name.
fn chosen(mut pods: Vec<Pod>, clusters: &[String]) -> Vec<Pod> {
    pods.retain(|pod| {
        let cluster = cluster(pod);
        !cluster.is_empty() && (clusters.is_empty() || clusters.iter().any(|name| name == cluster))
    });
    pods.sort_by_cached_key(|pod| (cluster(pod).to_owned(), pod.name_any()));
    pods
}

/// The container that a person means: the one they named, the pod's default one, or its first.
fn container(pod: &Pod, named: Option<&str>) -> anyhow::Result<String> {
    let spec = pod.spec.clone().unwrap_or_default();
    let mut all: Vec<String> = spec.containers.into_iter().map(|container| container.name).collect();
    all.extend(spec.init_containers.into_iter().flatten().map(|container| container.name));
    all.extend(spec.ephemeral_containers.into_iter().flatten().map(|container| container.name));
    let default = pod.annotations().get("kubectl.kubernetes.io/default-container").map(String::as_str);
    match named {
        Some(named) if all.iter().any(|name| name == named) => Ok(named.to_owned()),
        Some(named) => bail!("pod {} has no container {named}: it has {}", pod.name_any(), all.join(", ")),
        None => {
            let default = default.filter(|default| all.iter().any(|name| name == default));
            let first = default.map(str::to_owned).or_else(|| all.first().cloned());
            first.with_context(|| format!("pod {} has no containers", pod.name_any()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workload_is_named_as_for_kubectl() {
        for text in ["deploy/web", "deployment/web", "Deployment/web", "deployments/web"] {
            let expected = Workload::Selecting("apps", "Deployment", "web".into());
            assert_eq!(text.parse::<Workload>().unwrap(), expected, "{text}");
        }
        assert_eq!("web-1".parse::<Workload>().unwrap(), Workload::Pod("web-1".into()));
        assert_eq!("po/web-1".parse::<Workload>().unwrap(), Workload::Pod("web-1".into()));
        for wrong in ["", "deploy/", "deploy/a/b", "service/web"] {
            assert!(wrong.parse::<Workload>().is_err(), "{wrong}");
        }
    }

    fn pod(name: &str, node: Option<&str>, annotations: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "a"}, {"name": "b"}]},
        }))
        .unwrap()
    }

    #[test]
    fn pods_are_chosen_by_cluster_and_in_order() {
        let all = || {
            [("z", Some("one")), ("y", Some("two")), ("x", None), ("w", Some("two"))]
                .map(|(name, node)| pod(name, node, &json!({})))
                .to_vec()
        };
        let names = |pods: Vec<Pod>| pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        assert_eq!(names(chosen(all(), &[])), ["z", "w", "y"]);
        assert_eq!(names(chosen(all(), &["two".into()])), ["w", "y"]);
    }

    #[test]
    fn the_container_is_the_named_the_default_or_the_first() {
        let plain = pod("p", None, &json!({}));
        assert_eq!(container(&plain, None).unwrap(), "a");
        assert_eq!(container(&plain, Some("b")).unwrap(), "b");
        assert!(container(&plain, Some("c")).unwrap_err().to_string().contains("it has a, b"));
        let told = pod("p", None, &json!({"kubectl.kubernetes.io/default-container": "b"}));
        assert_eq!(container(&told, None).unwrap(), "b");
    }
}
