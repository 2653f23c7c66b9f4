//! The kubelet API: flags, who may call, and with which certificate it answers.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use anyhow::{Context, bail};
use clap::Args;
use federlet_node::{
    api::{ApiSettings, Authentication, Authorization, ClientCa, Kubelets, ServingCertificate, ServingNames},
    metrics::Metrics,
    pods::HostPods,
};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Where the host's API server reaches the node.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubelet API")]
pub(crate) struct KubeletArgs {
    /// The address to listen on.
    #[arg(long, env = "FEDERLET_ADDRESS", default_value = "0.0.0.0", value_name = "IP")]
    pub(crate) address: IpAddr,

    /// The port to listen on. Nodes that share a process have one each, from this one upward.
    #[arg(
        long,
        visible_alias = "kubelet-port",
        env = "FEDERLET_PORT",
        default_value_t = 10250,
        value_name = "PORT"
    )]
    pub(crate) port: u16,

    /// The address that the node publishes [default: --address, or the one from which the host is reached].
    #[arg(long, env = "FEDERLET_NODE_ADDRESS", value_name = "IP")]
    pub(crate) node_address: Option<IpAddr>,

    /// The certificate to serve with [default: one that the host signs on request, once somebody approves it].
    #[arg(long, env = "FEDERLET_TLS_CERT_FILE", value_name = "FILE", requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,

    /// Its private key. Both files are read again when they change.
    #[arg(long, env = "FEDERLET_TLS_PRIVATE_KEY_FILE", value_name = "FILE", requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,

    /// Serve with a certificate that nobody signed; a host that verifies its kubelets refuses it.
    #[arg(long, env = "FEDERLET_TLS_SELF_SIGNED", conflicts_with = "tls_cert_file")]
    pub(crate) tls_self_signed: bool,

    /// Where a certificate that the host signed is kept for the next start.
    #[arg(long, env = "FEDERLET_CERT_DIR", value_name = "DIRECTORY")]
    pub(crate) cert_dir: Option<PathBuf>,

    /// The CA of those who may call [default: the one that the host publishes for its client certificates].
    #[arg(long, env = "FEDERLET_CLIENT_CA_FILE", value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
}

impl KubeletArgs {
    /// The kubelet APIs of this process, or why they must not run.
    pub(crate) async fn kubelets(
        &self,
        client: &Client,
        host_pods: Arc<HostPods>,
        cluster_domain: String,
        metrics: Arc<Metrics>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<Arc<Kubelets>> {
        let authentication = self.authentication(client, tasks, stop).await?;
        if !may_create(client, "authorization.k8s.io", "subjectaccessreviews").await? {
            bail!(
                "the kubelet API must ask the host whether callers may: allow it to create SubjectAccessReviews"
            );
        }
        let settings = ApiSettings { cluster_domain, ..ApiSettings::default() };
        let authorization = Authorization::new(client.clone());
        let kubelets = Kubelets::new(authentication, authorization, host_pods, settings, metrics);
        let (stopping, stop) = (kubelets.clone(), stop.clone());
        tasks.spawn(async move {
            stop.cancelled().await;
            stopping.stop().await;
        });
        Ok(kubelets)
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
            None => stop.run_until_cancelled(ClientCa::of_host(client)).await.flatten(),
        };
        let may_review = may_create(client, "authentication.k8s.io", "tokenreviews").await?;
        if !may_review {
            tracing::warn!("bearer tokens cannot be verified: this identity may not create TokenReviews");
        }
        // A CA that may yet come is a way to know who calls only beside one that is there. Alone it would be a server
        // that answers nobody, so the process ends with an explanation, and is started again by whoever watches it.
        let ca = ca.filter(|ca| may_review || ca.is_known());
        if let Some(ca) = ca.clone().filter(|_| self.client_ca_file.is_none()) {
            tasks.spawn(ca.follow_host(client.clone(), stop.clone()));
        }
        Ok(Authentication::new(ca, may_review.then(|| client.clone()))?)
    }

    /// The certificate that was given for all nodes; none if each is to ask for its own.
    pub(crate) async fn given_certificate(
        &self,
        names: &ServingNames,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<ServingCertificate>> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            let serving = ServingCertificate::from_files(certificate, key).await?;
            tasks.spawn(serving.clone().follow_files(certificate.clone(), key.clone(), stop.clone()));
            return Ok(Some(serving));
        }
        Ok(if self.tls_self_signed { Some(ServingCertificate::self_signed(names)?) } else { None })
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
