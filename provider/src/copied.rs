//! The kinds of which policies sent copies to a member, as its Cluster notes them.
//!
//! Noted before the first copy is made and never struck out, so that whoever comes later, or takes leave of the member,
//! finds every copy without asking for kinds that were never there.

use std::{collections::BTreeSet, fmt};

use kube::core::ApiResource;

use crate::{api::Cluster, marks};

/// A kind, written as `apps/v1/daemonsets/DaemonSet`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopiedKind {
    /// API version.
    pub api_version: String,
    /// Its plural, as in paths.
    pub plural: String,
    /// Its name.
    pub kind: String,
}

impl CopiedKind {
    /// Reads one; none if it makes no sense.
    pub fn read(text: &str) -> Option<Self> {
        let (rest, kind) = text.rsplit_once('/')?;
        let (api_version, plural) = rest.rsplit_once('/')?;
        let all = [api_version, plural, kind];
        all.iter().all(|part| !part.is_empty()).then(|| Self {
            api_version: api_version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Those that a Cluster notes.
    pub fn all(cluster: &Cluster) -> BTreeSet<Self> {
        let annotations = cluster.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(marks::COPIED_KINDS));
        text.into_iter().flat_map(|text| text.split(',')).filter_map(Self::read).collect()
    }

    /// How it is asked for.
    pub fn resource(&self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

impl From<&ApiResource> for CopiedKind {
    fn from(resource: &ApiResource) -> Self {
        Self {
            api_version: resource.api_version.clone(),
            plural: resource.plural.clone(),
            kind: resource.kind.clone(),
        }
    }
}

impl fmt::Display for CopiedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.api_version, self.plural, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_was_written() {
        for text in ["v1/configmaps/ConfigMap", "apps/v1/daemonsets/DaemonSet"] {
            let read = CopiedKind::read(text).unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(CopiedKind::from(&read.resource()), read);
        }
        assert_eq!(CopiedKind::read("apps/v1/daemonsets/DaemonSet").unwrap().resource().group, "apps");
        assert!(
            ["", "ConfigMap", "configmaps/ConfigMap", "//"]
                .iter()
                .all(|text| CopiedKind::read(text).is_none())
        );
        let mut cluster = Cluster::new("m", Default::default());
        assert!(CopiedKind::all(&cluster).is_empty());
        let said = "v1/configmaps/ConfigMap,odd,,v1/secrets/Secret".to_owned();
        cluster.metadata.annotations = Some([(marks::COPIED_KINDS.to_owned(), said)].into());
        assert_eq!(CopiedKind::all(&cluster).len(), 2);
    }
}
