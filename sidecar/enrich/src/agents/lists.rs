//! Recognises programs by public lists of patterns; see `data/README.md`.
//!
//! Most patterns are plain texts, which one automaton finds all at once. The others are one set of
//! regular expressions, apart from the few with look-around, which are tried one after the other.

use std::error::Error;

use aho_corasick::AhoCorasick;
use regex::{RegexSet, RegexSetBuilder};
use serde::Deserialize;
use shortlink_core::visit::agent::{Listed, app};
use shortlink_core::visit::class::Class;

/// Names of programs: each pattern is that of one program. The case of letters matters.
const PROGRAMS: &str = include_str!("../../../data/crawler-user-agents/patterns.json");

/// Words and forms that programs' user agents have, and browsers' have not. The case of letters
/// does not matter.
const FORMS: &str = include_str!("../../../data/isbot/patterns.json");

/// Shorter plain texts are found only at the start of a word: `008/` is no part of a version.
const SHORT: usize = 6;

/// The lists, compiled.
pub(super) struct Lists {
    programs: Patterns,
    /// The kind of each.
    kinds: Vec<Listed>,
    forms: Patterns,
}

/// The lists that came with the program can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the lists of programs can't be used")]
pub struct ListError(#[source] Box<dyn Error + Send + Sync>);

#[derive(Deserialize)]
struct Program {
    pattern: String,
    tags: Vec<String>,
}

impl Lists {
    /// Compiles the lists.
    pub(super) fn new() -> Result<Self, ListError> {
        Self::read().map_err(ListError)
    }

    fn read() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let programs: Vec<Program> = serde_json::from_str(PROGRAMS)?;
        let forms: Vec<String> = serde_json::from_str(FORMS)?;
        let patterns = programs.iter().map(|program| &*program.pattern);
        Ok(Self {
            programs: Patterns::new(patterns, true)?,
            kinds: programs.iter().map(|program| kind(&program.tags)).collect(),
            forms: Patterns::new(forms.iter().map(String::as_str), false)?,
        })
    }

    /// The program that a user agent belongs to, if a list has it.
    pub(super) fn find(&self, user_agent: &str) -> Option<Listed> {
        if app(user_agent).is_some() {
            // The lists have some apps whose built-in browser a person uses.
            return None;
        }
        self.program(user_agent).or_else(|| self.form(user_agent))
    }

    /// The program with a name in the first list.
    pub(super) fn program(&self, user_agent: &str) -> Option<Listed> {
        let found = self.programs.first(user_agent)?;
        Some(self.kinds[found])
    }

    /// A program by the form of its user agent.
    pub(super) fn form(&self, user_agent: &str) -> Option<Listed> {
        // Apps and security software add their names to the browser's, and the forms are of any word in it.
        if is_web_view(user_agent) || user_agent.contains("SiteAdvisor") {
            return None;
        }
        let form = Listed {
            class: Class::Bot,
            reason: "listed-form",
        };
        self.forms.first(user_agent).map(|_| form)
    }
}

/// Reports whether a browser is part of an app, by what Android and iOS add or leave out.
fn is_web_view(user_agent: &str) -> bool {
    let is_iphone = ["(iPhone", "(iPad", "(iPod"];
    user_agent.starts_with("Mozilla/5.0 (")
        && (user_agent.contains("; wv)")
            || user_agent.contains(" Mobile/")
                && !user_agent.contains(" Safari/")
                && is_iphone.iter().any(|word| user_agent.contains(word)))
}

/// The class and the reason of a program with these tags.
fn kind(tags: &[String]) -> Listed {
    let kinds = tags.iter().find_map(|tag| {
        Some(match &**tag {
            "social-preview" => (Class::Preview, "listed-preview"),
            "scanner" => (Class::Scanner, "listed-scanner"),
            "search-engine" => (Class::Bot, "listed-search"),
            "ai-crawler" => (Class::Bot, "listed-ai"),
            "seo" => (Class::Bot, "listed-seo"),
            "monitoring" => (Class::Bot, "listed-monitoring"),
            "feed-reader" => (Class::Bot, "listed-feed"),
            "advertising" => (Class::Bot, "listed-advertising"),
            "archiver" => (Class::Bot, "listed-archive"),
            "http-library" => (Class::Bot, "listed-library"),
            "browser-automation" => (Class::Bot, "listed-automation"),
            _ => return None,
        })
    });
    let (class, reason) = kinds.unwrap_or((Class::Bot, "listed"));
    Listed { class, reason }
}

/// Patterns of a list.
struct Patterns {
    plain: AhoCorasick,
    /// The places of the plain ones in the list, and whether each is short.
    plain_places: Vec<(usize, bool)>,
    set: RegexSet,
    set_places: Vec<usize>,
    around: Vec<(usize, fancy_regex::Regex)>,
}

impl Patterns {
    fn new<'a>(
        patterns: impl Iterator<Item = &'a str>,
        has_case: bool,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let (mut texts, mut expressions, mut around) = (Vec::new(), Vec::new(), Vec::new());
        for (place, pattern) in patterns.enumerate() {
            if let Some(text) = plain(pattern) {
                texts.push((place, text));
            } else if ["(?=", "(?!", "(?<"].iter().any(|it| pattern.contains(it)) {
                let pattern = fancy_regex::RegexBuilder::new(pattern)
                    .case_insensitive(!has_case)
                    .build()?;
                around.push((place, pattern));
            } else {
                expressions.push((place, pattern));
            }
        }
        let plain = AhoCorasick::builder()
            .ascii_case_insensitive(!has_case)
            .build(texts.iter().map(|(_, text)| text))?;
        let set = RegexSetBuilder::new(expressions.iter().map(|(_, pattern)| pattern))
            .case_insensitive(!has_case)
            .build()?;
        let is_short = |text: &str| text.len() < SHORT;
        let places = texts.iter().map(|(place, text)| (*place, is_short(text)));
        Ok(Self {
            plain,
            plain_places: places.collect(),
            set,
            set_places: expressions.iter().map(|(place, _)| *place).collect(),
            around,
        })
    }

    /// The place of the first pattern in the list that a text has.
    fn first(&self, text: &str) -> Option<usize> {
        let found = self.plain.find_overlapping_iter(text);
        let found = found.filter_map(|found| {
            let (place, is_short) = self.plain_places[found.pattern().as_usize()];
            let is_part = |before: char| before.is_alphanumeric() || before == '.';
            (!is_short || !text[..found.start()].ends_with(is_part)).then_some(place)
        });
        let plain = found.min();
        let of_set = self.set.matches(text).iter().next();
        let of_set = of_set.map(|found| self.set_places[found]);
        // One that takes too long is none.
        let mut around = self.around.iter();
        let around = around.find(|(_, pattern)| pattern.is_match(text).unwrap_or_default());
        let around = around.map(|(place, _)| *place);
        [plain, of_set, around].into_iter().flatten().min()
    }
}

/// The text that a pattern stands for, if it stands for one only.
fn plain(pattern: &str) -> Option<String> {
    let mut text = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let escaped = characters.next()?;
                if !escaped.is_ascii_punctuation() {
                    return None;
                }
                text.push(escaped);
            }
            '.' | '[' | ']' | '(' | ')' | '{' | '}' | '|' | '?' | '*' | '+' | '^' | '$' => {
                return None;
            }
            other => text.push(other),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests;
