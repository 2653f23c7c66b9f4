//! Image references and their parts.
//!
//! A reference is read as it is written: no registry and no `library/` is added.

use serde_json::Value;

use super::OverrideError;
use crate::{
    api::{ImageComponent, ImageOverrider, PatchOperator},
    workload,
};

/// Why a text is no image reference, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Not a reference.
    #[error("{0:?} is not an image reference")]
    Reference(String),
    /// Neither a tag nor a digest.
    #[error("{0:?} is neither a tag nor a digest")]
    Tag(String),
}

/// An image reference in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Host and port of the registry; empty if the reference names none.
    pub registry: String,
    /// Path in the registry.
    pub repository: String,
    /// Tag; empty if there is none.
    pub tag: String,
    /// Digest; empty if there is none.
    pub digest: String,
}

impl std::fmt::Display for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.registry.is_empty() {
            write!(f, "{}/", self.registry)?;
        }
        f.write_str(&self.repository)?;
        if !self.tag.is_empty() {
            write!(f, ":{}", self.tag)?;
        }
        if !self.digest.is_empty() {
            write!(f, "@{}", self.digest)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Image {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
        // The first part is a registry only if it cannot be a directory.
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => ("", rest),
        };
        let (repository, tag) = rest.split_once(':').map_or((rest, None), |(name, tag)| (name, Some(tag)));
        let valid = (registry.is_empty() || is_registry(registry))
            && is_repository(repository)
            && registry.len() + repository.len() < 255
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        let own = |part: Option<&str>| part.unwrap_or_default().to_owned();
        if valid {
            Ok(Self {
                registry: registry.to_owned(),
                repository: repository.to_owned(),
                tag: own(tag),
                digest: own(digest),
            })
        } else {
            Err(ImageError::Reference(text.to_owned()))
        }
    }
}

impl Image {
    /// Changes a part. A tag and a digest exclude each other once the part is changed; a digest that is not
    /// touched stays.
    pub fn change(
        &mut self,
        component: ImageComponent,
        operator: PatchOperator,
        value: &str,
    ) -> Result<(), ImageError> {
        if operator == PatchOperator::Add && value.is_empty() {
            return Ok(());
        }
        let current = match component {
            ImageComponent::Registry => &self.registry,
            ImageComponent::Repository => &self.repository,
            // Where there are both, people mean the one that they read.
            ImageComponent::Tag if self.tag.is_empty() => &self.digest,
            ImageComponent::Tag => &self.tag,
        };
        let new = match operator {
            PatchOperator::Remove => String::new(),
            // To have no tag, one says remove.
            PatchOperator::Replace if value.is_empty() && component == ImageComponent::Tag => {
                return Err(ImageError::Tag(String::new()));
            }
            PatchOperator::Add => format!("{current}{value}"),
            PatchOperator::Replace => value.to_owned(),
        };
        match component {
            ImageComponent::Registry => self.registry = new,
            ImageComponent::Repository => self.repository = new,
            ImageComponent::Tag => {
                let new = new.strip_prefix('@').unwrap_or(&new);
                (self.tag, self.digest) = match new {
                    new if new.is_empty() || is_tag(new) => (new.to_owned(), String::new()),
                    new if is_digest(new) => (String::new(), new.to_owned()),
                    new => return Err(ImageError::Tag(new.to_owned())),
                };
            }
        }
        Ok(())
    }
}

/// Letters, digits and `-` in parts between dots, an optional port; or an IPv6 address in brackets.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rfind(':').filter(|at| !text[*at..].contains(']')) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
        }
        None => host.split('.').all(is_part),
    };
    is_host && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Parts between slashes, each of lower-case words joined by `.`, `_`, `__` or dashes.
fn is_repository(text: &str) -> bool {
    text.split('/').all(|part| {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let joints = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        let is_joint =
            |joint: &str| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|byte| byte == b'-');
        part.bytes().next().is_some_and(is_word)
            && part.bytes().last().is_some_and(is_word)
            && joints.into_iter().all(is_joint)
    })
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

/// An algorithm, which starts with a letter, and at least 32 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && hex.len() >= 32
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Changes the images of an object: the one at the path, or those of all containers of its pod.
pub(super) fn apply(object: &mut Value, change: &ImageOverrider) -> Result<(), OverrideError> {
    if let Some(predicate) = &change.predicate {
        return match object.pointer_mut(&predicate.path) {
            Some(Value::String(image)) => Ok(rewrite(image, change)?),
            _ => Err(OverrideError::NoText(predicate.path.clone())),
        };
    }
    let Some(path) = workload::pod_path_of(object) else { return Ok(()) };
    for list in ["initContainers", "containers"] {
        let containers = object.pointer_mut(&format!("{path}/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(Value::String(image)) = container.get_mut("image") {
                rewrite(image, change)?;
            }
        }
    }
    Ok(())
}

fn rewrite(text: &mut String, change: &ImageOverrider) -> Result<(), ImageError> {
    let mut image: Image = text.parse()?;
    image.change(change.component, change.operator, &change.value)?;
    let new = image.to_string();
    // A part may have become something that the whole cannot have.
    new.parse::<Image>()?;
    *text = new;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn references() {
        let digested = format!("a/b@{DIGEST}");
        let both = format!("r.io/a:1@{DIGEST}");
        for (text, parts) in [
            ("nginx", ("", "nginx", "", "")),
            ("nginx:1.25", ("", "nginx", "1.25", "")),
            ("library/nginx", ("", "library/nginx", "", "")),
            ("docker.io/nginx", ("docker.io", "nginx", "", "")),
            ("localhost/a", ("localhost", "a", "", "")),
            ("host:5000/a/b:t", ("host:5000", "a/b", "t", "")),
            ("[::1]:5000/a", ("[::1]:5000", "a", "", "")),
            ("a__b/c---d.e_f", ("", "a__b/c---d.e_f", "", "")),
            (&digested, ("", "a/b", "", DIGEST)),
            (&both, ("r.io", "a", "1", DIGEST)),
        ] {
            let image: Image = text.parse().unwrap();
            let found = (&*image.registry, &*image.repository, &*image.tag, &*image.digest);
            assert_eq!(found, parts, "{text}");
            assert_eq!(image.to_string(), text);
        }
        for text in [
            "",
            ":a",
            "a:",
            "A",
            "a//b",
            "a/",
            "-a",
            "a..b",
            "a@sha256:12",
            "a b",
            "r.io/",
            "a:b:c",
            "-.io/a",
            "a@",
        ] {
            assert!(text.parse::<Image>().is_err(), "{text}");
        }
    }

    #[test]
    fn changes() {
        use ImageComponent::{Registry, Repository, Tag};
        use PatchOperator::{Add, Remove, Replace};
        let digested = format!("r.io/a@{DIGEST}");
        let both = format!("r.io/a:1@{DIGEST}");
        for (text, component, operator, value, expected) in [
            ("a:1", Registry, Add, "r.io", Some("r.io/a:1")),
            ("r.io/a", Registry, Add, ":5000", Some("r.io:5000/a")),
            ("r.io/a", Registry, Replace, "s.io", Some("s.io/a")),
            ("r.io/a:1", Registry, Remove, "", Some("a:1")),
            ("r.io/a", Repository, Add, "/b", Some("r.io/a/b")),
            ("r.io/a:1", Repository, Replace, "c/d", Some("r.io/c/d:1")),
            ("r.io/a", Repository, Remove, "", None),
            ("a:1", Tag, Add, "-edge", Some("a:1-edge")),
            ("a", Tag, Add, "1", Some("a:1")),
            ("a:1", Tag, Replace, "2", Some("a:2")),
            ("a:1", Tag, Remove, "", Some("a")),
            (&digested, Tag, Replace, "2", Some("r.io/a:2")),
            (&digested, Tag, Remove, "", Some("r.io/a")),
            ("r.io/a:1", Tag, Replace, DIGEST, Some(&*digested)),
            ("r.io/a:1", Tag, Replace, &format!("@{DIGEST}"), Some(&*digested)),
            (&both, Registry, Remove, "", Some(&both["r.io/".len()..])),
            ("a:1", Tag, Replace, "no tag", None),
            ("a:1", Tag, Replace, "", None),
            ("a:1", Tag, Add, "", Some("a:1")),
            (&digested, Tag, Add, "", Some(&*digested)),
            (&both, Tag, Add, "", Some(&*both)),
            (&both, Tag, Add, "-edge", Some("r.io/a:1-edge")),
            (&both, Tag, Replace, "2", Some("r.io/a:2")),
            (&both, Tag, Remove, "", Some("r.io/a")),
            (&digested, Tag, Add, "-edge", None),
            ("r.io/a:1", Registry, Replace, "", Some("a:1")),
            ("r.io/a:1", Repository, Replace, "", None),
            ("a:1", Registry, Replace, "not a registry", None),
        ] {
            let mut found = text.to_owned();
            let change = ImageOverrider { predicate: None, component, operator, value: value.to_owned() };
            let outcome = rewrite(&mut found, &change);
            assert_eq!(outcome.is_ok().then_some(found.as_str()), expected, "{text} {change:?}");
            if outcome.is_err() {
                assert_eq!(found, text, "a failed change leaves the text");
            }
        }
    }

    proptest! {
        /// No text makes it fail in another way than by an error, and what is read is written the same.
        #[test]
        fn any_text(text in ".{0,40}") {
            if let Ok(image) = text.parse::<Image>() {
                prop_assert_eq!(image.to_string(), text);
            }
        }

        #[test]
        fn parts_make_a_reference(
            registry in prop_oneof![Just(String::new()), "[a-z]{1,5}\\.[a-z]{2,3}(:[0-9]{2,4})?"],
            repository in "[a-z0-9]{1,5}([_-][a-z0-9]{1,4}){0,2}(/[a-z0-9]{1,5}){0,2}",
            tag in prop_oneof![Just(String::new()), "[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}"],
            digest in prop_oneof![Just(String::new()), "sha256:[0-9a-f]{64}"],
        ) {
            let image = Image { registry, repository, tag, digest };
            prop_assert_eq!(image.to_string().parse::<Image>(), Ok(image));
        }
    }
}
