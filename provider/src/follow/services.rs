//! Services follow the pods that they select, so that pods in the member reach each other by the names they know.

mod decide;
mod index;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use federlet_node::{
    contract::{Pod, PodId, ProviderError},
    decide::digest,
};
use futures::StreamExt;
use kube::{
    Api,
    api::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::RwLock;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::index::Index;
use super::{
    Follow,
    ledger::{Finished, Job, State},
    place::{Need, Origin, Place, Resource},
    sources::{from_host, version},
    work::copied,
};
use crate::{json::text, names::MemberNamespace};

/// How long one watch request lives. A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

/// The host's Services, as far as they select pods.
#[derive(Debug, Default)]
pub(super) struct Services {
    index: RwLock<Index>,
    listed: AtomicBool,
}

impl Services {
    /// Whether all were seen once.
    pub(super) fn are_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }

    /// Those that select a pod.
    pub(super) fn needs(&self, pod: &Pod, namespace: &MemberNamespace) -> Vec<Need> {
        let host_namespace = pod.key().namespace();
        let names = self.index.read().matching(host_namespace, &pod.metadata()["labels"]);
        let need = |name: Box<str>| Need {
            place: Place::new(Resource::Service, namespace, &name),
            origin: Origin::Service { namespace: host_namespace.into(), name: Arc::from(&*name) },
            optional: true,
        };
        names.into_iter().map(need).collect()
    }
}

impl Follow {
    /// Watches the host's Services until told to stop.
    pub(super) async fn watch_services(self: Arc<Self>, stop: CancellationToken) {
        let api: Api<DynamicObject> = Api::all_with(self.site.host.client.clone(), &Resource::Service.api());
        let mut events =
            watcher(api, watcher::Config::default().timeout(WATCH_SECONDS)).default_backoff().boxed();
        let mut listed = HashSet::new();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(Ok(watcher::Event::Init)) => listed.clear(),
                Some(Ok(watcher::Event::InitApply(service))) => {
                    listed.extend(self.service_changed(service, false));
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    self.services.index.write().keep_only(&std::mem::take(&mut listed));
                    self.services.listed.store(true, Ordering::Relaxed);
                    self.select_again(None);
                }
                Some(Ok(watcher::Event::Apply(service))) => {
                    self.service_changed(service, true);
                }
                Some(Ok(watcher::Event::Delete(service))) => {
                    let (namespace, name) = names(&service);
                    if self.services.index.write().remove(&namespace, &name) {
                        self.select_again(Some(&namespace));
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "watching the host's Services failed, trying again");
                }
                None => return,
            }
        }
    }

    /// Notes a Service and, if `now`, what that means for pods. Its name.
    fn service_changed(&self, service: DynamicObject, now: bool) -> Option<(Box<str>, Box<str>)> {
        let (namespace, name) = names(&service);
        let service = serde_json::to_value(service).unwrap_or_default();
        let selector = decide::selector(&service).map(Into::into);
        let news = self.services.index.write().apply(&namespace, &name, selector);
        if news && now {
            self.select_again(Some(&namespace));
        } else if let Ok(there) = self.site.target().namespaces.map(&namespace) {
            let version = service.get("metadata").and_then(|metadata| text(metadata, "resourceVersion"));
            self.desk.host_changed(&Place::new(Resource::Service, &there, &name), version);
        }
        Some((namespace, name))
    }

    /// Finds out again which Services the pods need, in one namespace or all.
    fn select_again(&self, namespace: Option<&str>) {
        let target = self.site.target();
        let concerned = |pod: &&PodId| namespace.is_none_or(|namespace| pod.key().namespace() == namespace);
        let pods: Vec<PodId> = self.desk.ledger().pods().filter(concerned).cloned().collect();
        for id in pods {
            // What an ending pod needs does not change any more.
            let Some(pod) = self.site.host_pod(id.key()).filter(|pod| pod.uid() == id.uid()) else {
                continue;
            };
            let Ok(needs) = self.needs(&pod, &target) else { continue };
            self.desk.change(|ledger, now| {
                // Between the look at the list and now it may have been released.
                if ledger.has(&id) {
                    let _ = ledger.want(&id, &needs, pod.was_started(), now);
                }
            });
        }
    }

    /// Copies a Service of the host that selects some pod of ours.
    pub(super) async fn service(&self, job: &Job, namespace: &str, name: &str) -> Finished {
        let service = match self.sources.get(Resource::Service, namespace, name).await {
            Ok(service) => service,
            Err(error) => {
                return State::Failed(from_host(&error, &format!("reading Service {namespace}/{name}")))
                    .into();
            }
        };
        let host_version = service.as_ref().and_then(version);
        let copied = self.copy_service(job, namespace, service).await;
        Finished { state: copied.unwrap_or_else(State::Failed), host_version, again: None }
    }

    async fn copy_service(
        &self,
        job: &Job,
        namespace: &str,
        service: Option<Value>,
    ) -> Result<State, ProviderError> {
        let target = self.site.target();
        // It selected the pod a moment ago. If it does not any more, the pod will soon not need it.
        let Some(service) = service.filter(|service| decide::selector(service).is_some()) else {
            self.member.remove(&job.place, &target).await?;
            return Ok(State::Missing);
        };
        let space = self.space(job, namespace).await?;
        let desired = decide::desired(&service, &space.namespace, &target, &space.anchor)
            .map_err(|error| ProviderError::invalid(error.to_string()))?;
        let digest = digest(&desired);
        if let State::InPlace(known) = &job.state
            && known.digest == digest
            && self.inventory.confirms(&job.place, &known.uid, &known.version)
        {
            return Ok(job.state.clone());
        }
        let absent = self.inventory.lacks(&job.place);
        match self.member.apply(&job.place, &desired, absent, &target, decide::plan).await {
            Ok(there) => Ok(State::InPlace(copied(&there, digest))),
            Err(error) => Err(self.misplaced(&job.place, namespace, error)),
        }
    }
}

fn names(service: &DynamicObject) -> (Box<str>, Box<str>) {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    (text(&service.metadata.namespace), text(&service.metadata.name))
}
