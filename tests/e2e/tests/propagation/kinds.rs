//! Kinds of objects that each have something special about them.

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{BEIJING, HANGZHOU, MEMBER1, MEMBER2},
    objects::pipe,
    scene::{Scene, beside, template},
    sent::{applied, config_map, has_there, is_gone, member, sends_one},
    stage::Stage,
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

/// A policy for one object without a namespace.
fn sends_cluster(name: &str, version: &str, kind: &str, object: &str, clusters: &[&str]) -> Value {
    let mut policy = sends_one(name, version, kind, object, clusters);
    policy["kind"] = json!("ClusterPropagationPolicy");
    policy
}

/// A name that no other test has.
fn own(stage: &Stage, name: &str) -> String {
    format!("{}-{name}", stage.namespace)
}

/// Takes away what has no namespace, and so does not go with that of the test.
async fn cleanly(stage: &Stage, objects: &[String], played: Result<()>) -> Result<()> {
    for object in objects {
        let words = ["delete", object, "--ignore-not-found", "--wait=false"];
        let cleaned = stage.host.args(&words).await;
        if played.is_ok() {
            cleaned?;
        }
    }
    played
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_and_its_objects_once_somebody_allows_them() -> Result<()> {
    beside("widgets", async |stage| {
        let group = format!("{}.example.com", stage.namespace);
        let definition = format!("widgets.{group}");
        let played = widgets(stage, &group).await;
        for cluster in ["member1", "member2"] {
            let role = format!("clusterrole/{}", own(stage, "widgets"));
            member(stage, cluster)?.args(&["delete", &role, "--ignore-not-found"]).await?;
        }
        let mine = [
            format!("cpp/{}", own(stage, "crd")),
            format!("crd/{definition}"),
            format!("clusterrole/{}", own(stage, "host")),
        ];
        cleanly(stage, &mine, played).await
    })
    .await
}

async fn widgets(stage: &Stage, group: &str) -> Result<()> {
    let (one, two) = (member(stage, "member1")?, member(stage, "member2")?);
    let definition = format!("widgets.{group}");
    stage
        .apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": definition},
            "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        }))
        .await?;
    let version = "apiextensions.k8s.io/v1";
    let crd = own(stage, "crd");
    stage
        .apply(&sends_cluster(&crd, version, "CustomResourceDefinition", &definition, &[MEMBER1, MEMBER2]))
        .await?;
    for member in [&one, &two] {
        has_there(member, &format!("crd/{definition}"), ".spec.names.kind", "Widget").await?;
    }
    let said = applied(stage, &format!("crb/{definition}-customresourcedefinition")).await?;
    ensure!(said["spec"]["clusters"].as_array().is_some_and(|all| all.len() == 2), "{said}");

    let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}});
    stage.apply(&widget).await?;
    stage.apply(&sends_one("widgets", &format!("{group}/v1"), "Widget", "w", &[MEMBER1, MEMBER2])).await?;
    // Nobody allowed us to read them on the host.
    let told = stage.told("widgets", "CannotRead").await?;
    ensure!(told.contains(&format!("--verb=get,list,watch --resource=widgets.{group}")), "{told}");
    let role = |name: &str, verbs: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {"federlet.io/objects": "true"}},
            "rules": [{"apiGroups": [group], "resources": ["widgets"], "verbs": verbs.split(',').collect::<Vec<_>>()}]})
    };
    stage.apply(&role(&own(stage, "host"), "get,list,watch")).await?;
    // Nor to make them in members: the object says what to do there.
    let told = stage.told("w", "MissingRight").await?;
    ensure!(told.contains(&format!("--resource=widgets.{group}")), "{told}");
    let grant = role(&own(stage, "widgets"), "get,list,watch,create,patch,delete");
    for member in [&one, &two] {
        federlet_e2e::objects::create(member, &grant).await?;
    }
    for member in [&one, &two] {
        has_there(member, &format!("widgets.{group}/w"), ".spec.size", "3").await?;
    }
    applied(stage, "rb/w-widget").await?;
    stage.host.args(&["delete", &format!("widgets.{group}/w")]).await?;
    is_gone(&one, &format!("widgets.{group}/w")).await?;
    is_gone(&two, &format!("widgets.{group}/w")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_outlive_the_version_that_their_policy_names() -> Result<()> {
    beside("versions", async |stage| {
        let group = format!("{}.example.com", stage.namespace);
        let played = versions(stage, &group).await;
        let role = own(stage, "gadgets");
        member(stage, "member1")?.args(&["delete", "clusterrole", &role, "--ignore-not-found"]).await?;
        let mine = [
            format!("cpp/{}", own(stage, "crd")),
            format!("crd/gadgets.{group}"),
            format!("clusterrole/{role}"),
        ];
        cleanly(stage, &mine, played).await
    })
    .await
}

async fn versions(stage: &Stage, group: &str) -> Result<()> {
    let one = member(stage, "member1")?;
    let definition = |beta: bool, stable: bool| {
        let version = |name: &str, served: bool, storage: bool| {
            json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
        };
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("gadgets.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
                "versions": [version("v1beta1", beta, false), version("v1", stable, true)]}})
    };
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": own(stage, "gadgets"), "labels": {"federlet.io/objects": "true"}},
        "rules": [{"apiGroups": [group], "resources": ["gadgets"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]}]});
    for kubectl in [&stage.host, &one] {
        pipe(kubectl, &["apply", "-f", "-"], &role).await?;
    }
    stage.apply(&definition(true, true)).await?;
    let crd = format!("gadgets.{group}");
    let mut sent = sends_cluster(
        &own(stage, "crd"),
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &crd,
        &[MEMBER1],
    );
    stage.apply(&sent).await?;
    has_there(&one, &format!("crd/{crd}"), ".spec.versions[*].served", "true true").await?;
    // The member goes on serving both.
    sent["spec"]["suspension"] = json!({"dispatching": true});
    stage.apply(&sent).await?;
    let beta = format!("{group}/v1beta1");
    let gadget =
        json!({"apiVersion": beta, "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": 3}});
    eventually("the host takes it", SOON, async || stage.apply(&gadget).await).await?;
    stage.apply(&sends_one("gadgets", &beta, "Gadget", "g", &[MEMBER1])).await?;
    let copy = format!("gadgets.v1.{group}/g");
    has_there(&one, &copy, ".spec.size", "3").await?;
    let uid = one.args(&["get", &copy, "-o", "jsonpath={.metadata.uid}"]).await?;
    let says = async |status: &str, word: &str| {
        eventually(&format!("the policy says {word:?}"), SOON, async || {
            let path = "jsonpath={.status.conditions[?(@.type==\"ObjectsReadable\")]}";
            let said = stage.host.args(&["get", "pp", "gadgets", "-o", path]).await?;
            ensure!(said.contains(&format!("\"status\":\"{status}\"")) && said.contains(word), "{said}");
            Ok(())
        })
        .await
    };
    // The objects are alive under another version; then under none, for their definition is still there.
    stage.apply(&definition(false, true)).await?;
    says("False", &format!("serves it as {group}/v1 only")).await?;
    if stage.apply(&definition(false, false)).await.is_ok() {
        says("False", "though its CustomResourceDefinition is there").await?;
    }
    has_there(&one, &copy, ".metadata.uid", &uid).await?;
    stage.apply(&definition(true, true)).await?;
    says("True", "can be read").await?;
    has_there(&one, &copy, ".metadata.uid", &uid).await?;
    // A definition that goes takes its objects along, and their copies.
    stage.host.args(&["delete", "crd", &crd]).await?;
    is_gone(&one, &format!("crd/{crd}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_and_its_labels() -> Result<()> {
    beside("space", async |stage| {
        let name = own(stage, "x");
        let policy = own(stage, "ns");
        let played = async {
            let one = member(stage, "member1")?;
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": "blue"}}});
            stage.apply(&namespace).await?;
            stage.apply(&sends_cluster(&policy, "v1", "Namespace", &name, &[MEMBER1, BEIJING])).await?;
            let object = format!("namespace/{name}");
            has_there(&one, &object, ".metadata.labels.team", "blue").await?;
            // A region has namespaces of its own.
            let edge = Kubectl::new(stage.fleet.sandbox.cluster("edge")?, "default");
            has_there(&edge, &format!("{object}-{BEIJING}"), ".metadata.labels.team", "blue").await?;
            let crb = format!("crb/{name}-namespace");
            applied(stage, &crb).await?;
            stage.host.args(&["label", &object, "team=red", "--overwrite"]).await?;
            has_there(&one, &object, ".metadata.labels.team", "red").await?;
            // One that was there before is not ours.
            one.args(&["create", "namespace", &own(stage, "theirs")]).await?;
            stage.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own(stage, "theirs"), "labels": {"team": "blue"}}})).await?;
            stage.apply(&sends_cluster(&own(stage, "conflict"), "v1", "Namespace", &own(stage, "theirs"), &[MEMBER1])).await?;
            eventually("the conflict is told", SOON, async || {
                let said = stage.host.args(&["get", &format!("crb/{}-namespace", own(stage, "theirs")), "-o", "json"]).await?;
                ensure!(said.contains("was not made by federlet"), "{said}");
                Ok(())
            })
            .await?;
            has_there(&one, &format!("namespace/{}", own(stage, "theirs")), ".metadata.labels.team", "").await?;
            stage.host.args(&["delete", &object, "--wait=false"]).await?;
            is_gone(&one, &object).await?;
            is_gone(&edge, &format!("{object}-{BEIJING}")).await
        }
        .await;
        let one = member(stage, "member1")?;
        one.args(&["delete", "namespace", &own(stage, "theirs"), "--ignore-not-found", "--wait=false"]).await?;
        let mine = [
            format!("cpp/{policy}"),
            format!("cpp/{}", own(stage, "conflict")),
            format!("namespace/{name}"),
            format!("namespace/{}", own(stage, "theirs")),
        ];
        cleanly(stage, &mine, played).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_what_two_regions_share() -> Result<()> {
    beside("roles", async |stage| {
        let (role, policy) = (own(stage, "reader"), own(stage, "role"));
        let played = async {
            let rbac = "rbac.authorization.k8s.io/v1";
            stage
                .apply(&json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": role},
                    "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]}))
                .await?;
            stage
                .apply(&json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": role},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]}))
                .await?;
            let mut sends = sends_cluster(&policy, rbac, "ClusterRole", &role, &[MEMBER1, BEIJING, HANGZHOU]);
            let binding = json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "name": role});
            sends["spec"]["resourceSelectors"].as_array_mut().context("a list")?.push(binding);
            stage.apply(&sends).await?;
            let one = member(stage, "member1")?;
            let edge = Kubectl::new(stage.fleet.sandbox.cluster("edge")?, "default");
            let (object, bound) = (format!("clusterrole/{role}"), format!("clusterrolebinding/{role}"));
            for member in [&one, &edge] {
                has_there(member, &object, ".rules[0].verbs[1]", "list").await?;
                has_there(member, &bound, ".subjects[0].name", "jane").await?;
            }
            // Both regions have it, though it is there once.
            applied(stage, &format!("crb/{role}-clusterrole")).await?;
            let uid = edge.args(&["get", &object, "-o", "jsonpath={.metadata.uid}"]).await?;
            let owner =
                edge.args(&["get", &object, "-o", "jsonpath={.metadata.labels.federlet\\.io/node}"]).await?;
            let other = if owner == BEIJING { HANGZHOU } else { BEIJING };
            // The one that brought it is not wanted any more: the other takes it over as it is.
            sends["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!([other]);
            stage.apply(&sends).await?;
            is_gone(&one, &object).await?;
            has_there(&edge, &object, ".metadata.labels.federlet\\.io/node", other).await?;
            let now = edge.args(&["get", &object, "-o", "jsonpath={.metadata.uid}"]).await?;
            ensure!(now == uid, "it was made anew");
            stage.host.args(&["delete", &object, &bound]).await?;
            is_gone(&edge, &object).await?;
            is_gone(&edge, &bound).await
        }
        .await;
        let mine =
            [format!("cpp/{policy}"), format!("clusterrole/{role}"), format!("clusterrolebinding/{role}")];
        cleanly(stage, &mine, played).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_has_its_own_namespace() -> Result<()> {
    beside("edgemap", async |stage| {
        stage.apply(&config_map("settings", "one")).await?;
        stage.apply(&sends_one("settings", "v1", "ConfigMap", "settings", &[BEIJING])).await?;
        let there = format!("{}-{BEIJING}", stage.namespace);
        let edge = Kubectl::new(stage.fleet.sandbox.cluster("edge")?, &there);
        has_there(&edge, "configmap/settings", ".data.key", "one").await?;
        has_there(
            &edge,
            "configmap/settings",
            ".metadata.annotations.federlet\\.io/host-namespace",
            &stage.namespace,
        )
        .await?;
        applied(stage, "rb/settings-configmap").await?;
        stage.host.run("delete configmap settings").await?;
        is_gone(&edge, "configmap/settings").await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_that_the_member_runs_by_itself() -> Result<()> {
    beside("daemons", async |stage| {
        let (one, two) = (member(stage, "member1")?, member(stage, "member2")?);
        let mut agent = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "agent", "annotations": {"federlet.io/run-by": "member"}},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")},
        });
        stage.apply(&agent).await?;
        stage.apply(&sends_one("agent", "apps/v1", "DaemonSet", "agent", &[MEMBER1, MEMBER2])).await?;
        for member in [&one, &two] {
            has_there(member, "daemonset/agent", ".metadata.labels.federlet\\.io/propagated", "true").await?;
            eventually("its pods run on the machines of the member", SOON, async || {
                let found = member.run("get daemonset agent -o json").await?;
                let found: Value = serde_json::from_str(&found)?;
                let (wanted, ready) =
                    (&found["status"]["desiredNumberScheduled"], &found["status"]["numberReady"]);
                ensure!(wanted == ready && wanted.as_i64() > Some(0), "{}", found["status"]);
                Ok(())
            })
            .await?;
        }
        eventually("the binding says that it is well", SOON, async || {
            let found: Value =
                serde_json::from_str(&stage.host.run("get rb agent-daemonset -o json").await?)?;
            let items = found["status"]["aggregatedStatus"].as_array().cloned().unwrap_or_default();
            ensure!(items.len() == 2 && items.iter().all(|item| item["health"] == "Healthy"), "{items:?}");
            Ok(())
        })
        .await?;
        // What the Cluster does not allow to pods, it does not allow to these.
        agent["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
        stage.apply(&agent).await?;
        let told = stage.told("agent", "NotAllowed").await?;
        ensure!(told.contains("hostNetwork"), "{told}");
        has_there(&one, "daemonset/agent", ".spec.template.spec.hostNetwork", "").await?;
        // Run by the host again, it is nobody's in the members.
        stage.host.run("annotate daemonset agent federlet.io/run-by-").await?;
        is_gone(&one, "daemonset/agent").await?;
        is_gone(&two, "daemonset/agent").await
    })
    .await
}
