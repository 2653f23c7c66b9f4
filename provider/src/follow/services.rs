//! Services follow the pods that they select, so that pods in the member reach each other by the names they know.

mod decide;

use federlet_node::{
    contract::{Pod, PodId, ProviderError},
    decide::digest,
};
use serde_json::Value;

use super::{
    Follow,
    ledger::{Finished, Job, State},
    place::{Need, Origin, Place, Resource},
    shelf::Name,
    sources::{from_host, version},
    work::copied,
};
use crate::{fleet::relabelled, json::text, names::MemberNamespace};

/// Whom a Service selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// Labels, never none.
    pub(super) selector: Box<[(Box<str>, Box<str>)]>,
    version: Box<str>,
}

impl Selection {
    /// None if it stays on the host, whatever it selects.
    pub(super) fn of(service: &Value) -> Option<Self> {
        let version = service.get("metadata").and_then(|metadata| text(metadata, "resourceVersion"));
        Some(Self {
            selector: decide::selector(service)?.into(),
            version: version.unwrap_or_default().into(),
        })
    }
}

impl Follow {
    /// The Services that select a pod.
    pub(super) fn services(&self, pod: &Pod, namespace: &MemberNamespace) -> Vec<Need> {
        let host_namespace = pod.key().namespace();
        let relabelled = relabelled(pod);
        let labels = &relabelled.as_ref().unwrap_or(pod).metadata()["labels"];
        let services = self.site.host.objects.services.read();
        let selecting =
            services.within(host_namespace).filter(|(_, it)| decide::selects(&it.selector, labels));
        let mut needs: Vec<Need> = selecting
            .map(|(name, _)| Need {
                place: Place::new(Resource::Service, namespace, name),
                origin: Origin::Service { namespace: host_namespace.into(), name: name.into() },
                optional: true,
            })
            .collect();
        needs.sort_unstable_by(|a, b| a.place.cmp(&b.place));
        needs
    }

    /// A Service of the host is another than before; `others` is whether it selects others.
    pub(super) fn service_changed(&self, name: &Name, others: bool) {
        if others {
            self.select_again(Some(&name.namespace));
        }
        let Ok(there) = self.site.target().namespaces.map(&name.namespace) else { return };
        let place = Place::new(Resource::Service, &there, &name.name);
        let version = self.site.host.objects.services.read().get(name).map(|it| it.version.clone());
        self.desk.host_changed(&place, version.as_deref());
    }

    /// All Services were seen.
    pub(super) fn services_listed(&self) {
        if !self.site.host.objects.services.read().is_listed() {
            return;
        }
        self.select_again(None);
        let names: Vec<Name> = self.desk.ledger().services().collect();
        names.iter().for_each(|name| self.service_changed(name, false));
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
            let Ok(there) = target.namespaces.map(id.key().namespace()) else { continue };
            let services = self.services(&pod, &there);
            self.desk.change(|ledger, now| ledger.select(&id, &services, now));
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
