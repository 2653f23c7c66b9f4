//! `federlet completion`.

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use crate::output::say;

/// The flags of `federlet completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell, or `kubectl` for `kubectl federlet`.
    shell: Asks,
}

/// Who wants to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Asks {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
    /// A program for the PATH, to be named `kubectl_complete-federlet`.
    Kubectl,
}

/// kubectl gives the words after the name of the plugin, the last of them begun, and reads a line for each that fits.
/// Bash knows which fit by the functions that it gets otherwise, too.
const KUBECTL: &str = r#"#!/usr/bin/env bash
source <(kubectl-federlet completion bash)
COMP_WORDS=(federlet "$@")
COMP_CWORD=$#
_federlet federlet "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}" :4"#;

impl CompletionArgs {
    /// Prints it.
    pub(crate) fn run(&self, command: &mut Command) {
        let shell = match self.shell {
            Asks::Bash => Shell::Bash,
            Asks::Elvish => Shell::Elvish,
            Asks::Fish => Shell::Fish,
            Asks::PowerShell => Shell::PowerShell,
            Asks::Zsh => Shell::Zsh,
            Asks::Kubectl => return say!("{KUBECTL}"),
        };
        let mut script = vec![];
        clap_complete::generate(shell, command, "federlet", &mut script);
        say!("{}", String::from_utf8_lossy(&script).trim_end());
    }
}
