//! Claims, and the volumes that stand for them on the host.
//!
//! A claim in the member lives as long as the host's claim does, not as long as a pod: it holds data. It is made when the
//! first pod needs it, or before that, when the host's scheduler chose this node for a pod and waits for the volume, as
//! it does for every class that binds to the first consumer. Then we are the provisioner: a volume on the host stands for
//! the member's claim, the host's binder binds the host's claim to it, and its node affinity keeps later pods where the
//! data is. When the host's claim goes, that volume is released, and its reclaim policy decides about the data.

mod decide;
mod hear;
mod reclaim;

use federlet_node::contract::ProviderError;
use k8s_openapi::api::{
    core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    runtime::events::{Event, EventType},
};
use serde_json::{Value, json};

use self::decide::Volume;
pub(crate) use self::decide::{Claimed, choose_again, is_deleted, is_retained, volume_name, waits_for};
pub use self::decide::{PROVISIONER, csi_driver, storage_class};
pub(super) use self::{hear::WaitingClaim, reclaim::OverVolume};
use super::{
    Follow,
    ledger::{Finished, Job, State},
    place::{Origin, Resource},
    sources::{from_host, version},
    work::copied,
};
use crate::{
    copy::{CopyPlan, copy},
    json::text,
    marks,
    references::{Kind, Reference},
    target::Target,
};

impl Follow {
    /// Looks at a claim, on whichever side it is.
    pub(super) async fn claim(&self, job: &Job) -> Finished {
        self.look_at_claim(job).await.unwrap_or_else(|error| State::Failed(error).into())
    }

    async fn look_at_claim(&self, job: &Job) -> Result<Finished, ProviderError> {
        let Some(namespace) = self.claim_namespace(job).await? else { return Ok(State::Closed.into()) };
        let name = &*job.place.name;
        let claims: Api<DynamicObject> =
            Api::namespaced_with(self.host_client(), &namespace, &Resource::Claim.api());
        let claim = claims.get_opt(name).await;
        let claim = claim.map_err(|error| from_host(&error, &format!("reading claim {namespace}/{name}")))?;
        let claim = claim.map(|claim| serde_json::to_value(claim).unwrap_or_default());
        let host_version = claim.as_ref().and_then(version);
        let target = self.site.target();
        let state = match &claim {
            Some(claim) if job.wanted || decide::waits_for_us(claim, target.node.as_str()) => {
                let kept = self.keep_claim(job, &namespace, claim, &target).await;
                self.tell_claim(job, claim, &kept);
                match kept {
                    // Whatever is wrong must be put right by somebody, and pods of the claim may be elsewhere until then.
                    Ok(State::Refused(error)) | Err(error) if !job.wanted => {
                        self.give_back(&namespace, claim, &error).await;
                        State::Failed(error)
                    }
                    kept => kept?,
                }
            }
            Some(claim) => self.unused_claim(job, claim, &target).await?,
            None if job.wanted => State::Missing,
            None => self.forgotten_claim(job, &target).await?,
        };
        let failed = matches!(state, State::Failed(_) | State::Refused(_));
        let state = if job.wanted || failed { state } else { State::Closed };
        Ok(Finished { state, host_version, again: None })
    }

    /// The host's namespace of a claim. What an earlier process left says so itself.
    async fn claim_namespace(&self, job: &Job) -> Result<Option<String>, ProviderError> {
        if let Some(Origin::Object { namespace, .. }) = &job.origin {
            return Ok(Some(namespace.to_string()));
        }
        let target = self.site.target();
        let there = self.member.get(&job.place).await?;
        let ours = there.filter(|there| marks::is_ours(there, &target.host, &target.node));
        Ok(ours.and_then(|there| {
            let annotations = there.pointer("/metadata/annotations").cloned().unwrap_or_default();
            target.namespaces.host_namespace(&job.place.namespace, &annotations)
        }))
    }

    /// Sees to it that the claim is in the member and, if the host waits for a volume, that there is one.
    async fn keep_claim(
        &self,
        job: &Job,
        namespace: &str,
        claim: &Value,
        target: &Target,
    ) -> Result<State, ProviderError> {
        let refused =
            |reason: &str, message: String| Ok(State::Refused(ProviderError::rejected(reason, message)));
        let settings = self.site.settings();
        let (classes, name) = (&settings.storage_classes, &*job.place.name);
        let bound_to = claim.get("spec").and_then(|spec| text(spec, "volumeName"));
        let on_host = match bound_to {
            Some(volume) => self.host_volume(volume).await?,
            None => None,
        };
        if let (Some(volume), None) = (bound_to, &on_host) {
            return refused(
                "VolumeLost",
                format!("claim {name:?} is bound to volume {volume}, which is gone"),
            );
        }
        let volume = Volume::of(on_host.as_ref(), target.node.as_str());
        if let Err((reason, message)) = decide::admit(claim, &volume, classes) {
            return refused(reason, message);
        }
        let kind = match &job.origin {
            Some(Origin::Object { kind, .. }) => *kind,
            _ => Kind::Claim,
        };
        if kind == Kind::EphemeralClaim && job.wanted && !self.is_of_user(job, claim) {
            return refused("ClaimNotOfPod", format!("claim {name:?} was not made for this pod"));
        }
        let class = self.our_class(claim).await?;
        let space = self.space(job, namespace).await?;
        let reference = Reference { kind, host: name.to_owned(), member: name.to_owned(), optional: false };
        let mut desired = match copy(claim, &reference, &space.namespace, target, &space.anchor, classes) {
            Ok(desired) => desired,
            Err(error) => return refused("StaysOnHost", error.to_string()),
        };
        decide::choose_class(&mut desired, claim, class.as_ref(), classes);

        let mut there = self.member.get(&job.place).await?;
        if let (Some(free), Volume::Ours(made)) = (&there, &volume)
            && decide::was_let_go(free, made, claim)
        {
            self.member.replace(&job.place, &decide::take_again(free, &desired)).await?;
            there = self.member.get(&job.place).await?;
        }
        let uid = |object: &Value| {
            object.get("metadata").and_then(|m| text(m, "uid")).unwrap_or_default().to_owned()
        };
        if let Volume::Ours(made) = &volume
            && there.as_ref().is_none_or(|there| uid(there) != made.uid)
        {
            return refused(
                "ClaimLost",
                format!(
                    "claim {name:?} was made in the member and is gone there, with its data; it is not made again as \
                     an empty one. Delete the host's claim to begin anew"
                ),
            );
        }
        if let Some(there) = &there {
            let earlier = marks::label(there, marks::HOST_UID) != Some(&uid(claim));
            if earlier && marks::is_ours(there, &target.host, &target.node) {
                self.forgotten_claim(job, target).await?;
            }
            if earlier || decide::is_deleted(there) {
                let message = format!("an earlier claim {name:?} is still there in the member");
                return match marks::is_ours(there, &target.host, &target.node) {
                    true => Err(ProviderError::unavailable(message)),
                    false => Err(super::member::foreign(&job.place)),
                };
            }
        }
        let applied = self.member.apply(&job.place, &desired, there.is_none(), target, decide::plan).await;
        let there = match (applied, there) {
            (Ok(now), _) => now,
            // It is there and good; only that it should grow is refused.
            (Err(error), Some(there)) => {
                self.tell_users(job, "VolumeResizeFailed", &error);
                there
            }
            (Err(error), None) => return Err(self.misplaced(&job.place, namespace, error)),
        };
        if decide::waits_for_us(claim, target.node.as_str()) {
            let made = decide::volume(claim, class.as_ref(), &there, &space.namespace, target)
                .ok_or_else(|| ProviderError::invalid(format!("claim {name:?} has no name or UID")))?;
            self.make_volume(&made).await?;
        }
        if let Some(on_host) = &on_host
            && let Some(size) = decide::grown(&there, on_host)
        {
            self.show_size(namespace, name, on_host, &size).await?;
        }
        Ok(State::InPlace(copied(&there, 0)))
    }

    /// The claim is on the host, and no pod needs it now: its data stays, and it may grow.
    async fn unused_claim(&self, job: &Job, claim: &Value, target: &Target) -> Result<State, ProviderError> {
        let Some(there) = self.member.get(&job.place).await? else { return Ok(State::Closed) };
        let uid = claim.get("metadata").and_then(|metadata| text(metadata, "uid"));
        if marks::is_ours(&there, &target.host, &target.node) && marks::label(&there, marks::HOST_UID) != uid
        {
            return self.forgotten_claim(job, target).await;
        }
        // Nothing is made here, even if the copy goes this very moment.
        let grow = |claim: &Value, there: Option<&Value>, target: &Target| match decide::plan(
            claim, there, target,
        ) {
            CopyPlan::Replace(grown) => CopyPlan::Replace(grown),
            _ => CopyPlan::Nothing,
        };
        if let Err(error) = self.member.apply(&job.place, claim, false, target, grow).await {
            tracing::debug!(place = %job.place, %error, "the claim in the member does not grow");
        }
        Ok(State::Closed)
    }

    /// The host has no such claim, for certain. If no volume stands for it either, nobody will ask for its data.
    async fn forgotten_claim(&self, job: &Job, target: &Target) -> Result<State, ProviderError> {
        let Some(there) = self.member.get(&job.place).await? else { return Ok(State::Closed) };
        let uid = there.get("metadata").and_then(|metadata| text(metadata, "uid")).unwrap_or_default();
        let Some(host_uid) = marks::label(&there, marks::HOST_UID) else { return Ok(State::Closed) };
        if !marks::is_ours(&there, &target.host, &target.node) || uid.is_empty() {
            return Ok(State::Closed);
        }
        match self.host_volume(&decide::volume_name(host_uid)).await? {
            None => self.member.delete(&job.place, uid).await?,
            // Whoever wants to keep the data keeps it, also from us.
            Some(volume) if decide::is_retained(&volume) => {
                self.member.replace(&job.place, &decide::let_go(&there)).await?;
            }
            // It goes when its volume does.
            Some(_) => {}
        }
        Ok(State::Closed)
    }

    /// A kubelet may not see claims before their pods are bound to it, nor after, and makes no volumes.
    fn host_client(&self) -> Client {
        self.site.host.own.clone()
    }

    fn volumes(&self) -> Api<DynamicObject> {
        Api::all_with(self.host_client(), &ApiResource::erase::<PersistentVolume>(&()))
    }

    async fn host_volume(&self, name: &str) -> Result<Option<Value>, ProviderError> {
        let found = self.volumes().get_opt(name).await;
        let found = found.map_err(|error| from_host(&error, &format!("reading volume {name}")))?;
        Ok(found.map(|volume| serde_json::to_value(volume).unwrap_or_default()))
    }

    /// The storage class of a claim, if it is one of our provisioner.
    async fn our_class(&self, claim: &Value) -> Result<Option<Value>, ProviderError> {
        let Some(name) = decide::class(claim) else { return Ok(None) };
        let found = Api::<StorageClass>::all(self.host_client()).get_opt(name).await;
        let class = match found {
            Ok(class) => class.map(|class| serde_json::to_value(class).unwrap_or_default()),
            // Then it is taken for a class that both sides know.
            Err(kube::Error::Api(status)) if status.code == 403 => None,
            Err(error) => return Err(from_host(&error, &format!("reading storage class {name}"))),
        };
        Ok(class.filter(|class| text(class, "provisioner") == Some(PROVISIONER)))
    }

    async fn make_volume(&self, volume: &Value) -> Result<(), ProviderError> {
        let object: DynamicObject = serde_json::from_value(volume.clone())
            .map_err(|error| ProviderError::invalid(format!("cannot make a volume: {error}")))?;
        match self.volumes().create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            // The answer to an earlier attempt was lost. The name is that of this claim and no other.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(from_host(&error, &"making a volume on the host")),
        }
    }

    /// The claim grew in the member: the host's volume and claim say so.
    async fn show_size(
        &self,
        namespace: &str,
        name: &str,
        volume: &Value,
        size: &Value,
    ) -> Result<(), ProviderError> {
        let failed = |error: &kube::Error| {
            from_host(error, &format!("telling the new size of claim {namespace}/{name}"))
        };
        let volume = volume.get("metadata").and_then(|metadata| text(metadata, "name")).unwrap_or_default();
        let patch = json!({ "spec": { "capacity": { "storage": size } } });
        let params = PatchParams::default();
        self.volumes().patch(volume, &params, &Patch::Merge(&patch)).await.map_err(|error| failed(&error))?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.host_client(), namespace);
        let patch = json!({ "status": { "capacity": { "storage": size }, "conditions": null } });
        claims.patch_status(name, &params, &Patch::Merge(&patch)).await.map_err(|error| failed(&error))?;
        Ok(())
    }

    fn is_of_user(&self, job: &Job, claim: &Value) -> bool {
        self.desk.ledger().users(&job.place).any(|pod| decide::is_of_pod(claim, pod.uid()))
    }

    /// The member will not have the claim, as far as it can be said: the host's scheduler may choose another node. It may
    /// choose this one again, so what was refused is looked at again after growing pauses, not whenever it is written.
    async fn give_back(&self, namespace: &str, claim: &Value, why: &ProviderError) {
        if !is_definite(why) {
            return;
        }
        let name = claim.get("metadata").and_then(|metadata| text(metadata, "name")).unwrap_or_default();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.host_client(), namespace);
        let patch = Patch::Merge(decide::choose_again(claim));
        match claims.patch_metadata(name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            // It went or changed meanwhile, which is heard of.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                let error = from_host(&error, &format!("giving back claim {namespace}/{name}"));
                tracing::warn!(%error, "the host's scheduler is not asked to choose again yet");
            }
        }
    }

    /// While no pod is bound, the claim is the only place to say why it has to wait.
    fn tell_claim(&self, job: &Job, claim: &Value, outcome: &Result<State, ProviderError>) {
        let (Ok(State::Refused(error)) | Err(error)) = outcome else { return };
        // One glitch is no news, and what lasts is told once.
        if job.wanted || self.desk.ledger().failures(&job.place) != if is_definite(error) { 0 } else { 2 } {
            return;
        }
        let field = |field: &str| claim.get("metadata").and_then(|m| text(m, field)).map(str::to_owned);
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: field("namespace"),
            name: field("name"),
            uid: field("uid"),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Warning,
            reason: "ProvisioningFailed".into(),
            note: Some(error.to_string().chars().take(900).collect()),
            action: "Provisioning".into(),
            secondary: None,
        };
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &about).await {
                tracing::debug!(%error, "could not write an Event");
            }
        });
    }
}

/// Whether trying again does not help by itself.
const fn is_definite(error: &ProviderError) -> bool {
    !matches!(error, ProviderError::Unavailable { .. })
}
