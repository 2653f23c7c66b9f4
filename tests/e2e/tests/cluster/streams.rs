use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{SOON, fleet::MEMBER1};
use federlet_sandbox::eventually;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::{
    objects::{spec, workload},
    stage::on_stage,
};

#[tokio::test(flavor = "multi_thread")]
async fn logs_exec_attach_copy_and_forward_work_through_the_node() -> Result<()> {
    on_stage("streams", async |stage| {
        let talker = "i=0; while true; do echo line $i; i=$((i+1)); sleep 1; done";
        stage
            .start("app", json!({"containers": [
                {"name": "web", "image": "nginx"},
                {"name": "talker", "image": "busybox", "command": ["sh", "-c", talker]},
                {"name": "shell", "image": "busybox", "stdin": true, "command": ["sh", "-c", "while read line; do echo got $line; done"]},
            ]}))
            .await?;
        eventually("there are lines", SOON, async || {
            let said = stage.host.run("logs app -c talker --tail=2").await?;
            ensure!(said.lines().count() == 2, "{said}");
            Ok(())
        })
        .await?;
        let mut follow = stage.host.command(&["logs", "-f", "app", "-c", "talker", "--tail=1"])?;
        let mut follow = follow.stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(follow.stdout.take().context("no output")?).lines();
        for _ in 0..3 {
            ensure!(tokio::time::timeout(SOON, lines.next_line()).await??.is_some_and(|line| line.starts_with("line ")));
        }
        follow.kill().await?;

        let refused = stage.host.run("exec app -c web -- sh -c false").await;
        ensure!(refused.is_err(), "the exit code is lost");
        let mut md5 = stage.host.command(&["exec", "-i", "app", "-c", "web", "--", "md5sum"])?;
        let mut md5 = md5.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = md5.stdin.take().context("no input")?;
        stdin.write_all(&vec![7_u8; 8 * 1024 * 1024]).await?;
        drop(stdin);
        let said = String::from_utf8(md5.wait_with_output().await?.stdout)?;
        ensure!(said.starts_with("0060f6593824eacb6d4b9785b315167c"), "bytes were lost: {said}");

        let mut attach = stage.host.command(&["attach", "-i", "app", "-c", "shell"])?;
        let mut attach = attach.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut stdin = attach.stdin.take().context("no input")?;
        stdin.write_all(b"hello\n").await?;
        let mut lines = BufReader::new(attach.stdout.take().context("no output")?).lines();
        let heard = tokio::time::timeout(SOON, lines.next_line()).await??;
        ensure!(heard.as_deref() == Some("got hello"), "{heard:?}");
        attach.kill().await?;

        let file = std::env::temp_dir().join(format!("{}.txt", stage.namespace));
        std::fs::write(&file, "copied")?;
        stage.host.args(&["cp", &file.to_string_lossy(), "app:/tmp/file", "-c", "web"]).await?;
        ensure!(stage.host.run("exec app -c web -- cat /tmp/file").await? == "copied");
        std::fs::remove_file(&file)?;

        let forward = stage.host.port_forward("pod/app", 80).await?;
        ensure!(forward.get("/").await?.contains("Welcome"));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_the_size_of_the_window() -> Result<()> {
    on_stage("terminal", async |stage| {
        stage.start("shell", json!({"containers": [{"name": "app", "image": "busybox", "command": ["sleep", "1000"]}]})).await?;
        let wait = "for i in $(seq 60); do test \"$(stty size)\" = '33 77' && echo it fits && exit; sleep 1; done; stty size; exit 1";
        let kubectl = stage.host.command(&["exec", "-it", "shell", "--", "sh", "-c", wait])?;
        let kubectl = kubectl.as_std();
        let quote = |word: &std::ffi::OsStr| format!("'{}'", word.to_string_lossy().replace('\'', "'\\''"));
        let words: Vec<String> = std::iter::once(kubectl.get_program()).chain(kubectl.get_args()).map(quote).collect();
        // script(1) is a terminal, whose size is what is said inside.
        let mut script = tokio::process::Command::new("script");
        script
            .args(["-qec", &format!("stty rows 33 cols 77; {}", words.join(" ")), "/dev/null"])
            .envs(kubectl.get_envs().filter_map(|(key, value)| Some((key, value?))))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(2 * SOON, script.output()).await??;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success() && said.contains("it fits"), "{said}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_comes_from_the_members_kubelets() -> Result<()> {
    on_stage("usage", async |stage| {
        stage.start("busy", json!({})).await?;
        let node = MEMBER1;
        let ask = async |path: &str| {
            let path = format!("/api/v1/nodes/{node}/proxy/{path}");
            stage.fleet.host.kubectl_output(&["get", "--raw", &path]).await
        };
        eventually("the pod has metrics", SOON, async || {
            let metrics = ask("metrics/resource").await?;
            let ours = format!(
                "container_memory_working_set_bytes{{container=\"app\",namespace=\"{}\",pod=\"busy\"}}",
                stage.namespace
            );
            ensure!(
                metrics.contains(&ours) && metrics.contains("\nnode_memory_working_set_bytes "),
                "{metrics}"
            );
            ensure!(!metrics.contains("namespace=\"kube-system\""), "pods of others: {metrics}");
            let summary: serde_json::Value = serde_json::from_str(&ask("stats/summary").await?)?;
            let pods = summary["pods"].as_array().context("no pods")?;
            let uid = stage.field("busy", ".metadata.uid").await?;
            ensure!(
                summary["node"]["nodeName"] == node
                    && pods.iter().any(|pod| pod["podRef"]["uid"] == uid.as_str())
            );
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn top_and_autoscalers_see_pods_in_members() -> Result<()> {
    on_stage("top", async |stage| {
        let burn = json!({"containers": [{"name": "app", "image": "busybox", "command": ["sh", "-c", "while true; do :; done"],
            "resources": {"requests": {"cpu": "20m"}, "limits": {"cpu": "60m"}}}]});
        let web = json!({"replicas": 1, "selector": {"matchLabels": {"app": "burn"}},
            "template": {"metadata": {"labels": {"app": "burn"}}, "spec": spec(MEMBER1, burn)}});
        stage.create(&workload("Deployment", "burn", &web)).await?;
        stage.host.run("rollout status deployment/burn --timeout=60s").await?;
        stage.host.run("autoscale deployment burn --min=1 --max=2 --cpu=50%").await?;
        eventually("kubectl top shows the pod and the node", 2 * SOON, async || {
            let pods = stage.host.run("top pod --no-headers").await?;
            ensure!(pods.starts_with("burn-"), "{pods}");
            let node = stage.host.run(&format!("top node {MEMBER1} --no-headers")).await?;
            ensure!(node.contains('%'), "{node}");
            Ok(())
        })
        .await?;
        eventually("the autoscaler adds a pod", 3 * SOON, async || {
            let replicas = stage.host.run("get deployment burn -o jsonpath={.spec.replicas}").await?;
            ensure!(replicas == "2", "{replicas} replicas: {}", stage.host.run("describe hpa burn").await?);
            Ok(())
        })
        .await
    })
    .await
}

/// A kubelet says nothing at all of a followed log before its first line.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_followed_may_be_silent_for_minutes() -> Result<()> {
    on_stage("silent", async |stage| {
        let late = "until [ -e /tmp/speak ]; do sleep 1; done; echo at last; sleep 1000";
        let container = json!({"name": "late", "image": "busybox", "command": ["sh", "-c", late]});
        stage.start("app", json!({"containers": [container]})).await?;
        let mut follow = stage.host.command(&["logs", "-f", "app"])?;
        let mut follow = follow.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        tokio::time::sleep(std::time::Duration::from_secs(70)).await;
        ensure!(follow.try_wait()?.is_none(), "it ended, though nobody has said anything yet");
        stage.exec("app", "touch /tmp/speak").await?;
        let mut lines = BufReader::new(follow.stdout.take().context("no output")?).lines();
        let heard = tokio::time::timeout(SOON, lines.next_line()).await??;
        ensure!(heard.as_deref() == Some("at last"), "{heard:?}");
        follow.kill().await?;
        Ok(())
    })
    .await
}
