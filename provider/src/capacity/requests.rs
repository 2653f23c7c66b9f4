use serde_json::Value;

use super::Resources;
use crate::{
    json::{items, text},
    marks,
    names::{HostId, MemberName},
    quantity::Quantity,
};

/// Every pod takes one of these.
pub(super) const PODS: &str = "pods";

/// What one pod of the member holds on its machine, or several together.
#[derive(Clone, Debug, PartialEq)]
pub struct PodLoad {
    /// The machine.
    pub node: Box<str>,
    /// Whether this host sent it through this virtual node, or all of them.
    pub ours: bool,
    /// How much.
    pub requests: Resources,
}

impl PodLoad {
    /// Reads a pod. None if it holds nothing: not placed yet, or over.
    pub fn read(pod: &Value, host: &HostId, node: &MemberName) -> Option<Self> {
        let machine = pod.get("spec").and_then(|spec| text(spec, "nodeName"))?;
        if matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed")) {
            return None;
        }
        Some(Self { node: machine.into(), ours: marks::is_ours(pod, host, node), requests: requests(pod) })
    }
}

/// What a pod holds on its node, as the scheduler counts: containers and sidecars together, or the hungriest init
/// container with the sidecars started before it, whichever is more; resources of the pod as a whole instead, where it
/// has some; its overhead; and its place.
pub fn requests(pod: &Value) -> Resources {
    let held = |list: &str, statuses: &'static str| {
        items(pod.pointer(&format!("/spec/{list}")))
            .map(move |container| (container, of_container(pod, container, statuses)))
    };
    let mut total = Resources::default();
    for (_, amount) in held("containers", "/status/containerStatuses") {
        total.add(&amount);
    }
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    for (container, amount) in held("initContainers", "/status/initContainerStatuses") {
        if text(container, "restartPolicy") == Some("Always") {
            sidecars.add(&amount);
            starting.raise_to(&sidecars);
        } else {
            let mut with_sidecars = amount;
            with_sidecars.add(&sidecars);
            starting.raise_to(&with_sidecars);
        }
    }
    total.add(&sidecars);
    total.raise_to(&starting);
    let whole = Resources::read(pod.pointer("/spec/resources/requests"));
    for (resource, amount) in whole.iter() {
        total.set(resource, amount);
    }
    total.add(&Resources::read(pod.pointer("/spec/overhead")));
    total.add(&Resources::from_iter([(PODS, Quantity::units(1))]));
    total
}

/// What a container holds. While it is resized that is the most of what it asks for, was granted and has; if what it
/// asks for can never be, it is not counted.
fn of_container(pod: &Value, container: &Value, statuses: &str) -> Resources {
    let asked = Resources::read(container.pointer("/resources/requests"));
    let status = items(pod.pointer(statuses)).find(|status| text(status, "name") == text(container, "name"));
    let granted = Resources::read(status.and_then(|status| status.get("allocatedResources")));
    let actual = Resources::read(status.and_then(|status| status.pointer("/resources/requests")));
    let mut held = granted;
    held.raise_to(&actual);
    let infeasible = || {
        items(pod.pointer("/status/conditions"))
            .any(|c| text(c, "type") == Some("PodResizePending") && text(c, "reason") == Some("Infeasible"))
    };
    if held == Resources::default() || !infeasible() {
        held.raise_to(&asked);
    }
    held
}
