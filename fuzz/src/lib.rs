//! What must hold for whatever is said to the kubelet API. Every function panics if it does not.

use federlet_node::{
    api::{Attributes, Route},
    contract::{LogOptions, UpgradeKind, UpgradeRequest},
};
use http::{Method, Uri};
use percent_encoding::percent_decode_str;

/// A request of any kind: it is understood or refused, and what is passed on is what was asked for.
pub fn request(method: &str, path: &str, query: &str) {
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let route = Route::parse(&method, path, Some(query));
    let attributes = Attributes::of(&method, &route);
    assert!(!attributes.verb.is_empty() && !attributes.subresources.is_empty());
    match route {
        Ok(Route::Upgrade { pod, request }) => {
            assert_eq!((attributes.verb, attributes.subresources), ("create", &["proxy"][..]));
            assert!([Method::GET, Method::POST].contains(&method));
            assert!(request.headers.is_empty(), "nothing of the client's is passed on unasked");
            passed_on(&request, &pod.namespace, &pod.name);
        }
        Ok(Route::Logs { pod, container, options }) => {
            assert_eq!(method, Method::GET);
            log_passed_on(&options, &pod.namespace, &pod.name, &container);
        }
        Ok(_) => assert_eq!(method, Method::GET),
        Err(_) => {}
    }
}

/// An exec as an API server writes it: every word arrives.
pub fn exec(
    namespace: &str,
    pod: &str,
    container: &str,
    words: &[String],
    [input, output, error, tty]: [bool; 4],
) {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, wanted) in [("input", input), ("output", output), ("error", error), ("tty", tty)] {
        if wanted {
            query.append_pair(name, "1");
        }
    }
    for word in words {
        query.append_pair("command", word);
    }
    let encoded = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let path = format!("/exec/{}/{}/{}", encoded(namespace), encoded(pod), encoded(container));
    let Ok(route) = Route::parse(&Method::POST, &path, Some(&query.finish())) else {
        let refused = [namespace, pod, container].iter().any(|name| !is_plain(name));
        assert!(refused || words.is_empty() || words.len() > 4096 || !(input || output || error && !tty));
        return;
    };
    let Route::Upgrade { pod: found, request } = route else { panic!("{route:?}") };
    assert_eq!((found.namespace.as_str(), found.name.as_str(), found.uid.as_deref()), (namespace, pod, None));
    assert_eq!((request.kind, request.container.as_deref()), (UpgradeKind::Exec, Some(container)));
    assert_eq!(request.command, words);
    assert_eq!(
        [request.stdin, request.stdout, request.stderr, request.tty],
        [input, output, error && !tty, tty]
    );
}

fn passed_on(request: &UpgradeRequest, namespace: &str, pod: &str) {
    let passed = request.to_api_server(namespace, pod, None);
    assert_eq!(passed.method(), request.method);
    let subresource = match request.kind {
        UpgradeKind::Exec => "exec",
        UpgradeKind::Attach => "attach",
        UpgradeKind::PortForward => "portforward",
    };
    leads_to(passed.uri(), namespace, pod, subresource);
    let asked = pairs(passed.uri());
    let all = |name: &str| {
        asked.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let flag = |name: &str| all(name) == ["true"];
    assert_eq!(all("command"), request.command);
    assert_eq!(all("ports"), request.ports.iter().map(u16::to_string).collect::<Vec<_>>());
    assert_eq!(all("container"), request.container.iter().cloned().collect::<Vec<_>>());
    let flags = ["stdin", "stdout", "stderr", "tty"].map(flag);
    assert_eq!(flags, [request.stdin, request.stdout, request.stderr, request.tty]);
    assert!(!(request.tty && request.stderr), "a terminal has one output");
}

/// The query of an API server's log request has the words of the kubelet's, so it can be read back.
fn log_passed_on(options: &LogOptions, namespace: &str, pod: &str, container: &str) {
    let passed = options.to_api_server(namespace, pod, container);
    leads_to(passed.uri(), namespace, pod, "log");
    let again = Route::parse(&Method::GET, "/containerLogs/n/p/c", passed.uri().query());
    let Ok(Route::Logs { options: again, .. }) = again else { panic!("{again:?}") };
    assert_eq!(&again, options);
    assert!(pairs(passed.uri()).contains(&("container".to_owned(), container.to_owned())));
}

/// No name leads out of its place in the path.
fn leads_to(uri: &Uri, namespace: &str, pod: &str, subresource: &str) {
    assert!(is_plain(namespace) && is_plain(pod));
    let path: Vec<String> =
        uri.path().split('/').map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect();
    assert_eq!(path, ["", "api", "v1", "namespaces", namespace, "pods", pod, subresource]);
}

fn pairs(uri: &Uri) -> Vec<(String, String)> {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect()
}

/// Whether a name means the same to everybody who reads a path.
fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.chars().any(|c| matches!(c, '/' | '\\' | '%') || c.is_control())
}
