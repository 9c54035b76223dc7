//! Texts of messages: their variables, the URLs in them, and the segments that they are sent in.

mod segments;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use vocabulary::parameters::{ValueError, encode_value};

pub use segments::{Encoding, Segments};

/// The most segments of a message.
pub const MAX_SEGMENTS: usize = 10;

/// A text of at most so many bytes has at most that many segments, whatever its characters are. A segment of UCS-2 has at
/// least 66 units, and no character has more units than bytes; in GSM-7 twice as many septets need fewer segments.
pub const SURELY_WITHIN: usize = MAX_SEGMENTS * 66;

/// The most URLs in the text of a message.
pub const MAX_URLS: usize = 10;

/// Punctuation at the end of a URL that belongs to the sentence around it.
const PUNCTUATION: &[char] = &['.', ',', ';', ':', '!', '?', '\'', '*'];

/// A fault of a variable in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// It has no value.
    #[error("needs a value: the text has {{{0}}}")]
    Missing(String),
    /// Its value cannot be a part of a URL.
    #[error("{1}")]
    Value(String, ValueError),
}

impl VariableError {
    /// The name of the variable.
    pub fn name(&self) -> &str {
        match self {
            Self::Missing(name) | Self::Value(name, _) => name,
        }
    }
}

/// Replaces the variables of a text, names in braces, by their values. A value within a URL is percent-encoded, as a
/// parameter of a campaign is. Braces around anything but a name of ASCII letters, digits and `_` are text.
///
/// # Errors
/// Returns one error for each variable that cannot be replaced.
pub fn fill<'a>(
    text: &str,
    value: impl Fn(&str) -> Option<&'a str>,
) -> Result<String, Vec<VariableError>> {
    if !text.contains('{') {
        return Ok(text.to_owned());
    }
    let mut filled = String::with_capacity(text.len());
    let mut faults = Vec::new();
    let mut faulty = BTreeSet::new();
    // The URLs of the text as it was written: a value neither begins nor ends one.
    let urls = urls(text);
    let mut rest = 0;
    while let Some(begin) = text[rest..].find('{').map(|at| rest + at) {
        filled.push_str(&text[rest..begin]);
        let name = text[begin + 1..].split_once('}').map(|(name, _)| name);
        let Some(name) = name.filter(|name| is_name(name)) else {
            filled.push('{');
            rest = begin + 1;
            continue;
        };
        rest = begin + name.len() + 2;
        let is_in_url = urls.iter().any(|url| url.contains(&begin));
        let put = match value(name) {
            None => Err(VariableError::Missing(name.to_owned())),
            Some(value) if is_in_url => encoded(value)
                .map(|value| filled.push_str(&value))
                .map_err(|error| VariableError::Value(name.to_owned(), error)),
            Some(value) => {
                filled.push_str(value);
                Ok(())
            }
        };
        if let Err(fault) = put
            && faulty.insert(name)
        {
            faults.push(fault);
        }
    }
    filled.push_str(&text[rest..]);
    if faults.is_empty() {
        Ok(filled)
    } else {
        Err(faults)
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_part)
}

fn encoded(value: &str) -> Result<String, ValueError> {
    let mut bytes = Vec::with_capacity(value.len());
    encode_value(value, &mut bytes)?;
    // Percent-encoded text is ASCII.
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// Finds the http and https URLs of a text, in order. Punctuation, quotes and brackets around a URL are not part of it.
pub fn urls(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    // A character is found faster than a text.
    while let Some(colon) = text[from..].find(':').map(|at| from + at) {
        let before = &text[from..colon];
        from = colon + 1;
        if !text[from..].starts_with("//") {
            continue;
        }
        let after = from + "//".len();
        from = after;
        let Some(scheme) = ["https", "http"].into_iter().find(|scheme| {
            let at = before.len().checked_sub(scheme.len());
            at.and_then(|at| before.get(at..))
                .is_some_and(|end| end.eq_ignore_ascii_case(scheme))
        }) else {
            continue;
        };
        let begin = colon - scheme.len();
        let is_word = |character: char| character.is_ascii_alphanumeric();
        if text[..begin].ends_with(is_word) {
            continue;
        }
        let length = text[after..].find(ends_url);
        let end = length.map_or(text.len(), |length| after + length);
        let end = after + without_punctuation(&text[after..end]).len();
        if end > after {
            found.push(begin..end);
            from = end;
        }
    }
    found
}

/// Reports whether no URL in a text continues with a character. Letters of all scripts are allowed, other characters
/// beyond ASCII, such as `，` and `”`, are not.
fn ends_url(character: char) -> bool {
    match character {
        '<' | '>' | '"' | '`' | '\\' | '^' | '|' => true,
        _ if character.is_ascii() => {
            character.is_ascii_whitespace() || character.is_ascii_control()
        }
        _ => !character.is_alphanumeric(),
    }
}

fn without_punctuation(mut url: &str) -> &str {
    loop {
        let trimmed = url.trim_end_matches(PUNCTUATION);
        let is_open = |open: char, close: char| {
            trimmed.ends_with(close)
                && trimmed.matches(close).count() > trimmed.matches(open).count()
        };
        let has_bracket = is_open('(', ')') || is_open('[', ']') || is_open('{', '}');
        let next = &trimmed[..trimmed.len() - usize::from(has_bracket)];
        if next.len() == url.len() {
            return url;
        }
        url = next;
    }
}

/// Replaces ranges of a text, which are in order and apart.
pub fn replace<'a>(
    text: &str,
    ranges: &[Range<usize>],
    with: impl IntoIterator<Item = Cow<'a, str>>,
) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = 0;
    for (range, with) in ranges.iter().zip(with) {
        replaced.push_str(&text[rest..range.start]);
        replaced.push_str(&with);
        rest = range.end;
    }
    replaced.push_str(&text[rest..]);
    replaced
}

#[cfg(test)]
mod tests;
