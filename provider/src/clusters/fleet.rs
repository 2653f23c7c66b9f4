//! The node that stands for several clusters at once, served by one replica at a time.

use std::{sync::Arc, time::Duration};

use federlet_node::{client::client, contract::NodeName, pods::Events};
use k8s_openapi::api::core::v1::Taint;
use kube::Config;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    conditions::Say,
    context::HostContext,
    identity,
    installation::tie_to_installation,
    node::{OnHost, background},
    replicas::{Live, owner},
};
use crate::{
    errors::brief,
    fleet::{Choice, FLEET, FLEET_TAINT, FleetClients, FleetProvider},
    join::node::is_machine,
    names::MemberName,
};

/// How soon something that went wrong is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Serves the fleet's node while it is for this replica, until told to stop. The node and its pods stay as they are.
pub async fn serve_fleet(
    host: HostContext,
    choice: Arc<dyn Choice>,
    mut live: watch::Receiver<Live>,
    stop: CancellationToken,
) {
    let ours = |live: &Live| owner(live, FLEET) == Some(&host.serving.identity);
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            found = live.wait_for(|live| ours(live)) => if found.is_err() { return },
        }
        let term = stop.child_token();
        let serving = serve(&host, choice.clone(), term.clone());
        let elsewhere = async {
            let _ = live.wait_for(|live| !live.is_empty() && !ours(live)).await;
            term.cancel();
            std::future::pending::<()>().await;
        };
        let served = tokio::select! {
            served = serving => served,
            () = elsewhere => Ok(()),
        };
        if let Err(why) = served {
            tracing::warn!(node = FLEET, reason = why.reason, why.message, "cannot be served, trying again");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }
}

async fn serve(host: &HostContext, choice: Arc<dyn Choice>, stop: CancellationToken) -> Result<(), Say> {
    let broken = |error: String| Say::no("CannotServe", error);
    let member = MemberName::new(FLEET).map_err(|error| broken(error.to_string()))?;
    let name = NodeName::new(FLEET).map_err(|error| broken(error.to_string()))?;
    if is_machine(&host.client, FLEET).await.map_err(|error| broken(brief(&error)))? {
        return Err(Say::no("NameTaken", format!("the host has a machine {FLEET}, which is left alone")));
    }
    let config = identity::config_for(host, &member).await?;
    let make =
        |config, part| client(config, part, host.metrics.clone()).map_err(|error| broken(error.to_string()));
    let clients = FleetClients {
        own: host.client.clone(),
        watch: host.watch.clone(),
        streams: make(patient(host.config.clone()), "fleet-streams")?,
    };
    let pod_client = make(config.clone(), "pods")?;
    let events = Events::new(pod_client.clone(), &name);
    let provider = FleetProvider::new(name.clone(), clients, host.pods.clone(), choice, events);
    let keep_off = Taint { key: FLEET_TAINT.into(), effect: "NoSchedule".into(), ..Taint::default() };
    let taints = host.serving.taints.iter().cloned().chain([keep_off]).collect();
    let on_host = OnHost { host, name: &name, config: &config, client: pod_client, stop: &stop };
    // Copies look for what they refer to themselves.
    let (node, _port) = on_host.node(provider.clone(), taints, None).await?;
    let fence = node.facts.fence.clone();
    tracing::info!(node = %name, port = node.template.kubelet_port, "serving");
    let work = |term| provider.clone().run(term);
    let serving = async { tokio::join!(node.run(stop.clone()), background(work, fence, stop.clone())) };
    tokio::select! {
        _ = serving => {}
        () = tie_to_installation(&host.client, FLEET) => {}
    }
    host.serving.vouched.remove(&name);
    host.serving.kubelets.remove(&name).await;
    tracing::info!(node = %name, "not served any more");
    Ok(())
}

/// For logs, exec and the like: whoever reads or writes may take hours over it.
fn patient(mut config: Config) -> Config {
    config.read_timeout = None;
    config.write_timeout = None;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_may_stall() {
        let limit = Some(Duration::from_secs(295));
        let mut config = Config::new("https://host".parse().unwrap());
        (config.read_timeout, config.write_timeout) = (limit, limit);
        let connect = config.connect_timeout;
        let config = patient(config);
        assert_eq!((config.read_timeout, config.write_timeout), (None, None));
        assert_eq!(config.connect_timeout, connect, "nobody waits for a host that is away");
    }
}
