//! A member that has a Deployment of its own: it obeys policies like all others, and may do less than they.

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON, objects};
use federlet_sandbox::eventually;
use serde_json::json;

use crate::{
    installed::{Installed, when_installed},
    upgrade::a_policy_is_obeyed,
};

const NODE: &str = "h-own";

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_its_own_obeys_overrides_and_may_do_no_more_than_serve_it() -> Result<()> {
    when_installed(async |installed| {
        installed.member(NODE, "member2", &["--set=dedicated=true"]).await?;
        installed.answers(NODE).await?;
        it_may_do_no_more(installed).await?;
        installed
            .sandbox
            .in_namespace("own", async |space| {
                let kubectl = Kubectl::new(installed.host.clone(), &space.namespace);
                let overriding = json!({
                    "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
                    "metadata": {"name": "steered"},
                    "spec": {
                        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "steered"}],
                        "overrideRules": [{
                            "targetCluster": {"clusterNames": [NODE]},
                            "overriders": {"plaintext": [{
                                "path": "/spec/template/spec/containers/0/env", "operator": "add",
                                "value": [{"name": "WHERE", "value": NODE}],
                            }]},
                        }],
                    },
                });
                eventually("the API server asks about policies", SOON, async || {
                    objects::pipe(&kubectl, &["apply", "-f", "-"], &overriding).await
                })
                .await?;
                a_policy_is_obeyed(&kubectl, NODE).await?;
                let member = Kubectl::new(installed.sandbox.cluster("member2")?, &space.namespace);
                let path = "jsonpath={.items[*].spec.containers[0].env[?(@.name==\"WHERE\")].value}";
                let found = member.args(&["get", "pods", "-l", "app=steered", "-o", path]).await?;
                ensure!(found == NODE, "the override made {found:?}");
                Ok(())
            })
            .await?;
        installed.helm.run(&["uninstall", NODE, "--wait", "--timeout=180s"]).await.map(drop)
    })
    .await
}

/// Its account knows the way to its own member, and decides nothing.
async fn it_may_do_no_more(installed: &Installed) -> Result<()> {
    let account = format!("--as=system:serviceaccount:federlet-system:federlet-{NODE}");
    let own = installed.own();
    let may =
        async |words: &[&str]| own.args(&[&["auth", "can-i"], words, &[&account]].concat()).await.is_ok();
    let secret = format!("secrets/{NODE}");
    let (cluster, node) = (format!("clusters.cluster.karmada.io/{NODE}"), format!("nodes/{NODE}"));
    for allowed in [
        &["watch", &secret][..],
        &["impersonate", &format!("users/system:node:{NODE}")],
        &["patch", &cluster],
        &["patch", &cluster, "--subresource=status"],
        &["patch", &node],
        &["delete", &node],
    ] {
        ensure!(may(allowed).await, "it may not {allowed:?}");
    }
    for refused in [
        &["list", "secrets"][..],
        &["get", "secrets/federlet-webhook"],
        &["create", "pods", "--all-namespaces"],
        &["impersonate", "users/system:node:fleet"],
        &["patch", "resourcebindings.work.karmada.io", "--all-namespaces"],
        &["patch", "mutatingwebhookconfigurations/federlet"],
        // Whoever writes another's Cluster could have its token sent anywhere.
        &["patch", "clusters.cluster.karmada.io/other"],
        &["patch", "clusters.cluster.karmada.io/other", "--subresource=status"],
        &["patch", "nodes/host-node1"],
        &["delete", "nodes/host-node1"],
        &["delete", "pods", "--all-namespaces"],
    ] {
        ensure!(!may(refused).await, "it may {refused:?}");
    }
    Ok(())
}
