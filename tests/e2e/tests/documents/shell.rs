//! A terminal, or two.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, process::Stdio};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{SOON, here::program, own::Own};
use federlet_sandbox::{Cluster, testing::PROGRAM_VARIABLE, up::checkout};
use tokio::process::{Child, Command};

/// A shell in a folder of its own, where the kubeconfigs are; the programs are on the PATH.
pub(crate) struct Shell {
    folder: PathBuf,
    path: String,
    /// What was typed before each command.
    first: String,
    running: Vec<Child>,
}

impl Shell {
    pub(crate) async fn open(name: &str, host: &Cluster, files: &[(&str, &Cluster)]) -> Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("federlet-e2e-documents-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        for (name, cluster) in files {
            std::fs::copy(cluster.admin_kubeconfig(), folder.join(name))?;
        }
        let kubectl = host.kubectl()?.as_std().get_program().to_owned();
        let kubectl = PathBuf::from(kubectl).parent().context("no folder")?.display().to_string();
        let federlet = program().await?.parent().context("no folder")?.display().to_string();
        let path = format!("{federlet}:{kubectl}:{}", std::env::var("PATH").unwrap_or_default());
        let first = "export KUBECONFIG=$PWD/host.kubeconfig".to_owned();
        Ok(Self { folder, path, first, running: vec![] })
    }

    /// In this checkout, beside a sandbox that is not the default one, and with nothing on the PATH but what that gives.
    pub(crate) async fn in_sandbox(mut self, own: &Own) -> Result<Self> {
        let bin = self.folder.join("bin");
        std::fs::create_dir_all(&bin)?;
        let sandbox = match std::env::var(PROGRAM_VARIABLE) {
            Ok(program) => program,
            Err(_) => program().await?.with_file_name("sandbox").display().to_string(),
        };
        let script = format!("#!/bin/sh\n[ \"$1\" = sandbox ] || exit 1\nshift\nexec {sandbox} \"$@\"\n");
        std::fs::write(bin.join("cargo"), script)?;
        std::fs::set_permissions(bin.join("cargo"), std::fs::Permissions::from_mode(0o755))?;
        self.path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        self.first = format!(
            "export FEDERLET_SANDBOX={} CARGO={} && cd {} && eval \"$(cargo sandbox env)\" && cd {}",
            own.name(),
            std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()),
            checkout().display(),
            self.folder.display(),
        );
        // Files of the checkout that are named in commands, and none that commands write there.
        std::os::unix::fs::symlink(checkout().join("examples"), self.folder.join("examples"))?;
        Ok(self)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("{} && {line}", self.first)])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, line: &str) -> Result<String> {
        let output = tokio::time::timeout(4 * SOON, self.command(line).output())
            .await
            .with_context(|| format!("`{line}` does not end"))??;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "`{line}`: {}{}", said(&output.stdout), said(&output.stderr));
        Ok(said(&output.stdout))
    }

    /// What goes on in another terminal while the next commands are typed.
    pub(crate) fn beside(&mut self, line: &str) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        // Or only the shell is ended in the end.
        let mut command = self.command(&format!("exec {line}"));
        self.running.push(command.stdout(Stdio::null()).stderr(log).spawn()?);
        Ok(())
    }

    /// Ends what goes on there.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        for mut child in self.running.drain(..) {
            child.kill().await?;
        }
        Ok(())
    }

    /// The last of what they said there.
    pub(crate) fn tail(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
