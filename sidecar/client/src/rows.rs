//! Writes files of rows.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::Value;
use shortlink_api::cells::Cells;

/// Writes rows in one format.
pub enum RowWriter<W: Write> {
    /// Separated values.
    Separated(Box<csv::Writer<W>>),
    /// JSON, one object a line.
    Json(W),
}

impl<W: Write> RowWriter<W> {
    /// Begins a file: JSON without a delimiter, else separated values below their names.
    ///
    /// # Errors
    /// Fails when the file can't be written.
    pub fn new(
        out: W,
        delimiter: Option<u8>,
        names: impl Iterator<Item = &'static str>,
    ) -> io::Result<Self> {
        let Some(delimiter) = delimiter else {
            return Ok(Self::Json(out));
        };
        let mut builder = csv::WriterBuilder::new();
        let mut writer = builder.delimiter(delimiter).from_writer(out);
        writer.write_record(names).map_err(cause)?;
        Ok(Self::Separated(Box::new(writer)))
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Fails when the file can't be written.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Separated(writer) => writer.into_inner().map_err(csv::IntoInnerError::into_error),
            Self::Json(mut out) => {
                out.flush()?;
                Ok(out)
            }
        }
    }
}

/// Writes the fields of a row.
///
/// # Errors
/// Fails when the file can't be written.
pub fn write_fields<'v, W: Write>(
    writer: &mut csv::Writer<W>,
    cells: Cells,
    values: impl Iterator<Item = Option<&'v Value>>,
) -> io::Result<()> {
    for value in values {
        let field = field(value);
        writer.write_field(&*cells.cell(&field)).map_err(cause)?;
    }
    writer.write_record(None::<&[u8]>).map_err(cause)
}

/// The error of the file itself, which callers distinguish: a closed pipe is not reported.
fn cause(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// A value in CSV: texts of a list are separated by `|`, as in the rows of a batch; rules and objects are JSON.
fn field(value: Option<&Value>) -> Cow<'_, str> {
    match value {
        None | Some(Value::Null) => Cow::Borrowed(""),
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Cow::Owned(items.join("|"))
        }
        Some(other) => Cow::Owned(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use serde_json::json;

    use super::*;

    /// A pipe whose reader has gone.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_recognised_in_both_formats() {
        for delimiter in [Some(b','), None] {
            let mut rows =
                RowWriter::new(Closed, delimiter, ["code"].into_iter()).expect("buffered");
            let value = json!("x".repeat(1000));
            let written = (0..100).try_for_each(|_| match &mut rows {
                RowWriter::Separated(writer) => {
                    write_fields(writer, Cells::Text, [Some(&value)].into_iter())
                }
                RowWriter::Json(out) => out.write_all(b"{}"),
            });
            let error = written.expect_err("more than a buffer");
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
    }
}
