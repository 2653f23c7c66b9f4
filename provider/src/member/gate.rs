use std::{fmt, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, client::Body};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::{trouble::Trouble, way::Token};

/// How long the member is taken for itself while single objects are written.
const FOR_WRITES: Duration = Duration::from_secs(10);
/// And while everything is listed: whoever lists may conclude that what is not there is gone.
const FOR_LISTS: Duration = Duration::from_secs(2);

/// Which cluster answers at the address of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// Nobody asked yet.
    #[default]
    Unknown,
    /// The one that joined.
    Confirmed,
    /// Another one.
    Other(IdentityError),
}

/// At the address of a member there is another cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not the cluster that joined: its kube-system namespace has the UID {found}, not {expected}; nothing is \
     made or deleted there until the right one is back, or the Cluster is unjoined"
)]
pub struct IdentityError {
    /// The cluster that joined.
    pub expected: String,
    /// The one that answers.
    pub found: String,
}

/// Stands before every request to a member, and lets it pass if the cluster at the other end is the one that joined.
///
/// An empty cluster at the same address would look like one that lost all its pods, and somebody else's would get
/// ours. So it is asked for its identity before anything is listed or watched, after each failure, and every few
/// seconds while it is written to.
#[derive(Clone)]
pub struct Gate(Arc<State>);

struct State {
    expected: String,
    probe: Client,
    confirmed: Mutex<Option<Instant>>,
    /// Those who come while somebody asks wait for that answer.
    asking: tokio::sync::Mutex<()>,
    identity: watch::Sender<Identity>,
    trouble: Mutex<Option<Trouble>>,
}

impl Gate {
    /// For the cluster with this UID of `kube-system`, asked through `probe`, which does not pass a gate.
    pub(super) fn new(expected: String, probe: Client) -> Self {
        Self(Arc::new(State {
            expected,
            probe,
            confirmed: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            identity: watch::Sender::default(),
            trouble: Mutex::default(),
        }))
    }

    /// Which cluster answers, as it changes.
    pub fn identity(&self) -> watch::Receiver<Identity> {
        self.0.identity.subscribe()
    }

    /// What went wrong last, if nothing went well since.
    pub fn trouble(&self) -> Option<Trouble> {
        self.0.trouble.lock().clone()
    }

    /// Asks now, whatever was known.
    pub async fn check(&self) -> Result<(), kube::Error> {
        self.confirm(Duration::ZERO).await
    }

    /// A client whose requests carry the token and pass the gate.
    pub(super) fn client(&self, inner: Client, token: Token) -> Client {
        let gate = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (gate, inner, token) = (gate.clone(), inner.clone(), token.clone());
            async move {
                gate.confirm(longest(&request)).await?;
                gate.hear(inner.send(token.sign(request)).await)
            }
        });
        Client::new(service, "default")
    }

    async fn confirm(&self, age: Duration) -> Result<(), kube::Error> {
        let is_known = || {
            let confirmed = *self.0.confirmed.lock();
            confirmed.is_some_and(|at| at.elapsed() < age)
        };
        if is_known() {
            return Ok(());
        }
        let _asking = self.0.asking.lock().await;
        if is_known() {
            return Ok(());
        }
        let sent = Instant::now();
        match identify(&self.0.probe).await {
            Ok(found) if found == self.0.expected => {
                *self.0.confirmed.lock() = Some(sent);
                *self.0.trouble.lock() = None;
                self.say(Identity::Confirmed);
                Ok(())
            }
            Ok(found) => {
                let error = IdentityError { expected: self.0.expected.clone(), found };
                self.say(Identity::Other(error.clone()));
                Err(self.note(kube::Error::Service(Box::new(error))))
            }
            Err(error) => Err(self.note(error)),
        }
    }

    /// Takes in how a request went.
    fn hear(&self, answer: Result<Response<Body>, kube::Error>) -> Result<Response<Body>, kube::Error> {
        match answer {
            // Another cluster does not know our token.
            Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
                *self.0.confirmed.lock() = None;
                Ok(answer)
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.note(error)),
        }
    }

    fn note(&self, error: kube::Error) -> kube::Error {
        *self.0.confirmed.lock() = None;
        *self.0.trouble.lock() = Some(Trouble::from(&error));
        error
    }

    fn say(&self, identity: Identity) {
        self.0.identity.send_if_modified(|before| {
            let changed = *before != identity;
            *before = identity;
            changed
        });
    }
}

/// What tells one cluster from every other.
pub(super) async fn identify(client: &Client) -> Result<String, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system = namespaces.get("kube-system").await?;
    Ok(system.metadata.uid.unwrap_or_default())
}

/// For how long an answer to "are you still you" is good enough for this request.
fn longest(request: &Request<Body>) -> Duration {
    let query = request.uri().query().unwrap_or_default();
    let names = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    if request.method() == Method::GET && (names("watch") || names("limit")) { FOR_LISTS } else { FOR_WRITES }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("identity", &*self.0.identity.borrow()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::api::{DeleteParams, ListParams};
    use serde_json::json;

    use super::*;

    /// A member that is whoever it is told to be, and counts what it is asked.
    struct Member {
        uid: Mutex<Option<&'static str>>,
        probes: AtomicUsize,
        requests: AtomicUsize,
    }

    impl Member {
        fn new() -> Arc<Self> {
            Arc::new(Self { uid: Mutex::new(Some("right")), probes: 0.into(), requests: 0.into() })
        }

        fn client(self: &Arc<Self>) -> Client {
            let member = self.clone();
            let answer = move |request: Request<Body>| {
                let uid = *member.uid.lock();
                let answer = uid.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused)).map(|uid| {
                    let probed = request.uri().path().ends_with("/namespaces/kube-system");
                    let count = if probed { &member.probes } else { &member.requests };
                    count.fetch_add(1, Ordering::Relaxed);
                    let body = if probed {
                        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}})
                    } else {
                        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []})
                    };
                    Response::new(Body::from(body.to_string().into_bytes()))
                });
                std::future::ready(answer)
            };
            Client::new(tower::service_fn(answer), "default")
        }

        fn counted(&self) -> (usize, usize) {
            (self.probes.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_cluster_is_asked_now_and_then() {
        let member = Member::new();
        let gate = Gate::new("right".into(), member.client());
        let client = gate.client(member.client(), Token::default());
        let pods: Api<Pod> = Api::all(client.clone());
        for _ in 0..5 {
            pods.list(&ListParams::default().limit(5)).await.unwrap();
        }
        assert_eq!(member.counted(), (1, 5));
        tokio::time::advance(FOR_LISTS).await;
        pods.list(&ListParams::default().limit(5)).await.unwrap();
        assert_eq!(member.counted(), (2, 6), "before a list it is asked again");
        assert_eq!(*gate.identity().borrow(), Identity::Confirmed);
        assert_eq!(gate.trouble(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn another_cluster_at_the_same_address_gets_nothing() {
        let member = Member::new();
        let gate = Gate::new("right".into(), member.client());
        let client = gate.client(member.client(), Token::default());
        let (pods, maps): (Api<Pod>, Api<ConfigMap>) =
            (Api::all(client.clone()), Api::namespaced(client, "default"));
        pods.list(&ListParams::default().limit(5)).await.unwrap();
        *member.uid.lock() = None;
        assert!(maps.delete("m", &DeleteParams::default()).await.is_err());
        *member.uid.lock() = Some("wrong");
        let before = member.counted().1;
        // The failure left a doubt, so even a request that comes at once finds out.
        let error = maps.delete("m", &DeleteParams::default()).await.unwrap_err();
        assert!(crate::errors::brief(&error).contains("not the cluster that joined"), "{error}");
        assert!(pods.list(&ListParams::default().limit(5)).await.is_err());
        assert_eq!(member.counted().1, before, "nothing reached it");
        assert!(matches!(&*gate.identity().borrow(), Identity::Other(found) if found.found == "wrong"));
        *member.uid.lock() = Some("right");
        pods.list(&ListParams::default().limit(5)).await.unwrap();
        assert_eq!(gate.trouble(), None);
    }
}
