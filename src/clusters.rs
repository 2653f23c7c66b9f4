//! The Clusters that a command is about.

use federlet_provider::api::Cluster;
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::{host::answered, progress::awaited};

/// All of the host that these labels choose, with a word while a person waits for them.
pub(crate) async fn list(host: &Client, selector: Option<&str>) -> anyhow::Result<Vec<Cluster>> {
    awaited("asking the host for its Clusters", read(host, selector)).await
}

/// All of the host that these labels choose.
pub(crate) async fn read(host: &Client, selector: Option<&str>) -> anyhow::Result<Vec<Cluster>> {
    let api: Api<Cluster> = Api::all(host.clone());
    let params = selector.iter().fold(ListParams::default(), |params, text| params.labels(text));
    match api.list(&params).await {
        Ok(found) => Ok(found.items),
        // Nobody ever joined.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(vec![]),
        Err(error) => Err(answered("the host", &error)),
    }
}

/// Those of these names, or all if there are none; or the first name that nobody has.
pub(crate) fn choose(all: Vec<Cluster>, names: &[String]) -> Result<Vec<Cluster>, &String> {
    if let Some(name) = names.iter().find(|name| all.iter().all(|cluster| cluster.name_any() != **name)) {
        return Err(name);
    }
    let is_wanted = |cluster: &Cluster| names.is_empty() || names.contains(&cluster.name_any());
    Ok(all.into_iter().filter(is_wanted).collect())
}
