//! Hosts and members of different age: the newest with the oldest that we test, both ways.

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{Serve, federlet},
    objects::{create, pod, spec, workload},
    own::Own,
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};
use tokio::sync::Mutex;

const OLD: &str = "1.34.4";
const NEW: &str = "1.36.3";
const NODE: &str = "other-age";

/// One sandbox beside the shared one is enough for a small machine.
static ALONE: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn a_new_host_has_an_old_member() -> Result<()> {
    play(NEW, OLD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_host_has_a_new_member() -> Result<()> {
    play(OLD, NEW).await
}

async fn play(host_version: &str, member_version: &str) -> Result<()> {
    let _alone = ALONE.lock().await;
    let words = ["--members", "1", "--kubernetes", host_version, "--member-kubernetes", member_version];
    let own = Own::start("versions", &words).await?;
    let (host, member) = (own.cluster("host")?, own.cluster("member1")?);
    let serve = Serve::start(&host, "versions", &[]).await?;
    let played = async {
        let (here, there) =
            (host.admin_kubeconfig().to_string_lossy(), member.admin_kubeconfig().to_string_lossy());
        federlet(&["join", NODE, "--kubeconfig", &here, "--cluster-kubeconfig", &there]).await?;
        let shown = ["get", "node", NODE, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"];
        let shown = host.kubectl_output(&shown).await?;
        ensure!(shown == format!("v{member_version}"), "the node shows {shown}");
        own.sandbox()?
            .in_namespace("versions", async |space| {
                let kubectl = Kubectl::new(host.clone(), &space.namespace);
                everything_works(&kubectl).await?;
                job_completes(&kubectl).await?;
                if member_version == OLD {
                    what_the_member_does_not_know_is_said(&kubectl).await?;
                }
                Ok(())
            })
            .await?;
        federlet(&["unjoin", NODE, "--kubeconfig", &here]).await?;
        let ours = [
            "get",
            "pods,configmaps,secrets,services,namespaces",
            "-A",
            "-l",
            "federlet.io/node",
            "-o",
            "name",
        ];
        let left = member.kubectl_output(&ours).await?;
        ensure!(left.trim().is_empty(), "left in the member: {left}");
        Ok(())
    }
    .await;
    let tail = serve.tail();
    serve.terminate().await?;
    played.context(tail)
}

/// A Deployment with what it needs, and every stream by both protocols.
async fn everything_works(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("create configmap settings --from-literal=colour=blue").await?;
    kubectl.run("create secret generic key --from-literal=word=open").await?;
    let container = json!({"containers": [{
        "name": "web", "image": "nginx",
        "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "key"}}],
    }]});
    let deployment = json!({
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec(NODE, container)},
    });
    create(kubectl, &workload("Deployment", "web", &deployment)).await?;
    kubectl.run("expose deployment web --port=80").await?;
    kubectl.run("rollout status deployment/web --timeout=120s").await?;
    for websockets in ["true", "false"] {
        let kubectl = kubectl.clone().with("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        let kubectl = kubectl.with("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
        let words = ["exec", "deploy/web", "--", "sh", "-c", "echo $colour $word; exit 3"];
        let said = kubectl.command(&words)?.output().await?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        ensure!(
            text.trim() == "blue open" && said.status.code() == Some(3),
            "websockets {websockets}: {said:?}"
        );
        let forward = kubectl.port_forward("deployment/web", 80).await?;
        let path = format!("/websockets-{websockets}");
        ensure!(forward.get(&path).await?.contains("404"), "port-forward, websockets {websockets}");
        eventually("the request is in the log", SOON, async || {
            let log = kubectl.run("logs -l app=web").await?;
            ensure!(log.contains(&path), "{log}");
            Ok(())
        })
        .await?;
    }
    kubectl.run("rollout restart deployment/web").await?;
    kubectl.run("rollout status deployment/web --timeout=120s").await?;
    Ok(())
}

/// Fields that came with 1.35: left out where the pod stays what it is, refused where it would be another.
async fn what_the_member_does_not_know_is_said(kubectl: &Kubectl) -> Result<()> {
    let app = |extra: Value| {
        let mut app = json!({"name": "app", "image": "busybox", "command": ["sleep", "1000"]});
        if let (Some(app), Value::Object(extra)) = (app.as_object_mut(), extra) {
            app.extend(extra);
        }
        app
    };
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let ruled = json!({"restartPolicy": "Never", "restartPolicyRules": rules});
    let file =
        json!({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "e", "key": "A"}}});
    for (name, extra, runs) in [
        ("named", json!({"hostnameOverride": "other", "containers": [app(json!({}))]}), true),
        ("ruled", json!({"containers": [app(ruled)]}), true),
        (
            "files",
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [app(json!({"env": [file]}))]}),
            false,
        ),
    ] {
        create(kubectl, &pod(name, &spec(NODE, extra))).await?;
        eventually(&format!("{name}: the member's age is told"), SOON, async || {
            let fields = format!("involvedObject.name={name},reason=MemberTooOld");
            let words = ["get", "events", "--field-selector", &fields, "-o", "jsonpath={.items[*].message}"];
            let said = kubectl.args(&words).await?;
            ensure!(said.contains("1.35"), "{said:?}");
            Ok(())
        })
        .await?;
        if runs {
            kubectl.run(&format!("wait pod/{name} --for=condition=Ready --timeout=60s")).await?;
        } else {
            let reason = format!("get pod {name} -o jsonpath={{.status.reason}}");
            eventually("it says why it waits", SOON, async || {
                let said = kubectl.run(&reason).await?;
                ensure!(said == "MemberTooOld", "{said:?}");
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}

async fn job_completes(kubectl: &Kubectl) -> Result<()> {
    let container = json!({
        "restartPolicy": "Never",
        "containers": [{"name": "once", "image": "busybox", "command": ["true"]}],
    });
    let job = json!({"completions": 2, "parallelism": 2, "template": {"spec": spec(NODE, container)}});
    create(kubectl, &workload("Job", "once", &job)).await?;
    kubectl.run("wait job/once --for=condition=Complete --timeout=90s").await?;
    Ok(())
}
