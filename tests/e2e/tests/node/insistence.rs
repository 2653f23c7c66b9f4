//! What must hold although the host, the provider or somebody else is slow, silent, or insists on something else.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_node::{
    api::ApiSettings,
    contract::{Pod, PodKey, ProviderError},
};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use serde_json::{Value, json};

use super::{
    embedded::Embedded,
    link::{Link, Passes},
    objects::{create, pod, spec},
    scripted::Scripted,
    stage::on_stage,
};

/// A node whose way to the host can be cut, and one namespace.
struct Cut {
    link: Link,
    provider: Arc<Scripted>,
    kubectl: Kubectl,
    namespace: String,
    node: &'static str,
}

impl Cut {
    async fn create(&self, name: &str) -> Result<PodKey> {
        let bound = json!({"nodeName": self.node, "automountServiceAccountToken": false});
        create(&self.kubectl, &pod(name, &spec(self.node, bound))).await?;
        Ok(PodKey::new(self.namespace.as_str(), name))
    }

    async fn field(&self, name: &str, path: &str) -> Result<String> {
        self.kubectl.args(&["get", "pod", name, "-o", &format!("jsonpath={path}")]).await
    }

    async fn ready(&self, name: &str) -> Result<()> {
        self.kubectl.run(&format!("wait pod/{name} --for=condition=Ready --timeout=90s")).await.map(drop)
    }
}

async fn over_a_link(node: &'static str, play: impl AsyncFnOnce(&Cut) -> Result<()>) -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let link = Link::to(&host).await?;
    let provider = Arc::new(Scripted::default());
    let mut embedded = Embedded::with(&host, link.config(&host).await?, ApiSettings::default()).await?;
    embedded.serve(node, provider.clone()).await?;
    sandbox
        .in_namespace(node, async |space| {
            let namespace = space.namespace.clone();
            let kubectl = Kubectl::new(host.clone(), &namespace);
            let cut = Cut { link, provider, kubectl, namespace, node };
            play(&cut).await?;
            cut.link.let_through(Passes::Everything);
            cut.kubectl.run("delete pods --all --wait=false --force --grace-period=0").await?;
            embedded.finish().await
        })
        .await
}

/// Our last word about a pod is on its way while somebody takes the pod away and makes another of its name.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_meant_for_one_pod_never_hits_the_next_of_its_name() -> Result<()> {
    over_a_link("e2e-late", async |cut| {
        cut.provider.linger(true);
        let key = cut.create("db-0").await?;
        cut.ready("db-0").await?;
        cut.kubectl.run("delete pod db-0 --wait=false --grace-period=5").await?;
        cut.provider.called("db-0", "delete 5").await?;
        // What is said to the host from here on does not arrive before the next pod is there.
        cut.link.let_through(Passes::OnlyFromHost);
        cut.provider.report(&key, |status| status["message"] = json!("of the first"));
        cut.provider.vanish(&key);
        eventually("something waits to be sent", SOON, async || {
            ensure!(cut.link.held() > 0, "nothing yet");
            Ok(())
        })
        .await?;
        cut.kubectl.run("delete pod db-0 --force --grace-period=0").await?;
        cut.provider.linger(false);
        cut.create("db-0").await?;
        let second = cut.field("db-0", "{.metadata.uid}").await?;
        cut.link.let_through(Passes::Everything);
        cut.ready("db-0").await?;
        let path = "{.metadata.uid}|{.metadata.deletionTimestamp}|{.status.message}";
        let said = cut.field("db-0", path).await?;
        ensure!(said == format!("{second}||"), "{said}");
        Ok(())
    })
    .await
}

/// The provider speaks of a pod that the cache does not have, and nobody can be asked.
#[tokio::test(flavor = "multi_thread")]
async fn news_of_a_pod_that_the_cache_does_not_have_ends_nothing() -> Result<()> {
    over_a_link("e2e-early", async |cut| {
        cut.link.let_through(Passes::Nothing);
        let key = cut.create("p").await?;
        let there = cut.kubectl.run("get pod p -o json").await?;
        let there = Pod::try_from(serde_json::from_str::<Value>(&there)?)?;
        cut.provider.hold_running(there);
        for _ in 0..5 {
            cut.provider.tell(&key);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        ensure!(cut.provider.calls("p").is_empty(), "{:?}", cut.provider.calls("p"));
        cut.link.let_through(Passes::Everything);
        cut.ready("p").await?;
        let calls = cut.provider.calls("p");
        ensure!(
            !calls.iter().any(|call| call.starts_with("delete") || call.starts_with("create")),
            "{calls:?}"
        );
        Ok(())
    })
    .await
}

/// Connections to the host that die without a word hold no pod for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_falls_silent_is_asked_again() -> Result<()> {
    over_a_link("e2e-mute", async |cut| {
        let key = cut.create("p").await?;
        cut.ready("p").await?;
        cut.link.let_through(Passes::OnlyFromHost);
        cut.provider.report(&key, |status| status["message"] = json!("heard"));
        eventually("the question is given up", 2 * SOON, async || {
            ensure!(cut.link.broken() > 0, "it still waits");
            Ok(())
        })
        .await?;
        cut.link.let_through(Passes::Everything);
        eventually("the host hears of it", 2 * SOON, async || {
            let said = cut.field("p", "{.status.message}").await?;
            ensure!(said == "heard", "{said:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_tried_more_often_than_anybody_counts() -> Result<()> {
    on_stage("e2e-patient", async |stage| {
        stage.provider.fail("create", Some(ProviderError::unavailable("connection refused")));
        let key = stage.create("p", json!({})).await?;
        eventually("it was tried 25 times", 2 * SOON, async || {
            stage.provider.tell(&key);
            let tried = stage.provider.calls("p").len();
            ensure!(tried > 25, "{tried} times");
            Ok(())
        })
        .await?;
        // Nobody says anything any more; by itself it is tried again, if only once a minute.
        stage.provider.fail("create", None);
        let wait = "wait pod/p --for=condition=Ready --timeout=120s";
        stage.kubectl.run(wait).await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_that_cannot_be_ended_is_ended_later() -> Result<()> {
    on_stage("e2e-orphans", async |stage| {
        let orphan = json!({"metadata": {"namespace": stage.namespace, "name": "orphan", "uid": "of-nobody"},
                            "spec": {"terminationGracePeriodSeconds": 7}});
        let key = stage.key("orphan");
        stage.provider.fail("delete", Some(ProviderError::unavailable("connection refused")));
        stage.provider.hold(orphan.try_into()?);
        eventually("it is tried again, though nobody says anything", SOON, async || {
            let calls = stage.provider.calls("orphan");
            ensure!(calls.len() > 1 && calls.iter().all(|call| call == "delete 7"), "{calls:?}");
            Ok(())
        })
        .await?;
        stage.provider.fail("delete", None);
        eventually("it is ended", SOON, async || {
            ensure!(stage.provider.has(&key).is_none(), "it is still there");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_never_started_goes_at_once_whatever_its_grace() -> Result<()> {
    on_stage("e2e-unstarted", async |stage| {
        stage.provider.fail("create", Some(ProviderError::rejected("QuotaExceeded", "3 of 3 pods")));
        stage.create("p", json!({"terminationGracePeriodSeconds": 3600})).await?;
        stage.told("p", "QuotaExceeded").await?;
        stage.kubectl.run("delete pod p --wait=false").await?;
        stage.gone("p").await
    })
    .await
}

/// An admission policy forbids to write the status of pods in a namespace: they can be deleted all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_forbidden_holds_up_no_deletion() -> Result<()> {
    on_stage("e2e-forbidden", async |stage| {
        let mut held = stage.pod("p", json!({}));
        held["metadata"]["finalizers"] = json!(["example.com/reads"]);
        create(&stage.kubectl, &held).await?;
        stage.ready("p").await?;
        let name = stage.namespace.clone();
        forbid_statuses(&stage.host, &name).await?;
        let played = async {
            // Until the policy is in force.
            eventually("the status cannot be written", SOON, async || {
                let patch = r#"{"status": {"message": "x"}}"#;
                let words = ["patch", "pod", "p", "--subresource=status", "--type=merge", "-p", patch];
                let answer = stage.kubectl.args(&words).await;
                ensure!(answer.is_err(), "it can");
                Ok(())
            })
            .await?;
            stage.kubectl.run("delete pod p --wait=false --grace-period=5").await?;
            stage.says("p", "{.metadata.deletionGracePeriodSeconds}", "0").await?;
            stage.told("p", "StatusRefused").await
        }
        .await;
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            stage.host.kubectl_output(&["delete", kind, &name]).await?;
        }
        played?;
        stage.kubectl.args(&["patch", "pod", "p", "-p", r#"{"metadata":{"finalizers":null}}"#]).await?;
        stage.gone("p").await
    })
    .await
}

async fn forbid_statuses(host: &Cluster, namespace: &str) -> Result<()> {
    let kubectl = Kubectl::new(host.clone(), "default");
    let version = "admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]});
    let policy = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": namespace},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "nobody writes statuses here", "reason": "Forbidden"}],
        },
    });
    let within = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let binding = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": namespace},
        "spec": {
            "policyName": namespace, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": within},
        },
    });
    create(&kubectl, &policy).await?;
    create(&kubectl, &binding).await
}

/// Controllers of clouds say of nodes that they do not know that their network is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_of_ours_that_somebody_else_writes_is_put_right() -> Result<()> {
    on_stage("e2e-contested", async |stage| {
        let theirs = json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": "True",
            "reason": "NoRouteCreated", "message": "theirs"}]}});
        let words = ["patch", "node", &stage.node, "--subresource=status", "-p", &theirs.to_string()];
        stage.host.kubectl_output(&words).await?;
        eventually("the network is there, and no taint says otherwise", SOON, async || {
            let path = "jsonpath={.status.conditions[?(@.type==\"NetworkUnavailable\")].status} {.spec.taints[*].key}";
            let said = stage.host.kubectl_output(&["get", "node", &stage.node, "-o", path]).await?;
            ensure!(said.starts_with("False") && !said.contains("network-unavailable"), "{said}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn running_pods_are_those_that_are_not_ending_with_the_uids_of_the_host() -> Result<()> {
    on_stage("e2e-running", async |stage| {
        stage.provider.linger(true);
        let key = stage.start("ends", json!({})).await?;
        stage.start("runs", json!({})).await?;
        stage.kubectl.run("delete pod ends --wait=false").await?;
        stage.provider.called("ends", "delete 5").await?;
        let uid = stage.field("runs", "{.metadata.uid}").await?;
        eventually("one of them runs", SOON, async || {
            let said = super::embedded::proxied(&stage.host, &stage.node, "runningpods/").await?;
            let said: Value = serde_json::from_str(&said)?;
            let pods: Vec<&Value> = said["items"].as_array().into_iter().flatten().collect();
            ensure!(pods.len() == 1 && pods[0]["metadata"]["uid"] == uid.as_str(), "{said}");
            Ok(())
        })
        .await?;
        stage.provider.vanish(&key);
        stage.provider.linger(false);
        stage.gone("ends").await
    })
    .await
}
