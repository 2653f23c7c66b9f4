//! For providers that have a Kubernetes API server behind them: the same request, as that server wants it, or as it
//! passes it on to one of its nodes.

use form_urlencoded::Serializer;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{LogOptions, LogSource, UpgradeKind, UpgradeRequest};

/// What stands for itself in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Here a query stands a second time. An API server that passes a request on to a node loses the one in the URL if the
/// request is to change the protocol.
pub(crate) const QUERY: HeaderName = HeaderName::from_static("x-federlet-query");

impl UpgradeRequest {
    /// The request to send to an API server to have it done in a pod there. After its 101 all bytes are the client's;
    /// see [`super::UpgradeAnswer::from_response`].
    ///
    /// `container` is the container's name there, if it differs or the kubelet named none.
    pub fn to_api_server(&self, namespace: &str, pod: &str, container: Option<&str>) -> Request<()> {
        let mut query = Serializer::new(String::new());
        let subresource = match self.kind {
            UpgradeKind::Exec => "exec",
            UpgradeKind::Attach => "attach",
            UpgradeKind::PortForward => "portforward",
        };
        if self.kind == UpgradeKind::PortForward {
            for port in &self.ports {
                query.append_pair("ports", &port.to_string());
            }
        } else {
            if let Some(container) = container.or(self.container.as_deref()) {
                query.append_pair("container", container);
            }
            for word in &self.command {
                query.append_pair("command", word);
            }
            for (name, wanted) in
                [("stdin", self.stdin), ("stdout", self.stdout), ("stderr", self.stderr), ("tty", self.tty)]
            {
                if wanted {
                    query.append_pair(name, "true");
                }
            }
        }
        let mut request = request(namespace, pod, subresource, &query.finish());
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// The request to send to an API server to have it done by the kubelet of one of its nodes, in a pod there.
    pub fn to_node(&self, node: &str, namespace: &str, pod: &str) -> Request<()> {
        let mut query = Serializer::new(String::new());
        let verb = match self.kind {
            UpgradeKind::Exec => "exec",
            UpgradeKind::Attach => "attach",
            UpgradeKind::PortForward => "portForward",
        };
        let mut path = vec![verb, namespace, pod];
        if self.kind == UpgradeKind::PortForward {
            for port in &self.ports {
                query.append_pair("port", &port.to_string());
            }
        } else {
            path.extend(self.container.as_deref());
            for word in &self.command {
                query.append_pair("command", word);
            }
            for (name, wanted) in
                [("input", self.stdin), ("output", self.stdout), ("error", self.stderr), ("tty", self.tty)]
            {
                if wanted {
                    query.append_pair(name, "1");
                }
            }
        }
        let query = query.finish();
        let mut request = node_request(node, &path, &query);
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        // What is encoded for a URL can stand in a header, too.
        if let Ok(query) = HeaderValue::from_str(&query) {
            request.headers_mut().insert(QUERY, query);
        }
        request
    }
}

impl LogOptions {
    /// The request to send to an API server for the same log of a pod there.
    pub fn to_api_server(&self, namespace: &str, pod: &str, container: &str) -> Request<()> {
        let mut query = Serializer::new(String::new());
        query.append_pair("container", container);
        self.write(&mut query);
        request(namespace, pod, "log", &query.finish())
    }

    /// The request to send to an API server for the same log of a pod on one of its nodes.
    pub fn to_node(&self, node: &str, namespace: &str, pod: &str, container: &str) -> Request<()> {
        let mut query = Serializer::new(String::new());
        self.write(&mut query);
        node_request(node, &["containerLogs", namespace, pod, container], &query.finish())
    }

    fn write(&self, query: &mut Serializer<'_, String>) {
        for (name, wanted) in
            [("follow", self.follow), ("previous", self.previous), ("timestamps", self.timestamps)]
        {
            if wanted {
                query.append_pair(name, "true");
            }
        }
        for (name, number) in [
            ("sinceSeconds", self.since_seconds),
            ("tailLines", self.tail_lines),
            ("limitBytes", self.limit_bytes),
        ] {
            if let Some(number) = number {
                query.append_pair(name, &number.to_string());
            }
        }
        if let Some(time) = self.since_time {
            query.append_pair("sinceTime", &time.to_string());
        }
        match self.source {
            LogSource::All => {}
            LogSource::Stdout => drop(query.append_pair("stream", "Stdout")),
            LogSource::Stderr => drop(query.append_pair("stream", "Stderr")),
        }
    }
}

fn request(namespace: &str, pod: &str, subresource: &str, query: &str) -> Request<()> {
    let (namespace, pod) = (utf8_percent_encode(namespace, SEGMENT), utf8_percent_encode(pod, SEGMENT));
    get(format!("/api/v1/namespaces/{namespace}/pods/{pod}/{subresource}"), query)
}

fn node_request(node: &str, path: &[&str], query: &str) -> Request<()> {
    let mut url = format!("/api/v1/nodes/{}/proxy", utf8_percent_encode(node, SEGMENT));
    for segment in path {
        url.push('/');
        url.extend(utf8_percent_encode(segment, SEGMENT));
    }
    get(url, query)
}

fn get(mut url: String, query: &str) -> Request<()> {
    if !query.is_empty() {
        url.push('?');
        url.push_str(query);
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::GET;
    // Everything in it is encoded; were it not a URL after all, the server's answer to `/` would be a plain 404.
    *request.uri_mut() = url.parse().unwrap_or(Uri::from_static("/"));
    request
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use proptest::prelude::*;

    use super::*;
    use crate::api::Route;

    fn exec(command: &[&str]) -> UpgradeRequest {
        UpgradeRequest {
            kind: UpgradeKind::Exec,
            method: Method::POST,
            container: Some("app".into()),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            stdin: true,
            stdout: true,
            stderr: false,
            tty: true,
            ports: vec![],
            headers: HeaderMap::new(),
        }
    }

    #[test]
    fn exec_is_the_same_request_in_other_words() {
        let request = exec(&["sh", "-c", "echo \"a&b\" ä"]).to_api_server("ns", "pod", None);
        assert_eq!(request.method(), Method::POST);
        assert_eq!(
            request.uri(),
            "/api/v1/namespaces/ns/pods/pod/exec?container=app&command=sh&command=-c\
             &command=echo+%22a%26b%22+%C3%A4&stdin=true&stdout=true&tty=true"
        );
    }

    #[test]
    fn port_forward_names_its_ports() {
        let request = UpgradeRequest { kind: UpgradeKind::PortForward, ports: vec![80, 443], ..exec(&[]) };
        let url = request.to_api_server("ns", "pod", None).uri().to_string();
        assert_eq!(url, "/api/v1/namespaces/ns/pods/pod/portforward?ports=80&ports=443");
    }

    #[test]
    fn a_name_cannot_leave_its_place_in_the_path() {
        let request = exec(&["x"]).to_api_server("../../secrets", "a/b?c", None);
        assert!(request.uri().path().starts_with("/api/v1/namespaces/..%2F..%2Fsecrets/pods/a%2Fb%3Fc/exec"));
    }

    /// What a kubelet is asked through its API server is what it would have been asked directly.
    #[test]
    fn a_node_is_asked_in_its_own_words() {
        let prefix = "/api/v1/nodes/m1/proxy";
        let asked = |request: &Request<()>| {
            let path = request.uri().path().strip_prefix(prefix).unwrap().to_owned();
            Route::parse(request.method(), &path, request.uri().query())
        };
        let mut wanted = exec(&["sh", "-c", "echo ä&b"]);
        wanted.tty = false;
        wanted.stderr = true;
        let Ok(Route::Upgrade { pod, request }) = asked(&wanted.to_node("m1", "ns", "pod")) else {
            panic!("not understood")
        };
        assert_eq!((pod.namespace.as_str(), pod.name.as_str(), &request), ("ns", "pod", &wanted));
        let sent = wanted.to_node("m1", "ns", "pod");
        assert_eq!(
            sent.headers()[QUERY].to_str().ok(),
            sent.uri().query(),
            "a second time, for it may be lost"
        );
        let forward = UpgradeRequest { kind: UpgradeKind::PortForward, ports: vec![80, 443], ..exec(&[]) };
        let Ok(Route::Upgrade { request, .. }) = asked(&forward.to_node("m1", "ns", "pod")) else {
            panic!("not understood")
        };
        assert_eq!((request.kind, request.ports), (UpgradeKind::PortForward, vec![80, 443]));
        let log = LogOptions { tail_lines: Some(0), follow: true, ..LogOptions::default() };
        let Ok(Route::Logs { container, options, .. }) = asked(&log.to_node("m1", "ns", "p", "c")) else {
            panic!("not understood")
        };
        assert_eq!((container.as_str(), options), ("c", log));
    }

    #[test]
    fn zero_lines_are_asked_for_as_zero() {
        let options = LogOptions { tail_lines: Some(0), follow: true, ..LogOptions::default() };
        let url = options.to_api_server("ns", "p", "c").uri().to_string();
        assert_eq!(url, "/api/v1/namespaces/ns/pods/p/log?container=c&follow=true&tailLines=0");
    }

    proptest! {
        /// What kubectl asked of the host is what the other API server is asked, whatever the words.
        #[test]
        fn no_word_is_lost(words in prop::collection::vec("\\PC{0,20}", 1..5)) {
            let query: String = words.iter().map(|word| {
                let word: String = form_urlencoded::byte_serialize(word.as_bytes()).collect();
                format!("command={word}&")
            }).collect();
            let Ok(Route::Upgrade { request, .. }) =
                Route::parse(&Method::GET, "/exec/n/p/c", Some(&format!("{query}output=1"))) else {
                return Err(TestCaseError::fail("not understood"));
            };
            let request = request.to_api_server("n", "p", None);
            let asked: Vec<String> = form_urlencoded::parse(request.uri().query().unwrap().as_bytes())
                .filter(|(key, _)| key == "command").map(|(_, word)| word.into_owned()).collect();
            prop_assert_eq!(asked, words);
        }
    }
}
