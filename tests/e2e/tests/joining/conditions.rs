//! Clusters that somebody wrote, each wrong in its own way: each says so, and none disturbs another.

use anyhow::{Context, Result, ensure};
use federlet_sandbox::Cluster;
use serde_json::{Value, json};

use crate::ground::{Ground, on_ground, pod};

pub(crate) struct Written<'a> {
    pub(crate) name: &'a str,
    pub(crate) endpoint: &'a str,
    pub(crate) keys: Value,
    pub(crate) more: Value,
}

impl Ground {
    /// A Cluster and its Secret, as a person writes them.
    pub(crate) async fn write(&self, written: Written<'_>) -> Result<()> {
        let Written { name, endpoint, keys, more } = written;
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": keys,
            "metadata": {"name": name, "namespace": "federlet-system"},
        }))
        .await?;
        // What `federlet join` and the chart make: the right to act as this node.
        self.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("federlet:node:{name}"), "labels": {"federlet.io/node-role": "true"}},
            "rules": [{
                "apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"],
                "resourceNames": [format!("system:node:{name}")],
            }],
        }))
        .await?;
        let mut spec = json!({
            "apiEndpoint": endpoint, "secretRef": {"namespace": "federlet-system", "name": name},
        });
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        self.apply(&json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec,
        }))
        .await
    }
}

pub(crate) fn kubeconfig(cluster: &Cluster) -> Result<Value> {
    Ok(serde_json::from_str(&std::fs::read_to_string(cluster.admin_kubeconfig())?)?)
}

pub(crate) fn server(config: &Value) -> Result<String> {
    let server = config["clusters"][0]["cluster"]["server"].as_str();
    Ok(server.context("no server")?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_has_its_reason_and_disturbs_nobody() -> Result<()> {
    on_ground("mistakes", async |ground| {
        ground.join("j-good", "member1", &[]).await?;
        let heartbeat = ".metadata.uid";
        let node = ground.field("node/j-good", heartbeat).await?;
        let two = kubeconfig(&ground.member("member2")?)?;
        let there = server(&two)?;
        let mut plugin = two.clone();
        plugin["users"][0]["user"] = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": ["/tmp/j-pwned"], "interactiveMode": "Never"}});
        let mut path = two.clone();
        path["users"][0]["user"]["tokenFile"] = "/etc/hostname".into();
        let mut wrong_ca = two.clone();
        wrong_ca["clusters"][0]["cluster"]["certificate-authority-data"] =
            kubeconfig(&ground.member("member1")?)?["clusters"][0]["cluster"]["certificate-authority-data"].clone();
        let text = |config: &Value| json!({"kubeconfig": config.to_string()});
        let nowhere = &*there.replace(":6443", ":1");
        let cases: [(&str, &str, Value, Value, &str, &str); 8] = [
            ("j-away", nowhere, text(&two), json!({}), "ClusterNotReachable", "does not answer"),
            ("j-name", "https://no-such-name.invalid:6443", text(&two), json!({}), "ClusterNotReachable", "has no address"),
            ("j-ca", &there, text(&wrong_ca), json!({}), "ClusterNotReachable", "is not trusted"),
            ("j-token", &there, json!({"token": "nonsense"}), json!({"insecureSkipTLSVerification": true}), "ClusterNotReachable", "does not accept our credentials"),
            ("j-plugin", &there, text(&plugin), json!({}), "InvalidCredentials", "the kubeconfig uses exec"),
            ("j-path", &there, text(&path), json!({}), "InvalidCredentials", "the kubeconfig uses tokenFile"),
            ("j-empty", &there, json!({}), json!({}), "InvalidCredentials", "neither `token` nor `kubeconfig`"),
            ("j-selector", &there, text(&two), json!({"federlet": {"regionSelector": "((("}}), "InvalidSettings", "spec.federlet.regionSelector"),
        ];
        for (name, endpoint, keys, more, ..) in cases.clone() {
            ground.write(Written { name, endpoint, keys, more }).await?;
        }
        for (name, .., reason, message) in &cases {
            let said = ground.says(name, "Ready", reason).await?;
            ensure!(said.contains(message), "{name}: {message:?} is not in {said:?}");
            ensure!(ground.host.kubectl_output(&["get", "node", name]).await.is_err(), "{name} must have no node");
        }
        ensure!(!std::path::Path::new("/tmp/j-pwned").exists(), "a program was run");
        for (name, reason) in [("j-away", "NotReachable"), ("j-name", "NameNotFound"), ("j-ca", "CertificateNotTrusted"), ("j-token", "Unauthorized")] {
            ground.says(name, "MemberReachable", reason).await?;
        }
        ground.host.kubectl_output(&["delete", "secret", "j-empty", "-n", "federlet-system"]).await?;
        ground.says("j-empty", "Ready", "SecretNotFound").await?;

        // Corrected, it is served at once.
        ground.write(Written { name: "j-ca", endpoint: &there, keys: text(&two), more: json!({}) }).await?;
        ground.says("j-ca", "Ready", "ClusterReady").await?;
        // The same cluster once more, written by hand.
        ground.write(Written { name: "j-twice", endpoint: &there, keys: text(&two), more: json!({}) }).await?;
        let said = ground.says("j-twice", "Ready", "NamespacesCollide").await?;
        ensure!(said.contains("j-ca"), "{said}");

        ground.is_ready("j-good").await?;
        ensure!(ground.field("node/j-good", heartbeat).await? == node, "the good one is the same node as before");
        for secret in ["j-away", "j-name", "j-ca", "j-token", "j-plugin", "j-path", "j-selector", "j-twice"] {
            ground.host.kubectl_output(&["delete", "secret", secret, "-n", "federlet-system"]).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_refuses_what_no_member_could_be() -> Result<()> {
    on_ground("schema", async |ground| {
        ground.join("j-one", "member1", &[]).await?;
        let cases = [
            (json!({"apiEndpoint": "http://plain"}), "spec.apiEndpoint"),
            (json!({"id": "another"}), "a Cluster stays the cluster that it is"),
            (json!({"federlet": {"namespaces": {"mapping": "Suffix"}}}), "Suffix and Prefix need a value"),
            (
                json!({"federlet": {"namespaces": {"mapping": "Suffix", "value": "-x"}}}),
                "where namespaces are cannot change",
            ),
            (json!({"federlet": {"regionSelector": "a=b"}}), "where namespaces are cannot change"),
            (json!({"federlet": {"offline": "Sometimes"}}), "Unsupported value"),
        ];
        for (spec, why) in cases {
            let patch = json!({"spec": spec}).to_string();
            let refused = ground
                .host
                .kubectl_output(&["patch", "cluster", "j-one", "--type=merge", "-p", &patch])
                .await;
            let said = refused.err().with_context(|| format!("{patch} was accepted"))?.to_string();
            ensure!(said.contains(why), "{why:?} is not in: {said}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_at_the_address_of_a_member_gets_nothing() -> Result<()> {
    on_ground("exchanged", async |ground| {
        let (one, two) = (ground.member("member1")?, ground.member("member2")?);
        let (first, second) = (kubeconfig(&one)?, kubeconfig(&two)?);
        let text = |config: &Value| json!({"kubeconfig": config.to_string()});
        let written = Written { name: "j-one", endpoint: "", keys: text(&first), more: json!({}) };
        ground.write(written).await?;
        ground.says("j-one", "Ready", "ClusterReady").await?;
        ground
            .sandbox
            .in_namespace("exchanged", async |space| {
                let kubectl = ground.kubectl(&space.namespace);
                let mut web = pod("web", "j-one");
                web["metadata"]["namespace"] = space.namespace.clone().into();
                ground.apply(&web).await?;
                kubectl.run("wait pod/web --for=condition=Ready --timeout=60s").await?;
                let uid = kubectl.run("get pod web -o jsonpath={.metadata.uid}").await?;

                // The credentials now lead to another cluster, and are good there.
                ground
                    .write(Written { name: "j-one", endpoint: "", keys: text(&second), more: json!({}) })
                    .await?;
                let said = ground.says("j-one", "MemberReachable", "IdentityMismatch").await?;
                ensure!(said.contains("not the cluster that joined"), "{said}");
                let labelled = "--selector=federlet.io/node=j-one";
                let made = two
                    .kubectl_output(&["get", "pods,configmaps,namespaces", "-A", labelled, "-o", "name"])
                    .await?;
                ensure!(made.trim().is_empty(), "something was made in the wrong cluster: {made}");
                let now = kubectl.run("get pod web -o jsonpath={.metadata.uid}{.status.phase}").await?;
                ensure!(now == format!("{uid}Running"), "the pod is not gone because it is not there: {now}");

                // Back again, as if nothing had been.
                ground
                    .write(Written { name: "j-one", endpoint: "", keys: text(&first), more: json!({}) })
                    .await?;
                ground.says("j-one", "Ready", "ClusterReady").await?;
                ensure!(kubectl.run("exec web -- hostname").await?.trim() == "web");
                let same = kubectl
                    .run("get pod web -o jsonpath={.metadata.uid}{.status.containerStatuses[0].restartCount}")
                    .await?;
                ensure!(same == format!("{uid}0"), "{same}");
                Ok(())
            })
            .await?;
        ground.host.kubectl_output(&["delete", "secret", "j-one", "-n", "federlet-system"]).await?;
        Ok(())
    })
    .await
}
