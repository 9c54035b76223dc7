//! Visits as they are listed.
//!
//! A listing walks an index downwards from its position. Few visits may match its filter, so the walk ends after
//! [`MOST_EXAMINED`] visits; the next page continues there. A period narrows the walk to its days: SQLite knows the
//! first and the last id of each day (`visit_days`), and PostgreSQL has a part of the table for each.

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{KeptVisit, Listed, MOST_EXAMINED, StoreError, VisitListing};

use super::counts::{LINK, link};
use super::sink::asked;
use super::{HOUR_MS, click_ids, joined};
use crate::db::{Db, Statement};
use crate::shared::DAY_MS;
use crate::sql::{Sql, sql};
use crate::value::{Row, Value, args, hex};
use crate::{Scheme, Store};

/// The columns that [`read`] reads.
pub(super) const COLUMNS: &str = "visits.id, at, code, host, client, visitor, user_agent, referrer, referrer_host, \
     language, method, status, purpose, country, province, city, isp, browser, browser_version, \
     os, os_version, device, app, class, reason, ruleset, variant";

const SELECT: Sql = sql!(
    "SELECT ",
    COLUMNS,
    " FROM visits JOIN visit_agents ON visit_agents.id = agent_id WHERE "
);

/// The first and the last id of the visits of some days, in SQLite.
pub(super) const IDS_OF_DAYS: Sql = sql!(
    "SELECT min(first_id) AS first_id, max(last_id) AS last_id FROM visit_days \
     WHERE day >= $1 AND day <= $2"
);

impl Store {
    /// Lists visits, those that were stored last first.
    #[boxed]
    pub async fn list_visits(
        &self,
        listing: &VisitListing,
    ) -> Result<Listed<KeptVisit>, StoreError> {
        if let Some(sink) = &self.sink {
            let hour = |ms: i64| ms.div_euclid(HOUR_MS);
            let since = listing
                .since
                .map_or(i64::MIN, |it| hour(it.as_millisecond()));
            let until = listing
                .until
                .map_or(i64::MAX, |it| hour(it.as_millisecond()) + 1);
            let listed = match &listing.code {
                None => sink.list(listing).await,
                Some(code) => {
                    let among = self.numbers_of(sink, code, (since, until)).await?;
                    sink.list_of(code, &among, listing).await
                }
            };
            let listed = asked("list visits", listed)?;
            return self
                .read("read click ids", listed, |db, listed| {
                    let mut listed = listed.clone();
                    Box::pin(async move {
                        click_ids::fill(db, listed.items.iter_mut()).await?;
                        Ok(listed)
                    })
                })
                .await;
        }
        self.read("list visits", listing, |db, listing| {
            Box::pin(list(db, listing, MOST_EXAMINED))
        })
        .await
    }
}

async fn list(
    db: &mut Db<'_>,
    listing: &VisitListing,
    most: u32,
) -> Result<Listed<KeptVisit>, sqlx::Error> {
    let Some(mut walk) = Walk::of(db, listing).await? else {
        return Ok(Listed::default());
    };
    let mut reach = None;
    if listing.class.is_some() || listing.since.is_some() || listing.until.is_some() {
        let statement = walk.reach(db, most);
        let read = |row: &Row| row.get("id");
        reach = db.one(&statement, &statement.values, read).await?;
        walk.last = reach.unwrap_or(walk.last);
    }
    let statement = walk.select(db.statement(SELECT), listing);
    let mut visits: Vec<KeptVisit> = db.all(&statement, &statement.values, read).await?;
    click_ids::fill(db, visits.iter_mut()).await?;
    Ok(Listed::new(visits, listing.limit, reach))
}

/// The visits that a listing walks through.
#[derive(Debug)]
struct Walk {
    /// Their link, as the value of [`LINK`].
    of: Option<Value<'static>>,
    /// All their ids are below this one.
    before: i64,
    /// None of their ids is below this one.
    last: i64,
    /// In PostgreSQL the days of the parts that have them: the begin of the first and the end of the last, in
    /// milliseconds.
    days: (Option<i64>, Option<i64>),
}

impl Walk {
    /// The walk of a listing; none if no visit can match.
    async fn of(db: &mut Db<'_>, listing: &VisitListing) -> Result<Option<Self>, sqlx::Error> {
        let of = match &listing.code {
            None => None,
            Some(code) => match link(db, code).await? {
                None => return Ok(None),
                of => of,
            },
        };
        let mut walk = Self {
            of,
            before: listing.before.unwrap_or(i64::MAX),
            last: i64::MIN,
            days: (None, None),
        };
        let day = |moment: Timestamp| moment.as_millisecond().div_euclid(DAY_MS);
        let first = listing.since.map(day);
        // A period that ends with a day has none of the next one.
        let last = listing.until;
        let last = last.map(|until| (until.as_millisecond() - 1).div_euclid(DAY_MS));
        if db.scheme() == Scheme::Postgres {
            walk.days = (
                first.map(|day| day * DAY_MS),
                last.map(|day| (day + 1) * DAY_MS),
            );
        } else if first.is_some() || last.is_some() {
            let days = args![first.unwrap_or(i64::MIN), last.unwrap_or(i64::MAX)];
            let read = |row: &Row| Ok((row.find("first_id")?, row.find("last_id")?));
            let (Some(first_id), Some(last_id)) = db.get(IDS_OF_DAYS, days, read).await? else {
                return Ok(None);
            };
            let last_id: i64 = last_id;
            walk.last = first_id;
            walk.before = walk.before.min(last_id.saturating_add(1));
        }
        Ok(Some(walk))
    }

    /// The statement for the id of the last visit, if that is the one of the number `most`.
    fn reach<'a>(&self, db: &Db<'_>, most: u32) -> Statement<'a> {
        let mut statement = db.statement(sql!("SELECT id FROM visits WHERE "));
        self.push(&mut statement);
        let (begin, end) = self.days;
        if let Some(begin) = begin {
            statement.push(sql!(" AND at >= ")).bind(begin);
        }
        if let Some(end) = end {
            statement.push(sql!(" AND at < ")).bind(end);
        }
        statement.push(sql!(" ORDER BY id DESC LIMIT 1 OFFSET "));
        statement.bind(most.saturating_sub(1));
        statement
    }

    /// Adds the conditions of a listing to [`SELECT`].
    fn select<'a>(&self, mut statement: Statement<'a>, listing: &'a VisitListing) -> Statement<'a> {
        self.push(&mut statement);
        if let Some(class) = listing.class {
            statement.push(sql!(" AND class = ")).bind(class.name());
        }
        if let Some(since) = listing.since {
            statement.push(sql!(" AND at >= ")).bind(since);
        }
        if let Some(until) = listing.until {
            statement.push(sql!(" AND at < ")).bind(until);
        }
        let end = sql!(" ORDER BY visits.id DESC LIMIT ");
        statement.push(end).bind(listing.limit);
        statement
    }

    /// Adds the conditions that an index finds the visits by.
    fn push(&self, statement: &mut Statement<'_>) {
        if let Some(of) = &self.of {
            statement.push(sql!(LINK, " = ")).bind(of.clone());
            statement.push(sql!(" AND "));
        }
        statement.push(sql!("visits.id < ")).bind(self.before);
        statement.push(sql!(" AND visits.id >= ")).bind(self.last);
    }
}

/// Reads a visit as it is listed.
pub(super) fn read(row: &Row) -> Result<KeptVisit, sqlx::Error> {
    let with_version = |name, version| -> Result<Option<String>, sqlx::Error> {
        Ok(joined(row.find(name)?, row.find(version)?))
    };
    let visitor_id: Option<&[u8]> = row.find("visitor")?;
    Ok(KeptVisit {
        number: row.get("id")?,
        at: row.get("at")?,
        code: row.get("code")?,
        host: row.get("host")?,
        client: row.find("client")?,
        visitor: visitor_id.map(hex),
        user_agent: row.get("user_agent")?,
        referrer: row.find("referrer")?.unwrap_or_default(),
        referrer_host: row.find("referrer_host")?,
        language: row.find("language")?,
        method: row.get("method")?,
        status: row.get("status")?,
        purpose: row.find("purpose")?.unwrap_or_default(),
        country: row.find("country")?,
        province: row.find("province")?,
        city: row.find("city")?,
        isp: row.find("isp")?,
        browser: with_version("browser", "browser_version")?,
        os: with_version("os", "os_version")?,
        device: row.get("device")?,
        app: row.find("app")?,
        class: row.get("class")?,
        reason: row.get("reason")?,
        ruleset: row.get("ruleset")?,
        variant: row.find("variant")?,
        click_id: None,
    })
}

#[cfg(test)]
mod tests;
