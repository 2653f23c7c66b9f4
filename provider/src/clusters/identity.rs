//! As whom a virtual node acts on the host.

use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
};
use kube::{Api, Client, Config, api::PostParams};

use super::{conditions::Say, context::HostContext};
use crate::{errors::brief, names::MemberName, rights::node_role_name};

/// How a client acts for this node: as the node itself where we may, so that the host lets it see only what its pods
/// refer to; else as we are, if that is enough.
pub(super) async fn config_for(host: &HostContext, node: &MemberName) -> Result<Config, Say> {
    let user = format!("system:node:{node}");
    let ask = async |attributes: ResourceAttributes| {
        may(&host.client, attributes).await.map_err(|error| {
            Say::unknown("HostNotReachable", format!("the host does not answer: {}", brief(&error)))
        })
    };
    let impersonate = |resource: &str, name: &str| ResourceAttributes {
        verb: Some("impersonate".into()),
        resource: Some(resource.into()),
        name: Some(name.into()),
        ..ResourceAttributes::default()
    };
    if ask(impersonate("users", &user)).await? && ask(impersonate("groups", "system:nodes")).await? {
        let mut config = host.config.clone();
        config.auth_info.impersonate = Some(user);
        config.auth_info.impersonate_groups = Some(vec!["system:nodes".into()]);
        return Ok(config);
    }
    let create = ResourceAttributes {
        verb: Some("create".into()),
        resource: Some("nodes".into()),
        ..ResourceAttributes::default()
    };
    if ask(create).await? {
        tracing::info!(%node, "the node is served with the rights of this process: it may not act as {user}");
        return Ok(host.config.clone());
    }
    Err(Say::no(
        "HostForbids",
        format!(
            "this process may not act as {user} on the host: `federlet join` makes the ClusterRole {} for it",
            node_role_name(node)
        ),
    ))
}

async fn may(client: &Client, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The user that the host takes us for; empty if it does not say.
pub(super) async fn ourselves(client: &Client) -> String {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = answer.ok().and_then(|review| review.status?.user_info?.username);
    user.unwrap_or_default()
}
