//! The life of a sandbox as a person sees it: started, used, cut, broken, killed, stopped. Each test has a sandbox of
//! its own beside the shared one.

use std::{collections::BTreeSet, net::TcpStream, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_sandbox::{
    Cluster, Instance, cleanup, component, eventually,
    machine::Machine,
    plan::{MachinePlan, Plan},
    process,
    state::{self, State},
};
use sha2::{Digest, Sha256};
use tokio::process::Command;

/// What the names of these sandboxes begin with.
const PREFIX: &str = "t-";

/// A sandbox that is removed when the test ends, however it ends.
struct Own(Instance);

impl Own {
    /// Named after this process too, so that two runs of the tests do not meet.
    fn new(name: &str) -> Result<Self> {
        remove_those_of_dead_runs();
        Ok(Self(Instance::new(&format!("{PREFIX}{name}-{}", std::process::id()))?))
    }

    /// Waits until a daemon of the host runs.
    async fn runs(&self, id: &str) -> Result<()> {
        eventually(&format!("{id} runs"), Duration::from_secs(120), async || {
            if component::is_running(&self.0, "host", id) { Ok(()) } else { Err("not yet") }
        })
        .await
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
        command.args(["--name", self.0.name()]).args(words).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a command that must succeed, and returns its output.
    async fn run(&self, words: &[&str]) -> Result<String> {
        let (success, text) = self.attempt(words).await?;
        ensure!(success, "`sandbox {}` failed: {text}", words.join(" "));
        Ok(text)
    }

    /// Runs a command that must fail, and returns what it said.
    async fn refused(&self, words: &[&str]) -> Result<String> {
        let (success, text) = self.attempt(words).await?;
        ensure!(!success, "`sandbox {}` succeeded: {text}", words.join(" "));
        Ok(text)
    }

    async fn attempt(&self, words: &[&str]) -> Result<(bool, String)> {
        let output = self.command(words).output().await?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }

    fn plan(&self) -> Result<Plan> {
        Ok(State::running(&self.0)?.plan)
    }

    fn cluster(&self, name: &str) -> Result<Cluster> {
        Cluster::open(&self.0, &State::running(&self.0)?, name)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // A panicking test has no runtime to wait with.
        std::process::Command::new(env!("CARGO_BIN_EXE_sandbox"))
            .args(["--name", self.0.name(), "down", "--force"])
            .stderr(Stdio::null())
            .status()
            .ok();
    }
}

/// A run that was killed could not clean up after itself.
fn remove_those_of_dead_runs() {
    for instance in state::instances().unwrap_or_default() {
        let pid = instance.name().strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('-')?.1.parse().ok());
        if pid.is_some_and(|pid| process::Process::find(pid).is_none()) {
            drop(Own(instance));
        }
    }
}

/// All that a sandbox could leave behind on this machine and that only this sandbox can have made.
async fn traces_on_the_machine(instance: &Instance) -> Result<BTreeSet<String>> {
    let dir = instance.dir().display().to_string();
    let mut found: BTreeSet<String> = cleanup::traces(instance).await?.into_iter().collect();
    for entry in process::all() {
        let line = entry.process.command_line();
        if line.contains(&dir) || line.contains(&instance.netns_prefix()) {
            found.insert(format!("process {line}"));
        }
    }
    for entry in std::fs::read_dir("/proc")?.flatten() {
        // Mounts may hide in a namespace that some process still holds.
        let mounts = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        found.extend(
            mounts.lines().filter(|line| line.contains(&format!("{dir}/"))).map(|l| format!("mount {l}")),
        );
    }
    Ok(found)
}

async fn nothing_is_left(instance: &Instance) -> Result<()> {
    let left = traces_on_the_machine(instance).await?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

async fn links_and_routes() -> Result<BTreeSet<String>> {
    let mut lines = BTreeSet::new();
    for words in [["-o", "link"], ["-o", "route"]] {
        let output = Command::new("ip").args(words).output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.extend(
            text.lines().filter(|line| line.contains("flsb") || line.contains("198.18.")).map(String::from),
        );
    }
    Ok(lines)
}

fn reachable(machine: &MachinePlan) -> bool {
    let address = (machine.address, 6443).into();
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

/// From inside another cluster's machine, as a pod's traffic would go.
async fn reachable_from(from: &Machine, to: &MachinePlan) -> bool {
    let mut command = from.command("timeout");
    command.args(["0.5", "busybox", "nc", &to.address.to_string(), "6443"]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().await;
    status.is_ok_and(|status| status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_lives_as_its_user_wants() -> Result<()> {
    let own = Own::new("life")?;
    let said = own.run(&["up", "--members", "1"]).await?;
    ensure!(said.contains("1/1 Ready"), "{said}");
    let plan = own.plan()?;
    let subnet = plan.subnet.cidr();
    ensure!(
        links_and_routes().await?.iter().any(|line| line.contains("blackhole") && line.contains(&subnet))
    );

    saying_it_again_changes_nothing(&own).await?;
    a_partition_is_a_partition(&own, &plan).await?;
    a_daemon_stops_and_starts(&own).await?;
    an_image_from_an_archive_runs(&own).await?;
    wrong_words_are_answered_with_the_right_ones(&own).await?;

    own.run(&["down"]).await?;
    nothing_is_left(&own.0).await?;
    let link = federlet_sandbox::network::link_name(plan.subnet.index());
    let left: Vec<_> = links_and_routes()
        .await?
        .into_iter()
        .filter(|line| {
            line.contains(&format!("{link}:")) || line.contains(&format!("{link}@")) || line.contains(&subnet)
        })
        .collect();
    ensure!(left.is_empty(), "left: {left:?}");
    let again = own.run(&["down"]).await?;
    ensure!(again.contains("was not running"), "{again}");
    Ok(())
}

async fn saying_it_again_changes_nothing(own: &Own) -> Result<()> {
    let before = State::running(&own.0)?.started;
    let said = own.run(&["up", "--members", "1"]).await?;
    ensure!(said.contains("runs already"), "{said}");
    ensure!(State::running(&own.0)?.started == before);
    let said = own.refused(&["up", "--members", "3"]).await?;
    ensure!(said.contains("other options") && said.contains("down"), "{said}");
    ensure!(State::running(&own.0)?.started == before);
    Ok(())
}

async fn a_partition_is_a_partition(own: &Own, plan: &Plan) -> Result<()> {
    let host = Machine::running(&own.0, "host-node1")?;
    let member = plan.cluster("member1")?.control_plane();
    ensure!(reachable(member) && reachable_from(&host, member).await);

    own.run(&["partition", "member1"]).await?;
    ensure!(!reachable(member), "the machine still reaches a partitioned member");
    ensure!(!reachable_from(&host, member).await, "the host still reaches a partitioned member");
    ensure!(own.run(&["status"]).await?.contains("partitioned"));
    // The others are untouched.
    ensure!(reachable(plan.cluster("host")?.control_plane()));

    own.run(&["heal", "member1"]).await?;
    eventually("member1 is reachable again", Duration::from_secs(5), async || {
        if reachable(member) && reachable_from(&host, member).await { Ok(()) } else { Err("no connection") }
    })
    .await?;
    Ok(())
}

async fn a_daemon_stops_and_starts(own: &Own) -> Result<()> {
    let member = own.cluster("member1")?;
    own.run(&["stop", "member1", "kube-apiserver"]).await?;
    ensure!(!component::is_running(&own.0, "member1", "kube-apiserver"));
    let said = own.refused(&["stop", "member1", "kube-apiserver"]).await?;
    ensure!(said.contains("is not running"), "{said}");
    ensure!(member.kubectl_output(&["get", "nodes", "--request-timeout=2s"]).await.is_err());
    own.run(&["start", "member1", "kube-apiserver"]).await?;
    eventually("the API server is back", Duration::from_secs(180), async || {
        member.kubectl_output(&["get", "--raw", "/readyz", "--request-timeout=20s"]).await
    })
    .await?;
    let log = own.run(&["logs", "member1", "kube-apiserver"]).await?;
    ensure!(log.lines().count() > 10, "{log}");
    Ok(())
}

/// An archive as `docker save` writes it, with a tag that is used again for other contents.
async fn an_image_from_an_archive_runs(own: &Own) -> Result<()> {
    let member = own.cluster("member1")?;
    for words in ["first", "second"] {
        let archive = own.0.dir().join(format!("{words}.tar"));
        write_archive(&archive, "example.com/team/app:1", words)?;
        own.run(&["load-image", &archive.display().to_string()]).await?;
        let pod = format!("app-{words}");
        // `Always` pulls from the node's registry, `Never` takes what is on the node: both must be the new one.
        for policy in ["Always", "Never"] {
            let policy = format!("--image-pull-policy={policy}");
            member
                .kubectl_output(&["run", &pod, "--image=example.com/team/app:1", "--restart=Never", &policy])
                .await?;
            eventually("the image says its word", Duration::from_secs(60), async || {
                let log = member.kubectl_output(&["logs", &pod]).await.map_err(|error| error.to_string())?;
                if log.trim() == words { Ok(()) } else { Err(log) }
            })
            .await?;
            member.kubectl_output(&["delete", "pod", &pod, "--now"]).await?;
        }
    }
    Ok(())
}

fn write_archive(path: &std::path::Path, name: &str, words: &str) -> Result<()> {
    let busybox = federlet_sandbox::images::static_busybox().context("no busybox")?;
    let mut layer = tar::Builder::new(Vec::new());
    layer.append_path_with_name(busybox, "bin/busybox")?;
    let layer = layer.into_inner()?;
    let digest: String = Sha256::digest(&layer).iter().map(|byte| format!("{byte:02x}")).collect();
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Cmd":["/bin/busybox","echo","{words}"]}},
            "rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}}}}"#
    );
    let manifest = format!(r#"[{{"Config":"config.json","RepoTags":["{name}"],"Layers":["layer.tar"]}}]"#);
    let mut archive = tar::Builder::new(std::fs::File::create(path)?);
    for (name, bytes) in
        [("manifest.json", manifest.as_bytes()), ("config.json", config.as_bytes()), ("layer.tar", &layer)]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes)?;
    }
    Ok(archive.finish()?)
}

async fn wrong_words_are_answered_with_the_right_ones(own: &Own) -> Result<()> {
    for (words, hint) in [
        (&["kubectl", "member7", "get", "nodes"][..], "there are: host, member1"),
        (&["logs", "host", "kublet"], "kubelet"),
        (&["partition", "nowhere"], "member1-node1"),
        (&["stop", "member1", "nothing"], "kube-scheduler"),
        (&["load-image", "/nonexistent.tar"], "cannot read /nonexistent.tar"),
    ] {
        let said = own.refused(words).await?;
        ensure!(said.contains(hint) && !said.contains("panicked"), "{words:?}: {said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_it_starts_cleanly_the_next_time() -> Result<()> {
    let own = Own::new("kill")?;
    // Once early, when only some processes exist, and once late, when pods run.
    for moment in ["etcd", "kubelet"] {
        let mut child =
            own.command(&["up", "--members", "0"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        own.runs(moment).await?;
        let refused = own.refused(&["up", "--members", "0"]).await?;
        ensure!(refused.contains("is held by process"), "{refused}");
        ensure!(refused.contains(&child.id().context("it ended")?.to_string()), "{refused}");
        child.kill().await?;
        let said = own.refused(&["kubectl", "host", "get", "nodes"]).await?;
        ensure!(said.contains("did not come up"), "{said}");
    }
    let said = own.run(&["up", "--members", "0"]).await?;
    ensure!(said.contains("1/1 Ready"), "{said}");
    let init = own.cluster("host")?;
    ensure!(init.kubectl_output(&["get", "nodes", "-o", "name"]).await?.trim() == "node/host-node1");
    own.run(&["down"]).await?;
    nothing_is_left(&own.0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_it_takes_back_what_it_began() -> Result<()> {
    let own = Own::new("stop")?;
    let child =
        own.command(&["up", "--members", "0"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    own.runs("etcd").await?;
    let pid = i32::try_from(child.id().context("it ended")?)?;
    process::Process::find(pid).context("it ended")?.signal(rustix::process::Signal::INT);
    let output = child.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && said.contains("interrupted"), "{said}");
    nothing_is_left(&own.0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn host_and_member_may_be_of_different_versions() -> Result<()> {
    let own = Own::new("skew")?;
    own.run(&["up", "--members", "1", "--kubernetes", "1.36.3", "--member-kubernetes", "1.34.4"]).await?;
    for (cluster, version) in [("host", "v1.36.3"), ("member1", "v1.34.4")] {
        let cluster = own.cluster(cluster)?;
        let answered = cluster.client().await?.apiserver_version().await?;
        ensure!(answered.git_version == version, "{}: {}", cluster.name(), answered.git_version);
        let kubelet = ["get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"];
        let answered = cluster.kubectl_output(&kubelet).await?;
        ensure!(answered == version, "{}: {answered}", cluster.name());
    }
    own.run(&["down"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kwok_plays_the_nodes_it_is_asked_for() -> Result<()> {
    let own = Own::new("kwok")?;
    own.run(&["up", "--members", "1", "--kwok-nodes", "member1=30"]).await?;
    let member = own.cluster("member1")?;
    member.kubectl_output(&["create", "deployment", "many", "--image=nginx", "--replicas=60"]).await?;
    member.kubectl_output(&["rollout", "status", "deployment/many", "--timeout=60s"]).await?;
    let nodes = member.kubectl_output(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]).await?;
    let nodes: BTreeSet<&str> = nodes.split_whitespace().collect();
    ensure!(nodes.len() > 10 && nodes.iter().all(|node| node.starts_with("member1-kwok-")), "{nodes:?}");
    Ok(())
}
