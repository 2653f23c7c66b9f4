//! Real Kubernetes clusters on one machine.
