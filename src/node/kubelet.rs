use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, bail};
use federlet_node::{
    api::{
        ApiSettings, Authentication, Authorization, CertificateRequests, ClientCa, Kubelets,
        ServingCertificate, ServingNames,
    },
    contract::Provider,
    metrics::Metrics,
    pods::HostPods,
};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::args::KubeletArgs;

/// What the kubelet API serves.
pub(super) struct Served {
    pub(super) names: ServingNames,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) host_pods: Arc<HostPods>,
    pub(super) cluster_domain: String,
    pub(super) metrics: Arc<Metrics>,
}

impl KubeletArgs {
    /// Starts the kubelet API in the background, or says why it must not run.
    pub(super) async fn serve(
        self,
        client: Client,
        served: Served,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let Served { names, provider, host_pods, cluster_domain, metrics } = served;
        let authentication = self.authentication(&client, tasks, stop).await?;
        if !may_create(&client, "authorization.k8s.io", "subjectaccessreviews").await? {
            bail!(
                "the kubelet API must ask the host whether callers may: allow it to create SubjectAccessReviews"
            );
        }
        let settings = ApiSettings { cluster_domain, ..ApiSettings::default() };
        let authorization = Authorization::new(client.clone());
        let kubelets = Kubelets::new(authentication, authorization, host_pods, settings, metrics);
        let listen = SocketAddr::new(self.address, self.port);
        let node = names.node.clone();
        let serving = self.certificate(client, names, tasks, stop).await?;
        kubelets.add(node, provider, listen, serving).await?;
        let stop = stop.clone();
        tasks.spawn(async move {
            stop.cancelled().await;
            kubelets.stop().await;
        });
        Ok(())
    }

    async fn authentication(
        &self,
        client: &Client,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<Authentication> {
        let ca = match &self.client_ca_file {
            Some(file) => {
                let ca = ClientCa::from_file(file).await.with_context(|| format!("{}", file.display()))?;
                tasks.spawn(ca.clone().follow_file(file.clone(), stop.clone()));
                Some(ca)
            }
            None => match ClientCa::from_host(client).await {
                Ok(Some(ca)) => {
                    tasks.spawn(ca.clone().follow_host(client.clone(), stop.clone()));
                    Some(ca)
                }
                Ok(None) => None,
                Err(error) => {
                    tracing::warn!(%error, "client certificates cannot be verified");
                    None
                }
            },
        };
        let may_review = may_create(client, "authentication.k8s.io", "tokenreviews").await?;
        if !may_review {
            tracing::warn!("bearer tokens cannot be verified: this identity may not create TokenReviews");
        }
        Ok(Authentication::new(ca, may_review.then(|| client.clone()))?)
    }

    async fn certificate(
        self,
        client: Client,
        names: ServingNames,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<ServingCertificate> {
        if let (Some(certificate), Some(key)) = (self.tls_cert_file, self.tls_private_key_file) {
            let serving = ServingCertificate::from_files(&certificate, &key).await?;
            tasks.spawn(serving.clone().follow_files(certificate, key, stop.clone()));
            return Ok(serving);
        }
        if self.tls_self_signed {
            return Ok(ServingCertificate::self_signed(&names)?);
        }
        let requests = CertificateRequests::new(client, names, self.cert_dir);
        let serving = requests.serving();
        tasks.spawn(requests.run(stop.clone()));
        Ok(serving)
    }
}

/// Whether we may create objects of this kind.
async fn may_create(client: &Client, group: &str, resource: &str) -> anyhow::Result<bool> {
    let attributes = ResourceAttributes {
        verb: Some("create".into()),
        group: Some(group.into()),
        resource: Some(resource.into()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    let answer = answer.with_context(|| format!("cannot ask the host whether we may create {resource}"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
