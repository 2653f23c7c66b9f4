use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{BEIJING, HANGZHOU},
};
use federlet_sandbox::eventually;
use serde_json::json;

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
