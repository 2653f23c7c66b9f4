//! A provider that does as the test says, and remembers what it was asked to do.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use federlet_e2e::SOON;
use federlet_node::contract::{
    ChangeStream, NodeProvider, NodeReport, Pod, PodChange, PodId, PodKey, PodLifecycleHandler, PodNotifier,
    PodStreams, ProviderError, ReportStream,
};
use federlet_sandbox::eventually;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::broadcast;

pub(crate) struct Scripted {
    state: Mutex<State>,
    changes: broadcast::Sender<PodKey>,
}

#[derive(Default)]
struct State {
    pods: HashMap<PodKey, Pod>,
    calls: Vec<String>,
    failures: HashMap<&'static str, ProviderError>,
    hangs: bool,
    lingers: bool,
    silent: bool,
    pings: usize,
    failing_pings: usize,
    hanging_pings: bool,
    /// Pings that are under way, and the most that ever were.
    pinging: (usize, usize),
}

impl Default for Scripted {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: broadcast::Sender::new(1024) }
    }
}

/// The status of a pod whose only container runs.
fn running(pod: &Pod) -> Value {
    let now = "2026-01-01T00:00:00Z";
    let conditions = ["Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}));
    json!({
        "phase": "Running", "startTime": now, "podIP": "10.9.8.7",
        "conditions": conditions,
        "containerStatuses": [{"name": "app", "image": "nginx", "imageID": "", "ready": true, "started": true,
                               "restartCount": 0, "state": {"running": {"startedAt": now}},
                               "resources": pod.spec()["containers"][0]["resources"]}],
    })
}

impl Scripted {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What it was asked to do with a pod, in order.
    pub(crate) fn calls(&self, pod: &str) -> Vec<String> {
        let calls = self.state().calls.clone();
        calls.iter().filter_map(|call| call.strip_prefix(&format!("{pod}: ")).map(str::to_owned)).collect()
    }

    /// Waits until it was asked to do this with a pod.
    pub(crate) async fn called(&self, pod: &str, call: &str) -> Result<()> {
        eventually(&format!("{call} is asked for {pod}"), SOON, async || {
            let calls = self.calls(pod);
            ensure!(calls.iter().any(|c| c == call), "{calls:?}");
            Ok(())
        })
        .await
    }

    /// From now on this call, or ping, ends with this error, or no longer does.
    pub(crate) fn fail(&self, call: &'static str, error: Option<ProviderError>) {
        let mut state = self.state();
        match error {
            Some(error) => drop(state.failures.insert(call, error)),
            None => drop(state.failures.remove(call)),
        }
    }

    /// The next so many pings fail.
    pub(crate) fn fail_pings(&self, times: usize) {
        self.state().failing_pings = times;
    }

    /// Whether pings wait for an answer.
    pub(crate) fn hang_pings(&self, hangs: bool) {
        self.state().hanging_pings = hangs;
    }

    /// The most pings that were under way at once.
    pub(crate) fn most_pings_at_once(&self) -> usize {
        self.state().pinging.1
    }

    /// How often it was asked whether it is well.
    pub(crate) fn pings(&self) -> usize {
        self.state().pings
    }

    /// Whether calls wait for an answer.
    pub(crate) fn hang(&self, hangs: bool) {
        self.state().hangs = hangs;
    }

    /// Says nothing about its node, as one that cannot be reached.
    pub(crate) fn silent() -> Self {
        let silent = Self::default();
        silent.state().silent = true;
        silent
    }

    /// Whether pods that are told to end do not, until the test lets them go.
    pub(crate) fn linger(&self, lingers: bool) {
        self.state().lingers = lingers;
    }

    pub(crate) fn has(&self, key: &PodKey) -> Option<Pod> {
        self.state().pods.get(key).cloned()
    }

    /// Has a pod that nobody asked for.
    pub(crate) fn hold(&self, pod: Pod) {
        let key = pod.key().clone();
        self.state().pods.insert(key.clone(), pod);
        self.tell(&key);
    }

    /// Has a pod that runs, and says nothing of it.
    pub(crate) fn hold_running(&self, pod: Pod) {
        let status = running(&pod);
        self.state().pods.insert(pod.key().clone(), pod.with_status(status));
    }

    /// Changes a pod as if by itself.
    pub(crate) fn change(&self, key: &PodKey, change: impl FnOnce(Pod) -> Pod) {
        let mut state = self.state();
        if let Some(pod) = state.pods.remove(key) {
            state.pods.insert(key.clone(), change(pod));
        }
        drop(state);
        self.tell(key);
    }

    /// Changes the status of a pod.
    pub(crate) fn report(&self, key: &PodKey, change: impl FnOnce(&mut Value)) {
        self.change(key, |pod| {
            let mut status = pod.status().clone();
            change(&mut status);
            pod.with_status(status)
        });
    }

    /// The pod is no more.
    pub(crate) fn vanish(&self, key: &PodKey) {
        self.lose(key);
        self.tell(key);
    }

    /// The pod is no more, and nobody says so.
    pub(crate) fn lose(&self, key: &PodKey) {
        self.state().pods.remove(key);
    }

    pub(crate) fn tell(&self, key: &PodKey) {
        let _ = self.changes.send(key.clone());
    }

    async fn asked(&self, call: &'static str, said: Option<(&PodKey, String)>) -> Result<(), ProviderError> {
        while self.state().hangs {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut state = self.state();
        if let Some((key, words)) = said {
            state.calls.push(format!("{}: {words}", key.name()));
        }
        state.failures.get(call).cloned().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl PodLifecycleHandler for Scripted {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        let earlier = self.has(pod.key()).filter(|held| held.id() != pod.id());
        let said = if earlier.is_some() { "create too early" } else { "create" };
        self.asked("create", Some((pod.key(), said.to_owned()))).await?;
        self.state().pods.insert(pod.key().clone(), pod.clone().with_status(running(pod)));
        self.tell(pod.key());
        Ok(())
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.asked("update", Some((pod.key(), "update".to_owned()))).await?;
        let mut state = self.state();
        let held = state.pods.get_mut(pod.key()).ok_or(ProviderError::NotFound)?;
        *held = pod.clone().with_status(held.status().clone());
        Ok(())
    }

    async fn delete_pod(&self, id: &PodId, grace: Duration) -> Result<(), ProviderError> {
        self.asked("delete", Some((id.key(), format!("delete {}", grace.as_secs())))).await?;
        let held = self.has(id.key()).filter(|pod| pod.id() == id).ok_or(ProviderError::NotFound)?;
        if self.state().lingers {
            let ending = held.with_deletion(jiff::Timestamp::now(), grace);
            self.state().pods.insert(id.key().clone(), ending);
        } else {
            self.state().pods.remove(id.key());
        }
        self.tell(id.key());
        Ok(())
    }

    async fn get_pod(&self, key: &PodKey) -> Result<Pod, ProviderError> {
        self.asked("get", None).await?;
        self.has(key).ok_or(ProviderError::NotFound)
    }

    async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError> {
        self.asked("list", None).await?;
        Ok(self.state().pods.values().cloned().collect())
    }
}

impl PodNotifier for Scripted {
    fn notify_pods(&self) -> ChangeStream {
        stream::unfold(self.changes.subscribe(), |mut changes| async move {
            let change = changes.recv().await.map_or(PodChange::Resync, PodChange::Changed);
            Some((change, changes))
        })
        .boxed()
    }
}

/// A ping that is under way, also while it is given up.
struct UnderWay<'a>(&'a Scripted);

impl<'a> UnderWay<'a> {
    fn begin(provider: &'a Scripted) -> Self {
        let mut state = provider.state();
        state.pinging.0 += 1;
        state.pinging.1 = state.pinging.1.max(state.pinging.0);
        drop(state);
        Self(provider)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().pinging.0 -= 1;
    }
}

#[async_trait]
impl NodeProvider for Scripted {
    async fn ping(&self) -> Result<(), ProviderError> {
        let _under_way = UnderWay::begin(self);
        while self.state().hanging_pings {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut state = self.state();
        state.pings += 1;
        if state.failing_pings > 0 {
            state.failing_pings -= 1;
            return Err(ProviderError::unavailable("a glitch"));
        }
        state.failures.get("ping").cloned().map_or(Ok(()), Err)
    }

    fn notify_node_status(&self) -> ReportStream {
        if self.state().silent {
            return stream::pending().boxed();
        }
        let report = NodeReport::default().with_capacity("cpu", "100").with_capacity("memory", "1Ti");
        let report = report.with_capacity("pods", "1000");
        stream::once(async { report }).chain(stream::pending()).boxed()
    }
}

impl PodStreams for Scripted {}
