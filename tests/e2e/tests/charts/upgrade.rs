//! From the chart before this one to this one, and away again, with something running meanwhile.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON, helm::chart, objects};
use federlet_sandbox::eventually;
use serde_json::json;
use tokio::process::Command;

use crate::{
    claims::{self, Claim},
    installed::{IMAGE, Installed, ROLLOUT, before_it_is_installed},
    life::{deploy, running},
};

/// The charts of the commit before this one.
struct Former(PathBuf);

impl Former {
    /// Those of this checkout where there is no history: a copy without one, or a clone that says it is shallow.
    async fn find() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("federlet-e2e-former-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let archive = folder.join("charts.tar");
        let words = ["archive", "--format=tar", "--output"];
        let git = Command::new("git")
            .args(words)
            .arg(&archive)
            .args(["HEAD~1", "charts"])
            .current_dir(&checkout)
            .output();
        if git.await.is_ok_and(|said| said.status.success()) {
            let tar = Command::new("tar").arg("-xf").arg(&archive).current_dir(&folder).status().await?;
            ensure!(tar.success(), "cannot unpack {}", archive.display());
        } else {
            let shallow = ["rev-parse", "--is-shallow-repository"];
            let said = Command::new("git").args(shallow).current_dir(&checkout).output().await;
            let is_shallow = said.is_ok_and(|said| said.stdout.starts_with(b"true"));
            ensure!(
                is_shallow || std::env::var_os("CI").is_none(),
                "there is no commit before this one: the upgrade would be from these charts to themselves"
            );
            eprintln!("no history: the upgrade is from these charts to themselves");
            let copied =
                Command::new("cp").arg("-r").arg(checkout.join("charts")).arg(&folder).status().await?;
            ensure!(copied.success(), "cannot copy the charts");
        }
        Ok(Self(folder))
    }

    fn chart(&self, name: &str) -> Result<String> {
        let chart = self.0.join("charts").join(name);
        chart.to_str().map(str::to_owned).context("a path")
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_do_not_notice_an_upgrade_and_members_outlive_federlet() -> Result<()> {
    before_it_is_installed(async |installed| {
        let former = Former::find().await?;
        // Helm leaves definitions alone that are there, and these should be the former ones, too.
        let definitions = format!("{}/crds", chart("federlet"));
        let words = ["delete", "-f", &definitions, "--ignore-not-found", "--timeout=120s"];
        installed.host.kubectl_output(&words).await?;
        // Something is always another: every process is replaced.
        let (federlet, text) = (former.chart("federlet")?, "--set=serve.logFormat=text");
        installed.helm.run(&["install", "federlet", &federlet, IMAGE, text, "--wait", ROLLOUT]).await?;
        for (name, cluster, dedicated) in MEMBERS {
            let kubeconfig = installed.sandbox.cluster(cluster)?.admin_kubeconfig().display().to_string();
            let (member, file) = (former.chart("member")?, format!("--set-file=kubeconfig={kubeconfig}"));
            let words = ["install", name, &member, &file, IMAGE, dedicated, "--wait", ROLLOUT];
            installed.helm.run(&words).await?;
            installed.answers(name).await?;
        }
        installed
            .sandbox
            .in_namespace("last", async |space| {
                let kubectl = Kubectl::new(installed.host.clone(), &space.namespace);
                let there = Kubectl::new(installed.sandbox.cluster("member1")?, &space.namespace);
                let own = Kubectl::new(installed.sandbox.cluster("member2")?, &space.namespace);
                deploy(&kubectl, "last", "h-last").await?;
                deploy(&kubectl, "own", "h-own-last").await?;
                a_policy_is_obeyed(&kubectl, "h-last").await?;
                let claim = Claim::make(&kubectl, "h-last").await?;
                let pods = async || {
                    Ok::<_, anyhow::Error>([
                        running(&there, "last").await?,
                        running(&own, "own").await?,
                        running(&there, "steered").await?,
                    ])
                };
                let before = pods().await?;
                let counts = before.each_ref().map(|pods| pods.lines().count());
                ensure!(counts == [2, 2, 1], "{before:?}");
                everything_is_upgraded(installed).await?;
                kubectl.run("exec deploy/last -- true").await?;
                kubectl.run("exec deploy/own -- true").await?;
                kubectl.run("rollout status deployment/steered --timeout=60s").await?;
                ensure!(pods().await? == before, "{before:?} and then {:?}", pods().await?);
                // Nobody serves the members any more when they go, so the Jobs go there themselves.
                installed.helm.run(&["uninstall", "federlet", "--wait", ROLLOUT]).await?;
                ensure!(pods().await? == before, "pods went with federlet");
                for (name, ..) in MEMBERS {
                    installed.helm.run(&["uninstall", name, "--wait", ROLLOUT]).await?;
                    let found = installed.host.kubectl_output(&["get", &format!("node/{name}")]).await;
                    ensure!(found.is_err(), "node {name} is still there");
                }
                let after = pods().await?;
                ensure!(after.iter().all(String::is_empty), "pods run on: {after:?}");
                let data = there.run(&format!("get pvc {} --ignore-not-found -o name", claims::NAME)).await?;
                ensure!(data.is_empty(), "the data of its claim stays: {data}");
                claim.goes_with_its_member(installed).await?;
                it_can_be_installed_from_elsewhere(installed).await?;
                // Nobody could answer any more, and nobody is asked.
                kubectl.run("run anybody --image=nginx").await?;
                Ok(())
            })
            .await
    })
    .await
}

/// One that is served with all others, and one that has a process of its own.
const MEMBERS: [(&str, &str, &str); 2] =
    [("h-last", "member1", "--set=dedicated=false"), ("h-own-last", "member2", "--set=dedicated=true")];

/// The namespace that stayed is not in the way of a release from another namespace.
async fn it_can_be_installed_from_elsewhere(installed: &Installed) -> Result<()> {
    let chart = chart("federlet");
    let words = ["install", "federlet", &chart, "--namespace=kube-public", "--dry-run=server"];
    installed.helm.run(&words).await.map(drop)
}

/// As docs/install.md says it.
async fn everything_is_upgraded(installed: &Installed) -> Result<()> {
    let own = installed.own();
    let names = async || own.run("get pods -l app.kubernetes.io/component=serve -o name").await;
    let before = names().await?;
    let definitions = format!("{}/crds", chart("federlet"));
    let words = ["apply", "--server-side", "--force-conflicts", "-f", &definitions];
    installed.host.kubectl_output(&words).await?;
    installed.upgrade(&["--reset-then-reuse-values", "--set=serve.logFormat=json"]).await?;
    let member = chart("member");
    for (name, ..) in MEMBERS {
        let words = ["upgrade", name, &member, "--reset-then-reuse-values", "--wait", ROLLOUT];
        installed.helm.run(&words).await?;
    }
    eventually("all processes are new ones", SOON, async || {
        let after = names().await?;
        ensure!(before.lines().all(|pod| !after.contains(pod)), "{before} and then {after}");
        Ok(())
    })
    .await?;
    for (name, ..) in MEMBERS {
        installed.answers(name).await?;
    }
    Ok(())
}

/// A workload that knows of no nodes and tolerates nothing, and a policy that sends it to one.
pub(crate) async fn a_policy_is_obeyed(kubectl: &Kubectl, node: &str) -> Result<()> {
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
