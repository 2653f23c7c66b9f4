//! A Cluster that is deleted: what we made in its member goes first, then the rest.

use std::time::Duration;

use federlet_node::client::client;
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    conditions::Say,
    context::HostContext,
    identity::config_for,
    member::{Member, Outcome, host_trouble, unreachable},
    plan::{Input, way},
};
use crate::{
    join::{
        FINALIZER,
        leave::{LeaveError, leave_host, leave_member},
        node::is_virtual,
    },
    member::{Access, Trouble},
    names::MemberName,
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
        match leave_host(&self.host.client, &self.as_node(&cluster.name_any()).await, cluster).await {
            Ok(()) => {
                tracing::info!(cluster = cluster.name_any(), "left");
                None
            }
            Err(error) => Some(trouble(&cluster.name_any(), &error)),
        }
    }

    /// Who ends the pods of the node: the node itself where we may act as it, so that a process that serves one member alone
    /// need not be allowed to end others.
    async fn as_node(&self, name: &str) -> Client {
        let own = self.host.client.clone();
        let Ok(node) = MemberName::new(name) else { return own };
        let Ok(config) = config_for(&self.host, &node).await else { return own };
        client(config, "leave", self.host.metrics.clone()).unwrap_or(own)
    }

    async fn leave_member(&mut self, input: &Input) -> Result<(), Outcome> {
        let cluster = &*input.cluster;
        // One that was never reached has nothing of ours.
        if cluster.spec.id.is_empty() {
            return Ok(());
        }
        let name = cluster.name_any();
        let ours = stop_new_pods(&self.host.client, &name).await.map_err(|error| host_trouble(&error))?;
        // The lease of a machine is its kubelet's, and always will be.
        if ours
            && let Some(holder) =
                lease_holder(&self.host, &name).await.map_err(|error| host_trouble(&error))?
        {
            return Err(leaving(format!("waiting until {holder} stops to serve the node"), LOOK));
        }
        let member = match &self.leaving {
            Some(member) => member.clone(),
            None => self.leaving.insert(self.member(input).map_err(|outcome| *outcome)?).clone(),
        };
        let host = &self.host;
        match leave_member(&host.client, &member, &host.id, cluster, &input.account).await {
            Ok(remains) if remains.is_empty() => match input.account.awaited() {
                // That the other one is gone is heard at once.
                Some(awaited) => Err(leaving(awaited, AGAIN)),
                None => Ok(()),
            },
            Ok(remains) => Err(leaving(format!("waiting for these to go in the member: {remains}"), LOOK)),
            Err(error) => {
                // Credentials may be corrected meanwhile.
                self.leaving = None;
                Err(trouble(&name, &error))
            }
        }
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

/// From now on the scheduler sends nothing there. False if a machine of the host has the name: that one is not ours.
async fn stop_new_pods(client: &Client, name: &str) -> Result<bool, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(node) = nodes.get_opt(name).await? else { return Ok(true) };
    if !is_virtual(&node) {
        return Ok(false);
    }
    let uid = node.uid();
    if node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false) {
        return Ok(true);
    }
    let patch = json!({ "metadata": { "uid": uid }, "spec": { "unschedulable": true } });
    match nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
        answer => answer.map(|_| true),
    }
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

fn trouble(name: &str, error: &LeaveError) -> Outcome {
    match error {
        LeaveError::Host(error) => host_trouble(error),
        LeaveError::Member(error) => {
            let trouble = Trouble::from(&**error);
            let message =
                format!("{}; `federlet unjoin {name} --force` leaves what was made there", trouble.message);
            Outcome { again: Some(AGAIN), ..unreachable(&Trouble { message, ..trouble }) }
        }
    }
}

fn leaving(message: String, again: Duration) -> Outcome {
    Outcome {
        ready: Say::no("Leaving", message),
        reachable: Say::unknown("Leaving", "the Cluster is being deleted"),
        again: Some(again),
    }
}
