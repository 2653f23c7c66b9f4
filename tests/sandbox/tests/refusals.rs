//! What the sandbox says when it cannot work here: one sentence, with what to do. No clusters are needed for that.

use std::{
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// A folder that everybody may read, with the program in it.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn new(name: &str) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("federlet-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        std::fs::copy(env!("CARGO_BIN_EXE_sandbox"), dir.join("sandbox"))?;
        Ok(Self(dir))
    }

    fn program(&self) -> PathBuf {
        self.0.join("sandbox")
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output().context("cannot run the sandbox")?;
    ensure!(!output.status.success());
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// One line, no stack trace, and it tells what to do.
fn is_one_clear_sentence(text: &str, needed: &[&str]) -> Result<()> {
    ensure!(text.trim().lines().count() == 1, "{text}");
    ensure!(!text.contains("panicked") && !text.contains("backtrace"), "{text}");
    for word in needed {
        ensure!(text.contains(word), "'{word}' is missing: {text}");
    }
    Ok(())
}

#[test]
fn without_root() -> Result<()> {
    let elsewhere = Elsewhere::new("root")?;
    for words in [&["up"][..], &["down"], &["status"]] {
        let text =
            said(Command::new(elsewhere.program()).args(words).env("HOME", "/tmp").uid(65534).gid(65534))?;
        is_one_clear_sentence(&text, &["needs root", "sudo"])?;
    }
    Ok(())
}

#[test]
fn without_go() -> Result<()> {
    let elsewhere = Elsewhere::new("go")?;
    for tool in ["unshare", "true"] {
        let found =
            ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(tool)).into_iter().find(|path| path.exists());
        symlink(found.context("util-linux is missing")?, elsewhere.0.join(tool))?;
    }
    let text =
        said(Command::new(elsewhere.program()).args(["--name", "t-nogo", "up"]).env("PATH", &elsewhere.0))?;
    is_one_clear_sentence(&text, &["Go is missing", "1.26", "PATH"])
}

#[test]
fn without_the_right_to_make_namespaces() -> Result<()> {
    let elsewhere = Elsewhere::new("namespaces")?;
    let refusing = elsewhere.0.join("unshare");
    std::fs::write(&refusing, "#!/bin/sh\necho 'unshare: Operation not permitted' >&2; exit 1\n")?;
    std::fs::set_permissions(&refusing, std::fs::Permissions::from_mode(0o755))?;
    let text =
        said(Command::new(elsewhere.program()).args(["--name", "t-nons", "up"]).env("PATH", &elsewhere.0))?;
    is_one_clear_sentence(&text, &["namespaces", "--privileged", "Operation not permitted"])
}

#[test]
fn without_a_place_for_the_cache() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
    let text =
        said(command.args(["--name", "t-nohome", "up"]).env_remove("HOME").env_remove("XDG_CACHE_HOME"))?;
    is_one_clear_sentence(&text, &["XDG_CACHE_HOME", "HOME"])
}

#[test]
fn with_wishes_that_cannot_be_met() -> Result<()> {
    for (words, needed) in [
        (&["--name", "A B", "up"][..], "cannot name a sandbox"),
        (&["--name", "t-wish", "up", "--kubernetes", "1.2.3"], "1.35.4"),
        (&["--name", "t-wish", "up", "--members", "1000"], "at most 100"),
        (&["--name", "t-wish", "up", "--kwok-nodes", "many"], "member1=100"),
        (&["--name", "t-wish", "up", "--kwok-nodes", "memberX=3"], "the members are"),
        (&["--name", "t-wish", "env"], "is not running"),
        (&["--name", "t-wish", "kubectl", "host", "get", "pods"], "cargo sandbox --name t-wish up"),
    ] {
        let text = said(Command::new(env!("CARGO_BIN_EXE_sandbox")).args(words))?;
        is_one_clear_sentence(&text, &[needed])?;
    }
    Ok(())
}
