//! Connections for many small watches.
//!
//! The Node authorizer shows a node the objects of its pods one by one, so there is either a watch for each or a question
//! for each, again and again. Measured with 2,000 ConfigMaps: to ask for each every five seconds takes 0.8 of a core of
//! the API server, and a watch for each takes nothing while nothing changes. Over HTTP/1.1, which is all that the client
//! library speaks by itself, each watch has a connection of its own: 43 KiB here and 29 KiB in the API server. Over
//! HTTP/2 many share one, as with kubelets: 13 KiB here and 20 KiB there. Either way a change is in the member within a
//! tenth of a second.

use std::{fmt, sync::Arc, time::Duration};

use federlet_node::{client::Counted, metrics::Metrics};
use http::{HeaderValue, header::USER_AGENT, uri::Scheme};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tower::{BoxError, Layer, ServiceExt, util::option_layer};

/// Watches on one connection. API servers take 100 requests at once on one, and those beyond would wait for ever.
const ON_A_LANE: usize = 80;

/// A connection that is dead without saying so is noticed within the sum of these.
const ALIVE_EVERY: Duration = Duration::from_secs(20);
const ALIVE_WITHIN: Duration = Duration::from_secs(10);

/// How a new connection is made.
type Make = Box<dyn Fn() -> Result<Client, kube::Error> + Send + Sync>;

/// Connections to the host, each shared by many watches.
pub struct Lanes {
    make: Make,
    lanes: Mutex<Vec<Lane>>,
}

#[derive(Clone)]
struct Lane {
    client: Client,
    /// Whether the connection is there. Those who come at the same time wait for it, or each would make its own.
    open: Arc<OnceCell<()>>,
    /// Counts those who use it.
    used: Arc<()>,
}

/// A place on a connection, as long as this lives.
pub(super) struct OnLane {
    pub(super) client: Client,
    _used: Arc<()>,
}

impl Lanes {
    /// Connections as this configuration says, over HTTP/2 if the host speaks it.
    pub fn new(config: Config, metrics: Arc<Metrics>) -> Arc<Self> {
        Self::by(Box::new(move || client(&config, &metrics)))
    }

    /// All on one client. For few watches.
    pub fn single(client: Client) -> Arc<Self> {
        Self::by(Box::new(move || Ok(client.clone())))
    }

    fn by(make: Make) -> Arc<Self> {
        Arc::new(Self { make, lanes: Mutex::default() })
    }

    /// A place on a connection that has one left, or on a new one.
    pub(super) async fn enter(&self) -> Result<OnLane, kube::Error> {
        let lane = {
            let mut lanes = self.lanes.lock();
            // One that nobody uses may have been closed long ago; the last stays for the next.
            let mut unused = 0;
            lanes.retain(|lane| {
                unused += usize::from(lane.users() == 0);
                lane.users() > 0 || unused <= 1
            });
            match lanes.iter().find(|lane| lane.users() < ON_A_LANE) {
                Some(lane) => lane.clone(),
                None => {
                    let lane = Lane { client: (self.make)()?, open: Arc::default(), used: Arc::default() };
                    lanes.push(lane.clone());
                    lane
                }
            }
        };
        lane.open.get_or_try_init(async || lane.client.apiserver_version().await.map(drop)).await?;
        Ok(OnLane { client: lane.client, _used: lane.used })
    }
}

impl Lane {
    /// The one in the list, and one for each user.
    fn users(&self) -> usize {
        Arc::strong_count(&self.used) - 1
    }
}

/// A client that speaks HTTP/2 where the server does.
fn client(config: &Config, metrics: &Arc<Metrics>) -> Result<Client, kube::Error> {
    let mut config = config.clone();
    config.headers.retain(|(name, _)| name != USER_AGENT);
    let agent = concat!("federlet/", env!("CARGO_PKG_VERSION"), " (references)");
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    config.default_retry = false;
    let encrypted = config.cluster_url.scheme() == Some(&Scheme::HTTPS);
    if !encrypted || config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    let mut https = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_only();
    if let Some(name) = config.tls_server_name.clone().and_then(|name| name.try_into().ok()) {
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let http: Http<_, Body> = Http::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(ALIVE_EVERY)
        .http2_keep_alive_timeout(ALIVE_WITHIN)
        .build(https.enable_all_versions().wrap_connector(connector));
    let authenticated = option_layer(config.auth_layer()?).layer(http.map_err(BoxError::from));
    let service = config.base_uri_layer().layer(config.extra_headers_layer()?.layer(authenticated));
    Ok(Client::new(Counted::new(service, "references", metrics.clone()), config.default_namespace))
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("lanes", &self.lanes.lock().len()).finish_non_exhaustive()
    }
}
