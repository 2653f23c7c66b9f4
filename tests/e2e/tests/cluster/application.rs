//! An ordinary application chart, installed as on any cluster; only a nodeSelector says where.

use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::MEMBER1,
    helm::Helm,
    objects::{create, pipe},
    stage::{Stage, on_stage},
};
use federlet_provider::follow::claims::{csi_driver, storage_class};
use federlet_sandbox::eventually;
use serde_json::json;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/shop");

#[tokio::test(flavor = "multi_thread")]
async fn an_application_chart_works_whole_in_a_member() -> Result<()> {
    on_stage("shop", async |stage| {
        storage(stage).await?;
        let shop = Shop { helm: Helm::new(&stage.fleet.host)?, stage };
        shop.installs().await?;
        shop.upgrades().await?;
        shop.grows().await?;
        shop.rolls_back().await?;
        shop.uninstalls().await
    })
    .await
}

struct Shop<'a> {
    helm: Helm,
    stage: &'a Stage,
}

impl Shop<'_> {
    async fn helm(&self, words: &[&str]) -> Result<String> {
        self.helm.run(&[words, &["--namespace", &self.stage.namespace, "--timeout=150s"]].concat()).await
    }

    /// Installs or upgrades with these values, and waits until all of it works.
    async fn apply(&self, verb: &str, values: &str) -> Result<String> {
        let node = format!("--set=nodeSelector.kubernetes\\.io/hostname={MEMBER1}");
        let taint = "--set=tolerations[0].key=virtual-kubelet.io/provider,tolerations[0].operator=Exists";
        let class = format!("--set=persistence.storageClass={}", self.stage.namespace);
        self.helm(&[verb, "shop", CHART, &node, taint, &class, values, "--wait", "--wait-for-jobs"]).await
    }

    async fn installs(&self) -> Result<()> {
        let (host, member) = (&self.stage.host, &self.stage.member);
        self.apply("install", "--set=greeting=hello").await?;
        let nodes = host.run("get pods -l app=shop -o jsonpath={.items[*].spec.nodeName}").await?;
        ensure!(nodes == MEMBER1, "{nodes}");
        self.helm(&["test", "shop"]).await?;
        ensure!(self.exec("cat /data/visits").await? == "hello");
        ensure!(self.exec("echo $PASSWORD").await? == "hello-secret");
        let token = self.exec("cat /var/run/secrets/kubernetes.io/serviceaccount/token").await?;
        let may = format!("auth can-i get configmaps/shop --token={token}");
        ensure!(host.run(&may).await?.trim() == "yes", "its account works on the host");
        eventually("the autoscaler reads what the member measures", 2 * SOON, async || {
            let path = r#"{.status.conditions[?(@.type=="ScalingActive")].status}"#;
            let active = host.args(&["get", "hpa", "shop", "-o", &format!("jsonpath={path}")]).await?;
            ensure!(active == "True", "ScalingActive is {active:?}");
            Ok(())
        })
        .await?;
        // Only what a pod refers to, and the Service that selects it, is in the member.
        let there = member.run("get secrets,services,ingresses,hpa,persistentvolumeclaims -o name").await?;
        let there: Vec<&str> = there.lines().collect();
        let expected = ["secret/shop", "service/shop", "persistentvolumeclaim/shop"];
        ensure!(expected.iter().all(|name| there.contains(name)), "{there:?}");
        ensure!(!there.contains(&"secret/shop-unused"), "{there:?}");
        ensure!(there.iter().all(|name| !name.starts_with("ingress") && !name.contains("hpa")), "{there:?}");
        Ok(())
    }

    async fn upgrades(&self) -> Result<()> {
        self.apply("upgrade", "--set=greeting=goodbye").await?;
        self.helm(&["test", "shop"]).await?;
        ensure!(self.exec("cat /data/visits").await? == "hello\ngoodbye", "its data stays");
        let note = "get service shop -o jsonpath={.metadata.annotations.greeting}";
        eventually("the Service is as on the host", SOON, async || {
            let found = self.stage.member.run(note).await?;
            ensure!(found == "goodbye", "{found}");
            Ok(())
        })
        .await
    }

    /// A larger claim: the member's own resizer is played here, since its volumes are plain folders.
    async fn grows(&self) -> Result<()> {
        self.apply("upgrade", "--set=greeting=goodbye,persistence.size=2Gi").await?;
        let asks = "get pvc shop -o jsonpath={.spec.resources.requests.storage}";
        eventually("the member's claim asks for more", SOON, async || {
            let asked = self.stage.member.run(asks).await?;
            ensure!(asked == "2Gi", "{asked}");
            Ok(())
        })
        .await?;
        let grown = r#"{"status":{"capacity":{"storage":"2Gi"}}}"#;
        let patch = ["patch", "pvc", "shop", "--subresource=status", "--type=merge", "--patch", grown];
        self.stage.member.args(&patch).await?;
        eventually("the host's claim says so", SOON, async || {
            let has = self.stage.host.run("get pvc shop -o jsonpath={.status.capacity.storage}").await?;
            ensure!(has == "2Gi", "{has}");
            Ok(())
        })
        .await
    }

    async fn rolls_back(&self) -> Result<()> {
        // To what was before the claim grew: claims never shrink.
        self.apply("upgrade", "--set=greeting=again,persistence.size=2Gi").await?;
        self.helm(&["rollback", "shop", "3", "--wait"]).await?;
        self.helm(&["test", "shop"]).await?;
        ensure!(self.exec("cat /data/visits").await? == "hello\ngoodbye\nagain\ngoodbye");
        Ok(())
    }

    async fn uninstalls(&self) -> Result<()> {
        self.helm(&["uninstall", "shop", "--wait"]).await?;
        // As everywhere, hooks stay until somebody removes them.
        self.stage.host.run("delete job/shop-migrate pod/shop-answers --ignore-not-found").await?;
        eventually("nothing of it is left in the member", 2 * SOON, async || {
            let kinds = "get pods,secrets,services,persistentvolumeclaims -o name";
            let left = self.stage.member.run(kinds).await?;
            ensure!(left.is_empty(), "{left}");
            Ok(())
        })
        .await
    }

    async fn exec(&self, command: &str) -> Result<String> {
        let said =
            self.stage.host.args(&["exec", "deploy/shop", "-c", "shop", "--", "sh", "-c", command]).await?;
        Ok(said.trim().to_owned())
    }
}

/// A class on the host that leads to one of the member, and a volume there.
async fn storage(stage: &Stage) -> Result<()> {
    let name = stage.namespace.as_str();
    let mut class = storage_class(name);
    class["parameters"] = json!({ "storageClassName": name });
    create(&stage.host, &class).await?;
    pipe(&stage.host, &["apply", "-f", "-"], &csi_driver()).await?;
    let theirs = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
        "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": true,
    });
    create(&stage.member, &theirs).await?;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": name,
            "hostPath": { "path": format!("/tmp/{name}"), "type": "DirectoryOrCreate" },
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    create(&stage.member, &volume).await
}
