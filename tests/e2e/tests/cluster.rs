//! A member as a node of a real host: what people do with it.

#[path = "cluster/inprocess.rs"]
mod inprocess;
#[path = "node/process.rs"]
mod process;

use anyhow::Result;
use federlet_provider::{names::MemberName, settings::MemberSettings};
use federlet_sandbox::Sandbox;

#[tokio::test(flavor = "multi_thread")]
async fn scratch() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    tracing_subscriber::fmt()
        .with_env_filter("info,federlet_node=debug,federlet_provider=debug")
        .with_writer(std::io::stderr)
        .init();
    let settings = MemberSettings::new(MemberName::new("scratch1")?);
    let _stop =
        inprocess::serve_member(&sandbox.cluster("host")?, &sandbox.cluster("member1")?, settings).await?;
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    Ok(())
}
