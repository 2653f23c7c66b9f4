use http::StatusCode;
use serde_json::json;

use super::*;
use crate::{
    fake_api::{Asked, failure, fake_api, template},
    memory::MemoryProvider,
};

/// A controller that knows all that it has to say, on a host that takes it.
fn controller() -> (NodeController, Asked) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "uid-1"}});
    let (client, asked) = fake_api(move |request| match request {
        get if get.starts_with("GET") => failure(StatusCode::NOT_FOUND),
        _ => (StatusCode::OK, node.clone()),
    });
    let (provider, settings) = (Arc::new(MemoryProvider::default()), NodeSettings::default());
    let mut controller = NodeController::new(
        client.clone(),
        client,
        template(),
        provider,
        settings,
        Arc::default(),
        NodeFacts::default(),
    );
    controller.report = Some(NodeReport::default());
    (controller, asked)
}

fn node(metadata: &Value) -> Node {
    let mut node = json!({"metadata": {"name": "n", "uid": "uid-0"}});
    node["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(node).unwrap()
}

#[tokio::test]
async fn a_node_whose_deletion_took_a_while_comes_back() {
    let (mut controller, asked) = controller();
    let ending = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]});
    controller.see(&node(&ending));
    controller.write().await.unwrap();
    assert!(asked.take().is_empty(), "nothing is written to what is going");
    controller.gone();
    controller.write().await.unwrap();
    assert_eq!(asked.take()[0], "POST /api/v1/nodes");
    assert_eq!(controller.told.uid.borrow().as_deref(), Some("uid-1"));
}

#[tokio::test]
async fn a_node_that_was_removed_on_purpose_does_not() {
    let leaving = json!({"annotations": {LEAVING_ANNOTATION: "true"}});
    let (mut controller, asked) = controller();
    controller.see(&node(&leaving));
    controller.gone();
    controller.write().await.unwrap();
    assert!(asked.take().is_empty());
    assert!(*controller.told.leaving.borrow(), "its lease must not come back either");
}
