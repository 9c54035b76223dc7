//! From a request's path to the code it names.

use vocabulary::{Code, CodeRules, Verdict};

/// A code that a path names, unless it has none: then it may name another ([`CodeRules::candidates`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathCode {
    /// The code.
    pub code: Code,
    /// Set when trailing text was cut off.
    pub trimmed: bool,
}

/// Reason for which a path names no link, so that no server needs to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No code begins the path, or one longer than a code may be.
    Malformed,
    /// The code's length is one that is issued, but its check character is wrong.
    WrongCheck,
}

/// Reads the code of a path as nginx decoded it, which begins with `/`.
///
/// Messengers link adjacent text, too (`/Ab3xK9q2。`, `/Ab3xK9q2,回T退订`), so the code is the longest
/// run of characters of codes that begins the path ([`Code::leading`]), and the rest is cut off.
/// Nothing is ever guessed when letters or digits themselves are glued on: the run is then too
/// long, or its check character is wrong.
///
/// # Errors
/// Fails if the path names no code or one that can't have been issued.
#[inline]
pub fn code_of_path(path: &[u8], rules: &CodeRules) -> Result<PathCode, Refusal> {
    code_of_text(path.strip_prefix(b"/").ok_or(Refusal::Malformed)?, rules)
}

/// Reads a code from a text as [`code_of_path`] reads it from what follows the `/`.
///
/// # Errors
/// As [`code_of_path`].
#[inline]
pub fn code_of_text(rest: &[u8], rules: &CodeRules) -> Result<PathCode, Refusal> {
    let code = Code::leading(rest).map_err(|_| Refusal::Malformed)?;
    if rules.judge(&code) == Verdict::WrongCheck {
        return Err(Refusal::WrongCheck);
    }
    Ok(PathCode {
        code,
        trimmed: code.as_bytes().len() < rest.len(),
    })
}

#[cfg(test)]
mod tests {
    use vocabulary::{Alphabet, BodyLengths, Check};

    use super::*;

    fn check(path: &str, expected: Result<(&str, bool), Refusal>) {
        let rules = CodeRules {
            check: Check::Luhn,
            ..CodeRules::default()
        };
        let read = code_of_path(path.as_bytes(), &rules);
        let read = read
            .as_ref()
            .map(|found| (found.code.as_str(), found.trimmed))
            .map_err(|e| *e);
        assert_eq!(read, expected, "{path}");
    }

    #[test]
    fn codes_are_read_and_glued_text_is_left_away() {
        // zzzzzzz's Luhn character is `7`… computed here so that the table does not repeat it.
        let rules = CodeRules::default();
        let code = rules.complete(b"Ab3xK9q").expect("a code");
        let code = code.as_str();
        for glued in [
            "",
            "。",
            "，回T退订",
            ".",
            ",",
            ")",
            "/",
            "/x",
            "?",
            "%",
            "\u{200b}",
        ] {
            check(&format!("/{code}{glued}"), Ok((code, !glued.is_empty())));
        }
        // Of a length that is not issued: custom codes, taken as they are.
        check("/sale", Ok(("sale", false)));
        check("/sale.", Ok(("sale", true)));
        check("/spring-sale。", Ok(("spring-sale", true)));
        check(
            &format!("/{code}-STOP"),
            Ok((&format!("{code}-STOP"), false)),
        );
        let long = "x".repeat(64);
        check(&format!("/{long}"), Ok((&long, false)));
        // Too long for a code, but not the letters and digits before the hyphen.
        check(&format!("/{code}-{long}"), Ok((code, true)));
    }

    #[test]
    fn what_is_no_code_is_refused() {
        let long = format!("/{}", "x".repeat(65));
        for path in ["", "/", "//", "/.", "/。", "x", &long, &format!("{long}.")] {
            check(path, Err(Refusal::Malformed));
        }
        let rules = CodeRules::default();
        let right = rules.complete(b"Ab3xK9q").expect("a code");
        for last in Alphabet::Base62.characters() {
            let path = format!("/Ab3xK9q{}", char::from(*last));
            if *last == right.as_bytes()[7] {
                check(&path, Ok((right.as_str(), false)));
            } else {
                check(&path, Err(Refusal::WrongCheck));
            }
        }
    }

    #[test]
    fn without_a_check_every_code_is_looked_up() {
        let rules = CodeRules {
            check: Check::None,
            bodies: BodyLengths::default(),
            ..CodeRules::default()
        };
        assert!(code_of_path(b"/Ab3xK9q", &rules).is_ok());
        assert!(code_of_path(b"/Ab3xK9q2", &rules).is_ok());
    }
}
