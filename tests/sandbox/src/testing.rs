//! For tests: one sandbox shared by all of them, a namespace for each, and waiting with a reason.

use std::{fmt::Display, panic::AssertUnwindSafe, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use tokio::{process::Command, sync::OnceCell};

use crate::{
    Cluster, Instance,
    instance::TEST_NAME,
    lock::{Lock, Purpose},
    process::Process,
    state::{self, State},
    up::checkout,
};

/// Names the sandbox that tests use; `cargo sandbox test` sets it.
pub const SANDBOX_VARIABLE: &str = "FEDERLET_TEST_SANDBOX";

/// The program that runs the tests, which can start the sandbox too; `cargo sandbox test` sets it.
pub const PROGRAM_VARIABLE: &str = "FEDERLET_TEST_SANDBOX_PROGRAM";

/// A running sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    instance: Instance,
    state: State,
}

impl Sandbox {
    /// The sandbox of all tests: the first that asks starts it, the others join. `cargo sandbox test` stops it in the
    /// end; after a plain `cargo test` it stays for the next one.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Sandbox> = OnceCell::const_new();
        SHARED
            .get_or_try_init(async || {
                let name = std::env::var(SANDBOX_VARIABLE).unwrap_or_else(|_| TEST_NAME.to_owned());
                let instance = Instance::new(&name)?;
                crate::preflight::root()?;
                let _lock = Lock::wait(&instance, Purpose::Start, "a test").await?;
                // `up` does nothing when it runs already.
                run_sandbox(&instance, &["up", "--edge"]).await?;
                Self::attach(&instance)
            })
            .await
    }

    /// A sandbox that was started before.
    pub fn attach(instance: &Instance) -> Result<Self> {
        Ok(Self { instance: instance.clone(), state: State::running(instance)? })
    }

    /// Which one it is.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// One of its clusters.
    pub fn cluster(&self, name: &str) -> Result<Cluster> {
        Cluster::open(&self.instance, &self.state, name)
    }

    /// All of its clusters, the host first.
    pub fn clusters(&self) -> Result<Vec<Cluster>> {
        self.state.plan.clusters.iter().map(|plan| self.cluster(&plan.name)).collect()
    }

    /// Runs a test in a namespace of its own, which exists on the host and, where the test made pods, in members.
    /// If the test fails, all that a person would look at is printed; then the namespace goes.
    pub async fn in_namespace(
        &self,
        prefix: &str,
        test: impl AsyncFnOnce(&TestSpace<'_>) -> Result<()>,
    ) -> Result<()> {
        let space = TestSpace::create(self, prefix).await?;
        let outcome = AssertUnwindSafe(test(&space)).catch_unwind().await;
        if !matches!(outcome, Ok(Ok(()))) {
            space.dump().await;
        }
        space.delete().await;
        match outcome {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// A namespace of one test.
#[derive(Debug)]
pub struct TestSpace<'a> {
    /// The sandbox that it is in.
    pub sandbox: &'a Sandbox,
    /// Its name, the same in every cluster.
    pub namespace: String,
}

impl<'a> TestSpace<'a> {
    async fn create(sandbox: &'a Sandbox, prefix: &str) -> Result<Self> {
        // Unique enough for tests that run at once, short enough to be read.
        let unique = jiff::Timestamp::now().as_nanosecond() as u32;
        let namespace = format!("{prefix}-{unique:08x}");
        for cluster in sandbox.clusters()? {
            let namespaces: Api<Namespace> = Api::all(cluster.client().await?);
            let metadata = ObjectMeta { name: Some(namespace.clone()), ..ObjectMeta::default() };
            namespaces
                .create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() })
                .await
                .with_context(|| format!("cannot create namespace {namespace} in {}", cluster.name()))?;
        }
        Ok(Self { sandbox, namespace })
    }

    async fn delete(&self) {
        let Ok(clusters) = self.sandbox.clusters() else {
            return;
        };
        for cluster in clusters {
            if let Ok(client) = cluster.client().await {
                // A cluster that a test took down cannot be cleaned; it goes with the sandbox.
                Api::<Namespace>::all(client).delete(&self.namespace, &DeleteParams::background()).await.ok();
            }
        }
    }

    /// Prints objects, events and logs of this namespace from every cluster.
    async fn dump(&self) {
        for cluster in self.sandbox.clusters().unwrap_or_default() {
            let namespace = format!("--namespace={}", self.namespace);
            eprintln!("──── {} in {} ────", self.namespace, cluster.name());
            for words in [
                &["get", "all,configmaps,secrets,persistentvolumeclaims", "--output=wide"][..],
                &["get", "events", "--sort-by=.metadata.creationTimestamp"],
                &["describe", "pods"],
                &["get", "pods", "--output=name"],
            ] {
                let mut all = vec![namespace.as_str(), "--request-timeout=5s"];
                all.extend(words);
                match cluster.kubectl_output(&all).await {
                    Ok(text) if words.contains(&"--output=name") => {
                        for pod in text.lines() {
                            let log = ["logs", "--all-containers", "--prefix", "--tail=40", &namespace, pod];
                            eprintln!(
                                "{}",
                                cluster.kubectl_output(&log).await.unwrap_or_else(|e| e.to_string())
                            );
                        }
                    }
                    Ok(text) => eprintln!("{text}"),
                    Err(error) => eprintln!("{error:#}"),
                }
            }
        }
    }
}

/// What the names of sandboxes begin with that a test program made for itself; they end with its process number.
pub const OWN_PREFIX: &str = "e2e-";

/// Sandboxes of test programs that have ended.
pub fn left_behind() -> Vec<Instance> {
    let all = state::instances().unwrap_or_default().into_iter();
    all.filter(|instance| is_left_behind(instance.name(), OWN_PREFIX)).collect()
}

/// Whether something with this name, a prefix, a word and the number of a process, is of a process that has ended.
pub fn is_left_behind(name: &str, prefix: &str) -> bool {
    let pid = name.strip_prefix(prefix).and_then(|rest| rest.rsplit_once('-')?.1.parse().ok());
    pid.is_some_and(|pid| Process::find(pid).is_none())
}

/// Asks until the answer is `Ok`, and fails with the last reason when time is up.
///
/// Who waits leaves the machine to those it waits for: a question is mostly a `kubectl`, which takes longer to start than
/// to ask.
pub async fn eventually<T, E: Display>(
    what: &str,
    patience: Duration,
    mut ask: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    let begun = tokio::time::Instant::now();
    let deadline = begun + patience;
    let mut last = "no answer".to_owned();
    loop {
        let asked = tokio::time::Instant::now();
        match tokio::time::timeout_at(deadline, ask()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(reason)) => last = format!("{reason:#}"),
            Err(_) => {}
        }
        if tokio::time::Instant::now() >= deadline {
            bail!("{what}: not within {} s; the last reason was: {last}", patience.as_secs());
        }
        let pause = (asked.elapsed() * 3).max(begun.elapsed() / 10);
        let pause = pause.clamp(Duration::from_millis(100), Duration::from_secs(2));
        tokio::time::sleep_until((tokio::time::Instant::now() + pause).min(deadline)).await;
    }
}

/// Runs a command of the sandbox, its progress shown.
pub async fn run_sandbox(instance: &Instance, words: &[&str]) -> Result<()> {
    run_sandbox_with(instance, words, &[]).await
}

/// The same, with variables in its environment.
pub async fn run_sandbox_with(instance: &Instance, words: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let mut command = match std::env::var_os(PROGRAM_VARIABLE) {
        Some(program) => Command::new(program),
        None => {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            cargo.args(["run", "--bin", "sandbox", "--"]);
            cargo
        }
    };
    let status = command
        .current_dir(checkout())
        .args(["--name", instance.name()])
        .args(words)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .await
        .context("cannot run the sandbox")?;
    if !status.success() {
        bail!("`cargo sandbox --name {instance} {}` failed, see above", words.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn eventually_gives_the_first_good_answer() {
        let mut asked = 0;
        let answer = eventually("counting", Duration::from_secs(5), async || {
            asked += 1;
            if asked == 3 { Ok(asked) } else { Err("not yet") }
        });
        assert_eq!(answer.await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn eventually_says_why_it_gave_up() {
        let error = eventually("a pod runs", Duration::from_secs(5), async || Err::<(), _>("image missing"));
        let error = error.await.unwrap_err().to_string();
        assert!(error.contains("a pod runs") && error.contains("image missing"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn eventually_does_not_wait_for_an_answer_that_never_comes() {
        let never = eventually("an answer", Duration::from_secs(5), async || {
            std::future::pending::<Result<(), String>>().await
        });
        assert!(never.await.is_err());
    }
}
