//! `shortlink completion` and `shortlink man`: shell completion and manual pages, generated from
//! the commands' declarations.

use std::path::Path;

use anyhow::Context;
use clap::{Command, ValueEnum};
use clap_complete::generate;

/// A shell that completes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Shell {
    /// For bash: run `eval "$(shortlink completion bash)"`.
    Bash,
    /// For zsh: write the script to the file `_shortlink` in a directory of $fpath.
    Zsh,
    /// For fish: write the script to ~/.config/fish/completions/shortlink.fish.
    Fish,
}

/// The script for a shell.
pub(super) fn completion(shell: Shell, mut command: Command) -> String {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes a page for the program and for each of its commands.
pub(super) fn write(directory: &Path, command: Command) -> anyhow::Result<()> {
    let failed = || format!("the manual can't be written to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(failed)?;
    // The pages replace `help`.
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory).with_context(failed)
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Cli;
    use super::*;

    #[test]
    fn every_command_that_is_shown_has_a_page() {
        let directory = tempfile::tempdir().expect("a directory");
        write(directory.path(), Cli::command()).expect("pages");
        let page = |name: &str| std::fs::read_to_string(directory.path().join(name));
        fn names(command: &Command, above: &str, found: &mut Vec<String>) {
            let name = format!("{above}{}", command.get_name());
            for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
                names(below, &format!("{name}-"), found);
            }
            found.push(name);
        }
        let mut found = Vec::new();
        names(&Cli::command(), "", &mut found);
        assert!(found.len() > 30, "{found:?}");
        for name in &found {
            let page = page(&format!("{name}.1")).expect(name);
            assert!(page.contains(".SH NAME"), "{name}");
        }
        let count = std::fs::read_dir(directory.path()).expect("pages").count();
        assert_eq!(count, found.len());
        let import = page("shortlink-links-import.1").expect("a page");
        assert!(import.contains("creates no duplicate links"), "{import}");
    }

    #[test]
    fn shells_know_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completion(shell, Cli::command());
            for word in ["export-results", "idempotency-key", "doctor"] {
                assert!(script.contains(word), "{shell:?}: {word}");
            }
        }
    }

    #[test]
    fn command_lines_are_whole() {
        Cli::command().debug_assert();
    }
}
