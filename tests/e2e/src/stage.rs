//! A namespace of the host, and ways to look at the same pods from both sides.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use federlet_sandbox::eventually;
use serde_json::Value;

use crate::{
    Kubectl, SOON,
    fleet::{Fleet, MEMBER1},
    objects,
};

/// Where a test plays.
#[derive(Debug)]
pub struct Stage {
    /// The nodes.
    pub fleet: Arc<Fleet>,
    /// The namespace.
    pub namespace: String,
    /// On the host.
    pub host: Kubectl,
    /// In the first member, where the namespace has the same name.
    pub member: Kubectl,
}

/// Plays a test in a namespace of its own.
pub async fn on_stage(name: &str, play: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    let fleet = Fleet::shared().await?;
    let log = fleet.clone();
    let played = fleet.sandbox.in_namespace(name, async |space| {
        let namespace = space.namespace.clone();
        let host = Kubectl::new(fleet.host.clone(), &namespace);
        let member = Kubectl::new(fleet.sandbox.cluster("member1")?, &namespace);
        play(&Stage { fleet: fleet.clone(), namespace, host, member }).await
    });
    played.await.with_context(|| log.serve.tail())
}

impl Stage {
    /// Creates an object on the host.
    pub async fn create(&self, object: &Value) -> Result<()> {
        objects::create(&self.host, object).await
    }

    /// Creates a pod on the first member and waits until it is Ready on the host.
    pub async fn start(&self, name: &str, extra: Value) -> Result<()> {
        self.create(&objects::pod(name, &objects::spec(MEMBER1, extra))).await?;
        self.ready(name).await
    }

    /// Waits until a pod is Ready on the host.
    pub async fn ready(&self, name: &str) -> Result<()> {
        self.host.run(&format!("wait pod/{name} --for=condition=Ready --timeout=60s")).await?;
        Ok(())
    }

    /// A field of a pod on the host.
    pub async fn field(&self, name: &str, path: &str) -> Result<String> {
        self.host.args(&["get", "pod", name, "-o", &format!("jsonpath={{{path}}}")]).await
    }

    /// Waits until a field of a pod on the host has this value.
    pub async fn says(&self, name: &str, path: &str, value: &str) -> Result<()> {
        eventually(&format!("{name} says {path} = {value}"), SOON, async || {
            let found = self.field(name, path).await?;
            ensure!(found == value, "it says {found:?}");
            Ok(())
        })
        .await
    }

    /// Waits until an Event about a pod tells this reason; what it says.
    pub async fn told(&self, name: &str, reason: &str) -> Result<String> {
        eventually(&format!("an Event {reason} about {name}"), SOON, async || {
            let fields = format!("involvedObject.name={name},reason={reason}");
            let words = ["get", "events", "--field-selector", &fields, "-o", "jsonpath={.items[*].message}"];
            let said = self.host.args(&words).await?;
            ensure!(!said.is_empty(), "no such Event");
            Ok(said)
        })
        .await
    }

    /// Runs a command in a pod, through the host.
    pub async fn exec(&self, pod: &str, command: &str) -> Result<String> {
        Ok(self.host.args(&["exec", pod, "--", "sh", "-c", command]).await?.trim().to_owned())
    }
}
