use std::fmt;

/// The version of the host's API server, as far as we act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVersion {
    minor: u32,
    text: String,
}

impl HostVersion {
    /// From what `/version` says. Vendors write minors such as `36+`.
    pub fn new(git_version: &str, minor: &str) -> Self {
        let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
        let plain = git_version.split(['-', '+']).next().unwrap_or(git_version);
        Self { minor: digits.parse().unwrap_or(0), text: plain.to_owned() }
    }

    /// Whether the host understands `status.declaredFeatures`.
    pub const fn knows_declared_features(&self) -> bool {
        self.minor >= 36
    }

    /// What the node reports as its kubelet's version: the host's, so that no tool sees a skew, and who we are.
    pub fn kubelet_version(&self) -> String {
        format!("{}-federlet-{}", self.text, env!("CARGO_PKG_VERSION"))
    }
}

impl fmt::Display for HostVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_write_versions_in_their_own_way() {
        for (git, minor, features) in [
            ("v1.35.4", "35", false),
            ("v1.36.3-eks-1a2b", "36+", true),
            ("v1.37.0+k3s1", "37", true),
            ("", "", false),
        ] {
            assert_eq!(HostVersion::new(git, minor).knows_declared_features(), features, "{git}");
        }
        let version = HostVersion::new("v1.36.3-eks-1a2b", "36+").kubelet_version();
        assert!(version.starts_with("v1.36.3-federlet-"), "{version}");
    }
}
