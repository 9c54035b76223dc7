//! Visits by their numbers: listings, and pages for further judgements.
//!
//! Numbers follow each other with few gaps, so a page is read from a few of them, and from more if these are too few.

use clickhouse::Row;
use jiff::Timestamp;
use serde::Deserialize;
use shortlink_core::boxed;
use shortlink_core::ports::{
    ExportedVisit, KeptVisit, Listed, PeoplePage, Stretch, TimeSpan, VisitListing, VisitPage,
};
use shortlink_core::visit::class::behaviour::Watched;
use shortlink_core::visit::stored::StoredVisit;
use vocabulary::{CampaignId, Code};

use crate::{ClickHouse, Fault, Numbers, VisitRow};

/// The numbers from which a page is read first.
const FIRST_SPAN: i64 = 10_000;

/// The most numbers from which a page is read; the next page continues behind them.
const LAST_SPAN: i64 = 40_000_000;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

#[derive(Row, Deserialize)]
struct Span {
    first: Option<i64>,
    last: Option<i64>,
}

/// The condition that a time in milliseconds is within the days or times from one moment up to another.
const WITHIN: &str =
    "at >= fromUnixTimestamp64Milli(?, 'UTC') AND at < fromUnixTimestamp64Milli(?, 'UTC')";

/// The first and the last moment that the column of times can hold, in milliseconds since 1970.
const TIMES: (i64, i64) = (-2_208_988_800_000, 10_413_791_999_000);

/// Limits a time to those that the column can hold.
pub(crate) fn limited(ms: i64) -> i64 {
    ms.clamp(TIMES.0, TIMES.1)
}

/// The times of the visits of a listing.
fn times(listing: &VisitListing) -> (i64, i64) {
    let ms = |time: Option<Timestamp>| time.map(|time| time.as_millisecond());
    (
        ms(listing.since).unwrap_or(TIMES.0),
        ms(listing.until).unwrap_or(TIMES.1),
    )
}

impl ClickHouse {
    /// The numbers of the first and the last visit whose time is from one moment on and before another; `None` without
    /// any.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn numbers(&self, (since, until): (i64, i64)) -> Result<Option<(i64, i64)>, Fault> {
        let client = self.database().await?;
        let query = if since <= TIMES.0 && until >= TIMES.1 {
            // The answer is part of the table's description, in this form: others read all visits.
            client.query(
                "SELECT if(count() = 0, NULL, min(number)) AS first, \
                 if(count() = 0, NULL, max(number)) AS last FROM visits",
            )
        } else {
            // The minimum and maximum would read all visits of the time.
            let one = |order| {
                format!(
                    "(SELECT number FROM visits WHERE {WITHIN} ORDER BY number {order} LIMIT 1)"
                )
            };
            let query = format!("SELECT {} AS first, {} AS last", one("ASC"), one("DESC"));
            let (since, until) = (limited(since), limited(until));
            let query = client.query(&query).bind(since).bind(until);
            query.bind(since).bind(until)
        };
        let found = self.rows::<Span>(query).await?;
        Ok(found.first().and_then(|span| span.first.zip(span.last)))
    }

    /// Lists visits, those that were stored last first.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn list(&self, listing: &VisitListing) -> Result<Listed<KeptVisit>, Fault> {
        let Some((first, last)) = self.numbers(times(listing)).await? else {
            return Ok(Listed::default());
        };
        let before = listing.before.unwrap_or(i64::MAX);
        let before = before.min(last.saturating_add(1));
        let mut span = FIRST_SPAN;
        loop {
            let from = before.saturating_sub(span).max(first);
            let select = format!(
                "SELECT ?fields FROM visits FINAL WHERE number >= {from} AND number < {before}"
            );
            let visits = self.latest(listing, &select, None, "").await?;
            let is_whole = visits.len() >= listing.limit as usize || from <= first;
            if is_whole || span >= LAST_SPAN {
                let reach = (!is_whole).then_some(from);
                let visits = visits.into_iter().map(KeptVisit::from).collect();
                return Ok(Listed::new(visits, listing.limit, reach));
            }
            span = span.saturating_mul(16);
        }
    }

    /// Lists the visits of a link, which are among some numbers, those that were stored last first.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn list_of(
        &self,
        code: &Code,
        among: &Numbers,
        listing: &VisitListing,
    ) -> Result<Listed<KeptVisit>, Fault> {
        if among.is_empty() {
            return Ok(Listed::default());
        }
        let before = listing.before.unwrap_or(i64::MAX);
        // As the latest visits of a link are counted.
        let select = format!(
            "SELECT ?fields FROM (SELECT ?fields FROM visits PREWHERE code = ? \
             WHERE number < {before} AND {} ORDER BY number DESC, batch DESC LIMIT 1 BY number) WHERE 1",
            among.condition()
        );
        let visits = self.latest(listing, &select, Some(code), among.settings());
        let visits = visits.await?.into_iter().map(KeptVisit::from).collect();
        Ok(Listed::new(visits, listing.limit, None))
    }

    /// The latest visits of those that a statement selects.
    async fn latest(
        &self,
        listing: &VisitListing,
        select: &str,
        code: Option<&Code>,
        settings: &str,
    ) -> Result<Vec<VisitRow>, Fault> {
        let client = self.database().await?;
        let mut sql = select.to_owned();
        // To read the times of all visits would take longer than to ask without them.
        let time = (listing.since.is_some() || listing.until.is_some()).then(|| times(listing));
        if time.is_some() {
            sql.push_str(" AND ");
            sql.push_str(WITHIN);
        }
        if listing.class.is_some() {
            sql.push_str(" AND class = ?");
        }
        sql.push_str(" ORDER BY number DESC LIMIT ?");
        sql.push_str(settings);
        let mut query = client.query(&sql);
        if let Some(code) = code {
            query = query.bind(code.as_str());
        }
        if let Some((since, until)) = time {
            query = query.bind(limited(since)).bind(limited(until));
        }
        if let Some(class) = listing.class {
            query = query.bind(class.name());
        }
        self.rows(query.bind(listing.limit)).await
    }

    /// The first visits behind a number and up to another, in the order of their numbers: of a time from one moment on
    /// and before another.
    async fn after(
        &self,
        (after, up_to): (i64, i64),
        time: (i64, i64),
        limit: u32,
    ) -> Result<Vec<VisitRow>, Fault> {
        let Some((first, last)) = self.numbers(time).await? else {
            return Ok(Vec::new());
        };
        let last = last.min(up_to);
        let client = self.database().await?;
        let after = after.max(first.saturating_sub(1));
        let mut span = i64::from(limit).max(FIRST_SPAN);
        loop {
            let to = after.saturating_add(span).min(last);
            let query = format!(
                "SELECT ?fields FROM visits FINAL WHERE number > ? AND number <= ? AND {WITHIN} \
                 ORDER BY number LIMIT ?"
            );
            let query = client.query(&query).bind(after).bind(to);
            let query = query
                .bind(limited(time.0))
                .bind(limited(time.1))
                .bind(limit);
            let visits: Vec<VisitRow> = self.rows(query).await?;
            if visits.len() >= limit as usize || to >= last {
                return Ok(visits);
            }
            span = span.saturating_mul(4);
        }
    }

    /// Reads the first visits behind a number and up to another, at most `limit`, without what is known of links.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn exported(
        &self,
        numbers: (i64, i64),
        limit: u32,
    ) -> Result<Vec<ExportedVisit>, Fault> {
        let visits = self.after(numbers, TIMES, limit).await?.into_iter();
        let exported = visits.map(|row| ExportedVisit {
            campaign: CampaignId::new(row.campaign().unsigned_abs()),
            visit: KeptVisit::from(row),
            external_id: None,
            created_by: None,
            tags: Vec::new(),
        });
        Ok(exported.collect())
    }

    /// Reads the visits of a time among the first `limit` behind a number.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn page(&self, after: i64, time: TimeSpan, limit: u32) -> Result<VisitPage, Fault> {
        let times = (
            time.since.map_or(TIMES.0, |since| since.as_millisecond()),
            time.until.map_or(TIMES.1, |until| until.as_millisecond()),
        );
        let visits = self.after((after, i64::MAX), times, limit).await?;
        Ok(VisitPage {
            last: visits.last().map(|visit| visit.number),
            visits: visits.iter().filter_map(VisitRow::stored).collect(),
        })
    }

    /// Reads the visitors of a range of days, both ends included, among the first `limit` visits behind a number.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn people(
        &self,
        after: i64,
        days: (i64, i64),
        limit: u32,
    ) -> Result<PeoplePage, Fault> {
        let times = (
            days.0.saturating_mul(DAY_MS),
            days.1.saturating_add(1).saturating_mul(DAY_MS),
        );
        let visits = self.after((after, i64::MAX), times, limit).await?;
        let people = visits.iter().filter(|visit| visit.is_human());
        let people = people.filter_map(|visit| {
            Some((
                visit.campaign(),
                visit.at.div_euclid(DAY_MS),
                visit.visitor_id()?,
            ))
        });
        Ok(PeoplePage {
            people: people.collect(),
            last: visits.last().map(|visit| visit.number),
        })
    }

    /// Reads the visits behind a number whose numbers and times are those of a stretch, at most `limit`, as behaviour is
    /// judged; also returns the number of the last visit that was read.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn watched(
        &self,
        after: i64,
        stretch: Stretch,
        limit: u32,
    ) -> Result<(Vec<Watched>, Option<i64>), Fault> {
        let client = self.database().await?;
        let query = format!(
            "SELECT ?fields FROM visits FINAL WHERE number > ? AND number <= ? AND {WITHIN} \
             ORDER BY number LIMIT ?"
        );
        let query = client.query(&query).bind(after).bind(stretch.numbers.1);
        let query = query
            .bind(limited(stretch.times.0))
            .bind(limited(stretch.times.1) + 1);
        let visits: Vec<VisitRow> = self.rows(query.bind(limit)).await?;
        let last = visits.last().map(|visit| visit.number);
        Ok((visits.iter().filter_map(VisitRow::watched).collect(), last))
    }

    /// Reads visits by their numbers, and the time of the first and the last of them in milliseconds since 1970.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn rows_of(
        &self,
        numbers: &[i64],
        times: (i64, i64),
    ) -> Result<Vec<VisitRow>, Fault> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.database().await?;
        let query = format!(
            "SELECT ?fields FROM visits FINAL WHERE number IN ? AND {WITHIN} ORDER BY number"
        );
        let query = client.query(&query).bind(numbers);
        self.rows(query.bind(limited(times.0)).bind(limited(times.1) + 1))
            .await
    }

    /// As [`ClickHouse::rows_of`], as visits that are judged again.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn stored(
        &self,
        numbers: &[i64],
        times: (i64, i64),
    ) -> Result<Vec<StoredVisit>, Fault> {
        let rows = self.rows_of(numbers, times).await?;
        Ok(rows.iter().filter_map(VisitRow::stored).collect())
    }
}
