//! What to do about a Cluster, given all that is known of it.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{Resource, ResourceExt};

use super::conditions::Say;
use crate::{
    api::{Cluster, SyncMode},
    fleet::FLEET,
    join::{SYSTEM_NAMESPACE, leave::AccountFate},
    member::Way,
    names::{HostId, MemberName},
    settings::MemberSettings,
};

/// All that the host says about one member.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) cluster: Arc<Cluster>,
    pub(super) secret: Option<Arc<Secret>>,
    pub(super) node: Option<Arc<Node>>,
    /// Whether this replica serves it.
    pub(super) assigned: bool,
    /// An older Cluster with which it would meet in the same namespaces.
    pub(super) rival: Option<String>,
    /// What becomes of the account if the member is left: other Clusters may be the same one.
    pub(super) account: AccountFate,
}

impl PartialEq for Input {
    fn eq(&self, other: &Self) -> bool {
        fn same<K: Resource>(a: Option<&Arc<K>>, b: Option<&Arc<K>>) -> bool {
            let version = |object: &Arc<K>| (object.uid(), object.resource_version());
            a.map(version) == b.map(version)
        }
        same(Some(&self.cluster), Some(&other.cluster))
            && same(self.secret.as_ref(), other.secret.as_ref())
            && same(self.node.as_ref(), other.node.as_ref())
            && (self.assigned, &self.rival, &self.account) == (other.assigned, &other.rival, &other.account)
    }
}

/// What to do.
pub(super) enum Plan {
    /// Another replica does it.
    Rest,
    /// It is being deleted: take away what we made there.
    Depart,
    /// It cannot be served. This says why.
    Refuse(Say),
    /// Serve it, so.
    Serve(Box<Intent>),
}

/// How a member is to be served.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub(super) settings: MemberSettings,
    pub(super) way: Way,
}

impl Plan {
    pub(super) fn of(input: &Input, host: &HostId) -> Self {
        if !input.assigned {
            return Self::Rest;
        }
        if input.cluster.meta().deletion_timestamp.is_some() {
            return Self::Depart;
        }
        match intent(input, host) {
            Ok(intent) => Self::Serve(Box::new(intent)),
            Err(why) => Self::Refuse(why),
        }
    }
}

fn intent(input: &Input, host: &HostId) -> Result<Intent, Say> {
    let cluster = &*input.cluster;
    let settings =
        MemberSettings::try_from(cluster).map_err(|error| Say::no("InvalidSettings", error.to_string()))?;
    if settings.name.as_str() == FLEET {
        let message =
            format!("{FLEET} is the name of the node that stands for several clusters: choose another one");
        return Err(Say::no("NameReserved", message));
    }
    if cluster.spec.id == host.as_str() {
        return Err(Say::no("IsTheHost", "a cluster cannot be a node of itself"));
    }
    if let Some(rival) = &input.rival {
        return Err(Say::no(
            "NamespacesCollide",
            format!(
                "it is the same cluster as {rival}, and namespaces of the two could meet there: give each a \
                 spec.federlet.namespaces of its own, Suffix or Prefix, such that none ends or begins like the other"
            ),
        ));
    }
    Ok(Intent { settings, way: way(input)? })
}

/// The way to the member.
pub(super) fn way(input: &Input) -> Result<Way, Say> {
    let spec = &input.cluster.spec;
    let Some(reference) = &spec.secret_ref else {
        return Err(Say::no(
            "NoSecret",
            "spec.secretRef is missing: it names the Secret with the credentials",
        ));
    };
    if reference.namespace != SYSTEM_NAMESPACE {
        return Err(Say::no(
            "SecretNotFound",
            format!(
                "credentials are read from namespace {SYSTEM_NAMESPACE} only, not from {:?}",
                reference.namespace
            ),
        ));
    }
    let Some(secret) = &input.secret else {
        return Err(Say::no(
            "SecretNotFound",
            format!("Secret {} is not in namespace {SYSTEM_NAMESPACE}", reference.name),
        ));
    };
    let keys = secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect();
    Way::read(spec, &keys).map_err(|error| Say::no("InvalidCredentials", error.to_string()))
}

/// Annotation of a Cluster that has processes of its own: the name that they were told to serve only, which is its own.
pub const SERVED_BY: &str = "federlet.io/served-by";

/// Who serves a Cluster: its own processes, or, if it has none, those of all others.
pub(super) fn served_by(cluster: &Cluster) -> Option<&str> {
    cluster.annotations().get(SERVED_BY).map(String::as_str).filter(|name| !name.is_empty())
}

/// Whether a host calls the member. In pull mode an agent in the member calls the host.
pub(super) fn is_pushed(cluster: &Cluster) -> bool {
    cluster.spec.sync_mode == SyncMode::Push
}

/// Whether a Cluster is for processes that serve `only` this one, or, without it, all that have none of their own.
pub(super) fn is_for(cluster: &Cluster, only: Option<&str>) -> bool {
    served_by(cluster) == only && only.is_none_or(|only| cluster.name_any() == only)
}

/// By what replicas share members: regions of one cluster stay together, so that they share a connection.
pub(super) fn share_key(cluster: &Cluster) -> String {
    let id = &cluster.spec.id;
    if id.is_empty() { cluster.name_any() } else { id.clone() }
}

/// For each Cluster the older one with which it would meet in the same namespaces of the same member.
///
/// The younger one waits, so that joining can disturb nobody who is there.
pub(super) fn rivals(clusters: &BTreeMap<String, Arc<Cluster>>) -> BTreeMap<String, String> {
    let mut by_member: BTreeMap<&str, Vec<(&String, &Cluster)>> = BTreeMap::new();
    for (name, cluster) in clusters.iter().filter(|(_, cluster)| !cluster.spec.id.is_empty()) {
        by_member.entry(&cluster.spec.id).or_default().push((name, cluster));
    }
    let mut rivals = BTreeMap::new();
    for mut same in by_member.into_values().filter(|same| same.len() > 1) {
        same.sort_by_key(|(name, cluster)| {
            (cluster.meta().creation_timestamp.as_ref().map(|time| time.0), (*name).clone())
        });
        let map = |name: &str, cluster: &Cluster| {
            MemberName::new(name).ok()?;
            MemberSettings::try_from(cluster).ok().map(|settings| settings.namespaces)
        };
        for (at, (name, cluster)) in same.iter().enumerate() {
            let Some(own) = map(name, cluster) else { continue };
            let older = same[..at].iter().find(|(other, older)| {
                // One that was refused itself holds nothing.
                !rivals.contains_key(*other)
                    && map(other, older).is_some_and(|theirs| own.may_collide(&theirs))
            });
            if let Some((other, _)) = older {
                rivals.insert((*name).clone(), (*other).clone());
            }
        }
    }
    rivals
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::{Value, json};

    use super::*;

    fn cluster(name: &str, spec: &Value) -> Arc<Cluster> {
        let json = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "spec": spec,
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn input(spec: &Value, keys: Option<&[(&str, &str)]>) -> Input {
        let secret = keys.map(|keys| {
            let data =
                keys.iter().map(|(k, v)| ((*k).to_owned(), ByteString(v.as_bytes().to_vec()))).collect();
            Arc::new(Secret { data: Some(data), ..Secret::default() })
        });
        Input {
            cluster: cluster("m", spec),
            secret,
            node: None,
            assigned: true,
            rival: None,
            account: AccountFate::Remove,
        }
    }

    fn said(input: &Input) -> String {
        match Plan::of(input, &HostId::new("host").unwrap()) {
            Plan::Rest => "rest".into(),
            Plan::Depart => "depart".into(),
            Plan::Refuse(say) => format!("{}: {}", say.reason, say.message),
            Plan::Serve(intent) => format!("serve {}", intent.settings.name),
        }
    }

    fn good() -> Value {
        json!({"apiEndpoint": "https://a", "secretRef": {"namespace": "federlet-system", "name": "s"}, "id": "x"})
    }

    #[test]
    fn a_cluster_is_served_or_says_why_not() {
        let token: &[(&str, &str)] = &[("token", "t")];
        assert_eq!(said(&input(&good(), Some(token))), "serve m");
        let with = |field: &str, value: Value| {
            let mut spec = good();
            spec[field] = value;
            spec
        };
        for (input, expected) in [
            (input(&with("id", json!("host")), Some(token)), "IsTheHost"),
            (
                input(&with("federlet", json!({"regionSelector": "((("})), Some(token)),
                "InvalidSettings: spec.federlet",
            ),
            (input(&with("secretRef", Value::Null), Some(token)), "NoSecret"),
            (
                input(&with("secretRef", json!({"namespace": "default", "name": "s"})), Some(token)),
                "SecretNotFound: credentials are read from namespace federlet-system only",
            ),
            (input(&good(), None), "SecretNotFound: Secret s is not in"),
            (input(&good(), Some(&[])), "InvalidCredentials: the Secret has neither"),
            (
                Input { rival: Some("older".into()), ..input(&good(), Some(token)) },
                "NamespacesCollide: it is the same cluster as older",
            ),
            (Input { assigned: false, ..input(&good(), None) }, "rest"),
        ] {
            let said = said(&input);
            assert!(said.starts_with(expected), "{expected} is not the start of: {said}");
        }
    }

    #[test]
    fn a_cluster_has_one_who_serves_it() {
        let with = |name: &str, by: Option<&str>| {
            let mut cluster = (*cluster(name, &json!({}))).clone();
            cluster.metadata.annotations = by.map(|by| [(SERVED_BY.to_owned(), by.to_owned())].into());
            cluster
        };
        for (cluster, by_all, by_its_own) in [
            (with("m", None), true, false),
            (with("m", Some("")), true, false),
            (with("m", Some("m")), false, true),
            // Nobody would be told to serve it; that is better than two who do.
            (with("m", Some("other")), false, false),
            (with("other", Some("m")), false, false),
        ] {
            let found = (is_for(&cluster, None), is_for(&cluster, Some("m")));
            assert_eq!(found, (by_all, by_its_own), "{:?}", cluster.metadata);
        }
    }

    #[test]
    fn a_cluster_that_is_deleted_departs_whatever_else_is_wrong_with_it() {
        let mut leaving = input(&good(), None);
        Arc::make_mut(&mut leaving.cluster).metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(said(&leaving), "depart");
    }

    #[test]
    fn regions_of_one_cluster_share_it_if_their_namespaces_never_meet() {
        let region = |id: &str, suffix: &str| json!({"id": id, "federlet": {"regionSelector": "a=b", "namespaces": {"mapping": "Suffix", "value": suffix}}});
        let all: BTreeMap<String, Arc<Cluster>> = [
            ("a", region("one", "-a")),
            ("b", region("one", "-b")),
            ("c", region("one", "-b-a")),
            ("d", region("two", "-a")),
            ("e", json!({"id": "one"})),
            ("f", json!({"id": "two", "federlet": {"regionSelector": "((("}})),
            ("g", json!({})),
            ("h", json!({})),
        ]
        .into_iter()
        .map(|(name, spec)| (name.to_owned(), cluster(name, &spec)))
        .collect();
        let found = rivals(&all);
        let expected = [("c", "a"), ("e", "a")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(found, expected.into());
    }

    #[test]
    fn one_that_was_refused_keeps_nobody_else_out() {
        let own = json!({"id": "one", "federlet": {"namespaces": {"mapping": "Suffix", "value": "-x"}}});
        let all: BTreeMap<String, Arc<Cluster>> = [
            ("a", json!({"id": "one", "federlet": {"namespaces": {"mapping": "Suffix", "value": "-a"}}})),
            ("b", json!({"id": "one"})),
            ("c", own),
        ]
        .into_iter()
        .map(|(name, spec)| (name.to_owned(), cluster(name, &spec)))
        .collect();
        assert_eq!(rivals(&all), [("b".to_owned(), "a".to_owned())].into());
    }
}
