use std::io;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE},
};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

use serde_json::json;

use super::{authn::User, authz::Attributes, route::RouteError};
use crate::{
    contract::{Pod, ProviderError},
    metrics::OPEN_METRICS,
};

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is there already.
pub(super) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn plain(body: Body) -> Response<Body> {
    with_type(body, "text/plain; charset=utf-8")
}

pub(super) fn json_response(json: String) -> Response<Body> {
    with_type(whole(json.into()), "application/json")
}

/// Our own metrics, in a format that has types which the older one does not.
pub(super) fn own_metrics_response(text: Bytes) -> Response<Body> {
    with_type(whole(text), OPEN_METRICS)
}

pub(super) fn metrics_response(text: Bytes) -> Response<Body> {
    with_type(whole(text), "text/plain; version=0.0.4; charset=utf-8")
}

fn with_type(body: Body, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The headers that negotiate a change of protocol, and no others: neither who the client is nor where it has been
/// is the other side's business.
pub(super) fn negotiation(headers: &HeaderMap) -> HeaderMap {
    let wanted = |name: &HeaderName| {
        *name == CONNECTION
            || *name == UPGRADE
            || name == "x-stream-protocol-version"
            || name.as_str().starts_with("sec-websocket-")
    };
    let kept = headers.iter().filter(|(name, _)| wanted(name));
    kept.fold(HeaderMap::new(), |mut all, (name, value)| {
        all.append(name.clone(), value.clone());
        all
    })
}

/// A request that is not done, and what its sender hears.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
    retry_after: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None }
    }

    pub(super) fn unauthenticated() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized")
    }

    pub(super) fn forbidden(user: &User, attributes: &Attributes) -> Self {
        let Attributes { verb, subresources } = attributes;
        let message = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)={subresources:?})",
            user.name
        );
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// When the host cannot say who it is or whether they may, the answer is no, for now.
    pub(super) fn cannot_ask(error: &kube::Error) -> Self {
        tracing::warn!(%error, "cannot ask the host about a caller");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the host could not be asked whether you may do this")
    }

    pub(super) fn no_pod() -> Self {
        Self::new(StatusCode::NOT_FOUND, "pod does not exist")
    }

    pub(super) fn no_container(pod: &Pod, container: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("container {container} not found in pod {}", pod.key().name()),
        )
    }

    pub(super) fn no_node() -> Self {
        let message = "several nodes are served here: ask under the name of one of them";
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The answer. To a client that wanted to switch protocols it is a Kubernetes Status: API servers and kubectl
    /// show its message, and lose a plain text on the way.
    pub(super) fn into_response(self, to_upgrade: bool) -> Response<Body> {
        let mut response = if to_upgrade {
            let code = self.status.as_u16();
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                                "reason": reason(self.status), "message": self.message, "code": code});
            json_response(status.to_string())
        } else {
            plain(whole(self.message.into()))
        };
        *response.status_mut() = self.status;
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// The word for a status code that Kubernetes' clients know.
fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    }
}

impl From<RouteError> for Refusal {
    fn from(error: RouteError) -> Self {
        let status = match error {
            RouteError::NotFound => StatusCode::NOT_FOUND,
            RouteError::Method => StatusCode::METHOD_NOT_ALLOWED,
            RouteError::Invalid(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ProviderError> for Refusal {
    fn from(error: ProviderError) -> Self {
        let status = match &error {
            ProviderError::NotFound => StatusCode::NOT_FOUND,
            ProviderError::AlreadyExists { .. } => StatusCode::CONFLICT,
            ProviderError::Invalid { .. } => StatusCode::BAD_REQUEST,
            ProviderError::Rejected { .. } => StatusCode::FORBIDDEN,
            ProviderError::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            ProviderError::Unsupported { .. } => StatusCode::NOT_IMPLEMENTED,
        };
        let retry_after = match &error {
            ProviderError::Unavailable { retry_after, .. } => retry_after.map(|wait| wait.as_secs().max(1)),
            _ => None,
        };
        Self { retry_after, ..Self::new(status, error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_negotiation_is_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v5.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("sec-websocket-key", "x"),
            ("authorization", "Bearer secret"),
            ("cookie", "c"),
            ("x-remote-user", "admin"),
            ("x-forwarded-for", "10.0.0.1"),
            ("host", "h"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let kept = negotiation(&headers);
        assert_eq!(kept.len(), 5);
        assert_eq!(kept.get_all("x-stream-protocol-version").iter().count(), 2);
    }
}
