//! Clicks: the human visits of links.
//!
//! A row of `link_clicks` is a contribution of one batch to the clicks of one link: visits that the batch adds, or, with
//! `since`, all human visits of the batches up to that one. The latter replaces earlier rows, so that a correction only
//! inserts. The link is named by its campaign, creation time and code: a later link of the same code is another one.

use std::collections::HashMap;
use std::sync::Mutex;

use clickhouse::query::RowCursor;
use clickhouse::{Client, Row};
use serde::Deserialize;
use shortlink_core::boxed;
use shortlink_core::ports::FirstClicks;
use vocabulary::CampaignId;

use crate::insertion::RowBinary;
use crate::statistics::{HOUR_MS, moment};
use crate::{Batch, ClickHouse, Erasure, ErasureOf, Fault, LinkCount, MUTATION_PATIENCE};

/// The longest time from a visit to the creation of its link, in milliseconds: clocks differ. Visits of an earlier link
/// of the code are older.
pub const CLOCKS_DIFFER_MS: i64 = 60_000;

/// The setting of queries that group by link: there may be more links than fit into memory.
const EXTERNAL: (&str, &str) = ("max_bytes_before_external_group_by", "1000000000");

/// The most campaigns whose first clicks are remembered.
const REMEMBERED: usize = 1000;

/// A link, as its clicks are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClickedLink<'a> {
    /// Its campaign, or 0.
    pub campaign: i64,
    /// The time of its creation, in milliseconds since 1970.
    pub created: i64,
    /// Its code. An empty one stands for all links that were deleted before their clicks came here, each row for those of
    /// one hour.
    pub code: &'a str,
}

/// Human visits of a link; times are in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clicks {
    /// The time of the first one.
    pub first_at: i64,
    /// The time of the last one.
    pub last_at: i64,
    /// Their number.
    pub visits: i64,
}

impl Clicks {
    /// One visit.
    #[must_use]
    pub const fn at(at: i64) -> Self {
        Self {
            first_at: at,
            last_at: at,
            visits: 1,
        }
    }

    /// The visits of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            first_at: self.first_at.min(other.first_at),
            last_at: self.last_at.max(other.last_at),
            visits: self.visits + other.visits,
        }
    }
}

/// A contribution of a batch to the clicks of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkClicks<'a> {
    /// The link.
    pub link: ClickedLink<'a>,
    /// The visits; `None` if there are none any more.
    pub clicks: Option<Clicks>,
    /// The batch up to which these are all visits; 0 if they are added to the others.
    pub since: i64,
}

/// Names the columns in the order in which a batch has them.
pub(crate) const CLICKS: &str = "campaign, created, code, batch, since, first_at, lasted, visits";

impl LinkClicks<'_> {
    pub(crate) fn write(&self, batch: i64, to: &mut RowBinary) {
        let clicks = self.clicks.unwrap_or(Clicks {
            visits: 0,
            ..Clicks::at(0)
        });
        let visits = i32::try_from(clicks.visits).unwrap_or(i32::MAX);
        to.number(self.link.campaign).number(self.link.created);
        to.text(self.link.code).number(batch).number(self.since);
        to.number(clicks.first_at);
        to.number(clicks.last_at - clicks.first_at);
        to.bytes(&visits.to_le_bytes());
    }
}

/// Takes the rows that count of each group: those that add up behind the last row with `since`, and this one. A row that
/// was inserted twice is taken once.
pub(crate) const COUNTED: &str = "groupUniqArray((if(since > 0, 2 * since + 1, 2 * batch), toUnixTimestamp64Milli(first_at), \
     toUnixTimestamp64Milli(first_at) + lasted, visits)) AS all_rows, max(since) AS known, \
     arrayFilter(it -> it.4 > 0 AND it.1 >= if(known > 0, 2 * known + 1, 0), all_rows) AS counted";

/// The clicks of a group, from its [`COUNTED`] rows.
pub(crate) const TOGETHER: &str = "arrayMin(it -> it.2, counted) AS first_at, \
     arrayMax(it -> it.3, counted) AS last_at, toInt64(arraySum(it -> it.4, counted)) AS visits";

/// Rounds the times of clicks to hours.
const ROUND: &str = "UPDATE first_at = toDateTime64(toStartOfHour(first_at), 3, 'UTC'), lasted = 0";

/// The condition that the times of clicks are not rounded.
const IS_EXACT: &str = "(lasted > 0 OR toStartOfHour(first_at) != first_at)";

#[derive(Row, Deserialize)]
struct OfLink {
    campaign: i64,
    created: i64,
    code: String,
    first_at: i64,
    last_at: i64,
    visits: i64,
}

#[derive(Row, Deserialize)]
struct OfCode {
    campaign: i64,
    code: String,
    first_at: i64,
    last_at: i64,
    visits: i64,
}

#[derive(Row, Deserialize)]
struct HumanHour {
    code: String,
    hour: i64,
    is_earlier: u8,
    visits: i64,
    last_at: i64,
}

#[derive(Row, Deserialize)]
struct Hour {
    hour: i64,
    links: i64,
}

#[derive(Row, Deserialize)]
struct Name {
    campaign: i64,
    created: i64,
    code: String,
    is_exact: u8,
}

/// The rows of a campaign as far as they show that there are others.
#[derive(Clone, Debug, PartialEq, Eq, Row, Deserialize)]
pub(crate) struct State {
    rows: u64,
    last: i64,
    sum: i64,
    known: i64,
}

/// First clicks of campaigns that were read, with the state of their rows.
pub(crate) type Remembered = Mutex<HashMap<i64, (State, Vec<FirstClicks>)>>;

/// The human visits of a link, each with the campaign that it was counted for.
#[derive(Clone, Debug)]
pub struct HumanVisits {
    /// The campaign, or 0.
    pub campaign: i64,
    /// The code.
    pub code: String,
    /// The visits.
    pub clicks: Clicks,
}

impl From<OfCode> for HumanVisits {
    fn from(row: OfCode) -> Self {
        Self {
            campaign: row.campaign,
            code: row.code,
            clicks: Clicks {
                first_at: row.first_at,
                last_at: row.last_at,
                visits: row.visits,
            },
        }
    }
}

/// The campaigns, creation times and codes of links.
fn columns<'a>(links: &[ClickedLink<'a>]) -> (Vec<i64>, Vec<i64>, Vec<&'a str>) {
    let mut campaigns: Vec<i64> = links.iter().map(|it| it.campaign).collect();
    let mut created: Vec<i64> = links.iter().map(|it| it.created).collect();
    for all in [&mut campaigns, &mut created] {
        all.sort_unstable();
        all.dedup();
    }
    (campaigns, created, links.iter().map(|it| it.code).collect())
}

impl ClickHouse {
    /// The clicks of those of some links that have any, by the batches up to one, each with the place of its link.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn clicks_of(
        &self,
        links: &[ClickedLink<'_>],
        up_to: i64,
    ) -> Result<Vec<(usize, Clicks)>, Fault> {
        if links.is_empty() {
            return Ok(Vec::new());
        }
        // A list of each column is read faster than one of triples, and finds few others.
        let query = format!(
            "SELECT campaign, created, code, {TOGETHER} FROM (SELECT campaign, created, code, {COUNTED} FROM link_clicks \
             WHERE campaign IN ? AND created IN ? AND code IN ? AND batch <= ? \
             GROUP BY campaign, created, code) WHERE notEmpty(counted)"
        );
        let (campaigns, created, codes) = columns(links);
        let query = self.database().await?.query(&query);
        let query = query.bind(campaigns).bind(created).bind(codes).bind(up_to);
        let places: HashMap<ClickedLink<'_>, usize> = links.iter().copied().zip(0..).collect();
        let rows = self.rows::<OfLink>(query).await?;
        let found = rows.iter().filter_map(|row| {
            let link = ClickedLink {
                campaign: row.campaign,
                created: row.created,
                code: &row.code,
            };
            let clicks = Clicks {
                first_at: row.first_at,
                last_at: row.last_at,
                visits: row.visits,
            };
            Some((*places.get(&link)?, clicks))
        });
        Ok(found.collect())
    }

    /// Counts the stored human visits of links since a moment by the batches up to one, without some by their numbers.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn human_visits(
        &self,
        links: &[ClickedLink<'_>],
        since: i64,
        up_to: i64,
        without: &[i64],
    ) -> Result<Vec<HumanVisits>, Fault> {
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let codes: Vec<&str> = links.iter().map(|it| it.code).collect();
        let since: Vec<i64> = links
            .iter()
            .map(|it| since.max(it.created - CLOCKS_DIFFER_MS))
            .collect();
        let earliest = since.iter().min().copied().unwrap_or_default();
        let query = "SELECT campaign, code, toUnixTimestamp64Milli(min(time)) AS first_at, \
             toUnixTimestamp64Milli(max(time)) AS last_at, toInt64(count()) AS visits FROM \
             (SELECT number, campaign, code, at AS time, class FROM visits PREWHERE code IN ? \
             WHERE batch <= ? AND number NOT IN ? AND at >= fromUnixTimestamp64Milli(toInt64(?)) \
             AND toUnixTimestamp64Milli(at) >= transform(code, ?, ?, 0::Int64) \
             ORDER BY number DESC, batch DESC LIMIT 1 BY number) \
             WHERE class = 'human' GROUP BY campaign, code";
        let query = self.database().await?.query(query);
        let query = query.bind(&codes).bind(up_to);
        // No visit has the number 0.
        let without = if without.is_empty() { &[0] } else { without };
        let query = query.bind(without).bind(earliest);
        let query = query.bind(&codes).bind(since);
        let rows = self.rows::<OfCode>(query).await?.into_iter();
        Ok(rows.map(HumanVisits::from).collect())
    }

    /// The times of the last human visits of links by their hourly counts, together with some that are not stored yet.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn last_human(
        &self,
        codes: &[&str],
        others: &[LinkCount<'_>],
    ) -> Result<HashMap<String, i64>, Fault> {
        if codes.is_empty() {
            return Ok(HashMap::new());
        }
        let query = "SELECT code, intDiv(toUnixTimestamp64Milli(at), 3600000) AS hour, is_earlier, \
             toInt64(sum(c.visits)) AS visits, toUnixTimestamp64Milli(max(at)) AS last_at \
             FROM visit_counts AS c FINAL WHERE code IN ? AND class = 'human' GROUP BY code, hour, is_earlier";
        let query = self.database().await?.query(query).bind(codes);
        let rows = self.rows::<HumanHour>(query).await?;
        let mut hours: HashMap<(&str, i64, bool), (i64, i64)> = HashMap::new();
        for row in &rows {
            let key = (&*row.code, row.hour, row.is_earlier != 0);
            hours.insert(key, (row.visits, row.last_at));
        }
        for it in others.iter().filter(|it| it.class == "human") {
            let key = (it.code, it.last_at.div_euclid(HOUR_MS), it.is_earlier);
            if let Some((visits, _)) = hours.get_mut(&key) {
                *visits += it.visits;
            }
        }
        let mut last: HashMap<String, i64> = HashMap::new();
        for ((code, ..), (_, at)) in hours.into_iter().filter(|(_, (visits, _))| *visits > 0) {
            let of_link = last.entry(code.to_owned()).or_insert(at);
            *of_link = at.max(*of_link);
        }
        Ok(last)
    }

    /// Counts the links of a campaign with clicks by the hour of their first one, in the order of time, also those that
    /// were deleted. The rows of the campaign are read again only after they have changed.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn first_clicks(&self, id: CampaignId) -> Result<Vec<FirstClicks>, Fault> {
        let client = self.database().await?;
        let id = id.get().cast_signed();
        let state = "SELECT count() AS rows, max(batch) AS last, sum(batch) AS sum, max(since) AS known \
             FROM link_clicks WHERE campaign = ?";
        let found = self.rows::<State>(client.query(state).bind(id)).await?;
        let Some(state) = found.into_iter().next().filter(|state| state.rows > 0) else {
            return Ok(Vec::new());
        };
        if let Ok(known) = self.remembered.lock()
            && let Some((_, hours)) = known.get(&id).filter(|(before, _)| *before == state)
        {
            return Ok(hours.clone());
        }
        // Few links have corrections: less is read of the others.
        let corrected = "(SELECT created, code FROM link_clicks WHERE campaign = ? AND since > 0)";
        let of_links = format!(
            "SELECT code, toUnixTimestamp64Milli(min(first_at)) AS first, toInt64(max(c.visits)) AS links \
             FROM link_clicks AS c WHERE campaign = ? AND (created, code) NOT IN {corrected} GROUP BY created, code \
             UNION ALL \
             SELECT code, arrayMin(it -> it.2, counted) AS first, \
             toInt64(arrayMax(it -> it.4, counted)) AS links FROM (SELECT created, code, {COUNTED} \
             FROM link_clicks WHERE campaign = ? AND (created, code) IN {corrected} GROUP BY created, code) \
             WHERE notEmpty(counted)"
        );
        let query = format!(
            "SELECT intDiv(first, 3600000) AS hour, toInt64(sum(if(code = '', links, 1))) AS links \
             FROM ({of_links}) AS found GROUP BY hour ORDER BY hour"
        );
        let query = (0..4).fold(client.query(&query), |query, _| query.bind(id));
        let query = query.with_setting(EXTERNAL.0, EXTERNAL.1);
        let rows = self.rows::<Hour>(query).await?;
        let hours = rows.iter().map(|row| FirstClicks {
            hour: moment(row.hour * HOUR_MS),
            links: row.links.unsigned_abs(),
        });
        let hours: Vec<FirstClicks> = hours.collect();
        if let Ok(mut known) = self.remembered.lock() {
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(id, (state, hours.clone()));
        }
        Ok(hours)
    }

    /// Replaces the clicks of links by those after an erasure, and deletes the rows from before. Of links that are deleted,
    /// which are counted only, it rounds the times to hours, and so of all links of a campaign that is erased. A repetition
    /// changes nothing.
    pub(crate) async fn erase_clicks(
        &self,
        client: &Client,
        erasure: &Erasure,
        links: &[ClickedLink<'_>],
    ) -> Result<(), Fault> {
        let codes = match &erasure.of {
            ErasureOf::Links(codes) => codes,
            // The steps of its links, which follow, replace those of links that are not deleted.
            ErasureOf::Campaign(id) => {
                let change = format!(
                    "ALTER TABLE link_clicks {ROUND} WHERE campaign = ? AND created <= ? AND batch < ? AND {IS_EXACT}"
                );
                let change = client.query(&change).bind(id).bind(erasure.until);
                return self.mutate(change.bind(erasure.batch)).await;
            }
        };
        let before = format!(
            "SELECT campaign, created, code, max(toUInt8({IS_EXACT})) AS is_exact \
             FROM link_clicks WHERE code IN ? AND batch < ? GROUP BY campaign, created, code"
        );
        let before = client.query(&before).bind(codes).bind(erasure.batch);
        let before = self.rows::<Name>(before).await?;
        let (mut alive, mut deleted) = (Vec::new(), Vec::new());
        for row in &before {
            let link = ClickedLink {
                campaign: row.campaign,
                created: row.created,
                code: &row.code,
            };
            match links.contains(&link) {
                true => alive.push(link),
                false if row.is_exact != 0 => deleted.push(link),
                false => {}
            }
        }
        if !alive.is_empty() {
            let later = erasure.until.saturating_add(1);
            let up_to = erasure.batch - 1;
            let later = self.human_visits(&alive, later, up_to, &[]).await?;
            let later: HashMap<(i64, &str), Clicks> = later
                .iter()
                .map(|it| ((it.campaign, &*it.code), it.clicks))
                .collect();
            let left = alive.iter().map(|link| LinkClicks {
                link: *link,
                clicks: later.get(&(link.campaign, link.code)).copied(),
                // Less than that of corrections afterwards.
                since: up_to,
            });
            self.insert(&Batch::new(erasure.batch, [], [], left))
                .await?;
        }
        for (links, change) in [(alive, "DELETE"), (deleted, ROUND)] {
            if links.is_empty() {
                continue;
            }
            let links: Vec<(i64, i64, &str)> = links
                .iter()
                .map(|it| (it.campaign, it.created, it.code))
                .collect();
            let change = format!(
                "ALTER TABLE link_clicks {change} WHERE (campaign, created, code) IN ? AND batch < ?"
            );
            let change = client.query(&change).bind(links).bind(erasure.batch);
            self.mutate(change).await?;
        }
        Ok(())
    }

    /// Counts the stored human visits of all links.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn all_human_visits<'a>(&'a self) -> Result<AllHumanVisits<'a>, Fault> {
        let query = "SELECT campaign, code, toUnixTimestamp64Milli(min(v.at)) AS first_at, \
             toUnixTimestamp64Milli(max(v.at)) AS last_at, toInt64(count()) AS visits \
             FROM visits AS v FINAL WHERE class = 'human' GROUP BY campaign, code";
        let query = self.unchecked().query(query);
        let query = query.with_setting(EXTERNAL.0, EXTERNAL.1);
        let cursor = query.fetch().map_err(|error| self.fault(&error))?;
        Ok(AllHumanVisits { sink: self, cursor })
    }
}

/// The stored human visits of all links, as they are read.
pub struct AllHumanVisits<'a> {
    sink: &'a ClickHouse,
    cursor: RowCursor<OfCode>,
}

impl AllHumanVisits<'_> {
    /// Reads those of the next links, at most `most`; none at the end.
    ///
    /// # Errors
    /// When ClickHouse fails.
    #[boxed]
    pub async fn next(&mut self, most: usize) -> Result<Vec<HumanVisits>, Fault> {
        let Self { sink, cursor } = self;
        let read = async {
            let mut page = Vec::new();
            while page.len() < most {
                match cursor.next().await.map_err(|error| sink.fault(&error))? {
                    Some(row) => page.push(HumanVisits::from(row)),
                    None => break,
                }
            }
            Ok(page)
        };
        sink.within(MUTATION_PATIENCE, read).await
    }
}
