//! Asks the nodes of clusters what copies use.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use federlet_node::contract::{MetricsKind, ProviderError};
use futures::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::Value;

use super::{
    FleetProvider,
    mean::{Parent, mean_metrics, mean_summary},
};
use crate::errors::from_host;

/// How long one node may take. Whoever asks us waits, too.
const PATIENCE: Duration = Duration::from_secs(8);
/// The most that one node may say.
const LIMIT: usize = 64 * 1024 * 1024;

impl FleetProvider {
    pub(super) async fn usage(&self) -> Result<Value, ProviderError> {
        let said = self.ask_nodes("stats/summary").await;
        let summaries: Vec<Value> =
            said.values().filter_map(|text| serde_json::from_str(text).ok()).collect();
        let parent = |namespace: &str, pod: &str| self.parent(namespace, pod);
        Ok(mean_summary(self.node.as_str(), &summaries, &parent))
    }

    pub(super) async fn usage_metrics(&self, kind: MetricsKind) -> Result<Bytes, ProviderError> {
        let path = match kind {
            MetricsKind::Resource => "metrics/resource",
            // It says nothing about pods that the other does not, and much more about machines.
            MetricsKind::Cadvisor => return Ok(Bytes::new()),
        };
        let said = self.ask_nodes(path).await;
        let parent = |namespace: &str, pod: &str| self.parent(namespace, pod);
        Ok(mean_metrics(&said, &parent, &mut self.counters.lock()).into())
    }

    /// What each node with copies says. Those that say nothing are left out: of the others something is known.
    async fn ask_nodes(&self, path: &str) -> BTreeMap<String, String> {
        let reach = self.choice.reach();
        let mut clusters: Vec<String> = self.children.read().clusters().into_iter().collect();
        clusters.retain(|cluster| reach.get(cluster) == Some(&true));
        let asked = clusters.into_iter().map(|cluster| async move {
            let answer = tokio::time::timeout(PATIENCE, self.ask_node(&cluster, path)).await;
            match answer.unwrap_or_else(|_| Err(ProviderError::unavailable("it did not answer in time"))) {
                Ok(text) => Some((cluster, text)),
                Err(error) => {
                    tracing::debug!(cluster, %error, "what copies use is not known");
                    None
                }
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn ask_node(&self, node: &str, path: &str) -> Result<String, ProviderError> {
        let request = Request::get(format!("/api/v1/nodes/{node}/proxy/{path}"))
            .body(Body::empty())
            .map_err(|error| ProviderError::unavailable(error.to_string()))?;
        let answer = self.clients.streams.send(request).await.map_err(|error| from_host(&error))?;
        if !answer.status().is_success() {
            return Err(ProviderError::unavailable(format!("node {node} said {}", answer.status())));
        }
        let body = Limited::new(answer.into_body(), LIMIT).collect().await;
        let body = body.map_err(|error| ProviderError::unavailable(error.to_string()))?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn parent(&self, namespace: &str, pod: &str) -> Option<Parent> {
        let child = self.children.read().parent(namespace, pod)?;
        let key = child.parent.key();
        Some(Parent {
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            uid: child.parent.uid().to_owned(),
        })
    }
}
