//! Where the containers of a sandbox are accounted: below one cgroup, so that nothing of it is left behind.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::Instance;

const ROOT: &str = "/sys/fs/cgroup";
const PARENT: &str = "federlet-sandbox";

/// To the kernel, all containers of all sandboxes are one, beside each single process outside of cgroups; they are worth ten
/// of those. The defaults are 1024 and 100.
const SHARE_OF_VERSION_1: &str = "10240";
const SHARE_OF_VERSION_2: &str = "1000";

/// The cgroup of one machine, as a kubelet names it.
pub fn path(instance: &Instance, machine: &str) -> String {
    format!("/{PARENT}/{instance}/{machine}")
}

/// Makes it in every tree: one per controller where cgroups are of version 1, a single one where they are of version 2.
pub fn create(instance: &Instance, machine: &str) -> Result<()> {
    for root in roots() {
        let parent = root.join(PARENT);
        fs::create_dir_all(&parent).with_context(|| format!("cannot make cgroup {}", parent.display()))?;
        // Without it, children of version 1's cpuset start with no processor at all.
        if parent.join("cgroup.clone_children").exists() && root.ends_with("cpuset") {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(parent.join(file), fs::read(root.join(file))?)?;
            }
            fs::write(parent.join("cgroup.clone_children"), "1")?;
        }
        let all = parent.join(instance.name());
        fs::create_dir_all(all.join(machine))?;
        if root == Path::new(ROOT) {
            [&root, &parent, &all].into_iter().for_each(|dir| hand_down(dir));
        }
        // Where cgroups are of version 2, the file is there once the controller is.
        for (file, share) in [("cpu.shares", SHARE_OF_VERSION_1), ("cpu.weight", SHARE_OF_VERSION_2)] {
            if parent.join(file).exists() {
                fs::write(parent.join(file), share)?;
            }
        }
    }
    Ok(())
}

/// Where cgroups are of version 2, gives those below a cgroup the controllers that it has: a kubelet needs them there.
fn hand_down(dir: &Path) {
    let controllers = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    let control = dir.join("cgroup.subtree_control");
    for controller in controllers.split_whitespace() {
        // One by one: the kernel keeps some for itself at times, and then refuses all that were asked for at once.
        fs::write(&control, format!("+{controller}")).ok();
    }
}

/// Whether a kubelet can have a cgroup for each pod there: where cgroups are of version 2, all that it asks for must have
/// been handed down.
pub fn suits_pods(instance: &Instance, machine: &str) -> bool {
    let controllers = |dir: &Path| fs::read_to_string(dir.join("cgroup.controllers"));
    let Ok(all) = controllers(Path::new(ROOT)) else { return true };
    let own = Path::new(ROOT).join(PARENT).join(instance.name()).join(machine);
    let own = controllers(&own).unwrap_or_default();
    let has = |list: &str, name: &str| list.split_whitespace().any(|one| one == name);
    ["cpu", "cpuset", "hugetlb", "memory", "pids"].into_iter().all(|name| has(&own, name) || !has(&all, name))
}

/// The cgroups of a sandbox that exist.
pub fn dirs(instance: &Instance) -> Vec<PathBuf> {
    roots()
        .into_iter()
        .map(|root| root.join(PARENT).join(instance.name()))
        .filter(|dir| dir.is_dir())
        .collect()
}

/// Removes them; their processes must be dead.
pub async fn remove(instance: &Instance) -> Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    for dir in dirs(instance) {
        while let Err(error) = remove_tree(&dir) {
            // The last process of a group leaves it a moment after it died.
            if tokio::time::Instant::now() > deadline {
                return Err(error).with_context(|| format!("cannot remove cgroup {}", dir.display()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if let Some(parent) = dir.parent() {
            // Shared with other sandboxes; goes with the last one.
            fs::remove_dir(parent).ok();
        }
    }
    Ok(())
}

fn roots() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let Ok(dir) = fs::read_dir(root) else {
        return Vec::new();
    };
    dir.filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("tasks").exists() || path.join("cgroup.controllers").exists())
        .collect()
}

/// A cgroup is removed by removing its folder, not the files in it.
fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_tree(&path)?;
        }
    }
    fs::remove_dir(dir)
}
