use std::{fmt, sync::Arc};

use super::text::{NameError, label, label_value};

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $check:path, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text.
            pub fn new(text: &str) -> Result<Self, NameError> {
                $check(text, $what)?;
                Ok(Self(text.into()))
            }

            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

checked_text! {
    /// The name of a member, which is also the name of its virtual node.
    ///
    /// A DNS label, not a subdomain: it becomes a part of namespaces in the member.
    MemberName, label, "the name of a member"
}

checked_text! {
    /// The host cluster: the UID of its `kube-system` namespace. Two hosts that share a member tell their objects
    /// apart by it.
    HostId, label_value, "the id of a host"
}

checked_text! {
    /// The UID of a pod on the host. It is the value of a label in the member.
    HostUid, label_value, "the UID of a pod"
}
