//! How long certificates last.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::finding::Finding;

/// When somebody should know.
const SOON: i64 = 14;
/// When it is urgent.
const URGENT: i64 = 2;

/// How long the certificate lasts that a server shows. Nothing if it cannot be reached from here: whether it should be
/// is looked at elsewhere, and so is whether it is to be trusted.
pub(super) async fn of_server(
    place: &str,
    check: &'static str,
    server: &http::Uri,
    advice: &str,
) -> Option<Finding> {
    let host = server.host()?.trim_matches(['[', ']']);
    let ends = ends(host, server.port_u16().unwrap_or(443)).await?;
    Some(judge(place, check, ends, Timestamp::now(), advice))
}

/// When the first certificate of a text in PEM ends.
pub(super) fn pem_ends(pem: &[u8]) -> Option<Timestamp> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem).ok()?;
    Timestamp::from_second(pem.parse_x509().ok()?.validity().not_after.timestamp()).ok()
}

async fn ends(host: &str, port: u16) -> Option<Timestamp> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let look = Arc::new(OnlyLook(Arc::new(provider)));
    let config =
        ClientConfig::builder().dangerous().with_custom_certificate_verifier(look).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let connect = async {
        let stream = TcpStream::connect((host, port)).await.ok()?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
    };
    let stream = tokio::time::timeout(Duration::from_secs(5), connect).await.ok()??;
    let first = stream.get_ref().1.peer_certificates()?.first()?.clone();
    let (_, parsed) = x509_parser::parse_x509_certificate(&first).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

/// What it means that something ends then.
pub(super) fn judge(
    place: &str,
    check: &'static str,
    ends: Timestamp,
    now: Timestamp,
    advice: &str,
) -> Finding {
    let days = ends.duration_since(now).as_hours() / 24;
    if ends <= now {
        Finding::wrong(place, check, format!("has expired, at {ends}"), advice)
    } else if days < URGENT {
        Finding::wrong(place, check, format!("expires at {ends}"), advice)
    } else if days < SOON {
        Finding::notice(place, check, format!("expires in {days} days"), advice)
    } else {
        Finding::good(place, check, format!("{days} days left"))
    }
}

/// Accepts everything, because nothing is sent: only what is shown is read.
#[derive(Debug)]
struct OnlyLook(Arc<CryptoProvider>);

impl ServerCertVerifier for OnlyLook {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn what_ends_soon_is_told_in_time() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (hours, verdict) in [
            (24 * 300, Verdict::Good),
            (24 * 10, Verdict::Notice),
            (20, Verdict::Wrong),
            (-1, Verdict::Wrong),
        ] {
            let ends = now + SignedDuration::from_hours(hours);
            assert_eq!(judge("m", "certificate", ends, now, "renew it").verdict, verdict, "{hours}");
        }
    }
}
