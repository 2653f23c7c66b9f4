//! Taking away what we made in a member.

use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Secret, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PartialObjectMeta, Preconditions},
};
use serde::de::DeserializeOwned;

use crate::{
    marks,
    names::{HostId, MemberName, anchor},
};

/// What is still there of what we made in a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Kinds, and how many of each; only those of which there are any.
    pub counts: Vec<(&'static str, usize)>,
}

impl Remains {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each =
            |(kind, count): &(&str, usize)| format!("{count} {kind}{}", if *count == 1 { "" } else { "s" });
        f.write_str(&self.counts.iter().map(each).collect::<Vec<_>>().join(", "))
    }
}

/// Asks the member to take away all that this host made there for this node, and says what is still there.
///
/// Everything has an anchor for its owner, and the anchors are what is deleted; namespaces that we made go as a whole.
/// What carries no mark of ours is not touched. Ask again until nothing remains.
pub async fn clear(member: &Client, host: &HostId, node: &MemberName) -> Result<Remains, kube::Error> {
    let ours =
        ListParams::default().labels(&format!("{}={host},{}={node}", marks::HOST, marks::NODE)).limit(500);
    let maps = list::<ConfigMap>(member, &ours).await?;
    let name = anchor(host, node);
    for map in maps.iter().filter(|map| map.name_any() == name) {
        let namespaced: Api<ConfigMap> =
            Api::namespaced(member.clone(), &map.namespace().unwrap_or_default());
        delete(&namespaced, map).await?;
    }
    let namespaces = list::<Namespace>(member, &ours).await?;
    for namespace in &namespaces {
        delete(&Api::<Namespace>::all(member.clone()), namespace).await?;
    }
    let counts = [
        ("Pod", list::<Pod>(member, &ours).await?.len()),
        ("ConfigMap", maps.len()),
        ("Secret", list::<Secret>(member, &ours).await?.len()),
        ("PersistentVolumeClaim", list::<PersistentVolumeClaim>(member, &ours).await?.len()),
        ("Service", list::<Service>(member, &ours).await?.len()),
        ("Namespace", namespaces.len()),
    ];
    Ok(Remains { counts: counts.into_iter().filter(|(_, count)| *count > 0).collect() })
}

async fn list<K>(client: &Client, params: &ListParams) -> Result<Vec<PartialObjectMeta<K>>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let (mut found, mut params) = (vec![], params.clone());
    loop {
        let page = api.list_metadata(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Deletes exactly this object, unless it is on its way already.
async fn delete<K>(api: &Api<K>, object: &PartialObjectMeta<K>) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug,
{
    if object.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let only_this = Preconditions { uid: object.uid(), resource_version: None };
    match api.delete(&object.name_any(), &DeleteParams::background().preconditions(only_this)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        answer => answer.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_reads_well() {
        assert!(Remains::default().is_empty());
        let some = Remains { counts: vec![("Pod", 1), ("Secret", 2)] };
        assert_eq!(some.to_string(), "1 Pod, 2 Secrets");
    }
}
