//! One sandbox among others on the machine: its name and the places that belong to it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

/// Everything that sandboxes keep lies below this folder, whatever checkout started them, so that a second
/// checkout sees what the first one runs.
const BASE: &str = "/var/lib/federlet/sandbox";

/// Set in the environment of every process of a sandbox; the clean-up finds them by it.
pub const MARK: &str = "FEDERLET_SANDBOX_INSTANCE";

/// The sandbox that `cargo sandbox up` starts when no name is given.
pub const DEFAULT_NAME: &str = "demo";

/// The sandbox that the tests share.
pub const TEST_NAME: &str = "test";

/// The name of a sandbox, known to be valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance(String);

impl Instance {
    /// Accepts what can be part of a network namespace's name and of a path.
    pub fn new(name: &str) -> Result<Self> {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let valid = (1..=20).contains(&name.len())
            && name.starts_with(letters)
            && name.chars().all(|c| letters(c) || c == '-');
        if !valid {
            bail!("'{name}' cannot name a sandbox: use 1 to 20 of a-z, 0-9 and '-', a letter or digit first");
        }
        Ok(Self(name.to_owned()))
    }

    /// The plain name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The folder above all sandboxes.
    pub fn base() -> &'static Path {
        Path::new(BASE)
    }

    /// All that this sandbox keeps on disk.
    pub fn dir(&self) -> PathBuf {
        Self::base().join(&self.0)
    }

    /// What one cluster keeps on disk.
    pub fn cluster_dir(&self, cluster: &str) -> PathBuf {
        self.dir().join("clusters").join(cluster)
    }

    /// What one machine keeps on disk.
    pub fn machine_dir(&self, machine: &str) -> PathBuf {
        self.dir().join("machines").join(machine)
    }

    /// Lies outside [`Instance::dir`], so that removing a sandbox never removes the lock that guards it.
    pub fn lock_file(&self, purpose: &str) -> PathBuf {
        Self::base().join(format!(".{}.{purpose}.lock", self.0))
    }

    /// Where `ip netns` finds the namespace of a machine.
    pub fn netns(&self, machine: &str) -> String {
        format!("{}{machine}", self.netns_prefix())
    }

    /// What the names of all network namespaces of this sandbox begin with. The dot keeps `a` apart from `a-b`.
    pub fn netns_prefix(&self) -> String {
        format!("federlet.{}.", self.0)
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["demo", "test", "a", "skew-1-36", "0"] {
            assert!(Instance::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a/b", "..", "a.b", "a b", "abcdefghijklmnopqrstu"] {
            assert!(Instance::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_sandbox_never_claims_the_namespaces_of_another() {
        let short = Instance::new("a").unwrap();
        let long = Instance::new("a-b").unwrap();
        assert!(!long.netns("x").starts_with(&short.netns_prefix()));
    }
}
