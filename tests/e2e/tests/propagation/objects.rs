//! Objects that are no workloads, in the members that their policy chooses.

use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{MEMBER1, MEMBER2},
    scene::{Scene, beside},
    sent::{applied, config_map, has_there, is_gone, member, sends, sends_one},
};
use federlet_sandbox::eventually;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn objects_go_to_their_members_and_differ_by_override() -> Result<()> {
    beside("objects", async |stage| {
        let (one, two) = (member(stage, "member1")?, member(stage, "member2")?);
        stage
            .apply(&json!({
                "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "differ"},
                "spec": {
                    "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}],
                    "overrideRules": [{"targetCluster": {"clusterNames": [MEMBER2]}, "overriders": {
                        "plaintext": [{"path": "/data/key", "operator": "replace", "value": "two"}]}}],
                },
            }))
            .await?;
        stage.apply(&config_map("settings", "one")).await?;
        stage
            .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "door"}, "stringData": {"key": "open"}}))
            .await?;
        stage
            .apply(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}))
            .await?;
        let mut policy = sends("all", &[("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "Service")], &[MEMBER1, MEMBER2]);
        for (index, name) in ["settings", "door", "web"].iter().enumerate() {
            policy["spec"]["resourceSelectors"][index]["name"] = json!(name);
        }
        stage.apply(&policy).await?;
        has_there(&one, "configmap/settings", ".data.key", "one").await?;
        has_there(&two, "configmap/settings", ".data.key", "two").await?;
        for member in [&one, &two] {
            has_there(member, "secret/door", ".data.key", "b3Blbg==").await?;
            has_there(member, "service/web", ".spec.ports[0].port", "80").await?;
            has_there(member, "configmap/settings", ".metadata.labels.federlet\\.io/propagated", "true").await?;
        }
        let binding = applied(stage, "rb/settings-configmap").await?;
        let clusters = binding["spec"]["clusters"].to_string();
        ensure!(clusters.contains(MEMBER1) && clusters.contains(MEMBER2), "{clusters}");
        let service = applied(stage, "rb/web-service").await?;
        ensure!(service["status"]["aggregatedStatus"][0]["health"] == "Healthy", "{service}");

        // A change follows, also one of the override.
        stage.apply(&config_map("settings", "more")).await?;
        has_there(&one, "configmap/settings", ".data.key", "more").await?;
        stage.host.run("delete op differ").await?;
        has_there(&two, "configmap/settings", ".data.key", "more").await?;
        // So does what the template loses.
        stage.host.run("label configmap settings app-").await?;
        has_there(&one, "configmap/settings", ".metadata.labels.app", "").await?;

        // What somebody changes or deletes in the member comes back.
        one.run("patch configmap settings -p {\"data\":{\"key\":\"theirs\"}}").await?;
        has_there(&one, "configmap/settings", ".data.key", "more").await?;
        two.run("delete configmap settings").await?;
        has_there(&two, "configmap/settings", ".data.key", "more").await?;

        // The policy changes its mind.
        policy["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!([MEMBER2]);
        stage.apply(&policy).await?;
        is_gone(&one, "configmap/settings").await?;
        is_gone(&one, "service/web").await?;
        has_there(&two, "configmap/settings", ".data.key", "more").await?;

        // The policy goes: what it sent stays, and is looked after.
        stage.host.run("delete pp all").await?;
        stage.apply(&config_map("settings", "later")).await?;
        has_there(&two, "configmap/settings", ".data.key", "later").await?;

        // The template goes.
        stage.host.run("delete configmap settings").await?;
        is_gone(&two, "configmap/settings").await?;
        eventually("its binding goes", SOON, async || {
            let left = stage.host.run("get rb settings-configmap --ignore-not-found").await?;
            ensure!(left.is_empty(), "{left}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_load_balancers_come_back() -> Result<()> {
    beside("balance", async |stage| {
        stage
            .apply(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]}}))
            .await?;
        stage.apply(&sends_one("web", "v1", "Service", "web", &[MEMBER1, MEMBER2])).await?;
        // Nobody in these clusters makes load balancers, so somebody says that one is there.
        for (name, address) in [("member1", "192.0.2.2"), ("member2", "192.0.2.1")] {
            let member = member(stage, name)?;
            has_there(&member, "service/web", ".spec.type", "LoadBalancer").await?;
            let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}).to_string();
            member
                .args(&["patch", "service", "web", "--subresource=status", "--type=merge", "-p", &status])
                .await?;
        }
        has_there(&stage.host, "service/web", ".status.loadBalancer.ingress[*].ip", "192.0.2.1 192.0.2.2")
            .await?;
        let binding = applied(stage, "rb/web-service").await?;
        let items = binding["status"]["aggregatedStatus"].as_array().cloned().unwrap_or_default();
        ensure!(items.iter().all(|item| item["health"] == "Healthy"), "{items:?}");
        // One cluster less is one address less.
        stage.apply(&sends_one("web", "v1", "Service", "web", &[MEMBER1])).await?;
        has_there(&stage.host, "service/web", ".status.loadBalancer.ingress[*].ip", "192.0.2.2").await?;
        // Those of an Ingress do, too.
        let (version, name) = ("networking.k8s.io/v1", "door");
        stage
            .apply(&json!({"apiVersion": version, "kind": "Ingress", "metadata": {"name": name},
                "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}}))
            .await?;
        stage.apply(&sends_one(name, version, "Ingress", name, &[MEMBER1])).await?;
        let member = member(stage, "member1")?;
        has_there(&member, "ingress/door", ".spec.defaultBackend.service.name", "web").await?;
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.3"}]}}}).to_string();
        let words = ["patch", "ingress", name, "--subresource=status", "--type=merge", "-p", &status];
        member.args(&words).await?;
        has_there(&stage.host, "ingress/door", ".status.loadBalancer.ingress[*].ip", "192.0.2.3").await
    })
    .await
}
