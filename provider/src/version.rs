//! Versions of Kubernetes, as far as fields depend on them.

use std::{fmt, str::FromStr};

/// The minor version of an API server. Patches change no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second.
    pub minor: u16,
}

impl Version {
    /// `1.minor`.
    pub const fn v1(minor: u16) -> Self {
        Self { major: 1, minor }
    }
}

/// Why some text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of Kubernetes, such as v1.35.4")]
pub struct VersionError(String);

impl FromStr for Version {
    type Err = VersionError;

    /// Reads `gitVersion` with all that distributions add to it: `v1.31.4+k3s1`, `v1.30.1-eks-1234`, `1.33+`.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let wrong = || VersionError(text.chars().take(40).collect());
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let mut number = || {
            let part = parts.next().unwrap_or_default();
            let end = part.bytes().take_while(u8::is_ascii_digit).count();
            part[..end].parse().map_err(|_| wrong())
        };
        Ok(Self { major: number()?, minor: number()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_distributions_are_read() {
        for (text, minor) in
            [("v1.35.4", 35), ("1.33", 33), ("1.33+", 33), ("v1.31.4+k3s1", 31), ("v1.30.1-eks-1234", 30)]
        {
            assert_eq!(text.parse(), Ok(Version::v1(minor)), "{text}");
        }
        for bad in ["", "v", "1", "one.two", "v1.", "1.999999"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
        assert!(Version::v1(9) < Version::v1(30));
    }
}
