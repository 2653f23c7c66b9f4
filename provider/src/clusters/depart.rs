//! A Cluster that is deleted: what we made in its member goes first, then the rest.

use std::time::Duration;

use federlet_node::node::LEAVING_ANNOTATION;
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use super::{
    conditions::Say,
    context::HostContext,
    member::{Member, Outcome, host_trouble, unreachable},
    plan::{Input, way},
};
use crate::{
    api::Cluster,
    join::{FINALIZER, SYSTEM_NAMESPACE, account::Account, leave::clear, token::MEMBER_LABEL},
    member::{Access, Trouble},
    names::{HostId, MemberName},
};

/// How often it is looked whether everything is gone.
const LOOK: Duration = Duration::from_secs(1);
/// How soon a member that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(10);
/// A lease that was not renewed for so long is nobody's.
const LEASE_OVER: i64 = 60;

impl Member {
    /// Goes on with leaving. None when nothing is left to do.
    pub(super) async fn depart(&mut self, input: &Input) -> Option<Outcome> {
        let cluster = &*input.cluster;
        if !cluster.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return None;
        }
        match self.leave_member(input).await {
            Ok(()) => {}
            Err(outcome) => return Some(outcome),
        }
        let secret = input.secret.as_deref().filter(|_| !input.secret_shared);
        match leave_host(&self.host.client, cluster, secret).await {
            Ok(()) => {
                tracing::info!(cluster = cluster.name_any(), "left");
                None
            }
            Err(error) => Some(host_trouble(&error)),
        }
    }

    async fn leave_member(&mut self, input: &Input) -> Result<(), Outcome> {
        let cluster = &*input.cluster;
        // One that was never reached has nothing of ours.
        if cluster.spec.id.is_empty() {
            return Ok(());
        }
        let name = cluster.name_any();
        stop_new_pods(&self.host.client, &name).await.map_err(|error| host_trouble(&error))?;
        if let Some(holder) = lease_holder(&self.host, &name).await.map_err(|error| host_trouble(&error))? {
            return Err(leaving(format!("waiting until {holder} stops to serve the node"), LOOK));
        }
        let member = match &self.leaving {
            Some(member) => member.clone(),
            None => self.leaving.insert(self.member(input).map_err(|outcome| *outcome)?).clone(),
        };
        let left = leave_member(&member, &self.host.id, &name, input.account_shared).await;
        // Credentials may have been corrected meanwhile.
        if left.as_ref().is_err_and(|outcome| outcome.reachable.status == Some(false)) {
            self.leaving = None;
        }
        left
    }

    /// A client of the member, and of no other cluster at its address.
    fn member(&self, input: &Input) -> Result<Client, Box<Outcome>> {
        let cluster = &*input.cluster;
        let way = way(input).map_err(|why| {
            let message = format!(
                "what was made in the member cannot be removed: {}; `federlet unjoin {} --force` leaves it there",
                why.message,
                cluster.name_any()
            );
            Box::new(leaving(message, AGAIN))
        })?;
        let access = Access::new(way, self.host.metrics.clone());
        let clients = access
            .clients(&cluster.spec.id)
            .map_err(|error| Box::new(unreachable(&Trouble::from(&error))))?;
        Ok(clients.0.pods)
    }
}

/// Takes away what we made in the member, and then, if nobody else has it, the account.
async fn leave_member(
    member: &Client,
    host: &HostId,
    name: &str,
    account_shared: bool,
) -> Result<(), Outcome> {
    let trouble = |error: kube::Error| {
        let trouble = Trouble::from(&error);
        let message =
            format!("{}; `federlet unjoin {name} --force` leaves what was made there", trouble.message);
        Outcome { again: Some(AGAIN), ..unreachable(&Trouble { message, ..trouble }) }
    };
    // A name that cannot be a node's never was one.
    let Ok(node) = MemberName::new(name) else { return Ok(()) };
    let remains = clear(member, host, &node).await.map_err(trouble)?;
    if !remains.is_empty() {
        return Err(leaving(format!("waiting for these to go in the member: {remains}"), LOOK));
    }
    if !account_shared {
        Account::of(host).remove(member).await.map_err(trouble)?;
    }
    Ok(())
}

/// Takes away what belongs to a Cluster on the host, and lets it go. `secret` is its own and nobody else's.
pub async fn leave_host(
    client: &Client,
    cluster: &Cluster,
    secret: Option<&Secret>,
) -> Result<(), kube::Error> {
    let name = cluster.name_any();
    let ours = secret.filter(|secret| secret.labels().contains_key(MEMBER_LABEL));
    if let Some(secret) = ours {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
        gone(secrets.delete(&secret.name_any(), &DeleteParams::default()).await.map(drop))?;
    }
    remove_node(client, &name).await?;
    let clusters: Api<Cluster> = Api::all(client.clone());
    let finalizers: Vec<&String> = cluster.finalizers().iter().filter(|other| *other != FINALIZER).collect();
    let patch =
        json!({ "metadata": { "finalizers": finalizers, "resourceVersion": cluster.resource_version() } });
    gone(clusters.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))
}

/// Takes the Node away for good, and with it the host's pods that were bound to it.
async fn remove_node(client: &Client, name: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    // A process that still serves it must not register it again.
    let mark = json!({ "metadata": { "annotations": { LEAVING_ANNOTATION: "true" } } });
    gone(nodes.patch(name, &PatchParams::default(), &Patch::Merge(mark)).await.map(drop))?;
    gone(nodes.delete(name, &DeleteParams::default()).await.map(drop))?;
    let pods: Api<Pod> = Api::all(client.clone());
    let bound = pods.list_metadata(&ListParams::default().fields(&format!("spec.nodeName={name}"))).await?;
    for pod in bound.items {
        let there: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let only_this = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams::default().grace_period(0).preconditions(only_this);
        match there.delete(&pod.name_any(), &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// From now on the scheduler sends nothing there.
async fn stop_new_pods(client: &Client, name: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(node) = nodes.get_opt(name).await? else { return Ok(()) };
    if node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false) {
        return Ok(());
    }
    let patch = json!({ "spec": { "unschedulable": true } });
    gone(nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))
}

/// Who else serves the node, if anybody does.
async fn lease_holder(host: &HostContext, name: &str) -> Result<Option<String>, kube::Error> {
    let leases: Api<Lease> = Api::namespaced(host.client.clone(), "kube-node-lease");
    let spec = leases.get_opt(name).await?.and_then(|lease| lease.spec);
    let Some(spec) = spec else { return Ok(None) };
    let renewed = spec.renew_time.map(|time| Timestamp::now().duration_since(time.0).as_secs());
    let is_over = renewed.is_none_or(|seconds| seconds.abs() > LEASE_OVER);
    Ok(spec
        .holder_identity
        .filter(|holder| !holder.is_empty() && *holder != host.serving.identity && !is_over))
}

fn leaving(message: String, again: Duration) -> Outcome {
    Outcome {
        ready: Say::no("Leaving", message),
        reachable: Say::unknown("Leaving", "the Cluster is being deleted"),
        again: Some(again),
    }
}

/// That it is not there any more is as good.
fn gone(answer: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        answer => answer,
    }
}
