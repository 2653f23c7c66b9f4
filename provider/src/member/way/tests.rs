use serde_json::{Value, json};

use super::*;

const SERVER: &str = "https://192.0.2.1:6443";

fn keys(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

fn spec(fields: &Value) -> ClusterSpec {
    serde_json::from_value(fields.clone()).unwrap()
}

fn certificate() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap().pem()
}

fn base64(bytes: &[u8]) -> String {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap().as_str().unwrap().to_owned()
}

fn kubeconfig(cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "a", "user": "u"}}],
        "clusters": [{"name": "a", "cluster": cluster}, {"name": "b", "cluster": {"certificate-authority": "/f"}}],
        "users": [{"name": "u", "user": user}, {"name": "v", "user": {"exec": {"command": "rm"}}}],
    })
    .to_string()
}

#[test]
fn a_token_and_an_authority_lead_to_a_member() {
    let ca = certificate();
    let way = Way::read(
        &spec(&json!({"apiEndpoint": SERVER})),
        &keys(&[("token", "abc\n"), ("caBundle", &format!("{ca}{ca}"))]),
    );
    let way = way.unwrap();
    assert_eq!(way.token.as_ref().unwrap(), "Bearer abc");
    assert_eq!(way.endpoint.url, SERVER);
    assert_eq!(way.endpoint.ca.as_ref().unwrap().len(), 2);
    assert!(!format!("{way:?}").contains("abc"), "a token is never shown");
    let config = way.endpoint.config(super::super::endpoint::Patience::Streams);
    assert_eq!(config.read_timeout, None);
    assert!(!config.accept_invalid_certs);
}

#[test]
fn a_kubeconfig_with_everything_written_out_is_taken() {
    let ca = certificate();
    let cluster = json!({
        "server": SERVER, "certificate-authority-data": base64(ca.as_bytes()), "tls-server-name": "api",
        "proxy-url": "socks5://p:1080",
    });
    let certificate = json!({"client-certificate-data": "Yw==", "client-key-data": "aw=="});
    let text = kubeconfig(&cluster, &certificate);
    let way = Way::read(&ClusterSpec::default(), &keys(&[("kubeconfig", &text)])).unwrap();
    assert_eq!(way.endpoint.url, SERVER);
    assert_eq!(way.endpoint.server_name.as_deref(), Some("api"));
    assert_eq!(way.endpoint.ca.as_ref().unwrap().len(), 1);
    assert!(way.token.is_none());
    let config = way.endpoint.config(super::super::endpoint::Patience::Probe);
    assert_eq!(config.auth_info.client_certificate_data.as_deref(), Some("Yw=="));
    assert!(config.auth_info.client_key_data.is_some());
    assert_eq!(config.proxy_url.unwrap().scheme_str(), Some("socks5"));

    // What stands beside it counts more.
    let text = kubeconfig(&cluster, &json!({"token": "old"}));
    let way = Way::read(
        &spec(&json!({"apiEndpoint": "https://other", "proxyURL": "http://q:1"})),
        &keys(&[("kubeconfig", &text), ("token", "new")]),
    );
    let way = way.unwrap();
    assert_eq!(way.token.unwrap(), "Bearer new");
    assert_eq!(way.endpoint.url.host(), Some("other"));
    assert_eq!(way.endpoint.proxy.unwrap().host(), Some("q"));
}

#[test]
fn a_kubeconfig_runs_no_program_and_reads_no_file() {
    for (field, cluster, user) in [
        ("exec", json!({}), json!({"exec": {"command": "sh", "args": ["-c", "id"]}})),
        ("auth-provider", json!({}), json!({"auth-provider": {"name": "oidc"}, "token": "t"})),
        ("tokenFile", json!({}), json!({"tokenFile": "/etc/shadow"})),
        ("client-certificate", json!({}), json!({"client-certificate": "/a"})),
        ("client-key", json!({}), json!({"client-key": "/a", "token": "t"})),
        ("username", json!({}), json!({"username": "a", "password": "b"})),
        ("as", json!({}), json!({"as": "root", "token": "t"})),
        ("certificate-authority", json!({"certificate-authority": "/a"}), json!({"token": "t"})),
    ] {
        let mut cluster = cluster;
        cluster["server"] = SERVER.into();
        let text = kubeconfig(&cluster, &user);
        let error = Way::read(&ClusterSpec::default(), &keys(&[("kubeconfig", &text)])).unwrap_err();
        assert_eq!(error, WayError::Refused(field.to_owned()));
        assert!(error.to_string().contains("never a program or a path"));
    }
}

#[test]
fn what_leads_nowhere_is_said_without_showing_secrets() {
    let at = |fields: Value| spec(&fields);
    let good = keys(&[("token", "t")]);
    let here = json!({"apiEndpoint": SERVER});
    let cases = [
        (at(json!({})), good.clone(), "spec.apiEndpoint is missing"),
        (at(json!({"apiEndpoint": "http://a"})), good.clone(), "is not an address such as https://"),
        (at(json!({"apiEndpoint": "https://u:hunter2@a"})), good.clone(), "is not an address such as"),
        (at(json!({"apiEndpoint": "nonsense at all"})), good.clone(), "is not an address such as"),
        (
            at(json!({"apiEndpoint": SERVER, "proxyURL": "ftp://u:hunter2@a"})),
            good.clone(),
            "\"a\" is not an address",
        ),
        (at(json!({"apiEndpoint": SERVER, "proxyHeader": {"a": "b"}})), good, "proxyHeader is not supported"),
        (at(here.clone()), keys(&[]), "neither `token` nor `kubeconfig`"),
        (at(here.clone()), keys(&[("token", "")]), "neither `token` nor `kubeconfig`"),
        (at(here.clone()), keys(&[("token", "hunter2 hunter2")]), "the token is empty or has characters"),
        (at(here.clone()), keys(&[("token", "hunter2"), ("caBundle", "x")]), "caBundle holds no certificate"),
        (at(here.clone()), keys(&[("kubeconfig", "token: [hunter2")]), "not a kubeconfig in YAML or JSON"),
        (at(here), keys(&[("kubeconfig", "{}")]), "its current-context \"\" is not in it"),
    ];
    for (spec, keys, message) in cases {
        let error = Way::read(&spec, &keys).unwrap_err().to_string();
        assert!(error.contains(message), "{message} is not in: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
