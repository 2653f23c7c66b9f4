//! While a member is joined: what changes without disturbing anybody.

use anyhow::{Result, ensure};
use federlet_e2e::SOON;
use federlet_sandbox::eventually;
use serde_json::json;

use crate::ground::on_ground;

fn sorted(words: &str) -> Vec<&str> {
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.sort_unstable();
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_taints_and_limits_follow_the_cluster_while_it_runs() -> Result<()> {
    on_ground("live", async |ground| {
        ground.join("j-one", "member1", &["--labels", "env=prod"]).await?;
        let (host, uid) = (&ground.host, ground.field("node/j-one", ".metadata.uid").await?);
        host.kubectl_output(&["taint", "node", "j-one", "person=here:NoSchedule"]).await?;
        host.kubectl_output(&["label", "node", "j-one", "mine=yes"]).await?;
        host.kubectl_output(&["label", "cluster", "j-one", "env=test", "--overwrite"]).await?;
        let patch = json!({"spec": {
            "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
            "federlet": {"limits": {"pods": 7}},
        }});
        host.kubectl_output(&["patch", "cluster", "j-one", "--type=merge", "-p", &patch.to_string()]).await?;
        eventually("the node is as its Cluster", SOON, async || {
            let env = ground.field("node/j-one", ".metadata.labels.env").await?;
            let taints = ground.field("node/j-one", ".spec.taints[*].key").await?;
            let pods = ground.field("node/j-one", ".status.allocatable.pods").await?;
            ensure!(env == "test" && pods == "7", "env={env} pods={pods}");
            ensure!(sorted(&taints) == ["person", "team", "virtual-kubelet.io/provider"], "{taints}");
            Ok(())
        })
        .await?;
        let half = json!({"spec": {"federlet": {"limits": {"pods": "50%"}}}}).to_string();
        host.kubectl_output(&["patch", "cluster", "j-one", "--type=merge", "-p", &half]).await?;
        let machines = ["get", "nodes", "-o", "jsonpath={.items[*].status.allocatable.pods}"];
        let machines = ground.member("member1")?.kubectl_output(&machines).await?;
        let all = machines.split_whitespace().map(str::parse::<u32>).sum::<Result<u32, _>>()?;
        eventually("half of what the machines take", SOON, async || {
            let pods: u32 = ground.field("node/j-one", ".status.allocatable.pods").await?.parse()?;
            ensure!(pods == all / 2, "{pods} of {all}");
            Ok(())
        })
        .await?;
        host.kubectl_output(&["label", "cluster", "j-one", "env-"]).await?;
        let patch = json!({"spec": {"taints": null}}).to_string();
        host.kubectl_output(&["patch", "cluster", "j-one", "--type=merge", "-p", &patch]).await?;
        eventually("what was ours is gone, what was theirs is not", SOON, async || {
            let labels = ground.field("node/j-one", ".metadata.labels").await?;
            let taints = ground.field("node/j-one", ".spec.taints[*].key").await?;
            ensure!(!labels.contains("\"env\"") && labels.contains("\"mine\":\"yes\""), "{labels}");
            ensure!(sorted(&taints) == ["person", "virtual-kubelet.io/provider"], "{taints}");
            Ok(())
        })
        .await?;
        ensure!(ground.field("node/j-one", ".metadata.uid").await? == uid, "it is the same node");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_tells_what_the_member_is_and_is_written_only_when_it_changes() -> Result<()> {
    on_ground("status", async |ground| {
        ground.join("j-one", "member1", &[]).await?;
        eventually("the status is complete", SOON, async || {
            let status = ground.field("cluster/j-one", ".status").await?;
            for part in [
                "\"kubernetesVersion\":\"v1.",
                "\"totalNum\":1",
                "\"readyNum\":1",
                "\"allocatable\":{",
                "\"allocated\":{",
                "\"groupVersion\":\"apps/v1\"",
                "\"type\":\"MemberReachable\"",
            ] {
                ensure!(status.contains(part), "{part} is not in {status}");
            }
            Ok(())
        })
        .await?;
        // Others may come and go in the member and change how much room there is; nothing else may.
        let version = async || {
            let path = ".status.conditions[*].lastTransitionTime}{.metadata.generation";
            ground.field("cluster/j-one", path).await
        };
        let before = version().await?;
        tokio::time::sleep(std::time::Duration::from_secs(15)).await;
        ensure!(version().await? == before);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_before_it_ends_and_used_at_once() -> Result<()> {
    on_ground("rotation", async |ground| {
        ground.join("j-one", "member1", &[]).await?;
        let secret = ground.field("cluster/j-one", ".spec.secretRef.name").await?;
        let token = async || {
            let words = ["get", "secret", &secret, "-n", "federlet-system", "-o", "jsonpath={.data.token}"];
            ground.host.kubectl_output(&words).await
        };
        let before = token().await?;
        let due = "federlet.io/rotate-after=2020-01-01T00:00:00Z";
        ground
            .host
            .kubectl_output(&["annotate", "secret", &secret, "-n", "federlet-system", due, "--overwrite"])
            .await?;
        eventually("there is another token", SOON, async || {
            ensure!(token().await? != before, "it is the same");
            Ok(())
        })
        .await?;
        let words =
            ["get", "secret", &secret, "-n", "federlet-system", "-o", "jsonpath={.metadata.annotations}"];
        let noted = ground.host.kubectl_output(&words).await?;
        ensure!(!noted.contains("2020-01-01"), "the next time is noted: {noted}");
        // Without the account's old tokens: whoever makes the account anew makes them worthless.
        let account = ground.member("member1")?.kubectl_output(&["get", "serviceaccounts", "-A"]).await?;
        ensure!(account.contains("federlet-host-"), "{account}");
        ground.is_ready("j-one").await?;
        ground.says("j-one", "MemberReachable", "Reachable").await?;

        // A token that somebody else put there is used as well, and without a restart.
        let account = account.lines().find(|line| line.contains("federlet-host-")).unwrap_or_default();
        let namespace = account.split_whitespace().next().unwrap_or_default().to_owned();
        let member = ground.member("member1")?;
        let other = member.kubectl_output(&["create", "token", "federlet", "-n", &namespace]).await?;
        let patch = json!({"stringData": {"token": "nonsense"}}).to_string();
        ground
            .host
            .kubectl_output(&["patch", "secret", &secret, "-n", "federlet-system", "-p", &patch])
            .await?;
        ground.says("j-one", "MemberReachable", "Unauthorized").await?;
        let patch = json!({"stringData": {"token": other.trim()}}).to_string();
        ground
            .host
            .kubectl_output(&["patch", "secret", &secret, "-n", "federlet-system", "-p", &patch])
            .await?;
        ground.says("j-one", "MemberReachable", "Reachable").await?;
        Ok(())
    })
    .await
}
