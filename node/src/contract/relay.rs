//! For providers that have a Kubernetes API server behind them: the same request, as that server wants it.

use form_urlencoded::Serializer;
use http::{Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{LogOptions, LogSource, UpgradeKind, UpgradeRequest};

/// What stands for itself in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

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
}

impl LogOptions {
    /// The request to send to an API server for the same log of a pod there.
    pub fn to_api_server(&self, namespace: &str, pod: &str, container: &str) -> Request<()> {
        let mut query = Serializer::new(String::new());
        query.append_pair("container", container);
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
        request(namespace, pod, "log", &query.finish())
    }
}

fn request(namespace: &str, pod: &str, subresource: &str, query: &str) -> Request<()> {
    let (namespace, pod) = (utf8_percent_encode(namespace, SEGMENT), utf8_percent_encode(pod, SEGMENT));
    let mut url = format!("/api/v1/namespaces/{namespace}/pods/{pod}/{subresource}");
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
