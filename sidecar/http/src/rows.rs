//! Answers that are files of rows, which are streamed: NDJSON or CSV, as the client accepts.

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_api::cells::{self, Cells};

use super::extract::header;
use super::operation::parameter::parameters;
use super::operation::{Content, json_of, rows_of, text_of};

parameters! {
    pub(super) RAW: query "raw", "Raw",
        "Leave the cells of CSV as they are. Otherwise an apostrophe precedes each cell that a \
         spreadsheet would read as a formula, because others choose some of the texts.",
        |_| json!({ "type": "boolean" });
}

/// The contents of an answer that is a page or a file of rows.
pub(super) fn page_or_rows<P: JsonSchema, R: JsonSchema>() -> [Content; 3] {
    [
        json_of::<P>(),
        rows_of::<R>("application/x-ndjson"),
        text_of("text/csv"),
    ]
}

/// The format of a file of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Ndjson,
    Csv(Cells),
}

impl Format {
    /// The format that a client prefers, with the parameter [`RAW`]; `None` if it prefers a page.
    pub(super) fn accepted(headers: &HeaderMap, raw: Option<bool>) -> Option<Self> {
        let accept = header(headers, ACCEPT)?.to_ascii_lowercase();
        // The first one of the highest quality.
        let preferred = accept.split(',').rev().max_by_key(|range| quality(range))?;
        if preferred.contains("ndjson") || preferred.contains("jsonl") {
            Some(Self::Ndjson)
        } else if preferred.contains("text/csv") {
            Some(Self::Csv(Cells::raw(raw.unwrap_or_default())))
        } else {
            None
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv(_) => "text/csv; charset=utf-8",
        }
    }

    /// An answer with a file.
    pub(super) fn answer(self, body: Body) -> Response<Body> {
        ([(CONTENT_TYPE, self.media_type())], body).into_response()
    }

    /// The text of some rows; the first part of a file begins with the header.
    pub(super) fn text(self, rows: impl Iterator<Item = impl Serialize>, is_first: bool) -> Bytes {
        match self {
            Self::Ndjson => {
                let mut text = Vec::new();
                for row in rows {
                    // Serialization of rows cannot fail.
                    let _ = serde_json::to_writer(&mut text, &row);
                    text.push(b'\n');
                }
                text.into()
            }
            Self::Csv(cells) => {
                let mut writer = csv::WriterBuilder::new()
                    .has_headers(is_first)
                    .from_writer(Vec::new());
                for row in rows {
                    // Cannot fail: it writes texts and numbers to memory.
                    let _ = writer.serialize(row);
                }
                let table = writer.into_inner().unwrap_or_default();
                match cells {
                    Cells::Raw => table.into(),
                    Cells::Text => as_texts(&table).into(),
                }
            }
        }
    }
}

/// The quality of a media range, in thousandths.
fn quality(range: &str) -> u32 {
    let parameters = range.split(';').skip(1);
    let mut quality = parameters.filter_map(|it| it.trim().strip_prefix("q="));
    let quality = quality.next().and_then(|it| it.trim().parse::<f32>().ok());
    quality.map_or(1000, |it| (it.clamp(0.0, 1.0) * 1000.0) as u32)
}

/// The same table with cells that no spreadsheet computes.
fn as_texts(table: &[u8]) -> Vec<u8> {
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.has_headers(false).from_reader(table);
    let mut writer = csv::Writer::from_writer(Vec::with_capacity(table.len()));
    let mut record = csv::StringRecord::new();
    // Cannot fail: it reads what was written here, and writes to memory.
    while reader.read_record(&mut record).unwrap_or_default() {
        let cells = record.iter().map(cells::as_text);
        let _ = writer.write_record(cells.map(|cell| cell.into_owned().into_bytes()));
    }
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_preferred_format_is_chosen() {
        let csv = Some(Format::Csv(Cells::Text));
        for (accept, expected) in [
            ("text/csv", csv),
            ("Text/CSV; charset=utf-8", csv),
            ("application/x-ndjson", Some(Format::Ndjson)),
            ("application/jsonl, text/csv", Some(Format::Ndjson)),
            (
                "text/csv;q=0.5, application/x-ndjson;q=0.7, */*;q=0.1",
                Some(Format::Ndjson),
            ),
            (
                "application/json, application/x-ndjson;q=0.9, */*;q=0.1",
                None,
            ),
            ("application/json;q=0.2,text/csv", csv),
            ("text/html, */*", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert!(Format::accepted(&headers, None) == expected, "{accept}");
        }
        assert!(Format::accepted(&HeaderMap::new(), None).is_none());
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/csv"))]);
        assert!(Format::accepted(&headers, Some(true)) == Some(Format::Csv(Cells::Raw)));
    }
}
