//! Many workloads at once, scaled at random while what places their pods is killed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    SOON,
    scene::{deployment, one_to_two, policy},
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::played::{Played, played};

/// How many Deployments, and how many replicas each.
const CROWD: (usize, u64) = (20, 50);

/// Between two changes: without it, hundreds of pods would be made only to go before anybody has looked at them.
const BREATH: Duration = Duration::from_millis(500);

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
        tokio::time::sleep(BREATH).await;
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
    .await
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
