//! Whether an account may do what the tables say that it must.

use federlet_provider::rights::Right;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::ResourceAttributes;

/// So many questions are open at once.
const TOGETHER: usize = 8;

/// What of these is not granted, as far as whoever is asked knows.
pub(super) async fn lacking<A>(
    questions: Vec<ResourceAttributes>,
    may: impl Fn(ResourceAttributes) -> A,
) -> Result<Vec<String>, kube::Error>
where
    A: Future<Output = Result<bool, kube::Error>>,
{
    let asked = questions.into_iter().map(|question| {
        let shown = shown(&question);
        let answer = may(question);
        async move { Ok::<_, kube::Error>((!answer.await?).then_some(shown)) }
    });
    let answers: Vec<Option<String>> = stream::iter(asked).buffered(TOGETHER).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// What to ask about rights: each verb of each resource.
pub(super) fn questions(rights: &[Right]) -> Vec<ResourceAttributes> {
    let of = |right: &Right| -> Vec<ResourceAttributes> {
        let each =
            right.resources.iter().flat_map(|resource| right.verbs.iter().map(move |verb| (resource, verb)));
        each.map(|(resource, verb)| attributes(right, resource, verb)).collect()
    };
    rights.iter().flat_map(of).collect()
}

fn shown(question: &ResourceAttributes) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let part = question.subresource.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
    format!("{} {}{part}", text(&question.verb), text(&question.resource))
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

#[cfg(test)]
mod tests {
    use federlet_provider::rights::{HOST_MEMBER_RIGHTS, HOST_POLICY_RIGHTS};

    use super::*;

    #[tokio::test]
    async fn what_is_not_granted_is_named() {
        let may = |question: ResourceAttributes| async move { Ok(question.verb.as_deref() == Some("patch")) };
        let found = lacking(questions(HOST_MEMBER_RIGHTS), may).await.unwrap();
        assert_eq!(found, ["delete nodes", "delete pods"]);
        let no = |_| async { Ok(false) };
        let found = lacking(questions(HOST_POLICY_RIGHTS), no).await.unwrap();
        assert!(found.contains(&"patch propagationpolicies/status".to_owned()), "{found:?}");
    }
}
