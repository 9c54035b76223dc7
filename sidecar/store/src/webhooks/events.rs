//! Events: each is stored in the transaction of what it reports.
//!
//! Numbers are in the order of commits: the last lock of a transaction with events is that of the counter. So a reader
//! that has seen a number has seen all below it.

use std::collections::HashMap;

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{ExportedVisit, StoreError};
use shortlink_core::webhook::{EventType, Reached};
use vocabulary::CampaignId;

use super::number;
use crate::Store;
use crate::db::Db;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::value::{Row, Value, args};
use crate::visits::export;

/// A stored event.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// Later events have greater numbers.
    pub number: i64,
    /// Time of the event.
    pub at: Timestamp,
    /// The name of its type.
    pub event: String,
    /// The campaign that it concerns.
    pub campaign: Option<CampaignId>,
    /// The code of its link, or another subject.
    pub subject: String,
    /// Its visit, unless that was erased or deleted.
    pub visit: Option<Box<ExportedVisit>>,
    /// Its data as JSON, unless that is a visit.
    pub data: Option<String>,
}

/// An event that is yet to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewEvent {
    pub(crate) event: EventType,
    pub(crate) campaign: Option<i64>,
    pub(crate) subject: String,
    /// The number and the time of a visit.
    pub(crate) visit: Option<(i64, i64)>,
    pub(crate) data: Option<String>,
}

/// Stores events. The transaction locks nothing after this.
pub(crate) async fn append(
    db: &mut Db<'_>,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    if events.is_empty() {
        return Ok(());
    }
    let sql = sql!(
        "UPDATE webhook_clock SET last = last + $1 WHERE id = 1 RETURNING last - $1 AS before"
    );
    let count = events.len() as i64;
    let before: i64 = db.get(sql, args![count], |row| row.get("before")).await?;
    let rows = events
        .iter()
        .enumerate()
        .map(|(place, it)| -> [Value<'_>; 8] {
            [
                (before + 1 + place as i64).into(),
                now.into(),
                it.event.name().into(),
                number(it.campaign),
                (&it.subject).into(),
                number(it.visit.map(|(number, _)| number)),
                number(it.visit.map(|(_, at)| at)),
                (&it.data).into(),
            ]
        });
    let into = sql!(
        "INSERT INTO webhook_events (number, at, type, campaign_id, subject, visit_id, visit_at, data)"
    );
    let types = [
        "bigint", "bigint", "text", "bigint", "text", "bigint", "bigint", "text",
    ];
    db.insert(into, types, sql!(""), rows).await
}

/// The lock that transactions with events share: "shorhook".
const LOCK: i64 = 0x7368_6f72_686f_6f6b;

/// Keeps webhooks from beginning until this transaction ends, which looks for those that want its events. Transactions
/// that look do not wait for each other.
pub(super) async fn hold_webhooks(db: &mut Db<'_>) -> Result<(), sqlx::Error> {
    db.share_lock(LOCK).await
}

/// Waits on PostgreSQL for transactions that have looked for webhooks, and may yet commit without an event; those that
/// come later wait until this transaction ends. SQLite has one writer.
pub(super) async fn wait_for_reports(db: &mut Db<'_>) -> Result<(), sqlx::Error> {
    db.lock(LOCK).await
}

/// Finds a webhook.
pub(crate) const ANY: Sql = sql!("SELECT 1 AS found FROM webhooks LIMIT 1");

/// Stores events, if there are webhooks. The transaction locks nothing after this.
pub(crate) async fn report(
    db: &mut Db<'_>,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    hold_webhooks(db).await?;
    if db.one(ANY, &[], |_row| Ok(())).await?.is_some() {
        append(db, events, now).await?;
    }
    Ok(())
}

/// Deletes the events of visits that are erased.
pub(crate) async fn remove_of_visits(db: &mut Db<'_>, visits: &[i64]) -> Result<(), sqlx::Error> {
    let sql = sql!("DELETE FROM webhook_events WHERE visit_id", IN_NUMBERS);
    db.run(sql, args![visits.to_vec()]).await?;
    Ok(())
}

const LAST: Sql = sql!("SELECT last FROM webhook_clock WHERE id = 1");

/// The last visit and the last event. No visit with a lower number is stored later, once transactions that store visits
/// have been waited for.
pub(super) async fn last(db: &mut Db<'_>, in_clickhouse: bool) -> Result<Reached, sqlx::Error> {
    Ok(Reached {
        visits: export::last_number(db, in_clickhouse).await?,
        events: db.get(LAST, &[], |row| row.get("last")).await?,
    })
}

/// Notes that everything up to a place was stored before a time.
pub(super) async fn mark(
    db: &mut Db<'_>,
    reached: Reached,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO webhook_marks (at, visits, events) VALUES ($1, $2, $3) ON CONFLICT (at) DO NOTHING"
    );
    db.run(sql, args![now, reached.visits, reached.events])
        .await?;
    Ok(())
}

/// The place behind which everything is that was stored since a time; the first time with a known place, if that is later.
pub(super) async fn reached_at(
    db: &mut Db<'_>,
    since: Timestamp,
) -> Result<Result<Reached, Timestamp>, sqlx::Error> {
    let sql =
        sql!("SELECT visits, events FROM webhook_marks WHERE at <= $1 ORDER BY at DESC LIMIT 1");
    let read = |row: &Row| {
        Ok(Reached {
            visits: row.get("visits")?,
            events: row.get("events")?,
        })
    };
    if let Some(reached) = db.one(sql, args![since], read).await? {
        return Ok(Ok(reached));
    }
    let sql = sql!("SELECT min(at) AS at FROM webhook_marks");
    let first: Option<Timestamp> = db.get(sql, &[], |row| row.find("at")).await?;
    Ok(Err(first.unwrap_or(since)))
}

impl Store {
    /// Notes that everything up to a place is stored now.
    #[boxed]
    pub async fn mark_events(&self, visits: i64, now: Timestamp) -> Result<(), StoreError> {
        let args = (visits, now);
        self.run_tx("mark the place of events", args, |db, (visits, now)| {
            let (visits, now) = (*visits, *now);
            Box::pin(async move {
                let events = db.get(LAST, &[], |row| row.get("last")).await?;
                mark(db, Reached { visits, events }, now).await
            })
        })
        .await
    }

    /// Deletes events, at most `limit`, and the noted places of times from before a moment.
    #[boxed]
    pub async fn forget_events(&self, before: Timestamp, limit: u32) -> Result<(), StoreError> {
        let args = (before, limit);
        self.run_tx("delete old events", args, |db, (before, limit)| {
            Box::pin(async move {
                let sql = sql!("DELETE FROM webhook_marks WHERE at < $1");
                db.run(sql, args![*before]).await?;
                let sql = sql!(
                    "DELETE FROM webhook_events WHERE number IN \
                     (SELECT number FROM webhook_events ORDER BY number LIMIT $2) AND at < $1"
                );
                db.run(sql, args![*before, *limit]).await?;
                Ok(())
            })
        })
        .await
    }

    /// The number of the last event.
    #[boxed]
    pub async fn last_event(&self) -> Result<i64, StoreError> {
        let last = self.one("look for new events", LAST, &[], |row| row.get("last"));
        Ok(last.await?.unwrap_or_default())
    }

    /// Reads the events behind a number in their order, at most `limit`.
    #[boxed]
    pub async fn events_after(
        &self,
        after: i64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.read("read events", (after, limit), |db, (after, limit)| {
            Box::pin(events(db, *after, *limit))
        })
        .await
    }
}

async fn events(db: &mut Db<'_>, after: i64, limit: u32) -> Result<Vec<StoredEvent>, sqlx::Error> {
    let sql = sql!(
        "SELECT number, at, type, campaign_id, subject, visit_id, visit_at, data FROM webhook_events \
         WHERE number > $1 ORDER BY number LIMIT $2"
    );
    let read = |row: &Row| {
        let event = StoredEvent {
            number: row.get("number")?,
            at: row.get("at")?,
            event: row.get("type")?,
            campaign: row.find("campaign_id")?,
            subject: row.get("subject")?,
            visit: None,
            data: row.find("data")?,
        };
        let visit: Option<i64> = row.find("visit_id")?;
        let at: Option<i64> = row.find("visit_at")?;
        Ok((event, visit.zip(at)))
    };
    let found: Vec<(StoredEvent, Option<(i64, i64)>)> =
        db.all(sql, args![after, limit], read).await?;
    let wanted: Vec<(i64, i64)> = found.iter().filter_map(|(_, visit)| *visit).collect();
    let visits = export::by_numbers(db, &wanted).await?;
    let mut visits: HashMap<i64, ExportedVisit> =
        visits.into_iter().map(|it| (it.visit.number, it)).collect();
    let found = found.into_iter().map(|(event, visit)| StoredEvent {
        visit: visit
            .and_then(|(number, _)| visits.remove(&number))
            .map(Box::new),
        ..event
    });
    Ok(found.collect())
}
