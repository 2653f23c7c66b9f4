//! What goes along with pods, between two real clusters: objects they refer to, tokens, and what becomes of them.

#[path = "follow/again.rs"]
mod again;
#[path = "follow/claims.rs"]
mod claims;
#[path = "follow/events.rs"]
mod events;
#[path = "follow/services.rs"]
mod services;
#[path = "follow/stage.rs"]
mod stage;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use federlet_e2e::SOON;
use federlet_node::contract::ProviderError;
use federlet_provider::{follow::FollowSettings, marks};
use federlet_sandbox::{Sandbox, eventually};
use k8s_openapi::api::{authentication::v1::TokenReview, core::v1::Secret};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use stage::{QUICK, Stage};

/// What is promised for a change to be in the member.
const CHANGE: Duration = Duration::from_secs(5);

/// Runs a test between host and member, in a namespace and with a node of its own.
async fn staged(prefix: &str, test: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    sandbox
        .in_namespace(&format!("f-{prefix}"), async |space| {
            let stage = Stage::new(sandbox, &space.namespace).await?;
            let outcome = test(&stage).await;
            stage.end().await;
            outcome
        })
        .await
}

fn env_from(config_map: &str, optional: bool) -> Value {
    json!({ "containers": [{
        "name": "app", "image": "nginx", "envFrom": [{ "configMapRef": { "name": config_map, "optional": optional } }],
    }] })
}

/// Names of Secrets in the member that hold a token.
async fn token_secrets(stage: &Stage) -> Result<Vec<Secret>> {
    let secrets: Api<Secret> = Api::namespaced(stage.member.client.clone(), &stage.member.namespace);
    let mut all = secrets.list(&kube::api::ListParams::default()).await?.items;
    all.retain(|secret| secret.metadata.name.as_deref().is_some_and(|name| name.contains("-token-")));
    Ok(all)
}

fn token(secret: &Secret) -> Result<String> {
    let data = secret.data.as_ref().and_then(|data| data.get("token")).context("no token")?;
    Ok(String::from_utf8(data.0.clone())?)
}

/// Whom the host takes the bearer of a token for.
async fn review(stage: &Stage, token: &str, audience: Option<&str>) -> Result<Value> {
    let audiences: Vec<&str> = audience.into_iter().collect();
    let review: TokenReview = serde_json::from_value(
        json!({ "metadata": {}, "spec": { "token": token, "audiences": audiences } }),
    )?;
    let answer =
        Api::<TokenReview>::all(stage.host.client.clone()).create(&PostParams::default(), &review).await?;
    Ok(serde_json::to_value(answer.status)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_refers_to_is_there_first_and_nothing_else_is() -> Result<()> {
    staged("refer", async |stage| {
        let running = stage.start(QUICK).await?;
        for name in ["env", "env-from", "volume", "projected"] {
            stage.host.create(&stage.config_map(&format!("c-{name}"), name)).await?;
            stage.host.create(&stage.secret(&format!("s-{name}"), name)).await?;
        }
        stage.host.create(&stage.secret("pull", "registry")).await?;
        stage.host.create(&stage.secret("private", "of nobody's business")).await?;
        stage.host.create(&stage.config_map("private", "of nobody's business")).await?;
        let spec = json!({
            "imagePullSecrets": [{ "name": "pull" }],
            "containers": [{
                "name": "app", "image": "nginx",
                "env": [
                    { "name": "A", "valueFrom": { "configMapKeyRef": { "name": "c-env", "key": "key" } } },
                    { "name": "B", "valueFrom": { "secretKeyRef": { "name": "s-env", "key": "key" } } },
                ],
                "envFrom": [{ "configMapRef": { "name": "c-env-from" } }, { "secretRef": { "name": "s-env-from" } }],
            }],
            "volumes": [
                { "name": "c", "configMap": { "name": "c-volume" } },
                { "name": "s", "secret": { "secretName": "s-volume" } },
                { "name": "p", "projected": { "sources": [
                    { "configMap": { "name": "c-projected" } },
                    { "secret": { "name": "s-projected" } },
                    { "serviceAccountToken": { "path": "vault", "audience": "vault", "expirationSeconds": 7200 } },
                ] } },
            ],
        });
        let pod = stage.pod("web", &spec).await?;
        running.bring(&pod).await?;

        for name in ["env", "env-from", "volume", "projected"] {
            stage.expect(&format!("c-{name}"), name).await?;
            let secret = stage.member.get("Secret", &format!("s-{name}")).await?.context("no Secret")?;
            let original = stage.host.get("Secret", &format!("s-{name}")).await?.context("no original")?;
            ensure!(secret["data"] == original["data"] && secret["type"] == original["type"]);
            ensure!(marks::label(&secret, marks::HOST_UID) == original["metadata"]["uid"].as_str());
            ensure!(secret["metadata"]["ownerReferences"][0]["controller"] == true);
        }
        ensure!(stage.member.get("Secret", "pull").await?.is_some());
        for kind in ["Secret", "ConfigMap"] {
            ensure!(stage.member.get(kind, "private").await?.is_none(), "nobody refers to it");
        }

        // The host's certificate under another name; the member's own is left alone.
        let roots = stage.member.versions().await?;
        let root = roots.iter().find(|line| line.contains("federlet-root-ca-")).context("no certificate")?;
        let root = stage.member.get("ConfigMap", root.split(' ').nth(1).unwrap_or_default()).await?.context("gone")?;
        let original = stage.host.get("ConfigMap", "kube-root-ca.crt").await?.context("no original")?;
        ensure!(root["data"] == original["data"]);

        let tokens = token_secrets(stage).await?;
        ensure!(tokens.len() == 2, "{} tokens", tokens.len());
        let mut users = vec![];
        for secret in &tokens {
            for audience in [None, Some("vault")] {
                let review = review(stage, &token(secret)?, audience).await?;
                if review["authenticated"] == true {
                    let extra = &review["user"]["extra"];
                    ensure!(extra["authentication.kubernetes.io/pod-uid"][0] == pod.uid(), "{extra}");
                    users.push((audience, review["user"]["username"].as_str().unwrap_or_default().to_owned()));
                }
            }
        }
        users.sort();
        let account = format!("system:serviceaccount:{}:default", stage.host.namespace);
        ensure!(users == [(None, account.clone()), (Some("vault"), account)], "{users:?}");

        // Asking again costs nothing.
        let requests = running.requests();
        running.bring(&pod).await?;
        ensure!(running.requests() == requests, "{} more requests", running.requests() - requests);
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_reach_the_member() -> Result<()> {
    staged("change", async |stage| {
        let running = stage.start(QUICK).await?;
        let mut frozen = stage.config_map("frozen", "one");
        frozen["immutable"] = true.into();
        stage.host.create(&stage.config_map("plain", "one")).await?;
        stage.host.create(&frozen).await?;
        let spec = json!({ "containers": [{ "name": "app", "image": "nginx", "envFrom": [
            { "configMapRef": { "name": "plain" } },
            { "configMapRef": { "name": "frozen" } },
            { "configMapRef": { "name": "late", "optional": true } },
        ] }] });
        let pod = stage.pod("web", &spec).await?;
        running.bring(&pod).await?;
        ensure!(stage.member.get("ConfigMap", "late").await?.is_none());

        stage.host.patch("ConfigMap", "plain", &json!({ "data": { "key": "two" } })).await?;
        eventually("a change is there", CHANGE, async || stage.expect("plain", "two").await).await?;

        stage.host.create(&stage.config_map("late", "one")).await?;
        eventually("an optional one is there when it appears", CHANGE, async || {
            stage.expect("late", "one").await
        })
        .await?;

        stage.host.delete("ConfigMap", "frozen").await?;
        frozen["data"]["key"] = "two".into();
        stage.host.create(&frozen).await?;
        eventually("an immutable one is made again", CHANGE, async || stage.expect("frozen", "two").await)
            .await?;
        let copy = stage.member.get("ConfigMap", "frozen").await?.context("gone")?;
        ensure!(copy["immutable"] == true);

        // What somebody does to a copy does not last.
        stage.member.patch("ConfigMap", "plain", &json!({ "data": { "key": "theirs" } })).await?;
        eventually("a changed copy is put right", CHANGE, async || stage.expect("plain", "two").await)
            .await?;
        stage.member.delete("ConfigMap", "plain").await?;
        eventually("a deleted copy comes back", CHANGE, async || stage.expect("plain", "two").await).await?;
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_lost_stays_for_those_that_use_it() -> Result<()> {
    staged("lost", async |stage| {
        let running = stage.start(QUICK).await?;
        stage.host.create(&stage.config_map("shared", "one")).await?;
        let old = stage.pod("old", &env_from("shared", false)).await?;
        running.bring(&old).await?;
        stage.host.delete("ConfigMap", "shared").await?;
        let new = stage.pod("new", &env_from("shared", false)).await?;
        let refusal = eventually("a new pod does not start without it", SOON, async || {
            match running.bring(&new).await {
                Err(refusal) => Ok(refusal),
                Ok(()) => Err("it does"),
            }
        })
        .await?;
        ensure!(refusal.reason() == "MandatoryConfigMapNotFound", "{refusal}");
        ensure!(refusal.to_string().contains("shared"), "{refusal}");
        running.bring(&old).await?;
        stage.expect("shared", "one").await?;

        stage.host.create(&stage.config_map("shared", "two")).await?;
        eventually("it is followed again", CHANGE, async || stage.expect("shared", "two").await).await?;
        running.bring(&new).await?;
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_is_left_alone() -> Result<()> {
    staged("foreign", async |stage| {
        let running = stage.start(QUICK).await?;
        let theirs = stage.member.create(&stage.config_map("shared", "theirs")).await?;
        for (name, optional) in [("with-original", false), ("without-original", true)] {
            if !optional {
                stage.host.create(&stage.config_map("shared", "ours")).await?;
            }
            let pod = stage.pod(name, &env_from("shared", optional)).await?;
            let refusal = running.bring(&pod).await.expect_err("it has the name of something else");
            ensure!(matches!(refusal, ProviderError::AlreadyExists { .. }), "{refusal:?}");
            ensure!(refusal.to_string().contains("ConfigMap shared"), "{refusal}");
            running.follow.release(pod.id());
            if !optional {
                stage.host.delete("ConfigMap", "shared").await?;
            }
        }
        // Nor is it collected.
        tokio::time::sleep(QUICK.linger * 3).await;
        let still = stage.member.get("ConfigMap", "shared").await?.context("it is gone")?;
        ensure!(still["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]);

        let kept = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": "account", "namespace": stage.host.namespace,
                "annotations": { "kubernetes.io/service-account.name": "default" },
            },
        });
        stage.host.create(&kept).await?;
        let spec = json!({ "volumes": [{ "name": "s", "secret": { "secretName": "account" } }] });
        let pod = stage.pod("nosy", &spec).await?;
        let refusal = running.bring(&pod).await.expect_err("an account's token must stay on the host");
        ensure!(refusal.reason() == "StaysOnHost", "{refusal}");
        ensure!(stage.member.get("Secret", "account").await?.is_none());
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_go_with_the_last_pod_that_needs_them() -> Result<()> {
    staged("release", async |stage| {
        let running = stage.start(QUICK).await?;
        stage.host.create(&stage.config_map("shared", "one")).await?;
        stage.host.create(&stage.config_map("own", "one")).await?;
        let first = stage
            .pod(
                "first",
                &json!({ "containers": [{ "name": "app", "image": "nginx", "envFrom": [
            { "configMapRef": { "name": "shared" } }, { "configMapRef": { "name": "own" } },
        ] }] }),
            )
            .await?;
        let second = stage.pod("second", &env_from("shared", false)).await?;
        running.bring(&first).await?;
        running.bring(&second).await?;
        ensure!(token_secrets(stage).await?.len() == 2);

        running.follow.release(first.id());
        eventually("what only the first needed is gone", SOON, async || {
            ensure!(stage.member.get("ConfigMap", "own").await?.is_none(), "its ConfigMap is there");
            ensure!(token_secrets(stage).await?.len() == 1, "its token is there");
            Ok(())
        })
        .await?;
        stage.expect("shared", "one").await?;

        running.follow.release(second.id());
        eventually("nothing is left", SOON, async || {
            let left = stage.member.versions().await?;
            // The anchor stays: it is the owner of all that comes next.
            ensure!(
                left.iter().all(|line| line.starts_with("ConfigMap federlet-") && !line.contains("root-ca")),
                "{left:?}"
            );
            Ok(())
        })
        .await?;
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_writes_nothing_and_collects_what_was_left() -> Result<()> {
    staged("restart", async |stage| {
        let running = stage.start(QUICK).await?;
        for name in ["kept", "left"] {
            stage.host.create(&stage.config_map(name, "one")).await?;
        }
        let kept = stage.pod("kept", &env_from("kept", false)).await?;
        let left = stage.pod("left", &env_from("left", false)).await?;
        running.bring(&kept).await?;
        running.bring(&left).await?;
        running.stop().await?;
        let before = stage.member.versions().await?;

        // A pod and what it needs, and nothing else to do.
        let running = stage.start(FollowSettings { sweep: Duration::from_millis(200), ..QUICK }).await?;
        running.bring(&kept).await?;
        running.bring(&left).await?;
        tokio::time::sleep(QUICK.linger * 3).await;
        ensure!(stage.member.versions().await? == before);
        ensure!(running.writes() == 0, "{} writes", running.writes());
        running.stop().await?;

        // One goes while nobody looks. The other is not asked about, but the host has it.
        stage.host.delete("Pod", "left").await?;
        let running = stage.start(QUICK).await?;
        eventually("what it needed is gone", SOON, async || {
            ensure!(stage.member.get("ConfigMap", "left").await?.is_none(), "its ConfigMap is there");
            ensure!(token_secrets(stage).await?.len() == 1, "its token is there");
            Ok(())
        })
        .await?;
        stage.expect("kept", "one").await?;
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_replaced_in_time_and_not_for_nothing() -> Result<()> {
    staged("token", async |stage| {
        // 600 s is the shortest that API servers grant; this replaces it after 6 s.
        let running = stage.start(FollowSettings { token_life_used: 0.01, ..QUICK }).await?;
        let spec = json!({ "automountServiceAccountToken": false, "volumes": [{ "name": "t", "projected": { "sources": [
            { "serviceAccountToken": { "path": "token", "expirationSeconds": 600 } },
        ] } }] });
        let pod = stage.pod("web", &spec).await?;
        running.bring(&pod).await?;
        let only = async || -> Result<Secret> {
            let mut secrets = token_secrets(stage).await?;
            ensure!(secrets.len() == 1, "{} tokens", secrets.len());
            secrets.pop().context("none")
        };
        let first = token(&only().await?)?;
        let second = eventually("another one comes", SOON, async || {
            let now = token(&only().await?)?;
            ensure!(now != first, "it is the same");
            Ok(now)
        })
        .await?;
        ensure!(review(stage, &second, None).await?["authenticated"] == true);
        running.stop().await?;

        let before = stage.member.versions().await?;
        let running = stage.start(QUICK).await?;
        running.bring(&pod).await?;
        ensure!(stage.member.versions().await? == before, "a token was made for nothing");
        ensure!(running.writes() == 0);

        stage.host.delete("Pod", "web").await?;
        running.follow.release(pod.id());
        eventually("the token is gone", SOON, async || {
            ensure!(token_secrets(stage).await?.is_empty(), "it is there");
            Ok(())
        })
        .await?;
        running.stop().await
    })
    .await
}
