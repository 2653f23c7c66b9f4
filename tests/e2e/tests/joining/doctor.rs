//! `federlet doctor` names what is wrong, in plain words.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    conditions::{Written, kubeconfig, server},
    ground::{Ground, on_ground},
};

/// What it says when something is wrong.
async fn complaints(ground: &Ground) -> Result<String> {
    Ok(ground.federlet(&["doctor"]).await.err().context("it found nothing")?.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_planted_fault_is_named() -> Result<()> {
    on_ground("doctor", async |ground| {
        ground.join("j-good", "member1", &[]).await?;
        let said = ground.federlet(&["doctor"]).await?;
        ensure!(!said.contains('✘') && said.contains("✔ j-good: kubelet API"), "{said}");
        let json: Value = serde_json::from_str(&ground.federlet(&["doctor", "j-good", "-o", "json"]).await?)?;
        ensure!(json[0]["verdict"] == "good" && json[0]["place"] == "host", "{json}");
        let nobody = ground.federlet(&["doctor", "nobody"]).await;
        ensure!(nobody.is_err_and(|error| error.to_string().contains("there is no Cluster nobody")));

        let (member, two) = (ground.member("member1")?, kubeconfig(&ground.member("member2")?)?);
        let (there, here) = (server(&two)?, server(&kubeconfig(&member)?)?);
        let mut plugin = two.clone();
        plugin["users"][0]["user"] =
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}});
        let mut foreign = two.clone();
        foreign["clusters"][0]["cluster"]["certificate-authority-data"] =
            kubeconfig(&member)?["clusters"][0]["cluster"]["certificate-authority-data"].clone();
        let text = |config: &Value| json!({"kubeconfig": config.to_string()});
        let role = [
            "get",
            "clusterroles",
            "-o",
            "jsonpath={.items[?(@.metadata.labels.federlet\\.io/host)].metadata.name}",
        ];
        // The other one collects what people in the member allow.
        let roles = member.kubectl_output(&role).await?;
        let role =
            roles.split_whitespace().find(|name| !name.ends_with("-objects")).context("no role")?.to_owned();
        let short = ["create", "token", "federlet", "-n", &role, "--duration=10m"];
        let short = member.kubectl_output(&short).await?;
        let insecure = json!({"insecureSkipTLSVerification": true});
        let faults: [(&str, &str, Value, Value, &str); 7] = [
            ("j-away", &there.replace(":6443", ":1"), text(&two), json!({}), "does not answer"),
            ("j-name", "https://no-such-name.invalid:6443", text(&two), json!({}), "has no address"),
            ("j-ca", &there, text(&foreign), json!({}), "is not trusted"),
            (
                "j-token",
                &there,
                json!({"token": "nonsense"}),
                insecure.clone(),
                "does not accept our credentials",
            ),
            ("j-plugin", &there, text(&plugin), json!({}), "the kubeconfig uses exec"),
            ("j-short", &here, json!({"token": short.trim()}), insecure, "token: expires at"),
            (
                "j-other",
                &there,
                text(&two),
                json!({"id": "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"}),
                "another cluster answers",
            ),
        ];
        for (name, endpoint, keys, more, _) in faults.clone() {
            ground.write(Written { name, endpoint, keys, more }).await?;
        }
        ground
            .write(Written { name: "j-secret", endpoint: &there, keys: text(&two), more: json!({}) })
            .await?;
        ground.host.kubectl_output(&["delete", "secret", "j-secret", "-n", "federlet-system"]).await?;
        // Somebody took rights away, on both sides.
        let less = r#"[{"op": "remove", "path": "/rules/0"}]"#;
        member.kubectl_output(&["patch", "clusterrole", &role, "--type=json", "-p", less]).await?;
        ground.host.kubectl_output(&["patch", "clusterrole", "federlet", "--type=json", "-p", less]).await?;

        let said = complaints(ground).await?;
        for (name, .., why) in &faults {
            let named =
                said.lines().any(|line| line.starts_with(&format!("✘ {name}: ")) && line.contains(why));
            ensure!(named, "{name}: {why:?} is not in:\n{said}");
        }
        for why in [
            "✘ j-secret: credentials: there is no Secret federlet-system/j-secret",
            "✘ j-good: rights: our account may not: list nodes, watch nodes",
            "✘ host: rights: the account federlet may not: list clusters",
        ] {
            ensure!(said.contains(why), "{why:?} is not in:\n{said}");
        }
        let advised = said.lines().filter(|line| line.contains('→')).count();
        ensure!(
            advised >= said.lines().filter(|line| line.starts_with('✘')).count(),
            "each says what to do:\n{said}"
        );

        ground.serve.terminate().await?;
        let said = complaints(ground).await?;
        for why in ["✘ host: federlet serve: none runs", "✘ j-good: kubelet API: the host does not reach it"]
        {
            ensure!(said.contains(why), "{why:?} is not in:\n{said}");
        }
        Ok(())
    })
    .await
}
