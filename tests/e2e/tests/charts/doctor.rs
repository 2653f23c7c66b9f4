//! `federlet doctor` as a CronJob of chart federlet.

use anyhow::{Result, ensure};
use federlet_e2e::{SOON, fleet::federlet};
use federlet_sandbox::eventually;

use crate::installed::when_installed;

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_comes_by_itself_and_may_look_at_everything() -> Result<()> {
    when_installed(async |installed| {
        installed.member("h-well", "member1", &[]).await?;
        installed.member("h-own-well", "member2", &["--set=dedicated=true"]).await?;
        for node in ["h-well", "h-own-well"] {
            installed.answers(node).await?;
        }
        installed.upgrade(&["--set=doctor.enabled=true"]).await?;
        let own = installed.own();
        // Whoever takes over a member a moment after it was looked at is no fault of anybody.
        let said = eventually("everything is well", 4 * SOON, async || {
            own.run("delete job look --ignore-not-found").await?;
            own.run("create job look --from=cronjob/federlet-doctor").await?;
            let done = own.run("wait job/look --for=condition=Complete --timeout=30s").await;
            let said = own.run("logs job/look").await?;
            ensure!(done.is_ok(), "{said}");
            Ok(said)
        })
        .await?;
        for looked in [
            "✔ host: rights: federlet may do all that it must",
            "✔ host: webhook: the host asks, and is answered",
            "✔ h-well: kubelet API: the host reaches it",
            "✔ h-well: rights: our account may do all that it must",
            "✔ h-own-well: federlet serve: its own runs, and may do all that it must",
        ] {
            ensure!(said.contains(looked), "{looked:?} is not in:\n{said}");
        }
        ensure!(!said.lines().any(|line| line.starts_with('!')), "it may not look at everything:\n{said}");
        own.run("delete job look").await?;
        let binding = ["delete", "clusterrolebinding", "federlet:overrides:h-own-well"];
        installed.host.kubectl_output(&binding).await?;
        let kubeconfig = installed.host.admin_kubeconfig().to_string_lossy();
        let said =
            federlet(&["doctor", "--kubeconfig", &kubeconfig]).await.err().map(|error| error.to_string());
        let why =
            "✘ h-own-well: federlet serve: the account federlet-h-own-well may not: list propagationpolicies";
        ensure!(said.as_ref().is_some_and(|said| said.contains(why)), "{said:?}");
        installed.upgrade(&[]).await?;
        for release in ["h-well", "h-own-well"] {
            installed.helm.run(&["uninstall", release, "--wait", "--timeout=180s"]).await?;
        }
        Ok(())
    })
    .await
}
