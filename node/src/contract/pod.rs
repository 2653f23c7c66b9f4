use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Namespace and name of a pod on the host.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl PodKey {
    /// A key from its parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One pod and no other: a name can be used again, a UID cannot.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PodId {
    key: PodKey,
    uid: Arc<str>,
}

impl PodId {
    /// An identity from its parts.
    pub fn new(key: PodKey, uid: impl Into<Arc<str>>) -> Self {
        Self { key, uid: uid.into() }
    }

    /// Namespace and name.
    pub fn key(&self) -> &PodKey {
        &self.key
    }

    /// The UID that the host gave.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

impl fmt::Debug for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.key, self.uid)
    }
}

/// How far a pod got, as `status.phase` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not started, or not reported yet.
    Pending,
    /// At least one container runs or will run again.
    Running,
    /// Every container ended well. Final.
    Succeeded,
    /// Every container ended, not all of them well. Final.
    Failed,
    /// Nobody can say.
    Unknown,
}

impl Phase {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Unknown];

    /// The phase of a pod status; a status that says none is Pending, as the API server defaults it.
    pub fn of(status: &Value) -> Self {
        match status.get("phase").and_then(Value::as_str) {
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some("Unknown") => Self::Unknown,
            _ => Self::Pending,
        }
    }

    /// Whether the pod is over and must never run again.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

/// That someone asked for the end of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// How long the containers may take. The API server sets it; it can only shrink.
    pub grace: Duration,
}

/// A pod as full JSON, with typed access to what controllers and providers need.
///
/// Fields that this crate does not know survive: a typed struct would drop them, and the pod would not be the one
/// that its user wrote.
#[derive(Clone, PartialEq)]
pub struct Pod {
    id: PodId,
    json: Value,
}

/// Why some JSON is not a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pod needs {0}")]
pub struct InvalidPod(&'static str);

/// What a pod without `terminationGracePeriodSeconds` gets.
const DEFAULT_GRACE_SECONDS: u64 = 30;

/// The annotation by which a kubelet recognises the API's picture of a static pod.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Where a kubelet says that a pod came from; anything but `api` is not ours.
const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";

impl TryFrom<Value> for Pod {
    type Error = InvalidPod;

    fn try_from(json: Value) -> Result<Self, InvalidPod> {
        let metadata = json.get("metadata").and_then(Value::as_object).ok_or(InvalidPod("metadata"))?;
        let text = |field: &str, missing| match metadata.get(field).and_then(Value::as_str) {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(InvalidPod(missing)),
        };
        let namespace = text("namespace", "metadata.namespace")?;
        let name = text("name", "metadata.name")?;
        let uid = text("uid", "metadata.uid")?;
        Ok(Self { id: PodId::new(PodKey::new(namespace, name), uid), json })
    }
}

impl Pod {
    /// Namespace, name and UID.
    pub fn id(&self) -> &PodId {
        &self.id
    }

    /// Namespace and name.
    pub fn key(&self) -> &PodKey {
        &self.id.key
    }

    /// The UID.
    pub fn uid(&self) -> &str {
        &self.id.uid
    }

    /// The whole object.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The whole object, to change it.
    pub fn into_json(self) -> Value {
        self.json
    }

    /// `metadata`, or null.
    pub fn metadata(&self) -> &Value {
        &self.json["metadata"]
    }

    /// `spec`, or null.
    pub fn spec(&self) -> &Value {
        &self.json["spec"]
    }

    /// `status`, or null.
    pub fn status(&self) -> &Value {
        &self.json["status"]
    }

    /// The same pod with another status.
    #[must_use]
    pub fn with_status(mut self, status: Value) -> Self {
        if let Value::Object(fields) = &mut self.json {
            fields.insert("status".into(), status);
        }
        self
    }

    /// The same pod with a deletion timestamp and its grace period, as a provider shows a pod that is ending.
    #[must_use]
    pub fn with_deletion(mut self, at: jiff::Timestamp, grace: Duration) -> Self {
        if let Some(metadata) = self.json.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("deletionTimestamp".into(), at.to_string().into());
            metadata.insert("deletionGracePeriodSeconds".into(), grace.as_secs().into());
        }
        self
    }

    /// How far it got.
    pub fn phase(&self) -> Phase {
        Phase::of(self.status())
    }

    /// The node it is bound to.
    pub fn node_name(&self) -> Option<&str> {
        self.spec().get("nodeName").and_then(Value::as_str)
    }

    /// The value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata().get("annotations")?.get(name)?.as_str()
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.metadata().get("labels")?.get(name)?.as_str()
    }

    /// `metadata.generation`; hosts before 1.34 have none on pods.
    pub fn generation(&self) -> Option<i64> {
        self.metadata().get("generation").and_then(Value::as_i64).filter(|g| *g > 0)
    }

    /// Whether somebody must still agree before the object goes.
    pub fn has_finalizers(&self) -> bool {
        self.metadata().get("finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
    }

    /// When the host made it.
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata().get("creationTimestamp")?.as_str()?.parse().ok()
    }

    /// Whether and how its end was asked for.
    pub fn deletion(&self) -> Option<Deletion> {
        let metadata = self.metadata();
        metadata.get("deletionTimestamp").filter(|at| !at.is_null())?;
        let grace = match metadata.get("deletionGracePeriodSeconds").and_then(Value::as_u64) {
            Some(seconds) => Duration::from_secs(seconds),
            None => self.termination_grace(),
        };
        Some(Deletion { grace })
    }

    /// How long its containers may take to end when nobody says otherwise.
    pub fn termination_grace(&self) -> Duration {
        let seconds = self.spec().get("terminationGracePeriodSeconds").and_then(Value::as_u64);
        Duration::from_secs(seconds.unwrap_or(DEFAULT_GRACE_SECONDS))
    }

    /// Whether its containers start again whenever they end.
    pub fn restarts_always(&self) -> bool {
        matches!(self.spec().get("restartPolicy").and_then(Value::as_str), None | Some("Always"))
    }

    /// Whether it mirrors a static pod of some kubelet, and is therefore nobody's to run.
    pub fn is_static(&self) -> bool {
        self.annotation(MIRROR_ANNOTATION).is_some()
            || self.annotation(SOURCE_ANNOTATION).is_some_and(|source| source != "api")
    }

    /// Whether its status says that a kubelet, or a provider in its place, ever took it on.
    pub fn was_started(&self) -> bool {
        self.status().get("startTime").is_some_and(|t| !t.is_null()) || self.phase() == Phase::Running
    }

    /// The containers of the spec: init, ordinary and ephemeral ones.
    pub fn containers(&self) -> impl Iterator<Item = &Map<String, Value>> {
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .filter_map(|kind| self.spec().get(kind)?.as_array())
            .flatten()
            .filter_map(Value::as_object)
    }

    /// Whether the spec has a container of this name.
    pub fn has_container(&self, name: &str) -> bool {
        self.containers().any(|c| c.get("name").and_then(Value::as_str) == Some(name))
    }
}

impl fmt::Debug for Pod {
    // The spec may hold secrets in environment variables, so it never reaches a log by accident.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pod").field("id", &self.id).field("phase", &self.phase()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "JSON literals read better without a reference")]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(extra: Value) -> Value {
        let mut pod = json!({"metadata": {"namespace": "web", "name": "a", "uid": "1"}});
        if let (Value::Object(pod), Value::Object(extra)) = (&mut pod, extra) {
            pod.extend(extra);
        }
        pod
    }

    #[test]
    fn what_has_no_name_is_no_pod() {
        for broken in [json!(null), json!({}), json!({"metadata": {"name": "a", "uid": "1"}}), json!([1])] {
            assert!(Pod::try_from(broken).is_err());
        }
    }

    #[test]
    fn unknown_fields_survive() {
        let json = pod(json!({"spec": {"fromTheFuture": {"deep": [1, 2.5, null]}}, "topLevel": true}));
        assert_eq!(Pod::try_from(json.clone()).unwrap().into_json(), json);
    }

    #[test]
    fn a_missing_grace_period_is_the_pods_own() {
        let deleted =
            json!({"namespace": "web", "name": "a", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let pod = Pod::try_from(json!({"metadata": deleted, "spec": {"terminationGracePeriodSeconds": 7}}))
            .unwrap();
        assert_eq!(pod.deletion(), Some(Deletion { grace: Duration::from_secs(7) }));
    }

    #[test]
    fn debug_shows_no_spec() {
        let pod =
            Pod::try_from(pod(json!({"spec": {"containers": [{"env": [{"value": "hunter2"}]}]}}))).unwrap();
        assert!(!format!("{pod:?}").contains("hunter2"));
    }
}
