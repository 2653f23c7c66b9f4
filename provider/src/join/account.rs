//! Our account in a member.

use k8s_openapi::{
    api::{
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{
            AggregationRule, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
        },
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};

use super::FIELD_MANAGER;
use crate::{
    marks,
    names::{HostId, account},
    rights::{MEMBER_OBJECT_RIGHTS, MEMBER_RIGHTS, MoreObjects, Right},
};

/// Annotation of the role: the kinds of objects that may be copied beside the usual ones.
const ALLOWED: &str = "federlet.io/allow-objects";

/// The name of the account within its namespace.
pub const ACCOUNT: &str = "federlet";

/// Who we are in a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The namespace of the account. The role has the same name.
    pub namespace: String,
}

impl Account {
    /// The account of a host in any member.
    pub fn of(host: &HostId) -> Self {
        Self { namespace: account(host) }
    }

    /// The user that the member's API server knows us as.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// Makes the account, or brings it up to date. `client` belongs to somebody who may give rights. `more` are the kinds
    /// of objects that may be copied beside the usual ones; if nobody says, they stay what they were.
    pub async fn ensure(
        &self,
        client: &Client,
        host: &HostId,
        more: Option<&[MoreObjects]>,
    ) -> Result<(), kube::Error> {
        let more = match more {
            Some(more) => more.to_vec(),
            None => self.allowed(client).await?,
        };
        let all = |meta: ObjectMeta| ObjectMeta {
            labels: Some([(marks::HOST.to_owned(), host.to_string())].into()),
            ..meta
        };
        let role: ClusterRole = apply(&Api::all(client.clone()), &self.role(all, &more)).await?;
        // With the role goes everything else, so that leaving is one request, which the account may make itself.
        let owner = OwnerReference {
            api_version: "rbac.authorization.k8s.io/v1".into(),
            kind: "ClusterRole".into(),
            name: self.namespace.clone(),
            uid: role.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        };
        let owned =
            |meta: ObjectMeta| ObjectMeta { owner_references: Some(vec![owner.clone()]), ..all(meta) };
        apply(&Api::all(client.clone()), &self.binding(owned, &self.namespace)).await?;
        // What people in the member allow beyond it, they say by a label.
        let collected = ClusterRole {
            metadata: owned(named(&self.collected())),
            rules: None,
            aggregation_rule: Some(AggregationRule {
                cluster_role_selectors: Some(vec![LabelSelector {
                    match_labels: Some([(marks::OBJECTS_ROLE.to_owned(), "true".to_owned())].into()),
                    match_expressions: None,
                }]),
            }),
        };
        apply(&Api::all(client.clone()), &collected).await?;
        apply(&Api::all(client.clone()), &self.binding(owned, &self.collected())).await?;
        apply(
            &Api::all(client.clone()),
            &Namespace { metadata: owned(named(&self.namespace)), ..Default::default() },
        )
        .await?;
        let within = |name: &str| ObjectMeta { namespace: Some(self.namespace.clone()), ..named(name) };
        let account = ServiceAccount {
            metadata: owned(within(ACCOUNT)),
            // Its tokens are ours, not those of pods.
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        };
        apply(&Api::namespaced(client.clone(), &self.namespace), &account).await?;
        let role = Role { metadata: owned(within(ACCOUNT)), rules: Some(vec![own_tokens()]) };
        apply(&Api::namespaced(client.clone(), &self.namespace), &role).await?;
        let binding = RoleBinding {
            metadata: owned(within(ACCOUNT)),
            role_ref: reference("Role", ACCOUNT),
            subjects: Some(vec![self.subject()]),
        };
        apply(&Api::namespaced(client.clone(), &self.namespace), &binding).await?;
        Ok(())
    }

    /// Takes the account away, and with it every right of ours. The member does the rest in the background.
    pub async fn remove(&self, client: &Client) -> Result<(), kube::Error> {
        let roles: Api<ClusterRole> = Api::all(client.clone());
        match roles.delete(&self.namespace, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// The kinds of objects that were allowed before, beside the usual ones.
    async fn allowed(&self, client: &Client) -> Result<Vec<MoreObjects>, kube::Error> {
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let role = roles.get_opt(&self.namespace).await?;
        let said = role.and_then(|role| role.metadata.annotations?.remove(ALLOWED)).unwrap_or_default();
        Ok(said.split(',').filter_map(MoreObjects::find).collect())
    }

    /// The role that collects what people in the member allow by a label.
    fn collected(&self) -> String {
        format!("{}-objects", self.namespace)
    }

    fn role(&self, meta: impl Fn(ObjectMeta) -> ObjectMeta, more: &[MoreObjects]) -> ClusterRole {
        let also = more.iter().flat_map(|more| more.rights());
        let all = MEMBER_RIGHTS.iter().chain(MEMBER_OBJECT_RIGHTS).chain(also);
        let mut rules: Vec<PolicyRule> = all.map(Right::rule).collect();
        rules.push(PolicyRule {
            api_groups: Some(vec!["rbac.authorization.k8s.io".into()]),
            resources: Some(vec!["clusterroles".into()]),
            resource_names: Some(vec![self.namespace.clone()]),
            verbs: vec!["delete".into()],
            non_resource_urls: None,
        });
        let names: Vec<&str> = more.iter().map(|more| more.name()).collect();
        let mut metadata = meta(named(&self.namespace));
        metadata.annotations = Some([(ALLOWED.to_owned(), names.join(","))].into());
        ClusterRole { metadata, rules: Some(rules), aggregation_rule: None }
    }

    fn binding(&self, meta: impl Fn(ObjectMeta) -> ObjectMeta, role: &str) -> ClusterRoleBinding {
        ClusterRoleBinding {
            metadata: meta(named(role)),
            role_ref: reference("ClusterRole", role),
            subjects: Some(vec![self.subject()]),
        }
    }

    fn subject(&self) -> Subject {
        Subject {
            kind: "ServiceAccount".into(),
            name: ACCOUNT.into(),
            namespace: Some(self.namespace.clone()),
            api_group: None,
        }
    }
}

/// The account asks for its own next token, and for nobody else's.
fn own_tokens() -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["serviceaccounts/token".into()]),
        resource_names: Some(vec![ACCOUNT.into()]),
        verbs: vec!["create".into()],
        non_resource_urls: None,
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some("rbac.authorization.k8s.io".into()), kind: kind.into(), name: name.into() }
}

async fn apply<K>(api: &Api<K>, object: &K) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let name = object.meta().name.clone().unwrap_or_default();
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_share_a_member_have_accounts_of_their_own() {
        let of = |id: &str| Account::of(&HostId::new(id).unwrap());
        assert_ne!(of("a"), of("b"));
        assert_eq!(of("a"), of("a"));
        assert!(of("a").user().starts_with("system:serviceaccount:federlet-host-"));
    }

    #[test]
    fn the_role_is_the_table_and_the_right_to_leave() {
        let account = Account::of(&HostId::new("a").unwrap());
        let rules = account.role(|meta| meta, &[]).rules.unwrap();
        assert_eq!(rules.len(), MEMBER_RIGHTS.len() + MEMBER_OBJECT_RIGHTS.len() + 1);
        let last = rules.last().unwrap();
        assert_eq!(last.resource_names.as_deref(), Some(&[account.namespace][..]));
        assert_eq!(last.verbs, ["delete"]);
    }
}
