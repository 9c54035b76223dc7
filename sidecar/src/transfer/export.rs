//! Writes all links of a store, in the store's order.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use anyhow::Context;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use shortlink_api::cells::Cells;
use shortlink_api::link::{EXPORTED, LinkSettingsBody};
use shortlink_client::rows::{RowWriter, write_fields};
use shortlink_core::campaign::{Campaign, ParameterValues};
use shortlink_core::link::{Destination, Link, State};
use shortlink_core::ports::StoreError;
use shortlink_store::Store;
use vocabulary::CampaignId;

use super::input::Format;

/// The number of links that are read at a time.
const TOGETHER: u32 = 1000;

/// A link as it is written: the values of [`EXPORTED`] by their names.
struct Row(Map<String, Value>);

impl Row {
    fn new(link: &Link, campaigns: &Campaigns, now: Timestamp) -> Self {
        let settings = serde_json::to_value(LinkSettingsBody::of(link));
        let mut row = match settings {
            Ok(Value::Object(settings)) => settings,
            _ => Map::new(),
        };
        let others = [
            ("shortCode", json!(link.code.as_str())),
            // Absent when the campaign's template gives no valid target with the link's values.
            ("longUrl", json!(campaigns.target(link))),
            ("createdAt", json!(link.created_at)),
            ("state", json!(link.state(now).name())),
            ("revokedAt", json!(link.revoked_at)),
            ("revision", json!(link.revision)),
            ("updatedAt", json!(link.updated_at)),
            ("createdBy", json!(link.created_by)),
            ("pausedAt", json!(link.paused_at)),
            // Separated by `|`, or a JSON list when one of them has that.
            ("tags", json!(joined(&link.tags))),
            (
                "campaignId",
                json!(link.destination.campaign().map(|id| id.to_string())),
            ),
            // As they are in a record.
            (
                "parameters",
                json!(link.destination.values().map(ParameterValues::as_str)),
            ),
            ("strategy", json!(link.strategy)),
            // As it is in a record, behind the target.
            ("plan", json!(link.plan.as_ref().map(|it| it.text()))),
        ];
        row.extend(others.map(|(name, value)| (name.to_owned(), value)));
        Self(row)
    }

    /// The values in the order of the columns.
    fn values(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        let columns = EXPORTED.into_iter();
        columns.map(|name| (name, self.0.get(name).unwrap_or(&Value::Null)))
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.values())
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
    /// Looks up the campaigns of some links, and drops the others.
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
    out: RowWriter<W>,
    now: Timestamp,
}

impl<W: Write> LinkWriter<W> {
    /// Begins a file; states are those at `now`.
    ///
    /// # Errors
    /// Fails when the file can't be written.
    pub fn new(out: W, format: Format, now: Timestamp) -> io::Result<Self> {
        let out = RowWriter::new(out, format.delimiter(), EXPORTED.into_iter())?;
        Ok(Self { out, now })
    }

    /// Writes a link.
    fn write(&mut self, link: &Link, campaigns: &Campaigns) -> io::Result<()> {
        let row = Row::new(link, campaigns, self.now);
        match &mut self.out {
            RowWriter::Separated(writer) => write_fields(
                writer,
                Cells::Raw,
                row.values().map(|(_, value)| Some(value)),
            ),
            RowWriter::Json(out) => {
                serde_json::to_writer(&mut *out, &row)?;
                out.write_all(b"\n")
            }
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Fails when the file can't be written.
    pub fn finish(self) -> io::Result<W> {
        self.out.finish()
    }
}

/// Writes all links of a store, or those in a state; returns their number. Reports progress to
/// `advance`.
///
/// # Errors
/// Fails when the links can't be read or written.
pub async fn export<W: Write>(
    store: &Store,
    writer: &mut LinkWriter<W>,
    state: Option<State>,
    advance: impl Fn(u64),
) -> anyhow::Result<u64> {
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
                writer
                    .write(link, &campaigns)
                    .context("cannot write the links")?;
                count += 1;
            }
        }
        advance(count - before);
    }
}

#[cfg(test)]
mod tests {
    use shortlink_core::codes::strategy::CodeOrigin;
    use shortlink_core::target::Target;
    use shortlink_core::testing::{link, moment};
    use shortlink_store::testing::TemporaryStore;

    use super::*;

    #[tokio::test]
    async fn links_are_written_as_both_formats_have_them() {
        let temporary = TemporaryStore::new().await;
        let store = &temporary.store;
        let mut revoked = link("b");
        revoked.destination =
            Destination::Target(Target::from_stored("https://e.com/,".to_owned()));
        revoked.revoked_at = Some(moment("2026-02-01T00:00:00Z"));
        revoked.revision = 2;
        let issued = Link {
            strategy: Some(CodeOrigin::Pool),
            ..link("a")
        };
        let kept = store.create_links(vec![issued, revoked]).await;
        kept.expect("a working store");
        let now = moment("2026-03-01T00:00:00Z");
        for (format, state, expected) in [
            (
                Format::Csv,
                Some(State::Live),
                "shortCode,longUrl,createdAt,validUntil,redirectStatus,state,revokedAt,revision,\
                 updatedAt,createdBy,validSince,forwardQuery,maxVisits,pausedAt,externalId,note,\
                 tags,campaignId,parameters,strategy,plan,domain\n\
                 a,https://example.com/a,2026-01-01T00:00:00Z,,302,live,,1,\
                 2026-01-01T00:00:00Z,key,,false,,,,,,,,pool,,\n",
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
                 \"campaignId\":null,\"parameters\":null,\"strategy\":null,\"plan\":null,\"domain\":null}\n",
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
