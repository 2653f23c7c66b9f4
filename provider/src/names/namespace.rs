use std::{fmt, sync::Arc};

use serde_json::{Value, json};

use super::{
    ids::{HostId, MemberName},
    keys::{HostPodKey, MemberPodKey},
    text::{DIGEST, NameError, digest, is_label, shortened},
};
use crate::marks;

/// The API server's limit for namespaces.
const LIMIT: usize = 63;

/// How long a suffix or prefix may be, so that enough of the namespace stays to be recognised.
const ADDITION_LIMIT: usize = LIMIT - DIGEST - 1 - 10;

/// Namespaces that run a cluster: everything that begins with `kube-` is reserved by Kubernetes. And those where accounts
/// of hosts are, since a pod there could use one.
const RESERVED_PREFIXES: [&str; 2] = ["kube-", "federlet-host-"];
/// Where KubeEdge lives.
const RESERVED: [&str; 1] = ["kubeedge"];

/// Where the namespaces of the host are in the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceMap(Rule);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Same,
    Suffix(Arc<str>),
    Prefix(Arc<str>),
}

/// A namespace of the member that the mapping leads to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberNamespace(Arc<str>);

/// Why a namespace has no place in the member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// The result is a namespace that runs the member itself.
    #[error("namespace {host:?} would be {member:?} in the member, which is reserved for the cluster itself")]
    Reserved {
        /// On the host.
        host: String,
        /// In the member.
        member: String,
    },
    /// The host's namespace is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The suffix or prefix cannot be part of a namespace.
    #[error(
        "{0:?} cannot be added to namespaces: use lower-case letters, digits and '-', up to {ADDITION_LIMIT} \
         characters, with a letter or digit at the outer end"
    )]
    Addition(String),
}

/// Whether we may use a namespace of the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is not there: make it.
    Create,
    /// We made it, for this namespace of the host.
    Ours,
    /// It is not ours, but names are the same on both sides by choice, or we let it go for what others have there: use
    /// it and never delete it.
    Shared,
    /// It belongs to something else. The text says to what.
    Foreign(String),
}

impl NamespaceMap {
    /// The same name on both sides.
    pub const fn same() -> Self {
        Self(Rule::Same)
    }

    /// The host's name and then `suffix`.
    pub fn suffix(suffix: &str) -> Result<Self, MappingError> {
        let whole = format!("a{suffix}");
        if suffix.is_empty() || suffix.len() > ADDITION_LIMIT || !is_label(&whole) {
            return Err(MappingError::Addition(suffix.chars().take(80).collect()));
        }
        Ok(Self(Rule::Suffix(suffix.into())))
    }

    /// `prefix` and then the host's name.
    pub fn prefix(prefix: &str) -> Result<Self, MappingError> {
        let whole = format!("{prefix}a");
        if prefix.is_empty() || prefix.len() > ADDITION_LIMIT || !is_label(&whole) {
            return Err(MappingError::Addition(prefix.chars().take(80).collect()));
        }
        Ok(Self(Rule::Prefix(prefix.into())))
    }

    /// What a region uses unless told otherwise: the host's name, `-` and the name of the member.
    pub fn for_region(member: &MemberName) -> Self {
        Self(Rule::Suffix(format!("-{}", shortened(member.as_str(), ADDITION_LIMIT - 1)).into()))
    }

    /// Where a namespace of the host is in the member.
    ///
    /// Long names are cut and get a digest. The result then has exactly 63 characters, and results that were not
    /// cut have fewer, so that no name can be made up to look like a cut one.
    pub fn map(&self, host: &str) -> Result<MemberNamespace, MappingError> {
        super::text::label(host, "a namespace")?;
        let member = match &self.0 {
            Rule::Same => host.to_owned(),
            Rule::Suffix(suffix) => format!("{}{suffix}", part(host, suffix.len())),
            Rule::Prefix(prefix) => format!("{prefix}{}", part(host, prefix.len())),
        };
        if RESERVED_PREFIXES.iter().any(|prefix| member.starts_with(prefix))
            || RESERVED.contains(&member.as_str())
        {
            return Err(MappingError::Reserved { host: host.to_owned(), member });
        }
        Ok(MemberNamespace(member.into()))
    }

    /// Where a pod of the host is in the member, if it keeps its name.
    pub fn member_key(&self, host: &HostPodKey) -> Result<MemberPodKey, MappingError> {
        Ok(MemberPodKey::new(&self.map(host.namespace())?, host.name())?)
    }

    /// The host's namespace that an object in the member came from. What its annotation says is believed only if
    /// the mapping leads back here: anybody in the member could have written it.
    pub fn host_namespace(&self, member: &str, annotations: &Value) -> Option<String> {
        let host = match annotations.get(marks::HOST_NAMESPACE) {
            Some(host) => host.as_str()?,
            None if self.0 == Rule::Same => member,
            None => return None,
        };
        (self.map(host).ok()?.as_str() == member).then(|| host.to_owned())
    }

    /// Whether two members that are really one cluster could ever use the same namespace for different ones of the
    /// host: `x` with `-b-a` and `x-b` with `-a`.
    pub fn may_collide(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Rule::Suffix(a), Rule::Suffix(b)) => a.ends_with(&**b) || b.ends_with(&**a),
            (Rule::Prefix(a), Rule::Prefix(b)) => a.starts_with(&**b) || b.starts_with(&**a),
            _ => true,
        }
    }

    /// The namespace object to make in the member.
    pub fn manifest(
        &self,
        host_namespace: &str,
        host: &HostId,
        node: &MemberName,
    ) -> Result<Value, MappingError> {
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": self.map(host_namespace)?.as_str(),
                "labels": { marks::HOST: host.as_str(), marks::NODE: node.as_str() },
                "annotations": { marks::HOST_NAMESPACE: host_namespace },
            },
        }))
    }

    /// Whether we may use the namespace that [`map`](Self::map) leads to, given what is there now.
    pub fn claim(
        &self,
        existing: Option<&Value>,
        host_namespace: &str,
        host: &HostId,
        node: &MemberName,
    ) -> Claim {
        let Some(existing) = existing else { return Claim::Create };
        let marked =
            marks::label(existing, marks::HOST).is_some() || marks::label(existing, marks::NODE).is_some();
        if marks::is_ours(existing, host, node) {
            return match marks::annotation(existing, marks::HOST_NAMESPACE) {
                Some(source) if source == host_namespace => Claim::Ours,
                source => Claim::Foreign(format!(
                    "it stands for namespace {:?} of this host",
                    source.unwrap_or_default()
                )),
            };
        }
        match (&self.0, marked) {
            // Another host or region may have made it. With the same names everywhere it is shared by intent.
            (Rule::Same, _) => Claim::Shared,
            // When it was let go, what it stood for stayed on it.
            (_, false) if marks::annotation(existing, marks::HOST_NAMESPACE) == Some(host_namespace) => {
                Claim::Shared
            }
            (_, true) => Claim::Foreign("it was made for another host or virtual node".to_owned()),
            (_, false) => Claim::Foreign("it was not made by federlet".to_owned()),
        }
    }
}

/// What of the host's name goes beside an addition of this length.
fn part(host: &str, addition: usize) -> String {
    if host.len() + addition < LIMIT {
        return host.to_owned();
    }
    let keep = LIMIT - addition - DIGEST - 1;
    format!("{}-{}", &host[..keep.min(host.len())], digest(&[host]))
}

impl MemberNamespace {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MemberNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
