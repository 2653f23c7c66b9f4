//! What a running sandbox is, written down for every later command.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{
    Instance,
    plan::{MAX_SANDBOXES, Plan, Shape, Subnet},
};

/// The contents of `state.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// What was asked for.
    pub shape: Shape,
    /// What it became.
    pub plan: Plan,
    /// The checkout that started it; its `target/sandbox` has the kubeconfigs.
    pub checkout: PathBuf,
    /// When it was started.
    pub started: jiff::Timestamp,
    /// False until every cluster is up.
    pub ready: bool,
}

impl State {
    /// Reads it; `None` when no such sandbox was started.
    pub fn load(instance: &Instance) -> Result<Option<Self>> {
        let path = path(instance);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let state = serde_json::from_str(&text).with_context(|| {
            format!("{} is damaged: run `cargo sandbox --name {instance} down`", path.display())
        })?;
        Ok(Some(state))
    }

    /// Reads that of a sandbox which must be running.
    pub fn running(instance: &Instance) -> Result<Self> {
        match Self::load(instance)? {
            Some(state) if state.ready => Ok(state),
            Some(_) => {
                bail!("sandbox '{instance}' did not come up: run `cargo sandbox --name {instance} up`")
            }
            None => bail!(
                "sandbox '{instance}' is not running: start it with `cargo sandbox --name {instance} up`"
            ),
        }
    }

    /// Writes it in one step, so that a reader never sees half of it.
    pub fn save(&self, instance: &Instance) -> Result<()> {
        let path = path(instance);
        let draft = path.with_extension("draft");
        fs::create_dir_all(instance.dir())?;
        fs::write(&draft, serde_json::to_string_pretty(self)?)?;
        fs::rename(&draft, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Where people find this cluster's kubeconfig.
    pub fn kubeconfig(&self, instance: &Instance, cluster: &str) -> PathBuf {
        kubeconfig_dir(&self.checkout, instance).join(format!("{cluster}.kubeconfig"))
    }
}

/// The demo's kubeconfigs lie where the README says; another sandbox's in a folder of their own beside them.
pub fn kubeconfig_dir(checkout: &std::path::Path, instance: &Instance) -> PathBuf {
    let dir = checkout.join("target/sandbox");
    if instance.name() == crate::instance::DEFAULT_NAME { dir } else { dir.join(instance.name()) }
}

/// Every sandbox on this machine.
pub fn instances() -> Result<Vec<Instance>> {
    let Ok(dir) = fs::read_dir(Instance::base()) else {
        return Ok(Vec::new());
    };
    let mut found: Vec<Instance> = dir
        .filter_map(|entry| Instance::new(entry.ok()?.file_name().to_str()?).ok())
        .filter(|instance| path(instance).exists())
        .collect();
    found.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(found)
}

/// A network that no other sandbox has.
pub fn free_subnet(instance: &Instance) -> Result<Subnet> {
    let mut taken = Vec::new();
    for other in instances()? {
        if other != *instance {
            // A damaged neighbour must not keep this one from starting; its interface still blocks its network.
            taken.extend(State::load(&other).ok().flatten().map(|state| state.plan.subnet.index()));
        }
    }
    let free = |index: &u8| {
        let link = format!("/sys/class/net/{}", crate::network::link_name(*index));
        !taken.contains(index) && !std::path::Path::new(&link).exists()
    };
    Subnet::new((0..MAX_SANDBOXES).find(free).unwrap_or(MAX_SANDBOXES))
}

fn path(instance: &Instance) -> PathBuf {
    instance.dir().join("state.json")
}
