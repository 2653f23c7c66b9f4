use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::marks;

fn host() -> HostId {
    HostId::new("0f5c1d6e-8f1b-4b8e-9f0e-2c6f0a3b7a11").unwrap()
}

fn member(name: &str) -> MemberName {
    MemberName::new(name).unwrap()
}

#[test]
fn names_are_checked_where_they_come_in() {
    for good in ["a", "member1", "ke-beijing-cluster", "1", &"a".repeat(63)] {
        assert!(MemberName::new(good).is_ok(), "{good}");
    }
    for bad in ["", "-a", "a-", "a.b", "A", "a_b", "ä", "a/b", &"a".repeat(64)] {
        assert!(MemberName::new(bad).is_err(), "{bad}");
    }
    assert!(HostPodKey::new("ns", "web-0.x").is_ok());
    for (namespace, name) in
        [("", "a"), ("a.b", "a"), ("ns", ""), ("ns", "a/b"), ("../x", "a"), ("ns", "a..b")]
    {
        assert!(HostPodKey::new(namespace, name).is_err(), "{namespace}/{name}");
    }
    assert!(HostUid::new("two words").is_err());
}

#[test]
fn namespaces_map_as_documented() {
    let region = NamespaceMap::for_region(&member("ke-beijing-cluster"));
    for (map, from, to) in [
        (NamespaceMap::same(), "shop", "shop"),
        (NamespaceMap::same(), "default", "default"),
        (region, "edge", "edge-ke-beijing-cluster"),
        (NamespaceMap::suffix("-x").unwrap(), "shop", "shop-x"),
        (NamespaceMap::prefix("host1-").unwrap(), "shop", "host1-shop"),
    ] {
        assert_eq!(map.map(from).unwrap().as_str(), to);
    }
}

#[test]
fn the_namespaces_that_run_a_cluster_are_out_of_reach() {
    for (map, from) in [
        (NamespaceMap::same(), "kube-system"),
        (NamespaceMap::same(), "kube-public"),
        (NamespaceMap::same(), "kube-node-lease"),
        (NamespaceMap::same(), "kubeedge"),
        (NamespaceMap::prefix("kube-").unwrap(), "system"),
        (NamespaceMap::prefix("k").unwrap(), "ube-system"),
        (NamespaceMap::prefix("kube").unwrap(), "edge"),
        (NamespaceMap::suffix("-system").unwrap(), "kube"),
        (NamespaceMap::suffix("edge").unwrap(), "kube"),
        (NamespaceMap::suffix("-lease").unwrap(), "kube-node"),
    ] {
        assert!(matches!(map.map(from), Err(MappingError::Reserved { .. })), "{map:?} {from}");
    }
}

#[test]
fn additions_that_make_no_namespace_are_refused() {
    for bad in ["", "-", "-a-", "-A", "-a.b", "/x", &format!("-{}", "a".repeat(60))] {
        assert!(NamespaceMap::suffix(bad).is_err(), "{bad}");
    }
    for bad in ["", "-a", "A-", "a.b-", &"a".repeat(60)] {
        assert!(NamespaceMap::prefix(bad).is_err(), "{bad}");
    }
}

#[test]
fn two_regions_that_could_meet_are_known_before_they_do() {
    let suffix = |text| NamespaceMap::suffix(text).unwrap();
    assert!(suffix("-a").may_collide(&suffix("-b-a")));
    assert_eq!(suffix("-a").map("x-b").unwrap(), suffix("-b-a").map("x").unwrap());
    assert!(!suffix("-ke-beijing").may_collide(&suffix("-ke-hangzhou")));
    assert!(NamespaceMap::same().may_collide(&suffix("-a")));
    assert!(suffix("-a").may_collide(&suffix("-a")));
    let prefix = |text| NamespaceMap::prefix(text).unwrap();
    assert!(prefix("a-").may_collide(&prefix("a-b-")));
    assert!(!prefix("a-").may_collide(&prefix("b-")));
}

#[test]
fn only_our_own_namespaces_are_claimed() {
    let (host, node) = (host(), member("ke-beijing"));
    let map = NamespaceMap::for_region(&node);
    let ours = map.manifest("edge", &host, &node).unwrap();
    assert_eq!(map.claim(None, "edge", &host, &node), Claim::Create);
    assert_eq!(map.claim(Some(&ours), "edge", &host, &node), Claim::Ours);
    let foreign = |claim| matches!(claim, Claim::Foreign(_));
    assert!(foreign(map.claim(Some(&ours), "other", &host, &node)));
    assert!(foreign(map.claim(Some(&ours), "edge", &host, &member("ke-hangzhou"))));
    assert!(foreign(map.claim(Some(&ours), "edge", &HostId::new("other").unwrap(), &node)));
    let bare = json!({ "metadata": { "name": "edge-ke-beijing" } });
    assert!(foreign(map.claim(Some(&bare), "edge", &host, &node)));
    // One that we let go can be used again, for what it stood for and nothing else.
    let let_go = json!({ "metadata": {
        "name": "edge-ke-beijing", "annotations": { marks::HOST_NAMESPACE: "edge" },
    } });
    assert_eq!(map.claim(Some(&let_go), "edge", &host, &node), Claim::Shared);
    assert!(foreign(map.claim(Some(&let_go), "other", &host, &node)));
    assert_eq!(NamespaceMap::same().claim(Some(&bare), "edge-ke-beijing", &host, &node), Claim::Shared);
}

#[test]
fn a_mapping_back_is_believed_only_if_it_leads_here() {
    let map = NamespaceMap::suffix("-x").unwrap();
    let says = |namespace: &str| json!({ marks::HOST_NAMESPACE: namespace });
    assert_eq!(map.host_namespace("shop-x", &says("shop")).as_deref(), Some("shop"));
    assert_eq!(map.host_namespace("shop-x", &says("bank")), None);
    assert_eq!(map.host_namespace("shop-x", &json!({})), None);
    assert_eq!(NamespaceMap::same().host_namespace("shop", &json!(null)).as_deref(), Some("shop"));
}

#[test]
fn tokens_of_different_pods_and_audiences_have_different_secrets() {
    let uid = |text| HostUid::new(text).unwrap();
    let mut names = vec![
        token_secret("web", &uid("u1"), None, Some(3607)),
        token_secret("web", &uid("u2"), None, Some(3607)),
        token_secret("web", &uid("u1"), Some("vault"), Some(3607)),
        token_secret("web", &uid("u1"), Some(""), Some(3607)),
        token_secret("web", &uid("u1"), None, None),
        token_secret(&"w".repeat(253), &uid("u1"), None, None),
        token_secret(&format!("{}x", "w".repeat(252)), &uid("u1"), None, None),
    ];
    let count = names.len();
    assert!(names.iter().all(|name| name.len() <= 253), "{names:?}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

fn namespace() -> impl Strategy<Value = String> {
    // Few letters, many lengths: collisions are looked for where they are likely.
    "[ab]([ab-]{0,61}[ab])?"
}

fn mapping() -> impl Strategy<Value = NamespaceMap> {
    prop_oneof![
        Just(NamespaceMap::same()),
        "-[ab]{1,30}".prop_map(|s| NamespaceMap::suffix(&s).unwrap()),
        "[ab]{1,30}-".prop_map(|s| NamespaceMap::prefix(&s).unwrap()),
    ]
}

proptest! {
    #[test]
    fn every_namespace_has_one_valid_place_and_a_way_back(map in mapping(), host in namespace()) {
        let there = map.map(&host).unwrap();
        prop_assert!(text::is_label(there.as_str()), "{there}");
        prop_assert_eq!(&map.map(&host).unwrap(), &there);
        let back = map.host_namespace(there.as_str(), &json!({ marks::HOST_NAMESPACE: host.as_str() }));
        prop_assert_eq!(back, Some(host));
    }

    #[test]
    fn no_two_namespaces_meet(map in mapping(), a in namespace(), b in namespace()) {
        prop_assume!(a != b);
        prop_assert_ne!(map.map(&a).unwrap(), map.map(&b).unwrap());
    }

    /// Someone names a namespace exactly like the cut form of another.
    #[test]
    fn a_cut_name_cannot_be_made_up(suffix in "-[ab]{1,30}", long in "[ab]{62,63}") {
        let map = NamespaceMap::suffix(&suffix).unwrap();
        let cut = map.map(&long).unwrap();
        let made_up = cut.as_str().strip_suffix(&suffix).unwrap();
        prop_assert_ne!(map.map(made_up).unwrap(), cut);
    }

    #[test]
    fn maps_that_cannot_collide_do_not(
        a in "-[ab]{1,3}", b in "-[ab]{1,3}", x in "[ab-]{0,4}[ab]", y in "[ab-]{0,4}[ab]",
    ) {
        let (first, second) = (NamespaceMap::suffix(&a).unwrap(), NamespaceMap::suffix(&b).unwrap());
        let (x, y) = (format!("a{x}"), format!("a{y}"));
        prop_assume!(!first.may_collide(&second));
        prop_assert_ne!(first.map(&x).unwrap(), second.map(&y).unwrap());
    }

    #[test]
    fn no_mapping_ever_reaches_a_reserved_namespace(
        addition in "[kube-]{1,12}", host in "[kubesytm-]{1,14}", front in any::<bool>(),
    ) {
        let map = if front { NamespaceMap::prefix(&addition) } else { NamespaceMap::suffix(&addition) };
        if let Ok(there) = map.and_then(|map| map.map(&host)) {
            prop_assert!(!there.as_str().starts_with("kube-") && there.as_str() != "kubeedge");
        }
    }

    #[test]
    fn shortened_names_keep_to_the_limit(name in "[a-z]{1,80}", limit in 20usize..70) {
        let short = shortened(&name, limit);
        prop_assert!(short.len() <= limit);
        prop_assert_eq!(short.len() == limit, name.len() >= limit);
    }
}
