use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{BEIJING, HANGZHOU},
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::{
    objects::{pod, spec},
    stage::on_stage,
};

#[tokio::test(flavor = "multi_thread")]
async fn two_regions_of_one_cluster_keep_apart() -> Result<()> {
    on_stage("regions", async |stage| {
        let edge = stage.fleet.sandbox.cluster("edge")?;
        stage.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"a": "b"}})).await?;
        stage.create(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "branch"},
            "spec": {"selector": {"app": "branch"}, "ports": [{"port": 80}]}})).await?;
        for region in [BEIJING, HANGZHOU] {
            let mut object = pod(region, &spec(region, json!({
                "containers": [{"name": "app", "image": "nginx", "envFrom": [{"configMapRef": {"name": "conf"}}]}]})));
            object["metadata"]["labels"] = json!({"app": "branch"});
            stage.create(&object).await?;
        }
        for (region, location) in [(BEIJING, "beijing"), (HANGZHOU, "hangzhou")] {
            stage.ready(region).await?;
            let there = Kubectl::new(edge.clone(), &format!("{}-{region}", stage.namespace));
            let node = there.args(&["get", "pod", region, "-o", "jsonpath={.spec.nodeName}"]).await?;
            let label = edge.kubectl_output(&["get", "node", &node, "-o", "jsonpath={.metadata.labels.location}"]).await?;
            ensure!(label == location, "{region} runs on {node} in {label}");
            there.run("get configmap conf").await?;
            let tolerations = there.args(&["get", "pod", region, "-o", "jsonpath={.spec.tolerations}"]).await?;
            ensure!(tolerations.contains("node.kubernetes.io/unreachable") && !tolerations.contains("tolerationSeconds"), "{tolerations}");
            eventually("the Service followed into the region", SOON, async || {
                let page = stage.exec(region, "timeout 5 wget -qO- http://branch").await?;
                ensure!(page.contains("Welcome"), "{page}");
                let own = there.run("get endpointslices -l kubernetes.io/service-name=branch -o jsonpath={.items[*].endpoints[*].targetRef.name}").await?;
                ensure!(own == region, "it leads to {own}");
                Ok(())
            })
            .await?;
            ensure!(stage.exec(region, "echo $a").await? == "b");
        }
        // Nothing of either is in the namespace of that name itself.
        let none = Kubectl::new(edge, &stage.namespace).run("get pods,services -o name").await?;
        ensure!(none.is_empty(), "{none}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_regions_share_one_watch() -> Result<()> {
    on_stage("shared", async |stage| {
        let edge = stage.fleet.sandbox.cluster("edge")?;
        let begun = jiff::Timestamp::now();
        let watches = eventually("two watches of pods have ended", 3 * SOON, async || {
            let log = std::fs::read_to_string(edge.audit_log())?;
            let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let ours = events.filter(|event| {
                event["verb"] == "watch"
                    && event["objectRef"]["resource"] == "pods"
                    && event["stage"] == "ResponseComplete"
                    && event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("federlet/"))
            });
            let time = |event: &Value, field: &str| event[field].as_str()?.parse::<jiff::Timestamp>().ok();
            let mut all: Vec<_> = ours
                .filter_map(|event| {
                    Some((time(&event, "requestReceivedTimestamp")?, time(&event, "stageTimestamp")?))
                })
                .filter(|(from, _)| *from > begun)
                .collect();
            all.sort();
            ensure!(all.len() > 1, "{} so far", all.len());
            Ok(all)
        })
        .await?;
        // The end of one may be noted a moment after the beginning of the next; two side by side would share far more.
        let moment = jiff::SignedDuration::from_secs(10);
        for pair in watches.windows(2) {
            ensure!(pair[0].1.duration_since(pair[1].0) < moment, "two at a time: {watches:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_too_long_for_a_region_is_cut_and_found_again() -> Result<()> {
    on_stage("long", async |stage| {
        let edge = stage.fleet.sandbox.cluster("edge")?;
        let long = format!("{}-{}", stage.namespace, "x".repeat(61 - stage.namespace.len()));
        stage.fleet.host.kubectl_output(&["create", "namespace", &long]).await?;
        let mapped = async || {
            let path = format!("jsonpath={{.items[?(@.metadata.annotations.federlet\\.io/host-namespace==\"{long}\")].metadata.name}}");
            edge.kubectl_output(&["get", "namespaces", "-l", &format!("federlet.io/node={BEIJING}"), "-o", &path]).await
        };
        let played = async {
            let kubectl = Kubectl::new(stage.fleet.host.clone(), &long);
            crate::objects::create(&kubectl, &pod("deep", &spec(BEIJING, json!({})))).await?;
            kubectl.run("wait pod/deep --for=condition=Ready --timeout=60s").await?;
            let there = mapped().await?;
            ensure!(there.len() == 63 && there.ends_with(&format!("-{BEIJING}")), "{there}");
            ensure!(kubectl.run("exec deep -- hostname").await?.trim() == "deep");
            Ok(())
        }
        .await;
        stage.fleet.host.kubectl_output(&["delete", "namespace", &long, "--timeout=60s"]).await?;
        played?;
        eventually("its namespace in the region is gone", 2 * SOON, async || {
            let there = mapped().await?;
            ensure!(there.is_empty(), "{there} is there");
            Ok(())
        })
        .await
    })
    .await
}
