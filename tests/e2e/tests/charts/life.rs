//! Installing, changing and uninstalling, with something running meanwhile.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    objects::{self, spec, workload},
};
use federlet_sandbox::{Cluster, eventually};
use serde_json::{Value, json};

use crate::installed::{Installed, when_installed};

/// A Deployment of two that writes a line a second.
async fn deploy(kubectl: &Kubectl, name: &str, node: &str) -> Result<()> {
    let talk = "while true; do date; sleep 1; done";
    let containers = json!([{"name": "app", "image": "busybox", "command": ["sh", "-c", talk]}]);
    let template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": spec(node, json!({"containers": containers, "terminationGracePeriodSeconds": 0})),
    });
    let body = json!({"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template});
    objects::create(kubectl, &workload("Deployment", name, &body)).await?;
    kubectl.run(&format!("rollout status deployment/{name} --timeout=120s")).await?;
    Ok(())
}

/// Which pods of a Deployment there are in a member, and how often each was started again.
async fn running(member: &Kubectl, name: &str) -> Result<String> {
    let path = "{range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}";
    member.args(&["get", "pods", "-l", &format!("app={name}"), "-o", &format!("jsonpath={path}")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_installed_upgraded_rolled_back_and_uninstalled() -> Result<()> {
    when_installed(async |installed| {
        let said = installed.member("h-one", "member1", &["--set=labels.env=test"]).await?;
        ensure!(said.contains("kubectl wait node/h-one"), "it says what is next: {said}");
        let second = Account::make(&installed.sandbox.cluster("member2")?).await?;
        installed.with_kubeconfig("install", "h-two", &second.kubeconfig, &["--set=dedicated=true"]).await?;
        installed.answers("h-one").await?;
        installed.answers("h-two").await?;
        each_has_one_who_serves_it(installed).await?;
        installed
            .sandbox
            .in_namespace("charts", async |space| {
                let kubectl = Kubectl::new(installed.host.clone(), &space.namespace);
                let mut pods = vec![];
                for (node, cluster) in [("h-one", "member1"), ("h-two", "member2")] {
                    deploy(&kubectl, node, node).await?;
                    let log = kubectl.run(&format!("logs deploy/{node} --tail=1")).await?;
                    ensure!(!log.trim().is_empty(), "{node} says nothing");
                    let name = kubectl.run(&format!("exec deploy/{node} -- hostname")).await?;
                    ensure!(name.starts_with(node), "{name}");
                    let member = Kubectl::new(installed.sandbox.cluster(cluster)?, &space.namespace);
                    pods.push((node, running(&member, node).await?, member));
                }
                the_member_changes(installed).await?;
                federlet_changes(installed, &kubectl).await?;
                for (node, before, member) in &pods {
                    installed.answers(node).await?;
                    ensure!(running(member, node).await? == *before, "pods of {node} were disturbed");
                    kubectl.run(&format!("exec deploy/{node} -- true")).await?;
                }
                // With their pods running.
                for (node, _, member) in &pods {
                    installed.helm.run(&["uninstall", node, "--wait", "--timeout=180s"]).await?;
                    ensure!(running(member, node).await?.is_empty(), "pods of {node} run on");
                    for object in [format!("node/{node}"), format!("cluster/{node}")] {
                        let found = installed.host.kubectl_output(&["get", &object]).await;
                        ensure!(found.is_err(), "{object} is still there");
                    }
                }
                Ok(())
            })
            .await?;
        second.remove().await
    })
    .await
}

/// An account with no more rights than Federlet needs in a member, as a person makes it, and its kubeconfig.
struct Account {
    cluster: Cluster,
    kubeconfig: PathBuf,
}

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../provider/rbac/member.yaml");

impl Account {
    async fn make(cluster: &Cluster) -> Result<Self> {
        cluster.kubectl_output(&["apply", "-f", MANIFESTS]).await?;
        let token = eventually("the account has a token", SOON, async || {
            let path = "go-template={{.data.token | base64decode}}";
            let words = ["get", "secret", "federlet", "-n", "federlet", "-o", path];
            let token = cluster.kubectl_output(&words).await?;
            ensure!(token.len() > 100, "not yet");
            Ok(token)
        })
        .await?;
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(cluster.admin_kubeconfig())?)?;
        config["users"][0]["user"] = json!({ "token": token.trim() });
        let kubeconfig = std::env::temp_dir().join(format!("federlet-e2e-account-{}", std::process::id()));
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { cluster: cluster.clone(), kubeconfig })
    }

    async fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.kubeconfig)?;
        self.cluster.kubectl_output(&["delete", "-f", MANIFESTS, "--ignore-not-found"]).await.map(drop)
    }
}

/// The one by the processes of all, the other by its own.
async fn each_has_one_who_serves_it(installed: &Installed) -> Result<()> {
    let holder = async |node: &str| {
        let lease = ["get", "lease", node, "-n", "kube-node-lease", "-o", "jsonpath={.spec.holderIdentity}"];
        installed.host.kubectl_output(&lease).await
    };
    let (one, two) = (holder("h-one").await?, holder("h-two").await?);
    ensure!(one.starts_with("federlet-") && !one.starts_with("federlet-h-two-"), "{one}");
    ensure!(two.starts_with("federlet-h-two-"), "{two}");
    // And those of all may not even act as it.
    let may = ["auth", "can-i", "impersonate", "users/system:node:h-two"];
    let of_all = "--as=system:serviceaccount:federlet-system:federlet";
    let answer = installed.host.kubectl_output(&[&may[..], &[of_all]].concat()).await;
    ensure!(answer.is_err(), "{answer:?}");
    Ok(())
}

async fn the_member_changes(installed: &Installed) -> Result<()> {
    let words = [
        "--set=labels.env=prod,labels.tier=a,limits.pods=7",
        "--set=taints[0].key=team,taints[0].effect=NoSchedule",
    ];
    installed.with_member("upgrade", "h-one", "member1", &words).await?;
    let node = "node/h-one";
    installed.says(node, ".metadata.labels", r#""env":"prod""#).await?;
    installed.says(node, ".spec.taints[*].key", "team").await?;
    installed.says(node, ".status.allocatable.pods", "7").await?;
    let id = installed.field("cluster/h-one", ".spec.id").await?;
    ensure!(!id.is_empty(), "what serve wrote into the Cluster stays");
    installed.helm.run(&["rollback", "h-one", "1", "--wait"]).await?;
    installed.says(node, ".metadata.labels", r#""env":"test""#).await?;
    eventually("the taint and the label are gone", SOON, async || {
        let taints = installed.field(node, ".spec.taints[*].key").await?;
        ensure!(!taints.contains("team"), "{taints}");
        ensure!(installed.field(node, ".metadata.labels.tier").await?.is_empty());
        Ok(())
    })
    .await
}

/// Every process is replaced, and back again, while a log is followed and a rollout goes on.
async fn federlet_changes(installed: &Installed, kubectl: &Kubectl) -> Result<()> {
    let own = installed.own();
    let names = async || own.run("get pods -l app.kubernetes.io/component=serve -o name").await;
    let before = names().await?;
    deploy(kubectl, "rolling", "h-one").await?;
    let mut followed = kubectl.command(&["logs", "--follow", "deploy/h-one"])?;
    let mut followed = followed.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    kubectl.run("rollout restart deployment/rolling").await?;
    installed.upgrade(&["--set=serve.logFormat=text"]).await?;
    kubectl.run("rollout status deployment/rolling --timeout=120s").await?;
    eventually("all processes are new ones", SOON, async || {
        let after = names().await?;
        ensure!(before.lines().all(|pod| !after.contains(pod)), "{before} and then {after}");
        Ok(())
    })
    .await?;
    installed.answers("h-one").await?;
    followed.kill().await?;
    kubectl.run("exec deploy/h-one -- true").await?;
    ensure!(!kubectl.run("logs deploy/h-one --tail=1").await?.trim().is_empty());
    installed.helm.run(&["rollback", "federlet", "1", "--wait", "--timeout=180s"]).await?;
    let args =
        own.run("get deployment federlet -o jsonpath={.spec.template.spec.containers[0].args}").await?;
    ensure!(args.contains("--log-format=json"), "{args}");
    Ok(())
}

/// Nobody can go to the member, and nothing keeps the release.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_gone_is_uninstalled_all_the_same() -> Result<()> {
    when_installed(async |installed| {
        installed.member("h-gone", "member1", &["--set=leave.wait=5s"]).await?;
        installed.answers("h-gone").await?;
        let member = installed.sandbox.cluster("member1")?;
        member.partition().await?;
        let uninstalled = installed.helm.run(&["uninstall", "h-gone", "--wait", "--timeout=180s"]).await;
        member.heal().await?;
        uninstalled?;
        for object in ["node/h-gone", "cluster/h-gone", "clusterrole/federlet:node:h-gone"] {
            let found = installed.host.kubectl_output(&["get", object]).await;
            ensure!(found.is_err(), "{object} is still there");
        }
        Ok(())
    })
    .await
}

/// A workload that knows of no nodes and tolerates nothing, and a policy that sends it to one.
async fn a_policy_is_obeyed(kubectl: &Kubectl, node: &str) -> Result<()> {
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "steered"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "steered"}],
            "placement": {"clusterAffinity": {"clusterNames": [node]}},
        },
    });
    eventually("the API server asks about policies", SOON, async || {
        objects::pipe(kubectl, &["apply", "-f", "-"], &policy).await
    })
    .await?;
    eventually("its namespace is covered", SOON, async || {
        let path = r"jsonpath={.items[*].metadata.labels.federlet\.io/policies}";
        let covered = kubectl.args(&["get", "namespaces", "-o", path]).await?;
        ensure!(!covered.is_empty(), "no namespace is");
        Ok(())
    })
    .await?;
    kubectl.run("create deployment steered --image=nginx").await?;
    kubectl.run("rollout status deployment/steered --timeout=120s").await?;
    let on = kubectl.run("get pods -l app=steered -o jsonpath={.items[*].spec.nodeName}").await?;
    ensure!(on == node, "it is on {on}");
    Ok(())
}

/// Nobody serves it any more, so the Job goes to the member itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_uninstalled_after_federlet() -> Result<()> {
    when_installed(async |installed| {
        installed.member("h-last", "member1", &[]).await?;
        installed.answers("h-last").await?;
        installed
            .sandbox
            .in_namespace("last", async |space| {
                let kubectl = Kubectl::new(installed.host.clone(), &space.namespace);
                deploy(&kubectl, "last", "h-last").await?;
                a_policy_is_obeyed(&kubectl, "h-last").await?;
                installed.helm.run(&["uninstall", "federlet", "--wait", "--timeout=180s"]).await?;
                installed.helm.run(&["uninstall", "h-last", "--wait", "--timeout=180s"]).await?;
                let member = Kubectl::new(installed.sandbox.cluster("member1")?, &space.namespace);
                ensure!(running(&member, "last").await?.is_empty(), "its pods run on");
                let found = installed.host.kubectl_output(&["get", "node/h-last"]).await;
                ensure!(found.is_err(), "its node is still there");
                // Nobody could answer any more, and nobody is asked.
                kubectl.run("run anybody --image=nginx").await?;
                Ok(())
            })
            .await
    })
    .await
}
