//! `federlet logs` and `federlet exec`: a workload that is in several clusters, as one.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{MEMBER1, MEMBER2, federlet},
    here::program,
    stage::{Stage, on_stage},
    terminal::{SEES_ITS_SIZE, knows_its_size},
};
use federlet_sandbox::eventually;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::objects::workload;

/// One pod in each of two members, and one selector for both.
async fn in_both(stage: &Stage) -> Result<()> {
    let say = "echo I am $(hostname); while true; do sleep 1; done";
    let body = json!({
        "replicas": 2, "selector": {"matchLabels": {"app": "both"}},
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": {
            "metadata": {"labels": {"app": "both"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
                        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [MEMBER1, MEMBER2]}],
                    }]}},
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "both"}},
                    }]},
                },
                "containers": [{"name": "app", "image": "busybox", "command": ["sh", "-c", say]}],
            },
        },
    });
    stage.create(&workload("Deployment", "both", &body)).await?;
    stage.host.run("rollout status deployment/both --timeout=90s").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_in_two_clusters_is_read_and_entered_as_one() -> Result<()> {
    on_stage("as-one", async |stage| {
        in_both(stage).await?;
        let kubeconfig = stage.fleet.host.admin_kubeconfig().display().to_string();
        let place = ["--namespace", &stage.namespace, "--kubeconfig", &kubeconfig];
        let words = |words: &[&'static str]| [words, &place[..]].concat();
        eventually("both are heard", SOON, async || {
            let said = federlet(&words(&["logs", "deploy/both"])).await?;
            let heard =
                |member: &str| said.lines().any(|line| line.starts_with(member) && line.contains(" | I am "));
            ensure!(heard(MEMBER1) && heard(MEMBER2), "{said}");
            Ok(())
        })
        .await?;
        let one = federlet(&words(&["logs", "deploy/both", "--cluster", MEMBER2])).await?;
        ensure!(!one.contains(MEMBER1) && one.contains(MEMBER2), "{one}");

        let mut exec = words(&["exec", "deploy/both", "--cluster", MEMBER2]);
        exec.extend(["--", "hostname"]);
        let name = federlet(&exec).await?;
        ensure!(one.contains(&format!(" {} | ", name.trim())), "{one}");
        let wrong = federlet(&words(&["logs", "deploy/nobody"])).await.map_err(|error| error.to_string());
        ensure!(
            wrong.as_ref().is_err_and(|said| said.contains("there is no Deployment nobody")),
            "{wrong:?}"
        );

        let mut exec = Command::new(program().await?);
        exec.args(words(&["exec", "-i", "deploy/both"])).args(["--", "sh", "-c", "cat; exit 7"]);
        let mut exec = exec.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut input = exec.stdin.take().context("no input")?;
        tokio::time::timeout(SOON, input.write_all(&vec![b'x'; 1 << 20])).await??;
        drop(input);
        let output = tokio::time::timeout(SOON, exec.wait_with_output()).await??;
        ensure!(output.stdout.len() == 1 << 20, "{} bytes came back", output.stdout.len());
        ensure!(output.status.code() == Some(7), "{}", output.status);

        let mut shell = Command::new(program().await?);
        shell.args(words(&["exec", "-it", "deploy/both"])).args(["--", "sh", "-c", SEES_ITS_SIZE]);
        knows_its_size(&shell).await.context("a terminal")?;

        // A pod that comes while somebody listens is heard too.
        let mut follow = Command::new(program().await?);
        follow.args(words(&["logs", "--follow", "deploy/both"])).stdout(Stdio::piped()).kill_on_drop(true);
        let mut follow = follow.spawn()?;
        let mut lines = BufReader::new(follow.stdout.take().context("no output")?).lines();
        for _ in 0..2 {
            tokio::time::timeout(SOON, lines.next_line()).await??.context("it ended")?;
        }
        stage.host.run("rollout restart deployment/both").await?;
        let (mut heard, mut others) = (0, vec![]);
        while heard < 2 {
            let line = tokio::time::timeout(2 * SOON, lines.next_line()).await;
            let line =
                line.with_context(|| format!("{heard} heard, and {others:?}"))??.context("it ended")?;
            // A kubelet says in the log itself that a container which just ended is gone, for whoever asks then.
            if line.contains(" | I am ") { heard += 1 } else { others.push(line) }
        }
        follow.kill().await?;
        Ok(())
    })
    .await
}
