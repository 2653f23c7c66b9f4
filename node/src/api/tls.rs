use std::{fmt, sync::Arc};

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    pki_types::{CertificateDer, UnixTime},
    server::{
        ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

/// How the server speaks TLS: with whatever certificate `serving` has at the moment, asking for a client's
/// certificate but not insisting on one.
pub(super) fn server_config(serving: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(ProofOfKey(provider.signature_verification_algorithms));
    let mut config = builder(provider)?.with_client_cert_verifier(verifier).with_cert_resolver(serving);
    // Upgrades need HTTP/1.1, and with it one vanished client is one closed connection.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The same for a server that does not ask who calls.
pub(super) fn plain_config(serving: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = builder(provider)?.with_no_client_auth().with_cert_resolver(serving);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}

/// Checks in the handshake that the client has the key of the certificate it shows, and nothing else.
///
/// Whether the certificate means anything is decided for each request, by [`super::ClientCa`] as it is then. So a
/// certificate that is not accepted is an HTTP 401 with an explanation and not a broken handshake, a token can still
/// be used beside it, and a connection does not outlive the expiry of what opened it.
struct ProofOfKey(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for ProofOfKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

impl fmt::Debug for ProofOfKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProofOfKey").finish_non_exhaustive()
    }
}
