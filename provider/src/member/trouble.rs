use std::{error::Error, fmt, io};

use super::gate::IdentityError;
use crate::errors::brief;

/// Why a member cannot be used, for a condition: one word and one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One word.
    pub reason: TroubleReason,
    /// What happened, without secrets.
    pub message: String,
}

/// The kinds of trouble that people act on differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleReason {
    /// Nothing answers at the address.
    NotReachable,
    /// The name of the API server leads to no address.
    NameNotFound,
    /// Its certificate is not signed by the authority that we know, or not for this name.
    CertificateNotTrusted,
    /// It does not know our token or certificate: expired, revoked, or of another cluster.
    Unauthorized,
    /// It knows us, and we may not.
    Forbidden,
    /// It is not the cluster that joined.
    IdentityMismatch,
    /// It answers, but not well.
    NotHealthy,
}

impl TroubleReason {
    /// As conditions have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotReachable => "NotReachable",
            Self::NameNotFound => "NameNotFound",
            Self::CertificateNotTrusted => "CertificateNotTrusted",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::IdentityMismatch => "IdentityMismatch",
            Self::NotHealthy => "NotHealthy",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Trouble {}

impl From<&kube::Error> for Trouble {
    fn from(error: &kube::Error) -> Self {
        let reason = reason(error);
        let said = brief(error);
        let message = match reason {
            TroubleReason::Unauthorized => {
                format!("the member does not accept our credentials: {said}")
            }
            TroubleReason::CertificateNotTrusted => {
                format!("the certificate of the member's API server is not trusted: {said}")
            }
            TroubleReason::NameNotFound => format!("the member's API server has no address: {said}"),
            TroubleReason::NotReachable => format!("the member's API server does not answer: {said}"),
            _ => said,
        };
        Self { reason, message }
    }
}

fn reason(error: &kube::Error) -> TroubleReason {
    if let kube::Error::Api(status) = error {
        return match status.code {
            401 => TroubleReason::Unauthorized,
            403 => TroubleReason::Forbidden,
            _ => TroubleReason::NotHealthy,
        };
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if current.is::<IdentityError>() {
            return TroubleReason::IdentityMismatch;
        }
        if current.is::<rustls::Error>() {
            return TroubleReason::CertificateNotTrusted;
        }
        if current.to_string().contains("dns error") {
            return TroubleReason::NameNotFound;
        }
        cause = behind(current);
    }
    TroubleReason::NotReachable
}

/// What caused an error. That within an I/O error is not its source, but what it says, and may be one itself.
fn behind<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn service(error: impl Error + Send + Sync + 'static) -> kube::Error {
        kube::Error::Service(Box::new(error))
    }

    #[test]
    fn each_trouble_has_its_word() {
        let api = |code: u16, message: &str| {
            kube::Error::Api(Box::new(Status { code, message: message.into(), ..Status::default() }))
        };
        let issuer = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let other = IdentityError { expected: "a".into(), found: "b".into() };
        for (error, word, text) in [
            (api(401, "Unauthorized"), "Unauthorized", "does not accept our credentials"),
            (api(403, "no"), "Forbidden", "no"),
            (api(500, "etcd"), "NotHealthy", "etcd"),
            (service(issuer.clone()), "CertificateNotTrusted", "UnknownIssuer"),
            (service(io::Error::other(issuer.clone())), "CertificateNotTrusted", "UnknownIssuer"),
            (service(io::Error::other(io::Error::other(issuer))), "CertificateNotTrusted", "UnknownIssuer"),
            (service(other), "IdentityMismatch", "not the cluster that joined"),
            (service(io::Error::other("dns error: no such host")), "NameNotFound", "has no address"),
            (service(io::Error::from(io::ErrorKind::TimedOut)), "NotReachable", "does not answer"),
        ] {
            let trouble = Trouble::from(&error);
            assert_eq!(trouble.reason.as_str(), word, "{error}");
            assert!(trouble.message.contains(text), "{trouble}");
        }
    }
}
