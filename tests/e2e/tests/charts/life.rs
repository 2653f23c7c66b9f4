//! Installing, changing and uninstalling, with something running meanwhile.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    helm::chart,
    objects::{self, spec, workload},
};
use federlet_sandbox::{Cluster, eventually};
use serde_json::json;
use tokio::process::Command;

use crate::{
    claims::Claim,
    installed::{Installed, when_installed},
    text::{commands, document, section},
};

/// A Deployment of two that counts the seconds.
pub(crate) async fn deploy(kubectl: &Kubectl, name: &str, node: &str) -> Result<()> {
    let talk = "i=0; while true; do echo $i; i=$((i + 1)); sleep 1; done";
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
pub(crate) async fn running(member: &Kubectl, name: &str) -> Result<String> {
    let path = "{range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}";
    member.args(&["get", "pods", "-l", &format!("app={name}"), "-o", &format!("jsonpath={path}")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_installed_upgraded_rolled_back_and_uninstalled() -> Result<()> {
    when_installed(async |installed| {
        let said = installed.member("h-one", "member1", &["--set=labels.env=test"]).await?;
        it_says_what_is_next(installed, &said).await?;
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
                the_dashboard_shows_what_is_measured(installed).await?;
                the_member_changes(installed).await?;
                it_has_a_process_of_its_own_for_a_while(installed, &kubectl, &pods[0].1, &pods[0].2).await?;
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

/// What it tells people to type can be typed at once.
async fn it_says_what_is_next(installed: &Installed, said: &str) -> Result<()> {
    let lines: Vec<&str> =
        said.lines().map(str::trim).filter(|line| line.starts_with("kubectl wait ")).collect();
    ensure!(lines.len() == 2 && lines[0].contains("node/h-one --for=create"), "{said}");
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        installed.host.kubectl_output(&words).await?;
    }
    Ok(())
}

/// An account with no more rights than Federlet needs in a member, as a person makes it, and its kubeconfig.
struct Account {
    cluster: Cluster,
    kubeconfig: PathBuf,
}

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../provider/rbac/member.yaml");

impl Account {
    async fn make(cluster: &Cluster) -> Result<Self> {
        let text = document("docs/install.md")?;
        let mut lines = commands(section(&text, "### Which kubeconfig", "## Upgrading")?);
        let last = lines.pop().unwrap_or_default();
        let (install, file) = last.split_once("--set-file kubeconfig=").context("it installs nothing")?;
        ensure!(install.starts_with("helm install member1 charts/member"), "{last}");
        let kubectl = cluster.kubectl()?.as_std().get_program().display().to_string();
        let member = format!("{kubectl} --kubeconfig {}", cluster.admin_kubeconfig().display());
        let typed = lines.join("\n");
        let typed = typed
            .replace("kubectl --context member1", &member)
            .replace("provider/rbac/member.yaml", MANIFESTS);
        let typed = typed.replace("\nkubectl ", &format!("\n{kubectl} "));
        let folder = std::env::temp_dir().join(format!("federlet-e2e-account-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let shell = Command::new("bash").args(["-euc", &typed]).current_dir(&folder).output().await?;
        ensure!(shell.status.success(), "{typed}\n{}", String::from_utf8_lossy(&shell.stderr));
        Ok(Self { cluster: cluster.clone(), kubeconfig: folder.join(file.trim()) })
    }

    async fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(self.kubeconfig.parent().context("no folder")?)?;
        self.cluster.kubectl_output(&["delete", "-f", MANIFESTS, "--ignore-not-found"]).await.map(drop)
    }
}

async fn holder(installed: &Installed, node: &str) -> Result<String> {
    let lease = ["get", "lease", node, "-n", "kube-node-lease", "-o", "jsonpath={.spec.holderIdentity}"];
    installed.host.kubectl_output(&lease).await
}

/// The one by the processes of all, the other by its own.
async fn each_has_one_who_serves_it(installed: &Installed) -> Result<()> {
    let (one, two) = (holder(installed, "h-one").await?, holder(installed, "h-two").await?);
    ensure!(one.starts_with("federlet-") && !one.starts_with("federlet-h-two-"), "{one}");
    ensure!(two.starts_with("federlet-h-two-"), "{two}");
    // And those of all may not even act as it.
    let may = ["auth", "can-i", "impersonate", "users/system:node:h-two"];
    let of_all = "--as=system:serviceaccount:federlet-system:federlet";
    let answer = installed.host.kubectl_output(&[&may[..], &[of_all]].concat()).await;
    ensure!(answer.is_err(), "{answer:?}");
    Ok(())
}

/// Whoever serves the node measures everything that the dashboard asks for.
async fn the_dashboard_shows_what_is_measured(installed: &Installed) -> Result<()> {
    let dashboard = std::fs::read_to_string(format!("{}/files/dashboard.json", chart("federlet")))?;
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut asked: Vec<&str> =
        dashboard.split(|c| !is_part(c)).filter(|word| word.starts_with("federlet_")).collect();
    asked.sort_unstable();
    asked.dedup();
    ensure!(asked.len() > 5, "{asked:?}");
    let path = format!(
        "/api/v1/namespaces/federlet-system/pods/{}:8080/proxy/metrics",
        holder(installed, "h-one").await?
    );
    let measured = installed.host.kubectl_output(&["get", "--raw", &path]).await?;
    for name in asked {
        let is_it = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        ensure!(measured.lines().any(is_it), "nobody measures {name}:\n{measured}");
    }
    Ok(())
}

async fn the_member_changes(installed: &Installed) -> Result<()> {
    // Nobody would leave the member under its former name.
    let renamed = installed.with_member("upgrade", "h-one", "member1", &["--set=name=h-other"]).await;
    let why = renamed.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(why.contains("this release is the Cluster h-one, whose name cannot change to h-other"), "{why}");
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

/// Turned on and off again, `dedicated` moves the node from one process to another, and no pod notices.
async fn it_has_a_process_of_its_own_for_a_while(
    installed: &Installed,
    kubectl: &Kubectl,
    pods: &str,
    member: &Kubectl,
) -> Result<()> {
    for (dedicated, own) in [("true", true), ("false", false)] {
        let words = ["--reset-then-reuse-values", &format!("--set=dedicated={dedicated}")];
        installed.with_member("upgrade", "h-one", "member1", &words).await?;
        eventually(&format!("with dedicated={dedicated} it is served"), 2 * SOON, async || {
            let holder = holder(installed, "h-one").await?;
            ensure!(holder.starts_with("federlet-h-one-") == own, "by {holder}");
            kubectl.run("exec deploy/h-one -- true").await
        })
        .await?;
        installed.answers("h-one").await?;
        ensure!(running(member, "h-one").await? == pods, "pods were disturbed by dedicated={dedicated}");
    }
    Ok(())
}

/// Every process is replaced, and back again, while a log is followed and a rollout goes on.
async fn federlet_changes(installed: &Installed, kubectl: &Kubectl) -> Result<()> {
    let own = installed.own();
    let names = async || own.run("get pods -l app.kubernetes.io/component=serve -o name").await;
    let before = names().await?;
    deploy(kubectl, "rolling", "h-one").await?;
    let pod = kubectl.run("get pods -l app=h-one -o jsonpath={.items[0].metadata.name}").await?;
    let log = Followed::start(kubectl, &pod).await?;
    // So long that it cannot be over before processes are replaced.
    let slow = r#"{"spec": {"minReadySeconds": 30}}"#;
    kubectl.args(&["patch", "deployment/rolling", "-p", slow]).await?;
    kubectl.run("rollout restart deployment/rolling").await?;
    let upgraded = installed.upgrade(&["--set=serve.logFormat=text"]);
    let meanwhile = async {
        let path = "{range .items[*]}{.metadata.name}={.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
        let path = format!("jsonpath={path}");
        let ready = ["get", "pods", "-l", "app.kubernetes.io/component=serve", "-o", &path];
        let seen = log.numbers()?.len();
        eventually("the first new process is Ready", 4 * SOON, async || {
            let found = own.args(&ready).await?;
            let is_new = |line: &str| line.strip_suffix("=True").is_some_and(|pod| !before.contains(pod));
            ensure!(found.lines().any(is_new), "{found}");
            Ok(())
        })
        .await?;
        let reason =
            "get deployment rolling -o jsonpath={.status.conditions[?(@.type==\"Progressing\")].reason}";
        let reason = kubectl.run(reason).await?;
        ensure!(reason == "ReplicaSetUpdated", "the rollout is over too soon: {reason}");
        Ok::<_, anyhow::Error>(seen)
    };
    let (upgraded, seen) = tokio::join!(upgraded, meanwhile);
    upgraded?;
    let seen = seen?;
    kubectl.run("rollout status deployment/rolling --timeout=180s").await?;
    eventually("all processes are new ones", SOON, async || {
        let after = names().await?;
        ensure!(before.lines().all(|pod| !after.contains(pod)), "{before} and then {after}");
        Ok(())
    })
    .await?;
    installed.answers("h-one").await?;
    // It ends with the process that it went through, at the latest; until then nothing is missing in it.
    let followed = log.numbers()?;
    ensure!(followed.len() > seen, "nothing was followed while processes were replaced: {followed:?}");
    ensure!(followed.iter().copied().eq(0..followed.len()), "{followed:?}");
    kubectl.run("exec deploy/h-one -- true").await?;
    let whole = kubectl.run(&format!("logs {pod}")).await?;
    ensure!(whole.lines().count() > followed.len() && whole.starts_with("0\n1\n"), "{whole}");
    installed.helm.run(&["rollback", "federlet", "1", "--wait", "--timeout=180s"]).await?;
    let args =
        own.run("get deployment federlet -o jsonpath={.spec.template.spec.containers[0].args}").await?;
    ensure!(args.contains("--log-format=json"), "{args}");
    Ok(())
}

/// `kubectl logs --follow` of a pod that counts.
struct Followed {
    file: PathBuf,
    _kubectl: tokio::process::Child,
}

impl Followed {
    /// Begins, and waits for the first line.
    async fn start(kubectl: &Kubectl, pod: &str) -> Result<Self> {
        let file = std::env::temp_dir().join(format!("federlet-e2e-followed-{}", std::process::id()));
        let mut command = kubectl.command(&["logs", "--follow", pod])?;
        command.stdout(std::fs::File::create(&file)?).stderr(Stdio::null()).kill_on_drop(true);
        let followed = Self { _kubectl: command.spawn()?, file };
        eventually("the log is followed", SOON, async || {
            ensure!(!followed.numbers()?.is_empty(), "it says nothing");
            Ok(())
        })
        .await?;
        Ok(followed)
    }

    /// What it said so far, but for a line that is not whole.
    fn numbers(&self) -> Result<Vec<usize>> {
        let text = std::fs::read_to_string(&self.file)?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().map(str::parse).collect::<Result<_, _>>()?)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        std::fs::remove_file(&self.file).ok();
    }
}

/// A region whose cluster nobody can reach: nothing keeps the release, whoever serves it.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_gone_is_uninstalled_all_the_same() -> Result<()> {
    when_installed(async |installed| {
        for (name, dedicated) in [("h-gone", "false"), ("h-gone-own", "true")] {
            is_uninstalled_though_gone(installed, name, &format!("--set=dedicated={dedicated}")).await?;
        }
        Ok(())
    })
    .await
}

async fn is_uninstalled_though_gone(installed: &Installed, name: &str, dedicated: &str) -> Result<()> {
    let region = "--set=region.selector.location=beijing";
    installed.member(name, "edge", &["--set=leave.wait=5s", region, dedicated]).await?;
    installed.answers(name).await?;
    // Of the two machines that the cluster has.
    installed.says(&format!("cluster/{name}"), ".status.nodeSummary.totalNum", "1").await?;
    let member = installed.sandbox.cluster("edge")?;
    installed
        .sandbox
        .in_namespace("gone", async |space| {
            let kubectl = Kubectl::new(installed.host.clone(), &space.namespace);
            let claim = Claim::make(&kubectl, name).await?;
            member.partition().await?;
            let uninstalled = installed.helm.run(&["uninstall", name, "--wait", "--timeout=180s"]).await;
            member.heal().await?;
            uninstalled?;
            for object in [
                format!("node/{name}"),
                format!("cluster/{name}"),
                format!("clusterrole/federlet:node:{name}"),
            ] {
                let found = installed.host.kubectl_output(&["get", &object]).await;
                ensure!(found.is_err(), "{object} is still there");
            }
            claim.goes_with_its_member(installed).await?;
            // What nobody could take back there.
            let there = format!("{}-{name}", space.namespace);
            let words = ["delete", "namespace", &there, "--ignore-not-found", "--timeout=120s"];
            eventually("the member answers again", SOON, async || member.kubectl_output(&words).await)
                .await?;
            Ok(())
        })
        .await
}
