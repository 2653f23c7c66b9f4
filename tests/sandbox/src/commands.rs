//! The words a person can say to the sandbox.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use federlet_sandbox::{
    Cluster, Instance,
    cleanup::{self, clean},
    component, demo, images,
    instance::{DEFAULT_NAME, TEST_NAME},
    lock::{Lock, Purpose},
    machine::Machine,
    network,
    plan::{DEFAULT_KUBERNETES, Shape},
    preflight,
    progress::Progress,
    registry,
    state::{self, State},
    status, test_run,
    up::{self, Outcome},
    worker,
};

/// Real Kubernetes clusters on this machine, without Docker: a host and members, each with its own control plane and
/// real nodes.
#[derive(Debug, Parser)]
#[command(name = "cargo sandbox", bin_name = "cargo sandbox", version)]
pub(crate) struct Cli {
    /// Which sandbox; several can run beside each other [default: demo; for `test`: test]
    #[arg(long, global = true, env = "FEDERLET_SANDBOX")]
    name: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a host, two members and an edge cluster, join them by Federlet, and run something on each
    Demo,
    /// Start the clusters alone, installing and building first what is missing
    Up(UpArgs),
    /// Stop the clusters and remove every trace of them
    Down {
        /// Even while tests use them
        #[arg(long)]
        force: bool,
    },
    /// Show the clusters: version, nodes, API address, age, memory
    Status,
    /// Print `export` lines for a shell: KUBECONFIG of all clusters, one context each, and PATH with their programs
    Env,
    /// Run kubectl against a cluster
    Kubectl {
        /// host, member1, …
        cluster: String,
        /// Everything after it goes to kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Print the log of a daemon, such as `logs member1 kubelet`
    Logs {
        /// host, member1, …
        cluster: String,
        /// etcd, kube-apiserver, kubelet, …
        component: String,
        /// Keep printing
        #[arg(short, long)]
        follow: bool,
    },
    /// Cut a cluster, or a single machine, off from all others
    Partition {
        /// member1, or a machine such as edge-node2
        target: String,
    },
    /// Connect it again
    Heal {
        /// member1, or a machine such as edge-node2
        target: String,
    },
    /// Stop a daemon, such as `stop member1 kube-apiserver`
    Stop {
        /// host, member1, …
        cluster: String,
        /// etcd, kube-apiserver, kubelet, …
        component: String,
    },
    /// Start a daemon that was stopped
    Start {
        /// host, member1, …
        cluster: String,
        /// etcd, kube-apiserver, kubelet, …
        component: String,
    },
    /// Give all nodes an image, from an archive as `docker save` writes it
    LoadImage {
        /// The archive
        tar: PathBuf,
    },
    /// Write Federlet itself as an image, an OCI archive: for `podman load`, `skopeo copy`, `ctr images import`
    Image {
        /// The file
        #[arg(long, default_value = "federlet.oci.tar", value_name = "FILE")]
        output: PathBuf,
        /// Its name
        #[arg(long, default_value = concat!("ghcr.io/federlet/federlet:", env!("CARGO_PKG_VERSION")), value_name = "NAME")]
        tag: String,
        /// Without optimisation: sooner built, for trying something
        #[arg(long)]
        debug: bool,
    },
    /// Run all tests of this checkout; words after `--` go to `cargo test`
    Test {
        /// Leave the sandbox running afterwards
        #[arg(long)]
        keep: bool,
        /// How many programs of tests run side by side, each with a sandbox of its own; only without words
        #[arg(long, default_value_t = test_run::LANES)]
        lanes: usize,
        /// For `cargo test`, such as `-p federlet-node` or `-- --nocapture`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Serve images to the containerd of one machine
    #[command(hide = true)]
    Registry {
        /// Where they are
        store: PathBuf,
    },
}

#[derive(Debug, Args)]
struct UpArgs {
    /// How many member clusters
    #[arg(long, default_value_t = 2)]
    members: u16,
    /// Add a member `edge`, as of KubeEdge, with a node in each of two regions
    #[arg(long)]
    edge: bool,
    /// Kubernetes of the host
    #[arg(long, default_value = DEFAULT_KUBERNETES, value_name = "VERSION")]
    kubernetes: String,
    /// Kubernetes of the members [default: that of the host]
    #[arg(long, value_name = "VERSION")]
    member_kubernetes: Option<String>,
    /// Let KWOK play this many nodes instead of running real ones, in one member or in all
    #[arg(long, value_name = "[MEMBER=]N")]
    kwok_nodes: Vec<String>,
}

impl UpArgs {
    fn shape(self) -> Result<Shape> {
        let Self { members, edge, kubernetes, member_kubernetes, kwok_nodes } = self;
        let mut kwok = BTreeMap::new();
        for wish in kwok_nodes {
            let (member, number) = wish.rsplit_once('=').unwrap_or(("", &wish));
            let number = number.parse().with_context(|| {
                format!("--kwok-nodes {wish}: say a number, or a member and a number like member1=100")
            })?;
            if member.is_empty() {
                kwok.extend((1..=members).map(|n| (format!("member{n}"), number)));
            } else {
                kwok.insert(member.to_owned(), number);
            }
        }
        let member_kubernetes = member_kubernetes.unwrap_or_else(|| kubernetes.clone());
        Ok(Shape { members, edge, kubernetes, member_kubernetes, kwok_nodes: kwok })
    }
}

impl Cli {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let default = if matches!(self.command, Command::Test { .. }) { TEST_NAME } else { DEFAULT_NAME };
        let instance = Instance::new(self.name.as_deref().unwrap_or(default))?;
        let progress = Progress::new();
        match self.command {
            Command::Demo => demo(&instance, &progress).await?,
            Command::Up(args) => up(&instance, &args.shape()?, &progress).await?,
            Command::Down { force } => down(&instance, force, &progress).await?,
            Command::Status => show_status(&instance).await?,
            Command::Env => env(&instance)?,
            Command::Kubectl { cluster, words } => return kubectl(&instance, &cluster, &words).await,
            Command::Logs { cluster, component, follow } => {
                return logs(&instance, &cluster, &component, follow).await;
            }
            Command::Partition { target } => {
                network::partition(&instance, &State::running(&instance)?.plan, &target).await?;
                println!("{target} is cut off; `cargo sandbox heal {target}` connects it again");
            }
            Command::Heal { target } => {
                network::heal(&instance, &State::running(&instance)?.plan, &target).await?;
                println!("{target} is connected");
            }
            Command::Stop { cluster, component } => {
                State::running(&instance)?.plan.cluster(&cluster)?;
                component::stop(&instance, &cluster, &component).await?;
                println!("{component} of {cluster} is stopped");
            }
            Command::Start { cluster, component } => {
                State::running(&instance)?.plan.cluster(&cluster)?;
                component::start_again(&instance, &cluster, &component).await?;
                println!("{component} of {cluster} is started");
            }
            Command::LoadImage { tar } => load_image(&instance, &tar, &progress).await?,
            Command::Image { output, tag, debug } => write_image(&output, &tag, debug, &progress).await?,
            Command::Test { keep, lanes, words } => {
                let passed = test_run::run(&instance, &words, lanes, keep, &progress).await?;
                return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Command::Registry { store } => registry::serve(store).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn up(instance: &Instance, shape: &Shape, progress: &Progress) -> Result<()> {
    let outcome = up::up(instance, shape, progress).await?;
    let state = State::running(instance)?;
    if outcome == Outcome::WasRunning {
        println!("Sandbox '{instance}' runs already.");
    }
    println!("\n{}\n", status::table(instance, &state).await?);
    let option = option(instance);
    println!("Use them:   cargo sandbox {option}kubectl host get nodes");
    println!("In a shell: eval \"$(cargo sandbox {option}env)\"");
    println!("Stop them:  cargo sandbox {option}down");
    Ok(())
}

async fn demo(instance: &Instance, progress: &Progress) -> Result<()> {
    demo::demo(instance, progress).await?;
    println!("\n{}", demo::tour(instance, &option(instance)).await?);
    Ok(())
}

/// How a command names this sandbox; the default needs no word.
fn option(instance: &Instance) -> String {
    if instance.name() == DEFAULT_NAME { String::new() } else { format!("--name {instance} ") }
}

async fn down(instance: &Instance, force: bool, progress: &Progress) -> Result<()> {
    preflight::root()?;
    if let Some(holder) = Lock::holder(instance, Purpose::Use)?.filter(|_| !force) {
        bail!(
            "process {} (`{}` in {}) uses sandbox '{instance}'; wait for it, or stop it all the same with --force",
            holder.pid,
            holder.doing,
            holder.folder
        );
    }
    let _lock = Lock::take(instance, Purpose::Change, "sandbox down")?;
    let existed = !cleanup::traces(instance).await?.is_empty();
    let step = progress.step(format!("stop sandbox '{instance}'"));
    clean(instance, cleanup::Files::Remove).await?;
    step.done(if existed { "" } else { "it was not running" });
    Ok(())
}

async fn show_status(instance: &Instance) -> Result<()> {
    preflight::root()?;
    let others: Vec<String> =
        state::instances()?.iter().filter(|other| *other != instance).map(ToString::to_string).collect();
    match State::load(instance)? {
        Some(state) if state.ready => println!("{}", status::table(instance, &state).await?),
        _ => println!(
            "Sandbox '{instance}' is not running: start it with `cargo sandbox --name {instance} up`"
        ),
    }
    if !others.is_empty() {
        println!("\nOther sandboxes on this machine (see them with --name): {}", others.join(", "));
    }
    Ok(())
}

fn env(instance: &Instance) -> Result<()> {
    let state = State::running(instance)?;
    let binaries = federlet_sandbox::builds::Binaries::new()?;
    let kubeconfigs: Vec<String> = state
        .plan
        .clusters
        .iter()
        .map(|cluster| state.kubeconfig(instance, &cluster.name).display().to_string())
        .collect();
    let host = state.plan.cluster("host")?;
    let dirs = [binaries.kubernetes(&host.kubernetes, "kubectl")?, binaries.helm()?];
    let mut dirs: Vec<String> =
        dirs.iter().filter_map(|program| program.parent()).map(|dir| dir.display().to_string()).collect();
    // The demo has one; in other sandboxes nobody runs Federlet unless they start it themselves.
    dirs.extend(
        Some(demo::programs(instance)).filter(|dir| dir.exists()).map(|dir| dir.display().to_string()),
    );
    // The default needs no word, and `test` should not be led to it.
    if instance.name() != DEFAULT_NAME {
        println!("export FEDERLET_SANDBOX={instance}");
    }
    println!("export KUBECONFIG='{}'", kubeconfigs.join(":"));
    println!("export PATH='{}':\"$PATH\"", dirs.join(":"));
    Ok(())
}

async fn kubectl(instance: &Instance, cluster: &str, words: &[OsString]) -> Result<ExitCode> {
    let cluster = Cluster::open(instance, &State::running(instance)?, cluster)?;
    passed_on(cluster.kubectl()?.args(words)).await
}

async fn logs(instance: &Instance, cluster: &str, id: &str, follow: bool) -> Result<ExitCode> {
    State::load(instance)?.context("no such sandbox was started")?.plan.cluster(cluster)?;
    let files = component::known(instance, cluster, id)?;
    let mut command = tokio::process::Command::new("tail");
    command.args(["-n", "+1"]).args(follow.then_some("-F")).arg(&files.log);
    passed_on(&mut command).await
}

/// Runs a program in our place; its exit code is ours.
async fn passed_on(command: &mut tokio::process::Command) -> Result<ExitCode> {
    let status = command.status().await.context("cannot run it")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

async fn write_image(output: &std::path::Path, tag: &str, debug: bool, progress: &Progress) -> Result<()> {
    let binary = up::build_federlet(!debug, progress).await?;
    let step = progress.step("image");
    let written = images::write_archive(&images::federlet(&binary, tag).await?, output)?;
    let size = if debug { "not optimised".to_owned() } else { images::weighed(written.compressed)? };
    step.done(format!("{tag}, {size}"));
    println!("{}  {}", written.digest, output.display());
    Ok(())
}

async fn load_image(instance: &Instance, tar: &std::path::Path, progress: &Progress) -> Result<()> {
    let state = State::running(instance)?;
    let tar = tar.canonicalize().with_context(|| format!("cannot read {}", tar.display()))?;
    let step = progress.step("load image");
    let names = images::Store::new(instance.dir().join("images")).import(&tar)?;
    for cluster in &state.plan.clusters {
        for (machine, _) in cluster.nodes() {
            step.say(&machine.name);
            worker::import_image(&Machine::running(instance, &machine.name)?, &tar).await?;
        }
    }
    step.done(names.join(", "));
    Ok(())
}
