//! `federlet doctor` names what is wrong, in plain words.

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use federlet_e2e::{
    SOON,
    fleet::{HOST_RIGHTS, Serve},
    here::{address_towards, free_port},
};
use federlet_sandbox::{eventually, up::checkout};
use jiff::{Zoned, tz::TimeZone};
use serde_json::{Value, json};

use crate::{
    conditions::{Written, kubeconfig, server},
    ground::{Ground, on_ground},
    skewed::Skewed,
};

/// What it says when something is wrong.
async fn complaints(ground: &Ground) -> Result<String> {
    Ok(ground.federlet(&["doctor"]).await.err().context("it found nothing")?.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_planted_fault_is_named() -> Result<()> {
    on_ground("doctor", async |ground| {
        // Those of other tests, who are gone.
        unregister(ground).await?;
        let (address, port) = (address_towards(&ground.host).await?, free_port()?.to_string());
        let url = format!("https://{address}:{port}");
        let words = ["--identity", "second", "--webhook-port", &port, "--webhook-url", &url];
        let webhook = Serve::start(&ground.host, "doctor-webhook", &words).await?;
        let played = faults_are_named(ground, &webhook, address).await;
        webhook.terminate().await?;
        unregister(ground).await?;
        // What was taken away from the account of everybody who serves this host.
        ground.host.kubectl_output(&["apply", "-f", HOST_RIGHTS[0]]).await?;
        played
    })
    .await
}

/// Nobody asks a webhook that is gone.
async fn unregister(ground: &Ground) -> Result<()> {
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        ground.host.kubectl_output(&["delete", kind, "federlet", "--ignore-not-found"]).await?;
    }
    Ok(())
}

/// A kubeconfig with a client certificate that ends tomorrow. Who signed it does not matter for that.
fn expiring(config: &Value) -> Result<Value> {
    let tomorrow = Zoned::now().with_time_zone(TimeZone::UTC).tomorrow()?.date();
    let mut params = rcgen::CertificateParams::new(vec![])?;
    let (month, day) = (u8::try_from(tomorrow.month())?, u8::try_from(tomorrow.day())?);
    params.not_after = rcgen::date_time_ymd(tomorrow.year().into(), month, day);
    let key = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let mut config = config.clone();
    config["users"][0]["user"] = json!({
        "client-certificate-data": BASE64_STANDARD.encode(certificate.pem()),
        "client-key-data": BASE64_STANDARD.encode(key.serialize_pem()),
    });
    Ok(config)
}

async fn faults_are_named(ground: &Ground, webhook: &Serve, address: std::net::IpAddr) -> Result<()> {
    ground.join("j-good", "member1", &[]).await?;
    eventually("the webhook is registered and answers", SOON, async || {
        let said = ground.federlet(&["doctor", "--strict"]).await?;
        ensure!(said.contains("✔ host: webhook: the host asks, and is answered"), "{said}");
        Ok(())
    })
    .await?;
    let said = ground.federlet(&["doctor"]).await?;
    for good in [
        "host: API server's certificate",
        "host: webhook's certificate",
        "j-good: kubelet API's certificate",
        "j-good: API server's certificate",
        "j-good: token",
        "j-good: clock",
    ] {
        ensure!(said.contains(&format!("✔ {good}: ")), "{good} is not in:\n{said}");
    }
    ensure!(!said.contains('✘') && said.contains("✔ j-good: kubelet API"), "{said}");
    // What is always there, the documentation shows.
    let shown = std::fs::read_to_string(checkout().join("docs/commands.md"))?;
    for line in said.lines() {
        let check = line.replace("j-good", "member1");
        let check =
            check.trim_start_matches(['✔', '!', ' ']).splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ");
        ensure!(shown.contains(&format!(" {check}: ")), "docs/commands.md does not show {check:?}");
    }
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
    let skewed = Skewed::start(address, 300).await?;
    let faults: [(&str, &str, Value, Value, &str); 9] = [
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
        ("j-short", &here, json!({"token": short.trim()}), insecure.clone(), "token: expires at"),
        ("j-client", &there, text(&expiring(&two)?), json!({}), "client certificate: expires at"),
        ("j-clock", &skewed.url, json!({"token": "any"}), insecure, "behind the host's"),
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
    ground.write(Written { name: "j-secret", endpoint: &there, keys: text(&two), more: json!({}) }).await?;
    ground.host.kubectl_output(&["delete", "secret", "j-secret", "-n", "federlet-system"]).await?;
    // One is of a release, another would be served by a process of its own.
    let helm = ["label", "cluster", "j-token", "app.kubernetes.io/managed-by=Helm"];
    ground.host.kubectl_output(&helm).await?;
    let own = ["annotate", "cluster", "j-short", "federlet.io/served-by=j-short"];
    ground.host.kubectl_output(&own).await?;
    // Somebody took rights away, on both sides.
    let less = r#"[{"op": "remove", "path": "/rules/0"}]"#;
    member.kubectl_output(&["patch", "clusterrole", &role, "--type=json", "-p", less]).await?;
    for role in ["federlet", "federlet:policies"] {
        ground.host.kubectl_output(&["patch", "clusterrole", role, "--type=json", "-p", less]).await?;
    }

    let said = complaints(ground).await?;
    for (name, .., why) in &faults {
        let named = said.lines().any(|line| line.starts_with(&format!("✘ {name}: ")) && line.contains(why));
        ensure!(named, "{name}: {why:?} is not in:\n{said}");
    }
    for why in [
        "✘ j-secret: credentials: there is no Secret federlet-system/j-secret",
        "✘ j-good: rights: our account may not: list nodes, watch nodes",
        "✘ host: rights: the account federlet may not: list clusters",
        "✘ j-short: federlet serve: its own does not run, and no other serves it",
        "patch propagationpolicies/status",
        "helm upgrade j-token charts/member --reset-then-reuse-values --set-file kubeconfig=FILE",
    ] {
        ensure!(said.contains(why), "{why:?} is not in:\n{said}");
    }
    let advised = said.lines().filter(|line| line.contains('→')).count();
    ensure!(
        advised >= said.lines().filter(|line| line.starts_with('✘')).count(),
        "each says what to do:\n{said}"
    );

    ground.serve.terminate().await?;
    webhook.terminate().await?;
    let said = complaints(ground).await?;
    for why in [
        "✘ host: federlet serve: none runs",
        "✘ j-good: kubelet API: the host does not reach it",
        "✘ host: webhook: the host is not answered",
    ] {
        ensure!(said.contains(why), "{why:?} is not in:\n{said}");
    }
    let empty = r#"[{"op": "replace", "path": "/webhooks", "value": []}]"#;
    let words = ["patch", "validatingwebhookconfiguration", "federlet", "--type=json", "-p", empty];
    ground.host.kubectl_output(&words).await?;
    let said = complaints(ground).await?;
    ensure!(said.contains("✘ host: webhook: its registration is not filled in"), "{said}");
    Ok(())
}
