//! Members and regions as nodes of a real host: what people do with them, through one `federlet serve`.

#[path = "cluster/application.rs"]
mod application;
#[path = "cluster/commands.rs"]
mod commands;
#[path = "cluster/endings.rs"]
mod endings;
#[path = "cluster/fields.rs"]
mod fields;
#[path = "cluster/placement.rs"]
mod placement;
#[path = "cluster/refusals.rs"]
mod refusals;
#[path = "cluster/regions.rs"]
mod regions;
#[path = "cluster/streams.rs"]
mod streams;
#[path = "cluster/workloads.rs"]
mod workloads;

use federlet_e2e::{objects, stage};
