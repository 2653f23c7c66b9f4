//! What pods need again soon after the last one that did: it may be another by then.

use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_node::contract::Pod;
use federlet_provider::follow::FollowSettings;
use federlet_sandbox::eventually;
use serde_json::json;

use super::{
    CHANGE, env_from,
    stage::{QUICK, Running, Stage},
    staged,
};

/// Copies stay, whoever needs them.
const PATIENT: FollowSettings = FollowSettings { linger: Duration::from_secs(600), ..QUICK };

/// Time for a change to be heard of. If it takes longer, the pod that comes next hears of it after it was started.
const HEARD: Duration = Duration::from_secs(1);

async fn end(stage: &Stage, running: &Running, pod: &Pod) -> Result<()> {
    stage.host.delete("Pod", pod.key().name()).await?;
    running.follow.release(pod.id());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_while_nobody_needed_it_is_brought_again() -> Result<()> {
    staged("again", async |stage| {
        let running = stage.start(PATIENT).await?;
        stage.host.create(&stage.config_map("settings", "one")).await?;
        let first = stage.pod("first", &env_from("settings", false)).await?;
        running.bring(&first).await?;
        stage.expect("settings", "one").await?;

        // Scaled to zero, edited, scaled up.
        end(stage, &running, &first).await?;
        stage.host.patch("ConfigMap", "settings", &json!({ "data": { "key": "two" } })).await?;
        tokio::time::sleep(HEARD).await;
        let second = stage.pod("second", &env_from("settings", false)).await?;
        running.bring(&second).await?;
        eventually("it has what was edited", CHANGE, async || stage.expect("settings", "two").await).await?;

        // Uninstalled and installed again: the object goes before the pod does.
        stage.host.delete("ConfigMap", "settings").await?;
        tokio::time::sleep(HEARD).await;
        end(stage, &running, &second).await?;
        stage.host.create(&stage.config_map("settings", "three")).await?;
        tokio::time::sleep(HEARD).await;
        let third = stage.pod("third", &env_from("settings", false)).await?;
        running.bring(&third).await?;
        eventually("it has the new one", CHANGE, async || stage.expect("settings", "three").await).await?;

        // Somebody took the copy away meanwhile.
        end(stage, &running, &third).await?;
        stage.member.delete("ConfigMap", "settings").await?;
        tokio::time::sleep(HEARD).await;
        let fourth = stage.pod("fourth", &env_from("settings", false)).await?;
        running.bring(&fourth).await?;
        eventually("it is there", CHANGE, async || stage.expect("settings", "three").await).await?;

        // Nothing changed: nothing is asked.
        end(stage, &running, &fourth).await?;
        let fifth = stage.pod("fifth", &env_from("settings", false)).await?;
        let before = stage.member.get("ConfigMap", "settings").await?;
        running.bring(&fifth).await?;
        ensure!(stage.member.get("ConfigMap", "settings").await? == before, "it was written again");
        running.stop().await
    })
    .await
}
