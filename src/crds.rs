//! What Clusters and policies are, told to a host that does not know.

use std::time::Duration;

use anyhow::bail;
use federlet_policy::api::{Cluster, crds};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};

use crate::host::answered;

/// How long a new definition may take until it is served.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tells the host what Clusters and policies are, if it does not know. Returns what it told.
pub(crate) async fn ensure(client: &Client) -> anyhow::Result<Vec<String>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut told = vec![];
    for definition in crds::all() {
        let name = definition.name_any();
        if api.get_opt(&name).await.map_err(|error| answered("the host", &error))?.is_some() {
            continue;
        }
        match api.create(&PostParams::default(), &definition).await {
            Ok(_) => told.push(name),
            Err(kube::Error::Api(status)) if status.is_already_exists() => told.push(name),
            Err(error) => return Err(answered("the host", &error).context(format!("cannot define {name}"))),
        }
    }
    for name in &told {
        until_served(&api, name).await?;
    }
    clusters(client).await?;
    Ok(told)
}

/// All Clusters of a host that may have learned of them only now: a new definition is said to be served a moment before
/// it is, and now and then for a moment not.
pub(crate) async fn clusters(client: &Client) -> anyhow::Result<Vec<Cluster>> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let begun = tokio::time::Instant::now();
    loop {
        match clusters.list(&ListParams::default()).await {
            Ok(all) => return Ok(all.items),
            Err(kube::Error::Api(status))
                if matches!(status.code, 404 | 429 | 503) && begun.elapsed() < PATIENCE =>
            {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => return Err(answered("the host", &error)),
        }
    }
}

async fn until_served(api: &Api<CustomResourceDefinition>, name: &str) -> anyhow::Result<()> {
    let begun = tokio::time::Instant::now();
    loop {
        let definition = api.get(name).await.map_err(|error| answered("the host", &error))?;
        let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|c| c.type_ == "Established" && c.status == "True") {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            let why = conditions.into_iter().find_map(|c| c.message).unwrap_or_default();
            bail!("the host does not serve {name}: {why}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
