//! Tokens of service accounts, signed by the host's own key with a date of our choice.

use anyhow::{Context, Result};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use federlet_sandbox::Cluster;
use rcgen::KeyPair;
use serde_json::Value;

/// The same token, except that it expires so many seconds from now.
pub(crate) fn dated(host: &Cluster, token: &str, expires_in: i64) -> Result<String> {
    let mut parts = token.split('.');
    let (head, claims) = (parts.next().context("no head")?, parts.next().context("no claims")?);
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
    let now = jiff::Timestamp::now().as_second();
    claims["exp"] = (now + expires_in).into();
    for begin in ["iat", "nbf"] {
        claims[begin] = (now - 3600).into();
    }
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let files = host.certificates();
    let key = KeyPair::from_pem(&std::fs::read_to_string(files.file("service-accounts.key"))?)?;
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der())?;
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
