use kube::config::{AuthInfo, Cluster, Kubeconfig};

use super::way::WayError;

/// What a kubeconfig says about one cluster, without anything that would make us run a program or open a file.
#[derive(Default)]
pub(super) struct Plain {
    pub(super) server: Option<String>,
    pub(super) ca: Option<String>,
    pub(super) server_name: Option<String>,
    pub(super) insecure: bool,
    pub(super) proxy: Option<String>,
    pub(super) token: Option<String>,
    pub(super) identity: Option<(String, String)>,
}

/// Reads the current context of a kubeconfig that somebody gave us.
pub(super) fn read(text: &[u8]) -> Result<Plain, WayError> {
    let text = std::str::from_utf8(text).map_err(|_| WayError::Kubeconfig("it is not text".into()))?;
    // The error of the parser shows the line, and with it a token.
    let read = Kubeconfig::from_yaml(text)
        .map_err(|_| WayError::Kubeconfig("it is not a kubeconfig in YAML or JSON".into()))?;
    let (cluster, user) = current(&read)?;
    refuse(&cluster, &user)?;
    // The two secret fields can be read only by writing them out.
    let written = serde_json::to_value(&user).unwrap_or_default();
    let secret = |field: &str| {
        written.get(field).and_then(|value| value.as_str()).filter(|v| !v.is_empty()).map(str::to_owned)
    };
    let identity = match (secret("client-certificate-data"), secret("client-key-data")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            return Err(WayError::Kubeconfig("a client certificate and its key belong together".into()));
        }
    };
    Ok(Plain {
        server: cluster.server,
        ca: cluster.certificate_authority_data.filter(|data| !data.is_empty()),
        server_name: cluster.tls_server_name,
        insecure: cluster.insecure_skip_tls_verify.unwrap_or(false),
        proxy: cluster.proxy_url,
        token: secret("token"),
        identity,
    })
}

fn current(config: &Kubeconfig) -> Result<(Cluster, AuthInfo), WayError> {
    let wrong = |what: String| WayError::Kubeconfig(what);
    let name = config.current_context.as_deref().unwrap_or_default();
    let context = config.contexts.iter().find(|context| context.name == name);
    let context = context
        .and_then(|context| context.context.as_ref())
        .ok_or_else(|| wrong(format!("its current-context {name:?} is not in it")))?;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster = cluster
        .and_then(|cluster| cluster.cluster.clone())
        .ok_or_else(|| wrong(format!("its cluster {:?} is not in it", context.cluster)))?;
    let user = context.user.as_deref().unwrap_or_default();
    let user = config.auth_infos.iter().find(|info| info.name == user);
    let user = user
        .and_then(|info| info.auth_info.clone())
        .ok_or_else(|| wrong("its current context names no user that is in it".to_owned()))?;
    Ok((cluster, user))
}

/// A kubeconfig is data that somebody sends us. As a program it would run here, as a path it would read our files.
fn refuse(cluster: &Cluster, user: &AuthInfo) -> Result<(), WayError> {
    let mut found = vec![];
    let mut note = |is_there: bool, field: &'static str| {
        if is_there {
            found.push(field);
        }
    };
    let is_set = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
    note(user.exec.is_some(), "exec");
    note(user.auth_provider.is_some(), "auth-provider");
    note(is_set(&user.token_file), "tokenFile");
    note(is_set(&user.client_certificate), "client-certificate");
    note(is_set(&user.client_key), "client-key");
    note(is_set(&user.username) || user.password.is_some(), "username");
    note(is_set(&user.impersonate), "as");
    note(is_set(&cluster.certificate_authority), "certificate-authority");
    if found.is_empty() { Ok(()) } else { Err(WayError::Refused(found.join(", "))) }
}
