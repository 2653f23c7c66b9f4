use serde_json::Value;

use super::Context;
use crate::{
    json::{Object, each_container, items_mut, list_mut, object_mut},
    target::ApiAccess,
    version::Version,
};

/// Fields of the spec that are the host's alone.
///
/// Decisions of its scheduler and of its admission (`priority` and `preemptionPolicy` come from the class,
/// `overhead` from the runtime class: the member's admission writes its own and rejects others), identities that
/// exist only there, readiness gates, whose conditions are written on the host: there the pod's readiness is
/// put together; and who is asked before an eviction, which are controllers of the host.
const HOSTS_OWN: [&str; 11] = [
    "nodeName",
    "priority",
    "preemptionPolicy",
    "overhead",
    "schedulingGates",
    "serviceAccountName",
    "serviceAccount",
    "readinessGates",
    "workloadRef",
    "schedulingGroup",
    "evictionResponders",
];

const DEFAULT_ACCOUNT: &str = "default";
const DEFAULT_SCHEDULER: &str = "default-scheduler";

pub(super) fn rewrite(spec: &mut Object, context: &mut Context<'_>) {
    for field in HOSTS_OWN {
        spec.remove(field);
    }
    account(context);
    scheduler(spec, context);
    priority(spec, context);
    host_alias(spec, context);
    by_version(spec, context);
}

/// Where pods talk to the host, or to nobody, the account is the host's, and so is its token.
fn account(context: &mut Context<'_>) {
    let name = context.host.service_account();
    if context.target.api == ApiAccess::Member && name != DEFAULT_ACCOUNT {
        context.tell(
            "ServiceAccountNotUsed",
            format_args!(
                "service account {name:?} is the host's: to the member's API server the pod is the default account of its \
                 namespace there"
            ),
        );
    }
}

fn scheduler(spec: &mut Object, context: &mut Context<'_>) {
    let Some(Value::String(name)) = spec.remove("schedulerName") else { return };
    if !name.is_empty() && name != DEFAULT_SCHEDULER {
        context.tell(
            "SchedulerNotFound",
            format_args!("the member has no scheduler {name:?}: its default one is used"),
        );
    }
}

fn priority(spec: &mut Object, context: &mut Context<'_>) {
    let Some(Value::String(class)) = spec.remove("priorityClassName") else { return };
    // The two system classes are in every cluster; whether they may be used was decided before.
    let offered = &context.target.offers.priority_classes;
    if class.starts_with("system-") || offered.as_ref().is_some_and(|offered| offered.contains(&class)) {
        spec.insert("priorityClassName".into(), class.into());
    } else if !class.is_empty() {
        context.tell(
            "PriorityClassNotFound",
            format_args!("the member has no priority class {class:?}: its default is used"),
        );
    }
}

/// A name in the host's certificate that the member's DNS does not know goes into the pod's hosts file. A bare
/// address would fail the check of the certificate.
fn host_alias(spec: &mut Object, context: &Context<'_>) {
    let ApiAccess::Host { name, address: Some(address), .. } = &context.target.api else { return };
    let address = address.to_string();
    if *name == address {
        return;
    }
    let aliases = list_mut(spec, "hostAliases");
    let known = aliases.iter_mut().find(|alias| alias.get("ip").and_then(Value::as_str) == Some(&address));
    match known.and_then(Value::as_object_mut) {
        Some(alias) => crate::json::push_new(list_mut(alias, "hostnames"), name.as_str().into()),
        None => aliases.push(serde_json::json!({ "ip": address, "hostnames": [name] })),
    }
}

/// Takes out what the member's version does not know and would reject, or that the host only defaulted.
/// What would change the pod beyond that was refused before.
fn by_version(spec: &mut Object, context: &mut Context<'_>) {
    let version = context.target.version;
    if version < Version::v1(35) {
        if spec.remove("hostnameOverride").is_some() {
            too_old(context, "hostnameOverride", Version::v1(35));
        }
        let mut ruled = false;
        each_container(spec, |container| ruled |= container.remove("restartPolicyRules").is_some());
        for container in items_mut(spec.get_mut("containers")).filter_map(Value::as_object_mut) {
            // Only init containers could have one of their own, and every other container is rejected for it.
            ruled |= container.remove("restartPolicy").is_some();
        }
        for container in items_mut(spec.get_mut("initContainers")).filter_map(Value::as_object_mut) {
            // That of a sidecar is older, and what the pod would be without it was asked before.
            if container.get("restartPolicy").is_some_and(|policy| policy != "Always") {
                ruled |= container.remove("restartPolicy").is_some();
            }
        }
        if ruled {
            too_old(context, "restart rules of containers", Version::v1(35));
        }
    }
    if version < Version::v1(34) && spec.remove("resources").is_some() {
        too_old(context, "resources of the pod as a whole", Version::v1(34));
    }
    if version < Version::v1(33) {
        // The host writes a default into every pod: nobody asked for it.
        each_container(spec, |container| drop(container.remove("resizePolicy")));
    }
    if version < Version::v1(33)
        && spec.contains_key("securityContext")
        && object_mut(spec, "securityContext").remove("seLinuxChangePolicy").is_some()
    {
        too_old(context, "seLinuxChangePolicy", Version::v1(33));
    }
}

fn too_old(context: &mut Context<'_>, field: &str, needs: Version) {
    let version = context.target.version;
    context.tell(
        "MemberTooOld",
        format_args!("{field} left out: it needs Kubernetes {needs}, the member has {version}"),
    );
}
