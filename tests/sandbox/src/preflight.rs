//! What must be true of this machine before anything is touched, each with one sentence for when it is not.

use std::{fs, path::Path};

use anyhow::{Result, bail};

use crate::shell;

/// Refuses with the first thing that is missing and how to get it.
pub async fn check() -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("the sandbox needs Linux: it is made of Linux namespaces");
    }
    root()?;
    namespaces().await?;
    cgroups()?;
    file_watches()?;
    go().await
}

/// Also what commands ask that only look or stop.
pub fn root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "the sandbox needs root, to make network namespaces and run kubelets: run it as root, \
             for example with `sudo -E env PATH=\"$PATH\" cargo sandbox …`"
        );
    }
    Ok(())
}

async fn namespaces() -> Result<()> {
    let attempt =
        shell::run("unshare", ["--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--", "true"])
            .await;
    if let Err(error) = attempt {
        bail!(
            "this machine lets even root make no namespaces (in a container, start it with --privileged): {error}"
        );
    }
    Ok(())
}

fn cgroups() -> Result<()> {
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let probe = if unified { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/memory" };
    let folder = Path::new(probe).join(format!("federlet-probe-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&folder) {
        bail!("cgroups cannot be made below {probe} (in a container, start it with --privileged): {error}");
    }
    fs::remove_dir(&folder)?;
    Ok(())
}

/// A node takes about 20 of the kernel's file watchers, and most systems allow a user 128. The limits are only ever
/// raised, and stay raised: another program may have come to need them.
fn file_watches() -> Result<()> {
    for (limit, needed) in [("max_user_instances", 8192), ("max_user_watches", 524_288)] {
        let path = format!("/proc/sys/fs/inotify/{limit}");
        let current = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if current.is_some_and(|current| current < needed)
            && let Err(error) = fs::write(&path, needed.to_string())
        {
            bail!(
                "kubelets need more file watchers than fs.inotify.{limit} allows, and it cannot be raised here ({error}): \
                 run `sysctl fs.inotify.{limit}={needed}` on the machine that this container runs on"
            );
        }
    }
    Ok(())
}

async fn go() -> Result<()> {
    if shell::which("go").is_none() {
        bail!(
            "Go is missing, which builds Kubernetes from source: install Go 1.26 or newer (https://go.dev/dl) \
             and put it on PATH"
        );
    }
    let version = shell::run("go", ["env", "GOVERSION"]).await?;
    if let Some(old) = too_old(version.trim()) {
        bail!("Go {old} is too old: install Go 1.26 or newer (https://go.dev/dl)");
    }
    Ok(())
}

/// From 1.21 on, go fetches the toolchain that a module asks for.
fn too_old(version: &str) -> Option<&str> {
    let number = version.strip_prefix("go")?;
    let mut parts = number.split(['.', '-', ' ', 'r', 'b']);
    let major: u32 = parts.next()?.parse().ok()?;
    let minor: u32 = parts.next()?.parse().ok()?;
    ((major, minor) < (1, 21)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_go_that_cannot_fetch_its_successor_is_too_old() {
        for new in ["go1.26.8", "go1.21", "go1.27rc1", "go1.26-custom", "devel"] {
            assert_eq!(too_old(new), None, "{new}");
        }
        assert_eq!(too_old("go1.19.8"), Some("1.19.8"));
    }
}
