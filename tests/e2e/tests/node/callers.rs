//! Who may call the kubelet API of a virtual node, and who may not.

use anyhow::{Context, Result, ensure};
use federlet_e2e::Kubectl;
use federlet_sandbox::{Cluster, Sandbox, eventually};
use http::{Request, StatusCode};
use kube::{
    Client, Config,
    client::Body,
    config::{AuthInfo, Kubeconfig},
};
use serde_json::json;

use super::{
    objects::{create, pod, spec},
    process::Process,
};

/// A client of the kubelet API with these credentials, which trusts the host's CA.
async fn caller(host: &Cluster, node: &Process, credentials: Credentials) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(host.admin_kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    config.cluster_url = format!("https://{}:{}", node.address, node.port).parse()?;
    config.default_retry = false;
    config.auth_info = match credentials {
        Credentials::Admin => config.auth_info,
        Credentials::None => AuthInfo::default(),
        Credentials::Token(token) => AuthInfo { token: Some(token.into()), ..AuthInfo::default() },
        Credentials::Stranger => stranger()?,
    };
    Ok(Client::try_from(config)?)
}

enum Credentials {
    Admin,
    None,
    Token(String),
    Stranger,
}

/// A certificate that says the right things and is signed by nobody.
fn stranger() -> Result<AuthInfo> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "kubernetes-admin");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let folder = std::env::temp_dir().join(format!("federlet-e2e-stranger-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (certificate, private) = (folder.join("certificate"), folder.join("key"));
    std::fs::write(&certificate, params.self_signed(&key)?.pem())?;
    std::fs::write(&private, key.serialize_pem())?;
    Ok(AuthInfo {
        client_certificate: Some(certificate.display().to_string()),
        client_key: Some(private.display().to_string()),
        ..AuthInfo::default()
    })
}

async fn ask(client: &Client, path: &str, upgrade: bool) -> Result<StatusCode> {
    let mut request = Request::get(path);
    if upgrade {
        request = request
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", "v5.channel.k8s.io");
    }
    Ok(client.send(request.body(Body::empty())?).await?.status())
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_are_known_and_may_only_do_what_they_may() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::start(&host, "e2e-callers").await?;
    sandbox
        .in_namespace("callers", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            create(&kubectl, &pod("p", &spec(&node.name, json!({})))).await?;
            kubectl.run("wait pod/p --for=condition=Ready --timeout=60s").await?;
            let namespace = &space.namespace;
            let log = format!("/containerLogs/{namespace}/p/app?tailLines=1");
            let streams = [
                format!("/exec/{namespace}/p/app?command=id&output=1"),
                format!("/attach/{namespace}/p/app?output=1"),
                format!("/portForward/{namespace}/p"),
            ];

            let admin = caller(&host, &node, Credentials::Admin).await?;
            ensure!(ask(&admin, "/pods", false).await? == StatusCode::OK);
            ensure!(ask(&admin, &log, false).await? == StatusCode::OK);
            ensure!(ask(&admin, "/stats/../pods", false).await? == StatusCode::NOT_FOUND);
            ensure!(
                ask(&admin, &streams[0], true).await? == StatusCode::NOT_IMPLEMENTED,
                "it may; there is no exec"
            );

            for credentials in
                [Credentials::None, Credentials::Stranger, Credentials::Token("nonsense".into())]
            {
                let nobody = caller(&host, &node, credentials).await?;
                for path in ["/pods", "/healthz", "/metrics", "/no/such/path", &log, &streams[0]] {
                    let answer = ask(&nobody, path, false).await?;
                    ensure!(answer == StatusCode::UNAUTHORIZED, "{path}: {answer}");
                }
            }

            kubectl.run("create serviceaccount poor").await?;
            let poor = kubectl.run("create token poor").await?.trim().to_owned();
            let poor = caller(&host, &node, Credentials::Token(poor)).await?;
            ensure!(ask(&poor, "/pods", false).await? == StatusCode::FORBIDDEN);
            ensure!(
                ask(&poor, "/no/such/path", false).await? == StatusCode::FORBIDDEN,
                "what is there is not told"
            );

            kubectl.run("create serviceaccount reader").await?;
            let role = format!("{namespace}-reader");
            kubectl.args(&["create", "clusterrole", &role, "--verb=get", "--resource=nodes/proxy"]).await?;
            let account = format!("--serviceaccount={namespace}:reader");
            let bound = format!("--clusterrole={role}");
            kubectl.args(&["create", "clusterrolebinding", &role, &bound, &account]).await?;
            let reader = kubectl.run("create token reader").await?.trim().to_owned();
            let reader = caller(&host, &node, Credentials::Token(reader)).await?;
            eventually("the right arrives", federlet_e2e::SOON, async || {
                let answer = ask(&reader, &log, false).await?;
                ensure!(answer == StatusCode::OK, "{answer}");
                Ok(())
            })
            .await?;
            ensure!(ask(&reader, "/stats/summary", false).await? == StatusCode::FORBIDDEN);
            // A websocket is a GET, and runs a command all the same.
            for path in &streams {
                let answer = ask(&reader, path, true).await?;
                ensure!(answer == StatusCode::FORBIDDEN, "{path}: {answer}");
            }
            kubectl.args(&["delete", "clusterrole,clusterrolebinding", &role]).await?;
            Ok(())
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}
