//! Encodings of files and bodies, and their conversion to UTF-8.

use encoding_rs::{DecoderResult, Encoding};

/// The encodings that rows can have, by the names that messages list.
pub const NAMES: &str = "utf-8, utf-16, utf-16le, utf-16be, gbk, gb18030";

/// A byte that occurs in no text of UTF-8. It stands for what cannot be decoded, so that the value that has it is refused,
/// and no other.
const UNDECODABLE: u8 = 0xff;

/// An encoding that rows can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charset(&'static Encoding);

impl Default for Charset {
    fn default() -> Self {
        Self(encoding_rs::UTF_8)
    }
}

impl Charset {
    /// The encoding with a name. `utf-16` without a byte order mark is little-endian, as Windows writes it.
    pub fn by_name(name: &str) -> Option<Self> {
        if matches!(&*name.to_ascii_lowercase(), "us-ascii" | "ascii") {
            return Some(Self::default());
        }
        let all = [
            encoding_rs::UTF_8,
            encoding_rs::UTF_16LE,
            encoding_rs::UTF_16BE,
            encoding_rs::GBK,
            encoding_rs::GB18030,
        ];
        let found = Encoding::for_label(name.as_bytes())?;
        all.contains(&found).then_some(Self(found))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

/// Converts text that arrives in parts to UTF-8, without a byte order mark. The mark of UTF-8 or UTF-16 decides before
/// the declared encoding.
pub struct Decoder {
    inner: encoding_rs::Decoder,
    has_ended: bool,
}

impl Decoder {
    /// Begins a text.
    pub fn new(Charset(encoding): Charset) -> Self {
        Self {
            inner: encoding.new_decoder(),
            has_ended: false,
        }
    }

    /// Appends a part of the text to `text`.
    pub fn push(&mut self, part: &[u8], text: &mut Vec<u8>) {
        self.decode(part, false, text);
    }

    /// Appends what is left at the end. Later calls append nothing.
    pub fn finish(&mut self, text: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.decode(&[], true, text);
        }
    }

    fn decode(&mut self, mut part: &[u8], is_last: bool, text: &mut Vec<u8>) {
        loop {
            let start = text.len();
            // Enough for most parts; longer ones take several rounds.
            text.resize(start + part.len() + SPARE, 0);
            let (result, read, written) =
                self.inner
                    .decode_to_utf8_without_replacement(part, &mut text[start..], is_last);
            text.truncate(start + written);
            part = &part[read..];
            match result {
                DecoderResult::InputEmpty => return,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => text.push(UNDECODABLE),
            }
        }
    }
}

/// Spare bytes for characters that are longer in UTF-8.
const SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(charset: &str, bytes: &[u8], size: usize) -> Vec<u8> {
        let mut decoder = Decoder::new(Charset::by_name(charset).expect("an encoding"));
        let mut text = Vec::new();
        for part in bytes.chunks(size) {
            decoder.push(part, &mut text);
        }
        decoder.finish(&mut text);
        decoder.finish(&mut text);
        text
    }

    fn utf_16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn encodings_become_utf_8() {
        let text = "longUrl,note\nhttps://例え.example/,短信 😀\n".repeat(20);
        let marked = format!("\u{feff}{text}");
        let (little, big) = (u16::to_le_bytes, u16::to_be_bytes);
        let gb18030 = encoding_rs::GB18030.encode(&text).0.into_owned();
        for (charset, bytes) in [
            ("utf-8", text.clone().into_bytes()),
            ("UTF8", marked.clone().into_bytes()),
            ("utf-16", utf_16(&text, little)),
            ("utf-16le", utf_16(&text, little)),
            ("utf-16be", utf_16(&text, big)),
            ("gb18030", gb18030.clone()),
            ("gbk", gb18030),
            // A byte order mark is more certain than a declaration.
            ("utf-8", utf_16(&marked, little)),
            ("utf-16", utf_16(&marked, big)),
            ("gbk", marked.clone().into_bytes()),
        ] {
            for size in [1, 2, 3, 7, 10_000] {
                let found = decoded(charset, &bytes, size);
                assert_eq!(String::from_utf8_lossy(&found), text, "{charset} by {size}");
            }
        }
    }

    #[test]
    fn only_the_value_that_cannot_be_decoded_is_lost() {
        for (charset, bytes, expected) in [
            ("utf-8", &b"a\xe9,b\n\xe9"[..], &b"a\xff,b\n\xff"[..]),
            ("gbk", b"a\x80\xff,b\n\xb6", b"a\xe2\x82\xac\xff,b\n\xff"),
            ("utf-16le", b"a\0\0\xd8,\0b\0\0", b"a\xff,b\xff"),
        ] {
            for size in [1, 100] {
                assert_eq!(decoded(charset, bytes, size), expected, "{charset}");
            }
        }
    }

    #[test]
    fn other_encodings_are_unknown() {
        assert_eq!(Charset::by_name("US-ASCII"), Some(Charset::default()));
        for name in ["iso-8859-1", "windows-1252", "utf-32", "utf-7", ""] {
            assert_eq!(Charset::by_name(name), None, "{name}");
        }
        for name in NAMES.split(", ") {
            assert!(Charset::by_name(name).is_some(), "{name}");
        }
    }
}
