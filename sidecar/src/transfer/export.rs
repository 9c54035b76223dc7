//! Writes links: every one of a store, in the order in which the store keeps them.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::num::NonZeroU64;

use jiff::Timestamp;
use serde::Serialize;
use vocabulary::CampaignId;

use super::input::Format;
use crate::core::campaign::{Campaign, ParameterValues};
use crate::core::link::{Destination, Link, State};
use crate::core::ports::StoreError;
use crate::store::Store;

/// How many links are read at a time.
const TOGETHER: u32 = 1000;

/// The names of the columns, which an import knows. They are those of the API.
const NAMES: [&str; 19] = [
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
    "validSince",
    "forwardQuery",
    "maxVisits",
    "pausedAt",
    "externalId",
    "note",
    "tags",
    "campaignId",
    "parameters",
];

/// A link as it is written, in the order of [`NAMES`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    short_code: &'a str,
    /// Where a link of a campaign leads now; `None` when its campaign makes no target of its
    /// values.
    long_url: Option<Cow<'a, str>>,
    created_at: Timestamp,
    valid_until: Option<Timestamp>,
    redirect_status: u16,
    state: &'static str,
    revoked_at: Option<Timestamp>,
    revision: u64,
    updated_at: Timestamp,
    created_by: &'a str,
    valid_since: Option<Timestamp>,
    forward_query: bool,
    max_visits: Option<NonZeroU64>,
    paused_at: Option<Timestamp>,
    external_id: Option<&'a str>,
    note: Option<&'a str>,
    /// Parted by `|`, or a JSON list when one of them has that.
    tags: Option<String>,
    campaign_id: Option<String>,
    /// As they stand in a record.
    parameters: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn new(link: &'a Link, campaigns: &Campaigns, now: Timestamp) -> Self {
        Self {
            short_code: link.code.as_str(),
            long_url: campaigns.target(link),
            created_at: link.created_at,
            valid_until: link.valid_until.map(|end| end.moment()),
            redirect_status: link.redirect_status.code(),
            state: link.state(now).name(),
            revoked_at: link.revoked_at,
            revision: link.revision,
            updated_at: link.updated_at,
            created_by: &link.created_by,
            valid_since: link.valid_since.map(|start| start.moment()),
            forward_query: link.forward_query,
            max_visits: link.max_visits,
            paused_at: link.paused_at,
            external_id: link.external_id.as_deref(),
            note: link.note.as_deref(),
            tags: joined(&link.tags),
            campaign_id: link.destination.campaign().map(|id| id.to_string()),
            parameters: link.destination.values().map(ParameterValues::as_str),
        }
    }
}

fn joined(tags: &[String]) -> Option<String> {
    if tags.is_empty() {
        return None;
    }
    if tags
        .iter()
        .any(|tag| tag.contains('|') || tag.starts_with('['))
    {
        return serde_json::to_string(tags).ok();
    }
    Some(tags.join("|"))
}

/// The campaigns that links have, as they are now. Many links have the same, one after the other.
#[derive(Default)]
struct Campaigns(HashMap<CampaignId, Campaign>);

impl Campaigns {
    /// Looks up those of some links, and forgets the others.
    async fn learn(&mut self, store: &Store, links: &[Link]) -> Result<(), StoreError> {
        let ids = links.iter().filter_map(|link| link.destination.campaign());
        let ids: HashSet<CampaignId> = ids.collect();
        self.0.retain(|id, _| ids.contains(id));
        for id in ids {
            if let Entry::Vacant(entry) = self.0.entry(id)
                && let Some(campaign) = store.find_campaign(id).await?
            {
                entry.insert(campaign);
            }
        }
        Ok(())
    }

    fn target<'a>(&self, link: &'a Link) -> Option<Cow<'a, str>> {
        match &link.destination {
            Destination::Target(target) => Some(Cow::Borrowed(target.as_str())),
            Destination::Campaign { id, values } => {
                let target = self.0.get(id)?.target.expand(&link.code, values).ok()?;
                Some(Cow::Owned(target.as_str().to_owned()))
            }
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
    fn write(&mut self, link: &Link, campaigns: &Campaigns) -> io::Result<()> {
        let row = Row::new(link, campaigns, self.now);
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
    store: &Store,
    writer: &mut LinkWriter<W>,
    state: Option<State>,
    advance: impl Fn(u64),
) -> Result<u64, ExportError> {
    let mut after = None;
    let mut count = 0;
    let mut campaigns = Campaigns::default();
    loop {
        let links = store.scan_links(after.as_ref(), TOGETHER).await?;
        let Some(last) = links.last() else {
            return Ok(count);
        };
        after = Some(last.code);
        let before = count;
        campaigns.learn(store, &links).await?;
        for link in &links {
            if state.is_none_or(|state| link.state(writer.now) == state) {
                writer.write(link, &campaigns)?;
                count += 1;
            }
        }
        advance(count - before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::link::tests::{link, moment};
    use crate::core::target::Target;
    use crate::testing::TemporaryStore;

    #[tokio::test]
    async fn links_are_written_as_both_formats_have_them() {
        let temporary = TemporaryStore::new().await;
        let store = &temporary.store;
        let mut revoked = link("b");
        revoked.destination =
            Destination::Target(Target::from_stored("https://e.com/,".to_owned()));
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
                 updatedAt,createdBy,validSince,forwardQuery,maxVisits,pausedAt,externalId,note,\
                 tags,campaignId,parameters\n\
                 a,https://example.com/a,2026-01-01T00:00:00Z,,302,live,,1,\
                 2026-01-01T00:00:00Z,key,,false,,,,,,,\n",
            ),
            (
                Format::Ndjson,
                Some(State::Revoked),
                "{\"shortCode\":\"b\",\"longUrl\":\"https://e.com/,\",\
                 \"createdAt\":\"2026-01-01T00:00:00Z\",\"validUntil\":null,\
                 \"redirectStatus\":302,\"state\":\"revoked\",\
                 \"revokedAt\":\"2026-02-01T00:00:00Z\",\"revision\":2,\
                 \"updatedAt\":\"2026-01-01T00:00:00Z\",\"createdBy\":\"key\",\
                 \"validSince\":null,\"forwardQuery\":false,\"maxVisits\":null,\
                 \"pausedAt\":null,\"externalId\":null,\"note\":null,\"tags\":null,\
                 \"campaignId\":null,\"parameters\":null}\n",
            ),
            (Format::Ndjson, Some(State::Expired), ""),
        ] {
            let mut writer = LinkWriter::new(Vec::new(), format, now).expect("a vector");
            let exported = export(store, &mut writer, state, |_| {}).await;
            let written = writer.finish().expect("a vector");
            assert_eq!(String::from_utf8(written).expect("text"), expected);
            assert_eq!(
                exported.expect("links"),
                u64::from(state != Some(State::Expired))
            );
        }
    }
}
