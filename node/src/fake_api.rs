//! An API server for unit tests: it answers as it is told, and remembers what it was asked.

use std::{sync::Arc, time::Duration};

use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    contract::NodeName,
    node::{HostVersion, NodeTemplate},
};

/// What was asked, as `GET /api/v1/nodes/n`.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    /// What was asked since the last question.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// A client of a server that answers each `GET /path?query` so.
pub(crate) fn fake_api(
    answer: impl Fn(&str) -> (StatusCode, Value) + Send + Sync + 'static,
) -> (Client, Asked) {
    let asked = Asked::default();
    let (noted, answer) = (asked.clone(), Arc::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        noted.0.lock().push(format!("{} {}", request.method(), request.uri().path()));
        let (status, body) = answer(&format!("{} {}", request.method(), request.uri()));
        let mut response = Response::new(Body::from(format!("{body}\n").into_bytes()));
        *response.status_mut() = status;
        async {
            // Somebody who asks again and again must not keep everybody else from their turn.
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    (Client::new(service, "default"), asked)
}

/// A refusal as an API server words it.
pub(crate) fn failure(status: StatusCode) -> (StatusCode, Value) {
    let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
    let code = status.as_u16();
    let body =
        json!({"kind": "Status", "status": "Failure", "message": "told to", "reason": reason, "code": code});
    (status, body)
}

/// A node called `n` on a host of version 1.35.
pub(crate) fn template() -> NodeTemplate {
    NodeTemplate {
        name: NodeName::new("n").unwrap(),
        os: "linux".into(),
        arch: "amd64".into(),
        taints: Vec::new(),
        address: None,
        kubelet_port: 10250,
        host: HostVersion::new("v1.35.4", "35"),
    }
}
