use std::{fmt, sync::Arc};

use federlet_node::contract::PodId;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use kube::core::ApiResource;

use crate::{names::MemberNamespace, references::Kind};

/// The resources that go along with pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Resource {
    ConfigMap,
    Secret,
    Claim,
    Service,
}

impl Resource {
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Claim => "PersistentVolumeClaim",
            Self::Service => "Service",
        }
    }

    pub(super) fn api(self) -> ApiResource {
        match self {
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Secret => ApiResource::erase::<Secret>(&()),
            Self::Claim => ApiResource::erase::<PersistentVolumeClaim>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
        }
    }
}

impl From<Kind> for Resource {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::ConfigMap => Self::ConfigMap,
            Kind::Secret => Self::Secret,
            Kind::Claim | Kind::EphemeralClaim => Self::Claim,
        }
    }
}

/// Where a copy is in the member. One place is worked on by one at a time.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) resource: Resource,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl Place {
    pub(super) fn new(resource: Resource, namespace: &MemberNamespace, name: &str) -> Self {
        Self { resource, namespace: namespace.as_str().into(), name: name.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.resource.kind(), self.namespace, self.name)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a copy is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An object of the host.
    Object {
        /// What it is.
        kind: Kind,
        /// Its namespace on the host.
        namespace: Arc<str>,
        /// Its name on the host.
        name: Arc<str>,
    },
    /// A Service of the host that selects pods. They start whether or not it is there.
    Service {
        /// Its namespace on the host.
        namespace: Arc<str>,
        /// Its name, on either side.
        name: Arc<str>,
    },
    /// A token that the host makes for one pod.
    Token(Arc<TokenOrigin>),
}

/// For whom a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenOrigin {
    pub(super) pod: PodId,
    pub(super) account: String,
    pub(super) audience: Option<String>,
    pub(super) expiration: i64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { kind, namespace, name } => {
                write!(f, "{} {namespace}/{name}", Resource::from(*kind).kind())
            }
            Self::Service { namespace, name } => write!(f, "Service {namespace}/{name}"),
            Self::Token(token) => {
                write!(f, "token of service account {}/{}", token.pod.key().namespace(), token.account)
            }
        }
    }
}

/// One thing that a pod needs.
#[derive(Clone, Debug)]
pub(super) struct Need {
    pub(super) place: Place,
    pub(super) origin: Origin,
    /// Whether the pod starts without it.
    pub(super) optional: bool,
}
