//! Joining again renews the way to a member, and changes nothing else that nobody asked for.

use anyhow::{Result, ensure};

use crate::ground::{Ground, on_ground};

/// What a Cluster says of where it is and who may come.
async fn said(ground: &Ground, name: &str) -> Result<String> {
    let path = "{.metadata.labels.env}|{.metadata.labels.theirs}|{.spec.taints[*].key}|{.spec.provider}|{.spec.region}|\
                {.spec.zones[*]}|{.spec.federlet.limits.cpu}|{.spec.federlet.regionSelector}";
    ground.host.kubectl_output(&["get", "cluster", name, "-o", &format!("jsonpath={path}")]).await
}

async fn token(ground: &Ground) -> Result<String> {
    let path = "jsonpath={.items[0].data.token}";
    ground.host.kubectl_output(&["get", "secrets", "-n", "federlet-system", "-o", path]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_said_again_stays_as_it_was() -> Result<()> {
    on_ground("again", async |ground| {
        let place = ["--labels", "env=prod", "--taints", "team=a:NoSchedule", "--provider", "acme"];
        let flags = [&place[..], &["--region", "north", "--zone", "n1,n2"]].concat();
        ground.join("j-one", "member1", &flags).await?;
        ground.host.kubectl_output(&["label", "cluster", "j-one", "theirs=yes"]).await?;
        let limits = r#"{"spec":{"federlet":{"limits":{"cpu":"50%"}}}}"#;
        ground.host.kubectl_output(&["patch", "cluster", "j-one", "--type=merge", "-p", limits]).await?;
        let before = said(ground, "j-one").await?;
        ensure!(before == "prod|yes|team|acme|north|n1 n2|50%|", "{before}");

        let first = token(ground).await?;
        ground.join("j-one", "member1", &[]).await?;
        ensure!(said(ground, "j-one").await? == before, "{}", said(ground, "j-one").await?);
        ensure!(token(ground).await? != first, "the token is a new one");

        ground.join("j-one", "member1", &["--labels", "env=test", "--region", "south"]).await?;
        let after = said(ground, "j-one").await?;
        ensure!(after == "test|yes|team|acme|south|n1 n2|50%|", "{after}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_joins_again_and_stays_the_region_that_it_is() -> Result<()> {
    on_ground("again-region", async |ground| {
        let region = ["--region-selector", "location=beijing", "--namespace-suffix", "-x"];
        ground.join("j-beijing", "edge", &region).await?;
        let before = said(ground, "j-beijing").await?;
        ground.join("j-beijing", "edge", &[]).await?;
        ensure!(
            said(ground, "j-beijing").await? == before && before.ends_with("|location=beijing"),
            "{before}"
        );

        // What cannot change is refused before the credentials are touched.
        let kept = token(ground).await?;
        let refused = ground.join("j-beijing", "edge", &["--namespace-suffix", "-y"]).await;
        let why = refused.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(why.contains("where namespaces are cannot change"), "{why}");
        ensure!(token(ground).await? == kept);
        Ok(())
    })
    .await
}
