use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{MEMBER1, MEMBER2},
};
use federlet_provider::quantity::Quantity;
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::{
    objects::{create, pod, spec},
    stage::on_stage,
};

const TOLERATES: [(&str, &str); 2] = [("key", "virtual-kubelet.io/provider"), ("operator", "Exists")];

fn anywhere(extra: &Value) -> Value {
    let toleration: Value =
        TOLERATES.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect::<serde_json::Map<_, _>>().into();
    let mut spec = json!({"tolerations": [toleration], "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "app", "image": "nginx"}]});
    if let (Some(spec), Value::Object(extra)) = (spec.as_object_mut(), extra) {
        spec.extend(extra.clone());
    }
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn affinity_and_taints_choose_the_member() -> Result<()> {
    on_stage("affinity", async |stage| {
        let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "type", "operator": "In", "values": ["virtual-kubelet"]},
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [MEMBER2, "nobody"]}]}]}}}});
        stage.create(&pod("chosen", &anywhere(&affinity))).await?;
        stage.ready("chosen").await?;
        ensure!(stage.field("chosen", ".spec.nodeName").await? == MEMBER2);
        // Nothing that does not tolerate the taint ever lands on a member.
        let mut plain = spec(MEMBER1, json!({}));
        plain["tolerations"] = json!([]);
        stage.create(&pod("plain", &plain)).await?;
        stage.says("plain", ".status.conditions[?(@.type==\"PodScheduled\")].reason", "Unschedulable").await?;
        // Spread over members as over any nodes.
        let spread = json!({"nodeSelector": {"node-role.kubernetes.io/cluster": ""},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "spread"}},
                "nodeTaintsPolicy": "Honor"}]});
        for name in ["a", "b"] {
            let mut object = pod(name, &anywhere(&spread));
            object["metadata"]["labels"] = json!({"app": "spread"});
            stage.create(&object).await?;
        }
        stage.ready("a").await?;
        stage.ready("b").await?;
        ensure!(stage.field("a", ".spec.nodeName").await? != stage.field("b", ".spec.nodeName").await?);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_of_one_member_draws_pods_there() -> Result<()> {
    on_stage("gpu", async |stage| {
        let member = stage.fleet.sandbox.cluster("member2")?;
        let resource = "example.com/gpu";
        let machines = member.kubectl_output(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]).await?;
        let patch = |amount: Value| json!({"status": {"capacity": {resource: amount}, "allocatable": {resource: amount}}});
        let set = async |amount: Value| {
            let patch = patch(amount).to_string();
            member.kubectl_output(&["patch", "node", &machines, "--subresource=status", "--type=merge", "-p", &patch]).await
        };
        set(json!("2")).await?;
        let played = async {
            let path = "jsonpath={.status.allocatable.example\\.com/gpu} {.metadata.labels.room\\.federlet\\.io/example\\.com_gpu}";
            eventually("the node offers it", SOON, async || {
                let offered = stage.fleet.host.kubectl_output(&["get", "node", MEMBER2, "-o", path]).await?;
                ensure!(offered == "2 2", "it offers {offered:?}");
                Ok(())
            })
            .await?;
            let asks = json!({"containers": [{"name": "app", "image": "nginx",
                "resources": {"limits": {resource: "1"}, "requests": {resource: "1"}}}]});
            stage.create(&pod("trainer", &anywhere(&asks))).await?;
            stage.ready("trainer").await?;
            ensure!(stage.field("trainer", ".spec.nodeName").await? == MEMBER2);
            eventually("one is left on the largest machine", SOON, async || {
                let offered = stage.fleet.host.kubectl_output(&["get", "node", MEMBER2, "-o", path]).await?;
                ensure!(offered == "2 1", "it offers {offered:?}");
                Ok(())
            })
            .await?;
            stage.host.run("delete pod trainer --timeout=30s").await?;
            Ok(())
        }
        .await;
        set(Value::Null).await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_alone_has_room_for_goes_there() -> Result<()> {
    on_stage("room", async |stage| {
        let offered = async || -> Result<Quantity> {
            let path = "jsonpath={.status.allocatable.cpu}";
            let found = stage.fleet.host.kubectl_output(&["get", "node", MEMBER1, "-o", path]).await?;
            Ok(found.parse()?)
        };
        let (rest, asked): (Quantity, Quantity) = ("400m".parse()?, "600m".parse()?);
        // Somebody in the first member needs nearly all of it.
        let theirs = json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "app", "image": "nginx",
            "resources": {"requests": {"cpu": (offered().await? - rest).to_string()}}}]});
        create(&stage.member, &pod("tenant", &theirs)).await?;
        eventually("the node offers little", SOON, async || {
            let left = offered().await?;
            ensure!(left < asked, "it offers {left}");
            Ok(())
        })
        .await?;
        let asks = json!({"nodeSelector": {"node-role.kubernetes.io/cluster": ""}, "containers": [{"name": "app",
            "image": "nginx", "resources": {"requests": {"cpu": asked.to_string()}}}]});
        stage.create(&pod("large", &anywhere(&asks))).await?;
        stage.ready("large").await?;
        ensure!(stage.field("large", ".spec.nodeName").await? == MEMBER2);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_what_its_member_is() -> Result<()> {
    on_stage("nodes", async |stage| {
        let host = &stage.fleet.host;
        let nodes = host.kubectl_output(&["get", "nodes", "--no-headers"]).await?;
        let line = nodes.lines().find(|line| line.starts_with(MEMBER1)).unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        ensure!(words.get(2) == Some(&"cluster") && words.get(4) == Some(&"v1.35.4"), "{line}");
        let member = stage.fleet.sandbox.cluster("member1")?;
        let sum = |text: String| text.split_whitespace().filter_map(|n| n.parse::<u64>().ok()).sum::<u64>();
        let theirs = sum(member
            .kubectl_output(&["get", "nodes", "-o", "jsonpath={.items[*].status.capacity.cpu}"])
            .await?);
        let ours = sum(host
            .kubectl_output(&["get", "node", MEMBER1, "-o", "jsonpath={.status.capacity.cpu}"])
            .await?);
        ensure!(theirs == ours && ours > 0, "{theirs} CPUs there, {ours} here");
        Ok(())
    })
    .await
}
