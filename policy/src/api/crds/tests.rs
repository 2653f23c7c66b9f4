use std::{fs, path::PathBuf};

use super::*;

/// The checked-in files are what the types say. `UPDATE_CRDS=1 cargo test -p federlet-policy` writes them.
#[test]
fn the_checked_in_definitions_are_those_of_the_types() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds");
    let mut expected = Vec::new();
    for crd in all() {
        let name = crd.metadata.name.clone().unwrap();
        let path = folder.join(format!("{name}.yaml"));
        let text = serde_saphyr::to_string(&serde_json::to_value(&crd).unwrap()).unwrap();
        if std::env::var_os("UPDATE_CRDS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{} is stale", path.display());
        expected.push(path);
    }
    let mut found: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn names_are_those_people_type() {
    let names: Vec<_> = all()
        .into_iter()
        .map(|crd| {
            let short = crd.spec.names.short_names.unwrap_or_default().join(",");
            (crd.metadata.name.unwrap_or_default(), crd.spec.scope, short)
        })
        .collect();
    let expected = [
        ("propagationpolicies.policy.karmada.io", "Namespaced", "pp"),
        ("clusterpropagationpolicies.policy.karmada.io", "Cluster", "cpp"),
        ("overridepolicies.policy.karmada.io", "Namespaced", "op"),
        ("clusteroverridepolicies.policy.karmada.io", "Cluster", "cop"),
        ("resourcebindings.work.karmada.io", "Namespaced", "rb"),
        ("clusterresourcebindings.work.karmada.io", "Cluster", "crb"),
        ("clusters.cluster.karmada.io", "Cluster", ""),
    ];
    assert_eq!(
        names,
        expected.map(|(name, scope, short)| (name.to_owned(), scope.to_owned(), short.to_owned()))
    );
}

#[test]
fn defaults_are_karmadas() {
    for crd in [PropagationPolicy::crd(), ClusterPropagationPolicy::crd()] {
        let crd = serde_json::to_value(crd).unwrap();
        let spec = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties").unwrap();
        assert_eq!(spec.pointer("/priority/default").unwrap(), 0);
        assert_eq!(spec.pointer("/preemption/default").unwrap(), "Never");
        assert_eq!(spec.pointer("/schedulerName/default").unwrap(), "default-scheduler");
        assert_eq!(spec.pointer("/conflictResolution/default").unwrap(), "Abort");
        assert_eq!(spec.pointer("/resourceSelectors/minItems").unwrap(), 1);
        let scheduling = spec.pointer("/placement/properties/replicaScheduling/properties").unwrap();
        assert_eq!(scheduling.pointer("/replicaSchedulingType/default").unwrap(), "Divided");
        let failover = spec.pointer("/failover/properties/application/properties").unwrap();
        assert_eq!(failover.pointer("/purgeMode/default").unwrap(), "Gracefully");
        assert_eq!(
            failover.pointer("/decisionConditions/properties/tolerationSeconds/default").unwrap(),
            300
        );
    }
}
