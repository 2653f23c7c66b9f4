use proptest::prelude::*;

use super::*;

/// JSON of any shape: what other versions and other people put into a pod.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z./-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Every field that some step of the translation looks at.
const LOOKED_AT: [&str; 19] = [
    "affinity",
    "containers",
    "initContainers",
    "ephemeralContainers",
    "volumes",
    "tolerations",
    "nodeSelector",
    "topologySpreadConstraints",
    "hostAliases",
    "schedulerName",
    "priorityClassName",
    "resources",
    "securityContext",
    "serviceAccountName",
    "imagePullSecrets",
    "schedulingGates",
    "resourceClaims",
    "hostNetwork",
    "readinessGates",
];

fn targets() -> impl Strategy<Value = Target> {
    (any::<bool>(), 28u16..38, 0..3).prop_map(|(in_region, minor, api)| {
        let mut target = if in_region { region() } else { cluster() };
        target.version = Version::v1(minor);
        match api {
            0 => target.api = ApiAccess::Member,
            1 => target.api = ApiAccess::None,
            _ => {}
        }
        target
    })
}

proptest! {
    #[test]
    fn the_same_pod_gives_the_same_pod(target in targets()) {
        let (first, second) = (sent(&pod(), &target), sent(&pod(), &target));
        prop_assert_eq!(first.json.to_string(), second.json.to_string());
    }

    #[test]
    fn unknown_fields_survive(
        target in targets(),
        name in "zz[a-zA-Z]{1,8}",
        value in anything(),
        place in prop::sample::select(vec!["/spec", "/metadata", "/spec/containers/0", "/spec/volumes/0", "/spec/containers/0/env/0", ""]),
    ) {
        prop_assume!(place != "/spec/volumes/0" || matches!(target.api, ApiAccess::Host { .. }));
        let mut pod = pod();
        pod.pointer_mut(place).unwrap()[&name] = value.clone();
        let member = sent(&pod, &target).json;
        let survived = if place == "/spec/containers/0/env/0" {
            let env = member["spec"]["containers"][0]["env"].as_array().unwrap();
            env.iter().find(|env| env["name"] == "FIRST").unwrap()[&name].clone()
        } else {
            member.pointer(place).unwrap()[&name].clone()
        };
        prop_assert_eq!(survived, value);
    }

    /// Translating what was translated changes nothing more than the marks of the second time: no env twice, no
    /// toleration twice, no rule twice.
    #[test]
    fn the_spec_is_settled_after_one_time(target in targets()) {
        let once = sent(&pod(), &target);
        let mut again = once.json.clone();
        again["metadata"]["uid"] = "8a6e0804-2bd0-4672-b79d-d97027f9071a".into();
        again["metadata"]["namespace"] = "edge".into();
        if target.region.is_none() && target.api != ApiAccess::Member {
            let twice = sent(&again, &target);
            prop_assert_eq!(&twice.json["spec"], &once.json["spec"]);
        }
    }

    #[test]
    fn no_pod_makes_it_panic(
        target in targets(),
        fields in prop::collection::vec((prop::sample::select(LOOKED_AT.to_vec()), anything()), 0..5),
        metadata in anything(),
        constraints in anything(),
    ) {
        let mut pod = pod();
        for (field, value) in fields {
            pod["spec"][field] = value;
        }
        let request = Request { anchor: &anchor(), member_name: None, service_env: &[] };
        let _ = translate(&pod, &target, &request);
        pod["metadata"]["annotations"] = json!({ crate::marks::CONSTRAINTS: constraints.to_string() });
        let _ = translate(&pod, &target, &request);
        pod["metadata"]["annotations"] = metadata.clone();
        pod["metadata"]["labels"] = metadata.clone();
        let _ = translate(&pod, &target, &request);
        pod["metadata"] = metadata;
        let _ = translate(&pod, &target, &request);
    }

    /// However the containers are odd.
    #[test]
    fn no_container_makes_it_panic(target in targets(), env in anything(), volume in anything(), term in anything()) {
        let mut pod = pod();
        pod["spec"]["containers"] = json!([env, { "env": env }, { "env": [env], "envFrom": [env], "volumeMounts": [env], "ports": [env] }]);
        pod["spec"]["volumes"] = json!([
            volume, { "name": "kube-api-access-1", "projected": { "sources": [volume, { "serviceAccountToken": volume, "configMap": volume, "downwardAPI": volume }] } },
            { "ephemeral": volume, "configMap": volume, "downwardAPI": { "items": [volume, { "fieldRef": volume }] } },
        ]);
        pod["spec"]["affinity"] = json!({ "nodeAffinity": term, "podAffinity": term, "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term, { "topologyKey": "kubernetes.io/hostname", "namespaces": term, "matchLabelKeys": term, "labelSelector": term }],
            "preferredDuringSchedulingIgnoredDuringExecution": [term, { "podAffinityTerm": term }],
        } });
        let request = Request { anchor: &anchor(), member_name: None, service_env: &[] };
        let _ = translate(&pod, &target, &request);
    }
}
