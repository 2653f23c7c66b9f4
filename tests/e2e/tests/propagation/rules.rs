//! What policies say about copies beside where they go, and what holds whatever happens.

use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON, audit,
    fleet::{MEMBER1, MEMBER2, federlet},
    objects::pipe,
    scene::{Scene, alone, beside, deployment, policy, weights},
    sent::{applied, config_map, has_there, is_gone, member, sends, sends_one},
    stage::Stage,
};
use federlet_sandbox::eventually;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_is_left_alone_unless_the_policy_says_otherwise() -> Result<()> {
    beside("conflict", async |stage| {
        let (one, two) = (member(stage, "member1")?, member(stage, "member2")?);
        pipe(&one, &["create", "-f", "-"], &config_map("settings", "theirs")).await?;
        stage.apply(&config_map("settings", "ours")).await?;
        let mut policy = sends_one("settings", "v1", "ConfigMap", "settings", &[MEMBER1, MEMBER2]);
        stage.apply(&policy).await?;
        // One that cannot have it disturbs no other.
        has_there(&two, "configmap/settings", ".data.key", "ours").await?;
        let told = stage.told("settings", "Conflict").await?;
        ensure!(told.contains(MEMBER1) && told.contains("was not made by federlet"), "{told}");
        has_there(&one, "configmap/settings", ".data.key", "theirs").await?;
        let binding: Value =
            serde_json::from_str(&stage.host.run("get rb settings-configmap -o json").await?)?;
        let item = &binding["status"]["aggregatedStatus"][0];
        ensure!(item["clusterName"] == MEMBER1 && item["applied"].is_null(), "{binding}");
        // The policy goes without it, and nothing of theirs is touched.
        policy["spec"]["conflictResolution"] = json!("Overwrite");
        stage.apply(&policy).await?;
        has_there(&one, "configmap/settings", ".data.key", "ours").await?;
        applied(stage, "rb/settings-configmap").await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_makes_at_the_same_time_is_not_taken_over() -> Result<()> {
    beside("race", async |stage| {
        let one = member(stage, "member1")?;
        // What this rests on: a version that nothing has makes what is not there, and changes nothing that is.
        let mut first = config_map("first", "one");
        first["metadata"]["resourceVersion"] = json!("1");
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        pipe(&one, &apply, &first).await?;
        first["data"]["key"] = json!("two");
        ensure!(pipe(&one, &apply, &first).await.is_err(), "it was changed");
        has_there(&one, "configmap/first", ".data.key", "one").await?;
        // Both sides make the same names at about the same time; whoever came second leaves the other's alone.
        let names: Vec<String> = (0..40).map(|number| format!("c{number}")).collect();
        let mut policy = sends("race", &[("v1", "ConfigMap")], &[MEMBER1]);
        let of = |name: &String| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
        policy["spec"]["resourceSelectors"] = names.iter().map(of).collect();
        stage.apply(&policy).await?;
        let (host, there) =
            (stage.fleet.host.client().await?, stage.fleet.sandbox.cluster("member1")?.client().await?);
        let (host, there): (Api<ConfigMap>, Api<ConfigMap>) =
            (Api::namespaced(host, &stage.namespace), Api::namespaced(there, &stage.namespace));
        let read = |name: &str, value: &str| serde_json::from_value::<ConfigMap>(config_map(name, value));
        let mut made = vec![];
        for (number, name) in (0..).zip(&names) {
            host.create(&PostParams::default(), &read(name, "ours")?).await?;
            // A copy is on its way about now: some are before it, some after, some in between.
            tokio::time::sleep(Duration::from_millis(4 * number)).await;
            match there.create(&PostParams::default(), &read(name, "theirs")?).await {
                Ok(_) => made.push(name.clone()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        for name in &names {
            let object = format!("configmap/{name}");
            if made.contains(name) {
                // It was looked at, and is left alone.
                stage.told(name, "Conflict").await?;
                has_there(&one, &object, ".data.key", "theirs").await?;
                has_there(&one, &object, ".metadata.labels", &format!("{{\"app\":\"{name}\"}}")).await?;
            } else {
                has_there(&one, &object, ".data.key", "ours").await?;
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_stay_if_their_policy_wants_it() -> Result<()> {
    beside("preserve", async |stage| {
        let one = member(stage, "member1")?;
        stage.apply(&config_map("settings", "one")).await?;
        let mut policy = sends_one("settings", "v1", "ConfigMap", "settings", &[MEMBER1]);
        policy["spec"]["preserveResourcesOnDeletion"] = json!(true);
        stage.apply(&policy).await?;
        has_there(&one, "configmap/settings", ".data.key", "one").await?;
        applied(stage, "rb/settings-configmap").await?;
        stage.host.run("delete configmap settings").await?;
        // It is nobody's from then on.
        has_there(&one, "configmap/settings", ".metadata.labels", "{\"app\":\"settings\"}").await?;
        has_there(&one, "configmap/settings", ".data.key", "one").await?;
        has_there(&one, "configmap/settings", ".metadata.annotations", "").await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_suspended_stays_as_it_is() -> Result<()> {
    beside("suspend", async |stage| {
        let (one, two) = (member(stage, "member1")?, member(stage, "member2")?);
        stage.apply(&config_map("settings", "one")).await?;
        let mut policy = sends_one("settings", "v1", "ConfigMap", "settings", &[MEMBER1, MEMBER2]);
        policy["spec"]["suspension"] = json!({"dispatchingOnClusters": {"clusterNames": [MEMBER2]}});
        stage.apply(&policy).await?;
        has_there(&one, "configmap/settings", ".data.key", "one").await?;
        is_gone(&two, "configmap/settings").await?;
        policy["spec"]["suspension"] = json!({"dispatching": true});
        stage.apply(&policy).await?;
        eventually("all is held back", SOON, async || {
            let said = stage
                .host
                .run("get rb settings-configmap -o jsonpath={.status.aggregatedStatus[*].appliedMessage}")
                .await?;
            ensure!(said.matches("suspends dispatching").count() == 2, "{said}");
            Ok(())
        })
        .await?;
        stage.apply(&config_map("settings", "two")).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        has_there(&one, "configmap/settings", ".data.key", "one").await?;
        policy["spec"].as_object_mut().unwrap().remove("suspension");
        pipe(&stage.host, &["replace", "-f", "-"], &with_version(stage, &policy).await?).await?;
        has_there(&one, "configmap/settings", ".data.key", "two").await?;
        has_there(&two, "configmap/settings", ".data.key", "two").await
    })
    .await
}

/// The policy as it would replace the one that is there.
async fn with_version(stage: &Stage, policy: &Value) -> Result<Value> {
    let mut policy = policy.clone();
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    let there: Value = serde_json::from_str(&stage.host.args(&["get", "pp", name, "-o", "json"]).await?)?;
    policy["metadata"] = there["metadata"].clone();
    Ok(policy)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_workload_needs_goes_along_and_has_one_owner() -> Result<()> {
    beside("deps", async |stage| {
        let (one, two) = (member(stage, "member1")?, member(stage, "member2")?);
        stage.apply(&config_map("settings", "one")).await?;
        stage
            .apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}))
            .await?;
        let mut web = deployment("web", 2);
        web["spec"]["template"]["spec"]["serviceAccountName"] = json!("robot");
        web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": "settings"}}]);
        // Without a policy for it, the ConfigMap goes along with the pods.
        stage.obey(&policy("web", "Deployment", "web", &weights(1, 1))).await?;
        stage.create(&web).await?;
        stage.has("app=web", 1, 1).await?;
        let mark = ".metadata.labels.federlet\\.io/propagated";
        has_there(&one, "configmap/settings", mark, "").await?;
        let uid = one.run("get configmap settings -o jsonpath={.metadata.uid}").await?;
        // With propagateDeps it is the policy's, in place.
        let mut with = policy("web", "Deployment", "web", &weights(1, 1));
        with["spec"]["propagateDeps"] = json!(true);
        stage.obey(&with).await?;
        for member in [&one, &two] {
            has_there(member, "configmap/settings", mark, "true").await?;
            has_there(member, "serviceaccount/robot", ".metadata.name", "robot").await?;
        }
        let now = one.run("get configmap settings -o jsonpath={.metadata.uid}").await?;
        ensure!(uid == now, "it was made anew");
        let binding = applied(stage, "rb/settings-configmap").await?;
        ensure!(binding["spec"]["requiredBy"][0]["name"] == "web-deployment", "{binding}");
        // Nobody fights about it.
        let version = || one.run("get configmap settings -o jsonpath={.metadata.resourceVersion}");
        let before = version().await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure!(before == version().await?, "somebody writes it all the time");
        stage.apply(&config_map("settings", "two")).await?;
        has_there(&one, "configmap/settings", ".data.key", "two").await?;
        // The policy lets go of it; the pods still have theirs.
        stage.obey(&policy("web", "Deployment", "web", &weights(1, 1))).await?;
        let mut without = policy("web", "Deployment", "web", &weights(1, 1));
        without["spec"]["propagateDeps"] = json!(false);
        stage.obey(&without).await?;
        is_gone(&one, "serviceaccount/robot").await?;
        has_there(&one, "configmap/settings", mark, "").await?;
        has_there(&one, "configmap/settings", ".data.key", "two").await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_its_own_stays_when_the_workload_goes_that_needed_it_too() -> Result<()> {
    beside("own", async |stage| {
        let one = member(stage, "member1")?;
        stage.apply(&config_map("settings", "one")).await?;
        let mut own = sends_one("settings", "v1", "ConfigMap", "settings", &[MEMBER1]);
        own["spec"]["activationPreference"] = json!("Lazy");
        stage.apply(&own).await?;
        has_there(&one, "configmap/settings", ".data.key", "one").await?;
        let uid = one.run("get configmap settings -o jsonpath={.metadata.uid}").await?;
        let mut along = policy("web", "Deployment", "web", &weights(1, 1));
        along["spec"]["propagateDeps"] = json!(true);
        stage.obey(&along).await?;
        let mut web = deployment("web", 2);
        web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": "settings"}}]);
        stage.create(&web).await?;
        let said = async |expected: &str| {
            eventually("its binding knows who needs it", SOON, async || {
                let path =
                    "jsonpath={.spec.clusters[*].name} {.spec.requiredBy[*].clusters[*].name}".to_owned();
                let said = stage.host.args(&["get", "rb", "settings-configmap", "-o", &path]).await?;
                ensure!(said.trim() == expected, "{said}");
                Ok(())
            })
            .await
        };
        said(&format!("{MEMBER1} {MEMBER1} {MEMBER2}")).await?;
        stage.host.run("delete deployment web").await?;
        said(MEMBER1).await?;
        is_gone(&member(stage, "member2")?, "configmap/settings").await?;
        let now = one.run("get configmap settings -o jsonpath={.metadata.uid}").await?;
        ensure!(uid == now, "it was taken away in between");
        // And when its policy goes.
        stage.host.run("delete pp settings").await?;
        stage.apply(&config_map("settings", "two")).await?;
        has_there(&one, "configmap/settings", ".data.key", "two").await?;
        has_there(&one, "configmap/settings", ".metadata.uid", &uid).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_writes_nothing_and_misses_nothing() -> Result<()> {
    alone("resync", async |stage| {
        let (one, two) = (member(stage, "member1")?, member(stage, "member2")?);
        for number in 0..5 {
            stage.apply(&config_map(&format!("c{number}"), "one")).await?;
        }
        stage
            .apply(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]}}))
            .await?;
        stage
            .apply(
                &json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "door"},
                "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}}),
            )
            .await?;
        let kinds = [("v1", "ConfigMap"), ("v1", "Service"), ("networking.k8s.io/v1", "Ingress")];
        stage.apply(&sends("all", &kinds, &[MEMBER1, MEMBER2])).await?;
        for binding in ["rb/c4-configmap", "rb/c0-configmap", "rb/web-service", "rb/door-ingress"] {
            applied(stage, binding).await?;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        // While nobody looks, one changes, one goes, one is spoilt.
        stage.fleet.serve.kill().await?;
        stage.apply(&config_map("c1", "two")).await?;
        stage.host.run("delete configmap c2").await?;
        two.run("patch configmap c3 -p {\"data\":{\"key\":\"theirs\"}}").await?;
        let clusters = ["host", "member1", "member2"].map(|name| stage.fleet.sandbox.cluster(name));
        let mut before = vec![];
        for cluster in clusters {
            let cluster = cluster?;
            before.push((audit::written(&cluster, &stage.namespace)?, cluster));
        }
        stage.fleet.serve.restart().await?;
        has_there(&one, "configmap/c1", ".data.key", "two").await?;
        is_gone(&one, "configmap/c2").await?;
        is_gone(&two, "configmap/c2").await?;
        has_there(&two, "configmap/c3", ".data.key", "one").await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        for (before, cluster) in before {
            let mut now = audit::written(&cluster, &stage.namespace)?;
            for (name, count) in before {
                now.entry(name).and_modify(|now| *now -= count);
            }
            now.retain(|_, count| *count > 0);
            let wrong = now.keys().filter(|name| {
                !["c1", "c2", "c3"].iter().any(|changed| name.contains(&format!("/{changed}")))
            });
            let wrong: Vec<&String> = wrong.filter(|name| !name.starts_with("events")).collect();
            ensure!(wrong.is_empty(), "{wrong:?} were written without need");
        }
        Ok(())
    })
    .await
}

/// A region that joins for this test alone, with all that policies send there, and leaves.
#[tokio::test(flavor = "multi_thread")]
async fn unjoining_takes_back_all_but_what_shall_stay() -> Result<()> {
    beside("leave", async |stage| {
        let host = stage.fleet.host.admin_kubeconfig();
        let host = host.to_string_lossy();
        let region = format!("r-{}", stage.namespace);
        let played = leave(stage, &region, &host).await;
        let role = format!("clusterrole/{region}");
        stage.host.args(&["delete", &role, &format!("cpp/{region}"), "--ignore-not-found"]).await?;
        federlet(&["unjoin", &region, "--kubeconfig", &*host, "--ignore-not-found", "--force"]).await?;
        played
    })
    .await
}

async fn leave(stage: &Stage, region: &str, host: &str) -> Result<()> {
    let edge = stage.fleet.sandbox.cluster("edge")?;
    stage.fleet.join(region, &edge, &["--region-selector=location=beijing"]).await?;
    for name in ["goes", "stays"] {
        stage.apply(&config_map(name, "one")).await?;
        let mut policy = sends_one(name, "v1", "ConfigMap", name, &[region]);
        policy["spec"]["preserveResourcesOnDeletion"] = json!(name == "stays");
        stage.apply(&policy).await?;
    }
    let rbac = "rbac.authorization.k8s.io/v1";
    stage
        .apply(&json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": region}, "rules": []}))
        .await?;
    let mut policy = sends_one(region, rbac, "ClusterRole", region, &[region]);
    policy["kind"] = json!("ClusterPropagationPolicy");
    stage.apply(&policy).await?;
    let there = Kubectl::new(edge, &format!("{}-{region}", stage.namespace));
    for object in ["configmap/goes", "configmap/stays", &format!("clusterrole/{region}")] {
        has_there(&there, object, ".metadata.labels.federlet\\.io/propagated", "true").await?;
    }
    federlet(&["unjoin", region, "--kubeconfig", host]).await?;
    is_gone(&there, "configmap/goes").await?;
    is_gone(&there, &format!("clusterrole/{region}")).await?;
    has_there(&there, "configmap/stays", ".data.key", "one").await?;
    has_there(&there, "configmap/stays", ".metadata.labels", "{\"app\":\"stays\"}").await?;
    there.args(&["delete", "namespace", &format!("{}-{region}", stage.namespace), "--wait=false"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_explained() -> Result<()> {
    beside("explain", async |stage| {
        stage.apply(&config_map("settings", "one")).await?;
        stage.apply(&sends_one("settings", "v1", "ConfigMap", "settings", &[MEMBER1])).await?;
        applied(stage, "rb/settings-configmap").await?;
        stage.obey(&policy("web", "Deployment", "web", &weights(1, 2))).await?;
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await?;
        let host = stage.fleet.host.admin_kubeconfig();
        let host = host.to_string_lossy();
        let explain = async |words: &[&str]| {
            federlet(&[&["explain", "--kubeconfig", &*host, "-n", &stage.namespace], words].concat()).await
        };
        let said = explain(&["cm", "settings"]).await?;
        for expected in
            [&format!("PropagationPolicy {}/settings", stage.namespace), MEMBER1, "chosen", "COPY IN"]
        {
            ensure!(said.contains(expected), "{expected} is not in {said}");
        }
        let said: Value = serde_json::from_str(&explain(&["deployment", "web", "-o", "json"]).await?)?;
        let replicas = |name: &str| {
            let all = said["clusters"].as_array().cloned().unwrap_or_default();
            all.iter().find(|cluster| cluster["name"] == name).map(|cluster| cluster["replicas"].clone())
        };
        ensure!(replicas(MEMBER1) == Some(json!(1)) && replicas(MEMBER2) == Some(json!(2)), "{said}");
        ensure!(said["pods"].as_array().is_some_and(|pods| pods.len() == 3), "{said}");
        let pod = stage.host.run("get pods -l app=web -o jsonpath={.items[0].metadata.name}").await?;
        let said = explain(&["pod", &pod]).await?;
        ensure!(
            said.starts_with(&format!("Deployment {}/web", stage.namespace)) && said.contains(&pod),
            "{said}"
        );
        let said = explain(&["cm", "nothing"]).await.unwrap_err().to_string();
        ensure!(said.contains("there is no ConfigMap nothing"), "{said}");
        let said = explain(&["nonsense", "x"]).await.unwrap_err().to_string();
        ensure!(said.contains("the host has no kind \"nonsense\""), "{said}");
        Ok(())
    })
    .await
}
