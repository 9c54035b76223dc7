//! Cuts a body into rows while it arrives, and reads each as the members of an object.
//!
//! The longest allowed row bounds the memory; a longer one is skipped and reported.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};
use shortlink_api::csv_parser::{self, DELIMITERS, MAX_LINES, Parser, Step};
use shortlink_api::encoding::{Charset, Decoder};
use shortlink_api::json::read_object;
use shortlink_api::kinds::Shape;
use shortlink_api::link;

use crate::extract::no_object;
use crate::problem::Problem;

/// In which form rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A JSON array of objects.
    Json,
    /// An object a line.
    Ndjson,
    /// Lines of values, with a first line that names them.
    Csv,
}

/// The format of CSV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Csv {
    /// The separator of values.
    pub(super) delimiter: u8,
    /// Names that replace those in the first line; values without a name are ignored.
    pub(super) columns: Option<Vec<Option<String>>>,
    /// The line of a file at which the rows begin, if the body is a part of it.
    pub(super) first_line: Option<u64>,
}

impl Default for Csv {
    fn default() -> Self {
        Self {
            delimiter: b',',
            columns: None,
            first_line: None,
        }
    }
}

/// A row as it was sent.
#[derive(Debug, PartialEq)]
pub(super) enum RawRow {
    /// The text of a JSON value.
    Json(Vec<u8>),
    /// The values of a line, in the order of the names.
    Csv(Vec<Vec<u8>>, csv_parser::Place),
    /// A line of JSON that cannot be decoded.
    Undecodable(u64),
    /// It has more bytes than allowed.
    TooLong,
    /// It spans more lines than allowed.
    TooManyLines(csv_parser::Place),
    /// A quotation mark in it is not closed, so it has the rest of the body.
    Unclosed(csv_parser::Place),
}

/// A body that does not have the declared format, so that the rest of it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct BrokenBody(pub(super) Cow<'static, str>);

impl From<&'static str> for BrokenBody {
    fn from(reason: &'static str) -> Self {
        Self(reason.into())
    }
}

/// Cuts a body into rows.
pub(super) struct Rows {
    cutter: Cutter,
    most_bytes: usize,
    decoder: Decoder,
    /// A part of the body as UTF-8.
    text: Vec<u8>,
}

enum Cutter {
    Json(JsonCutter),
    /// The current line, whether it is too long, and its number.
    Lines(Vec<u8>, bool, u64),
    Csv(Box<CsvCutter>),
}

impl Rows {
    /// Reads rows of at most `most_bytes`.
    pub(super) fn new(format: Format, most_bytes: usize, csv: Csv) -> Self {
        let cutter = match format {
            Format::Json => Cutter::Json(JsonCutter::default()),
            Format::Ndjson => Cutter::Lines(Vec::new(), false, 1),
            Format::Csv => Cutter::Csv(Box::new(CsvCutter::new(csv, most_bytes))),
        };
        Self {
            cutter,
            most_bytes,
            decoder: Decoder::new(Charset::default()),
            text: Vec::new(),
        }
    }

    /// Reads them in an encoding.
    pub(super) fn encoded(mut self, charset: Charset) -> Self {
        self.decoder = Decoder::new(charset);
        self
    }

    /// Takes a part of the body and appends the rows that end in it.
    pub(super) fn push(&mut self, part: &[u8], rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        self.decoder.push(part, &mut text);
        let done = self.cut(&text, rows);
        self.text = text;
        done
    }

    fn cut(&mut self, part: &[u8], rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        match &mut self.cutter {
            Cutter::Json(cutter) => cutter.push(part, self.most_bytes, rows),
            Cutter::Lines(line, is_too_long, number) => {
                for piece in part.split_inclusive(|&byte| byte == b'\n') {
                    let (text, ends) = match piece.split_last() {
                        Some((b'\n', text)) => (text, true),
                        _ => (piece, false),
                    };
                    if line.len() + text.len() > self.most_bytes {
                        *is_too_long = true;
                        line.clear();
                    }
                    if !*is_too_long {
                        line.extend_from_slice(text);
                    }
                    if ends {
                        end_line(line, is_too_long, number, rows);
                    }
                }
                Ok(())
            }
            Cutter::Csv(cutter) => cutter.push(part, rows),
        }
    }

    /// Takes the end of the body.
    pub(super) fn finish(&mut self, rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        let mut text = Vec::new();
        self.decoder.finish(&mut text);
        self.cut(&text, rows)?;
        match &mut self.cutter {
            Cutter::Json(cutter) => cutter.finish(),
            Cutter::Lines(line, is_too_long, number) => {
                end_line(line, is_too_long, number, rows);
                Ok(())
            }
            Cutter::Csv(cutter) => cutter.finish(rows),
        }
    }

    /// The names of the values of CSV rows, once they were read.
    pub(super) fn names(&self) -> &[Option<String>] {
        match &self.cutter {
            Cutter::Csv(cutter) => cutter.names.as_deref().unwrap_or_default(),
            Cutter::Json(_) | Cutter::Lines(..) => &[],
        }
    }
}

/// Empty lines are no rows.
fn end_line(line: &mut Vec<u8>, is_too_long: &mut bool, number: &mut u64, rows: &mut Vec<RawRow>) {
    let text = std::mem::take(line);
    *number += 1;
    if std::mem::take(is_too_long) {
        rows.push(RawRow::TooLong);
    } else if std::str::from_utf8(&text).is_err() {
        rows.push(RawRow::Undecodable(*number - 1));
    } else if !text.trim_ascii().is_empty() {
        rows.push(RawRow::Json(text));
    }
}

/// Finds where the elements of an array begin and end.
#[derive(Default)]
struct JsonCutter {
    place: Place,
    /// The element so far.
    element: Vec<u8>,
    is_too_long: bool,
    /// The number of open brackets within the element.
    depth: u32,
    is_in_string: bool,
    is_escaped: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// Before the array.
    #[default]
    Start,
    /// After the `[`.
    First,
    /// After a comma.
    Next,
    /// Within an element.
    Element,
    /// After the array.
    End,
}

impl JsonCutter {
    fn push(
        &mut self,
        part: &[u8],
        most_bytes: usize,
        rows: &mut Vec<RawRow>,
    ) -> Result<(), BrokenBody> {
        for &byte in part {
            match self.place {
                Place::Element => self.push_element(byte, most_bytes, rows)?,
                _ if byte.is_ascii_whitespace() => {}
                Place::Start if byte == b'[' => self.place = Place::First,
                Place::Start => return Err(BrokenBody::from("must be a JSON array")),
                Place::First if byte == b']' => self.place = Place::End,
                Place::First | Place::Next if byte == b',' || byte == b']' => {
                    return Err(BrokenBody::from(
                        "has a comma with nothing behind or before it",
                    ));
                }
                Place::First | Place::Next => {
                    self.place = Place::Element;
                    self.push_element(byte, most_bytes, rows)?;
                }
                Place::End => return Err(BrokenBody::from("goes on behind the end of the array")),
            }
        }
        Ok(())
    }

    fn push_element(
        &mut self,
        byte: u8,
        most_bytes: usize,
        rows: &mut Vec<RawRow>,
    ) -> Result<(), BrokenBody> {
        if self.is_in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.is_in_string = true,
                b'[' | b'{' => self.depth += 1,
                b',' | b']' if self.depth == 0 => {
                    let text = std::mem::take(&mut self.element);
                    rows.push(if std::mem::take(&mut self.is_too_long) {
                        RawRow::TooLong
                    } else {
                        RawRow::Json(text)
                    });
                    self.place = if byte == b',' {
                        Place::Next
                    } else {
                        Place::End
                    };
                    return Ok(());
                }
                b'}' if self.depth == 0 => return Err(BrokenBody::from("has a } without a {")),
                b']' | b'}' => self.depth -= 1,
                _ => {}
            }
        }
        if self.element.len() >= most_bytes {
            self.is_too_long = true;
            self.element = Vec::new();
        }
        if !self.is_too_long {
            self.element.push(byte);
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), BrokenBody> {
        match self.place {
            Place::Start | Place::End => Ok(()),
            _ => Err(BrokenBody::from("ends within the array")),
        }
    }
}

/// The maximum number of values in a line.
const MOST_VALUES: usize = 256;

/// Reads lines of values.
struct CsvCutter {
    parser: Parser,
    delimiter: u8,
    names: Option<Vec<Option<String>>>,
    /// Names that replace those in the first line.
    columns: Option<Vec<Option<String>>>,
    /// The line of the file at which the rows begin, and that of the body.
    begin: Option<(u64, u64)>,
}

impl CsvCutter {
    fn new(csv: Csv, most_bytes: usize) -> Self {
        Self {
            parser: Parser::new(csv.delimiter, most_bytes, MOST_VALUES),
            delimiter: csv.delimiter,
            columns: csv.columns,
            // The line of the body is known once the names are read.
            begin: csv.first_line.map(|line| (line, 0)),
            names: None,
        }
    }

    /// Converts lines of the body to those of the file.
    fn in_file(&self, place: csv_parser::Place) -> csv_parser::Place {
        let (file, body) = self.begin.unwrap_or_default();
        csv_parser::Place {
            line: file.saturating_add(place.line).saturating_sub(body),
            ..place
        }
    }

    fn push(&mut self, mut part: &[u8], rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
        while !part.is_empty() {
            let step = self.parser.parse(&mut part);
            self.take(step, rows)?;
        }
        Ok(())
    }

    fn finish(&mut self, rows: &mut Vec<RawRow>) -> Result<(), BrokenBody> {
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
                if let Some((_, body)) = &mut self.begin {
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
            Step::Unclosed(place) if self.names.is_some() => {
                rows.push(RawRow::Unclosed(self.in_file(place)));
                return Ok(());
            }
            Step::TooLong(_) | Step::TooManyLines(_) => {
                return Err("has a first line that is too long".into());
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

/// Refuses a first line that contradicts the names that replace it, or that is not one of names but a row, which would be
/// lost.
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

impl RawRow {
    /// The bytes that were sent, for a digest.
    pub(super) fn for_each_part(&self, mut part: impl FnMut(&[u8])) {
        match self {
            Self::Json(text) => part(text),
            Self::Csv(values, _) => values.iter().for_each(|value| part(value)),
            Self::Undecodable(_) => part(b"undecodable"),
            Self::TooLong => part(b"too long"),
            Self::TooManyLines(_) => part(b"too many lines"),
            Self::Unclosed(_) => part(b"unclosed"),
        }
    }

    /// Returns its size in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(text) => text.len(),
            Self::Csv(values, _) => values.iter().map(Vec::len).sum(),
            Self::Undecodable(_) | Self::TooLong | Self::TooManyLines(_) | Self::Unclosed(_) => 0,
        }
    }

    /// Reads the row as an object. `names` are those of CSV rows, where an empty value counts as
    /// absent, lists are separated by `|`, and a name with a dot denotes a member of an object.
    pub(super) fn members(
        &self,
        names: &[Option<String>],
        most_bytes: usize,
    ) -> Result<Map<String, Value>, Problem> {
        match self {
            Self::Json(text) => read_object(text).map_err(no_object("row")),
            Self::Csv(values, _) if values.len() != names.len() => {
                let (values, names) = (values.len(), names.len());
                let detail = format!("has {values} values, but the first line has {names} names");
                Err(Problem::invalid("", detail))
            }
            Self::Csv(values, place) => {
                let mut members = Map::new();
                for (name, value) in names.iter().zip(values) {
                    let Some(name) = name.as_ref().filter(|_| !value.is_empty()) else {
                        continue;
                    };
                    let invalid = |detail: String| {
                        Problem::invalid(format!("/{}", name.replace('.', "/")), detail)
                    };
                    let text = std::str::from_utf8(value).map_err(|_error| {
                        let line = place.line;
                        invalid(format!(
                            "cannot be decoded in line {line}: send UTF-8 or declare the charset"
                        ))
                    })?;
                    let value = csv_value(name, text);
                    let value = value.map_err(|expected| invalid(format!("must be {expected}")))?;
                    match name.split_once('.') {
                        Some((outer, inner)) => {
                            let object = members
                                .entry(outer)
                                .or_insert_with(|| Value::Object(Map::new()));
                            if let Value::Object(object) = object {
                                object.insert(inner.to_owned(), value);
                            }
                        }
                        None => {
                            members.insert(name.clone(), value);
                        }
                    }
                }
                Ok(members)
            }
            Self::Undecodable(line) => Err(Problem::malformed(format!(
                "The row cannot be decoded in line {line}: send UTF-8 or declare the charset."
            ))),
            Self::TooLong => Err(Problem::row_too_large(most_bytes)),
            Self::TooManyLines(csv_parser::Place { line, lines }) => {
                let detail = format!(
                    "spans {lines} lines from line {line} on, and may span {MAX_LINES}: is a quotation mark not \
                     closed?"
                );
                Err(Problem::invalid("", detail))
            }
            Self::Unclosed(csv_parser::Place { line, .. }) => {
                let detail = format!(
                    "has a quotation mark that is not closed, and so all from line {line} to the end of the body"
                );
                Err(Problem::invalid("", detail))
            }
        }
    }
}

fn csv_value(name: &str, text: &str) -> Result<Value, &'static str> {
    let member = link::members().find(|member| member.name == name);
    member
        .map_or(Shape::Text, |member| member.shape)
        .of_csv(text)
}

#[cfg(test)]
mod tests;
