//! The page of the book that documents the configuration, rendered from `config.default.toml`.

use std::fmt::Write;

use shortlink_core::testing::assert_generated;

/// The page, relative to the root of the repository.
const PAGE: &str = "docs/src/reference/configuration.md";

const INTRODUCTION: &str = "\
# Configuration

This page lists all settings of the sidecar, for operators. The settings of nginx are its [directives](directives.md).
The page is generated from the comments of `sidecar/config.default.toml`, which begin as follows.
";

#[test]
fn the_reference_of_settings_is_what_the_defaults_say() {
    let mut page = INTRODUCTION.to_owned();
    let mut section = String::new();
    let mut comment = String::new();
    let mut lines = include_str!("../../config.default.toml").lines();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix('#') {
            comment.push_str(text.strip_prefix(' ').unwrap_or(text));
            comment.push('\n');
        } else if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
            let about = std::mem::take(&mut comment);
            write!(page, "\n## {section}\n").expect("a string");
            paragraph(&mut page, &about);
        } else if let Some((key, value)) = line.split_once(" = ") {
            let mut value = value.to_owned();
            while value.starts_with('[') && !value.ends_with(']') {
                value = value + "\n" + lines.next().expect("the end of a list");
            }
            let about = std::mem::take(&mut comment);
            assert!(!about.is_empty(), "{section}.{key} has no comment");
            let variable = format!("SHORTLINK_{section}__{key}").to_uppercase();
            write!(page, "\n### `{section}.{key}`\n").expect("a string");
            paragraph(&mut page, &about);
            if value.contains('\n') {
                write!(page, "\nDefault:\n\n```toml\n{key} = {value}\n```\n").expect("a string");
                write!(page, "\nEnvironment: `{variable}`\n").expect("a string");
            } else {
                write!(page, "\nDefault: `{value}` · Environment: `{variable}`\n")
                    .expect("a string");
            }
        } else {
            // The comment at the top of the file is about all of it.
            assert!(line.is_empty(), "{line}");
            let about = std::mem::take(&mut comment);
            paragraph(&mut page, &about);
        }
    }
    assert!(comment.is_empty(), "a comment about nothing: {comment}");
    assert_generated(PAGE, &page);
}

fn paragraph(page: &mut String, text: &str) {
    if !text.is_empty() {
        page.push('\n');
        page.push_str(text);
    }
}
