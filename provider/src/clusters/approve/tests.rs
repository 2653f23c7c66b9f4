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

impl Vouched {
    /// Whether we would have made this request ourselves: for a node of ours, for its own addresses.
    fn is_ours(&self, request: &CertificateSigningRequest, ourselves: &str) -> bool {
        let candidate = Candidate::read(request.clone(), ourselves);
        candidate.is_some_and(|asked| self.vouches_for(&asked.node, &asked.addresses))
    }
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

/// A request of this name, changed as a test likes.
fn named(
    name: &str,
    change: impl Fn(&mut CertificateParams, &mut CertificateSigningRequestSpec),
) -> CertificateSigningRequest {
    let mut request = request(change);
    request.metadata.name = Some(name.into());
    request
}

fn names(taken: &[Candidate]) -> Vec<String> {
    taken.iter().map(|candidate| candidate.request.name_any()).collect()
}

#[test]
fn requests_of_others_never_keep_ours_out() {
    let (mut waiting, vouched, now) = (Waiting::default(), vouched(), Instant::now());
    // Nobody serves these nodes here yet.
    let foreign = request(|p, s| {
        p.distinguished_name.push(DnType::CommonName, "system:node:m2");
        s.username = Some("system:node:m2".into());
    });
    for number in 0..=WAITING_LIMIT {
        let mut one = foreign.clone();
        one.metadata.name = Some(format!("foreign-{number}"));
        waiting.hear(watcher::Event::InitApply(one), &vouched, "");
    }
    assert_eq!(waiting.0.len(), WAITING_LIMIT);
    waiting.hear(watcher::Event::Apply(named("ours", |_, _| {})), &vouched, "");
    assert_eq!(names(&waiting.take_ours(&vouched, now)), ["ours"]);
    // What is gone, and what nobody here could have asked for, takes no room.
    let mut gone = foreign;
    gone.metadata.name = Some("foreign-0".into());
    waiting.hear(watcher::Event::Delete(gone), &vouched, "");
    let kubelets =
        named("kubelet", |p, _| p.subject_alt_names.push(SanType::DnsName("m1".try_into().unwrap())));
    waiting.hear(watcher::Event::Apply(kubelets), &vouched, "");
    assert_eq!(waiting.0.len(), WAITING_LIMIT - 1);
    vouched.add(NodeName::new("m2").unwrap(), [OURS.into()].into());
    assert_eq!(waiting.take_ours(&vouched, now).len(), WAITING_LIMIT - 1, "their node is served here now");
}

#[test]
fn what_could_not_be_approved_is_tried_again() {
    let (mut waiting, vouched, now) = (Waiting::default(), vouched(), Instant::now());
    waiting.hear(watcher::Event::Apply(named("ours", |_, _| {})), &vouched, "");
    let taken = waiting.take_ours(&vouched, now).remove(0);
    waiting.put_back(taken, now + AGAIN);
    assert!(waiting.take_ours(&vouched, now).is_empty(), "not at once");
    assert_eq!(waiting.next(), Some(now + AGAIN));
    assert_eq!(names(&waiting.take_ours(&vouched, now + AGAIN)), ["ours"]);
    let answer = |code: u16| {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        kube::Error::Api(status.boxed())
    };
    for (code, is_final) in [(403, true), (404, true), (409, true), (429, false), (500, false), (503, false)]
    {
        assert_eq!(is_an_answer(&answer(code)), is_final, "{code}");
    }
}
