//! Karmada's PropagationPolicy and OverridePolicy, expressed in what Kubernetes itself offers.
