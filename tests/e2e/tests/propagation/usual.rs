//! The kinds that come with most applications, and what happens to copies while a member is away.

use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{MEMBER1, MEMBER2},
    scene::{Scene, alone, beside},
    sent::{applied, config_map, has_there, is_gone, member, sends, sends_one},
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

/// An object, a field of it as people see it in a member, and how they change it.
struct Usual {
    version: &'static str,
    kind: &'static str,
    body: Value,
    path: &'static str,
    before: &'static str,
    change: Value,
    after: &'static str,
}

fn usual() -> Vec<Usual> {
    let rbac = "rbac.authorization.k8s.io/v1";
    vec![
        Usual {
            version: "policy/v1",
            kind: "PodDisruptionBudget",
            body: json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}}}),
            path: ".spec.minAvailable",
            before: "1",
            change: json!({"spec": {"minAvailable": 2}}),
            after: "2",
        },
        Usual {
            version: "autoscaling/v2",
            kind: "HorizontalPodAutoscaler",
            body: json!({"spec": {"maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}}}),
            path: ".spec.maxReplicas",
            before: "3",
            change: json!({"spec": {"maxReplicas": 5}}),
            after: "5",
        },
        Usual {
            version: "networking.k8s.io/v1",
            kind: "NetworkPolicy",
            body: json!({"spec": {"podSelector": {"matchLabels": {"app": "shop"}}, "policyTypes": ["Ingress"]}}),
            path: ".spec.policyTypes[*]",
            before: "Ingress",
            change: json!({"spec": {"policyTypes": ["Ingress", "Egress"]}}),
            after: "Ingress Egress",
        },
        Usual {
            version: rbac,
            kind: "Role",
            body: json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
            path: ".rules[0].verbs[*]",
            before: "get",
            change: json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}),
            after: "get list",
        },
        Usual {
            version: rbac,
            kind: "RoleBinding",
            body: json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "shop"},
                "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]}),
            path: ".subjects[0].name",
            before: "jane",
            change: json!({"subjects": [{"kind": "User", "name": "joan", "apiGroup": "rbac.authorization.k8s.io"}]}),
            after: "joan",
        },
        Usual {
            version: "v1",
            kind: "PersistentVolumeClaim",
            body: json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none-such",
                "resources": {"requests": {"storage": "1Gi"}}}}),
            path: ".metadata.labels.size",
            before: "",
            change: json!({"metadata": {"labels": {"size": "small"}}}),
            after: "small",
        },
        Usual {
            version: "v1",
            kind: "ResourceQuota",
            body: json!({"spec": {"hard": {"configmaps": "100"}}}),
            path: ".spec.hard.configmaps",
            before: "100",
            change: json!({"spec": {"hard": {"configmaps": "200"}}}),
            after: "200",
        },
        Usual {
            version: "v1",
            kind: "LimitRange",
            body: json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "8"}}]}}),
            path: ".spec.limits[0].max.cpu",
            before: "8",
            change: json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "9"}}]}}),
            after: "9",
        },
        // Members run it by themselves, next year.
        Usual {
            version: "batch/v1",
            kind: "CronJob",
            body: json!({
                "metadata": {"annotations": {"federlet.io/run-by": "member"}},
                "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": {
                    "restartPolicy": "Never", "containers": [{"name": "app", "image": "busybox"}]}}}}},
            }),
            path: ".spec.schedule",
            before: "0 0 1 1 *",
            change: json!({"spec": {"schedule": "0 0 2 1 *"}}),
            after: "0 0 2 1 *",
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn usual_kinds_come_change_and_go() -> Result<()> {
    beside("usual", async |stage| {
        let members = [member(stage, "member1")?, member(stage, "member2")?];
        let kinds: Vec<(&str, &str)> = usual().iter().map(|one| (one.version, one.kind)).collect();
        let mut policy = sends("usual", &kinds, &[MEMBER1, MEMBER2]);
        for selector in policy["spec"]["resourceSelectors"].as_array_mut().into_iter().flatten() {
            selector["name"] = json!("shop");
        }
        stage.apply(&policy).await?;
        for one in usual() {
            let mut object = one.body;
            object["apiVersion"] = json!(one.version);
            object["kind"] = json!(one.kind);
            object["metadata"]["name"] = json!("shop");
            stage.apply(&object).await?;
        }
        for one in usual() {
            let object = format!("{}/shop", one.kind);
            for member in &members {
                has_there(member, &object, one.path, one.before).await?;
            }
            applied(stage, &format!("rb/shop-{}", one.kind.to_lowercase())).await?;
            let change = one.change.to_string();
            stage.host.args(&["patch", &object, "--type=merge", "-p", &change]).await?;
        }
        for one in usual() {
            for member in &members {
                has_there(member, &format!("{}/shop", one.kind), one.path, one.after).await?;
            }
        }
        // Each member's word on it is in the binding.
        let claim: Value =
            serde_json::from_str(&stage.host.run("get rb shop-persistentvolumeclaim -o json").await?)?;
        let items = claim["status"]["aggregatedStatus"].as_array().cloned().unwrap_or_default();
        ensure!(
            items.len() == 2 && items.iter().all(|item| item["status"]["phase"] == "Pending"),
            "{items:?}"
        );
        for one in usual() {
            stage.host.args(&["delete", one.kind, "shop", "--wait=false"]).await?;
        }
        for one in usual() {
            for member in &members {
                is_gone(member, &format!("{}/shop", one.kind)).await?;
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_away_gets_what_it_missed() -> Result<()> {
    alone("away", async |stage| {
        let (one, two) = (member(stage, "member1")?, member(stage, "member2")?);
        let binding = async || -> Result<Value> {
            Ok(serde_json::from_str(&stage.host.run("get rb settings-configmap -o json").await?)?)
        };
        for name in ["settings", "goes"] {
            stage.apply(&config_map(name, "one")).await?;
            stage.apply(&sends_one(name, "v1", "ConfigMap", name, &[MEMBER1, MEMBER2])).await?;
            has_there(&two, &format!("configmap/{name}"), ".data.key", "one").await?;
            applied(stage, &format!("rb/{name}-configmap")).await?;
        }
        let away = stage.fleet.sandbox.cluster("member2")?;
        away.partition().await?;
        let played = async {
            stage.apply(&config_map("settings", "two")).await?;
            stage.host.run("delete configmap goes").await?;
            // Nobody waits for it.
            has_there(&one, "configmap/settings", ".data.key", "two").await?;
            is_gone(&one, "configmap/goes").await?;
            eventually("the binding says that one is behind", 2 * SOON, async || {
                let found = binding().await?;
                let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let whole = conditions.iter().find(|one| one["type"] == "FullyApplied");
                ensure!(whole.is_some_and(|whole| whole["status"] == "False"), "{}", found["status"]);
                let items = found["status"]["aggregatedStatus"].as_array().cloned().unwrap_or_default();
                let said = |name: &str| items.iter().find(|item| item["clusterName"] == name).cloned();
                ensure!(said(MEMBER1).is_some_and(|item| item["applied"] == true), "{items:?}");
                let behind = said(MEMBER2).is_some_and(|item| {
                    item["applied"] != true
                        && item["appliedMessage"].as_str().is_some_and(|text| !text.is_empty())
                });
                ensure!(behind, "{items:?}");
                Ok(())
            })
            .await
        }
        .await;
        away.heal().await?;
        played?;
        has_there(&two, "configmap/settings", ".data.key", "two").await?;
        is_gone(&two, "configmap/goes").await?;
        applied(stage, "rb/settings-configmap").await.map(drop)
    })
    .await
}
