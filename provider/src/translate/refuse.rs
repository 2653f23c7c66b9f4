use std::fmt;

use serde_json::Value;

use crate::{
    json::{Object, is_true, items, text},
    target::Target,
    version::Version,
};

/// One thing that a pod asks for and does not get.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The machine's network.
    #[error("the member does not allow hostNetwork")]
    HostNetwork,
    /// The machine's processes.
    #[error("the member does not allow {field}")]
    HostProcesses {
        /// `hostPID` or `hostIPC`.
        field: &'static str,
    },
    /// The machine's files.
    #[error("the member does not allow hostPath: volume {volume:?}")]
    HostPath {
        /// The volume.
        volume: String,
    },
    /// All rights on the machine.
    #[error("the member does not allow privileged containers: {container:?}")]
    Privileged {
        /// The container.
        container: String,
    },
    /// An image from elsewhere.
    #[error("the member does not allow image {image:?}: its registry is not on the list")]
    Image {
        /// The image.
        image: String,
    },
    /// A priority that pushes the member's own pods out.
    #[error("the member does not allow priority class {class:?}")]
    SystemPriority {
        /// The class.
        class: String,
    },
    /// A runtime class the member does not have. Another runtime could isolate less, so none is chosen for it.
    #[error("the member has no runtime class {class:?}")]
    RuntimeClass {
        /// The class.
        class: String,
    },
    /// Devices that the host has allocated.
    #[error("the pod claims devices (resourceClaims), which the host allocates on its own machines only")]
    ResourceClaims,
    /// A kind of volume that only makes sense on the host.
    #[error("volume {volume:?} has a source of kind {source_kind}, which cannot leave the host")]
    VolumeSource {
        /// The volume.
        volume: String,
        /// The kind of source.
        source_kind: &'static str,
    },
    /// A field without which the pod would be another one, and that the member is too old for.
    #[error("the pod uses {field}, which needs Kubernetes {needs} in the member")]
    TooOld {
        /// The field.
        field: &'static str,
        /// The first version that has it.
        needs: Version,
    },
}

impl Refusal {
    const fn reason(&self) -> &'static str {
        match self {
            Self::HostNetwork => "HostNetworkNotAllowed",
            Self::HostProcesses { .. } => "HostProcessesNotAllowed",
            Self::HostPath { .. } => "HostPathNotAllowed",
            Self::Privileged { .. } => "PrivilegedNotAllowed",
            Self::Image { .. } => "ImageNotAllowed",
            Self::SystemPriority { .. } => "PriorityNotAllowed",
            Self::RuntimeClass { .. } => "RuntimeClassNotFound",
            Self::ResourceClaims => "ResourceClaimsNotSupported",
            Self::VolumeSource { .. } => "VolumeNotSupported",
            Self::TooOld { .. } => "MemberTooOld",
        }
    }
}

/// All that a pod is refused for: its user corrects it once, not one field at a time.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Refusals(Vec<Refusal>);

impl Refusals {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = &Refusal> {
        self.0.iter()
    }

    /// The reason of the only one, or a word for several.
    pub fn reason(&self) -> &'static str {
        match self.0.as_slice() {
            [one] => one.reason(),
            _ => "NotAllowed",
        }
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, refusal) in self.0.iter().enumerate() {
            f.write_str(if at > 0 { "; " } else { "" })?;
            refusal.fmt(f)?;
        }
        Ok(())
    }
}

/// What stands against this spec.
pub(super) fn refusals(spec: &Object, target: &Target) -> Refusals {
    let mut found = vec![];
    let policy = &target.policy;
    let asks = |field: &str| is_true(spec.get(field));
    if asks("hostNetwork") && !policy.host_network {
        found.push(Refusal::HostNetwork);
    }
    for field in ["hostPID", "hostIPC"] {
        if asks(field) && !policy.host_processes {
            found.push(Refusal::HostProcesses { field });
        }
    }
    if spec.get("resourceClaims").and_then(Value::as_array).is_some_and(|claims| !claims.is_empty()) {
        found.push(Refusal::ResourceClaims);
    }
    classes(spec, target, &mut found);
    // An older member leaves both out without a word, and the pod would be less apart from others than it asks to be.
    if spec.get("hostUsers").and_then(Value::as_bool) == Some(false) {
        needs(target, Version::v1(33), "hostUsers: false", &mut found);
    }
    if spec
        .get("securityContext")
        .and_then(|c| c.get("supplementalGroupsPolicy"))
        .is_some_and(|p| p == "Strict")
    {
        needs(target, Version::v1(33), "supplementalGroupsPolicy: Strict", &mut found);
    }
    if !policy.privileged
        && is_true(spec.get("securityContext").and_then(|c| c.pointer("/windowsOptions/hostProcess")))
    {
        found.push(Refusal::Privileged { container: "every".to_owned() });
    }
    for list in ["initContainers", "containers"] {
        items(spec.get(list)).for_each(|container| refused_container(container, target, &mut found));
    }
    items(spec.get("volumes")).for_each(|volume| refused_volume(volume, target, &mut found));
    for init in items(spec.get("initContainers")) {
        if text(init, "restartPolicy") == Some("Always") {
            needs(target, Version::v1(29), "sidecar containers", &mut found);
        }
    }
    found.dedup();
    Refusals(found)
}

/// What of the member must be known for this spec, and is not yet. To go on without it would leave out a class that is
/// there, for the whole life of the pod.
pub(super) fn unknown(spec: &Object, target: &Target) -> Option<&'static str> {
    let names = |field: &str, but: &str| {
        let class = spec.get(field).and_then(Value::as_str);
        class.is_some_and(|class| !class.is_empty() && (but.is_empty() || !class.starts_with(but)))
    };
    if names("priorityClassName", "system-") && target.offers.priority_classes.is_none() {
        return Some("priority classes");
    }
    if names("runtimeClassName", "") && target.offers.runtime_classes.is_none() {
        return Some("runtime classes");
    }
    target.region.as_ref().is_some_and(|region| region.tolerations.is_none()).then_some("machines")
}

/// What the Cluster does not allow to the pods of a workload that the member runs by itself. What such pods refer to is the
/// member's own.
pub fn not_allowed(spec: &Value, target: &Target) -> Refusals {
    let Some(spec) = spec.as_object() else { return Refusals::default() };
    let of_the_host = |refusal: &Refusal| {
        matches!(
            refusal,
            Refusal::RuntimeClass { .. }
                | Refusal::ResourceClaims
                | Refusal::VolumeSource { .. }
                | Refusal::TooOld { .. }
        )
    };
    Refusals(refusals(spec, target).0.into_iter().filter(|refusal| !of_the_host(refusal)).collect())
}

/// What stands against one container that somebody adds to a pod that runs.
pub(super) fn of_ephemeral(container: &Value, target: &Target) -> Refusals {
    let mut found = vec![];
    refused_container(container, target, &mut found);
    Refusals(found)
}

fn needs(target: &Target, needs: Version, field: &'static str, found: &mut Vec<Refusal>) {
    if target.version < needs {
        found.push(Refusal::TooOld { field, needs });
    }
}

fn classes(spec: &Object, target: &Target, found: &mut Vec<Refusal>) {
    let class = |field: &str| spec.get(field).and_then(Value::as_str).filter(|class| !class.is_empty());
    if let Some(class) = class("priorityClassName")
        && class.starts_with("system-")
        && !target.policy.system_priority
    {
        found.push(Refusal::SystemPriority { class: class.to_owned() });
    }
    if let (Some(class), Some(offered)) = (class("runtimeClassName"), &target.offers.runtime_classes)
        && !offered.contains(class)
    {
        found.push(Refusal::RuntimeClass { class: class.to_owned() });
    }
}

fn refused_container(container: &Value, target: &Target, found: &mut Vec<Refusal>) {
    let security = container.get("securityContext");
    let privileged = is_true(security.and_then(|c| c.get("privileged")))
        || is_true(security.and_then(|c| c.pointer("/windowsOptions/hostProcess")));
    if privileged && !target.policy.privileged {
        found.push(Refusal::Privileged { container: text(container, "name").unwrap_or_default().to_owned() });
    }
    refused_image(text(container, "image"), target, found);
    for env in items(container.get("env")) {
        if env.pointer("/valueFrom/fileKeyRef").is_some_and(|source| !source.is_null()) {
            needs(target, Version::v1(35), "fileKeyRef", found);
        }
    }
}

fn refused_image(image: Option<&str>, target: &Target, found: &mut Vec<Refusal>) {
    if let (Some(image), Some(registries)) = (image, &target.policy.registries)
        && !registries.allow(image)
    {
        found.push(Refusal::Image { image: image.to_owned() });
    }
}

fn refused_volume(volume: &Value, target: &Target, found: &mut Vec<Refusal>) {
    let has = |field: &str| volume.get(field).is_some_and(|source| !source.is_null());
    let name = || text(volume, "name").unwrap_or_default().to_owned();
    if has("hostPath") && !target.policy.host_path {
        found.push(Refusal::HostPath { volume: name() });
    }
    if has("image") {
        // An older member leaves out the volume and its mounts, unless somebody switched them on there.
        needs(target, Version::v1(35), "image volumes", found);
        refused_image(volume.pointer("/image/reference").and_then(Value::as_str), target, found);
    }
    for source in items(volume.pointer("/projected/sources")) {
        if source.get("podCertificate").is_some_and(|s| !s.is_null()) {
            found.push(Refusal::VolumeSource { volume: name(), source_kind: "podCertificate" });
        }
        let bundle = source.get("clusterTrustBundle").filter(|s| !s.is_null());
        if bundle.is_some_and(|bundle| !is_true(bundle.get("optional"))) {
            found.push(Refusal::VolumeSource { volume: name(), source_kind: "clusterTrustBundle" });
        }
    }
}
