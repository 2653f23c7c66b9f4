//! Conditions that say what is wrong with an object, and nothing as long as nothing ever was.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::ApiResource,
};
use serde_json::json;

/// What is known about one aspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is well, with a reason and words for it in case it was not before.
    Fine(&'static str, &'static str),
    /// Nobody can tell now. What was said before stays.
    Unknown,
    /// A reason, and what to do.
    Wrong(&'static str, String),
}

/// What an object is to say of all aspects; none if it says so already.
pub(crate) fn conditions(
    before: &[Condition],
    verdicts: &[(&str, Verdict)],
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let ours = |condition: &&Condition| verdicts.iter().any(|(kind, _)| *kind == condition.type_);
    let before: Vec<&Condition> = before.iter().filter(ours).collect();
    let next: Vec<Condition> = verdicts
        .iter()
        .filter_map(|(kind, verdict)| {
            next(before.iter().copied().find(|condition| condition.type_ == *kind), kind, verdict, now)
        })
        .collect();
    let same = next.len() == before.len() && next.iter().all(|condition| before.contains(&condition));
    (!same).then_some(next)
}

/// Writes them on the object that is meant. False if that is gone, or if its definition is an older one without a status:
/// then the Event must do.
pub(crate) async fn write(
    client: &Client,
    about: &ObjectReference,
    resource: &ApiResource,
    manager: &str,
    conditions: &[Condition],
) -> Result<bool, kube::Error> {
    let api: Api<DynamicObject> = match &about.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let applied = json!({
        "apiVersion": about.api_version, "kind": about.kind,
        // Another one that has the name by now has nothing to do with this.
        "metadata": { "name": about.name, "uid": about.uid },
        "status": { "conditions": conditions },
    });
    let name = about.name.as_deref().unwrap_or_default();
    match api.patch_status(name, &PatchParams::apply(manager).force(), &Patch::Apply(&applied)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}

fn next(before: Option<&Condition>, kind: &str, verdict: &Verdict, now: Timestamp) -> Option<Condition> {
    let (status, reason, message) = match verdict {
        Verdict::Wrong(reason, message) => ("False", *reason, message.as_str()),
        Verdict::Fine(reason, message) => {
            before?;
            ("True", *reason, *message)
        }
        Verdict::Unknown => return before.cloned(),
    };
    let since =
        before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    Some(Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.unwrap_or(Time(now)),
        observed_generation: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_until_it_is_surely_over() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (first, later) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let fine = || Verdict::Fine("Well", "all is well");
        let wrong = |why: &str| Verdict::Wrong("Ill", why.to_owned());
        assert_eq!(
            conditions(&[], &[("A", fine()), ("B", Verdict::Unknown)], first),
            None,
            "nothing ever was"
        );
        let said = conditions(&[], &[("A", wrong("no")), ("B", fine())], first).unwrap();
        assert_eq!(said.len(), 1);
        assert_eq!((&*said[0].type_, &*said[0].status, &*said[0].message), ("A", "False", "no"));
        assert_eq!(conditions(&said, &[("A", wrong("no")), ("B", fine())], later), None, "nothing is new");
        let other = conditions(&said, &[("A", wrong("nor this")), ("B", fine())], later).unwrap();
        assert_eq!((&*other[0].message, &other[0].last_transition_time), ("nor this", &Time(first)));
        // Another aspect does not take the first one away.
        let both = conditions(&said, &[("A", Verdict::Unknown), ("B", wrong("what"))], later).unwrap();
        assert_eq!(both.iter().map(|one| &*one.message).collect::<Vec<_>>(), ["no", "what"]);
        assert_eq!(conditions(&both, &[("A", Verdict::Unknown), ("B", wrong("what"))], later), None);
        let over = conditions(&said, &[("A", fine()), ("B", fine())], later).unwrap();
        assert_eq!((&*over[0].status, &over[0].last_transition_time), ("True", &Time(later)));
        assert_eq!(conditions(&over, &[("A", fine()), ("B", fine())], later), None);
    }
}
