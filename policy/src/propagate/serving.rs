//! How the host serves a kind, and when it is certain that nothing of it is left. A version that is served no more says
//! nothing about the objects: they may be alive under another one.

use federlet_provider::errors::brief;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, GroupVersionKind},
    discovery::{self, Scope},
    error::DiscoveryError,
};

use super::templates::Trouble;
use crate::store::Kind;

/// After so many answers in a row a kind is really not there: an API server that starts knows its definitions late.
pub(super) const CERTAIN: u32 = 3;
/// The answer to those who lack a right.
const FORBIDDEN: u16 = 403;

/// A kind as the host serves it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Served {
    pub(super) resource: ApiResource,
    pub(super) namespaced: bool,
}

/// What the host says about a kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// It is served in this way.
    Served(Box<Served>),
    /// It is not, but these versions of it are; none if its group has no such kind.
    Missing(Vec<String>),
}

/// Whether the definition of a kind that is not served is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    /// Nobody looked.
    NotAsked,
    /// There is none.
    Gone,
    /// It is there, and so may its objects be.
    There,
    /// The host does not tell.
    Unknown { said: String, lasts: bool },
}

/// What follows from a kind that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// There are no objects of it, for certain.
    Gone(Trouble),
    /// Nobody knows. What is there stays.
    Unknown(Trouble),
}

/// Asks the host.
pub(super) async fn ask(client: &Client, kind: &Kind) -> Result<Answer, kube::Error> {
    let (group, version) = split(kind);
    match discovery::pinned_kind(client, &GroupVersionKind::gvk(group, version, &kind.1)).await {
        Ok((resource, capabilities)) => {
            let namespaced = capabilities.scope == Scope::Namespaced;
            return Ok(Answer::Served(Box::new(Served { resource, namespaced })));
        }
        Err(kube::Error::Discovery(_)) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error),
    }
    // It fails as a whole if one of the versions cannot be read.
    match discovery::group(client, group).await {
        Ok(found) => {
            let resources = found.versions().flat_map(|version| found.versioned_resources(version));
            let all = resources.map(|(resource, capabilities)| Served {
                namespaced: capabilities.scope == Scope::Namespaced,
                resource,
            });
            Ok(answer(kind, all))
        }
        Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_))) => Ok(Answer::Missing(vec![])),
        Err(error) => Err(error),
    }
}

/// What all that a group serves says about a kind.
fn answer((api_version, kind): &Kind, group: impl Iterator<Item = Served>) -> Answer {
    let mut elsewhere = vec![];
    for served in group.filter(|served| served.resource.kind == *kind) {
        if served.resource.api_version == *api_version {
            return Answer::Served(Box::new(served));
        }
        elsewhere.push(served.resource.api_version);
    }
    Answer::Missing(elsewhere)
}

/// Looks for the definition of a kind. Its objects are kept even if none of its versions is served.
pub(super) async fn definition(client: &Client, kind: &Kind) -> Definition {
    match is_defined(client, kind).await {
        Ok(true) => Definition::There,
        Ok(false) => Definition::Gone,
        Err(error) => {
            let lasts = matches!(&error, kube::Error::Api(status) if status.code == FORBIDDEN);
            Definition::Unknown { said: brief(&error), lasts }
        }
    }
}

async fn is_defined(client: &Client, kind: &Kind) -> Result<bool, kube::Error> {
    let (group, _) = split(kind);
    // Groups of definitions are domains.
    if !group.contains('.') {
        return Ok(false);
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    // Definitions are large; only those of the group are read.
    for found in api.list_metadata(&ListParams::default()).await? {
        let name = found.metadata.name.unwrap_or_default();
        if name.split_once('.').is_none_or(|(_, of)| of != group) {
            continue;
        }
        if api.get_opt(&name).await?.is_some_and(|found| found.spec.names.kind == kind.1) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What follows from so many answers in a row that a kind is not served.
pub(super) fn follows(elsewhere: &[String], misses: u32, definition: &Definition) -> Follows {
    let certain = misses >= CERTAIN;
    let unknown = |said: String, lasts: bool| Follows::Unknown(Trouble { said, lasts });
    if !elsewhere.is_empty() {
        let versions = elsewhere.join(", ");
        return unknown(
            format!(
                "the host serves it as {versions} only, so let the policy name that; copies stay as they are"
            ),
            certain,
        );
    }
    let said = "the host does not serve it".to_owned();
    match definition {
        Definition::Gone if certain => Follows::Gone(Trouble {
            said: format!("{said}; is its CustomResourceDefinition there?"),
            lasts: true,
        }),
        Definition::Gone | Definition::NotAsked => unknown(said, false),
        Definition::There => unknown(
            format!("{said}, though its CustomResourceDefinition is there; copies stay as they are"),
            certain,
        ),
        Definition::Unknown { said: why, lasts } => unknown(
            format!("{said}, and whether its CustomResourceDefinition is there cannot be read: {why}"),
            certain && *lasts,
        ),
    }
}

fn split((api_version, _): &Kind) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(version: &str, kind: &str) -> Served {
        let resource = ApiResource {
            group: "x.io".into(),
            version: version.into(),
            api_version: format!("x.io/{version}"),
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        Served { resource, namespaced: true }
    }

    #[test]
    fn a_version_that_is_not_served_is_not_the_kind() {
        let kind = ("x.io/v1beta1".to_owned(), "Widget".to_owned());
        for (group, expected) in [
            (vec![], Answer::Missing(vec![])),
            (vec![("v1", "Gadget"), ("v1beta1", "Gadget")], Answer::Missing(vec![])),
            (vec![("v1", "Widget"), ("v1", "Gadget")], Answer::Missing(vec!["x.io/v1".into()])),
            (
                vec![("v1", "Widget"), ("v1beta1", "Widget")],
                Answer::Served(Box::new(served("v1beta1", "Widget"))),
            ),
        ] {
            let found = answer(&kind, group.iter().map(|(version, kind)| served(version, kind)));
            assert_eq!(found, expected, "{group:?}");
        }
    }

    #[test]
    fn only_what_is_certain_means_that_objects_are_gone() {
        let forbidden = |lasts| Definition::Unknown { said: "no".into(), lasts };
        let v1 = ["x.io/v1".to_owned()];
        for (elsewhere, misses, definition, gone, lasts) in [
            // A server that starts may not know the kind yet.
            (&[][..], 1, Definition::NotAsked, false, false),
            (&[], CERTAIN, Definition::NotAsked, false, false),
            (&[], CERTAIN, Definition::Gone, true, true),
            (&[], 1, Definition::Gone, false, false),
            // Its objects are kept, served or not.
            (&[], CERTAIN, Definition::There, false, true),
            (&[], CERTAIN, forbidden(true), false, true),
            (&[], CERTAIN, forbidden(false), false, false),
            // They are alive under another version, however often it is asked for this one.
            (&v1, 1, Definition::NotAsked, false, false),
            (&v1, CERTAIN, Definition::NotAsked, false, true),
            (&v1, 100, Definition::Gone, false, true),
        ] {
            let found = follows(elsewhere, misses, &definition);
            let (is_gone, trouble) = match &found {
                Follows::Gone(trouble) => (true, trouble),
                Follows::Unknown(trouble) => (false, trouble),
            };
            assert_eq!((is_gone, trouble.lasts), (gone, lasts), "{elsewhere:?} {misses} {definition:?}");
            let named = trouble.said.contains("serves it as x.io/v1 only");
            assert_eq!(named, !elsewhere.is_empty(), "{}", trouble.said);
        }
    }
}
