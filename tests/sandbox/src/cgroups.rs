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
        fs::create_dir_all(parent.join(instance.name()).join(machine))?;
    }
    Ok(())
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
