//! Least rights: what was granted in either cluster, against what all other tests together used of it.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context, Result, ensure};
use federlet_provider::rights::{Right, all_host_rights, all_member_rights};
use federlet_sandbox::{Cluster, Instance, Sandbox, test_run::ALL_VARIABLE};
use serde_json::Value;

/// Who asks, on the host and in members.
const ON_HOST: &str = "system:serviceaccount:federlet-system:federlet";
const IN_MEMBER: &str = "system:serviceaccount:federlet-host-";

/// Something done to a resource: its group, its name with its part, and the verb.
type Deed = (String, String, String);

#[tokio::test(flavor = "multi_thread")]
async fn every_right_that_is_granted_was_used() -> Result<()> {
    let Ok(sandboxes) = std::env::var(ALL_VARIABLE) else {
        eprintln!("nothing to compare: this needs what all tests together did, so run `cargo sandbox test`");
        return Ok(());
    };
    let (mut on_host, mut in_members) = (BTreeSet::new(), BTreeSet::new());
    for name in sandboxes.split(',') {
        let sandbox = Sandbox::attach(&Instance::new(name)?)?;
        on_host.extend(deeds(&sandbox.cluster("host")?, |user| user == ON_HOST)?);
        for member in ["member1", "member2", "edge"] {
            in_members.extend(deeds(&sandbox.cluster(member)?, |user| user.starts_with(IN_MEMBER))?);
        }
    }
    ensure!(!on_host.is_empty() && !in_members.is_empty(), "the audit logs know nothing of us");
    let (host, members) = (unused(all_host_rights(), &on_host), unused(all_member_rights(), &in_members));
    ensure!(
        host.is_empty() && members.is_empty(),
        "never used on the host: {host:?}; in members: {members:?}"
    );
    let account =
        [("", "serviceaccounts/token", "create"), ("rbac.authorization.k8s.io", "clusterroles", "delete")];
    for (group, resource, verb) in account {
        ensure!(was_used(&in_members, group, resource, verb), "{verb} {resource} was never used in a member");
    }
    Ok(())
}

fn unused<'a>(rights: impl IntoIterator<Item = &'a Right>, deeds: &BTreeSet<Deed>) -> Vec<String> {
    let mut unused = vec![];
    for right in rights {
        let used = |resource: &str, verb: &str| was_used(deeds, right.group, resource, verb);
        // One piece of code does the same to all kinds of a row: each verb has to be used on some, each kind somehow.
        let verbs = right.verbs.iter().filter(|verb| !right.resources.iter().any(|kind| used(kind, verb)));
        unused.extend(verbs.map(|verb| format!("{verb} {:?} {}", right.resources, right.group)));
        let kinds = right.resources.iter().filter(|kind| !right.verbs.iter().any(|verb| used(kind, verb)));
        unused.extend(kinds.map(|kind| format!("{kind} {}", right.group)));
    }
    unused
}

fn was_used(deeds: &BTreeSet<Deed>, group: &str, resource: &str, verb: &str) -> bool {
    let has = |group: &str, resource: &str, verb: &str| {
        deeds.contains(&(group.to_owned(), resource.to_owned(), verb.to_owned()))
    };
    match (resource, verb) {
        // An API server asks for both verbs when somebody opens a stream by websocket.
        ("pods/exec" | "pods/attach" | "pods/portforward", _) => {
            has(group, resource, "get") || has(group, resource, "create")
        }
        // Asked for within another request.
        ("signers", "approve") => has(group, "certificatesigningrequests/approval", "patch"),
        // Whoever writes roles and bindings is asked for these, too.
        (_, "escalate" | "bind") => has(group, resource, "patch"),
        // Applying makes what is not there yet, which is logged as a patch.
        (_, "create") => has(group, resource, "create") || has(group, resource, "patch"),
        // An owner that the watch has not brought yet is asked for: a race that no test can win for each kind.
        ("replicasets" | "statefulsets" | "daemonsets" | "jobs" | "cronjobs", "get") => {
            has("apps", "deployments", "get") || has(group, resource, "get")
        }
        _ => has(group, resource, verb),
    }
}

/// What an account did, as an audit log has it.
fn deeds(cluster: &Cluster, is_ours: impl Fn(&str) -> bool) -> Result<BTreeSet<Deed>> {
    let mut deeds = BTreeSet::new();
    for file in logs(&cluster.audit_log())? {
        let log = std::fs::read_to_string(&file)?;
        for line in log.lines().filter(|line| line.contains("federlet")) {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let user = event["user"]["username"].as_str().unwrap_or_default();
            // Tokens are shown to the kubelet API of `federlet node`, which the tests run with another account.
            let reviews = event["objectRef"]["resource"] == "tokenreviews"
                && event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("federlet/"));
            if !is_ours(user) && !reviews {
                continue;
            }
            if event["impersonatedUser"].is_object() {
                for kind in ["groups", "users"] {
                    deeds.insert((String::new(), kind.into(), "impersonate".into()));
                }
                continue;
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &event["objectRef"];
            let mut resource = text(&object["resource"]);
            if let Some(part) = object["subresource"].as_str() {
                resource = format!("{resource}/{part}");
            }
            let deed = (text(&object["apiGroup"]), resource, text(&event["verb"]));
            // Whoever reads the log must see which part of us it was.
            let agent = text(&event["userAgent"]);
            ensure!(agent.starts_with("federlet/") && agent.ends_with(')'), "{deed:?} by {agent:?}");
            deeds.insert(deed);
        }
    }
    Ok(deeds)
}

/// The log of now and those before it.
fn logs(current: &Path) -> Result<Vec<std::path::PathBuf>> {
    let folder = current.parent().context("no folder")?;
    let mut all = vec![];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("audit") && name.ends_with(".log") {
            all.push(path);
        }
    }
    Ok(all)
}
