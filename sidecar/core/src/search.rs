//! The search for links and campaigns: the words that they are found by, and the questions.

use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;
use vocabulary::Code;

use crate::link::Link;
use crate::named;
use crate::target::Target;

/// The fewest and the most characters of a question.
pub const CHARACTERS: [usize; 2] = [2, 2048];

/// The most links that a question finds by one member.
pub const MOST_OF_MEMBER: u32 = 10;

/// The most campaigns that a question finds.
pub const MOST_CAMPAIGNS: u32 = 10;

/// The most characters of a word; the rest does not count.
const LONGEST_WORD: usize = 32;

/// The most words of a target or a note.
const MOST_WORDS: usize = 24;

/// The most words of a question; the longest ones count.
const MOST_ASKED: usize = 8;

/// Words that nearly every URL has.
const OF_EVERY_URL: [&str; 3] = ["http", "https", "www"];

named! {
    /// The member that a question has found a link by, in the order of the results.
    pub enum FoundBy: "member" {
        /// Its code, or the begin of its custom code.
        Code = "shortCode",
        /// Its external id, or the begin of that.
        ExternalId = "externalId",
        /// One of its tags, or the begin of one.
        Tag = "tag",
        /// Its target, or words of that.
        Target = "longUrl",
        /// Words of its note.
        Note = "note",
    }
}

/// A question of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The text.
    pub text: String,
    /// Begins of words that links must all have.
    pub words: Vec<String>,
    /// The code that the text is, or that ends it if it is a URL.
    pub code: Option<Code>,
    /// The URL that the text is.
    pub target: Option<Target>,
}

/// The text cannot be a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a text of {} to {} characters with a letter or digit", CHARACTERS[0], CHARACTERS[1]
)]
pub struct QuestionError;

impl Question {
    /// Reads a question.
    ///
    /// # Errors
    /// Fails if the text is too short or too long, or has neither a letter nor a digit.
    pub fn parse(text: &str) -> Result<Self, QuestionError> {
        let text = text.trim();
        let [least, most] = CHARACTERS;
        let is_fitting = (least..=most).contains(&text.chars().count());
        if !is_fitting || !text.contains(char::is_alphanumeric) {
            return Err(QuestionError);
        }
        // Queries of targets are not searched.
        let asked = match text.contains(char::is_whitespace) {
            true => text.to_owned(),
            false => readable(text),
        };
        let mut words: Vec<String> = words(&asked, Purpose::Asked).into_iter().collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.truncate(MOST_ASKED);
        let path = text.split(['?', '#']).next().unwrap_or_default();
        let last = path.trim_end_matches('/').rsplit('/').next();
        Ok(Self {
            words,
            code: last.and_then(|last| last.parse().ok()),
            target: Target::normalise(text).ok(),
            text: text.to_owned(),
        })
    }
}

/// The words of a link's own target: those of its host and path.
pub fn words_of_target(target: &str) -> BTreeSet<String> {
    words(&readable(target), Purpose::Stored)
}

/// The words of a text.
pub fn words_of_text(text: &str) -> BTreeSet<String> {
    words(text, Purpose::Stored)
}

/// The target of a link up to its query, which often has ids of recipients.
pub fn without_query(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or_default()
}

/// The text after all texts that begin with a text, in the order of their characters.
pub fn after_prefix(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // Not every number is a character.
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return end;
        }
    }
    // No text is behind all that begin with the last character.
    char::MAX.to_string().repeat(4)
}

/// The host and path of a URL, without escapes.
fn readable(url: &str) -> String {
    let path = without_query(url);
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// The use of words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Stored,
    Asked,
}

/// Splits a text into words in lower case: runs of letters and digits. Chinese, Japanese and Korean texts have no
/// spaces, so each two of their characters that follow each other are a word.
fn words(text: &str, purpose: Purpose) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let text = text.to_lowercase();
    for run in text.split(|c: char| !c.is_alphanumeric()) {
        let mut rest = run;
        while let Some(first) = rest.chars().next() {
            let is_east_asian = has_no_spaces(first);
            let end = rest.find(|c| has_no_spaces(c) != is_east_asian);
            let (same, others) = rest.split_at(end.unwrap_or(rest.len()));
            rest = others;
            if is_east_asian {
                add_pairs(&mut found, same, purpose);
            } else if same.len() > 1 && !OF_EVERY_URL.contains(&same) {
                found.insert(same.chars().take(LONGEST_WORD).collect());
            }
        }
        if found.len() >= MOST_WORDS {
            break;
        }
    }
    while found.len() > MOST_WORDS {
        found.pop_last();
    }
    found
}

/// Adds each two characters that follow each other. Stored words have the last character as well, so that every character
/// begins a word.
fn add_pairs(found: &mut BTreeSet<String>, run: &str, purpose: Purpose) {
    let characters: Vec<char> = run.chars().collect();
    let pairs = characters.windows(2).map(|pair| pair.iter().collect());
    found.extend(pairs);
    if characters.len() == 1 || purpose == Purpose::Stored {
        found.extend(characters.last().map(char::to_string));
    }
}

/// Reports whether a character is of a script without spaces between words.
fn has_no_spaces(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// The words that a link is found by, each with its member: those of its own target and of its note.
pub fn words_of_link(link: &Link) -> Vec<(FoundBy, String)> {
    let target = link.destination.target().map(Target::as_str);
    let of_target = target.map(words_of_target).unwrap_or_default();
    let of_note = link.note.as_deref().map(words_of_text).unwrap_or_default();
    let of_target = of_target.into_iter().map(|word| (FoundBy::Target, word));
    let of_note = of_note.into_iter().map(|word| (FoundBy::Note, word));
    of_target.chain(of_note).collect()
}
