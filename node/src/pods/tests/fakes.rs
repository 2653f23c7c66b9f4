use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body, runtime::watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::super::{
    PodController, PodSettings,
    events::Events,
    host::Host,
    notes::Notes,
    queue::Outcome,
    sync::PodSync,
    view::{HostPods, Scope},
};
use crate::contract::{
    ChangeStream, NodeName, NodeProvider, Pod, PodId, PodKey, PodLifecycleHandler, PodNotifier, PodStreams,
    ProviderError, ReportStream,
};
use crate::node::{Fence, NodeFacts};

pub(super) struct Fixture {
    pub(super) host: Arc<FakeHost>,
    pub(super) provider: Arc<ScriptedProvider>,
    pub(super) healthy: watch::Sender<Option<bool>>,
    view: Arc<HostPods>,
    sync: PodSync,
}

impl Fixture {
    /// A pod on the host, with these parts instead of the usual ones.
    #[expect(clippy::needless_pass_by_value, reason = "JSON literals read better without a reference")]
    pub(super) fn new(parts: Value) -> Self {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ns", "name": "p", "uid": "uid-1", "resourceVersion": "1"},
            "spec": {"nodeName": "member1", "containers": [{"name": "app"}], "terminationGracePeriodSeconds": 20},
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        });
        for (part, value) in parts.as_object().unwrap() {
            pod[part].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        }
        let host = Arc::new(FakeHost::default());
        *host.pod.lock() = Some(pod);
        let node = NodeName::new("member1").unwrap();
        let (view, provider) =
            (HostPods::new(Scope::Shared, None, Arc::default()), Arc::new(ScriptedProvider::default()));
        let (client, healthy) = (host.client(), watch::Sender::new(Some(true)));
        let sync = PodSync {
            provider: provider.clone(),
            host: Host::new(client.clone()),
            view: view.join(&node),
            references: None,
            events: Events::new(client, &node),
            notes: Notes::default(),
            healthy: healthy.subscribe(),
            fence: Fence::default(),
            metrics: Arc::default(),
            node,
        };
        let fixture = Self { host, provider, healthy, view, sync };
        fixture.see_host();
        fixture
    }

    /// One that runs, and of which the host knows it.
    pub(super) async fn running() -> Self {
        let fixture = Self::new(json!({}));
        fixture.sync(0).await;
        fixture.sync(0).await;
        fixture.see_host();
        fixture
    }

    /// A node that serves only one namespace, which is not that of the pod.
    pub(super) async fn serving_elsewhere() -> Self {
        let mut fixture = Self::running().await;
        fixture.view = HostPods::new(Scope::Shared, Some("elsewhere".into()), Arc::default());
        fixture.sync.view = fixture.view.join(&fixture.sync.node);
        fixture.vanish_from_view();
        fixture
    }

    /// All of it, with one worker.
    pub(super) fn controller(&self) -> PodController {
        self.view.list_nothing();
        self.see_host();
        let facts = NodeFacts { healthy: self.healthy.clone(), ..NodeFacts::default() };
        PodController::new(
            self.sync.node.clone(),
            self.provider.clone(),
            self.host.client(),
            self.sync.view.clone(),
            None,
            &facts,
            PodSettings { workers: 1, ..PodSettings::default() },
            Arc::default(),
        )
    }

    /// What happens from time to time.
    pub(super) fn full_resync(&self) {
        self.sync.notes.reconsider();
    }

    /// The provider would make something else of the pod now.
    pub(super) fn reconsider(&self) {
        self.sync.notes.reconsider_one(&PodKey::new("ns", "p"));
    }

    pub(super) async fn sync(&self, failures: u32) -> Outcome {
        self.sync.sync(&PodKey::new("ns", "p"), failures).await
    }

    /// The watch brings what the host has.
    pub(super) fn see_host(&self) {
        self.see(|_| {});
    }

    /// The watch brings something else than what the host has.
    pub(super) fn see(&self, change: impl FnOnce(&mut Value)) {
        let mut pod = self.host.pod();
        change(&mut pod);
        self.view.take(watcher::Event::Apply(serde_json::from_value(pod).unwrap()));
    }

    pub(super) fn change_on_host(&self, change: impl FnOnce(&mut Value)) {
        change(self.host.pod.lock().as_mut().unwrap());
        self.see_host();
    }

    pub(super) fn delete_on_host(&self, grace: u64) {
        self.change_on_host(|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        });
    }

    pub(super) fn vanish_from_view(&self) {
        self.view.list_nothing();
    }
}

/// An API server with one pod.
#[derive(Default)]
pub(super) struct FakeHost {
    pod: Mutex<Option<Value>>,
    writes: Mutex<Vec<String>>,
    answers: Mutex<Vec<(Method, StatusCode)>>,
    dropped: Mutex<Option<&'static str>>,
}

impl FakeHost {
    pub(super) fn pod(&self) -> Value {
        self.pod.lock().clone().unwrap()
    }

    pub(super) fn remove(&self) {
        *self.pod.lock() = None;
    }

    /// There is another pod of that name now.
    pub(super) fn replace(&self, uid: &str) {
        if let Some(pod) = self.pod.lock().as_mut() {
            pod["metadata"]["uid"] = json!(uid);
        }
    }

    pub(super) fn writes(&self) -> Vec<String> {
        self.writes.lock().clone()
    }

    /// Answers the next requests of this method so.
    pub(super) fn answer(&self, method: Method, status: StatusCode, times: usize) {
        *self.answers.lock() = vec![(method, status); times];
    }

    pub(super) fn drop_field(&self, field: &'static str) {
        *self.dropped.lock() = Some(field);
    }

    fn client(self: &Arc<Self>) -> Client {
        let host = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let host = host.clone();
            async move { Ok::<_, std::convert::Infallible>(host.handle(request).await) }
        });
        Client::new(service, "default")
    }

    async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
        if head.uri.path().contains("/events") {
            return respond(StatusCode::CREATED, &body);
        }
        let mut answers = self.answers.lock();
        if let Some(at) = answers.iter().position(|(method, _)| *method == head.method) {
            return failure(answers.remove(at).1);
        }
        let mut held = self.pod.lock();
        if head.method == Method::GET && head.uri.query().is_some_and(|query| query.contains("fieldSelector"))
        {
            let items: Vec<&Value> = held.iter().collect();
            return respond(StatusCode::OK, &json!({ "metadata": {}, "items": items }));
        }
        let Some(pod) = held.as_mut() else { return failure(StatusCode::NOT_FOUND) };
        match head.method {
            Method::PATCH => {
                self.writes.lock().push("PATCH status".into());
                assert_eq!(body["metadata"]["uid"], "uid-1", "a patch names the UID");
                self.merge(pod, &body["status"]);
            }
            Method::DELETE => {
                let uid = body["preconditions"]["uid"].as_str().expect("a deletion names the UID").to_owned();
                self.writes.lock().push(format!("DELETE {uid} {}", body["gracePeriodSeconds"]));
            }
            _ => {}
        }
        respond(StatusCode::OK, pod)
    }

    fn merge(&self, pod: &mut Value, status: &Value) {
        for (field, value) in status.as_object().unwrap() {
            let current = pod["status"].as_object_mut().unwrap();
            match value {
                Value::Null => drop(current.remove(field)),
                _ if *self.dropped.lock() == Some(field.as_str()) => {}
                value => drop(current.insert(field.clone(), value.clone())),
            }
        }
    }
}

fn respond(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = status;
    response
}

fn failure(status: StatusCode) -> Response<Body> {
    let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
    let code = status.as_u16();
    let body =
        json!({"kind": "Status", "status": "Failure", "message": "told to", "reason": reason, "code": code});
    respond(status, &body)
}

/// A provider of one pod that does as the test says.
#[derive(Default)]
pub(super) struct ScriptedProvider {
    pod: Mutex<Option<Pod>>,
    calls: Mutex<Vec<String>>,
    failures: Mutex<HashMap<&'static str, Vec<ProviderError>>>,
    hangs: Mutex<bool>,
    hanging: Arc<()>,
    held: Mutex<Option<Arc<Notify>>>,
    waiting: Arc<()>,
}

impl ScriptedProvider {
    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }

    pub(super) fn fail_next(&self, call: &'static str, times: usize, error: &ProviderError) {
        self.failures.lock().insert(call, vec![error.clone(); times]);
    }

    pub(super) fn report(&self, status: Value) {
        let mut pod = self.pod.lock();
        *pod = pod.take().map(|pod| pod.with_status(status));
    }

    pub(super) fn evict(&self, grace: u64) {
        let mut pod = self.pod.lock();
        *pod =
            pod.take().map(|pod| pod.with_deletion(jiff::Timestamp::UNIX_EPOCH, Duration::from_secs(grace)));
    }

    pub(super) fn is_gone(&self) {
        *self.pod.lock() = None;
    }

    pub(super) fn hang(&self) {
        *self.hangs.lock() = true;
    }

    /// From now on a change waits until it is let go.
    pub(super) fn hold(&self) {
        *self.held.lock() = Some(Arc::default());
    }

    pub(super) fn let_go(&self) {
        if let Some(held) = self.held.lock().take() {
            held.notify_one();
        }
    }

    async fn go(&self) {
        let held = self.held.lock().clone();
        if let Some(held) = held {
            let _waits = self.waiting.clone();
            held.notified().await;
        }
    }

    /// How many changes wait to be let go.
    pub(super) fn waiting(&self) -> usize {
        Arc::strong_count(&self.waiting) - 1
    }

    /// How many calls hang at the moment.
    pub(super) fn hanging(&self) -> usize {
        Arc::strong_count(&self.hanging) - 1
    }

    fn next(&self, call: &'static str) -> Result<(), ProviderError> {
        let next = self.failures.lock().get_mut(call).and_then(Vec::pop);
        next.map_or(Ok(()), Err)
    }
}

#[async_trait]
impl PodLifecycleHandler for ScriptedProvider {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.go().await;
        self.next("create")?;
        self.calls.lock().push("create".into());
        *self.pod.lock() = Some(pod.clone().with_status(json!({"phase": "Running"})));
        Ok(())
    }

    async fn update_pod(&self, _: &Pod) -> Result<(), ProviderError> {
        self.go().await;
        self.next("update")?;
        self.calls.lock().push("update".into());
        Ok(())
    }

    async fn delete_pod(&self, _: &PodId, grace: Duration) -> Result<(), ProviderError> {
        self.next("delete")?;
        self.calls.lock().push(format!("delete {grace:?}"));
        self.evict(grace.as_secs());
        Ok(())
    }

    async fn get_pod(&self, _: &PodKey) -> Result<Pod, ProviderError> {
        if *self.hangs.lock() {
            let _hangs = self.hanging.clone();
            std::future::pending::<()>().await;
        }
        self.next("get")?;
        self.pod.lock().clone().ok_or(ProviderError::NotFound)
    }

    async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError> {
        Ok(self.pod.lock().clone().into_iter().collect())
    }
}

impl PodNotifier for ScriptedProvider {
    fn notify_pods(&self) -> ChangeStream {
        stream::pending().boxed()
    }
}

#[async_trait]
impl NodeProvider for ScriptedProvider {
    async fn ping(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    fn notify_node_status(&self) -> ReportStream {
        futures::future::pending().into_stream().boxed()
    }
}

impl PodStreams for ScriptedProvider {}
