use serde_json::{Value, json};

use super::Context;
use crate::{
    json::{Object, each_container, is_true, items, items_mut, text},
    names::TOKEN_KEY,
    target::ApiAccess,
};

/// The ConfigMap with the API server's certificate, in every namespace of every cluster.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";

/// How the volume that admission adds to every pod begins.
const API_ACCESS: &str = "kube-api-access-";

pub(super) fn rewrite(spec: &mut Object, context: &mut Context<'_>) {
    let automounted = items(spec.get("volumes")).any(is_api_access);
    // With it on, the member's admission would add a second token for an account that is not the pod's.
    let automount = context.target.api == ApiAccess::Member && automounted;
    spec.insert("automountServiceAccountToken".into(), automount.into());
    if !matches!(context.target.api, ApiAccess::Host { .. }) && automounted {
        remove_api_access(spec);
    }
    for volume in items_mut(spec.get_mut("volumes")).filter_map(Value::as_object_mut) {
        ephemeral(volume, context);
        if context.host_identity() {
            rename_root_ca(volume.get_mut("configMap"), context);
        }
        for source in items_mut(volume.get_mut("projected").and_then(|p| p.get_mut("sources"))) {
            if context.host_identity() {
                rename_root_ca(source.get_mut("configMap"), context);
                token(source, context);
            }
        }
        drop_trust_bundles(volume, context);
    }
}

/// Whether this is the volume that admission adds, with the account's token in it.
pub(crate) fn is_api_access(volume: &Value) -> bool {
    text(volume, "name").is_some_and(|name| name.starts_with(API_ACCESS))
        && items(volume.pointer("/projected/sources"))
            .any(|source| source.get("serviceAccountToken").is_some())
}

fn remove_api_access(spec: &mut Object) {
    let mut names = vec![];
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.retain(|volume| {
            let gone = is_api_access(volume);
            if gone {
                names.extend(text(volume, "name").map(str::to_owned));
            }
            !gone
        });
    }
    each_container(spec, |container| {
        if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
            mounts.retain(|mount| {
                !text(mount, "name").is_some_and(|name| names.iter().any(|gone| gone == name))
            });
        }
    });
}

fn rename_root_ca(source: Option<&mut Value>, context: &Context<'_>) {
    if let Some(source) = source
        && text(source, "name") == Some(ROOT_CA)
    {
        source["name"] = context.root_ca().into();
    }
}

/// A token of the host's service account cannot be made by the member: it comes as a Secret that we keep fresh.
fn token(source: &mut Value, context: &Context<'_>) {
    let Some(token) = source.as_object_mut().and_then(|source| source.remove("serviceAccountToken")) else {
        return;
    };
    let expiration = token.get("expirationSeconds").and_then(Value::as_i64);
    let secret = context.token_secret(text(&token, "audience"), expiration);
    let path = token.get("path").cloned().unwrap_or_else(|| TOKEN_KEY.into());
    source["secret"] = json!({ "name": secret, "items": [{ "key": TOKEN_KEY, "path": path }] });
}

/// Both clusters' controllers would make a claim for a generic ephemeral volume; the one is made by us.
fn ephemeral(volume: &mut Object, context: &Context<'_>) {
    if volume.remove("ephemeral").is_some_and(|source| !source.is_null()) {
        let name = volume.get("name").and_then(Value::as_str).unwrap_or_default();
        let claim = context.ephemeral_claim(name);
        volume.insert("persistentVolumeClaim".into(), json!({ "claimName": claim }));
    }
}

/// A bundle of the host's cluster is not in the member. Only optional ones get here.
fn drop_trust_bundles(volume: &mut Object, context: &mut Context<'_>) {
    let name = volume.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(Value::Array(sources)) = volume.get_mut("projected").and_then(|p| p.get_mut("sources")) {
        let before = sources.len();
        sources.retain(|source| {
            !source.get("clusterTrustBundle").is_some_and(|bundle| is_true(bundle.get("optional")))
        });
        if sources.len() < before {
            context.tell(
                "TrustBundleLeftOut",
                format_args!("volume {name:?} lacks an optional clusterTrustBundle: bundles are the host's"),
            );
        }
    }
}
