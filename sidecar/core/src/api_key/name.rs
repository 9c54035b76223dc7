//! Names of API keys.

/// The most characters of a key's name.
pub const MAX_NAME_LENGTH: usize = 100;

/// Reads a key's name.
///
/// # Errors
/// Fails when it is empty, too long or can't be shown on one line.
pub fn parse_name(text: &str) -> Result<String, NameError> {
    if text.trim().is_empty() {
        return Err(NameError::Empty);
    }
    if text.chars().count() > MAX_NAME_LENGTH {
        return Err(NameError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(NameError::Control);
    }
    Ok(text.to_owned())
}

/// The reason that a text can't be a key's name, in words for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no visible characters.
    #[error("must not be empty")]
    Empty,
    /// It has too many characters.
    #[error("must have at most {MAX_NAME_LENGTH} characters")]
    TooLong,
    /// It has line ends or the like.
    #[error("must not contain control characters")]
    Control,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_of_one_line() {
        for (text, verdict) in [
            ("a", Ok(())),
            ("Caf\u{e9} Z\u{fc}rich 1", Ok(())),
            ("", Err(NameError::Empty)),
            (" \u{a0}", Err(NameError::Empty)),
            ("a\nb", Err(NameError::Control)),
            ("a\u{1b}[2J", Err(NameError::Control)),
            (&"\u{fc}".repeat(MAX_NAME_LENGTH), Ok(())),
            (&"a".repeat(MAX_NAME_LENGTH + 1), Err(NameError::TooLong)),
        ] {
            assert_eq!(parse_name(text).map(drop), verdict, "{text:?}");
        }
    }
}
