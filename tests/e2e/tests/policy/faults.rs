use std::time::Duration;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    SOON,
    scene::{Scene, alone, deployment, one_to_two, policy},
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::played::{Played, played};

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_it_goes_on_where_it_was() -> Result<()> {
    alone("killed", async |stage| {
        // While the policy is suspended, pods wait at the gate.
        let mut held = policy("web", "Deployment", "web", &one_to_two());
        held["spec"]["suspension"] = json!({"dispatching": true});
        stage.obey(&held).await?;
        stage.create(&deployment("web", 9)).await?;
        eventually("all pods wait", SOON, async || {
            let gates = stage
                .host
                .run("get pods -l app=web -o jsonpath={.items[*].spec.schedulingGates[*].name}")
                .await?;
            ensure!(gates.split_whitespace().count() == 9, "{gates}");
            Ok(())
        })
        .await?;
        let pod = stage.host.run("get pods -l app=web -o jsonpath={.items[0].metadata.name}").await?;
        let told = stage.told(&pod, "Held").await?;
        ensure!(told.contains("suspends dispatching"), "{told}");
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        // Some are placed, some are not.
        for _ in 0..3 {
            stage.fleet.serve.kill().await?;
            stage.fleet.serve.restart().await?;
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        stage.has("app=web", 3, 6).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_lost_is_made_anew() -> Result<()> {
    alone("renewed", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        let host = &stage.fleet.host;
        let secret = ["-n", "federlet-system", "get", "secret", "federlet-webhook", "-o"];
        let read = async |path: &str| {
            let path = format!("jsonpath={path}");
            host.kubectl_output(&[&secret[..], &[path.as_str()]].concat()).await
        };
        let before = read("{.metadata.uid}").await?;
        host.kubectl_output(&["-n", "federlet-system", "delete", "secret", "federlet-webhook"]).await?;
        eventually("the host trusts another certificate", 2 * SOON, async || {
            ensure!(read("{.metadata.uid}").await? != before, "it is the old one");
            let registered = "jsonpath={.webhooks[0].clientConfig.caBundle}";
            let trusted = host
                .kubectl_output(&["get", "mutatingwebhookconfiguration", "federlet", "-o", registered])
                .await?;
            ensure!(!trusted.is_empty() && trusted == read("{.data.ca\\.crt}").await?, "not yet");
            Ok(())
        })
        .await?;
        // Pods are steered as before.
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workloads_scaled_at_random_while_it_is_killed_end_exact() -> Result<()> {
    alone("crowd", async |stage| {
        let names: Vec<String> = (0..5).map(|number| format!("w{number}")).collect();
        for name in &names {
            stage.obey(&policy(name, "Deployment", name, &one_to_two())).await?;
            stage.create(&deployment(name, 3)).await?;
        }
        let mut seed = 7_u32;
        for round in 0..8 {
            for name in &names {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                stage.host.run(&format!("scale deployment/{name} --replicas={}", seed >> 29)).await?;
            }
            if round % 3 == 1 {
                stage.fleet.serve.kill().await?;
                stage.fleet.serve.restart().await?;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        for (number, name) in names.iter().enumerate() {
            stage.host.run(&format!("scale deployment/{name} --replicas={}", 3 * (1 + number % 3))).await?;
        }
        for (number, name) in names.iter().enumerate() {
            let third = 1 + number % 3;
            stage.has(&format!("app={name}"), third, 2 * third).await?;
        }
        Ok(())
    })
    .await
}

/// How many Deployments, and how many replicas each.
const CROWD: (usize, u64) = (20, 50);

/// Numbers that look like chance, the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pods_scaled_at_random_for_a_minute_end_exact() -> Result<()> {
    played(async |played| {
        let seed = match std::env::var("FEDERLET_SEED") {
            Ok(seed) => seed.parse().context("FEDERLET_SEED is no number")?,
            Err(_) => jiff::Timestamp::now().as_second().unsigned_abs(),
        };
        println!("FEDERLET_SEED={seed}");
        crowd(played, &mut Dice(seed)).await.with_context(|| format!("FEDERLET_SEED={seed}"))
    })
    .await
}

async fn crowd(played: &Played, dice: &mut Dice) -> Result<()> {
    let host = played.on_host("crowd");
    host.run("create namespace crowd").await?;
    let mut divided = policy("crowd", "Deployment", "", &one_to_two());
    divided["spec"]["placement"] =
        serde_json::from_str(&one_to_two().to_string().replace("fleet-member", "member"))?;
    divided["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    played.apply("crowd", &divided).await?;
    played.is_covered("crowd").await?;
    let (count, most) = CROWD;
    let names: Vec<String> = (0..count).map(|number| format!("w{number}")).collect();
    let all: Vec<Value> = names.iter().map(|name| deployment(name, 50)).collect();
    played.apply("crowd", &json!({"apiVersion": "v1", "kind": "List", "items": all})).await?;
    let mut kills = vec![20, 40];
    let begin = tokio::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let name = &names[usize::try_from(dice.below(count as u64))?];
        host.run(&format!("scale deployment/{name} --replicas={}", dice.below(most + 1))).await?;
        if kills.first().is_some_and(|after| begin.elapsed().as_secs() >= *after) {
            kills.remove(0);
            played.serve.kill().await?;
            played.serve.restart().await?;
        }
    }
    // Most end as they began, some with what leaves a remainder.
    let wanted: Vec<(String, u64)> =
        names.into_iter().enumerate().map(|(number, name)| (name, most - number as u64 % 3)).collect();
    for (name, replicas) in &wanted {
        host.run(&format!("scale deployment/{name} --replicas={replicas}")).await?;
    }
    eventually("every division is exact, and no pod waits at a gate", 10 * SOON, async || {
        let found: Value = serde_json::from_str(&host.run("get pods -o json").await?)?;
        let pods = found["items"].as_array().context("a list")?;
        let gated = pods.iter().filter(|pod| !pod["spec"]["schedulingGates"].is_null()).count();
        ensure!(gated == 0, "{gated} pods wait at their gate");
        let mut wrong = vec![];
        for (name, replicas) in &wanted {
            let on = |node: &str| {
                let its = |pod: &&Value| {
                    pod["metadata"]["labels"]["app"] == name.as_str()
                        && pod["spec"]["nodeName"] == node
                        && pod["status"]["phase"] == "Running"
                        && pod["metadata"]["deletionTimestamp"].is_null()
                };
                pods.iter().filter(its).count() as u64
            };
            let (found, expected) = ((on("member1"), on("member2")), one_to_two_of(*replicas));
            if found != expected {
                wrong.push(format!("{name} is divided {found:?}, not {expected:?}"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("; "));
        let total = wanted.iter().map(|(_, replicas)| *replicas).sum::<u64>();
        ensure!(pods.len() as u64 == total, "there are {} pods, not {total}", pods.len());
        Ok(())
    })
    .await?;
    // The next test would wait behind a thousand pods that go. How long that takes is not what is tested.
    let _ = host.run("delete namespace crowd --timeout=240s").await;
    Ok(())
}

/// Webster's method for weights of one and two: whoever has the largest weight for each half seat is next.
fn one_to_two_of(total: u64) -> (u64, u64) {
    let mut seats = (0, 0);
    for _ in 0..total {
        // 2 / (2b + 1) > 1 / (2a + 1); the two are never equal.
        if 2 * (2 * seats.0 + 1) > 2 * seats.1 + 1 { seats.1 += 1 } else { seats.0 += 1 }
    }
    seats
}
