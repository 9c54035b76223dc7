//! The encoding of a message, its length, and the segments that it is sent in (3GPP TS 23.038 and 23.040).

/// The characters of the GSM 7-bit default alphabet, without the escape.
const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";

/// The characters of its extension table: each takes an escape and a septet.
const EXTENDED: &str = "\u{c}^{}\\[~]|€";

/// The encoding of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The GSM 7-bit default alphabet with its extension table.
    Gsm7,
    /// UTF-16, for texts with any other character.
    Ucs2,
}

impl Encoding {
    /// The encoding of a text.
    pub fn of(text: &str) -> Self {
        if text.chars().all(|character| septets(character).is_some()) {
            Self::Gsm7
        } else {
            Self::Ucs2
        }
    }

    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gsm7 => "GSM-7",
            Self::Ucs2 => "UCS-2",
        }
    }

    /// The units of a message of one segment, and those of each segment of a longer one, which has a header.
    fn sizes(self) -> (usize, usize) {
        match self {
            Self::Gsm7 => (160, 153),
            Self::Ucs2 => (70, 67),
        }
    }

    fn units(self, character: char) -> usize {
        match self {
            Self::Gsm7 => septets(character).unwrap_or(1),
            Self::Ucs2 => character.len_utf16(),
        }
    }
}

/// The septets of a character in GSM-7, if it has any.
fn septets(character: char) -> Option<usize> {
    // Most characters of a text, without a search.
    if character.is_ascii_alphanumeric() || matches!(character, ' ' | '/' | '.' | ':') {
        return Some(1);
    }
    if BASIC.contains(character) {
        return Some(1);
    }
    EXTENDED.contains(character).then_some(2)
}

/// The size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// The encoding that the text needs.
    pub encoding: Encoding,
    /// Length in septets of GSM-7 or in 16-bit units of UCS-2.
    pub length: usize,
    /// Number of segments. A segment ends neither within an escape of GSM-7 nor within a surrogate pair.
    pub count: usize,
}

impl Segments {
    /// Measures a text.
    pub fn of(text: &str) -> Self {
        let encoding = Encoding::of(text);
        let (whole, part) = encoding.sizes();
        let (mut length, mut count, mut in_segment) = (0, 0, part);
        for character in text.chars() {
            let units = encoding.units(character);
            length += units;
            if in_segment + units > part {
                count += 1;
                in_segment = 0;
            }
            in_segment += units;
        }
        if length <= whole {
            count = usize::from(length > 0);
        }
        Self {
            encoding,
            length,
            count,
        }
    }
}
