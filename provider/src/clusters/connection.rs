//! Connections to members. Regions of one cluster share one.

use std::sync::{Arc, Weak};

use federlet_node::metrics::Metrics;
use parking_lot::Mutex;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    api::LocalSecretReference,
    member::{Access, Endpoint, Gate, Way},
    names::HostId,
    site::Clients,
    watch::MemberWatch,
};

/// A member that is watched as long as anybody holds this.
#[derive(Debug)]
pub(super) struct Connection {
    member: String,
    secret: Option<LocalSecretReference>,
    access: Access,
    pub(super) clients: Clients,
    pub(super) gate: Gate,
    pub(super) watch: Arc<MemberWatch>,
    _stop: DropGuard,
}

impl Connection {
    /// Whether it leads to this member in this way.
    pub(super) fn fits(&self, member: &str, endpoint: &Endpoint) -> bool {
        self.member == member && self.leads_to(endpoint)
    }

    /// Whether it goes this way.
    pub(super) fn leads_to(&self, endpoint: &Endpoint) -> bool {
        self.access.endpoint() == endpoint
    }

    /// The token of the Secret is another one now.
    pub(super) fn renew(&self, way: &Way) {
        self.access.renew(way.token.clone());
    }
}

/// All connections of a process.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<Vec<Weak<Connection>>>,
    /// Watches, and nodes that are served.
    pub(super) tasks: TaskTracker,
}

impl Connections {
    /// The connection to a member by this way and with this Secret, opened if there is none.
    pub(super) fn get(
        &self,
        host: &HostId,
        member: &str,
        secret: Option<&LocalSecretReference>,
        way: Way,
        metrics: &Arc<Metrics>,
    ) -> Result<Arc<Connection>, kube::Error> {
        let mut open = self.open.lock();
        open.retain(|connection| connection.strong_count() > 0);
        let same = open
            .iter()
            .filter_map(Weak::upgrade)
            .find(|open| open.fits(member, &way.endpoint) && open.secret.as_ref() == secret);
        if let Some(same) = same {
            same.renew(&way);
            return Ok(same);
        }
        let access = Access::new(way, metrics.clone());
        let (clients, gate) = access.clients(member)?;
        let stop = CancellationToken::new();
        let watch = MemberWatch::start(clients.clone(), host.clone(), member.to_owned(), &self.tasks, &stop);
        let (member, secret) = (member.to_owned(), secret.cloned());
        let connection =
            Arc::new(Connection { member, secret, access, clients, gate, watch, _stop: stop.drop_guard() });
        open.push(Arc::downgrade(&connection));
        Ok(connection)
    }

    /// Waits until nothing runs any more.
    pub(super) async fn closed(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::ClusterSpec, member::KUBECONFIG_KEY};

    /// A way with this as the client's certificate and key.
    fn way(certificate: &str) -> Way {
        let encoded = serde_json::to_value(k8s_openapi::ByteString(certificate.into())).unwrap();
        let config = serde_json::json!({
            "current-context": "m", "contexts": [{"name": "m", "context": {"cluster": "m", "user": "m"}}],
            "clusters": [{"name": "m", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "m", "user": {"client-certificate-data": encoded, "client-key-data": encoded}}],
        });
        let keys = [(KUBECONFIG_KEY.to_owned(), config.to_string().into_bytes())].into();
        Way::read(&ClusterSpec::default(), &keys).unwrap()
    }

    #[tokio::test]
    async fn a_broken_certificate_is_found_before_anything_is_opened() {
        let (connections, metrics) = (Connections::default(), Arc::default());
        let host = HostId::new("host").unwrap();
        let broken = connections.get(&host, "m", None, way("no certificate"), &metrics);
        assert!(broken.is_err());
        let good = rcgen::generate_simple_self_signed(["m".to_owned()]).unwrap();
        let good = way(&(good.cert.pem() + &good.signing_key.serialize_pem()));
        let first = connections.get(&host, "m", None, good.clone(), &metrics).unwrap();
        assert!(connections.get(&host, "m", None, way("no certificate"), &metrics).is_err());
        // Whoever opened it first and keeps it, the next one gets the same.
        let again = connections.get(&host, "m", None, good, &metrics).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
    }
}
