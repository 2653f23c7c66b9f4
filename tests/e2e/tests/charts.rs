//! Installing by Helm: what the charts render, and what becomes of it in real clusters.

#[path = "charts/claims.rs"]
mod claims;
#[path = "charts/dedicated.rs"]
mod dedicated;
#[path = "charts/doctor.rs"]
mod doctor;
#[path = "charts/documented.rs"]
mod documented;
#[path = "charts/installed.rs"]
mod installed;
#[path = "charts/leftovers.rs"]
mod leftovers;
#[path = "charts/life.rs"]
mod life;
#[path = "charts/render.rs"]
mod render;
#[path = "charts/shop.rs"]
mod shop;
#[path = "documents/text.rs"]
mod text;
#[path = "charts/upgrade.rs"]
mod upgrade;
