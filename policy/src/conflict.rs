//! Whether an object in a member that is not ours is taken over.

use crate::{api::ConflictResolution, object::Identity};

/// Annotation of an object that beats what its policy says: `abort` or `overwrite`.
pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";

/// What happens when a member already has an object of that name that is not ours. Any other text in the
/// annotation says nothing.
#[must_use]
pub fn resolution(object: &Identity, policy: ConflictResolution) -> ConflictResolution {
    match object.annotations.get(CONFLICT_RESOLUTION).map(String::as_str) {
        Some("overwrite") => ConflictResolution::Overwrite,
        Some("abort") => ConflictResolution::Abort,
        _ => policy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_beats_the_policy() {
        use ConflictResolution::{Abort, Overwrite};
        for (annotation, policy, expected) in [
            (None, Abort, Abort),
            (None, Overwrite, Overwrite),
            (Some("overwrite"), Abort, Overwrite),
            (Some("abort"), Overwrite, Abort),
            (Some("perhaps"), Overwrite, Overwrite),
        ] {
            let annotations = annotation.map(|text: &str| (CONFLICT_RESOLUTION.to_owned(), text.to_owned()));
            let object = Identity { annotations: annotations.into_iter().collect(), ..Identity::default() };
            assert_eq!(resolution(&object, policy), expected, "{annotation:?}");
        }
    }
}
