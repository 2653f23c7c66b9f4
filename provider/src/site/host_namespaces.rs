use std::{collections::BTreeSet, fmt, sync::Arc};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long one watch request lives.
const WATCH_SECONDS: u32 = 45;

/// The names of the host's namespaces, for all virtual nodes of a process.
///
/// What we made in a member for a namespace goes when the namespace goes, and only this list says that it did.
pub struct HostNamespaces {
    /// None until all were seen once.
    names: watch::Sender<Option<Arc<BTreeSet<String>>>>,
}

impl HostNamespaces {
    /// Nothing is known yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { names: watch::Sender::new(None) })
    }

    /// Their names, as they change; none until all were seen once.
    pub fn names(&self) -> watch::Receiver<Option<Arc<BTreeSet<String>>>> {
        self.names.subscribe()
    }

    /// Keeps the list current until told to stop. No virtual node may list namespaces, so this acts for Federlet itself.
    pub async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let mut events = watcher(api, config).default_backoff().boxed();
        let (mut names, mut listing) = (BTreeSet::new(), true);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(Ok(watcher::Event::Init)) => {
                    listing = true;
                    names.clear();
                }
                Some(Ok(watcher::Event::InitApply(namespace) | watcher::Event::Apply(namespace))) => {
                    names.insert(namespace.name_any());
                }
                Some(Ok(watcher::Event::Delete(namespace))) => {
                    names.remove(&namespace.name_any());
                }
                Some(Ok(watcher::Event::InitDone)) => listing = false,
                Some(Err(error)) => {
                    tracing::warn!(%error, "watching the host's namespaces failed, trying again");
                }
                None => return,
            }
            if !listing {
                self.names.send_if_modified(|known| {
                    let changed = known.as_deref() != Some(&names);
                    if changed {
                        *known = Some(Arc::new(names.clone()));
                    }
                    changed
                });
            }
        }
    }
}

impl fmt::Debug for HostNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostNamespaces").finish_non_exhaustive()
    }
}
