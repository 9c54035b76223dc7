//! Cuts lines of values into rows, and reads their names from the first line.

use std::collections::BTreeSet;

use shortlink_api::csv_parser::{self, DELIMITERS, Parser, Recogniser, Step};

use super::{BrokenBody, Csv, RawRow};

/// The maximum number of values in a line.
const MOST_VALUES: usize = 256;

/// Reads lines of values.
pub(super) struct CsvCutter {
    parser: Parser,
    delimiter: u8,
    most_bytes: usize,
    /// Recognises the delimiter: the begin of the body, until its first line has ended.
    begin: Option<(Recogniser, Vec<u8>)>,
    names: Option<Vec<Option<String>>>,
    /// Names that replace those in the first line.
    columns: Option<Vec<Option<String>>>,
    /// The line of the file at which the rows begin, and that of the body.
    lines: Option<(u64, u64)>,
}

impl CsvCutter {
    pub(super) fn new(csv: Csv, most_bytes: usize) -> Self {
        let delimiter = csv.delimiter.unwrap_or(b',');
        let is_known = csv.delimiter.is_some();
        Self {
            parser: Parser::new(delimiter, most_bytes, MOST_VALUES),
            delimiter,
            most_bytes,
            begin: (!is_known).then(Default::default),
            columns: csv.columns,
            // The line of the body is known once the names are read.
            lines: csv.first_line.map(|line| (line, 0)),
            names: None,
        }
    }

    /// Converts lines of the body to those of the file.
    fn in_file(&self, place: csv_parser::Place) -> csv_parser::Place {
        let (file, body) = self.lines.unwrap_or_default();
        csv_parser::Place {
            line: file.saturating_add(place.line).saturating_sub(body),
            ..place
        }
    }

    /// The names of the values, once they were read.
    pub(super) fn names(&self) -> &[Option<String>] {
        self.names.as_deref().unwrap_or_default()
    }

    /// Takes a part of the body.
    pub(super) fn push(&mut self, part: &[u8], rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        let Some((recogniser, begin)) = &mut self.begin else {
            return self.parse(part, rows);
        };
        begin.extend_from_slice(part);
        if recogniser.push(part) || begin.len() > self.most_bytes {
            return self.recognise(rows);
        }
        Ok(())
    }

    /// Parses what has come of the body with the delimiter that its first line shows, if none was given.
    fn recognise(&mut self, rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        let Some((recogniser, begin)) = self.begin.take() else {
            return Ok(());
        };
        self.delimiter = recogniser.delimiter();
        self.parser = Parser::new(self.delimiter, self.most_bytes, MOST_VALUES);
        self.parse(&begin, rows)
    }

    fn parse(&mut self, mut part: &[u8], rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        while !part.is_empty() {
            let step = self.parser.parse(&mut part);
            self.take(step, rows)?;
        }
        Ok(())
    }

    /// Takes the end of the body.
    pub(super) fn finish(&mut self, rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        self.recognise(rows)?;
        let step = self.parser.finish();
        self.take(step, rows)
    }

    fn take(&mut self, step: Step, rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        match step {
            Step::Record(place) => {
                if self.names.is_some() {
                    let values = self.parser.fields().map(<[u8]>::to_vec);
                    rows.push(RawRow::Csv(values.collect(), self.in_file(place)));
                    return Ok(());
                }
                if let Some((_, body)) = &mut self.lines {
                    *body = place.line + place.lines;
                }
            }
            Step::TooLong(_) if self.names.is_some() => {
                rows.push(RawRow::TooLong);
                return Ok(());
            }
            Step::TooManyLines(place) if self.names.is_some() => {
                rows.push(RawRow::TooManyLines(self.in_file(place)));
                return Ok(());
            }
            Step::Misquoted(place) if self.names.is_some() => {
                rows.push(RawRow::Misquoted(self.in_file(place)));
                return Ok(());
            }
            Step::Unclosed(place) if self.names.is_some() => {
                rows.push(RawRow::Unclosed(self.in_file(place)));
                return Ok(());
            }
            Step::TooLong(_) | Step::TooManyLines(_) => {
                return Err("has a first line that is too long".into());
            }
            Step::Misquoted(_) => {
                return Err("has a first line with text behind a closing quotation mark".into());
            }
            Step::Unclosed(_) => {
                return Err("has a first line with a quotation mark that is not closed".into());
            }
            Step::TooManyFields => return Err("has a line of more than 256 values".into()),
            Step::More | Step::End => return Ok(()),
        }
        let values: Vec<Vec<u8>> = self.parser.fields().map(<[u8]>::to_vec).collect();
        if let Some(columns) = self.columns.take() {
            check_replaced(&columns, &values)?;
            self.names = Some(columns);
            return Ok(());
        }
        let names = values.into_iter().map(read_name);
        let names = names.collect::<Result<Vec<_>, _>>()?;
        check_names(&names, self.delimiter)?;
        self.names = Some(names);
        Ok(())
    }
}

/// Reads the name of a column.
fn read_name(name: Vec<u8>) -> Result<Option<String>, BrokenBody> {
    let name = String::from_utf8(name);
    let name = name.map_err(|_error| {
        BrokenBody::from(
            "has a first line that cannot be decoded; send UTF-8 or declare the charset",
        )
    })?;
    match name.chars().find(|it| it.is_control() && *it != '\t') {
        None => Ok(Some(name.trim().to_owned())),
        // In UTF-16, every other byte of Latin text is NUL.
        Some('\0') => Err(
            "has a first line with the character U+0000; if it is UTF-16, declare charset=utf-16le or utf-16be".into(),
        ),
        Some(other) => {
            let code = u32::from(other);
            let reason = format!(
                "has a column name with the control character U+{code:04X}; a name may have tabs, but no others"
            );
            Err(BrokenBody(reason.into()))
        }
    }
}

/// Refuses a first line that contradicts the names that replace it, or that is not one of names but a row, which would
/// be lost.
fn check_replaced(columns: &[Option<String>], values: &[Vec<u8>]) -> Result<(), BrokenBody> {
    if columns.len() != values.len() {
        return Err(
            "has a first line of another number of names than the parameter columns".into(),
        );
    }
    let place_of = |name: &[u8]| {
        let mut names = columns.iter().map(|name| name.as_deref());
        names.position(|it| it.is_some_and(|it| it.as_bytes() == name))
    };
    // Some other names may be renamed on purpose; the same ones in another order are not.
    let mut has_others = false;
    let mut moved = None;
    for (place, (column, value)) in columns.iter().zip(values).enumerate() {
        let (Some(column), value) = (column, value.trim_ascii()) else {
            continue;
        };
        if column == "longUrl" && value.windows(3).any(|part| part == b"://") {
            return Err(
                "has a target in its first line, which must have names also with the parameter columns".into(),
            );
        }
        match place_of(value) {
            Some(other) if other != place => moved = Some((value, place + 1, other + 1)),
            Some(_) => {}
            None => has_others = true,
        }
    }
    let Some((value, place, other)) = moved.filter(|_| !has_others) else {
        return Ok(());
    };
    let value = String::from_utf8_lossy(value);
    let reason = format!(
        "has the name {value} in column {place} of its first line, but in column {other} of the parameter columns; \
         make them equal"
    );
    Err(BrokenBody(reason.into()))
}

/// Refuses names that occur twice, and a line that has another delimiter.
fn check_names(names: &[Option<String>], delimiter: u8) -> Result<(), BrokenBody> {
    if let [Some(name)] = names {
        for (other, byte) in DELIMITERS {
            if byte != delimiter && name.as_bytes().contains(&byte) {
                let reason = format!(
                    "has a first line that {other}s may separate; send the parameter delimiter={other}"
                );
                return Err(BrokenBody(reason.into()));
            }
        }
    }
    let mut known = BTreeSet::new();
    for name in names.iter().flatten().filter(|name| !name.is_empty()) {
        if !known.insert(name) {
            let reason = format!("has two columns with the name {name}");
            return Err(BrokenBody(reason.into()));
        }
    }
    Ok(())
}
