//! Who may change a sandbox now. The kernel lets go of a lock when its holder ends, however it ends.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, Write},
};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::Instance;

/// What a lock is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Starting, stopping or rearranging the sandbox.
    Change,
    /// Working with it: nobody else may stop it meanwhile.
    Use,
    /// Starting it for tests: the first does, the others wait.
    Start,
    /// Choosing a network: one for all sandboxes, so that two never choose the same.
    Allocate,
}

/// A person reads this to learn whom to ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process that holds the lock.
    pub pid: u32,
    /// What it does.
    pub doing: String,
    /// The folder it was started in.
    pub folder: String,
    /// When it began.
    pub since: jiff::Timestamp,
}

/// Held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or says who has it.
    pub fn take(instance: &Instance, purpose: Purpose, doing: &str) -> Result<Self> {
        match Self::attempt(instance, purpose, doing)? {
            Ok(lock) => Ok(lock),
            Err(holder) => bail!(
                "sandbox '{instance}' is held by process {} (`{}` in {}, since {}). Wait for it or stop it; \
                 or work beside it with `cargo sandbox --name OTHER …`",
                holder.pid,
                holder.doing,
                holder.folder,
                holder.since.strftime("%F %T UTC"),
            ),
        }
    }

    /// Takes the lock as soon as it is free.
    pub async fn wait(instance: &Instance, purpose: Purpose, doing: &str) -> Result<Self> {
        loop {
            if let Ok(lock) = Self::attempt(instance, purpose, doing)? {
                return Ok(lock);
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// The one who has it now, if anyone.
    pub fn holder(instance: &Instance, purpose: Purpose) -> Result<Option<Holder>> {
        Ok(Self::attempt(instance, purpose, "looking")?.err())
    }

    fn attempt(instance: &Instance, purpose: Purpose, doing: &str) -> Result<Result<Self, Holder>> {
        let path = match purpose {
            Purpose::Change => instance.lock_file("change"),
            Purpose::Use => instance.lock_file("use"),
            Purpose::Start => instance.lock_file("start"),
            Purpose::Allocate => Instance::base().join(".allocate.lock"),
        };
        let open = || {
            fs::create_dir_all(Instance::base())?;
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)
        };
        let mut file = open().with_context(|| format!("cannot open the lock {}", path.display()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut text = String::new();
            file.read_to_string(&mut text).ok();
            // The holder may be about to write its name; the caller only loses some words.
            return Ok(Err(serde_json::from_str(&text).unwrap_or_else(|_| Holder {
                pid: 0,
                doing: "unknown".to_owned(),
                folder: "unknown".to_owned(),
                since: jiff::Timestamp::now(),
            })));
        }
        let holder = Holder {
            pid: std::process::id(),
            doing: doing.to_owned(),
            folder: std::env::current_dir().unwrap_or_default().display().to_string(),
            since: jiff::Timestamp::now(),
        };
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(serde_json::to_string(&holder)?.as_bytes())?;
        Ok(Ok(Self { _file: file }))
    }
}
