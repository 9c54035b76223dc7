//! Cells of files that a spreadsheet may open.
//!
//! A spreadsheet takes a cell for a formula by its first character, whatever quotation marks surround it, and visitors
//! choose what a listing of visits contains.

use std::borrow::Cow;

/// The first characters of formulas, wide ones and control characters included (OWASP, CSV injection).
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// The form of the texts of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// For spreadsheets: [`as_text`].
    Text,
    /// As they are, for programs.
    Raw,
}

impl Cells {
    /// Raw ones, or those for spreadsheets.
    #[must_use]
    pub const fn raw(is_raw: bool) -> Self {
        if is_raw { Self::Raw } else { Self::Text }
    }

    /// The cell with a text.
    #[must_use]
    pub fn cell(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Text => as_text(text),
            Self::Raw => Cow::Borrowed(text),
        }
    }
}

/// A text that no spreadsheet computes: an apostrophe goes before what could be a formula. A number with its sign, such
/// as `+4915112345678`, is none.
#[must_use]
pub fn as_text(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(FORMULA);
    let is_number = || {
        let digits = text.strip_prefix(['+', '-']).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if is_formula && !is_number() {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_become_text_and_all_else_stays() {
        for formula in [
            "=HYPERLINK(\"http://evil\")",
            "+1+1",
            "-2+3",
            "@SUM(A1)",
            "\t=1",
            "\r=1",
            "\n=1",
            "＝1+1",
            "-",
            "+49 151",
        ] {
            assert_eq!(as_text(formula), format!("'{formula}"));
            assert_eq!(Cells::Raw.cell(formula), formula);
        }
        for text in [
            "",
            "a=b",
            "'=1",
            "+4915112345678",
            "-12",
            "https://example.com/",
            " =1",
        ] {
            assert_eq!(as_text(text), text);
        }
    }
}
