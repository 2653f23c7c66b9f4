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
