//! What a sandbox will consist of, decided before anything is touched: clusters, machines, addresses, versions.

use std::{collections::BTreeMap, net::Ipv4Addr};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// The Kubernetes that clusters run when nobody asks for another.
pub const DEFAULT_KUBERNETES: &str = "1.35.4";

/// The name of the cluster that the members join.
pub const HOST: &str = "host";

/// The name of the member that plays a KubeEdge cluster.
pub const EDGE: &str = "edge";

/// Addresses of one cluster: a machine more than this does not fit.
const MACHINES_PER_CLUSTER: u16 = 16;

/// Clusters of one sandbox. 100 of 16 machines fit into the 2,046 addresses of a sandbox's /21.
const MAX_MEMBERS: u16 = 100;

/// Sandboxes on one machine: 198.18.0.0/16 cut into /21.
pub const MAX_SANDBOXES: u8 = 32;

/// Pod networks are the same in every cluster, as they often are at users'.
pub const POD_CIDR: &str = "10.244.0.0/16";
/// Service networks too.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";
/// The API server's Service, by convention the network's first address.
pub const KUBERNETES_SERVICE_IP: &str = "10.96.0.1";
/// The cluster DNS Service.
pub const DNS_SERVICE_IP: &str = "10.96.0.10";

/// What the user asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// How many ordinary members.
    pub members: u16,
    /// Whether there is a member with edge nodes in two regions.
    pub edge: bool,
    /// Kubernetes of the host.
    pub kubernetes: String,
    /// Kubernetes of the members.
    pub member_kubernetes: String,
    /// Members whose nodes KWOK plays, and how many.
    pub kwok_nodes: BTreeMap<String, u32>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            members: 2,
            edge: false,
            kubernetes: DEFAULT_KUBERNETES.to_owned(),
            member_kubernetes: DEFAULT_KUBERNETES.to_owned(),
            kwok_nodes: BTreeMap::new(),
        }
    }
}

/// What there will be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The private network of this sandbox.
    pub subnet: Subnet,
    /// The host first, then the members.
    pub clusters: Vec<ClusterPlan>,
}

/// One cluster to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPlan {
    /// `host`, `member1`, …, `edge`.
    pub name: String,
    /// A key of [`crate::builds`].
    pub kubernetes: String,
    /// The control plane runs on the first.
    pub machines: Vec<MachinePlan>,
    /// Nodes played by KWOK; then no machine has a kubelet.
    pub kwok_nodes: u32,
}

/// One machine to be: a set of namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachinePlan {
    /// Unique in the sandbox; the Node's name where there is a kubelet.
    pub name: String,
    /// On the sandbox's network.
    pub address: Ipv4Addr,
    /// Set where a kubelet runs.
    pub node: Option<NodePlan>,
}

/// A real node to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// The pods of this node.
    pub pod_cidr: String,
    /// Labels that an administrator puts on the Node.
    pub labels: BTreeMap<String, String>,
}

/// A /21 out of 198.18.0.0/16, a range set aside for tests between devices: nobody's real network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    index: u8,
}

impl Subnet {
    /// The n-th of [`MAX_SANDBOXES`].
    pub fn new(index: u8) -> Result<Self> {
        if index >= MAX_SANDBOXES {
            bail!(
                "{MAX_SANDBOXES} sandboxes run on this machine: stop one with `cargo sandbox --name NAME down`"
            );
        }
        Ok(Self { index })
    }

    /// Which of them this is.
    pub fn index(self) -> u8 {
        self.index
    }

    /// In CIDR notation.
    pub fn cidr(self) -> String {
        format!("{}/{}", self.at(0), Self::PREFIX)
    }

    /// Length of the network part.
    pub const PREFIX: u8 = 21;

    /// This machine's own address on the network.
    pub fn gateway(self) -> Ipv4Addr {
        self.at(1)
    }

    fn at(self, offset: u16) -> Ipv4Addr {
        let base = u32::from(Ipv4Addr::new(198, 18, self.index * 8, 0));
        Ipv4Addr::from(base + u32::from(offset))
    }
}

impl Plan {
    /// Turns the wish into clusters with machines and addresses.
    pub fn new(shape: &Shape, subnet: Subnet) -> Result<Self> {
        if shape.members > MAX_MEMBERS {
            bail!("at most {MAX_MEMBERS} members fit into one sandbox, not {}", shape.members);
        }
        let mut names: Vec<String> = vec![HOST.to_owned()];
        names.extend((1..=shape.members).map(|n| format!("member{n}")));
        if shape.edge {
            names.push(EDGE.to_owned());
        }
        for (member, nodes) in &shape.kwok_nodes {
            if member == HOST || !names.contains(member) {
                bail!("--kwok-nodes names '{member}', but the members are: {}", names[1..].join(", "));
            }
            if *nodes == 0 || *nodes > 10_000 {
                bail!("--kwok-nodes {member}={nodes}: choose from 1 to 10000");
            }
        }
        let clusters = names
            .iter()
            .zip(0u16..)
            .map(|(name, index)| {
                let kwok_nodes = shape.kwok_nodes.get(name).copied().unwrap_or(0);
                let address = |machine: u16| subnet.at(16 + index * MACHINES_PER_CLUSTER + machine);
                ClusterPlan {
                    name: name.clone(),
                    kubernetes: if name == HOST { &shape.kubernetes } else { &shape.member_kubernetes }
                        .clone(),
                    machines: machines(name, kwok_nodes > 0, address),
                    kwok_nodes,
                }
            })
            .collect();
        Ok(Self { subnet, clusters })
    }

    /// The cluster of that name.
    pub fn cluster(&self, name: &str) -> Result<&ClusterPlan> {
        match self.clusters.iter().find(|c| c.name == name) {
            Some(cluster) => Ok(cluster),
            None => {
                let names: Vec<_> = self.clusters.iter().map(|c| c.name.as_str()).collect();
                bail!("there is no cluster '{name}'; there are: {}", names.join(", "))
            }
        }
    }

    /// The versions of Kubernetes that must be built, each once.
    pub fn kubernetes_versions(&self) -> Vec<&str> {
        let mut versions: Vec<&str> = self.clusters.iter().map(|c| c.kubernetes.as_str()).collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }
}

impl ClusterPlan {
    /// The machine with etcd, API server, controller-manager and scheduler.
    pub fn control_plane(&self) -> &MachinePlan {
        // Every cluster is planned with at least one machine.
        &self.machines[0]
    }

    /// Where the API server listens.
    pub fn api_url(&self) -> String {
        format!("https://{}:6443", self.control_plane().address)
    }

    /// Machines with a kubelet.
    pub fn nodes(&self) -> impl Iterator<Item = (&MachinePlan, &NodePlan)> {
        self.machines.iter().filter_map(|m| m.node.as_ref().map(|n| (m, n)))
    }
}

/// A cluster is one machine that does everything, unless it is the edge: there the control plane stands apart, so
/// that either region can be cut off without cutting off the API server.
fn machines(cluster: &str, kwok: bool, address: impl Fn(u16) -> Ipv4Addr) -> Vec<MachinePlan> {
    let machine = |suffix: &str, index: u16, node: Option<NodePlan>| MachinePlan {
        name: format!("{cluster}-{suffix}"),
        address: address(index),
        node,
    };
    if kwok {
        return vec![machine("control", 0, None)];
    }
    if cluster != EDGE {
        return vec![machine("node1", 0, Some(node(0, &[])))];
    }
    vec![
        machine("control", 0, None),
        machine("node1", 1, Some(node(1, &edge_labels("beijing")))),
        machine("node2", 2, Some(node(2, &edge_labels("hangzhou")))),
    ]
}

/// As KubeEdge labels its nodes, plus the label by which a user would tell regions apart.
fn edge_labels(location: &str) -> [(&str, &str); 3] {
    [("node-role.kubernetes.io/edge", ""), ("node-role.kubernetes.io/agent", ""), ("location", location)]
}

fn node(index: u16, labels: &[(&str, &str)]) -> NodePlan {
    NodePlan {
        // A /20 for each of 16 machines: room for 4,000 pods on one.
        pod_cidr: format!("10.244.{}.0/20", index * 16),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn plan(shape: &Shape) -> Result<Plan> {
        Plan::new(shape, Subnet::new(3).unwrap())
    }

    #[test]
    fn the_default_is_a_host_and_two_members_with_a_node_each() {
        let plan = plan(&Shape::default()).unwrap();
        let names: Vec<_> = plan.clusters.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["host", "member1", "member2"]);
        assert!(plan.clusters.iter().all(|c| c.nodes().count() == 1));
        assert_eq!(plan.clusters[1].api_url(), "https://198.18.24.32:6443");
        assert_eq!(plan.subnet.cidr(), "198.18.24.0/21");
        assert_eq!(plan.subnet.gateway(), Ipv4Addr::new(198, 18, 24, 1));
    }

    #[test]
    fn the_edge_has_two_regions_and_a_control_plane_apart() {
        let plan = plan(&Shape { edge: true, ..Shape::default() }).unwrap();
        let edge = plan.cluster(EDGE).unwrap();
        let locations: Vec<_> = edge.nodes().map(|(_, n)| n.labels["location"].as_str()).collect();
        assert_eq!(locations, ["beijing", "hangzhou"]);
        assert!(edge.nodes().all(|(_, n)| n.labels.contains_key("node-role.kubernetes.io/edge")));
        assert!(edge.control_plane().node.is_none());
    }

    #[test]
    fn no_two_machines_share_an_address_or_a_name() {
        let shape = Shape { members: MAX_MEMBERS, edge: true, ..Shape::default() };
        let plan = plan(&shape).unwrap();
        let machines: Vec<_> = plan.clusters.iter().flat_map(|c| &c.machines).collect();
        let addresses: HashSet<_> = machines.iter().map(|m| m.address).collect();
        let names: HashSet<_> = machines.iter().map(|m| &m.name).collect();
        assert_eq!(addresses.len(), machines.len());
        assert_eq!(names.len(), machines.len());
        let last = u32::from(plan.subnet.at(0)) + 2046;
        assert!(addresses.iter().all(|a| u32::from(*a) <= last));
    }

    #[test]
    fn versions_may_differ_between_host_and_members() {
        let shape =
            Shape { kubernetes: "1.36.3".into(), member_kubernetes: "1.34.4".into(), ..Shape::default() };
        let plan = plan(&shape).unwrap();
        assert_eq!(plan.cluster("host").unwrap().kubernetes, "1.36.3");
        assert_eq!(plan.cluster("member2").unwrap().kubernetes, "1.34.4");
        assert_eq!(plan.kubernetes_versions(), ["1.34.4", "1.36.3"]);
    }

    #[test]
    fn kwok_replaces_the_kubelets_of_the_member_it_is_asked_for() {
        let shape = Shape { kwok_nodes: BTreeMap::from([("member2".into(), 50)]), ..Shape::default() };
        let plan = plan(&shape).unwrap();
        assert_eq!(plan.cluster("member2").unwrap().nodes().count(), 0);
        assert_eq!(plan.cluster("member2").unwrap().kwok_nodes, 50);
        assert_eq!(plan.cluster("member1").unwrap().nodes().count(), 1);
    }

    #[test]
    fn wishes_that_cannot_be_met_are_refused_with_a_reason() {
        let kwok =
            |name: &str, n| Shape { kwok_nodes: BTreeMap::from([(name.into(), n)]), ..Shape::default() };
        for (shape, reason) in [
            (Shape { members: 101, ..Shape::default() }, "at most 100 members"),
            (kwok("host", 5), "the members are: member1, member2"),
            (kwok("member9", 5), "the members are: member1, member2"),
            (kwok("member1", 0), "from 1 to 10000"),
        ] {
            let error = plan(&shape).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
