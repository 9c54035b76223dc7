//! The page of the book that documents the command line, rendered from the command line itself.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command, CommandFactory};
use shortlink_core::testing::assert_generated;

use super::super::Cli;

/// The page, relative to the root of the repository.
const PAGE: &str = "docs/src/reference/commands.md";

const INTRODUCTION: &str = "\
# Command line

This page lists all commands of `shortlink` with their options. It is generated from the program's own help, which
`shortlink COMMAND --help` and the manual pages (`man shortlink-links-import`) print as well.

Some commands work on this machine, with the configuration of the sidecar: its database and its Redis. The others are
clients of a running service: they call its API, from any machine that reaches its internal server, and need only its
address and an API key.

| Commands | Need |
|---|---|
";

/// The heading under which clients have their options; they are documented once.
const CONNECTION: &str = "Connection";

#[test]
fn the_reference_of_commands_is_what_the_program_says() {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let (mut clients, mut local, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for command in shown(&root) {
        let name = format!("[`{0}`](#shortlink-{0})", command.get_name());
        if with_children(command).any(is_client) {
            clients.push(name);
        } else if ["check-keys", "completion"].contains(&command.get_name()) {
            alone.push(name);
        } else {
            local.push(name);
        }
    }
    let mut page = INTRODUCTION.to_owned();
    let mut line = |names: &[String], need: &str| {
        writeln!(page, "| {} | {need} |", names.join(", ")).expect("a string");
    };
    line(&local, "the sidecar's configuration: `--config`");
    line(
        &clients,
        "a service and an API key: [options of clients](#options-of-clients)",
    );
    line(&alone, "nothing");
    page += "\n`shortlink domains check` and `shortlink visits export` are the exceptions in their groups: they work on this\n\
             machine, with the configuration of nginx and of the sidecar.\n\n\
             ## Options of every command\n\n";
    let everywhere = root.get_arguments().filter(|it| !is_help(it));
    options(&mut page, everywhere);
    page += "\n## Options of clients\n\n";
    let client = shown(&root)
        .find(|command| is_client(command))
        .expect("a client");
    let connection = client.get_arguments();
    options(
        &mut page,
        connection.filter(|it| it.get_help_heading() == Some(CONNECTION)),
    );
    page += "\nOptions take precedence over the environment, and both over the file `client.toml`. That file is\n\
             `~/.config/shortlink/client.toml`, or below `$XDG_CONFIG_HOME`, with the keys `server`, `key` and \
             `key_file`. Clients\nrefuse it if it holds a key and other users can read it. `SSL_CERT_FILE` names \
             certificates for https in place of\nthe system's.\n\n\
             Clients retry a read when the service is unavailable for a moment (503), and any request that \
             exceeded the rate\nlimit of the API key (429). They retry nothing else.\n";
    for command in shown(&root) {
        describe(&mut page, command, 2);
    }
    while page.contains("\n\n\n") {
        page = page.replace("\n\n\n", "\n\n");
    }
    assert_generated(PAGE, &format!("{}\n", page.trim_end()));
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set())
}

/// The command and those right below it.
fn with_children(command: &Command) -> impl Iterator<Item = &Command> {
    std::iter::once(command).chain(shown(command))
}

fn is_client(command: &Command) -> bool {
    let mut arguments = command.get_arguments();
    arguments.any(|it| it.get_help_heading() == Some(CONNECTION))
}

fn is_help(argument: &Arg) -> bool {
    ["help", "version"].contains(&argument.get_id().as_str())
}

/// A section of the page, and one for each command below.
fn describe(page: &mut String, command: &Command, level: usize) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let name = usage.split(" [").next().expect("a name");
    let name = name.split(" <").next().expect("a name").trim();
    let marks = "#".repeat(level);
    writeln!(page, "\n{marks} {name}\n").expect("a string");
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    writeln!(page, "{}\n", sentence(&about)).expect("a string");
    if command.has_subcommands() {
        for below in shown(command) {
            let about = below
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let anchor = format!("{name}-{}", below.get_name()).replace(' ', "-");
            let (label, about) = (below.get_name(), sentence(&about));
            writeln!(page, "- [`{label}`](#{anchor}): {about}").expect("a string");
        }
        for below in shown(command) {
            describe(page, below, level + 1);
        }
        return;
    }
    writeln!(page, "```text\n{usage}\n```\n").expect("a string");
    let own = command.get_arguments().filter(|it| {
        !is_help(it) && !it.is_global_set() && it.get_help_heading() != Some(CONNECTION)
    });
    options(page, own);
    let after = command.get_after_long_help().or(command.get_after_help());
    for paragraph in after
        .map(ToString::to_string)
        .unwrap_or_default()
        .split("\n\n")
    {
        // Columns are laid out by their spaces.
        if paragraph.contains("\n  ") {
            writeln!(page, "\n```text\n{}\n```", paragraph.trim_end()).expect("a string");
        } else {
            writeln!(page, "\n{}", escaped(paragraph)).expect("a string");
        }
    }
}

/// A list of arguments, a line each.
fn options<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    for argument in arguments.filter(|it| !it.is_hide_set()) {
        let help = argument.get_long_help().or(argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let mut line = format!("- `{}`: {}", signature(argument), sentence(&help));
        let values = argument.get_possible_values();
        let takes_values = !matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::Count);
        if takes_values && !values.is_empty() && !argument.is_hide_possible_values_set() {
            let values = values.iter().map(|value| {
                let about = value.get_help().map(ToString::to_string);
                about.map_or_else(
                    || format!("`{}`", value.get_name()),
                    |about| {
                        format!(
                            "`{}` ({})",
                            value.get_name(),
                            escaped(about.trim_end_matches('.'))
                        )
                    },
                )
            });
            let values: Vec<String> = values.collect();
            write!(line, " Values: {}.", values.join(", ")).expect("a string");
        }
        let defaults = argument.get_default_values();
        if takes_values && !defaults.is_empty() {
            let defaults = defaults.iter().map(|it| it.to_string_lossy());
            let defaults: Vec<_> = defaults.collect();
            write!(line, " Default: `{}`.", defaults.join(" ")).expect("a string");
        }
        if let Some(variable) = argument.get_env() {
            write!(line, " Environment: `{}`.", variable.to_string_lossy()).expect("a string");
        }
        page.push_str(&line.replace('\n', " "));
        page.push('\n');
    }
}

/// An argument as it is typed.
fn signature(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let values: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
    let values = values.join(" ");
    match (argument.get_short(), argument.get_long()) {
        (_, None) => values,
        (short, Some(long)) => {
            let short = short.map(|it| format!("-{it}, ")).unwrap_or_default();
            let takes_values =
                !matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::Count);
            let is_optional = argument
                .get_num_args()
                .is_some_and(|it| it.min_values() == 0);
            match (takes_values, is_optional) {
                (false, _) => format!("{short}--{long}"),
                (true, true) => format!("{short}--{long}[={values}]"),
                (true, false) => format!("{short}--{long} {values}"),
            }
        }
    }
}

/// A help text as a sentence: help leaves the last full stop away.
fn sentence(text: &str) -> String {
    let text = escaped(text.trim());
    if text.is_empty() || text.ends_with(['.', ':']) {
        text
    } else {
        format!("{text}.")
    }
}

/// Plain text as Markdown: outside of backticks nothing is markup.
fn escaped(text: &str) -> String {
    let mut is_code = false;
    let mut escaped = String::new();
    for character in text.chars() {
        is_code ^= character == '`';
        if !is_code && matches!(character, '<' | '*' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
