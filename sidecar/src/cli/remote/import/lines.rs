//! In which line of a file each row begins, so that a row that failed is found there.

use super::RowFormat;

/// Finds rows in a file that comes in parts. What a row is, is what it is to the API: empty lines are
/// none, the first of CSV has names, and values in quotation marks may have several lines.
#[derive(Debug)]
pub(super) struct LineFinder {
    format: RowFormat,
    line: u64,
    place: Place,
    /// Whether the names of CSV are still to come.
    is_head: bool,
}

/// Where in a row the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before it.
    Start,
    /// At the beginning of a value.
    Value,
    /// Within a value, or anywhere in a line of JSON.
    Within,
    /// Between quotation marks.
    Quoted,
    /// Behind a quotation mark that ends a value, or is half of one in it.
    Mark,
}

impl LineFinder {
    /// Begins with the first line.
    pub(super) fn new(format: RowFormat) -> Self {
        Self {
            format,
            line: 1,
            place: Place::Start,
            is_head: format == RowFormat::Csv,
        }
    }

    /// Takes a part of the file, and hands on the line of each row that begins in it.
    pub(super) fn push(&mut self, part: &[u8], mut row: impl FnMut(u64)) {
        for &byte in part {
            let begins = match self.format {
                RowFormat::Ndjson => self.json(byte),
                RowFormat::Csv => self.csv(byte),
            };
            if begins {
                row(self.line);
            }
            if byte == b'\n' {
                self.line += 1;
            }
        }
    }

    fn json(&mut self, byte: u8) -> bool {
        match byte {
            b'\n' => self.place = Place::Start,
            _ if self.place == Place::Start && !byte.is_ascii_whitespace() => {
                self.place = Place::Within;
                return true;
            }
            _ => {}
        }
        false
    }

    fn csv(&mut self, byte: u8) -> bool {
        let ends = matches!(byte, b'\r' | b'\n');
        let mut begins = false;
        if self.place == Place::Start {
            if ends {
                return false;
            }
            begins = !std::mem::replace(&mut self.is_head, false);
            self.place = Place::Value;
        }
        self.place = match (self.place, byte) {
            (Place::Quoted, b'"') => Place::Mark,
            (Place::Quoted, _) => Place::Quoted,
            (Place::Value | Place::Mark, b'"') => Place::Quoted,
            (_, b',') => Place::Value,
            _ if ends => Place::Start,
            _ => Place::Within,
        };
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(format: RowFormat, text: &str) -> Vec<u64> {
        let whole = |size: usize| {
            let mut finder = LineFinder::new(format);
            let mut found = Vec::new();
            for part in text.as_bytes().chunks(size) {
                finder.push(part, |line| found.push(line));
            }
            found
        };
        let found = whole(text.len());
        assert_eq!(whole(1), found, "in parts");
        found
    }

    #[test]
    fn rows_of_json_are_lines_that_are_not_empty() {
        let text = "{}\n\n  \r\n{\"a\": 1}\r\n x\n{}";
        assert_eq!(lines(RowFormat::Ndjson, text), [1, 4, 5, 6]);
    }

    #[test]
    fn rows_of_csv_are_found_behind_values_of_several_lines() {
        let text = "longUrl,note\na,b\n\nc,\"d\ne \"\"f\"\",\n\"\ng,h\"i\nj,\"k\"\r\n\r\nl,m";
        assert_eq!(lines(RowFormat::Csv, text), [2, 4, 7, 8, 10]);
        assert_eq!(lines(RowFormat::Csv, "\n\na\nb\n"), [4]);
    }
}
