//! A virtual node that only brings along what pods refer to: nothing starts or stops pods here.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_node::{
    client::client,
    contract::{NodeName, Pod, ProviderError},
    metrics::Metrics,
    pods::{Events, HostPods, Scope},
};
use federlet_provider::{
    follow::{Follow, FollowSettings, HostObjects, Lanes},
    names::{HostId, MemberName, NamespaceMap},
    rights::{HOST_RIGHTS, Right},
    settings::MemberSettings,
    site::{Clients, HostNamespaces, HostSide, Site},
    target::{ApiAccess, Target},
    version::Version,
    watch::MemberWatch,
};
use federlet_sandbox::{Cluster, Sandbox};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node, PersistentVolume, Secret},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// Quick enough to be watched.
pub(super) const QUICK: FollowSettings = FollowSettings {
    linger: Duration::from_secs(1),
    sweep: Duration::from_secs(1),
    token_life_used: 0.8,
    token_pause: Duration::from_secs(1),
};

/// One namespace of one cluster, as its administrator sees it.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Side {
    pub(super) fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    pub(super) async fn create(&self, object: &Value) -> Result<Value> {
        let kind = object["kind"].as_str().context("no kind")?;
        let made =
            self.api(kind).create(&PostParams::default(), &serde_json::from_value(object.clone())?).await?;
        Ok(serde_json::to_value(made)?)
    }

    pub(super) async fn get(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        Ok(self.api(kind).get_opt(name).await?.map(serde_json::to_value).transpose()?)
    }

    pub(super) async fn patch(&self, kind: &str, name: &str, patch: &Value) -> Result<()> {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(super) async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.api(kind).delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Names and versions of all ConfigMaps and Secrets but the one that every namespace has.
    pub(super) async fn versions(&self) -> Result<Vec<String>> {
        let mut all = vec![];
        for kind in ["ConfigMap", "Secret", "Service", "PersistentVolumeClaim"] {
            for object in self.api(kind).list(&ListParams::default()).await? {
                let (name, version) = (object.metadata.name, object.metadata.resource_version);
                all.push(format!("{kind} {} {}", name.unwrap_or_default(), version.unwrap_or_default()));
            }
        }
        all.retain(|line| !line.starts_with("ConfigMap kube-root-ca.crt "));
        Ok(all)
    }
}

fn resource(kind: &str) -> ApiResource {
    use k8s_openapi::api::core::v1 as core;
    match kind {
        "ConfigMap" => ApiResource::erase::<ConfigMap>(&()),
        "Secret" => ApiResource::erase::<Secret>(&()),
        "Pod" => ApiResource::erase::<core::Pod>(&()),
        "Service" => ApiResource::erase::<core::Service>(&()),
        "PersistentVolumeClaim" => ApiResource::erase::<core::PersistentVolumeClaim>(&()),
        "StatefulSet" => ApiResource::erase::<k8s_openapi::api::apps::v1::StatefulSet>(&()),
        _ => ApiResource::erase::<core::Event>(&()),
    }
}

/// Both clusters, and a node between them.
pub(super) struct Stage {
    pub(super) host: Side,
    pub(super) member: Side,
    pub(super) node: String,
    pub(super) host_cluster: Cluster,
    pub(super) member_cluster: Cluster,
    map: NamespaceMap,
}

impl Stage {
    /// The node is called like the namespace, which no other test uses.
    pub(super) async fn new(sandbox: &Sandbox, namespace: &str) -> Result<Self> {
        let (host_cluster, member_cluster) = (sandbox.cluster("host")?, sandbox.cluster("member1")?);
        let (host, member) = (host_cluster.client().await?, member_cluster.client().await?);
        // A pod that is bound to a node that does not exist is taken away.
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": namespace, "labels": { "type": "virtual-kubelet", "kubernetes.io/hostname": namespace },
            },
            "spec": { "taints": [{ "key": "virtual-kubelet.io/provider", "effect": "NoSchedule" }] },
        }))?;
        let nodes: Api<Node> = Api::all(host.clone());
        nodes.create(&PostParams::default(), &node).await?;
        let room = json!({ "cpu": "100", "memory": "100Gi", "pods": "100" });
        let status = json!({ "status": {
            "capacity": room, "allocatable": room, "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        nodes.patch_status(namespace, &PatchParams::default(), &Patch::Strategic(&status)).await?;
        let rules: Vec<_> =
            HOST_RIGHTS.iter().filter(|right| right.namespace.is_none()).map(Right::rule).collect();
        let rights = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": namespace }, "rules": rules,
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": namespace }],
        });
        Api::<ClusterRole>::all(host.clone())
            .create(&PostParams::default(), &serde_json::from_value(rights)?)
            .await?;
        Api::<ClusterRoleBinding>::all(host.clone())
            .create(&PostParams::default(), &serde_json::from_value(binding)?)
            .await?;
        let namespace = namespace.to_owned();
        Ok(Self {
            host: Side { client: host, namespace: namespace.clone() },
            member: Side { client: member, namespace: namespace.clone() },
            node: namespace,
            host_cluster,
            member_cluster,
            map: NamespaceMap::same(),
        })
    }

    pub(super) async fn end(&self) {
        let (host, params) = (&self.host.client, DeleteParams::default());
        Api::<Node>::all(host.clone()).delete(&self.node, &params).await.ok();
        Api::<ClusterRole>::all(host.clone()).delete(&self.node, &params).await.ok();
        Api::<ClusterRoleBinding>::all(host.clone()).delete(&self.node, &params).await.ok();
        for client in [host, &self.member.client] {
            let name = format!("metadata.name={}", self.node);
            let classes: Api<StorageClass> = Api::all(client.clone());
            classes.delete_collection(&params, &ListParams::default().fields(&name)).await.ok();
            let volumes: Api<PersistentVolume> = Api::all(client.clone());
            volumes.delete_collection(&params, &ListParams::default().fields(&name)).await.ok();
        }
    }

    /// Starts to follow, as a process would that was started now. It acts on the host with the rights of a kubelet.
    pub(super) async fn start(&self, settings: FollowSettings) -> Result<Running> {
        let metrics = Arc::new(Metrics::default());
        let config = admin(self.host_cluster.admin_kubeconfig()).await?;
        let mut process = config.clone();
        process.headers.push(("impersonate-user".parse()?, self.node.parse()?));
        let own = client(process, "own", metrics.clone())?;
        let objects = HostObjects::new(own.clone());
        let mut config = config;
        for (name, value) in [
            ("impersonate-user", format!("system:node:{}", self.node)),
            ("impersonate-group", "system:nodes".into()),
        ] {
            config.headers.push((name.parse()?, value.parse()?));
        }
        let lanes = Lanes::new(config.clone(), metrics.clone());
        let host = client(config, "follow", metrics.clone())?;
        let member = client(admin(self.member_cluster.admin_kubeconfig()).await?, "follow", metrics.clone())?;
        let node = NodeName::new(&self.node)?;
        let stop = CancellationToken::new();
        tokio::spawn(objects.clone().run(stop.clone()));
        let pods = HostPods::new(Scope::Node(node.clone()), None, metrics.clone());
        pods.join(&node);
        let watch = (pods.clone(), host.clone(), stop.clone());
        tokio::spawn(async move { watch.0.run(watch.1, watch.2).await });
        let id = self.host_id().await?;
        let system = Api::<Namespace>::all(self.member.client.clone()).get("kube-system").await?;
        let identity = system.metadata.uid.unwrap_or_default();
        let name = MemberName::new(&self.node)?;
        let api = ApiAccess::Host { name: "kubernetes.host".into(), port: 6443, address: None };
        let mut target = Target::new(id.clone(), name.clone(), Version::v1(35), api);
        target.namespaces = self.map.clone();
        let events = Events::new(host.clone(), &node);
        let namespaces = HostNamespaces::new();
        let version = Version::v1(35);
        let host = HostSide {
            id,
            version,
            node,
            client: host,
            lanes,
            own,
            pods,
            namespaces,
            objects,
            events,
            rewrite: None,
        };
        let member = Clients { pods: member.clone(), watch: member.clone(), streams: member };
        let site = Site::new(host, member, MemberSettings::new(name), target);
        let follow = Follow::with(site.clone(), settings);
        let tasks = TaskTracker::new();
        follow.recognise_by(MemberWatch::start(
            site.member.clone(),
            site.host.id.clone(),
            identity,
            &tasks,
            &stop,
        ));
        let task = tokio::spawn(follow.clone().run(stop.clone()));
        Ok(Running { follow, site, metrics, stop: stop.drop_guard(), task })
    }

    pub(super) async fn host_id(&self) -> Result<HostId> {
        let system = Api::<Namespace>::all(self.host.client.clone()).get("kube-system").await?;
        Ok(HostId::new(&system.metadata.uid.unwrap_or_default())?)
    }

    /// Makes a pod on the host that is bound to the node, and reads it back as the node sees it.
    pub(super) async fn pod(&self, name: &str, spec: &Value) -> Result<Pod> {
        let mut whole = json!({
            "nodeName": self.node,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "app", "image": "nginx" }],
        });
        if let (Some(whole), Value::Object(spec)) = (whole.as_object_mut(), spec.clone()) {
            whole.extend(spec);
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": whole,
            "metadata": { "name": name, "namespace": self.host.namespace, "labels": { "app": name } },
        });
        Ok(Pod::try_from(self.host.create(&pod).await?)?)
    }

    pub(super) fn config_map(&self, name: &str, value: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "key": value },
            "metadata": { "name": name, "namespace": self.host.namespace },
        })
    }

    pub(super) fn secret(&self, name: &str, value: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": { "key": value },
            "metadata": { "name": name, "namespace": self.host.namespace },
        })
    }

    /// The ConfigMap of the member has this value.
    pub(super) async fn expect(&self, name: &str, value: &str) -> Result<()> {
        let there = self.member.get("ConfigMap", name).await?.context("it is not there")?;
        ensure!(there["data"]["key"] == value, "it says {}", there["data"]);
        Ok(())
    }
}

async fn admin(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// One life of the process.
pub(super) struct Running {
    pub(super) follow: Arc<Follow>,
    pub(super) site: Arc<Site>,
    pub(super) metrics: Arc<Metrics>,
    stop: DropGuard,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(super) async fn bring(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.follow.bring(pod).await
    }

    pub(super) async fn stop(self) -> Result<()> {
        drop(self.stop);
        tokio::time::timeout(Duration::from_secs(20), self.task).await??;
        Ok(())
    }

    /// How many requests were made so far, other than watches.
    pub(super) fn requests(&self) -> u64 {
        self.count(|line| !line.contains("verb=\"watch\""))
    }

    /// How many of them changed something.
    pub(super) fn writes(&self) -> u64 {
        let writes = ["create", "update", "patch", "delete"];
        self.count(|line| writes.iter().any(|verb| line.contains(&format!("verb=\"{verb}\""))))
    }

    fn count(&self, which: impl Fn(&str) -> bool) -> u64 {
        let text = self.metrics.encode();
        let lines = text.lines().filter(|line| line.contains("_requests_total{") && which(line));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}
