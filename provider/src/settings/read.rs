use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::util::intstr::IntOrString};

use super::{ApiChoice, MemberSettings, Offline, labels::node_labels};
use crate::{
    api::{
        Allow, Cluster, ClusterSpec, FederletSpec, MappingKind, NamespaceMapping, OfflineMode,
        PodAddressMode, PodApi,
    },
    capacity::{Limit, Limits},
    copy::StorageClasses,
    names::{MappingError, MemberName, NamespaceMap},
    status::PodAddresses,
    target::{Policy, Registries},
};

/// All that is wrong with what somebody wrote about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(Vec<String>);

impl std::error::Error for SettingsError {}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// Takes the value, or notes what is wrong with the field and goes on, so that people hear of everything at once.
struct Reader(Vec<String>);

impl Reader {
    fn take<T, E: fmt::Display>(&mut self, field: &str, read: Result<T, E>) -> Option<T> {
        read.map_err(|error| self.0.push(format!("{field}: {error}"))).ok()
    }
}

impl TryFrom<&Cluster> for MemberSettings {
    type Error = SettingsError;

    fn try_from(cluster: &Cluster) -> Result<Self, SettingsError> {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let labels = cluster.metadata.labels.clone().unwrap_or_default();
        Self::read(name, &labels, &cluster.spec)
    }
}

impl MemberSettings {
    /// What somebody wrote about a member, whether or not there is a Cluster for it.
    pub fn read(
        name: &str,
        labels: &BTreeMap<String, String>,
        spec: &ClusterSpec,
    ) -> Result<Self, SettingsError> {
        let mut reader = Reader(vec![]);
        let nothing = FederletSpec::default();
        let own = spec.federlet.as_ref().unwrap_or(&nothing);
        // Everything else is read under any name; without one there are no settings in the end.
        let checked = reader.take("metadata.name", MemberName::new(name));
        let region = own
            .region_selector
            .as_deref()
            .and_then(|text| reader.take("spec.federlet.regionSelector", text.parse()));
        let is_region = own.region_selector.is_some();
        let namespaces = match (&own.namespaces, &checked) {
            (Some(mapping), _) => reader.take("spec.federlet.namespaces", namespace_map(mapping)),
            (None, Some(name)) if is_region => Some(NamespaceMap::for_region(name)),
            (None, _) => Some(NamespaceMap::same()),
        };
        let limits = own.limits.iter().filter_map(|(resource, limit)| {
            let limit = reader.take(&format!("spec.federlet.limits.{resource}"), read_limit(limit))?;
            Some((resource.clone(), limit))
        });
        let limits = Limits::new(limits.collect::<Vec<_>>());
        let registries = own.registries.as_ref().map(|list| {
            for entry in list {
                reader.take("spec.federlet.registries", check_registry(entry));
            }
            Registries::new(list.iter().map(String::as_str))
        });
        for taint in &spec.taints {
            reader.take("spec.taints", check_taint(taint));
        }
        for (host, member) in &own.storage_classes {
            if member.trim().is_empty() {
                reader.take::<(), _>(
                    &format!("spec.federlet.storageClasses.{host}"),
                    Err("names no storage class"),
                );
            }
        }
        let (true, Some(name), Some(namespaces)) = (reader.0.is_empty(), checked, namespaces) else {
            return Err(SettingsError(reader.0));
        };
        let offline = match own.offline {
            Some(OfflineMode::Keep) => Offline::Keep,
            Some(OfflineMode::Evict) => Offline::Evict,
            None if is_region => Offline::Keep,
            None => Offline::Evict,
        };
        Ok(Self {
            name,
            region,
            namespaces,
            offline,
            limits,
            policy: policy(own.allow.as_ref(), registries),
            api: match own.pod_api {
                Some(PodApi::Member) => ApiChoice::Member,
                Some(PodApi::None) => ApiChoice::None,
                Some(PodApi::Host) | None => ApiChoice::Host,
            },
            storage_classes: StorageClasses::new(own.storage_classes.clone()),
            pod_addresses: match own.pod_addresses {
                Some(PodAddressMode::Keep) => PodAddresses::Keep,
                Some(PodAddressMode::Hide) | None => PodAddresses::Hide,
            },
            labels: node_labels(labels, spec),
            taints: spec.taints.clone(),
        })
    }
}

fn namespace_map(mapping: &NamespaceMapping) -> Result<NamespaceMap, MappingError> {
    let value = mapping.value.as_deref().unwrap_or_default();
    match mapping.mapping {
        MappingKind::Same => Ok(NamespaceMap::same()),
        MappingKind::Suffix => NamespaceMap::suffix(value),
        MappingKind::Prefix => NamespaceMap::prefix(value),
    }
}

fn read_limit(limit: &IntOrString) -> Result<Limit, crate::capacity::LimitError> {
    match limit {
        IntOrString::Int(number) => number.to_string().parse(),
        IntOrString::String(text) => text.parse(),
    }
}

fn policy(allow: Option<&Allow>, registries: Option<Registries>) -> Policy {
    let allow = allow.cloned().unwrap_or_default();
    Policy {
        privileged: allow.privileged,
        host_network: allow.host_network,
        host_processes: allow.host_processes,
        host_path: allow.host_path,
        system_priority: allow.system_priority,
        registries,
    }
}

/// An address in a browser is what people copy first.
fn check_registry(entry: &str) -> Result<(), String> {
    let shown: String = entry.chars().take(80).collect();
    if entry.contains("://") {
        return Err(format!("{shown:?} is an address: write it without https://"));
    }
    if entry.trim().is_empty() || entry.contains(char::is_whitespace) || entry.starts_with('/') {
        return Err(format!("{shown:?} is not a registry, such as registry.example.com or quay.io/team"));
    }
    Ok(())
}

fn check_taint(taint: &Taint) -> Result<(), String> {
    if taint.key.is_empty() {
        return Err("a taint needs a key".to_owned());
    }
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&taint.effect.as_str()) {
        return Err(format!(
            "the effect of {:?} is NoSchedule, PreferNoSchedule or NoExecute, not {:?}",
            taint.key, taint.effect
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(name: &str, spec: &Value) -> Result<MemberSettings, String> {
        let spec = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
        MemberSettings::read(name, &BTreeMap::new(), &spec).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cluster_needs_nothing_said_about_it() {
        let settings = read("member1", &json!({})).unwrap();
        assert!(settings.region.is_none());
        assert_eq!(settings.namespaces, NamespaceMap::same());
        assert_eq!(settings.offline, Offline::Evict);
        assert_eq!(settings.policy, Policy::default());
        assert_eq!((settings.api, settings.pod_addresses), (ApiChoice::Host, PodAddresses::Hide));
    }

    #[test]
    fn a_region_keeps_its_pods_and_its_namespaces_apart() {
        let region = json!({"federlet": {"regionSelector": "location=beijing"}});
        let settings = read("ke-beijing", &region).unwrap();
        assert!(settings.region.unwrap().matches(&json!({"location": "beijing"})));
        assert_eq!(settings.namespaces.map("edge").unwrap().as_str(), "edge-ke-beijing");
        assert_eq!(settings.offline, Offline::Keep);
        let told = json!({"federlet": {
            "regionSelector": "location=beijing", "offline": "Evict",
            "namespaces": {"mapping": "Prefix", "value": "bj-"},
        }});
        let settings = read("ke-beijing", &told).unwrap();
        assert_eq!(settings.namespaces.map("edge").unwrap().as_str(), "bj-edge");
        assert_eq!(settings.offline, Offline::Evict);
    }

    #[test]
    fn everything_that_can_be_said_is_read() {
        let settings = read(
            "m",
            &json!({
                "taints": [{"key": "a", "effect": "NoExecute"}],
                "federlet": {
                    "limits": {"cpu": 4, "memory": "50%"}, "podApi": "Member", "podAddresses": "Keep",
                    "allow": {"privileged": true, "hostNetwork": true, "hostProcesses": true, "hostPath": true,
                              "systemPriority": true},
                    "registries": ["quay.io/team"], "storageClasses": {"fast": "ssd"},
                },
            }),
        )
        .unwrap();
        let limits = [("cpu", "4"), ("memory", "50%")].map(|(r, l)| (r.to_owned(), l.parse().unwrap()));
        assert_eq!(settings.limits, Limits::new(limits));
        assert_eq!((settings.api, settings.pod_addresses), (ApiChoice::Member, PodAddresses::Keep));
        let allowed = Policy {
            privileged: true,
            host_network: true,
            host_processes: true,
            host_path: true,
            system_priority: true,
            registries: Some(Registries::new(["quay.io/team"])),
        };
        assert_eq!(settings.policy, allowed);
        assert_eq!(settings.taints[0].key, "a");
    }

    #[test]
    fn all_mistakes_are_said_at_once_each_with_its_field() {
        let error = read(
            "Not.A.Label",
            &json!({
                "taints": [{"key": "a", "effect": "Sometimes"}, {"key": "", "effect": "NoSchedule"}],
                "federlet": {
                    "regionSelector": "location in", "namespaces": {"mapping": "Suffix", "value": "-"},
                    "limits": {"cpu": "150%", "memory": "lots"}, "registries": ["https://quay.io", " "],
                    "storageClasses": {"fast": ""},
                },
            }),
        )
        .unwrap_err();
        for field in [
            "metadata.name",
            "spec.federlet.regionSelector",
            "spec.federlet.namespaces",
            "spec.federlet.limits.cpu",
            "spec.federlet.limits.memory",
            "without https://",
            "is not a registry",
            "not \"Sometimes\"",
            "a taint needs a key",
            "spec.federlet.storageClasses.fast",
        ] {
            assert!(error.contains(field), "{field} is not in: {error}");
        }
    }

    #[test]
    fn an_empty_selector_is_not_every_node() {
        assert!(read("m", &json!({"federlet": {"regionSelector": ""}})).is_err());
        assert!(read("m", &json!({"federlet": {"regionSelector": " , "}})).is_err());
    }
}
