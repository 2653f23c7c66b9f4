//! The end of volumes: the host's claim is gone, and the data in the member goes with it, if it is not to be kept.

use std::{sync::Arc, time::Duration};

use federlet_node::contract::ProviderError;
use kube::api::{DeleteParams, Preconditions};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        Follow,
        place::{Place, Resource},
        shelf::Name,
        sources::from_host,
    },
    decide::{self, Claimed},
};
use crate::json::text;

/// How often what did not work is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// A volume of the host that stood for a claim of some member, and whose data nobody wants any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct OverVolume {
    uid: String,
    there: Claimed,
}

impl OverVolume {
    pub(in super::super) fn of(volume: &Value) -> Option<Self> {
        if !decide::is_over(volume) {
            return None;
        }
        let uid = volume.get("metadata").and_then(|metadata| text(metadata, "uid"))?.to_owned();
        Some(Self { uid, there: Claimed::by(volume)? })
    }
}

impl Follow {
    /// Reclaims volumes of this node until told to stop.
    pub(in super::super) async fn reclaim_volumes(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let left = self.reclaim_all().await;
            let pause = async {
                match left {
                    true => tokio::time::sleep(AGAIN).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.reclaim.notified() => {}
                () = pause => {}
            }
        }
    }

    /// Whether some could not be.
    async fn reclaim_all(&self) -> bool {
        let here = self.site.host.node.as_str();
        let over: Vec<(Name, OverVolume)> = {
            let volumes = self.site.host.objects.volumes.read();
            let ours = volumes.all().filter(|(_, volume)| volume.there.node == here);
            ours.map(|(name, volume)| (name, volume.clone())).collect()
        };
        let mut left = false;
        for (name, volume) in over {
            if let Err(error) = self.reclaim(&name.name, &volume).await {
                tracing::warn!(volume = &*name.name, %error, "cannot reclaim a volume, will try again");
                left = true;
            }
        }
        left
    }

    async fn reclaim(&self, name: &str, volume: &OverVolume) -> Result<(), ProviderError> {
        self.recognise().await?;
        let place = Place {
            resource: Resource::Claim,
            namespace: volume.there.namespace.as_str().into(),
            name: volume.there.name.as_str().into(),
        };
        // By its UID: a claim of that name which came later is not touched.
        self.member.delete(&place, &volume.there.uid).await?;
        let only_this = Preconditions { uid: Some(volume.uid.clone()), resource_version: None };
        let params = DeleteParams::default().preconditions(only_this);
        match self.volumes().delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(from_host(&error, &format!("removing volume {name}"))),
        }
    }
}
