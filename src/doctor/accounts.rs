//! The accounts of Federlet on the host: whether each may do what it must.

use federlet_provider::{
    api::Cluster,
    join::{SYSTEM_NAMESPACE, account::ACCOUNT},
    rights::{
        HOST_CREDENTIAL_RIGHTS, HOST_MEMBER_RIGHTS, HOST_OVERRIDE_RIGHTS, HOST_POLICY_RIGHTS, HOST_RIGHTS,
    },
};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::rights::{lacking, questions};

/// What the account lacks that serves all members without a process of their own. None where there is no such account:
/// then somebody runs it otherwise.
pub(super) async fn shared(client: &Client, obeys: bool) -> Result<Option<Vec<String>>, kube::Error> {
    let mut rights = [HOST_RIGHTS, HOST_MEMBER_RIGHTS, HOST_CREDENTIAL_RIGHTS].concat();
    if obeys {
        rights.extend([HOST_OVERRIDE_RIGHTS, HOST_POLICY_RIGHTS].concat());
    }
    of(client, ACCOUNT, questions(&rights)).await
}

/// The account of a process that serves one member alone, as the chart calls it.
pub(super) fn own_name(cluster: &Cluster) -> String {
    format!("{ACCOUNT}-{}", cluster.name_any())
}

/// Likewise, what that one lacks.
pub(super) async fn own(
    client: &Client,
    cluster: &Cluster,
    obeys: bool,
) -> Result<Option<Vec<String>>, kube::Error> {
    let mut asked = questions(HOST_RIGHTS);
    if obeys {
        asked.extend(questions(HOST_OVERRIDE_RIGHTS));
    }
    asked.extend(of_one_member(cluster));
    of(client, &own_name(cluster), asked).await
}

/// What is asked for by the name of a member.
fn of_one_member(cluster: &Cluster) -> Vec<ResourceAttributes> {
    let name = cluster.name_any();
    let named = |verb: &str, group: &str, resource: &str, name: &str| ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        name: Some(name.to_owned()),
        ..ResourceAttributes::default()
    };
    let karmada = "cluster.karmada.io";
    let status = Some("status".to_owned());
    let mut all = vec![
        named("patch", karmada, "clusters", &name),
        ResourceAttributes { subresource: status, ..named("patch", karmada, "clusters", &name) },
        named("patch", "", "nodes", &name),
        named("delete", "", "nodes", &name),
        named("impersonate", "", "users", &format!("system:node:{name}")),
    ];
    if let Some(secret) = &cluster.spec.secret_ref {
        let namespace = Some(secret.namespace.clone());
        let verbs = ["list", "watch", "patch"];
        all.extend(verbs.map(|verb| ResourceAttributes {
            namespace: namespace.clone(),
            ..named(verb, "", "secrets", &secret.name)
        }));
    }
    all
}

async fn of(
    client: &Client,
    account: &str,
    asked: Vec<ResourceAttributes>,
) -> Result<Option<Vec<String>>, kube::Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    if accounts.get_opt(account).await?.is_none() {
        return Ok(None);
    }
    let user = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{account}");
    lacking(asked, |attributes| may(client, &user, attributes)).await.map(Some)
}

async fn may(client: &Client, user: &str, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let groups = [
        "system:serviceaccounts",
        &format!("system:serviceaccounts:{SYSTEM_NAMESPACE}"),
        "system:authenticated",
    ];
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(groups.map(str::to_owned).into()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
