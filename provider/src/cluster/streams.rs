//! Logs, exec, attach and port-forward: bytes passed between the host's API server and the member's.

use async_trait::async_trait;
use bytes::Bytes;
use federlet_node::contract::{
    ByteStream, LogOptions, MetricsKind, Pod, PodStreams, ProviderError, UpgradeAnswer, UpgradeRequest,
};
use futures::{StreamExt, TryStreamExt};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::Value;

use super::{ClusterProvider, phantom};
use crate::{errors::from_member, watch::Slot};

/// More than any explanation of a refusal needs.
const REFUSAL_LIMIT: usize = 64 * 1024;

#[async_trait]
impl PodStreams for ClusterProvider {
    async fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &LogOptions,
    ) -> Result<ByteStream, ProviderError> {
        let slot = self.running(pod)?;
        let request = options.to_api_server(&slot.namespace, &slot.name, container).map(|()| Body::empty());
        let response = self.site.member.streams.send(request).await.map_err(|error| from_member(&error))?;
        log_of(response).await
    }

    async fn upgrade(&self, pod: &Pod, request: UpgradeRequest) -> Result<UpgradeAnswer, ProviderError> {
        let slot = self.running(pod)?;
        let request = request.to_api_server(&slot.namespace, &slot.name, None).map(|()| Body::empty());
        let response = self.site.member.streams.send(request).await.map_err(|error| from_member(&error))?;
        UpgradeAnswer::from_response(response).await
    }

    async fn stats(&self) -> Result<Value, ProviderError> {
        self.usage().await
    }

    async fn metrics(&self, kind: MetricsKind) -> Result<Bytes, ProviderError> {
        self.usage_metrics(kind).await
    }
}

impl ClusterProvider {
    /// Where the pod is in the member: this very pod, not another of its name.
    fn running(&self, pod: &Pod) -> Result<Slot, ProviderError> {
        if phantom::is_phantom(pod) {
            return Err(ProviderError::invalid("this pod of a DaemonSet does not run on a virtual node"));
        }
        let slot = self.slot(pod.key())?;
        let there = self.ours(&slot).filter(|there| there.host_uid() == pod.uid());
        there.map(|_| slot).ok_or(ProviderError::NotFound)
    }
}

/// The log that an API server answers with, or why it does not.
pub(crate) async fn log_of(response: Response<Body>) -> Result<ByteStream, ProviderError> {
    if !response.status().is_success() {
        return Err(refused(response).await);
    }
    Ok(response.into_body().into_data_stream().map_err(std::io::Error::other).boxed())
}

/// What an API server said instead of a log.
async fn refused(response: Response<Body>) -> ProviderError {
    let code = response.status();
    let said = match Limited::new(response.into_body(), REFUSAL_LIMIT).collect().await {
        Ok(said) => said.to_bytes(),
        Err(_) => return ProviderError::unavailable(format!("the member said {code}")),
    };
    let status: Value = serde_json::from_slice(&said).unwrap_or_default();
    let message = status.get("message").and_then(Value::as_str).unwrap_or_default();
    let message = explained(if message.is_empty() { code.as_str() } else { message });
    match code {
        StatusCode::NOT_FOUND => ProviderError::NotFound,
        code if code.is_client_error() => ProviderError::invalid(message),
        _ => ProviderError::unavailable(message),
    }
}

/// KubeEdge's kubelets listen for logs and exec only if their stream is switched on, which most people find out by this.
fn explained(message: &str) -> String {
    if message.contains(":1035") && message.contains("connection refused") {
        return format!(
            "{message}; if this is a KubeEdge node, its edgeStream may be off: set modules.edgeStream.enable in edgecore.yaml"
        );
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_stream_that_is_off_is_explained() {
        for (message, explained_as) in [
            (
                "Get \"https://192.168.1.10:10350/containerLogs/default/nginx/nginx\": dial tcp 192.168.1.10:10350: connect: \
                 connection refused",
                true,
            ),
            // The second CloudCore has a port of its own.
            ("error dialing backend: dial tcp 10.0.0.7:10351: connect: connection refused", true),
            ("error dialing backend: dial tcp 10.0.0.7:10250: connect: connection refused", false),
            ("container \"app\" in pod \"web\" is waiting to start: ContainerCreating", false),
        ] {
            let said = explained(message);
            assert!(said.starts_with(message), "{said}");
            assert_eq!(said.contains("modules.edgeStream.enable"), explained_as, "{said}");
        }
    }
}
