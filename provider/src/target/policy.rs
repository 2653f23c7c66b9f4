/// What pods may do in a member beyond running. Nothing, unless its owner says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Privileged containers, and host processes on Windows.
    pub privileged: bool,
    /// The machine's network.
    pub host_network: bool,
    /// The machine's processes (`hostPID`, `hostIPC`).
    pub host_processes: bool,
    /// The machine's files.
    pub host_path: bool,
    /// The priority classes that begin with `system-`, which push other pods out.
    pub system_priority: bool,
    /// Where images may come from; anywhere if unset.
    pub registries: Option<Registries>,
}

/// A list of registries, or of repositories within one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registries(Vec<ImageRule>);

/// One entry: a registry and the beginning of a path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ImageRule {
    registry: String,
    path: Vec<String>,
}

impl Registries {
    /// Reads entries such as `registry.bank.example`, `quay.io/team` or `docker.io/library/nginx`.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a str>) -> Self {
        let rule = |entry: &str| {
            let mut parts = entry.trim().trim_end_matches('/').split('/');
            let registry = canonical(parts.next().unwrap_or_default());
            ImageRule { registry, path: parts.map(str::to_owned).collect() }
        };
        Self(entries.into_iter().map(rule).filter(|rule| !rule.registry.is_empty()).collect())
    }

    /// Whether an image comes from one of them.
    pub fn allow(&self, image: &str) -> bool {
        let (registry, path) = parse(image);
        self.0.iter().any(|rule| {
            rule.registry == registry
                && rule.path.len() <= path.len()
                && rule.path.iter().zip(&path).all(|(want, have)| want == have)
        })
    }
}

fn canonical(registry: &str) -> String {
    let registry = registry.to_ascii_lowercase();
    if registry == "index.docker.io" { "docker.io".to_owned() } else { registry }
}

/// Registry and path of an image, as container runtimes read it: what has no registry is on Docker Hub.
fn parse(image: &str) -> (String, Vec<&str>) {
    let name = image.split_once('@').map_or(image, |(name, _digest)| name);
    let mut parts: Vec<&str> = name.split('/').collect();
    let registry = match parts.as_slice() {
        [first, _, ..] if first.contains(['.', ':']) || *first == "localhost" => canonical(parts.remove(0)),
        _ => "docker.io".to_owned(),
    };
    if registry == "docker.io" && parts.len() == 1 {
        parts.insert(0, "library");
    }
    if let Some(last) = parts.last_mut() {
        *last = last.split_once(':').map_or(*last, |(name, _tag)| name);
    }
    (registry, parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_allows_what_is_under_it_and_nothing_that_only_looks_alike() {
        let list = Registries::new([
            "registry.bank.example",
            "quay.io/team/",
            "docker.io/library/nginx",
            "r.io:5000/a",
        ]);
        for good in [
            "registry.bank.example/app",
            "Registry.Bank.Example/a/b:1",
            "quay.io/team/app@sha256:00",
            "nginx",
            "nginx:1.29",
            "docker.io/nginx",
            "index.docker.io/library/nginx:1",
            "r.io:5000/a/b:2",
        ] {
            assert!(list.allow(good), "{good}");
        }
        for bad in [
            "",
            "registry.bank.example.evil.io/app",
            "evil.io/registry.bank.example/app",
            "quay.io/team-b/app",
            "quay.io/teams",
            "registry.bank.example",
            "nginx-evil",
            "docker.io/other/nginx",
            "r.io/a/b",
            "localhost/nginx",
        ] {
            assert!(!list.allow(bad), "{bad}");
        }
        assert!(!Registries::new([]).allow("nginx"), "an empty list allows nothing");
    }
}
