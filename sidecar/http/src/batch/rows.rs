//! Cuts a body into rows while it arrives, and reads each as the members of an object.
//!
//! The longest allowed row bounds the memory; a longer one is skipped and reported.

mod csv;
mod json;

use std::borrow::Cow;

use serde_json::{Map, Value};
use shortlink_api::csv_parser::{self, MAX_LINES};
use shortlink_api::encoding::{Charset, Decoder};
use shortlink_api::json::read_object;
use shortlink_api::kinds::Shape;
use shortlink_api::link;

use self::csv::CsvCutter;
use self::json::JsonCutter;
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Csv {
    /// The separator of values; `None` for the most frequent one in the first line.
    pub(super) delimiter: Option<u8>,
    /// Names that replace those in the first line; values without a name are ignored.
    pub(super) columns: Option<Vec<Option<String>>>,
    /// The line of a file at which the rows begin, if the body is a part of it.
    pub(super) first_line: Option<u64>,
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
    /// It has text behind a quotation mark that closes a value.
    Misquoted(csv_parser::Place),
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
            Cutter::Csv(cutter) => cutter.names(),
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

impl RawRow {
    /// The bytes that were sent, for a digest.
    pub(super) fn for_each_part(&self, mut part: impl FnMut(&[u8])) {
        match self {
            Self::Json(text) => part(text),
            Self::Csv(values, _) => values.iter().for_each(|value| part(value)),
            Self::Undecodable(_) => part(b"undecodable"),
            Self::TooLong => part(b"too long"),
            Self::TooManyLines(_) => part(b"too many lines"),
            Self::Misquoted(_) => part(b"misquoted"),
            Self::Unclosed(_) => part(b"unclosed"),
        }
    }

    /// Returns its size in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(text) => text.len(),
            Self::Csv(values, _) => values.iter().map(Vec::len).sum(),
            Self::Undecodable(_)
            | Self::TooLong
            | Self::TooManyLines(_)
            | Self::Misquoted(_)
            | Self::Unclosed(_) => 0,
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
            Self::Misquoted(csv_parser::Place { line, lines }) => {
                let detail = format!(
                    "has text behind a closing quotation mark (lines from {line} on: {lines}); close each one, and \
                     write one within a value twice"
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
