//! What a person reads when a command fails.

/// An error and what led to it, each said once: some errors tell their cause themselves.
pub(crate) fn complaint(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| {
        if said.is_empty() {
            cause
        } else if said.contains(&cause) {
            said
        } else {
            format!("{said}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_led_to_an_error_is_said_once() {
        let cases = [
            (anyhow!("no such file"), "no such file"),
            (anyhow!("no such file").context("cannot read a.yaml"), "cannot read a.yaml: no such file"),
            (
                anyhow!("no such file").context("cannot read a.yaml: no such file").context("cannot join"),
                "cannot join: cannot read a.yaml: no such file",
            ),
        ];
        for (error, said) in cases {
            assert_eq!(complaint(&error), said);
        }
    }
}
