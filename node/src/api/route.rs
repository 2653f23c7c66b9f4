use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use crate::contract::{LogOptions, LogSource, MetricsKind, UpgradeKind, UpgradeRequest};

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
        /// Where.
        pod: RoutePod,
        /// What, still without the headers that negotiate it.
        request: UpgradeRequest,
    },
    /// Log files of the machine, of which a virtual node has none.
    NodeLogs,
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
            ["logs", ..] => get(Self::NodeLogs),
            ["containerLogs", namespace, name, container] => {
                let pod = RoutePod::new(namespace, name, None);
                get(Self::Logs { pod, container: (*container).to_owned(), options: query.log_options()? })
            }
            ["exec", rest @ ..] => in_container(UpgradeKind::Exec, rest)?.upgrade(method, &query),
            ["attach", rest @ ..] => in_container(UpgradeKind::Attach, rest)?.upgrade(method, &query),
            ["portForward", rest @ ..] => to_ports(rest)?.upgrade(method, &query),
            _ => Err(RouteError::NotFound),
        }
    }
}

/// What the path of an upgrade says.
struct Upgrade {
    kind: UpgradeKind,
    pod: RoutePod,
    container: Option<String>,
}

fn in_container(kind: UpgradeKind, rest: &[&str]) -> Result<Upgrade, RouteError> {
    let (pod, container) = match rest {
        [namespace, name, container] => (RoutePod::new(namespace, name, None), container),
        [namespace, name, uid, container] => (RoutePod::new(namespace, name, Some(uid)), container),
        _ => return Err(RouteError::NotFound),
    };
    Ok(Upgrade { kind, pod, container: Some((*container).to_owned()) })
}

fn to_ports(rest: &[&str]) -> Result<Upgrade, RouteError> {
    let pod = match rest {
        [namespace, name] => RoutePod::new(namespace, name, None),
        [namespace, name, uid] => RoutePod::new(namespace, name, Some(uid)),
        _ => return Err(RouteError::NotFound),
    };
    Ok(Upgrade { kind: UpgradeKind::PortForward, pod, container: None })
}

impl Upgrade {
    fn upgrade(self, method: &Method, query: &Query<'_>) -> Result<Route, RouteError> {
        upgradable(method)?;
        let Self { kind, pod, container } = self;
        let mut request = UpgradeRequest {
            kind,
            method: method.clone(),
            container,
            command: Vec::new(),
            stdin: false,
            stdout: false,
            stderr: false,
            tty: false,
            ports: Vec::new(),
            headers: HeaderMap::new(),
        };
        match kind {
            UpgradeKind::PortForward => request.ports = query.ports()?,
            UpgradeKind::Attach => query.streams(&mut request)?,
            UpgradeKind::Exec => {
                query.streams(&mut request)?;
                request.command = query.command()?;
            }
        }
        Ok(Route::Upgrade { pod, request })
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

    fn ports(&self) -> Result<Vec<u16>, RouteError> {
        let mut ports = Vec::new();
        for (_, value) in self.pairs().filter(|(key, _)| key == "port" || key == "ports") {
            for port in value.split(',') {
                let port = port.parse::<u16>().ok().filter(|port| *port > 0);
                ports.push(port.ok_or_else(|| RouteError::Invalid("a port is 1 to 65535".into()))?);
            }
        }
        Ok(ports)
    }

    fn streams(&self, request: &mut UpgradeRequest) -> Result<(), RouteError> {
        request.stdin = self.flag("input");
        request.stdout = self.flag("output");
        request.tty = self.flag("tty");
        // A terminal has one output.
        request.stderr = self.flag("error") && !request.tty;
        if request.stdin || request.stdout || request.stderr {
            Ok(())
        } else {
            Err(RouteError::Invalid("you must specify at least 1 of stdin, stdout, stderr".into()))
        }
    }

    fn command(&self) -> Result<Vec<String>, RouteError> {
        let words = self.pairs().filter(|(key, _)| key == "command").map(|(_, word)| word.into_owned());
        let command: Vec<String> = words.take(MOST_ARGUMENTS + 1).collect();
        if (1..=MOST_ARGUMENTS).contains(&command.len()) {
            Ok(command)
        } else {
            Err(RouteError::Invalid(format!("exec needs a command of 1 to {MOST_ARGUMENTS} words")))
        }
    }
}

#[cfg(test)]
mod tests;
