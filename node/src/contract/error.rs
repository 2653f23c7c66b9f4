use std::time::Duration;

/// Why a provider did not do what it was asked.
///
/// The controllers act on the variant, so it must be true. Above all, [`NotFound`](Self::NotFound) is a definitive
/// answer: say it only when you know. A cache that is not filled yet, a connection that broke, a list that did not
/// complete are all [`Unavailable`](Self::Unavailable), and then nothing is deleted, failed or run again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// There is certainly no such thing. A pod that ran and is not found any more counts as lost.
    #[error("not found")]
    NotFound,

    /// The name is taken by something that is not this pod. The pod waits, and is tried again.
    #[error("{message}")]
    AlreadyExists {
        /// What holds the name, for the person who has to decide about it.
        message: String,
    },

    /// The request can never work as it is written. A pod waits until someone changes it; a stream is a bad request.
    #[error("{message}")]
    Invalid {
        /// What is wrong with it.
        message: String,
    },

    /// Understood and refused for now: a quota, an admission policy. The pod stays Pending with this reason and is
    /// tried again, slowly. It never fails for it, since a Job would burn its retries and a ReplicaSet would loop.
    #[error("{message}")]
    Rejected {
        /// One word in CamelCase: shown in the STATUS column of `kubectl get pods`.
        reason: String,
        /// The whole story, as the one who refused tells it.
        message: String,
    },

    /// Nobody could say. Tried again for ever, with growing pauses.
    #[error("{message}")]
    Unavailable {
        /// What went wrong, without credentials.
        message: String,
        /// When the other side asked to be left alone for a while.
        retry_after: Option<Duration>,
    },

    /// This provider does not do this at all.
    #[error("{message}")]
    Unsupported {
        /// What it does not do.
        message: String,
    },
}

impl ProviderError {
    /// [`AlreadyExists`](Self::AlreadyExists) with its message.
    pub fn already_exists(message: impl Into<String>) -> Self {
        Self::AlreadyExists { message: message.into() }
    }

    /// [`Invalid`](Self::Invalid) with its message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into() }
    }

    /// [`Rejected`](Self::Rejected) with its reason and message.
    pub fn rejected(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Rejected { reason: reason.into(), message: message.into() }
    }

    /// [`Unavailable`](Self::Unavailable), without a wish about when to come back.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after: None }
    }

    /// [`Unsupported`](Self::Unsupported) with its message.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::Unsupported { message: message.into() }
    }

    /// One word in CamelCase for Events and for the pod's `status.reason`.
    pub fn reason(&self) -> &str {
        match self {
            Self::NotFound => "ProviderPodNotFound",
            Self::AlreadyExists { .. } => "ProviderNameTaken",
            Self::Invalid { .. } => "ProviderInvalidPod",
            Self::Rejected { reason, .. } if is_reason(reason) => reason,
            Self::Rejected { .. } => "ProviderRejected",
            Self::Unavailable { .. } => "ProviderUnavailable",
            Self::Unsupported { .. } => "ProviderUnsupported",
        }
    }

    /// The variant as a metric label.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::AlreadyExists { .. } => "already_exists",
            Self::Invalid { .. } => "invalid",
            Self::Rejected { .. } => "rejected",
            Self::Unavailable { .. } => "unavailable",
            Self::Unsupported { .. } => "unsupported",
        }
    }
}

/// Whether the API server takes this as a reason: the rule for Event reasons is the narrowest.
fn is_reason(word: &str) -> bool {
    !word.is_empty() && word.len() <= 128 && word.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_always_one_the_api_server_takes() {
        assert_eq!(ProviderError::rejected("QuotaExceeded", "pods: 3 of 3").reason(), "QuotaExceeded");
        for bad in ["", "two words", "line\nbreak", &"x".repeat(129)] {
            assert_eq!(ProviderError::rejected(bad, "…").reason(), "ProviderRejected");
        }
    }
}
