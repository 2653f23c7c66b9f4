use sha2::{Digest, Sha256};

/// Why some text cannot be a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot be {what}: {rule}")]
pub struct NameError {
    text: String,
    what: &'static str,
    rule: &'static str,
}

impl NameError {
    fn new(text: &str, what: &'static str, rule: &'static str) -> Self {
        // It comes from outside and goes into messages.
        Self { text: text.chars().take(80).collect(), what, rule }
    }
}

const LABEL_RULE: &str = "use lower-case letters, digits and '-', up to 63 characters, beginning and ending with a letter or digit";
const SUBDOMAIN_RULE: &str = "use lower-case letters, digits, '-' and '.', up to 253 characters, each part \
                              beginning and ending with a letter or digit";
const LABEL_VALUE_RULE: &str =
    "use letters, digits, '-', '_' and '.', up to 63 characters, beginning and ending with a letter or digit";

/// Whether this is a DNS label: what namespaces must be.
pub(super) fn is_label(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether this can be the value of a label, and is not empty.
pub(crate) fn is_label_value(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

pub(super) fn label(text: &str, what: &'static str) -> Result<(), NameError> {
    if is_label(text) { Ok(()) } else { Err(NameError::new(text, what, LABEL_RULE)) }
}

pub(super) fn subdomain(text: &str, what: &'static str) -> Result<(), NameError> {
    let parts = text.split('.').all(|part| {
        let edge = |b: Option<u8>| b.is_some_and(|b| b != b'-');
        edge(part.bytes().next()) && edge(part.bytes().next_back())
    });
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    if text.len() <= 253 && parts && text.bytes().all(inside) {
        Ok(())
    } else {
        Err(NameError::new(text, what, SUBDOMAIN_RULE))
    }
}

pub(super) fn label_value(text: &str, what: &'static str) -> Result<(), NameError> {
    if is_label_value(text) { Ok(()) } else { Err(NameError::new(text, what, LABEL_VALUE_RULE)) }
}

/// How many characters of a digest go into a name: 60 bits, so that names of one cluster do not meet by chance.
pub(super) const DIGEST: usize = 12;

/// Letters that read well in names, all of them allowed at either end of one.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Twelve characters that stand for these parts, in this order. The parts are told apart: `a-b` and `c` are not
/// `a` and `b-c`.
pub(super) fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(DIGEST).map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// A name of at most `limit` characters: the name itself if it is shorter, else its beginning and a digest.
///
/// Shortened names have exactly `limit` characters and others fewer, so the one is never mistaken for the other.
/// A limit too small for the digest counts as just large enough.
pub fn shortened(name: &str, limit: usize) -> String {
    if name.len() < limit {
        return name.to_owned();
    }
    let keep = limit.saturating_sub(DIGEST + 1).max(1);
    let mut end = keep.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{}", &name[..end], digest(&[name]))
}
