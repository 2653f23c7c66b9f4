//! Copies of pods: made, changed, taken away.

use std::time::Duration;

use async_trait::async_trait;
use federlet_node::{
    contract::{Pod, PodChange, PodId, PodKey, PodLifecycleHandler, ProviderError},
    decide::Backoff,
};
use jiff::Timestamp;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::Value;

use super::{
    Borne, FleetProvider, Troubles, child::Child, choice::Chosen, copy, held::Known, plan::plan,
    watch::resource,
};
use crate::{cluster::phantom, errors::from_host};

#[async_trait]
impl PodLifecycleHandler for FleetProvider {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.bring(pod).await
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.bring(pod).await
    }

    async fn delete_pod(&self, pod: &PodId, grace: Duration) -> Result<(), ProviderError> {
        self.must_know_copies()?;
        self.forget(pod);
        let children = self.children.read().of(pod);
        if children.is_empty() {
            return Err(ProviderError::NotFound);
        }
        let mut trouble = None;
        for child in
            children.iter().filter(|child| child.ending.is_none_or(|under_way| under_way > grace.as_secs()))
        {
            trouble = self.delete(child, grace).await.err().or(trouble);
        }
        trouble.map_or(Ok(()), Err)
    }

    async fn get_pod(&self, key: &PodKey) -> Result<Pod, ProviderError> {
        self.must_know_copies()?;
        self.look(key)?.ok_or(ProviderError::NotFound)
    }

    async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError> {
        self.must_know_copies()?;
        let parents = self.children.read().parents();
        parents.iter().filter_map(|key| self.look(key).transpose()).collect()
    }
}

impl FleetProvider {
    fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.clients.own.clone(), namespace, &resource())
    }

    /// Sees to it that the pod has the copies that it should have. What goes wrong in one cluster stops no other.
    async fn bring(&self, pod: &Pod) -> Result<(), ProviderError> {
        if phantom::is_phantom(pod) {
            return Ok(());
        }
        self.must_know_copies()?;
        // Also before anything was decided: then that is what it waits for.
        self.remember(&self.choice.workload(pod)?, pod.key());
        let chosen = self.choice.chosen(pod)?;
        let children = self.children.read().named(pod.key());
        let plan = plan(pod, &chosen, &children, Timestamp::now());
        let mut troubles = Troubles::new();
        for cluster in &plan.create {
            if let Err(error) = self.create(pod, cluster, &chosen).await {
                troubles.insert(cluster.clone(), error);
            }
        }
        for (child, patch) in &plan.patch {
            if let Err(error) = self.patch(child, patch).await {
                troubles.insert(child.cluster.to_string(), error);
            }
        }
        for child in &plan.delete {
            if let Err(error) = self.delete(child, pod.termination_grace()).await {
                troubles.insert(child.cluster.to_string(), error);
            }
        }
        let again = self.bear(pod, troubles)?;
        match [plan.again, again].into_iter().flatten().min() {
            Some(after) => {
                let (changes, key) = (self.changes.clone(), pod.key().clone());
                self.again.set(pod.key(), after, move || drop(changes.send(PodChange::ReconsiderOne(key))));
            }
            None => self.again.clear(pod.key()),
        }
        Ok(())
    }

    /// What went wrong with some copies. As long as the pod has any, it goes on with those, and the rest is tried again
    /// after the time that this returns.
    fn bear(&self, pod: &Pod, troubles: Troubles) -> Result<Option<Duration>, ProviderError> {
        let mut borne = self.troubles.lock();
        let before = borne.remove(pod.uid());
        let Some(first) = troubles.values().next().cloned() else { return Ok(None) };
        if self.children.read().of(pod.id()).is_empty() {
            return Err(first);
        }
        let (failures, before) =
            before.map_or((0, Troubles::new()), |borne| (borne.failures, borne.troubles));
        for (cluster, error) in troubles.iter().filter(|(cluster, error)| before.get(*cluster) != Some(error))
        {
            self.events.warn(pod, "Copying", error.reason(), &format!("{cluster}: {error}"));
        }
        let failures = failures + 1;
        borne.insert(pod.uid().to_owned(), Borne { failures, troubles });
        Ok(Some(Backoff::spread(Backoff::SLOW.pause(failures, None))))
    }

    async fn create(&self, pod: &Pod, cluster: &str, chosen: &Chosen) -> Result<(), ProviderError> {
        let wanted = copy::copy(pod, cluster, chosen);
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let body =
            serde_json::from_value(wanted).map_err(|error| ProviderError::invalid(error.to_string()))?;
        let api = self.api(pod.key().namespace());
        match api.create(&PostParams::default(), &body).await {
            Ok(made) => {
                self.note_answer(&made);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = api.get_opt(&name).await.map_err(|error| from_host(&error))?;
                let there = there.and_then(|there| serde_json::to_value(there).ok());
                self.name_is_taken(pod, &name, there)
            }
            Err(error) => Err(from_host(&error)),
        }
    }

    fn name_is_taken(&self, pod: &Pod, name: &str, there: Option<Value>) -> Result<(), ProviderError> {
        let Some(there) = there else {
            return Err(ProviderError::unavailable(format!("an earlier {name} is just going away")));
        };
        match Child::read(&there) {
            // The answer to an earlier attempt was lost: it is the very copy that we wanted.
            Some(child) if child.parent == *pod.id() => {
                self.note(child);
                Ok(())
            }
            Some(child) if child.parent.key() == pod.key() => {
                self.note(child);
                Err(ProviderError::unavailable(format!("{name}, a copy of an earlier pod, is still ending")))
            }
            _ => Err(ProviderError::already_exists(format!(
                "pod {name} is no copy of this pod; remove or rename it"
            ))),
        }
    }

    async fn patch(&self, child: &Child, patch: &Value) -> Result<(), ProviderError> {
        let api = self.api(child.parent.key().namespace());
        match api.patch(&child.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(made) => {
                self.note_answer(&made);
                Ok(())
            }
            // It is gone, or another has its name: the watch says so.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(from_host(&error)),
        }
    }

    async fn delete(&self, child: &Child, grace: Duration) -> Result<(), ProviderError> {
        let only_this = Preconditions { uid: Some(child.uid.to_string()), resource_version: None };
        let seconds = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        let params = DeleteParams::default().grace_period(seconds).preconditions(only_this);
        match self.api(child.parent.key().namespace()).delete(&child.name, &params).await {
            Ok(answer) => {
                if let Some(ending) = answer.left() {
                    self.note_answer(&ending);
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(from_host(&error)),
        }
    }

    fn note_answer(&self, pod: &DynamicObject) {
        let json = serde_json::to_value(pod).unwrap_or_default();
        if let Some(child) = Child::read(&json) {
            self.note(child);
        }
    }

    /// What is known of the pod of this name; none if nothing is left of it.
    fn look(&self, key: &PodKey) -> Result<Option<Pod>, ProviderError> {
        let host = self.pods.get(&self.node, key);
        if let Some(host) = host.as_ref().filter(|host| phantom::is_phantom(host)) {
            return Ok(host.deletion().is_none().then(|| phantom::shown(host)));
        }
        // What was decided may not be known yet; then what there is says how it is.
        let chosen = host.as_ref().and_then(|host| self.choice.chosen(host).ok());
        let troubles = host.as_ref().and_then(|host| {
            let troubles = self.troubles.lock();
            troubles.get(host.uid()).map(|borne| borne.troubles.clone())
        });
        let known = Known {
            host: host.as_ref(),
            children: self.children.read().named(key),
            chosen: chosen.map(|chosen| chosen.clusters),
            reach: self.choice.reach(),
            troubles: troubles.unwrap_or_default(),
        };
        let held = known.held()?;
        if held.is_none() {
            self.again.clear(key);
        }
        Ok(held)
    }

    fn remember(&self, workload: &str, pod: &PodKey) {
        self.workloads.lock().entry(workload.to_owned()).or_default().insert(pod.clone());
    }

    fn forget(&self, pod: &PodId) {
        self.again.clear(pod.key());
        self.troubles.lock().remove(pod.uid());
        self.workloads.lock().retain(|_, pods| {
            pods.remove(pod.key());
            !pods.is_empty()
        });
    }
}
