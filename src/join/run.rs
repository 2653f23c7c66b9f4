use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail};
use federlet_provider::{
    api::{Cluster, LocalSecretReference},
    errors::is_terminating,
    fleet::FLEET,
    join::{
        FIELD_MANAGER, FINALIZER, SYSTEM_NAMESPACE,
        account::Account,
        node::{is_machine, name_taken},
        token::{FreshToken, secret_name},
    },
    member::{TOKEN_KEY, Way},
    names::{HostId, MemberName},
    rights::{MoreObjects, node_role, node_role_name},
    settings::MemberSettings,
};
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Secret},
        rbac::v1::ClusterRole,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    again::{Wanted, wanted},
    args::JoinArgs,
    wait,
};
use crate::{
    crds,
    host::{answered, command_client, host_id, read_config},
    output::say,
    progress::Spinner,
    serve::ensure_namespace,
};

/// How often a member is asked whether it is done.
const LOOK: Duration = Duration::from_millis(500);

impl JoinArgs {
    /// Joins, and waits until the node is Ready.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let name = self.name.to_string();
        // What is wrong with the flags is said before anything is touched.
        MemberSettings::read(&name, &self.labels(), &self.spec())?;
        if name == FLEET {
            bail!("{FLEET} is the name of the node that stands for several clusters: choose another one");
        }
        let host = self.host.client().await?;
        let mut spinner = Spinner::start("asking the host");
        let host_id = host_id(&host).await?;
        spinner.say("asking the member");
        let member = Member::reach(&self).await?;
        if member.id == host_id.as_str() {
            bail!("{} is the host itself, and a cluster cannot be a node of itself", member.shown);
        }
        spinner.say("looking at what is there");
        for told in crds::ensure(&host).await? {
            spinner.say(format!("told the host what {told} are"));
        }
        let all = crds::clusters(&host).await?;
        let before = self.before(&host, &member, &all).await?;
        let wanted = self.wanted(&member, before)?;
        self.meets_no_other(&member, &wanted, &all)?;
        // What the host would refuse is refused before the account in the member is touched.
        self.write(&host, &wanted, true).await?;
        ensure_namespace(&host).await?;
        spinner.say("making an account in the member");
        let secret =
            member.account(&host_id, self.more_objects().as_deref(), self.wait, &mut spinner).await?;
        let secrets: Api<Secret> = Api::namespaced(host.clone(), SYSTEM_NAMESPACE);
        let apply = PatchParams::apply(FIELD_MANAGER).force();
        secrets
            .patch(&secret.name_any(), &apply, &Patch::Apply(&secret))
            .await
            .map_err(|error| answered("the host", &error).context("cannot store the credentials"))?;
        spinner.say("writing the Cluster");
        let cluster = self.write(&host, &wanted, false).await?;
        let owner = owner(&cluster)?;
        // The Secret goes when the last Cluster that has it goes.
        let owned = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret.name_any(), "ownerReferences": [owner] },
        });
        let manager = PatchParams::apply(&format!("{FIELD_MANAGER}-{name}")).force();
        let answer = secrets.patch(&secret.name_any(), &manager, &Patch::Apply(owned)).await;
        answer.map_err(|error| answered("the host", &error).context("cannot store the credentials"))?;
        allow_node(&host, &self.name, owner).await?;
        drop(spinner);
        let done = if before.is_some() { "joined before, and is up to date" } else { "joined" };
        say!("cluster {name} ({}) {done}", member.version);
        if wanted.spec.api_endpoint != member.endpoint() && self.member.cluster_endpoint.is_none() {
            say!(
                "the host goes on reaching it at {}: --cluster-endpoint changes that",
                wanted.spec.api_endpoint
            );
        }
        wait::until_ready(&host, &name, self.wait).await
    }

    /// The Cluster of an earlier join. Refuses a name that something else has.
    async fn before<'a>(
        &self,
        host: &Client,
        member: &Member,
        all: &'a [Cluster],
    ) -> anyhow::Result<Option<&'a Cluster>> {
        let name = self.name.as_str();
        let before = all.iter().find(|cluster| cluster.name_any() == name);
        if let Some(before) = before {
            if before.meta().deletion_timestamp.is_some() {
                bail!(
                    "the Cluster {name} is still being deleted: wait for it, or finish it with `federlet unjoin {name} --force`"
                );
            }
            if !before.spec.id.is_empty() && before.spec.id != member.id {
                bail!(
                    "the name {name} belongs to another cluster, at {}: choose another name, or `federlet unjoin {name}` first",
                    before.spec.api_endpoint
                );
            }
        } else {
            if is_machine(host, name).await.map_err(|error| answered("the host", &error))? {
                bail!(name_taken(name));
            }
        }
        Ok(before)
    }

    /// The Cluster as it is to be, if it leads anywhere.
    fn wanted(&self, member: &Member, before: Option<&Cluster>) -> anyhow::Result<Wanted> {
        let mut spec = self.spec();
        spec.id.clone_from(&member.id);
        let former =
            before.map(|before| before.spec.api_endpoint.clone()).filter(|former| !former.is_empty());
        spec.api_endpoint =
            self.member.cluster_endpoint.clone().or(former).unwrap_or_else(|| member.endpoint());
        spec.insecure_skip_tls_verification = member.config.accept_invalid_certs;
        spec.secret_ref =
            Some(LocalSecretReference { namespace: SYSTEM_NAMESPACE.into(), name: secret_name(&member.id) });
        let wanted = wanted(before, self.labels(), &spec)?;
        let any_token = BTreeMap::from([(TOKEN_KEY.to_owned(), b"token".to_vec())]);
        Way::read(&wanted.spec, &any_token).context("the host could not reach the member")?;
        Ok(wanted)
    }

    /// Refuses a cluster whose namespaces would meet those of another.
    fn meets_no_other(&self, member: &Member, wanted: &Wanted, all: &[Cluster]) -> anyhow::Result<()> {
        let name = self.name.as_str();
        let own = MemberSettings::read(name, &wanted.labels, &wanted.spec)?;
        for other in all.iter().filter(|other| other.name_any() != name && other.spec.id == member.id) {
            let Ok(theirs) = MemberSettings::try_from(other) else { continue };
            if own.namespaces.may_collide(&theirs.namespaces) {
                bail!(
                    "{} is joined already, as {}, and namespaces of the two could meet there: join regions with \
                     --region-selector, each with a --namespace-suffix of its own",
                    member.shown,
                    other.name_any()
                );
            }
        }
        Ok(())
    }

    /// Writes the Cluster, or only asks the host whether it would take it.
    async fn write(&self, host: &Client, wanted: &Wanted, only_ask: bool) -> anyhow::Result<Cluster> {
        let document = json!({
            "apiVersion": Cluster::api_version(&()), "kind": Cluster::kind(&()), "spec": wanted.written,
            "metadata": { "name": self.name.as_str(), "labels": wanted.labels, "finalizers": [FINALIZER] },
        });
        let clusters: Api<Cluster> = Api::all(host.clone());
        let apply = PatchParams { dry_run: only_ask, ..PatchParams::apply(FIELD_MANAGER).force() };
        clusters
            .patch(self.name.as_str(), &apply, &Patch::Apply(document))
            .await
            .map_err(|error| answered("the host", &error).context("cannot write the Cluster"))
    }
}

/// The member, while it is being joined.
struct Member {
    config: Config,
    client: Client,
    id: String,
    version: String,
    /// How it is called in messages.
    shown: String,
}

impl Member {
    async fn reach(args: &JoinArgs) -> anyhow::Result<Self> {
        let file = &args.member.cluster_kubeconfig;
        let config = read_config(Some(file), args.member.cluster_context.as_deref()).await?;
        let client = command_client(config.clone()).await?;
        let shown = format!("the cluster at {}", config.cluster_url);
        let who = format!("{shown} (from {})", file.display());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let system = namespaces.get("kube-system").await.map_err(|error| answered(&who, &error))?;
        let version = client.apiserver_version().await.map_err(|error| answered(&who, &error))?;
        let id = system.metadata.uid.unwrap_or_default();
        Ok(Self { config, client, id, version: version.git_version, shown })
    }

    /// Where its API server is for the person who joins it.
    fn endpoint(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    /// Makes our account there and returns the Secret with its token.
    async fn account(
        &self,
        host: &HostId,
        more: Option<&[MoreObjects]>,
        patience: Duration,
        spinner: &mut Spinner,
    ) -> anyhow::Result<Secret> {
        let account = Account::of(host);
        let refused = |error: kube::Error| {
            answered("the member", &error).context("cannot make an account in the member")
        };
        let begun = tokio::time::Instant::now();
        // Somebody who left a moment ago and joins again meets the old account while it is going.
        loop {
            match account.ensure(&self.client, host, more).await {
                Err(error) if is_terminating(&error) && begun.elapsed() < patience => {
                    spinner
                        .say(format!("waiting until the member has deleted namespace {}", account.namespace));
                    tokio::time::sleep(LOOK).await;
                }
                answer => break answer.map_err(refused)?,
            }
        }
        let token = FreshToken::request(&self.client, &account).await.map_err(refused)?;
        let ca = self.config.root_cert.as_ref().map(|all| all.iter().map(|der| pem(der)).collect::<String>());
        Ok(token.secret(&self.id, ca.as_deref().map(str::as_bytes)))
    }
}

/// One certificate as text.
fn pem(der: &[u8]) -> String {
    let base64 = serde_json::to_value(k8s_openapi::ByteString(der.to_vec())).unwrap_or_default();
    let base64 = base64.as_str().unwrap_or_default();
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in base64.as_bytes().chunks(64) {
        text += &String::from_utf8_lossy(line);
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

fn owner(cluster: &Cluster) -> anyhow::Result<OwnerReference> {
    Ok(OwnerReference {
        api_version: Cluster::api_version(&()).into_owned(),
        kind: Cluster::kind(&()).into_owned(),
        name: cluster.name_any(),
        uid: cluster.uid().context("the Cluster has no UID")?,
        ..OwnerReference::default()
    })
}

/// Whoever serves the node may act as it, and as no other. The role goes with the Cluster.
async fn allow_node(host: &Client, name: &MemberName, owner: OwnerReference) -> anyhow::Result<()> {
    let roles: Api<ClusterRole> = Api::all(host.clone());
    let role = node_role(name, owner);
    roles
        .patch(&node_role_name(name), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&role))
        .await
        .map(drop)
        .map_err(|error| answered("the host", &error).context("cannot write the role of the node"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_written_as_others_read_them() {
        let text = pem(&[7; 100]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "-----BEGIN CERTIFICATE-----");
        assert_eq!((lines[1].len(), lines.len()), (64, 5));
        assert!(text.ends_with("-----END CERTIFICATE-----\n"));
    }
}
