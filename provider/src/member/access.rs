use std::{fmt, sync::Arc};

use federlet_node::{client::client, metrics::Metrics};
use http::HeaderValue;
use kube::Client;

use super::{
    endpoint::{Endpoint, Patience},
    gate::{Gate, identify},
    streaming::streaming,
    trouble::Trouble,
    way::{Token, Way},
};
use crate::site::Clients;

/// A member as it was when somebody asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    /// What tells it from every other cluster: the UID of its `kube-system` namespace.
    pub id: String,
    /// The version of its API server, such as `v1.35.4`.
    pub version: String,
}

/// Makes clients of one member.
#[derive(Clone)]
pub struct Access {
    endpoint: Endpoint,
    token: Token,
    metrics: Arc<Metrics>,
}

impl Access {
    /// For whatever is at the end of this way.
    pub fn new(way: Way, metrics: Arc<Metrics>) -> Self {
        let token = Token::default();
        token.set(way.token);
        Self { endpoint: way.endpoint, token, metrics }
    }

    /// Where it leads.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Every client that was made here uses this token from now on.
    pub fn renew(&self, token: Option<HeaderValue>) {
        self.token.set(token);
    }

    /// Asks the member who it is.
    pub async fn facts(&self) -> Result<MemberFacts, Trouble> {
        let probe = self.probe().map_err(|error| Trouble::from(&error))?;
        let (id, version) = tokio::try_join!(identify(&probe), probe.apiserver_version())
            .map_err(|error| Trouble::from(&error))?;
        Ok(MemberFacts { id, version: version.git_version })
    }

    /// A client that asks nobody who they are: for joining, before there is anything to compare.
    pub fn unchecked(&self, part: &'static str) -> Result<Client, kube::Error> {
        self.signing(client(self.endpoint.config(Patience::Requests), part, self.metrics.clone())?)
    }

    /// Clients for the cluster of this id and for no other, and the gate that they pass.
    pub fn clients(&self, id: &str) -> Result<(Clients, Gate), kube::Error> {
        let gate = Gate::new(id.to_owned(), self.probe()?);
        let guarded = |inner: Client| gate.client(inner, self.token.clone());
        let of = |part, patience| client(self.endpoint.config(patience), part, self.metrics.clone());
        let streams = self.endpoint.config(Patience::Streams);
        let clients = Clients {
            pods: guarded(of("member-pods", Patience::Requests)?),
            watch: guarded(of("member-watch", Patience::Streams)?),
            streams: guarded(streaming(streams, "member-streams", self.metrics.clone())?),
        };
        Ok((clients, gate))
    }

    fn probe(&self) -> Result<Client, kube::Error> {
        self.signing(client(self.endpoint.config(Patience::Probe), "member-identity", self.metrics.clone())?)
    }

    fn signing(&self, inner: Client) -> Result<Client, kube::Error> {
        let token = self.token.clone();
        let service = tower::service_fn(move |request| {
            let (inner, request) = (inner.clone(), token.sign(request));
            async move { inner.send(request).await }
        });
        Ok(Client::new(service, "default"))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
