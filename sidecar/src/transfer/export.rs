//! Writes links: every one of a store, in the order in which the store keeps them.

use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;

use super::input::Format;
use crate::domain::link::{Link, State};
use crate::domain::ports::{Store, StoreError};

/// How many links are read at a time.
const TOGETHER: u32 = 1000;

/// The names of the columns, which an import knows. They are those of the API.
const NAMES: [&str; 10] = [
    "shortCode",
    "longUrl",
    "createdAt",
    "validUntil",
    "redirectStatus",
    "state",
    "revokedAt",
    "revision",
    "updatedAt",
    "createdBy",
];

/// A link as it is written, in the order of [`NAMES`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    short_code: &'a str,
    long_url: &'a str,
    created_at: Timestamp,
    valid_until: Option<Timestamp>,
    redirect_status: u16,
    state: &'static str,
    revoked_at: Option<Timestamp>,
    revision: u64,
    updated_at: Timestamp,
    created_by: &'a str,
}

impl<'a> Row<'a> {
    fn new(link: &'a Link, now: Timestamp) -> Self {
        Self {
            short_code: link.code.as_str(),
            long_url: link.target.as_str(),
            created_at: link.created_at,
            valid_until: link.valid_until.map(|end| end.moment()),
            redirect_status: link.redirect_status.code(),
            state: match link.state(now) {
                State::Live => "live",
                State::Scheduled => "scheduled",
                State::Paused => "paused",
                State::Expired => "expired",
                State::Revoked => "revoked",
            },
            revoked_at: link.revoked_at,
            revision: link.revision,
            updated_at: link.updated_at,
            created_by: &link.created_by,
        }
    }
}

/// Writes links in a format.
pub struct LinkWriter<W: Write> {
    out: Out<W>,
    now: Timestamp,
}

enum Out<W: Write> {
    Separated(Box<csv::Writer<W>>),
    Json(W),
}

impl<W: Write> LinkWriter<W> {
    /// Begins a file; states are those at `now`.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn new(out: W, format: Format, now: Timestamp) -> io::Result<Self> {
        let delimiter = match format {
            Format::Csv => b',',
            Format::Tsv => b'\t',
            Format::Ndjson => {
                return Ok(Self {
                    out: Out::Json(out),
                    now,
                });
            }
        };
        let mut writer = csv::WriterBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            .from_writer(out);
        // Also where there are no links.
        writer.write_record(NAMES)?;
        Ok(Self {
            out: Out::Separated(Box::new(writer)),
            now,
        })
    }

    /// Writes a link.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&mut self, link: &Link) -> io::Result<()> {
        let row = Row::new(link, self.now);
        match &mut self.out {
            Out::Separated(writer) => Ok(writer.serialize(row)?),
            Out::Json(out) => {
                serde_json::to_writer(&mut *out, &row)?;
                out.write_all(b"\n")
            }
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn finish(self) -> io::Result<W> {
        match self.out {
            Out::Separated(writer) => writer.into_inner().map_err(csv::IntoInnerError::into_error),
            Out::Json(mut out) => {
                out.flush()?;
                Ok(out)
            }
        }
    }
}

/// Why an export has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store does not say.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file can't be written.
    #[error("cannot write the links")]
    Write(#[from] io::Error),
}

/// Writes all links of a store, or those in a state; answers how many. `advance` is told of every
/// few.
///
/// # Errors
/// When they can't be read or written.
pub async fn export<W: Write>(
    store: &dyn Store,
    writer: &mut LinkWriter<W>,
    state: Option<State>,
    advance: impl Fn(u64),
) -> Result<u64, ExportError> {
    let mut after = None;
    let mut count = 0;
    loop {
        let links = store.scan_links(after.as_ref(), TOGETHER).await?;
        let Some(last) = links.last() else {
            return Ok(count);
        };
        after = Some(last.code);
        let before = count;
        for link in &links {
            if state.is_none_or(|state| link.state(writer.now) == state) {
                writer.write(link)?;
                count += 1;
            }
        }
        advance(count - before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::link::tests::{link, moment};
    use crate::testing::TemporaryStore;

    #[tokio::test]
    async fn links_are_written_as_both_formats_have_them() {
        let temporary = TemporaryStore::new().await;
        let store = &temporary.store;
        let mut revoked = link("b");
        revoked.target = crate::domain::target::Target::from_stored("https://e.com/,".to_owned());
        revoked.revoked_at = Some(moment("2026-02-01T00:00:00Z"));
        revoked.revision = 2;
        let kept = store.create_links(vec![link("a"), revoked]).await;
        kept.expect("a working store");
        let now = moment("2026-03-01T00:00:00Z");
        for (format, state, expected) in [
            (
                Format::Csv,
                Some(State::Live),
                "shortCode,longUrl,createdAt,validUntil,redirectStatus,state,revokedAt,revision,\
                 updatedAt,createdBy\n\
                 a,https://example.com/a,2026-01-01T00:00:00Z,,302,live,,1,\
                 2026-01-01T00:00:00Z,key\n",
            ),
            (
                Format::Ndjson,
                Some(State::Revoked),
                "{\"shortCode\":\"b\",\"longUrl\":\"https://e.com/,\",\
                 \"createdAt\":\"2026-01-01T00:00:00Z\",\"validUntil\":null,\
                 \"redirectStatus\":302,\"state\":\"revoked\",\
                 \"revokedAt\":\"2026-02-01T00:00:00Z\",\"revision\":2,\
                 \"updatedAt\":\"2026-01-01T00:00:00Z\",\"createdBy\":\"key\"}\n",
            ),
            (Format::Ndjson, Some(State::Expired), ""),
        ] {
            let mut writer = LinkWriter::new(Vec::new(), format, now).expect("a vector");
            let exported = export(&**store, &mut writer, state, |_| {}).await;
            let written = writer.finish().expect("a vector");
            assert_eq!(String::from_utf8(written).expect("text"), expected);
            assert_eq!(
                exported.expect("links"),
                u64::from(state != Some(State::Expired))
            );
        }
    }
}
