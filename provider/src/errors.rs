//! What the member's API server said, in the words of the virtual kubelet.

use std::time::Duration;

use federlet_node::contract::ProviderError;
use kube::core::Status;

use crate::translate::TranslateError;

/// What an error of the member's API server means for a pod.
///
/// Only an answer of that server is definite. Everything else, a broken connection or a proxy's page, says nothing about
/// the pod, and then nothing is deleted, failed or run again.
pub fn from_member(error: &kube::Error) -> ProviderError {
    match error {
        kube::Error::Api(status) => from_status(status),
        other => ProviderError::unavailable(brief(other)),
    }
}

/// What an error of the host's API server means for a copy that we wanted to write there.
pub(crate) fn from_host(error: &kube::Error) -> ProviderError {
    match from_member(error) {
        // That is about its namespace, which is going away.
        ProviderError::NotFound => ProviderError::unavailable(brief(error)),
        ProviderError::Rejected { reason, message } => {
            ProviderError::rejected(reason.replace("Member", "Host"), message)
        }
        other => other,
    }
}

fn from_status(status: &Status) -> ProviderError {
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    let message = if status.message.is_empty() { status.reason.clone() } else { status.message.clone() };
    match (status.code, status.reason.as_str()) {
        (404, "NotFound") => ProviderError::NotFound,
        (409, "AlreadyExists") => ProviderError::already_exists(message),
        // A namespace that is going away refuses with these; the next one will take the pod.
        (403 | 409, _) if message.contains(TERMINATING) => {
            ProviderError::rejected("NamespaceTerminating", message)
        }
        (403, _) if message.contains("exceeded quota") => ProviderError::rejected("QuotaExceeded", message),
        (403, _) => ProviderError::rejected("MemberForbids", message),
        (400 | 422, _) => ProviderError::rejected("MemberRejects", message),
        _ => ProviderError::Unavailable { message, retry_after },
    }
}

/// How an API server says that a namespace is going away.
const TERMINATING: &str = "because it is being terminated";

/// Whether something was refused only because its namespace is going away: it will be taken when that is gone.
pub fn is_terminating(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.message.contains(TERMINATING))
}

/// One line without credentials: what kube prints of a failed connection ends with its cause.
pub fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => {
            // The outermost error only says that a request failed; the innermost says why.
            let mut cause: &dyn std::error::Error = other;
            while let Some(source) = cause.source() {
                cause = source;
            }
            cause.to_string()
        }
    }
}

impl From<TranslateError> for ProviderError {
    fn from(error: TranslateError) -> Self {
        match error {
            TranslateError::NotListed(_) => Self::unavailable(error.to_string()),
            _ => Self::rejected(error.reason(), error.to_string()),
        }
    }
}
