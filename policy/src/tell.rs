//! Tells people, where they look: Events on the objects that they know.

use std::{collections::HashMap, fmt, sync::Arc};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Events that may wait to be written. When the host is that slow, the newest are dropped: they repeat anyway.
const WAITING: usize = 512;
/// The API server refuses longer notes.
const NOTE_LIMIT: usize = 1000;
/// What was told about so many objects is remembered, so that it is not told again for each attempt.
const REMEMBERED: usize = 10_000;

/// Writes Events, each piece of news once.
#[derive(Clone)]
pub struct Tell {
    sender: mpsc::Sender<(Event, ObjectReference)>,
    last: Arc<Mutex<HashMap<(String, String), String>>>,
}

impl Tell {
    /// Events are written one by one in the background, until the last clone of this is gone.
    #[must_use]
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter { controller: "federlet".into(), instance: Some(instance.to_owned()) };
        let recorder = Recorder::new(client, reporter);
        let (sender, mut events) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            while let Some((event, about)) = events.recv().await {
                if let Err(error) = recorder.publish(&event, &about).await {
                    tracing::debug!(%error, reason = event.reason, "could not write an Event");
                }
            }
        });
        Self { sender, last: Arc::default() }
    }

    /// Something is wrong with an object. What was said about it last under this reason is not said again.
    pub fn warn(&self, about: ObjectReference, reason: &str, note: &str) {
        self.say(EventType::Warning, about, reason, note);
    }

    /// Something that people should know about an object.
    pub fn say(&self, type_: EventType, about: ObjectReference, reason: &str, note: &str) {
        let key = (about.uid.clone().unwrap_or_default(), reason.to_owned());
        {
            let mut last = self.last.lock();
            if last.get(&key).is_some_and(|before| before == note) {
                return;
            }
            if last.len() >= REMEMBERED {
                last.clear();
            }
            last.insert(key, note.to_owned());
        }
        let end = (0..=NOTE_LIMIT.min(note.len())).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note[..end].to_owned()),
            action: "Placing".into(),
            secondary: None,
        };
        let _ = self.sender.try_send((event, about));
    }

    /// The trouble is over: should it come back, it is news again.
    pub fn over(&self, uid: &str, reason: &str) {
        self.last.lock().remove(&(uid.to_owned(), reason.to_owned()));
    }
}

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tell").finish_non_exhaustive()
    }
}
