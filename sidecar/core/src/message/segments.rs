//! The encoding of a message, its length, and the segments that it is sent in (3GPP TS 23.038 and 23.040).

/// The characters of the GSM 7-bit default alphabet, without the escape.
pub(super) const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";

/// The characters of its extension table: each takes an escape and a septet.
pub(super) const EXTENDED: &str = "\u{c}^{}\\[~]|€";

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

/// The septets of ASCII characters, 0 for those without any.
const ASCII: [u8; 128] = {
    let mut table = [0; 128];
    fill_in(&mut table, BASIC.as_bytes(), 1);
    fill_in(&mut table, EXTENDED.as_bytes(), 2);
    table
};

const fn fill_in(table: &mut [u8; 128], characters: &[u8], septets: u8) {
    let mut place = 0;
    while place < characters.len() {
        if characters[place].is_ascii() {
            table[characters[place] as usize] = septets;
        }
        place += 1;
    }
}

/// The septets of a character in GSM-7, if it has any.
fn septets(character: char) -> Option<usize> {
    if let Some(septets) = ASCII.get(character as usize) {
        return (*septets > 0).then_some(usize::from(*septets));
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
        let is_one = |byte: u8| ASCII.get(usize::from(byte)) == Some(&1);
        // As most texts are: none of its characters takes two septets.
        if text.bytes().all(is_one) {
            return Self::new(Encoding::Gsm7, text.len(), |part| text.len().div_ceil(part));
        }
        let encoding = Encoding::of(text);
        let units = text.chars().map(|character| encoding.units(character));
        Self::new(encoding, units.clone().sum(), |part| {
            let (mut count, mut in_segment) = (0, part);
            for units in units {
                if in_segment + units > part {
                    count += 1;
                    in_segment = 0;
                }
                in_segment += units;
            }
            count
        })
    }

    /// `count` counts the segments of a text that needs several, by the units of each.
    fn new(encoding: Encoding, length: usize, count: impl FnOnce(usize) -> usize) -> Self {
        let (whole, part) = encoding.sizes();
        let count = if length > whole {
            count(part)
        } else {
            usize::from(length > 0)
        };
        Self {
            encoding,
            length,
            count,
        }
    }
}
