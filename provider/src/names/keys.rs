use std::{fmt, sync::Arc};

use serde_json::Value;

use super::{
    namespace::MemberNamespace,
    text::{NameError, label, subdomain},
};

/// Namespace and name of a pod on the host.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPodKey {
    namespace: Arc<str>,
    name: Arc<str>,
}

/// Namespace and name of a pod in the member.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberPodKey {
    namespace: Arc<str>,
    name: Arc<str>,
}

macro_rules! key {
    ($key:ident) => {
        impl $key {
            /// The namespace.
            pub fn namespace(&self) -> &str {
                &self.namespace
            }

            /// The name.
            pub fn name(&self) -> &str {
                &self.name
            }

            /// The key of a pod as this side's API server returned it.
            pub fn of(pod: &Value) -> Result<Self, NameError> {
                let text = |field| pod.pointer(field).and_then(Value::as_str).unwrap_or_default();
                Self::checked(text("/metadata/namespace"), text("/metadata/name"))
            }

            fn checked(namespace: &str, name: &str) -> Result<Self, NameError> {
                label(namespace, "a namespace")?;
                subdomain(name, "the name of a pod")?;
                Ok(Self { namespace: namespace.into(), name: name.into() })
            }
        }

        impl fmt::Display for $key {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.namespace, self.name)
            }
        }

        impl fmt::Debug for $key {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($key), "({}/{})"), self.namespace, self.name)
            }
        }
    };
}

key!(HostPodKey);
key!(MemberPodKey);

impl HostPodKey {
    /// Checks the parts.
    pub fn new(namespace: &str, name: &str) -> Result<Self, NameError> {
        Self::checked(namespace, name)
    }
}

impl MemberPodKey {
    /// A pod in a namespace that came out of the mapping: there is no other way to name a place in the member.
    pub fn new(namespace: &MemberNamespace, name: &str) -> Result<Self, NameError> {
        Self::checked(namespace.as_str(), name)
    }
}
