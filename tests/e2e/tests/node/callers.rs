//! Who may call the kubelet API of a virtual node, and who may not.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use http::{Request, StatusCode};
use kube::{Client, client::Body, config::AuthInfo};
use serde_json::json;

use super::{
    authority::Authority,
    embedded::config,
    objects::{create, pod, spec},
    process::Process,
    tokens::dated,
};

/// A client of a kubelet API with these credentials, which trusts the host's CA.
pub(crate) async fn caller(
    host: &Cluster,
    address: IpAddr,
    port: u16,
    credentials: Credentials<'_>,
) -> Result<Client> {
    let mut config = config(host).await?;
    config.cluster_url = format!("https://{}", SocketAddr::new(address, port)).parse()?;
    config.default_retry = false;
    config.auth_info = match credentials {
        Credentials::Admin => config.auth_info,
        Credentials::None => AuthInfo::default(),
        Credentials::Token(token) => AuthInfo { token: Some(token.into()), ..AuthInfo::default() },
        Credentials::Certificate(info) => info.clone(),
    };
    Ok(Client::try_from(config)?)
}

pub(crate) enum Credentials<'a> {
    Admin,
    None,
    Token(String),
    Certificate(&'a AuthInfo),
}

pub(crate) async fn ask(client: &Client, path: &str, upgrade: bool) -> Result<StatusCode> {
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
            kubectl.run("create serviceaccount poor").await?;
            let called = Called { host: &host, node: &node, kubectl: &kubectl, namespace: &space.namespace };
            called.by_an_administrator().await?;
            called.by_nobody().await.context("nobody")?;
            called.by_somebody_without_rights().await.context("without rights")?;
            called.by_somebody_with_some_rights().await.context("some rights")
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}

struct Called<'a> {
    host: &'a Cluster,
    node: &'a Process,
    kubectl: &'a Kubectl,
    namespace: &'a str,
}

impl Called<'_> {
    async fn by(&self, credentials: Credentials<'_>) -> Result<Client> {
        caller(self.host, self.node.address, self.node.port, credentials).await
    }

    fn log(&self) -> String {
        format!("/containerLogs/{}/p/app?tailLines=1", self.namespace)
    }

    fn streams(&self) -> [String; 3] {
        let namespace = self.namespace;
        [
            format!("/exec/{namespace}/p/app?command=id&output=1"),
            format!("/attach/{namespace}/p/app?output=1"),
            format!("/portForward/{namespace}/p"),
        ]
    }

    async fn by_an_administrator(&self) -> Result<()> {
        let authority = Authority::of(self.host)?;
        let fresh = authority.administrator(-60, 600)?;
        for credentials in [Credentials::Admin, Credentials::Certificate(&fresh.credentials())] {
            let admin = self.by(credentials).await?;
            ensure!(ask(&admin, "/pods", false).await? == StatusCode::OK);
            ensure!(ask(&admin, &self.log(), false).await? == StatusCode::OK);
            ensure!(ask(&admin, "/stats/../pods", false).await? == StatusCode::NOT_FOUND);
            for path in self.streams() {
                let answer = ask(&admin, &path, true).await?;
                ensure!(answer == StatusCode::NOT_IMPLEMENTED, "it may, but there is none: {answer}");
            }
        }
        Ok(())
    }

    async fn by_nobody(&self) -> Result<()> {
        let authority = Authority::of(self.host)?;
        let expired = authority.administrator(-600, -60)?;
        let early = authority.administrator(600, 6000)?;
        let stranger = Authority::stranger()?.administrator(-60, 600)?;
        let token = self.kubectl.run("create token poor").await?.trim().to_owned();
        let expired_token = dated(self.host, &token, -60)?;
        let known = self.by(Credentials::Token(dated(self.host, &token, 600)?)).await?;
        let answer = ask(&known, "/pods", false).await?;
        ensure!(answer == StatusCode::FORBIDDEN, "the same token before it expires: {answer}");
        for (who, credentials) in [
            ("without credentials", Credentials::None),
            ("of another CA", Credentials::Certificate(&stranger.credentials())),
            ("with an expired certificate", Credentials::Certificate(&expired.credentials())),
            ("with a certificate of tomorrow", Credentials::Certificate(&early.credentials())),
            ("with an expired token", Credentials::Token(expired_token)),
            ("with nonsense for a token", Credentials::Token("nonsense".into())),
        ] {
            let nobody = self.by(credentials).await?;
            let streams = self.streams();
            for path in ["/pods", "/healthz", "/metrics", "/no/such/path", &self.log(), &streams[0]] {
                for upgrade in [false, true] {
                    let answer = ask(&nobody, path, upgrade).await?;
                    ensure!(answer == StatusCode::UNAUTHORIZED, "{who}: {path}: {answer}");
                }
            }
        }
        Ok(())
    }

    async fn by_somebody_without_rights(&self) -> Result<()> {
        let token = self.kubectl.run("create token poor").await?.trim().to_owned();
        let poor = self.by(Credentials::Token(token)).await?;
        let streams = self.streams();
        for path in ["/pods", "/healthz", "/metrics", "/stats/summary", &self.log(), &streams[0]] {
            ensure!(ask(&poor, path, false).await? == StatusCode::FORBIDDEN, "{path}");
        }
        let nowhere = ask(&poor, "/no/such/path", false).await?;
        ensure!(nowhere == StatusCode::FORBIDDEN, "what is there is not told");
        Ok(())
    }

    /// One who may read through the node but run nothing in it; and then one who may.
    async fn by_somebody_with_some_rights(&self) -> Result<()> {
        let reader = self.somebody("reader", "get", "nodes/proxy").await?;
        self.may(&reader, &self.log()).await?;
        ensure!(ask(&reader, "/stats/summary", false).await? == StatusCode::FORBIDDEN);
        // A websocket is a GET, and runs a command all the same.
        for path in self.streams() {
            let answer = ask(&reader, &path, true).await?;
            ensure!(answer == StatusCode::FORBIDDEN, "{path}: {answer}");
        }
        let meter = self.somebody("meter", "get", "nodes/stats,nodes/metrics").await?;
        self.may(&meter, "/stats/summary").await?;
        self.may(&meter, "/metrics/resource").await?;
        ensure!(ask(&meter, "/pods", false).await? == StatusCode::FORBIDDEN);
        let worker = self.somebody("worker", "create", "nodes/proxy").await?;
        for path in self.streams() {
            eventually("the right arrives", SOON, async || {
                let answer = ask(&worker, &path, true).await?;
                ensure!(answer == StatusCode::NOT_IMPLEMENTED, "{path}: {answer}");
                Ok(())
            })
            .await?;
        }
        ensure!(ask(&worker, &self.log(), false).await? == StatusCode::FORBIDDEN);
        for name in ["reader", "meter", "worker"] {
            let role = format!("{}-{name}", self.namespace);
            self.kubectl.args(&["delete", "clusterrole,clusterrolebinding", &role]).await?;
        }
        Ok(())
    }

    /// A service account with one right.
    async fn somebody(&self, name: &str, verb: &str, resource: &str) -> Result<Client> {
        let (kubectl, role) = (self.kubectl, format!("{}-{name}", self.namespace));
        kubectl.args(&["create", "serviceaccount", name]).await?;
        let (verb, resource) = (format!("--verb={verb}"), format!("--resource={resource}"));
        kubectl.args(&["create", "clusterrole", &role, &verb, &resource]).await?;
        let account = format!("--serviceaccount={}:{name}", self.namespace);
        let bound = format!("--clusterrole={role}");
        kubectl.args(&["create", "clusterrolebinding", &role, &bound, &account]).await?;
        let token = kubectl.args(&["create", "token", name]).await?.trim().to_owned();
        self.by(Credentials::Token(token)).await
    }

    async fn may(&self, client: &Client, path: &str) -> Result<()> {
        eventually("the right arrives", SOON, async || {
            let answer = ask(client, path, false).await?;
            ensure!(answer == StatusCode::OK, "{path}: {answer}");
            Ok(())
        })
        .await
    }
}

/// Somebody who may ask the host nothing about others cannot know who calls.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_way_to_know_who_calls_it_does_not_start() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let nobody = Authority::of(&host)?.client("nobody", "nobodies", -60, 600)?;
    let mut node = Process::new(&host, "e2e-blind").await?.acting_as(&nobody)?;
    node.restart().await?;
    let ended = node.ends().await?;
    let log = node.log();
    ensure!(!ended.success() && log.contains("no way to authenticate anybody"), "{ended}: {log}");
    // Who can know it, but not ask whether they may, does not start either.
    let ca = host.certificates().certificate("ca").display().to_string();
    let mut node =
        Process::new(&host, "e2e-blind").await?.acting_as(&nobody)?.with(&["--client-ca-file", &ca]);
    node.restart().await?;
    let ended = node.ends().await?;
    let log = node.log();
    ensure!(!ended.success() && log.contains("SubjectAccessReviews"), "{ended}: {log}");
    Ok(())
}

/// A CA that the host publishes beside its own, as when it changes from one to the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_client_ca_of_the_host_counts_at_once() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::start(&host, "e2e-newca").await?;
    let next = Authority::stranger()?;
    let administrator = next.administrator(-60, 600)?;
    let client =
        caller(&host, node.address, node.port, Credentials::Certificate(&administrator.credentials()))
            .await?;
    ensure!(ask(&client, "/healthz", false).await? == StatusCode::UNAUTHORIZED);
    let before = published_ca(&host).await?;
    publish_ca(&host, &format!("{before}{}", next.pem())).await?;
    let accepted = eventually("it is accepted", SOON, async || {
        let answer = ask(&client, "/healthz", false).await?;
        ensure!(answer == StatusCode::OK, "{answer}");
        Ok(())
    })
    .await;
    publish_ca(&host, &before).await?;
    accepted?;
    eventually("it is accepted no more", SOON, async || {
        let answer = ask(&client, "/healthz", false).await?;
        ensure!(answer == StatusCode::UNAUTHORIZED, "{answer}");
        Ok(())
    })
    .await?;
    node.finish().await
}

const CA: [&str; 4] = ["-n", "kube-system", "configmap", "extension-apiserver-authentication"];

async fn published_ca(host: &Cluster) -> Result<String> {
    let map = host.kubectl_output(&[&["get"][..], &CA, &["-o", "json"]].concat()).await?;
    let map: serde_json::Value = serde_json::from_str(&map)?;
    Ok(map["data"]["client-ca-file"].as_str().context("no CA")?.to_owned())
}

async fn publish_ca(host: &Cluster, bundle: &str) -> Result<()> {
    let patch = json!({"data": {"client-ca-file": bundle}}).to_string();
    host.kubectl_output(&[&["patch"][..], &CA, &["--type=merge", "-p", &patch]].concat()).await?;
    Ok(())
}
