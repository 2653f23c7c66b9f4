use super::*;

/// A wildcard, or a right to give rights, is never least.
#[test]
fn no_right_opens_more_than_it_says() {
    for right in MEMBER_RIGHTS.iter().chain(HOST_RIGHTS) {
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
    for rights in [MEMBER_RIGHTS, HOST_RIGHTS] {
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
