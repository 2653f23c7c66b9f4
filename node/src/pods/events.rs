use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::sync::mpsc;

use crate::contract::{NodeName, Pod};

/// Events that may wait to be written. When the host is that slow, the newest are dropped: they repeat anyway.
const WAITING: usize = 512;

/// The API server refuses longer notes.
const NOTE_LIMIT: usize = 1000;

/// Tells people about their pods in the place where they look: `kubectl describe`.
///
/// Only trouble is told. A pod that runs says so itself, and an Event for each would double our writes.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<(Event, ObjectReference)>,
}

impl Events {
    /// Events that a node reports. They are written one by one in the background, until the last clone of this is gone.
    pub fn new(client: Client, node: &NodeName) -> Self {
        let reporter = Reporter { controller: "federlet".into(), instance: Some(node.to_string()) };
        let recorder = Recorder::new(client, reporter);
        let (sender, mut events) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            while let Some((event, about)) = events.recv().await {
                if let Err(error) = recorder.publish(&event, &about).await {
                    tracing::debug!(%error, reason = event.reason, "could not write an Event");
                }
            }
        });
        Self { sender }
    }

    /// Something is wrong with a pod.
    pub fn warn(&self, pod: &Pod, action: &str, reason: &str, note: &str) {
        self.tell(EventType::Warning, pod, action, reason, note);
    }

    /// Something that the pod's user should know.
    pub fn tell(&self, type_: EventType, pod: &Pod, action: &str, reason: &str, note: &str) {
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(pod.key().namespace().to_owned()),
            name: Some(pod.key().name().to_owned()),
            uid: Some(pod.uid().to_owned()),
            ..ObjectReference::default()
        };
        let note = Some(shorten(note, NOTE_LIMIT).to_owned());
        let event = Event { type_, reason: reason.into(), note, action: action.into(), secondary: None };
        let _ = self.sender.try_send((event, about));
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The beginning of a text, cut between characters.
pub(crate) fn shorten(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shorten("abc", 5), "abc");
        assert_eq!(shorten("abc", 2), "ab");
        assert_eq!(shorten("aé", 2), "a");
        assert_eq!(shorten("é", 1), "");
    }
}
