use serde_json::{Value, json};

use super::{Context, volumes::ROOT_CA};
use crate::{
    json::{Object, each_container, items_mut, list_mut, text},
    target::ApiAccess,
};

/// Gives every container the variables of Services that it would have on a node of the host.
///
/// They come first, so that `$(KUBERNETES_SERVICE_HOST)` in later ones expands, and never beside one of the same name
/// that the user wrote: the user's wins, as on a real node.
pub(super) fn rewrite(spec: &mut Object, services: &[(String, String)], context: &mut Context<'_>) {
    let mut injected = api_variables(&context.target.api);
    for (name, value) in services {
        if !injected.iter().any(|(known, _)| known == name) {
            injected.push((name.clone(), value.clone()));
        }
    }
    let renamed = context.host_identity().then(|| context.root_ca());
    each_container(spec, |container| {
        if let Some(renamed) = &renamed {
            rename_root_ca(container, renamed);
        }
        if injected.is_empty() {
            return;
        }
        let env = list_mut(container, "env");
        let missing: Vec<Value> = injected
            .iter()
            .filter(|(name, _)| !env.iter().any(|own| text(own, "name") == Some(name)))
            .map(|(name, value)| json!({ "name": name, "value": value }))
            .collect();
        env.splice(0..0, missing);
    });
}

/// What the kubelet says about the API server. The member's kubelet would say it about its own.
fn api_variables(api: &ApiAccess) -> Vec<(String, String)> {
    let (host, port) = match api {
        ApiAccess::Member => return vec![],
        ApiAccess::None => (String::new(), String::new()),
        ApiAccess::Host { name, port, .. } => (name.clone(), port.to_string()),
    };
    let (url, protocol) = match host.as_str() {
        "" => (String::new(), ""),
        v6 if v6.contains(':') => (format!("tcp://[{v6}]:{port}"), "tcp"),
        name => (format!("tcp://{name}:{port}"), "tcp"),
    };
    [
        ("KUBERNETES_SERVICE_HOST", host.as_str()),
        ("KUBERNETES_SERVICE_PORT", port.as_str()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port.as_str()),
        ("KUBERNETES_PORT", url.as_str()),
        ("KUBERNETES_PORT_443_TCP", url.as_str()),
        ("KUBERNETES_PORT_443_TCP_PROTO", protocol),
        ("KUBERNETES_PORT_443_TCP_PORT", port.as_str()),
        ("KUBERNETES_PORT_443_TCP_ADDR", host.as_str()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

fn rename_root_ca(container: &mut Object, renamed: &str) {
    let rename = |source: Option<&mut Value>| {
        if let Some(source) = source
            && text(source, "name") == Some(ROOT_CA)
        {
            source["name"] = renamed.into();
        }
    };
    for env in items_mut(container.get_mut("env")) {
        rename(env.get_mut("valueFrom").and_then(|from| from.get_mut("configMapKeyRef")));
    }
    for source in items_mut(container.get_mut("envFrom")) {
        rename(source.get_mut("configMapRef"));
    }
}
