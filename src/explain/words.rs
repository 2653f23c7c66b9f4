//! What is said about an object. No I/O.

use std::fmt::Write as _;

use federlet_policy::{
    affinity,
    decide::{Destination, Verdict},
    labels,
    object::Identity,
    overrides,
    stamp::Workload,
    survey::Entry,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use crate::table::table;

/// All that is known about an object.
pub(super) struct Explanation<'a> {
    /// What somebody asked about.
    pub(super) asked: &'a Value,
    /// The object that decides.
    pub(super) object: &'a Value,
    /// What is decided for it.
    pub(super) entry: &'a Entry,
    pub(super) overrides: &'a [overrides::Policy<'a>],
    pub(super) destinations: &'a [Destination],
    /// What was recorded.
    pub(super) binding: Option<&'a Value>,
    /// Its pods.
    pub(super) pods: &'a [Value],
    /// Policies that have no effect, and why.
    pub(super) refused: &'a [String],
    /// Policies that cannot do all that they say.
    pub(super) hindered: &'a [Value],
}

/// Why a policy cannot do all that it says, as `serve` wrote on it.
pub(super) fn hindrance(policy: &Value) -> Option<String> {
    let conditions = policy.pointer("/status/conditions")?.as_array()?;
    let wrong = conditions.iter().filter(|condition| condition["status"] == "False");
    let said: Vec<&str> = wrong.map(|condition| text(condition, "/message")).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// With the clusters to which it goes along, as its binding says: what needs it is not looked at here.
pub(super) fn along(mut entry: Entry, binding: Option<&Value>) -> Entry {
    let list = |of: Option<&Value>, field: &str| {
        of.and_then(|of| of.pointer(field)).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    for cluster in list(binding, "/spec/requiredBy").iter().flat_map(|one| list(Some(one), "/clusters")) {
        entry.clusters.entry(text(&cluster, "/name").to_owned()).or_insert(None);
    }
    entry
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn named(object: &Value) -> String {
    let slash = if text(object, "/metadata/namespace").is_empty() { "" } else { "/" };
    format!(
        "{} {}{slash}{}",
        text(object, "/kind"),
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name")
    )
}

/// Whether a pod belongs to a workload.
pub(super) fn is_of(pod: &Value, object: &Value) -> bool {
    if let Some(workload) = Workload::of(pod) {
        return !workload.uid.is_empty() && workload.uid == text(object, "/metadata/uid");
    }
    let selector = object.pointer("/spec/selector").cloned();
    let selector: Option<LabelSelector> = selector.and_then(|selector| serde_json::from_value(selector).ok());
    let has_template = object.pointer("/spec/template").is_some();
    selector.is_some_and(|selector| has_template && labels::selects(&selector, &Identity::of(pod).labels))
}

impl Explanation<'_> {
    fn policy(&self) -> Option<String> {
        let key = self.entry.decision.policy.as_ref()?;
        let kind = if key.namespace.is_some() { "PropagationPolicy" } else { "ClusterPropagationPolicy" };
        Some(format!("{kind} {key}"))
    }

    /// What keeps the policy from doing all that it says. It may be about other objects that it selects.
    fn hindered(&self) -> Option<String> {
        let policy = self.policy()?;
        self.hindered.iter().find(|other| named(other) == policy).and_then(hindrance)
    }

    /// The override policies that change the object, with the clusters where they do.
    fn overrides(&self) -> Vec<(String, Vec<String>)> {
        let about = overrides::applicable(&Identity::of(self.object), self.overrides.iter().copied());
        let each = about.into_iter().map(|policy| {
            let touches = |destination: &&Destination| {
                self.entry.clusters.contains_key(destination.name())
                    && policy.rules().any(|(target, _)| affinity::includes(target, &destination.cluster))
            };
            let clusters =
                self.destinations.iter().filter(touches).map(|one| one.name().to_owned()).collect();
            let name = match policy.namespace {
                Some(namespace) => format!("OverridePolicy {namespace}/{}", policy.name),
                None => format!("ClusterOverridePolicy {}", policy.name),
            };
            (name, clusters)
        });
        each.collect()
    }

    /// Each cluster, its replicas if it is chosen, and why.
    fn clusters(&self) -> Vec<(String, Option<String>, String)> {
        let decision = &self.entry.decision;
        let held: Vec<&str> = decision.held_back().collect();
        let each = self.destinations.iter().map(|destination| {
            let name = destination.name();
            let share = self.entry.clusters.get(name);
            let chosen = share.map(|share| share.map_or_else(|| "yes".to_owned(), |count| count.to_string()));
            let why = if let Some(error) = self.entry.errors.get(name) {
                error.clone()
            } else if share.is_some() && !decision.shares.contains_key(name) {
                "it goes along".to_owned()
            } else if share.is_some() && held.contains(&name) {
                "chosen; the policy holds it back for now".to_owned()
            } else if share.is_some() {
                "chosen".to_owned()
            } else if let Some(rejection) = decision.rejected.get(name) {
                rejection.to_string()
            } else {
                match decision.verdict {
                    Verdict::Placed(_) => "others were preferred".to_owned(),
                    _ => "nothing is sent anywhere".to_owned(),
                }
            };
            (name.to_owned(), chosen, why)
        });
        each.collect()
    }

    /// Why it is not simply placed.
    fn reason(&self) -> Option<String> {
        let along = self.binding.and_then(|binding| binding.pointer("/spec/requiredBy")?.as_array());
        let along: Vec<&str> = along.into_iter().flatten().map(|one| text(one, "/name")).collect();
        let along = (!along.is_empty())
            .then(|| format!("it goes along with what these bindings are for: {}", along.join(", ")));
        let own = self.entry.reason();
        match (own, along) {
            (Some(own), Some(along)) => Some(format!("{own}; {along}")),
            (own, along) => own.or(along),
        }
    }

    /// How the copies are, as the binding says.
    fn copies(&self) -> Vec<&Value> {
        let items = self.binding.and_then(|binding| binding.pointer("/status/aggregatedStatus")?.as_array());
        items.into_iter().flatten().collect()
    }

    pub(super) fn json(&self) -> Value {
        let clusters = self.clusters().into_iter().map(|(name, chosen, why)| {
            let replicas = self.entry.clusters.get(&name).copied().flatten();
            json!({ "name": name, "chosen": chosen.is_some(), "replicas": replicas, "why": why })
        });
        let overrides = self
            .overrides()
            .into_iter()
            .map(|(name, clusters)| json!({ "name": name, "clusters": clusters }));
        let pods = self.pods.iter().map(|pod| {
            json!({
                "name": text(pod, "/metadata/name"), "node": pod.pointer("/spec/nodeName"),
                "phase": pod.pointer("/status/phase"),
            })
        });
        json!({
            "object": {
                "apiVersion": self.entry.key.api_version, "kind": self.entry.key.kind,
                "namespace": self.entry.key.namespace, "name": self.entry.key.name,
            },
            "policy": self.entry.decision.policy.as_ref().map(ToString::to_string),
            "overrides": overrides.collect::<Vec<_>>(),
            "clusters": clusters.collect::<Vec<_>>(),
            "reason": self.reason(),
            "copies": self.copies(),
            "pods": pods.collect::<Vec<_>>(),
            "hindered": self.hindered(),
            "refused": self.refused,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut said = String::new();
        let mut line = |text: String| {
            let _ = writeln!(said, "{text}");
        };
        line(named(self.object));
        if named(self.asked) != named(self.object) {
            line(format!("  decides for {}", named(self.asked)));
        }
        line(format!("Policy:     {}", self.policy().unwrap_or_else(|| "none".into())));
        for (number, (name, clusters)) in self.overrides().into_iter().enumerate() {
            let begin = if number == 0 { "Overrides:  " } else { "            " };
            let place =
                if clusters.is_empty() { "no cluster that it goes to".into() } else { clusters.join(", ") };
            line(format!("{begin}{name} ({place})"));
        }
        if let Some(reason) = self.reason() {
            line(format!("Note:       {reason}"));
        }
        if let Some(why) = self.hindered() {
            line(format!("Hindered:   {why}"));
        }
        for refused in self.refused {
            line(format!("No effect:  {refused}"));
        }
        let clusters = self.clusters();
        if !clusters.is_empty() {
            let rows = clusters
                .into_iter()
                .map(|(name, chosen, why)| vec![name, chosen.unwrap_or_else(|| "-".into()), why]);
            let chosen = if self.entry.decision.counted { "REPLICAS" } else { "CHOSEN" };
            line(format!("\n{}", table(&["CLUSTER", chosen, "WHY"], rows)));
        }
        let copies = self.copies();
        if !copies.is_empty() {
            let rows = copies.into_iter().map(|item| {
                let applied = item["applied"].as_bool().unwrap_or(false);
                let said = text(item, "/appliedMessage");
                vec![
                    text(item, "/clusterName").to_owned(),
                    if applied { "yes" } else { "no" }.to_owned(),
                    text(item, "/health").to_owned(),
                    said.to_owned(),
                ]
            });
            line(format!("\n{}", table(&["COPY IN", "APPLIED", "HEALTH", "MESSAGE"], rows)));
        }
        if !self.pods.is_empty() {
            let rows = self.pods.iter().map(|pod| {
                let node = text(pod, "/spec/nodeName");
                let node = if node.is_empty() { "<none>" } else { node };
                let phase = text(pod, "/status/phase");
                vec![text(pod, "/metadata/name").to_owned(), node.to_owned(), phase.to_owned()]
            });
            line(format!("\n{}", table(&["POD", "NODE", "PHASE"], rows)));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use federlet_policy::{inventory::Inventory, survey::survey};

    use super::*;

    fn cluster(name: &str) -> Value {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {}})
    }

    #[test]
    fn it_says_which_policy_which_clusters_and_why_not_the_others() {
        let mut inventory = Inventory::default();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "c"}, "data": {"a": "1"}});
        for one in [
            cluster("m1"),
            cluster("m2"),
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"namespace": "shop", "name": "p"},
                "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}], "placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}}),
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"namespace": "shop", "name": "o"},
                "spec": {"overrideRules": [{"overriders": {"plaintext": [{"path": "/data/a", "operator": "replace", "value": "2"}]}}]}}),
            object.clone(),
        ] {
            inventory.add(one).unwrap();
        }
        let entries = survey(&inventory);
        let world = inventory.world();
        let pods = [
            json!({"metadata": {"name": "web-1"}, "spec": {"nodeName": "m1"}, "status": {"phase": "Running"}}),
        ];
        let hindered = json!({"kind": "PropagationPolicy", "metadata": {"namespace": "shop", "name": "p"},
            "status": {"conditions": [
                {"type": "ObjectsReadable", "status": "False", "message": "may not"},
                {"type": "Other", "status": "True", "message": "is well"},
                {"type": "FieldsEffective", "status": "False", "message": "nor this"}]}});
        assert_eq!(hindrance(&object), None);
        let explanation = Explanation {
            asked: &object,
            object: &object,
            entry: &entries[0],
            overrides: &world.overrides,
            destinations: world.destinations,
            binding: None,
            pods: &pods,
            refused: &["PropagationPolicy shop/q is refused: why".to_owned()],
            hindered: &[hindered],
        };
        let said = explanation.text();
        for expected in [
            "ConfigMap shop/c",
            "Policy:     PropagationPolicy shop/p",
            "Overrides:  OverridePolicy shop/o (m1)",
            "Hindered:   may not; nor this",
            "No effect:  PropagationPolicy shop/q is refused: why",
            "web-1",
        ] {
            assert!(said.contains(expected), "{said}");
        }
        let json = explanation.json();
        assert_eq!(
            json["clusters"][0],
            json!({"name": "m1", "chosen": true, "replicas": null, "why": "chosen"})
        );
        assert_eq!(json["clusters"][1]["chosen"], false);
        assert!(!json["clusters"][1]["why"].as_str().unwrap().is_empty());
    }

    #[test]
    fn what_only_goes_along_is_where_its_binding_says() {
        let mut inventory = Inventory::default();
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "c"}});
        for one in [cluster("m1"), cluster("m2"), object.clone()] {
            inventory.add(one).unwrap();
        }
        let binding = json!({"spec": {"requiredBy": [{"namespace": "shop", "name": "web-deployment",
            "clusters": [{"name": "m2", "replicas": 0}]}]}});
        let entry = along(survey(&inventory).remove(0), Some(&binding));
        let world = inventory.world();
        let explanation = Explanation {
            asked: &object,
            object: &object,
            entry: &entry,
            overrides: &world.overrides,
            destinations: world.destinations,
            binding: Some(&binding),
            pods: &[],
            refused: &[],
            hindered: &[],
        };
        let said = explanation.json();
        assert_eq!(said["clusters"][0]["chosen"], false);
        let expected = json!({"name": "m2", "chosen": true, "replicas": null, "why": "it goes along"});
        assert_eq!(said["clusters"][1], expected);
        assert!(
            explanation.text().contains("it goes along with what these bindings are for: web-deployment")
        );
    }

    #[test]
    fn pods_belong_to_what_marked_or_selects_them() {
        let workload = json!({"metadata": {"uid": "u"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}}});
        let marked = |uid: &str| {
            json!({"metadata": {"annotations": {"federlet.io/workload":
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid}).to_string()}}})
        };
        assert!(is_of(&marked("u"), &workload) && !is_of(&marked("v"), &workload));
        let labelled = |app: &str| json!({"metadata": {"labels": {"app": app}}});
        assert!(is_of(&labelled("web"), &workload) && !is_of(&labelled("db"), &workload));
        let service = json!({"metadata": {"uid": "u"}, "spec": {"selector": {"app": "web"}}});
        assert!(!is_of(&labelled("web"), &service));
    }
}
