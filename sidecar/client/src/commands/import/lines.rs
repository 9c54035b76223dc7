//! Finds the line of a file in which each row begins, to report failed rows.

use shortlink_api::csv_parser::{Parser, Step};

use super::RowFormat;

/// Finds rows in a file that arrives in parts. Rows are those of the API: empty lines are none, the
/// first row of CSV has names, and quoted values may have several lines.
pub(super) enum LineFinder {
    /// Records, with the names still to come or not.
    Csv(Box<Parser>, bool),
    /// The current line, and its row has been found or not.
    Ndjson(u64, bool),
}

impl LineFinder {
    /// Begins with the first line.
    pub(super) fn new(format: RowFormat, delimiter: u8) -> Self {
        match format {
            // No value is needed, so none is buffered.
            RowFormat::Csv => Self::Csv(Box::new(Parser::new(delimiter, 0, 0)), true),
            RowFormat::Ndjson => Self::Ndjson(1, false),
        }
    }

    /// The first line of a record that spans more lines than allowed and has not ended.
    pub(super) fn swallowing(&self) -> Option<u64> {
        match self {
            Self::Csv(parser, _) => parser.swallowing(),
            Self::Ndjson(..) => None,
        }
    }

    /// Takes a part of the file, and passes the line of each row in it to `row`. An empty part is
    /// the end.
    pub(super) fn push(&mut self, mut part: &[u8], mut row: impl FnMut(u64)) {
        let is_end = part.is_empty();
        match self {
            Self::Ndjson(line, is_found) => {
                for byte in part {
                    if *byte == b'\n' {
                        (*line, *is_found) = (*line + 1, false);
                    } else if !byte.is_ascii_whitespace() && !std::mem::replace(is_found, true) {
                        row(*line);
                    }
                }
            }
            Self::Csv(parser, is_head) => loop {
                let step = if is_end {
                    parser.finish()
                } else {
                    parser.parse(&mut part)
                };
                match step {
                    Step::Record(place)
                    | Step::TooLong(place)
                    | Step::TooManyLines(place)
                    | Step::Misquoted(place)
                    | Step::Unclosed(place) => {
                        if !std::mem::take(is_head) {
                            row(place.line);
                        }
                    }
                    Step::TooManyFields => {}
                    Step::More | Step::End => return,
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(format: RowFormat, text: &str) -> Vec<u64> {
        let whole = |size: usize| {
            let mut finder = LineFinder::new(format, b',');
            let mut found = Vec::new();
            for part in text.as_bytes().chunks(size) {
                finder.push(part, |line| found.push(line));
            }
            finder.push(&[], |line| found.push(line));
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

    #[test]
    fn a_quotation_mark_that_is_not_closed_is_found_before_the_end() {
        let mut finder = LineFinder::new(RowFormat::Csv, b',');
        let mut found = Vec::new();
        for _line in 0..20 {
            finder.push(b"a,\"b\nc\"\n", |_| {});
        }
        finder.push(b"\na,\"b\n", |_| {});
        for _line in 0..16 {
            found.push(finder.swallowing());
            finder.push(b"c,d\n", |_| {});
        }
        assert_eq!(
            (found.pop(), finder.swallowing()),
            (Some(Some(42)), Some(42))
        );
        assert!(found.iter().all(Option::is_none), "{found:?}");
        finder.push(b"\"\n", |_| {});
        assert_eq!(finder.swallowing(), None);
    }
}
