//! Whether an account may do what the tables say that it must.

use federlet_provider::rights::Right;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::ResourceAttributes;

/// So many questions are open at once.
const TOGETHER: usize = 8;

/// What of these rights is not granted, as far as whoever is asked knows.
pub(super) async fn lacking<A>(
    rights: &[Right],
    may: impl Fn(ResourceAttributes) -> A,
) -> Result<Vec<String>, kube::Error>
where
    A: Future<Output = Result<bool, kube::Error>>,
{
    let each = rights.iter().flat_map(|right| {
        right
            .resources
            .iter()
            .flat_map(move |resource| right.verbs.iter().map(move |verb| (right, *resource, *verb)))
    });
    let asked = each.map(|(right, resource, verb)| {
        let answer = may(attributes(right, resource, verb));
        async move { Ok::<_, kube::Error>((!answer.await?).then(|| format!("{verb} {resource}"))) }
    });
    let answers: Vec<Option<String>> = stream::iter(asked).buffered(TOGETHER).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

fn attributes(right: &Right, resource: &str, verb: &str) -> ResourceAttributes {
    let (resource, part) =
        resource.split_once('/').map_or((resource, None), |(whole, part)| (whole, Some(part)));
    ResourceAttributes {
        group: Some(right.group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: part.map(str::to_owned),
        name: right.names.first().map(|name| (*name).to_owned()),
        namespace: right.namespace.map(str::to_owned),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    }
}
