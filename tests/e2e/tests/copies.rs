//! Workloads with a copy in each of several clusters, from their first pod to their last.

#[path = "copies/life.rs"]
mod life;
#[path = "copies/scaled.rs"]
mod scaled;
#[path = "copies/usual.rs"]
mod usual;
