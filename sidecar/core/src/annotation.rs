//! Annotations of links by callers: external ids, notes and tags.

/// The most bytes of an external id.
pub const MAX_EXTERNAL_ID_BYTES: usize = 128;

/// The most characters of a note.
pub const MAX_NOTE_CHARACTERS: usize = 1000;

/// The most characters of a tag.
pub const MAX_TAG_CHARACTERS: usize = 64;

/// The most tags of a link.
pub const MAX_TAGS: usize = 20;

/// Checks an external id: the caller's own name of a link.
///
/// # Errors
/// Fails if it is empty, too long or has invisible characters.
pub fn check_external_id(text: &str) -> Result<(), AnnotationError> {
    if text.len() > MAX_EXTERNAL_ID_BYTES {
        return Err(AnnotationError::TooManyBytes {
            most: MAX_EXTERNAL_ID_BYTES,
        });
    }
    check_visible(text)
}

/// Checks a tag.
///
/// # Errors
/// Fails if it is empty, too long or has invisible characters.
pub fn check_tag(text: &str) -> Result<(), AnnotationError> {
    check_length(text, MAX_TAG_CHARACTERS)?;
    check_visible(text)
}

/// Checks a note, which may have several lines.
///
/// # Errors
/// Fails if it is too long or has control characters.
pub fn check_note(text: &str) -> Result<(), AnnotationError> {
    check_length(text, MAX_NOTE_CHARACTERS)?;
    let is_refused = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    if text.contains(is_refused) {
        return Err(AnnotationError::Control);
    }
    Ok(())
}

/// Puts tags into the one order in which links have them, each once.
pub fn normalized_tags(mut tags: Vec<String>) -> Vec<String> {
    tags.sort_unstable();
    tags.dedup();
    tags
}

fn check_length(text: &str, most: usize) -> Result<(), AnnotationError> {
    // A character has at most four bytes, so that nothing long is counted.
    if text.len() > most * 4 || text.chars().count() > most {
        return Err(AnnotationError::TooManyCharacters { most });
    }
    Ok(())
}

/// Two texts that look the same should be the same: nothing invisible is in them.
fn check_visible(text: &str) -> Result<(), AnnotationError> {
    if text.is_empty() {
        return Err(AnnotationError::Empty);
    }
    if text.contains(is_invisible) || text.trim() != text {
        return Err(AnnotationError::Invisible);
    }
    Ok(())
}

/// Controls, zero-width characters, line separators and marks of direction.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
}

/// Reason for the refusal of a text, worded for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// It has too many bytes.
    #[error("must have at most {most} bytes in UTF-8")]
    TooManyBytes {
        /// The most it may have.
        most: usize,
    },
    /// It has too many characters.
    #[error("must have at most {most} characters")]
    TooManyCharacters {
        /// The most it may have.
        most: usize,
    },
    /// It has something that can't be seen.
    #[error("must be visible text, without control characters and without spaces at its ends")]
    Invisible,
    /// It has control characters.
    #[error("must not contain control characters other than line breaks and tabs")]
    Control,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_and_visible() {
        for (text, is_good) in [
            ("a", true),
            ("Order 7 / Zürich \u{1f600}", true),
            ("", false),
            (" a", false),
            ("a ", false),
            ("a\u{a0}", false),
            ("a\nb", false),
            ("a\0", false),
            ("a\u{200b}b", false),
            ("\u{202e}a", false),
        ] {
            assert_eq!(check_external_id(text).is_ok(), is_good, "{text:?}");
            assert_eq!(check_tag(text).is_ok(), is_good, "{text:?}");
        }
        assert!(check_external_id(&"ü".repeat(64)).is_ok());
        assert!(check_external_id(&"ü".repeat(65)).is_err());
        assert!(check_tag(&"ü".repeat(64)).is_ok());
        assert!(check_tag(&"ü".repeat(65)).is_err());
        assert!(check_note(&"\u{1f600}".repeat(1000)).is_ok());
        assert!(check_note(&"a".repeat(1001)).is_err());
        assert!(check_note("two\r\nlines\tand more ").is_ok());
        assert!(check_note("a\0").is_err());
    }

    #[test]
    fn tags_are_a_set() {
        let tags = ["b", "a", "b", "A"].map(str::to_owned).to_vec();
        assert_eq!(normalized_tags(tags), ["A", "a", "b"]);
    }
}
