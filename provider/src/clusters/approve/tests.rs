use k8s_openapi::{ByteString, api::certificates::v1::CertificateSigningRequestSpec};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use super::*;

const OURS: [u8; 4] = [10, 0, 0, 1];

/// What our own node asks for, changed as a test likes.
fn request(
    change: impl Fn(&mut CertificateParams, &mut CertificateSigningRequestSpec),
) -> CertificateSigningRequest {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.subject_alt_names = vec![SanType::IpAddress(OURS.into())];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:m1");
    let mut spec = CertificateSigningRequestSpec {
        signer_name: SIGNER.into(),
        username: Some("system:node:m1".into()),
        groups: Some(vec!["system:nodes".into(), "system:authenticated".into()]),
        usages: Some(vec!["digital signature".into(), "server auth".into()]),
        ..CertificateSigningRequestSpec::default()
    };
    change(&mut params, &mut spec);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    spec.request = ByteString(pem.into_bytes());
    CertificateSigningRequest { spec, ..CertificateSigningRequest::default() }
}

fn vouched() -> Vouched {
    let vouched = Vouched::default();
    vouched.add(NodeName::new("m1").unwrap(), [OURS.into()].into());
    vouched
}

#[test]
fn what_we_asked_for_ourselves_is_approved() {
    assert!(vouched().is_ours(&request(|_, _| {}), ""));
    let by_us = request(|_, spec| spec.username = Some("serve".into()));
    assert!(vouched().is_ours(&by_us, "serve"));
    assert!(!vouched().is_ours(&by_us, ""), "nobody is not us");
}

#[test]
fn anything_else_is_left_to_others() {
    type Change = fn(&mut CertificateParams, &mut CertificateSigningRequestSpec);
    let cases: [(&str, Change); 12] = [
        ("another address", |p, _| p.subject_alt_names.push(SanType::IpAddress([10, 0, 0, 2].into()))),
        ("no address", |p, _| p.subject_alt_names.clear()),
        ("a name", |p, _| p.subject_alt_names.push(SanType::DnsName("host".try_into().unwrap()))),
        ("another node", |p, _| p.distinguished_name.push(DnType::CommonName, "system:node:m2")),
        ("somebody who is no node", |p, _| p.distinguished_name.push(DnType::CommonName, "admin")),
        ("another organization", |p, _| {
            p.distinguished_name.push(DnType::OrganizationName, "system:masters");
        }),
        ("more in the subject", |p, _| p.distinguished_name.push(DnType::CountryName, "DE")),
        ("asked by somebody else", |_, s| s.username = Some("system:node:m2".into())),
        ("asked by no node", |_, s| s.groups = Some(vec!["people".into()])),
        ("to call as a client", |_, s| {
            s.usages = Some(vec!["digital signature".into(), "client auth".into()]);
        }),
        ("to call as a client too", |_, s| s.usages.as_mut().unwrap().push("client auth".into())),
        ("of another signer", |_, s| s.signer_name = "kubernetes.io/kube-apiserver-client".into()),
    ];
    for (what, change) in cases {
        assert!(!vouched().is_ours(&request(change), "serve"), "{what}");
    }
    let garbage = |_: &mut CertificateParams, _: &mut CertificateSigningRequestSpec| {};
    let mut broken = request(garbage);
    broken.spec.request = ByteString(b"not a request".to_vec());
    assert!(!vouched().is_ours(&broken, ""));
    let gone = vouched();
    gone.remove(&NodeName::new("m1").unwrap());
    assert!(!gone.is_ours(&request(|_, _| {}), ""), "a node that left");
}
