//! Starting a sandbox.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::future::{try_join, try_join_all};
use tokio::process::Command;

use crate::{
    Instance, addons,
    builds::Binaries,
    certificates::Certificates,
    cleanup::{self, clean},
    cluster,
    component::Files,
    control_plane, images, kubeconfig, kwok,
    lock::{Lock, Purpose},
    machine::Machine,
    metrics_server, network, packages,
    plan::{ClusterPlan, MachinePlan, Plan, Shape},
    preflight,
    progress::{Progress, Step},
    shell,
    state::{self, State},
    worker::Worker,
};

/// Nodes and DNS follow the API server within seconds; two cores shared by many clusters need patience.
const NODE_PATIENCE: Duration = Duration::from_secs(180);

/// What `up` came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was not running.
    Started,
    /// It ran already, in the same shape.
    WasRunning,
}

/// Brings a sandbox up, from nothing or from whatever an earlier run left.
pub async fn up(instance: &Instance, shape: &Shape, progress: &Progress) -> Result<Outcome> {
    let binaries = Binaries::new()?;
    // Refuses impossible wishes before anything long begins.
    let draft = Plan::new(shape, crate::plan::Subnet::new(0)?)?;
    preflight::check().await?;
    let _lock = Lock::take(instance, Purpose::Change, "sandbox up")?;
    if is_running(instance, shape)? {
        return Ok(Outcome::WasRunning);
    }
    packages::ensure(progress).await?;
    binaries.ensure(&draft.kubernetes_versions(), progress).await?;
    let federlet = build_federlet(false, progress).await?;
    clean(instance, cleanup::Files::Remove).await?;
    let state = claim(instance, shape).await?;
    let started = async {
        let store = instance.dir().join("images");
        let step = progress.step("images");
        images::build_basics(&images::Store::new(&store), &binaries).await?;
        images::build_federlet(&images::Store::new(&store), &federlet).await?;
        step.done("");
        start(instance, &state.plan, &binaries, progress).await
    };
    tokio::select! {
        result = started => if let Err(error) = result {
            clean(instance, cleanup::Files::Keep).await?;
            let hint = format!("See a whole log with `cargo sandbox --name {instance} logs CLUSTER COMPONENT`; then try `up` again");
            return Err(anyhow::anyhow!("{error:#}\n{hint}"));
        },
        () = interrupted() => {
            clean(instance, cleanup::Files::Remove).await?;
            bail!("interrupted; everything that was started is stopped again");
        }
    }
    write_kubeconfigs(instance, &state)?;
    State { ready: true, ..state }.save(instance)?;
    Ok(Outcome::Started)
}

/// Ends when the user or the system wants this process to end.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = async |kind| match signal(kind) {
        Ok(mut stream) => {
            stream.recv().await;
        }
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}

/// The checkout that this program was built from.
pub fn checkout() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}

/// Whether there is nothing to do; an error when something else is in the way.
fn is_running(instance: &Instance, shape: &Shape) -> Result<bool> {
    let Ok(Some(state)) = State::load(instance) else {
        return Ok(false);
    };
    let machines = || state.plan.clusters.iter().flat_map(|cluster| &cluster.machines);
    if !state.ready || !machines().all(|machine| Machine::find(instance, &machine.name).is_some()) {
        return Ok(false);
    }
    if state.checkout != checkout() {
        bail!(
            "sandbox '{instance}' is held by the checkout {} (since {}). Stop it with `cargo sandbox --name {instance} \
             down`, or work beside it with `cargo sandbox --name OTHER up`",
            state.checkout.display(),
            state.started.strftime("%F %T UTC"),
        );
    }
    if state.shape != *shape {
        bail!(
            "sandbox '{instance}' runs with other options. Stop it first with `cargo sandbox --name {instance} down`, \
             or start another beside it with `--name OTHER`"
        );
    }
    Ok(true)
}

/// Chooses a network and writes it down before anybody else can choose the same.
async fn claim(instance: &Instance, shape: &Shape) -> Result<State> {
    let _lock = Lock::wait(instance, Purpose::Allocate, "sandbox up").await?;
    let plan = Plan::new(shape, state::free_subnet(instance)?)?;
    let state = State {
        shape: shape.clone(),
        plan,
        checkout: checkout(),
        started: jiff::Timestamp::now(),
        ready: false,
    };
    state.save(instance)?;
    Ok(state)
}

async fn start(instance: &Instance, plan: &Plan, binaries: &Binaries, progress: &Progress) -> Result<()> {
    let step = progress.step("network");
    network::create(instance, plan).await?;
    step.done(plan.subnet.cidr());
    // The registry must not change under a running sandbox when this program is built again.
    let program = instance.dir().join("sandbox");
    // Not by its path: somebody may have built another one there since this began.
    fs::copy("/proc/self/exe", &program)?;
    let starts = plan.clusters.iter().map(|cluster| {
        let step = progress.step(format!("cluster {}", cluster.name));
        let program = &program;
        Box::pin(async move {
            let started = Starting { instance, cluster, binaries, program };
            started.run(&step).await.with_context(|| format!("cluster {} did not start", cluster.name))?;
            step.done(format!("Kubernetes {}, {}", cluster.kubernetes, cluster.api_url()));
            anyhow::Ok(())
        })
    });
    try_join_all(starts).await?;
    Ok(())
}

struct Starting<'a> {
    instance: &'a Instance,
    cluster: &'a ClusterPlan,
    binaries: &'a Binaries,
    program: &'a Path,
}

impl Starting<'_> {
    async fn run(&self, step: &Step) -> Result<()> {
        step.say("certificates");
        let dir = self.instance.cluster_dir(&self.cluster.name);
        fs::create_dir_all(&dir)?;
        let certificates = Certificates::create(&dir.join("pki"), self.cluster)?;
        let machines =
            try_join_all(self.cluster.machines.iter().map(|plan| Machine::start(self.instance, plan)))
                .await?;
        let control_plane =
            control_plane::start(self.cluster, &machines[0], &certificates, self.binaries, step);
        // Containerd needs no API server.
        let runtimes =
            try_join_all(self.cluster.machines.iter().zip(&machines).map(async |(plan, machine)| {
                let worker = self.worker(plan, machine, &certificates);
                worker.start_containerd(self.program, &self.instance.dir().join("images")).await
            }));
        try_join(control_plane, runtimes).await?;
        let client = cluster::client_for(self.instance, self.cluster).await?;
        step.say("nodes");
        for (plan, machine) in self.cluster.machines.iter().zip(&machines) {
            let worker = self.worker(plan, machine, &certificates);
            worker.start_kube_proxy().await?;
            if plan.node.is_some() {
                worker.start_kubelet().await?;
            }
        }
        let real_nodes = self.cluster.nodes().count();
        addons::apply(&client, real_nodes > 0).await?;
        if self.cluster.kwok_nodes > 0 {
            kwok::start(self.cluster, &machines[0], &certificates, self.binaries, &client).await?;
        }
        if self.cluster.name == "host" {
            metrics_server::start(self.cluster, &machines[0], &certificates, self.binaries, &client).await?;
        }
        let expected = real_nodes + self.cluster.kwok_nodes as usize;
        self.wait("nodes", step, async || {
            let (ready, total) = addons::ready_nodes(&client).await?;
            Ok((ready == expected, format!("{ready} of {expected} nodes are Ready, {total} registered")))
        })
        .await?;
        addons::label_nodes(&client, self.cluster).await?;
        if real_nodes > 0 {
            self.wait("DNS", step, async || {
                Ok((addons::dns_ready(&client).await?, "DNS is not ready".into()))
            })
            .await?;
        }
        if self.cluster.name == "host" {
            // An API group that does not answer holds up every namespace that is deleted.
            self.wait("metrics-server", step, async || {
                let answers = metrics_server::answers(&client).await?;
                Ok((answers, "the API server does not reach metrics-server".into()))
            })
            .await?;
        }
        Ok(())
    }

    fn worker<'a>(
        &'a self,
        plan: &'a MachinePlan,
        machine: &'a Machine,
        certificates: &'a Certificates,
    ) -> Worker<'a> {
        Worker { cluster: self.cluster, plan, machine, certificates, binaries: self.binaries }
    }

    /// Asks until the answer is yes; on failure shows what a person would look at first.
    async fn wait(
        &self,
        what: &str,
        step: &Step,
        mut ask: impl AsyncFnMut() -> Result<(bool, String)>,
    ) -> Result<()> {
        step.say(format!("waiting for {what}"));
        let deadline = tokio::time::Instant::now() + NODE_PATIENCE;
        loop {
            let last = match ask().await {
                Ok((true, _)) => return Ok(()),
                Ok((false, reason)) => reason,
                Err(error) => format!("{error:#}"),
            };
            crate::component::check_all_run(self.instance, &self.cluster.name)?;
            if tokio::time::Instant::now() > deadline {
                let mut message = format!("{last}, after {} s", NODE_PATIENCE.as_secs());
                for (plan, _) in self.cluster.nodes() {
                    let id = crate::component::Component::id(
                        "kubelet",
                        &plan.name,
                        self.cluster.machines.len() > 1,
                    );
                    let files = Files::new(self.instance, &self.cluster.name, &id);
                    message.push_str(&format!(
                        "\nLast lines of {id}, from {}:\n{}",
                        files.log.display(),
                        files.log_tail()
                    ));
                }
                bail!(message);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn write_kubeconfigs(instance: &Instance, state: &State) -> Result<()> {
    for plan in &state.plan.clusters {
        let admin = kubeconfig::for_client(plan, &cluster::certificates(instance, plan), "admin")?;
        kubeconfig::write(&state.kubeconfig(instance, &plan.name), &admin)?;
    }
    Ok(())
}

/// Compiles Federlet, as users run it or as fast as possible, and says where it is.
pub async fn build_federlet(optimised: bool, progress: &Progress) -> Result<PathBuf> {
    let step = progress.step(if optimised { "build federlet, optimised" } else { "build federlet" });
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(checkout())
        .args(["build", "--bin", "federlet"])
        .args(optimised.then_some("--release"));
    shell::watch(&mut command, |line| step.say(line.trim())).await.context("federlet does not compile")?;
    step.done("");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout().join("target"), PathBuf::from);
    Ok(target.join(if optimised { "release" } else { "debug" }).join("federlet"))
}
