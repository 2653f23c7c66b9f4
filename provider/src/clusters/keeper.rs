//! Labels and taints of a Node that come from its Cluster, and taints that come from the machines of its member.
//!
//! A node may not set all of them itself, and some are put there by people. So what was set last is noted on the Node,
//! and what changed since is told from what others did.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cluster::MemberReport,
    settings::{MemberSettings, Offline},
};

/// On the Node of a member that keeps its pods while it cannot be reached: no new ones.
pub const UNREACHABLE_TAINT: &str = "federlet.io/member-unreachable";

/// Annotation: which labels and taints came from the Cluster.
const NOTE: &str = "federlet.io/from-cluster";

/// What the Node should have from its Cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    /// Labels.
    pub(super) labels: BTreeMap<String, String>,
    /// Taints.
    pub(super) taints: Vec<Taint>,
    /// Taints that all machines have. None while nobody knows them: then they are what they were.
    pub(super) machines: Option<Vec<Taint>>,
}

/// What a member's settings and how it is mean for its Node.
pub(super) fn wanted(settings: &MemberSettings, report: &MemberReport) -> Wanted {
    let mut wanted = Wanted {
        labels: settings.labels.clone(),
        taints: settings.taints.clone(),
        machines: report.taints.clone(),
    };
    if settings.offline == Offline::Keep && report.reach.is_away() {
        wanted.taints.push(Taint {
            key: UNREACHABLE_TAINT.into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        });
    }
    wanted
}

#[derive(Default, Deserialize, Serialize)]
struct Noted {
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    labels: BTreeSet<String>,
    /// Key and effect: of these there is one on a node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    taints: BTreeSet<(String, String)>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    machines: BTreeSet<(String, String)>,
}

impl Wanted {
    /// What to change about the Node, as a merge patch for exactly this version of it. None if it is as it should be.
    pub(super) fn patch(&self, node: &Node) -> Option<Value> {
        let said = node.annotations().get(NOTE);
        let before: Noted = said.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let now = Noted {
            labels: self.labels.keys().cloned().collect(),
            taints: self.taints.iter().map(identity).collect(),
            machines: match &self.machines {
                Some(taints) => taints.iter().map(identity).collect(),
                None => before.machines.clone(),
            },
        };
        let note = serde_json::to_string(&now).unwrap_or_default();
        let labels = self.label_changes(node, &before);
        let live = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let taints = self.merged(&live, &before, &now);
        if labels.is_empty() && taints == live && said == Some(&note) {
            return None;
        }
        let mut patch = json!({ "metadata": {
            "resourceVersion": node.resource_version(), "annotations": { NOTE: note },
        }});
        if !labels.is_empty() {
            patch["metadata"]["labels"] = json!(labels);
        }
        if taints != live {
            patch["spec"] = json!({ "taints": taints });
        }
        Some(patch)
    }

    fn label_changes(&self, node: &Node, before: &Noted) -> BTreeMap<String, Option<String>> {
        let live = node.labels();
        let missing = self.labels.iter().filter(|(key, value)| live.get(*key) != Some(value));
        let missing = missing.map(|(key, value)| (key.clone(), Some(value.clone())));
        let over =
            before.labels.iter().filter(|key| !self.labels.contains_key(*key) && live.contains_key(*key));
        missing.chain(over.map(|key| (key.clone(), None))).collect()
    }

    /// The taints of the Node with ours as they should be, each in its place.
    fn merged(&self, live: &[Taint], before: &Noted, now: &Noted) -> Vec<Taint> {
        // Where both say something, the Cluster counts more.
        let all = self.machines.iter().flatten().chain(&self.taints);
        let wanted: BTreeMap<_, &Taint> = all.map(|taint| (identity(taint), taint)).collect();
        let is_over = |id: &(String, String)| {
            (before.taints.contains(id) || before.machines.contains(id)) && !now.machines.contains(id)
        };
        let kept = live.iter().filter_map(|taint| match wanted.get(&identity(taint)) {
            // When it began to hold is not ours to forget.
            Some(ours) if ours.value == taint.value => Some(taint.clone()),
            Some(ours) => Some((*ours).clone()),
            None => (!is_over(&identity(taint))).then(|| taint.clone()),
        });
        let mut merged: Vec<Taint> = kept.collect();
        let there: BTreeSet<_> = live.iter().map(identity).collect();
        merged
            .extend(wanted.into_iter().filter(|(id, _)| !there.contains(id)).map(|(_, taint)| taint.clone()));
        merged
    }
}

fn identity(taint: &Taint) -> (String, String) {
    (taint.key.clone(), taint.effect.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Reach;

    fn taint(text: &str) -> Taint {
        let (key, effect) = text.split_once(':').unwrap();
        let (key, value) = key.split_once('=').map_or((key, None), |(k, v)| (k, Some(v.to_owned())));
        Taint { key: key.into(), value, effect: effect.into(), time_added: None }
    }

    fn with(labels: &[(&str, &str)], taints: &[&str]) -> Wanted {
        Wanted {
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            taints: taints.iter().map(|t| taint(t)).collect(),
            machines: None,
        }
    }

    fn node(labels: &[(&str, &str)], taints: &[&str]) -> Node {
        let mut node = Node::default();
        node.metadata.resource_version = Some("7".into());
        node.metadata.labels = Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        node.spec.get_or_insert_default().taints = Some(taints.iter().map(|t| taint(t)).collect());
        node
    }

    /// As the API server would do it.
    fn apply(node: &Node, patch: &Value) -> Node {
        fn merge(into: &mut Value, patch: &Value) {
            match (into, patch) {
                (Value::Object(into), Value::Object(patch)) => {
                    for (key, value) in patch {
                        if value.is_null() {
                            into.remove(key);
                        } else {
                            merge(into.entry(key).or_insert(Value::Null), value);
                        }
                    }
                }
                (into, patch) => *into = patch.clone(),
            }
        }
        let mut json = serde_json::to_value(node).unwrap();
        merge(&mut json, patch);
        serde_json::from_value(json).unwrap()
    }

    fn state(node: &Node) -> (Vec<String>, Vec<String>) {
        let taints = node.spec.as_ref().unwrap().taints.as_ref().unwrap();
        let labels = node.labels().iter().map(|(k, v)| format!("{k}={v}")).collect();
        let shown = |t: &Taint| {
            let value = t.value.as_ref().map(|v| format!("={v}")).unwrap_or_default();
            format!("{}{value}:{}", t.key, t.effect)
        };
        (labels, taints.iter().map(shown).collect())
    }

    #[test]
    fn what_others_put_there_stays_and_what_we_put_there_follows_the_cluster() {
        let mut live = node(&[("own", "x"), ("env", "old")], &["virtual:NoSchedule", "person:NoExecute"]);
        let steps = [
            (
                with(&[("env", "prod"), ("gpu", "yes")], &["gpu=a:NoSchedule"]),
                ("env=prod gpu=yes own=x", "virtual:NoSchedule person:NoExecute gpu=a:NoSchedule"),
            ),
            (
                with(&[("env", "prod")], &["gpu=b:NoSchedule", "more:NoExecute"]),
                ("env=prod own=x", "virtual:NoSchedule person:NoExecute gpu=b:NoSchedule more:NoExecute"),
            ),
            (with(&[], &[]), ("own=x", "virtual:NoSchedule person:NoExecute")),
        ];
        for (wanted, (labels, taints)) in steps {
            let patch = wanted.patch(&live).unwrap();
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            live = apply(&live, &patch);
            let (has_labels, has_taints) = state(&live);
            assert_eq!((has_labels.join(" "), has_taints.join(" ")), (labels.into(), taints.into()));
            assert_eq!(wanted.patch(&live), None, "said once is enough");
        }
    }

    #[test]
    fn taints_that_all_machines_have_come_and_go_and_stay_while_nobody_knows() {
        let machines = |known: Option<&[&str]>, own: &[&str]| Wanted {
            machines: known.map(|taints| taints.iter().map(|t| taint(t)).collect()),
            ..with(&[], own)
        };
        // As it was registered while only the control plane was there.
        let mut live = node(&[], &["virtual:NoSchedule", "control-plane:NoSchedule"]);
        for (wanted, taints) in [
            (
                machines(Some(&["control-plane:NoSchedule"]), &[]),
                "virtual:NoSchedule control-plane:NoSchedule",
            ),
            (
                machines(None, &["team=a:NoSchedule"]),
                "virtual:NoSchedule control-plane:NoSchedule team=a:NoSchedule",
            ),
            (machines(Some(&[]), &["team=a:NoSchedule"]), "virtual:NoSchedule team=a:NoSchedule"),
            (
                machines(Some(&["team=b:NoSchedule"]), &["team=a:NoSchedule"]),
                "virtual:NoSchedule team=a:NoSchedule",
            ),
            (machines(Some(&["team=b:NoSchedule"]), &[]), "virtual:NoSchedule team=b:NoSchedule"),
            (machines(None, &[]), "virtual:NoSchedule team=b:NoSchedule"),
            (machines(Some(&[]), &[]), "virtual:NoSchedule"),
        ] {
            if let Some(patch) = wanted.patch(&live) {
                live = apply(&live, &patch);
            }
            assert_eq!(state(&live).1.join(" "), taints, "{wanted:?}");
            assert_eq!(wanted.patch(&live), None, "said once is enough");
        }
    }

    #[test]
    fn somebody_who_takes_ours_away_sees_it_again_and_a_taint_keeps_its_time() {
        let wanted = with(&[("env", "prod")], &["gpu:NoSchedule"]);
        let mut live = apply(&node(&[], &[]), &wanted.patch(&node(&[], &[])).unwrap());
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        live.spec.as_mut().unwrap().taints.as_mut().unwrap()[0].time_added = Some(time);
        assert_eq!(wanted.patch(&live), None);
        live.metadata.labels = None;
        live.spec.as_mut().unwrap().taints = None;
        let again = apply(&live, &wanted.patch(&live).unwrap());
        assert_eq!(state(&again), (vec!["env=prod".into()], vec!["gpu:NoSchedule".into()]));
    }

    #[test]
    fn only_a_member_that_keeps_its_pods_is_tainted_while_it_is_away() {
        let settings = |offline| MemberSettings {
            offline,
            ..MemberSettings::new(crate::names::MemberName::new("m").unwrap())
        };
        let reach = |reachable, since: &str| {
            let reach = Reach { reachable, since: since.parse().unwrap(), ..Reach::default() };
            MemberReport { reach, ..MemberReport::default() }
        };
        let (now, never) = ("2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z");
        for (offline, reach, tainted) in [
            (Offline::Keep, reach(false, now), true),
            (Offline::Keep, reach(true, now), false),
            (Offline::Keep, reach(false, never), false),
            (Offline::Evict, reach(false, now), false),
        ] {
            assert_eq!(
                !wanted(&settings(offline), &reach).taints.is_empty(),
                tainted,
                "{offline:?} {reach:?}"
            );
        }
    }

    #[test]
    fn a_note_that_somebody_broke_is_written_anew() {
        let mut live = node(&[("env", "prod")], &["person:NoSchedule"]);
        live.metadata.annotations = Some([(NOTE.to_owned(), "{".to_owned())].into());
        let live = apply(&live, &with(&[("env", "prod")], &[]).patch(&live).unwrap());
        assert_eq!(state(&live).1, ["person:NoSchedule"]);
    }
}
