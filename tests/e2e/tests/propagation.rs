//! Objects that are no workloads, in the members that their policies choose.

#[path = "propagation/kinds.rs"]
mod kinds;
#[path = "propagation/objects.rs"]
mod objects;
#[path = "propagation/rules.rs"]
mod rules;
#[path = "propagation/usual.rs"]
mod usual;
