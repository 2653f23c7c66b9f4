//! The certificate of the webhook: an authority of our own, and what it signed.
//!
//! The host is told the authority, which stays for years; the certificate below it is renewed long before it expires. So
//! a renewal needs no change at the host, and replicas need not agree on the moment.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use x509_parser::{
    pem::parse_x509_pem,
    prelude::{GeneralName, X509Certificate},
};

const AUTHORITY_YEARS: i64 = 10;
const CERTIFICATE_DAYS: i64 = 365;
/// With so little time left it is made anew.
const RENEW_DAYS: i64 = 120;

pub(super) const CA: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
pub(super) const CERTIFICATE: &str = "tls.crt";
pub(super) const KEY: &str = "tls.key";

/// What is in the Secret, by key, in PEM.
pub(super) type Material = BTreeMap<String, String>;

/// What must be written instead, if anything must: there is nothing, it does not speak for these names, or it expires.
pub(super) fn renewed(
    found: &Material,
    names: &[String],
    now: Timestamp,
) -> Result<Option<Material>, rcgen::Error> {
    let authority = found.get(CA).zip(found.get(CA_KEY)).filter(|(ca, _)| lasts(ca, now));
    let speaks = |text: &String| lasts(text, now) && speaks_for(text, names);
    if authority.is_some() && found.get(KEY).is_some() && found.get(CERTIFICATE).is_some_and(speaks) {
        return Ok(None);
    }
    let (ca, ca_key) = match authority {
        Some((ca, key)) => (ca.clone(), key.clone()),
        None => make_authority(now)?,
    };
    let issuer = Issuer::from_ca_cert_pem(&ca, KeyPair::from_pem(&ca_key)?)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "federlet-webhook");
    params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    valid(&mut params, now, CERTIFICATE_DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Some(Material::from([
        (CA.to_owned(), ca),
        (CA_KEY.to_owned(), ca_key),
        (CERTIFICATE.to_owned(), certificate.pem()),
        (KEY.to_owned(), key.serialize_pem()),
    ])))
}

fn make_authority(now: Timestamp) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "federlet-webhook-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    valid(&mut params, now, AUTHORITY_YEARS * 365);
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn alternative(name: &str) -> Result<SanType, rcgen::Error> {
    Ok(match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}

/// From yesterday, since clocks differ, for so many days.
fn valid(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let midnight = |days: i64| {
        let date = today.checked_add(days.days()).unwrap_or(today);
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    (params.not_before, params.not_after) = (midnight(-1), midnight(days));
}

fn lasts(pem: &str, now: Timestamp) -> bool {
    with(pem, |certificate| {
        certificate.validity().not_after.timestamp() - now.as_second() > RENEW_DAYS * 24 * 60 * 60
    })
}

fn speaks_for(pem: &str, names: &[String]) -> bool {
    with(pem, |certificate| {
        let Ok(Some(found)) = certificate.subject_alternative_name() else { return false };
        names.iter().all(|name| {
            found.value.general_names.iter().any(|general| match (general, name.parse::<IpAddr>()) {
                (GeneralName::DNSName(there), Err(_)) => there == name,
                (GeneralName::IPAddress(there), Ok(IpAddr::V4(address))) => **there == address.octets(),
                (GeneralName::IPAddress(there), Ok(IpAddr::V6(address))) => **there == address.octets(),
                _ => false,
            })
        })
    })
}

fn with(pem: &str, ask: impl Fn(&X509Certificate<'_>) -> bool) -> bool {
    let Ok((_, pem)) = parse_x509_pem(pem.as_bytes()) else { return false };
    pem.parse_x509().is_ok_and(|certificate| ask(&certificate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn it_is_made_kept_and_renewed_below_the_same_authority() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let all = names(&["federlet.federlet-system.svc", "10.0.0.1"]);
        let first = renewed(&Material::new(), &all, now).unwrap().unwrap();
        assert_eq!(renewed(&first, &all, now).unwrap(), None);
        assert_eq!(renewed(&first, &names(&["10.0.0.1"]), now).unwrap(), None, "fewer names are no reason");
        let other = renewed(&first, &names(&["10.0.0.2"]), now).unwrap().unwrap();
        assert_eq!(other[CA], first[CA]);
        assert_ne!(other[CERTIFICATE], first[CERTIFICATE]);
        let later = now + (250 * 24).hours();
        let second = renewed(&first, &all, later).unwrap().unwrap();
        assert_eq!(second[CA], first[CA]);
        assert_ne!(second[CERTIFICATE], first[CERTIFICATE]);
        let much_later = now + (11 * 365 * 24).hours();
        assert_ne!(renewed(&second, &all, much_later).unwrap().unwrap()[CA], first[CA]);
        let broken = Material::from([(CA.to_owned(), "x".to_owned())]);
        assert!(renewed(&broken, &all, now).unwrap().is_some());
    }
}
