//! A parser of comma-separated values that is given its input in parts.
//!
//! It is that of the crate `csv`, used directly, since a reader of whole records stores a record of
//! any length: an unclosed quotation mark makes it read the rest of the input into memory. Here such
//! a record is read past and reported.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// Initial capacity in bytes and in fields.
const ROOM: (usize, usize) = (1024, 32);

/// The most lines that a record may span. More are hardly a remark, but the records behind a quotation mark that is not
/// closed, which must not be skipped silently.
pub const MAX_LINES: u64 = 16;

/// The separators of values that are recognised, with their names.
pub const DELIMITERS: [(&str, u8); 3] = [("comma", b','), ("semicolon", b';'), ("tab", b'\t')];

/// Recognises the separator of values from the header of a file that arrives in parts.
#[derive(Debug, Default)]
pub struct Recogniser {
    /// The number of each of [`DELIMITERS`] outside of quotation marks.
    counts: [usize; 3],
    is_quoted: bool,
    has_begun: bool,
}

impl Recogniser {
    /// Takes a part of the file. Returns true once the header has ended.
    pub fn push(&mut self, part: &[u8]) -> bool {
        for byte in part {
            match byte {
                b'\r' | b'\n' if self.is_quoted => {}
                b'\r' | b'\n' if self.has_begun => return true,
                b'\r' | b'\n' => continue,
                b'"' => self.is_quoted = !self.is_quoted,
                _ if self.is_quoted => {}
                _ => {
                    let known = DELIMITERS.iter().position(|(_, it)| it == byte);
                    if let Some(place) = known {
                        self.counts[place] += 1;
                    }
                }
            }
            self.has_begun = true;
        }
        false
    }

    /// The most frequent separator; the comma if none is, or a quotation mark is not closed.
    pub fn delimiter(&self) -> u8 {
        let most = *self.counts.iter().max().unwrap_or(&0);
        let mut found = self
            .counts
            .iter()
            .zip(DELIMITERS)
            .filter(|(count, _)| **count == most);
        match (found.next(), found.next()) {
            (Some((_, (_, delimiter))), None) if !self.is_quoted => delimiter,
            _ => b',',
        }
    }
}

/// Result of parsing a part of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A record has ended; [`Parser::fields`] has its fields.
    Record(Place),
    /// A record has ended that has more bytes or fields than allowed.
    TooLong(Place),
    /// A record has ended that spans more than [`MAX_LINES`].
    TooManyLines(Place),
    /// A record has ended with text between a closing quotation mark and the end of its field, such as `"a"b`. The fields
    /// lack quotation marks.
    Misquoted(Place),
    /// The input has ended within quotation marks: the last record has all that is behind the first of them.
    Unclosed(Place),
    /// The current record has more fields than allowed.
    TooManyFields,
    /// The part has been read.
    More,
    /// The input has ended.
    End,
}

/// Lines of a record. A line ends with a line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its first line, from 1.
    pub line: u64,
    /// The number of lines that it spans.
    pub lines: u64,
}

/// Quotation marks of the current record.
#[derive(Debug)]
struct Quotes {
    delimiter: u8,
    state: Quote,
    is_misquoted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quote {
    /// A field begins.
    Begin,
    /// Text without quotation marks, or where they have no meaning.
    Plain,
    Quoted,
    /// Behind a quotation mark that ends the field, or the first one of two.
    Closed,
}

impl Quotes {
    /// Takes a part of the input.
    fn push(&mut self, part: &[u8]) {
        let is_plain = matches!(self.state, Quote::Begin | Quote::Plain);
        if is_plain && !part.contains(&b'"') {
            if let Some(last) = part.last() {
                self.state = self.unquoted(*last);
            }
            return;
        }
        for byte in part {
            self.state = match (self.state, byte) {
                (Quote::Begin | Quote::Closed, b'"') => Quote::Quoted,
                (Quote::Quoted, b'"') => Quote::Closed,
                (Quote::Quoted, _) => Quote::Quoted,
                (before, byte) => {
                    let state = self.unquoted(*byte);
                    self.is_misquoted |= (before, state) == (Quote::Closed, Quote::Plain);
                    state
                }
            };
        }
    }

    fn unquoted(&self, byte: u8) -> Quote {
        if byte == self.delimiter || b"\r\n".contains(&byte) {
            Quote::Begin
        } else {
            Quote::Plain
        }
    }
}

/// Parses records, which are lines that are not empty.
pub struct Parser {
    core: Reader,
    max_bytes: usize,
    max_fields: usize,
    /// The fields of the current record, one behind the other, and the end of each.
    text: Vec<u8>,
    ends: Vec<usize>,
    length: usize,
    count: usize,
    /// The line feeds within the record.
    line_feeds: u64,
    quotes: Quotes,
    is_too_long: bool,
    has_ended: bool,
}

impl Parser {
    /// Allows records of so many bytes, but no fewer than 1024, and so many fields.
    pub fn new(delimiter: u8, max_bytes: usize, max_fields: usize) -> Self {
        Self {
            core: ReaderBuilder::new().delimiter(delimiter).build(),
            max_bytes: max_bytes.max(ROOM.0),
            max_fields,
            text: vec![0; ROOM.0],
            ends: vec![0; ROOM.1],
            length: 0,
            count: 0,
            line_feeds: 0,
            quotes: Quotes {
                delimiter,
                state: Quote::Begin,
                is_misquoted: false,
            },
            is_too_long: false,
            has_ended: false,
        }
    }

    /// Parses `part` as far as the end of a record, and leaves the rest in it.
    pub fn parse(&mut self, part: &mut &[u8]) -> Step {
        if part.is_empty() {
            return Step::More;
        }
        self.step(part)
    }

    /// Parses the end of the input: the last record needs no end of line.
    pub fn finish(&mut self) -> Step {
        // Within quotation marks, a line feed is a part of a field.
        let (had_ended, before) = (self.has_ended, self.line_feeds);
        let step = self.step(&mut &b"\n"[..]);
        if step != Step::More {
            return step;
        }
        let is_open = !had_ended && self.line_feeds > before;
        match self.step(&mut &[][..]) {
            Step::Record(place)
            | Step::TooLong(place)
            | Step::TooManyLines(place)
            | Step::Misquoted(place)
                if is_open =>
            {
                Step::Unclosed(place)
            }
            step => step,
        }
    }

    /// The first line of the current record, if it spans more than [`MAX_LINES`] and has not ended: all that follows
    /// belongs to it up to the next quotation mark.
    pub fn swallowing(&self) -> Option<u64> {
        let is_open = !self.has_ended && self.line_feeds >= MAX_LINES;
        is_open.then(|| self.core.line() - self.line_feeds)
    }

    /// The fields of the record that has ended.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends[..self.count].iter().map(move |&end| {
            let field = &self.text[start..end];
            start = end;
            field
        })
    }

    fn step(&mut self, part: &mut &[u8]) -> Step {
        if std::mem::take(&mut self.has_ended) {
            (self.length, self.count, self.line_feeds) = (0, 0, 0);
            self.is_too_long = false;
            self.quotes.is_misquoted = false;
        }
        let is_end = part.is_empty();
        loop {
            let (result, read, written, ended) = self.core.read_record(
                part,
                &mut self.text[self.length..],
                &mut self.ends[self.count..],
            );
            let last = part[..read].last();
            self.quotes.push(&part[..read]);
            *part = &part[read..];
            let written = &self.text[self.length..self.length + written];
            self.line_feeds += written.iter().filter(|&&byte| byte == b'\n').count() as u64;
            self.length += written.len();
            self.count += ended;
            match result {
                ReadRecordResult::InputEmpty => return Step::More,
                ReadRecordResult::End => return Step::End,
                ReadRecordResult::OutputFull if self.text.len() < self.max_bytes => {
                    let room = self.max_bytes.min(self.text.len() * 2);
                    self.text.resize(room, 0);
                }
                ReadRecordResult::OutputFull => {
                    // The rest is read all the same, into the same place.
                    self.is_too_long = true;
                    self.length = 0;
                }
                ReadRecordResult::OutputEndsFull if self.ends.len() < self.max_fields => {
                    let room = self.max_fields.min(self.ends.len() * 2);
                    self.ends.resize(room, 0);
                }
                ReadRecordResult::OutputEndsFull => {
                    self.is_too_long = true;
                    (self.length, self.count) = (0, 0);
                    return Step::TooManyFields;
                }
                ReadRecordResult::Record => {
                    self.has_ended = true;
                    // The record's own end of line has been read, unless the input ends without one.
                    let own = u64::from(!is_end && last == Some(&b'\n'));
                    let place = Place {
                        line: self.core.line() - own - self.line_feeds,
                        lines: self.line_feeds + 1,
                    };
                    return match () {
                        () if place.lines > MAX_LINES => Step::TooManyLines(place),
                        () if self.is_too_long => Step::TooLong(place),
                        () if self.quotes.is_misquoted => Step::Misquoted(place),
                        () => Step::Record(place),
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_behind_a_closing_quotation_mark_is_found() {
        let read = |text: &str, size: usize| {
            let mut parser = Parser::new(b';', 1024, 8);
            let mut steps = Vec::new();
            for mut part in text.as_bytes().chunks(size) {
                while !part.is_empty() {
                    steps.push(parser.parse(&mut part));
                }
            }
            steps.push(parser.finish());
            steps.retain(|step| !matches!(step, Step::More | Step::End));
            steps
        };
        for (field, is_right) in [
            ("a\"b\"", true),
            ("\"a\"", true),
            ("\"\"", true),
            ("\"a\"\"b\"", true),
            ("\"\"\"a\"", true),
            ("\"a;\n,b\"", true),
            ("\"a\"b", false),
            ("\"a\" ", false),
            ("\"a\"\"\"b\"", false),
            ("\"\"a\"\"", false),
            ("\"a\nb;\"c", false),
        ] {
            let lines = 1 + field.matches('\n').count() as u64;
            for (text, line) in [
                (format!("{field};x\nc;d\n"), 1),
                (format!("x;{field}\r\nc;d"), 1),
                (format!("c;d\n\nx;{field}\n"), 3),
            ] {
                let place = Place { line, lines };
                for size in [1, 2, 1000] {
                    let steps = read(&text, size);
                    assert_eq!(
                        steps.contains(&Step::Misquoted(place)),
                        !is_right,
                        "{text:?}: {steps:?}"
                    );
                    assert_eq!(
                        steps.contains(&Step::Record(place)),
                        is_right,
                        "{text:?}: {steps:?}"
                    );
                    assert_eq!(steps.len(), 2, "{text:?}: {steps:?}");
                }
            }
        }
    }

    #[test]
    fn the_separator_of_a_header_is_recognised() {
        for (text, delimiter) in [
            ("a,b;c,d\n;;;;;;", b','),
            ("a;b\n,,,,", b';'),
            ("\r\n\na\tb\tc;d", b'\t'),
            // Separators within quotation marks, and lines of the header, do not count.
            ("\"a,b,c\nd,\"\"e\"\"\";f\r\n", b';'),
            ("longUrl\na;b", b','),
            ("a;b\tc", b','),
            ("a;b,c", b','),
            ("a;b;\"c", b','),
            ("", b','),
        ] {
            for size in [1, 100] {
                let mut recogniser = Recogniser::default();
                let mut parts = text.as_bytes().chunks(size);
                let _has_ended = parts.any(|part| recogniser.push(part));
                assert_eq!(recogniser.delimiter(), delimiter, "{text:?}");
            }
        }
    }
}
