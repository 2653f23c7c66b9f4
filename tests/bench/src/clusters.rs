//! The clusters of a measurement.

use anyhow::Result;
use federlet_sandbox::{
    Instance,
    testing::{run_sandbox, run_sandbox_with},
};

/// Starts them, measures, and stops them however that ended. Unlike those of tests they may use every processor.
pub(crate) async fn with_clusters(
    words: &[&str],
    measure: impl AsyncFnOnce(&Instance) -> Result<()>,
) -> Result<()> {
    let instance = Instance::new("bench")?;
    let processors = std::thread::available_parallelism()?.to_string();
    run_sandbox_with(&instance, &[&["up"], words].concat(), &[("GOMAXPROCS", &processors)]).await?;
    let measured = measure(&instance).await;
    run_sandbox(&instance, &["down"]).await?;
    measured
}
