//! Rows of comma-separated values. A record that is too long is refused and counted as one row.

use std::io::{self, BufRead};

use anyhow::bail;
use shortlink_api::csv_parser::{Parser, Place, Step};

use super::columns::{Cells, Column, Found, Names};
use super::row::{MAX_ROW, Refusal, spanning};

/// The most columns.
const MAX_COLUMNS: usize = 1024;

/// The lines of a row, and the reason why it is none.
pub type Row = (Place, Result<(), Refusal>);

/// Reads rows one after the other.
pub trait Rows: Send {
    /// Reads the next row into `cells`; `None` at the end.
    ///
    /// # Errors
    /// Fails when the file can't be read any further.
    fn next(&mut self, cells: &mut Cells) -> io::Result<Option<Row>>;

    /// The columns that were found since the last call.
    fn found(&mut self) -> Found;
}

/// Rows of comma-separated values.
pub struct CsvRows<R> {
    reader: R,
    parser: Parser,
    /// The meaning of each column.
    meanings: Vec<Option<Column>>,
    found: Found,
}

impl<R: BufRead + Send> CsvRows<R> {
    /// Reads the header, or takes `header` if the file has none.
    ///
    /// # Errors
    /// Fails when there is no header or its columns can't be identified.
    pub fn new(
        reader: R,
        delimiter: u8,
        names: &Names,
        header: Option<Vec<String>>,
    ) -> anyhow::Result<Self> {
        let mut rows = Self {
            reader,
            parser: Parser::new(delimiter, MAX_ROW, MAX_COLUMNS),
            meanings: Vec::new(),
            found: Found::default(),
        };
        let header = match header {
            Some(header) => header,
            None => match rows.read()? {
                Some((_, Ok(()))) => rows
                    .parser
                    .fields()
                    .map(|field| String::from_utf8_lossy(field).trim().to_owned())
                    .collect(),
                Some((_, Err(refusal))) => bail!("the header can't be read: {}", refusal.problem),
                None => bail!("the file is empty; a header is needed"),
            },
        };
        rows.meanings = vec![None; header.len()];
        let places = names.places(&header)?;
        for (column, place) in Column::all().zip(places) {
            if let Some(place) = place {
                rows.meanings[place] = Some(column);
            }
        }
        for (name, meaning) in header.into_iter().zip(&rows.meanings) {
            match meaning {
                Some(column) => rows.found.read.push((name, *column)),
                None => rows.found.ignored.push(name),
            }
        }
        Ok(rows)
    }

    /// Reads the next record that is not blank.
    fn read(&mut self) -> io::Result<Option<Row>> {
        loop {
            let input = self.reader.fill_buf()?;
            let mut rest = input;
            let step = if input.is_empty() {
                self.parser.finish()
            } else {
                self.parser.parse(&mut rest)
            };
            let read = input.len() - rest.len();
            self.reader.consume(read);
            match step {
                Step::Record(place) => {
                    let mut fields = self.parser.fields();
                    if !fields.all(|field| field.trim_ascii().is_empty()) {
                        return Ok(Some((place, Ok(()))));
                    }
                }
                Step::TooLong(place) => {
                    return Ok(Some((place, Err(Refusal::too_long(place.lines)))));
                }
                Step::TooManyLines(place) => {
                    let lines = place.lines;
                    let refusal = Refusal::unreadable(format!(
                        "spans {lines} lines: is a quotation mark not closed? None of them was imported"
                    ));
                    return Ok(Some((place, Err(refusal))));
                }
                Step::Misquoted(place) => {
                    let refusal = Refusal::unreadable(format!(
                        "has text behind a closing quotation mark (within a value, write it twice){}",
                        spanning(place.lines)
                    ));
                    return Ok(Some((place, Err(refusal))));
                }
                Step::Unclosed(place) => {
                    let refusal = Refusal::unreadable(
                        "has a quotation mark that is not closed, and so all lines to the end of the file. None of \
                         them was imported",
                    );
                    return Ok(Some((place, Err(refusal))));
                }
                Step::More | Step::TooManyFields => {}
                Step::End => return Ok(None),
            }
        }
    }
}

impl<R: BufRead + Send> Rows for CsvRows<R> {
    fn next(&mut self, cells: &mut Cells) -> io::Result<Option<Row>> {
        let next = self.read()?;
        let Some((place, Ok(()))) = next else {
            return Ok(next);
        };
        cells.clear();
        let fields = self.parser.fields();
        let found = fields.len();
        for (field, meaning) in fields.zip(&self.meanings) {
            if let Some(column) = meaning {
                cells.set(*column, field);
            }
        }
        let (expected, lines) = (self.meanings.len(), place.lines);
        let row = if found != expected {
            // An unquoted comma in a target, for example, shifts the columns.
            let spanning = spanning(lines);
            Err(format!(
                "has {found} columns where the header has {expected}{spanning}"
            ))
        } else {
            Ok(())
        };
        Ok(Some((place, row.map_err(Refusal::unreadable))))
    }

    fn found(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of a file: the lines and cells of its rows, and the refusals of others.
    fn read(text: &[u8]) -> Vec<String> {
        // A small buffer, so that everything is cut somewhere.
        let reader = io::BufReader::with_capacity(7, text);
        let rows = CsvRows::new(reader, b',', &Names::default(), None);
        let mut rows = rows.expect("a header");
        let mut cells = Cells::default();
        let mut found = Vec::new();
        loop {
            match rows.next(&mut cells).expect("a slice") {
                Some((Place { line, .. }, Ok(()))) => {
                    let text = |column| {
                        String::from_utf8_lossy(cells.get(column).unwrap_or_default()).into_owned()
                    };
                    found.push(format!(
                        "{line} {} {}",
                        text(Column::CODE),
                        text(Column::URL)
                    ));
                }
                Some((Place { line, .. }, Err(refusal))) => {
                    found.push(format!("{line}: {}", refusal.problem));
                }
                None => return found,
            }
        }
    }

    #[test]
    fn rows_are_read_whatever_ends_and_quotes_them() {
        for (text, found) in [
            ("code,url\na,b", &["2 a b"][..]),
            ("code,url\r\na,b\r\n\r\nc,d\r\n", &["2 a b", "4 c d"]),
            ("\n\ncode,url\n\n \n,\na,b\n", &["7 a b"]),
            (
                "url,code,note\n\"x,y\",a,\"say \"\"no\"\"\"\n",
                &["2 a x,y"],
            ),
            (
                "code,url,note\na,b,\"one\ntwo\"\nc,d,e\n",
                &["2 a b", "4 c d"],
            ),
            ("code,url,note\na,b,\"one\ntwo\"", &["2 a b"]),
            ("code,url,note\na,b,\"one\"", &["2 a b"]),
            ("code,url\n a , b \n", &["2 a b"]),
            ("code,url\na\0,b\n", &["2 a\0 b"]),
            ("code,url", &[]),
        ] {
            assert_eq!(read(text.as_bytes()), found, "{text:?}");
        }
        assert_eq!(read(b"code,url\n\xff,\xfe\n"), ["2 \u{fffd} \u{fffd}"]);
    }

    #[test]
    fn what_is_not_a_row_is_refused_and_the_next_is_read() {
        let wrong = |text: &str| read(text.as_bytes());
        for (text, said) in [
            (
                "code,url\na,b,c\nd,e\n",
                "2: has 3 columns where the header has 2",
            ),
            (
                "code,url\na\nd,e\n",
                "2: has 1 columns where the header has 2",
            ),
        ] {
            assert_eq!(wrong(text), [said, "3 d e"], "{text:?}");
        }
        // A quotation mark that is not closed swallows the rows behind it.
        let open = format!("code,url,note\na,b,\"c\n{}d,e,f\n", "x,y,z\n".repeat(100));
        let found = wrong(&open);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("2: has a quotation mark that is not closed"),
            "{found:?}"
        );
        // One that is closed by another row's does the same, up to that.
        let closed = format!("{open}g,h,\"i\nj,k,l\n");
        let found = wrong(&closed);
        assert!(found[0].starts_with("2: spans 103 lines"), "{found:?}");
        assert!(found[1].ends_with("j k"), "{found:?}");
        let soon = wrong("code,url,note\na,b,\"Bob\nc,d,e\nf,g,\"Al\nh,i,j\n");
        let text = "2: has text behind a closing quotation mark";
        assert!(
            soon[0].starts_with(text) && soon[0].contains("3 lines"),
            "{soon:?}"
        );
        assert_eq!(soon[1], "5 h i");
        let few = wrong("code,url,note\na,b,\"Bob\nc,d,e\n");
        assert!(
            few[0].starts_with("2: has a quotation mark that is not closed"),
            "{few:?}"
        );
        let long = format!(
            "code,url\na,{}\n\"{}\n{}\",b\nc,d\n",
            "x".repeat(10 << 20),
            "y".repeat(MAX_ROW),
            "z".repeat(MAX_ROW)
        );
        let found = wrong(&long);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("2: has more than"), "{found:?}");
        assert!(found[1].starts_with("3: has more than"), "{found:?}");
        assert_eq!(found[2], "5 c d");
        let commas = format!("code,url\n{}\nc,d\n", ",".repeat(5000));
        assert_eq!(wrong(&commas)[1], "3 c d");
    }

    #[test]
    fn a_file_without_a_header_is_refused_or_given_one() {
        let open = |text: &'static str, header: Option<&str>| {
            let header = header.map(|it| it.split(',').map(str::to_owned).collect());
            CsvRows::new(text.as_bytes(), b',', &Names::default(), header)
        };
        for (text, said) in [
            ("", "the file is empty"),
            ("\n\n", "the file is empty"),
            (
                "a,https://example.com\n",
                "no column is known to be the code",
            ),
        ] {
            let error = open(text, None).map(|_rows| ()).expect_err(text);
            assert!(error.to_string().starts_with(said), "{error}");
        }
        let mut rows = open("a,b\n", Some("code,url")).expect("a header");
        let mut cells = Cells::default();
        let next = rows.next(&mut cells).expect("a slice");
        assert_eq!(next, Some((Place { line: 1, lines: 1 }, Ok(()))));
        assert_eq!(cells.get(Column::CODE), Some(&b"a"[..]));
    }
}
