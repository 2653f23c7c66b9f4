//! Kubernetes and its friends, built from source by the Go toolchain into a cache that all checkouts share.
//!
//! Each folder under `builds/` is a Go module that pins, by go.mod and go.sum, everything one set of programs is
//! made of. A set is built once: its place in the cache carries a digest of all that went into it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::{
    plan::DEFAULT_KUBERNETES,
    progress::{Progress, Step},
};

const KUBERNETES_PROGRAMS: [&str; 6] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "kube-proxy"];

/// Single programs: name, version, and the Go package that they are.
const ETCD: Single =
    Single { program: "etcd", version: "3.6.8", package: "go.etcd.io/etcd/server/v3", stamp: "" };
const HELM: Single = Single {
    program: "helm",
    version: "3.21.4",
    package: "helm.sh/helm/v3/cmd/helm",
    stamp: "-X helm.sh/helm/v3/internal/version.version=v3.21.4",
};
const KWOK: Single =
    Single { program: "kwok", version: "0.7.0", package: "sigs.k8s.io/kwok/cmd/kwok", stamp: "" };
const METRICS_SERVER: Single = Single {
    program: "metrics-server",
    version: "0.8.0",
    package: "sigs.k8s.io/metrics-server/cmd/metrics-server",
    stamp: "",
};
const COREDNS: Single = Single { program: "coredns", version: "1.13.1", package: ".", stamp: "" };

/// For tests alone, and for clusters of the default version.
const RESIDENT_KUBECTL: Single =
    Single { program: "kubectl-that-stays", version: DEFAULT_KUBERNETES, package: ".", stamp: "" };

struct Single {
    program: &'static str,
    version: &'static str,
    package: &'static str,
    /// What tells it its own version, where nothing else does.
    stamp: &'static str,
}

/// Finds built programs.
#[derive(Debug, Clone)]
pub struct Binaries {
    cache: PathBuf,
}

/// A set of programs out of one Go module.
struct Set {
    module: String,
    /// Pairs of program and Go package.
    programs: Vec<(String, String)>,
    linker_flags: String,
}

impl Binaries {
    /// Looks into the user's cache; builds nothing.
    pub fn new() -> Result<Self> {
        let cache = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
            (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
            (_, Some(home)) => PathBuf::from(home).join(".cache"),
            _ => bail!("neither XDG_CACHE_HOME nor HOME is set, so there is no place for the cache"),
        };
        Ok(Self { cache: cache.join("federlet") })
    }

    /// Builds what is missing for these versions of Kubernetes.
    pub async fn ensure(&self, kubernetes: &[&str], progress: &Progress) -> Result<()> {
        let mut sets = Vec::new();
        for version in kubernetes {
            sets.push(Set::kubernetes(version)?);
        }
        sets.extend([ETCD.set(), COREDNS.set(), HELM.set(), KWOK.set(), METRICS_SERVER.set()]);
        let mut missing = false;
        for set in &sets {
            missing |= !self.is_complete(set)?;
        }
        if missing {
            progress.line("Building from source what the clusters run: 10 to 25 minutes on two cores, once.");
        }
        for set in sets {
            self.ensure_set(&set, progress).await?;
        }
        Ok(())
    }

    /// Builds what tests need besides.
    pub async fn ensure_for_tests(&self, progress: &Progress) -> Result<()> {
        self.ensure_set(&RESIDENT_KUBECTL.set(), progress).await
    }

    /// A kubectl that runs many commands in one process.
    pub fn resident_kubectl(&self) -> Result<PathBuf> {
        self.built(&RESIDENT_KUBECTL.set(), RESIDENT_KUBECTL.program)
    }

    /// A program of Kubernetes.
    pub fn kubernetes(&self, version: &str, program: &str) -> Result<PathBuf> {
        self.built(&Set::kubernetes(version)?, program)
    }

    /// The store of every cluster.
    pub fn etcd(&self) -> Result<PathBuf> {
        self.built(&ETCD.set(), ETCD.program)
    }

    /// The cluster's DNS server.
    pub fn coredns(&self) -> Result<PathBuf> {
        self.built(&COREDNS.set(), COREDNS.program)
    }

    /// Installs charts.
    pub fn helm(&self) -> Result<PathBuf> {
        self.built(&HELM.set(), HELM.program)
    }

    /// Collects what pods use.
    pub fn metrics_server(&self) -> Result<PathBuf> {
        self.built(&METRICS_SERVER.set(), METRICS_SERVER.program)
    }

    /// Plays nodes.
    pub fn kwok(&self) -> Result<PathBuf> {
        self.built(&KWOK.set(), KWOK.program)
    }

    fn built(&self, set: &Set, program: &str) -> Result<PathBuf> {
        let path = self.set_dir(set)?.join(program);
        if !path.is_file() {
            bail!("{program} ({}) is not built: `cargo sandbox up` builds it", set.module);
        }
        Ok(path)
    }

    fn is_complete(&self, set: &Set) -> Result<bool> {
        let dir = self.set_dir(set)?;
        Ok(set.programs.iter().all(|(program, _)| dir.join(program).is_file()))
    }

    fn set_dir(&self, set: &Set) -> Result<PathBuf> {
        Ok(self.cache.join("bin").join(format!("{}-{}", set.module, set.digest()?)))
    }

    async fn ensure_set(&self, set: &Set, progress: &Progress) -> Result<()> {
        let dir = self.set_dir(set)?;
        let missing =
            || set.programs.iter().filter(|(name, _)| !dir.join(name).is_file()).collect::<Vec<_>>();
        if missing().is_empty() {
            return Ok(());
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot write to the cache {}", dir.display()))?;
        let _guard = self.guard(&dir, set, progress).await?;
        for (program, package) in set.programs.iter().filter(|(program, _)| !dir.join(program).is_file()) {
            let step = progress.step(format!("build {program} {}", set.version()));
            build(set, package, &dir.join(program), &step).await?;
            step.done("");
        }
        Ok(())
    }

    /// Another checkout may be building the same; then its result is ours too.
    async fn guard(&self, dir: &Path, set: &Set, progress: &Progress) -> Result<File> {
        let file = File::create(dir.join(".lock"))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let step = progress.step(format!("wait for {}", set.module));
            step.say("another process builds it");
            while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
            step.done("built by another process");
        }
        Ok(file)
    }
}

impl Single {
    fn set(&self) -> Set {
        Set {
            module: format!("{}-{}", self.program, self.version),
            programs: vec![(self.program.to_owned(), self.package.to_owned())],
            linker_flags: format!("-s -w {}", self.stamp),
        }
    }
}

impl Set {
    fn kubernetes(version: &str) -> Result<Self> {
        let known = kubernetes_versions();
        if !known.iter().any(|v| v == version) {
            bail!("Kubernetes {version} is not among those that the sandbox can build: {}", known.join(", "));
        }
        let mut parts = version.split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // Built outside of its own repository, Kubernetes would call itself v0.0.0.
        let stamps = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
            format!("-X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
        });
        Ok(Self {
            module: format!("kubernetes-{version}"),
            programs: KUBERNETES_PROGRAMS
                .map(|name| (name.to_owned(), format!("k8s.io/kubernetes/cmd/{name}")))
                .to_vec(),
            linker_flags: format!("-s -w {}", stamps.join(" ")),
        })
    }

    fn dir(&self) -> PathBuf {
        modules_dir().join(&self.module)
    }

    fn version(&self) -> &str {
        self.module.rsplit_once('-').map_or("", |(_, version)| version)
    }

    /// Of all that decides what the programs will be.
    fn digest(&self) -> Result<String> {
        let mut digest = Sha256::new();
        digest.update(&self.linker_flags);
        for file in ["go.mod", "go.sum", "main.go"] {
            let path = self.dir().join(file);
            match fs::read(&path) {
                Ok(text) => digest.update(text),
                Err(_) if file == "main.go" => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        Ok(digest.finalize()[..4].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The versions of Kubernetes for which there is a Go module here, oldest first.
pub fn kubernetes_versions() -> Vec<String> {
    let Ok(dir) = fs::read_dir(modules_dir()) else {
        return Vec::new();
    };
    let mut versions: Vec<String> = dir
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_prefix("kubernetes-")?.to_owned()))
        .collect();
    versions.sort();
    versions
}

fn modules_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("builds")
}

/// Builds one program, counting its packages as the compiler names them.
async fn build(set: &Set, package: &str, target: &Path, step: &Step) -> Result<()> {
    step.say("downloading its sources");
    let listed = crate::shell::output(go(set).args(["list", "-deps", package])).await?;
    let total = listed.lines().count() as u64;
    // An interrupted build must not look like a finished one.
    let draft = target.with_extension("draft");
    let mut command = go(set);
    command.args(["build", "-v", "-trimpath", "-ldflags", &set.linker_flags, "-o"]).arg(&draft).arg(package);
    let mut seen = 0;
    // With -v, go prints the name of each package that it compiles, and nothing else unless it fails.
    let count = |line: &str| {
        if !line.contains(' ') {
            seen += 1;
            step.at(seen, total);
        }
    };
    crate::shell::watch(&mut command, count).await?;
    fs::rename(&draft, target).with_context(|| format!("cannot keep {}", target.display()))
}

fn go(set: &Set) -> Command {
    let mut command = Command::new("go");
    // Static programs run on any machine and in any image; what the user set for their own projects stays out.
    command.current_dir(set.dir()).env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false");
    command.env("GOWORK", "off");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_version_can_be_built_and_others_too() {
        let versions = kubernetes_versions();
        assert!(versions.iter().any(|v| v == DEFAULT_KUBERNETES), "{versions:?}");
        assert!(versions.len() >= 3, "{versions:?}");
    }

    #[test]
    fn an_unknown_version_is_refused_with_those_that_are_known() {
        let error = Set::kubernetes("1.2.3").err().unwrap().to_string();
        assert!(error.contains("1.35.4"), "{error}");
    }

    #[test]
    fn every_set_has_its_module_and_a_digest_of_its_own() {
        let sets = [
            ETCD.set(),
            HELM.set(),
            KWOK.set(),
            COREDNS.set(),
            RESIDENT_KUBECTL.set(),
            Set::kubernetes("1.35.4").unwrap(),
        ];
        let digests: std::collections::HashSet<_> = sets.iter().map(|set| set.digest().unwrap()).collect();
        assert_eq!(digests.len(), sets.len());
    }
}
