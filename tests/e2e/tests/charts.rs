//! Installing by Helm: what the charts render, and what becomes of it in real clusters.

#[path = "charts/installed.rs"]
mod installed;
#[path = "charts/life.rs"]
mod life;
#[path = "charts/render.rs"]
mod render;
