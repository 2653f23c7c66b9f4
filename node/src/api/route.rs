use http::Method;
use percent_encoding::percent_decode_str;

use crate::contract::{LogOptions, LogSource, MetricsKind, UpgradeKind};

/// A request to the kubelet API, understood. Says nothing about who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The pods that the host binds to the node.
    Pods,
    /// The pods that run, as the provider sees them.
    RunningPods,
    /// The log of a container.
    Logs {
        /// Whose.
        pod: RoutePod,
        /// Which container's.
        container: String,
        /// What of it.
        options: LogOptions,
    },
    /// Exec, attach or port-forward.
    Upgrade {
        /// Which of them.
        kind: UpgradeKind,
        /// Where.
        pod: RoutePod,
        /// In which container; none for port-forward.
        container: Option<String>,
        /// The query, read.
        streams: Streams,
    },
    /// Usage of the node and its pods.
    StatsSummary,
    /// Metrics that the provider has.
    Metrics(MetricsKind),
    /// Metrics of this process.
    OwnMetrics,
    /// Whether we are alive.
    Healthz,
    /// How we are set up.
    Configz,
}

/// The pod of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, if the caller insists on one.
    pub uid: Option<String>,
}

/// What the query of an upgrade asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
    /// Ports.
    pub ports: Vec<u16>,
}

/// Why a request is not one we answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// There is no such path.
    #[error("404 page not found")]
    NotFound,
    /// The path is there, for another method.
    #[error("method not allowed")]
    Method,
    /// The query makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// An argument list longer than a kernel takes need not be passed on.
const MOST_ARGUMENTS: usize = 4096;

impl Route {
    /// Reads method, path and query.
    pub fn parse(method: &Method, path: &str, query: Option<&str>) -> Result<Self, RouteError> {
        let segments = segments(path)?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let query = Query(query.unwrap_or_default());
        let get = |route| {
            if *method == Method::GET { Ok(route) } else { Err(RouteError::Method) }
        };
        match segments.as_slice() {
            ["pods"] => get(Self::Pods),
            ["runningpods"] => get(Self::RunningPods),
            ["stats", "summary"] => get(Self::StatsSummary),
            ["metrics"] => get(Self::OwnMetrics),
            ["metrics", "resource"] => get(Self::Metrics(MetricsKind::Resource)),
            ["metrics", "cadvisor"] => get(Self::Metrics(MetricsKind::Cadvisor)),
            ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] => get(Self::Healthz),
            ["configz"] => get(Self::Configz),
            ["containerLogs", namespace, name, container] => {
                let pod = RoutePod::new(namespace, name, None);
                get(Self::Logs { pod, container: (*container).to_owned(), options: query.log_options()? })
            }
            ["exec", rest @ ..] => Self::in_container(UpgradeKind::Exec, method, rest, &query),
            ["attach", rest @ ..] => Self::in_container(UpgradeKind::Attach, method, rest, &query),
            ["portForward", namespace, name] => Self::to_ports(method, namespace, name, None, &query),
            ["portForward", namespace, name, uid] => {
                Self::to_ports(method, namespace, name, Some(uid), &query)
            }
            _ => Err(RouteError::NotFound),
        }
    }

    fn in_container(
        kind: UpgradeKind,
        method: &Method,
        rest: &[&str],
        query: &Query<'_>,
    ) -> Result<Self, RouteError> {
        let (pod, container) = match rest {
            [namespace, name, container] => (RoutePod::new(namespace, name, None), container),
            [namespace, name, uid, container] => (RoutePod::new(namespace, name, Some(uid)), container),
            _ => return Err(RouteError::NotFound),
        };
        upgradable(method)?;
        let streams = query.streams(kind)?;
        Ok(Self::Upgrade { kind, pod, container: Some((*container).to_owned()), streams })
    }

    fn to_ports(
        method: &Method,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        query: &Query<'_>,
    ) -> Result<Self, RouteError> {
        upgradable(method)?;
        let (kind, pod) = (UpgradeKind::PortForward, RoutePod::new(namespace, name, uid));
        Ok(Self::Upgrade { kind, pod, container: None, streams: query.streams(kind)? })
    }
}

/// Websocket clients send GET, SPDY ones POST.
fn upgradable(method: &Method) -> Result<(), RouteError> {
    if [Method::GET, Method::POST].contains(method) { Ok(()) } else { Err(RouteError::Method) }
}

impl RoutePod {
    fn new(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.map(str::to_owned) }
    }
}

/// The parts of a path, decoded. A path that could mean something else to somebody else is no path.
fn segments(path: &str) -> Result<Vec<String>, RouteError> {
    let path = path.strip_prefix('/').ok_or(RouteError::NotFound)?;
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/')
        .map(|segment| {
            let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| RouteError::NotFound)?;
            let plain = !decoded.is_empty()
                && !matches!(&*decoded, "." | "..")
                && !decoded.chars().any(|c| matches!(c, '/' | '\\' | '%') || c.is_control());
            if plain { Ok(decoded.into_owned()) } else { Err(RouteError::NotFound) }
        })
        .collect()
}

struct Query<'a>(&'a str);

impl Query<'_> {
    fn pairs(&self) -> impl Iterator<Item = (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)> {
        form_urlencoded::parse(self.0.as_bytes())
    }

    fn first(&self, name: &str) -> Option<String> {
        self.pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// As the API machinery reads a flag: everything but `false` and `0` is yes.
    fn flag(&self, name: &str) -> bool {
        self.first(name).is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }

    fn number(&self, name: &str) -> Result<Option<u64>, RouteError> {
        match self.first(name).filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(RouteError::Invalid(format!("{name} must be a number that is not negative"))),
            },
        }
    }

    fn log_options(&self) -> Result<LogOptions, RouteError> {
        let invalid = |message: &str| Err(RouteError::Invalid(message.to_owned()));
        let since_time = match self.first("sinceTime").filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => match text.parse() {
                Ok(time) => Some(time),
                Err(_) => return invalid("sinceTime must be a time like 2026-01-31T12:00:00Z"),
            },
        };
        let source = match self.first("stream").as_deref() {
            None | Some("" | "All") => LogSource::All,
            Some("Stdout") => LogSource::Stdout,
            Some("Stderr") => LogSource::Stderr,
            Some(_) => return invalid("stream must be All, Stdout or Stderr"),
        };
        // An old spelling of no limit.
        let tail_lines =
            if self.first("tailLines").as_deref() == Some("all") { None } else { self.number("tailLines")? };
        let options = LogOptions {
            follow: self.flag("follow"),
            previous: self.flag("previous"),
            timestamps: self.flag("timestamps"),
            since_seconds: self.number("sinceSeconds")?,
            since_time,
            tail_lines,
            limit_bytes: self.number("limitBytes")?,
            source,
        };
        if options.since_seconds.is_some() && options.since_time.is_some() {
            return invalid("at most one of sinceTime and sinceSeconds may be given");
        }
        if options.limit_bytes == Some(0) || options.since_seconds == Some(0) {
            return invalid("limitBytes and sinceSeconds must be greater than 0");
        }
        if options.source != LogSource::All && options.tail_lines.is_some() {
            return invalid("tailLines and a single stream cannot be asked for together");
        }
        Ok(options)
    }

    fn streams(&self, kind: UpgradeKind) -> Result<Streams, RouteError> {
        let mut streams = Streams::default();
        if kind == UpgradeKind::PortForward {
            for (_, value) in self.pairs().filter(|(key, _)| key == "port" || key == "ports") {
                for port in value.split(',') {
                    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
                    streams
                        .ports
                        .push(port.ok_or_else(|| RouteError::Invalid("a port is 1 to 65535".into()))?);
                }
            }
            return Ok(streams);
        }
        streams.stdin = self.flag("input");
        streams.stdout = self.flag("output");
        streams.stderr = self.flag("error");
        streams.tty = self.flag("tty");
        if streams.tty && streams.stderr {
            // A terminal has one output.
            streams.stderr = false;
        }
        if !(streams.stdin || streams.stdout || streams.stderr) {
            let message = "you must specify at least 1 of stdin, stdout, stderr";
            return Err(RouteError::Invalid(message.into()));
        }
        if kind == UpgradeKind::Exec {
            let command =
                self.pairs().filter(|(key, _)| key == "command").map(|(_, value)| value.into_owned());
            streams.command = command.take(MOST_ARGUMENTS + 1).collect();
            if streams.command.is_empty() || streams.command.len() > MOST_ARGUMENTS {
                return Err(RouteError::Invalid(format!(
                    "exec needs a command of 1 to {MOST_ARGUMENTS} words"
                )));
            }
        }
        Ok(streams)
    }
}

#[cfg(test)]
mod tests;
