//! The private network of a sandbox.
//!
//! A namespace of its own is the switch: one bridge per cluster, each joined by a cable to a bridge in the middle,
//! where this machine is plugged in too. Cutting the cable is a partition as networks have them: nothing answers,
//! nothing refuses, and the cluster's own machines still see each other.
//!
//! ```text
//!  this machine ── core ──┬── host ────── host-node1
//!                         ├── member1 ─── member1-node1
//!                         └── edge ────┬─ edge-control
//!                                      ├─ edge-node1
//!                                      └─ edge-node2
//! ```
//!
//! Nothing leaves the machine: machines have no default route, and when the network is down a blackhole route
//! takes its place, so that no packet for it goes elsewhere.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::{
    Instance,
    plan::{ClusterPlan, POD_CIDR, Plan, SERVICE_CIDR, Subnet},
    shell::{self, ip},
};

const SWITCH: &str = "switch";

/// Any other route is preferred to the blackhole.
const LAST_RESORT: u32 = u32::MAX;

/// This machine's interface on the network with that index.
pub fn link_name(index: u8) -> String {
    format!("flsb{index}")
}

/// Lays all cables. Nothing of it may exist yet.
pub async fn create(instance: &Instance, plan: &Plan) -> Result<()> {
    let switch = instance.netns(SWITCH);
    ip(&format!("netns add {switch}")).await?;
    bridge(&switch, "core").await?;
    plug_in_this_machine(&switch, plan.subnet).await?;
    for (index, cluster) in plan.clusters.iter().enumerate() {
        add_cluster(instance, &switch, index, cluster, plan.subnet).await.with_context(|| {
            format!("cannot connect cluster {} to the network of sandbox '{instance}'", cluster.name)
        })?;
    }
    Ok(())
}

/// Cuts a cluster, or one machine of a cluster, off from all others.
pub async fn partition(instance: &Instance, plan: &Plan, target: &str) -> Result<()> {
    set_cable(instance, plan, target, "down").await
}

/// Connects it again.
pub async fn heal(instance: &Instance, plan: &Plan, target: &str) -> Result<()> {
    set_cable(instance, plan, target, "up").await
}

/// Whether its cable is cut.
pub async fn is_partitioned(instance: &Instance, plan: &Plan, target: &str) -> Result<bool> {
    let cable = cable(plan, target)?;
    let shown = ip(&format!("-n {} link show {cable}", instance.netns(SWITCH))).await?;
    Ok(!shown.contains(",UP") && !shown.contains("<UP"))
}

/// Removes every trace. Succeeds when there is none.
pub async fn remove(instance: &Instance, subnet: Option<Subnet>) -> Result<()> {
    for name in namespaces(instance)? {
        ip(&format!("netns delete {name}")).await?;
    }
    if let Some(subnet) = subnet {
        let link = link_name(subnet.index());
        if link_exists(&link) {
            // It is gone with the switch's namespace, but the kernel takes its time about that.
            if let Err(error) = ip(&format!("link delete {link}")).await
                && link_exists(&link)
            {
                return Err(error);
            }
        }
        let routes = ip(&format!("route show type blackhole {}", subnet.cidr())).await?;
        if !routes.trim().is_empty() {
            ip(&format!("route delete blackhole {} metric {LAST_RESORT}", subnet.cidr())).await?;
        }
    }
    Ok(())
}

/// The network namespaces that this sandbox has now.
pub fn namespaces(instance: &Instance) -> Result<Vec<String>> {
    let prefix = instance.netns_prefix();
    let Ok(dir) = fs::read_dir("/run/netns") else {
        return Ok(Vec::new());
    };
    Ok(dir
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix))
        .collect())
}

fn link_exists(link: &str) -> bool {
    std::path::Path::new("/sys/class/net").join(link).exists()
}

async fn plug_in_this_machine(switch: &str, subnet: Subnet) -> Result<()> {
    let link = link_name(subnet.index());
    ip(&format!("route replace blackhole {} metric {LAST_RESORT}", subnet.cidr())).await?;
    ip(&format!("link add {link} type veth peer name machine netns {switch}")).await?;
    ip(&format!("-n {switch} link set machine master core up")).await?;
    ip(&format!("address add {}/{} dev {link}", subnet.gateway(), Subnet::PREFIX)).await?;
    ip(&format!("link set {link} up")).await?;
    Ok(())
}

async fn add_cluster(
    instance: &Instance,
    switch: &str,
    index: usize,
    cluster: &ClusterPlan,
    subnet: Subnet,
) -> Result<()> {
    let (bridge_name, cable) = (format!("c{index}"), cluster_cable(index));
    bridge(switch, &bridge_name).await?;
    ip(&format!("-n {switch} link add {cable} type veth peer name down{index}")).await?;
    ip(&format!("-n {switch} link set down{index} master {bridge_name} up")).await?;
    ip(&format!("-n {switch} link set {cable} master core up")).await?;
    for (place, machine) in cluster.machines.iter().enumerate() {
        let netns = instance.netns(&machine.name);
        let cable = machine_cable(index, place);
        ip(&format!("netns add {netns}")).await?;
        ip(&format!("-n {switch} link add {cable} type veth peer name eth0 netns {netns}")).await?;
        ip(&format!("-n {switch} link set {cable} master {bridge_name} up")).await?;
        ip(&format!("-n {netns} link set lo up")).await?;
        ip(&format!("-n {netns} address add {}/{} dev eth0", machine.address, Subnet::PREFIX)).await?;
        ip(&format!("-n {netns} link set eth0 up")).await?;
        ip(&format!("-n {netns} route add blackhole {} metric {LAST_RESORT}", subnet.cidr())).await?;
        // The kernel looks for a route before kube-proxy's rules say where a Service really is.
        ip(&format!("-n {netns} route add {SERVICE_CIDR} dev eth0")).await?;
        for (other, node) in cluster.nodes().filter(|(other, _)| other.name != machine.name) {
            ip(&format!("-n {netns} route add {} via {}", node.pod_cidr, other.address)).await?;
        }
        forward_pods(&netns).await?;
    }
    Ok(())
}

/// Pods reach each other by their own addresses and everything else by their machine's.
async fn forward_pods(netns: &str) -> Result<()> {
    let script = format!(
        "echo 1 > /proc/sys/net/ipv4/ip_forward && \
         iptables -t nat -A POSTROUTING -s {POD_CIDR} ! -d {POD_CIDR} -j MASQUERADE"
    );
    shell::run("nsenter", [&format!("--net=/run/netns/{netns}"), "--", "sh", "-c", &script]).await?;
    Ok(())
}

async fn bridge(netns: &str, name: &str) -> Result<()> {
    ip(&format!("-n {netns} link add {name} type bridge")).await?;
    ip(&format!("-n {netns} link set {name} up")).await?;
    Ok(())
}

async fn set_cable(instance: &Instance, plan: &Plan, target: &str, to: &str) -> Result<()> {
    let cable = cable(plan, target)?;
    ip(&format!("-n {} link set {cable} {to}", instance.netns(SWITCH))).await?;
    Ok(())
}

fn cluster_cable(cluster: usize) -> String {
    format!("up{cluster}")
}

fn machine_cable(cluster: usize, machine: usize) -> String {
    format!("m{cluster}-{machine}")
}

/// The cable of a cluster, by its name, or of a machine, by its name.
fn cable(plan: &Plan, target: &str) -> Result<String> {
    for (index, cluster) in plan.clusters.iter().enumerate() {
        if cluster.name == target {
            return Ok(cluster_cable(index));
        }
        if let Some(place) = cluster.machines.iter().position(|machine| machine.name == target) {
            return Ok(machine_cable(index, place));
        }
    }
    let names = plan
        .clusters
        .iter()
        .flat_map(|c| std::iter::once(c.name.as_str()).chain(c.machines.iter().map(|m| m.name.as_str())));
    bail!("there is no cluster or machine '{target}'; there are: {}", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Shape;

    #[test]
    fn clusters_and_machines_have_cables_of_their_own() {
        let shape = Shape { edge: true, ..Shape::default() };
        let plan = Plan::new(&shape, Subnet::new(0).unwrap()).unwrap();
        assert_eq!(cable(&plan, "host").unwrap(), "up0");
        assert_eq!(cable(&plan, "member2").unwrap(), "up2");
        assert_eq!(cable(&plan, "edge-node2").unwrap(), "m3-2");
        let error = cable(&plan, "member9").unwrap_err().to_string();
        assert!(error.contains("edge-control"), "{error}");
    }

    #[test]
    fn interface_names_fit_the_kernel() {
        assert!(link_name(u8::MAX).len() < 16);
        assert!(machine_cable(100, 15).len() < 16);
    }
}
