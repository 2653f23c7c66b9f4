//! What comes from the distribution: installed when it is missing, left alone when it is there.

use std::path::Path;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::{images, progress::Progress, shell};

/// A package and what proves that it, or something like it, is installed.
struct Package {
    name: &'static str,
    provides: Proof,
}

enum Proof {
    Program(&'static str),
    File(&'static str),
    StaticBusybox,
}

const PACKAGES: [Package; 9] = [
    Package { name: "containerd", provides: Proof::Program("containerd") },
    Package { name: "runc", provides: Proof::Program("runc") },
    Package { name: "containernetworking-plugins", provides: Proof::File("/usr/lib/cni/ptp") },
    Package { name: "iproute2", provides: Proof::Program("ip") },
    Package { name: "iptables", provides: Proof::Program("iptables") },
    Package { name: "busybox-static", provides: Proof::StaticBusybox },
    Package { name: "util-linux", provides: Proof::Program("nsenter") },
    Package { name: "mount", provides: Proof::Program("mount") },
    Package { name: "ca-certificates", provides: Proof::File(images::AUTHORITIES) },
];

/// Installs what is missing.
pub async fn ensure(progress: &Progress) -> Result<()> {
    let missing: Vec<&str> = PACKAGES.iter().filter(|p| !p.is_there()).map(|p| p.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if shell::which("apt-get").is_none() {
        bail!(
            "these are missing and there is no apt-get to install them: {}. Install them with your \
             distribution's own means",
            missing.join(", ")
        );
    }
    let step = progress.step("install packages");
    step.say(missing.join(", "));
    let fix = || format!("cannot install {0}; try `apt-get install {0}` yourself", missing.join(" "));
    shell::output(apt().args(["update", "-q"])).await.with_context(fix)?;
    shell::output(apt().args(["install", "-q", "-y", "--no-install-recommends"]).args(&missing))
        .await
        .with_context(fix)?;
    let still: Vec<&str> = PACKAGES.iter().filter(|p| !p.is_there()).map(|p| p.name).collect();
    if !still.is_empty() {
        bail!("apt-get installed {}, but they are not where they should be", still.join(", "));
    }
    step.done(missing.join(", "));
    Ok(())
}

impl Package {
    fn is_there(&self) -> bool {
        match self.provides {
            Proof::Program(program) => shell::which(program).is_some(),
            Proof::File(path) => Path::new(path).exists(),
            Proof::StaticBusybox => images::static_busybox().is_some(),
        }
    }
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
