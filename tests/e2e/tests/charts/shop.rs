//! An ordinary application chart in both members at once, because a policy says so and for no other reason.

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON, fleet::federlet, objects};
use federlet_sandbox::{TestSpace, eventually};
use serde_json::{Value, json};

use crate::installed::{Installed, when_installed};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/shop");

/// Nodes, and the clusters behind them.
const MEMBERS: [(&str, &str); 2] = [("p-one", "member1"), ("p-two", "member2")];

/// What the policy sends, each by its name in a cluster. Of workloads, members get the pods.
const OBJECTS: [&str; 7] = [
    "configmap/shop",
    "service/shop",
    "ingress/shop",
    "horizontalpodautoscaler/shop",
    "serviceaccount/shop",
    "role/shop",
    "rolebinding/shop",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_application_chart_runs_in_both_members() -> Result<()> {
    when_installed(async |installed| {
        storage(installed).await?;
        for (node, cluster) in MEMBERS {
            installed.member(node, cluster, &[&format!("--set=storageClasses.{CLASS}={CLASS}")]).await?;
        }
        for (node, _) in MEMBERS {
            installed.answers(node).await?;
        }
        installed
            .sandbox
            .in_namespace("shops", async |space| Shop::new(installed, space)?.lives().await)
            .await?;
        for (node, _) in MEMBERS {
            installed.helm.run(&["uninstall", node, "--wait", "--timeout=180s"]).await?;
        }
        for cluster in installed.sandbox.clusters()? {
            let storage = [&format!("pv/{CLASS}"), &format!("storageclass/{CLASS}")];
            cluster.kubectl_output(&["delete", storage[0], storage[1], "--ignore-not-found"]).await?;
        }
        Ok(())
    })
    .await
}

/// The class of its claim, on the host and in members: each of them has a class of its own for it, and a volume.
const CLASS: &str = "e2e-shop";

async fn storage(installed: &Installed) -> Result<()> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
    });
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLASS},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "hostPath": {"path": format!("/tmp/{CLASS}-{}", std::process::id()), "type": "DirectoryOrCreate"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    for name in ["host", MEMBERS[0].1, MEMBERS[1].1] {
        let kubectl = Kubectl::new(installed.sandbox.cluster(name)?, "default");
        for object in [&class, &volume] {
            objects::pipe(&kubectl, &["apply", "-f", "-"], object).await?;
        }
    }
    Ok(())
}

struct Shop<'a> {
    installed: &'a Installed,
    namespace: String,
    host: Kubectl,
    members: Vec<(&'static str, Kubectl)>,
}

impl<'a> Shop<'a> {
    fn new(installed: &'a Installed, space: &TestSpace<'_>) -> Result<Self> {
        let namespace = space.namespace.clone();
        let mut members = vec![];
        for (node, cluster) in MEMBERS {
            members.push((node, Kubectl::new(installed.sandbox.cluster(cluster)?, &namespace)));
        }
        Ok(Self { installed, host: Kubectl::new(installed.host.clone(), &namespace), namespace, members })
    }

    async fn lives(&self) -> Result<()> {
        self.policies().await?;
        self.helm(&["install", "shop", CHART, "--set=greeting=hello", "--wait", "--wait-for-jobs"]).await?;
        self.is_everywhere("hello").await?;
        let policies = self.secrets_are_asked_for().await?;
        self.helm(&[
            "upgrade",
            "shop",
            CHART,
            "--set=greeting=goodbye,replicas=2",
            "--wait",
            "--wait-for-jobs",
        ])
        .await?;
        self.is_everywhere("goodbye").await?;
        self.secrets_may_not_be_read_any_more().await?;
        self.secrets_stay_until_they_may_be_read_again(&policies).await?;
        self.helm(&["rollback", "shop", "1", "--wait"]).await?;
        self.is_everywhere("hello").await?;
        for policy in &policies {
            self.readable(policy, "True").await?;
        }
        self.helm(&["uninstall", "shop", "--wait"]).await?;
        // As everywhere, hooks stay until somebody removes them.
        self.host.run("delete job/shop-migrate pod/shop-answers --ignore-not-found").await?;
        for (node, member) in &self.members {
            eventually(&format!("nothing of it is left in {node}"), 2 * SOON, async || {
                let left = left(member, node).await?;
                ensure!(left.is_empty(), "{left:?}");
                Ok(())
            })
            .await?;
        }
        // Both concern the whole host, which other tests use after this one.
        self.host.args(&["delete", "cpp", &self.namespace]).await?;
        self.installed
            .upgrade(&["--reset-then-reuse-values", "--set=objects.readSecrets=false"])
            .await
            .map(drop)
    }

    async fn helm(&self, words: &[&str]) -> Result<String> {
        let common = ["--namespace", &self.namespace, "--timeout=150s"];
        let class = format!("--set=persistence.storageClass={CLASS}");
        let values: &[&str] = match words[0] {
            "install" | "upgrade" => &[&class],
            _ => &[],
        };
        self.installed.helm.run(&[words, values, &common].concat()).await
    }

    /// The one policy of the application, and one of the whole host for Secrets that nobody refers to.
    async fn policies(&self) -> Result<()> {
        let selector = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name});
        let placement = json!({"clusterAffinity": {"clusterNames": MEMBERS.map(|(node, _)| node)}});
        let everything = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "shop"},
            "spec": {"placement": placement, "resourceSelectors": [
                selector("apps/v1", "Deployment", "shop"),
                selector("batch/v1", "Job", "shop-migrate"),
                selector("v1", "Pod", "shop-answers"),
                selector("v1", "ConfigMap", "shop"),
                selector("v1", "Secret", "shop"),
                selector("v1", "Service", "shop"),
                selector("v1", "ServiceAccount", "shop"),
                selector("networking.k8s.io/v1", "Ingress", "shop"),
                selector("autoscaling/v2", "HorizontalPodAutoscaler", "shop"),
                selector("rbac.authorization.k8s.io/v1", "Role", "shop"),
                selector("rbac.authorization.k8s.io/v1", "RoleBinding", "shop"),
            ]},
        });
        let unused = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
            "metadata": {"name": self.namespace},
            "spec": {"placement": placement, "resourceSelectors": [
                {"apiVersion": "v1", "kind": "Secret", "namespace": self.namespace, "name": "shop-unused"}]},
        });
        for policy in [everything, unused] {
            eventually("the API server asks about policies", SOON, async || {
                objects::pipe(&self.host, &["apply", "-f", "-"], &policy).await
            })
            .await?;
        }
        eventually("the namespace is covered", SOON, async || {
            let shown = self.host.args(&["get", "namespace", &self.namespace, "--show-labels"]).await?;
            ensure!(shown.contains("federlet.io/policies=cover"), "{shown}");
            Ok(())
        })
        .await
    }

    /// It runs and answers in each member, with all that belongs to it as the host has it.
    async fn is_everywhere(&self, greeting: &str) -> Result<()> {
        // It runs in both, and says in both that its own Service answers it.
        self.helm(&["test", "shop"]).await?;
        for (node, member) in &self.members {
            eventually(&format!("it is in {node} as on the host"), 2 * SOON, async || {
                // How many that are, its autoscaler says.
                let replicas =
                    self.host.run("get deployment shop -o jsonpath={.status.readyReplicas}").await?;
                let path = "jsonpath={range .items[*]}{.metadata.deletionTimestamp}{.status.phase} {end}";
                let pods = member.args(&["get", "pods", "-l", "app=shop", "-o", path]).await?;
                ensure!(pods.trim() == vec!["Running"; replicas.parse()?].join(" "), "{pods}, of {replicas}");
                let page = member.run(r"get configmap shop -o jsonpath={.data.index\.html}").await?;
                ensure!(page == greeting, "{page}");
                member.args(&[&["get"][..], &OBJECTS].concat()).await?;
                // Its own pods refer to this one, whatever policies may select.
                let password =
                    member.run("get secret shop -o go-template={{.data.password|base64decode}}").await?;
                ensure!(password == format!("{greeting}-secret"), "{password}");
                let claim = member.run("get pvc shop -o jsonpath={.status.phase}").await?;
                ensure!(claim == "Bound", "its volume there is {claim}");
                Ok(())
            })
            .await?;
            let kubeconfig = self.installed.host.admin_kubeconfig().display().to_string();
            let ask = [
                "exec",
                "deploy/shop",
                "--cluster",
                node,
                "-n",
                &self.namespace,
                "--kubeconfig",
                &kubeconfig,
            ];
            let command = ["--", "wget", "-qO-", "http://shop"];
            let said = federlet(&[&ask[..], &command].concat()).await?;
            ensure!(said.trim() == greeting, "{node} says {said}");
            let visits = federlet(&[&ask[..], &["--", "cat", "/data/visits"]].concat()).await?;
            let first = visits.lines().next().unwrap_or_default();
            ensure!(first == "hello" && visits.contains(greeting), "the volume in {node} has {visits:?}");
        }
        Ok(())
    }

    /// Nobody allowed it yet: the policies say what to set. With that, all that they select is there.
    async fn secrets_are_asked_for(&self) -> Result<[String; 2]> {
        let policies = ["pp/shop".to_owned(), format!("cpp/{}", self.namespace)];
        for policy in &policies {
            let (status, message) = self.readable(policy, "False").await?;
            ensure!(message.contains("objects.readSecrets=true of chart federlet"), "{status} {message}");
            ensure!(message.starts_with("Secret of v1 cannot be read:"), "{message}");
        }
        let told = ["get", "events", "--field-selector", "involvedObject.name=shop,reason=CannotRead", "-o"];
        eventually("an Event says so, too", SOON, async || {
            let said = self.host.args(&[&told[..], &["jsonpath={.items[*].message}"]].concat()).await?;
            ensure!(said.contains("objects.readSecrets=true"), "{said:?}");
            Ok(())
        })
        .await?;
        for (node, member) in &self.members {
            let unused = member.run("get secret shop-unused --ignore-not-found").await?;
            ensure!(unused.is_empty(), "{node}: {unused}");
        }
        self.installed.upgrade(&["--reset-then-reuse-values", "--set=objects.readSecrets=true"]).await?;
        for policy in &policies {
            self.readable(policy, "True").await?;
        }
        for (_, member) in &self.members {
            has(member, "secret/shop-unused", ".metadata.labels.federlet\\.io/propagated", "true").await?;
            has(member, "secret/shop", ".metadata.labels.federlet\\.io/propagated", "true").await?;
        }
        Ok(policies)
    }

    /// The right goes, and whoever watched goes with it: those who come know of no Secret.
    async fn secrets_may_not_be_read_any_more(&self) -> Result<()> {
        self.installed.upgrade(&["--reset-then-reuse-values", "--set=objects.readSecrets=false"]).await?;
        self.installed.own().run("rollout restart deployment/federlet").await?;
        self.installed.own().run("rollout status deployment/federlet --timeout=180s").await.map(drop)
    }

    /// Nothing is taken back because it cannot be read.
    async fn secrets_stay_until_they_may_be_read_again(&self, policies: &[String; 2]) -> Result<()> {
        for policy in policies {
            self.readable(policy, "False").await?;
        }
        for (_, member) in &self.members {
            member.run("get secret shop shop-unused").await?;
        }
        self.installed
            .upgrade(&["--reset-then-reuse-values", "--set=objects.readSecrets=true"])
            .await
            .map(drop)
    }

    /// Waits until a policy says whether what it selects can be read; what it says.
    async fn readable(&self, policy: &str, expected: &str) -> Result<(String, String)> {
        eventually(&format!("{policy} says ObjectsReadable={expected}"), 2 * SOON, async || {
            let found: Value = serde_json::from_str(&self.host.args(&["get", policy, "-o", "json"]).await?)?;
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let said = conditions.iter().find(|condition| condition["type"] == "ObjectsReadable");
            let text = |key: &str| said.and_then(|said| said[key].as_str()).unwrap_or_default().to_owned();
            ensure!(text("status") == expected, "it says {said:?}");
            Ok((text("status"), text("message")))
        })
        .await
    }
}

async fn has(member: &Kubectl, object: &str, path: &str, expected: &str) -> Result<()> {
    eventually(&format!("{object} has {path} = {expected}"), SOON, async || {
        let found = member.args(&["get", object, "-o", &format!("jsonpath={{{path}}}")]).await?;
        ensure!(found == expected, "it is {found:?}");
        Ok(())
    })
    .await
}

/// What a member has in the namespace beyond what Kubernetes puts into every one.
async fn left(member: &Kubectl, node: &str) -> Result<Vec<String>> {
    let kinds = "get pods,secrets,configmaps,services,ingresses,hpa,serviceaccounts,roles,rolebindings,jobs,pvc -o name";
    let found = member.run(kinds).await?;
    let native = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
    // What owns all that we make in the namespace goes with the member, or with the namespace.
    let anchor = |name: &str| name.starts_with("configmap/federlet-") && name.ends_with(&format!("-{node}"));
    Ok(found.lines().filter(|name| !native.contains(name) && !anchor(name)).map(str::to_owned).collect())
}
