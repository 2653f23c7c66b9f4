//! Real Kubernetes clusters on one machine, without Docker: for the demo and for the tests.
//!
//! A sandbox is a host cluster and its members. Each cluster has its own etcd, API server, controller-manager
//! and scheduler, and real nodes (containerd, kubelet, kube-proxy). Every machine of a cluster is a set of Linux
//! namespaces on one private network, so clusters share nothing but the kernel, can be cut off from each other,
//! and are gone without a trace when their first process is killed.
//!
//! Reading order: [`plan`] decides what there will be, [`up`] makes it so, [`cleanup`] takes it away.
//! Tests start at [`testing`].

pub mod addons;
pub mod builds;
pub mod certificates;
pub mod cgroups;
pub mod cleanup;
pub mod cluster;
pub mod component;
pub mod control_plane;
pub mod demo;
pub mod images;
pub mod instance;
pub mod kubeconfig;
pub mod kwok;
pub mod lock;
pub mod machine;
pub mod metrics_server;
pub mod network;
pub mod packages;
pub mod plan;
pub mod preflight;
pub mod process;
pub mod progress;
pub mod registry;
pub mod resident;
pub mod shell;
pub mod state;
pub mod status;
pub mod test_run;
pub mod testing;
pub mod up;
pub mod worker;

pub use cluster::Cluster;
pub use instance::Instance;
pub use testing::{Sandbox, TestSpace, eventually};
