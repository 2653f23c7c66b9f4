use std::{fs, path::PathBuf};

use super::*;

/// `UPDATE_RIGHTS=1 cargo test -p federlet-provider rights` writes what is stale.
fn is_current(file: &str, expected: impl Fn(&str) -> String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    let found = fs::read_to_string(&path).unwrap_or_default();
    let expected = expected(&found);
    if std::env::var_os("UPDATE_RIGHTS").is_some() {
        fs::write(&path, &expected).unwrap();
    } else {
        assert_eq!(found, expected, "{} is stale", path.display());
    }
}

#[test]
fn the_roles_are_those_of_the_tables() {
    let yaml = |object: serde_json::Value| serde_saphyr::to_string(&object).unwrap();
    for (file, manifests) in [
        ("rbac/host.yaml", host_manifests()),
        ("rbac/host-secrets.yaml", host_secret_manifests()),
        ("rbac/member.yaml", member_manifests()),
    ] {
        let all = manifests.into_iter().map(yaml).collect::<Vec<_>>().join("---\n");
        is_current(file, |_| all.clone());
    }
}

#[test]
fn the_documentation_shows_the_tables() {
    is_current("../docs/joining.md", |found| {
        let mut text = found.to_owned();
        let more: Vec<Right> = MoreObjects::ALL.iter().flat_map(|more| more.rights()).copied().collect();
        for (mark, rights) in [
            ("member", MEMBER_RIGHTS),
            ("member objects", MEMBER_OBJECT_RIGHTS),
            ("member more", &more),
            ("host", HOST_RIGHTS),
            ("host members", HOST_MEMBER_RIGHTS),
            ("host credentials", HOST_CREDENTIAL_RIGHTS),
            ("host overrides", HOST_OVERRIDE_RIGHTS),
            ("host policies", HOST_POLICY_RIGHTS),
            ("host objects", HOST_OBJECT_RIGHTS),
            ("host secrets", HOST_SECRET_RIGHTS),
        ] {
            let (begin, end) = (format!("<!-- rights: {mark} -->\n"), format!("<!-- end: {mark} -->\n"));
            let (from, to) = (text.find(&begin).unwrap() + begin.len(), text.find(&end).unwrap());
            text.replace_range(from..to, &format!("\n{}\n", table(rights)));
        }
        text
    });
}

/// Every table there is.
const TABLES: [&[Right]; 9] = [
    MEMBER_RIGHTS,
    HOST_RIGHTS,
    HOST_MEMBER_RIGHTS,
    HOST_CREDENTIAL_RIGHTS,
    HOST_OVERRIDE_RIGHTS,
    HOST_POLICY_RIGHTS,
    MEMBER_OBJECT_RIGHTS,
    HOST_OBJECT_RIGHTS,
    HOST_SECRET_RIGHTS,
];

/// A wildcard, or a right to give rights, is never least.
#[test]
fn no_right_opens_more_than_it_says() {
    for right in TABLES.into_iter().flatten() {
        let all = [&[right.group], right.resources, right.verbs, right.names].concat();
        assert!(!all.contains(&"*"), "{right:?}");
        for verb in ["escalate", "bind", "deletecollection"] {
            assert!(!right.verbs.contains(&verb), "{right:?}");
        }
        // Without names, one may be anybody.
        assert!(!right.verbs.contains(&"impersonate") || !right.names.is_empty(), "{right:?}");
        assert!(!right.why.is_empty());
    }
}

#[test]
fn nothing_is_said_twice() {
    for rights in TABLES {
        for (at, right) in rights.iter().enumerate() {
            let again = rights[..at].iter().find(|other| {
                other.group == right.group
                    && other.namespace == right.namespace
                    && other.names == right.names
                    && other.resources.iter().any(|resource| right.resources.contains(resource))
            });
            assert_eq!(again, None, "{right:?}");
        }
    }
}
