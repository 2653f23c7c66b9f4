//! Asks the member's kubelets what is used there.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use federlet_node::contract::{MetricsKind, ProviderError};
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::Value;

use super::{ClusterProvider, own_key, room::in_scope};
use crate::{
    errors::from_member,
    usage::{HostName, merge_metrics, merge_summaries},
    watch::Slot,
};

/// How long one kubelet may take. Whoever asks us waits, too.
const PATIENCE: Duration = Duration::from_secs(8);
/// How many are asked at the same time.
const TOGETHER: usize = 16;
/// The most that one kubelet may say.
const LIMIT: usize = 32 * 1024 * 1024;

impl ClusterProvider {
    pub(super) async fn usage(&self) -> Result<Value, ProviderError> {
        let said = self.ask_kubelets("stats/summary").await?;
        let summaries: Vec<(&str, Value)> = said
            .iter()
            .filter_map(|(machine, text)| Some((&**machine, serde_json::from_slice(text).ok()?)))
            .collect();
        let names = |namespace: &str, pod: &str| self.host_name(namespace, pod);
        Ok(merge_summaries(self.site.host.node.as_str(), &summaries, &names, &mut self.counters.lock()))
    }

    pub(super) async fn usage_metrics(&self, kind: MetricsKind) -> Result<Bytes, ProviderError> {
        let path = match kind {
            MetricsKind::Resource => "metrics/resource",
            MetricsKind::Cadvisor => "metrics/cadvisor",
        };
        let said = self.ask_kubelets(path).await?;
        let texts =
            said.iter().filter_map(|(machine, text)| Some((&**machine, std::str::from_utf8(text).ok()?)));
        let names = |namespace: &str, pod: &str| self.host_name(namespace, pod);
        let merged = merge_metrics(texts, &names, &mut self.counters.lock());
        Ok(merged.into())
    }

    /// What each Ready machine of the scope says. Those that say nothing are left out, unless it is all of them.
    async fn ask_kubelets(&self, path: &str) -> Result<Vec<(Box<str>, Bytes)>, ProviderError> {
        let settings = self.site.settings();
        let nodes = self.watch.nodes();
        let there: BTreeSet<Box<str>> = nodes.iter().map(|node| node.name.clone()).collect();
        self.counters.lock().keep_only(|machine| there.contains(machine));
        let machines = nodes.into_iter().filter(|node| node.ready && in_scope(node, &settings));
        let answers: Vec<Result<(Box<str>, Bytes), ProviderError>> = futures::stream::iter(machines)
            .map(|machine| async move {
                let asked = tokio::time::timeout(PATIENCE, self.ask_kubelet(&machine.name, path)).await;
                let late = |_| Err(ProviderError::unavailable("a kubelet did not answer in time"));
                Ok((machine.name, asked.unwrap_or_else(late)?))
            })
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        let mut trouble = None;
        let mut said = vec![];
        for answer in answers {
            match answer {
                Ok(text) => said.push(text),
                Err(error) => trouble = Some(error),
            }
        }
        match trouble {
            Some(error) if said.is_empty() => Err(error),
            _ => Ok(said),
        }
    }

    async fn ask_kubelet(&self, machine: &str, path: &str) -> Result<Bytes, ProviderError> {
        let request = Request::get(format!("/api/v1/nodes/{machine}/proxy/{path}"))
            .body(Body::empty())
            .map_err(|error| ProviderError::unavailable(error.to_string()))?;
        let answer = self.site.member.streams.send(request).await.map_err(|error| from_member(&error))?;
        if !answer.status().is_success() {
            let message = format!("the kubelet of {machine} said {}", answer.status());
            return Err(ProviderError::unavailable(message));
        }
        let body = Limited::new(answer.into_body(), LIMIT).collect().await;
        body.map(http_body_util::Collected::to_bytes)
            .map_err(|error| ProviderError::unavailable(error.to_string()))
    }

    /// The host's name for a pod of the member, if it came through this node.
    fn host_name(&self, namespace: &str, pod: &str) -> Option<HostName> {
        let pod = self.watch.pod(&Slot::new(namespace, pod))?;
        let key = own_key(&self.site, &pod)?;
        Some(HostName {
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            uid: pod.host_uid().to_owned(),
        })
    }
}
