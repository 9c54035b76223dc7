//! Visits of campaigns, and all visits, by minute and class: of the last two days.
//!
//! They are corrected as the counts by the hour are, in the same transactions.

use jiff::{SignedDuration, Timestamp};
use shortlink_core::boxed;
use shortlink_core::ports::{BY_MINUTE, CountQuery, Counted, MAX_COUNTED, StoreError, TimeCount};

use super::counts::{LINK, hours, link, time_count};
use super::pruning::FREE;
use super::sink::asked;
use super::{ALL, Counts, MINUTE_MS};
use crate::Store;
use crate::db::Db;
use crate::sql::sql;
use crate::value::{Row, Value, args};

/// The retention: what can be asked for up to the end of the present hour, and an hour for clocks that differ.
const RETENTION: SignedDuration = BY_MINUTE.saturating_add(SignedDuration::from_hours(2));

/// The first minute since 1970 that is counted at a moment. Later corrections must not bring deleted minutes back.
pub(super) fn since(now: Timestamp) -> i64 {
    (now.as_millisecond() - RETENTION.as_millis() as i64).div_euclid(MINUTE_MS)
}

/// Adds visits to the stored counts, in the order of all transactions.
pub(super) async fn add(db: &mut Db<'_>, counts: &Counts<'_>) -> Result<(), sqlx::Error> {
    let rows = counts.minutes.iter();
    let rows = rows.map(|((campaign, minute, class), visits)| {
        let [campaign, minute, visits] = [campaign, minute, visits].map(|number| (*number).into());
        [campaign, minute, (*class).into(), visits]
    });
    let into = sql!("INSERT INTO visit_minutes AS kept (campaign_id, minute, class, visits)");
    let types = ["bigint", "bigint", "text", "bigint"];
    let end = sql!(
        " ON CONFLICT (campaign_id, minute, class) DO UPDATE SET visits = kept.visits + excluded.visits"
    );
    db.insert(into, types, end, rows).await
}

/// Removes counts of 0 or less among those that visits were subtracted from.
pub(super) async fn remove_empty(db: &mut Db<'_>, counts: &Counts<'_>) -> Result<(), sqlx::Error> {
    let less = counts.minutes.iter().filter(|(_, by)| **by < 0);
    let less = less.map(|((campaign, minute, class), _)| {
        [(*campaign).into(), (*minute).into(), (*class).into()]
    });
    let less: Vec<_> = less.collect();
    let from = sql!("DELETE FROM visit_minutes");
    let key = [
        (sql!("campaign_id"), "bigint"),
        (sql!("minute"), "bigint"),
        (sql!("class"), "text"),
    ];
    let end = sql!(" AND visits <= 0");
    db.delete(from, key, less.into_iter(), end).await
}

impl Store {
    /// Counts visits by minute and class, in the hours of the period: those of one link from its latest visits that are
    /// still stored, at most [`MAX_COUNTED`]; those of others in the time of
    /// [`BY_MINUTE`].
    #[boxed]
    pub async fn count_minutes(&self, query: &CountQuery) -> Result<Vec<TimeCount>, StoreError> {
        let operation = "count visits by the minute";
        if let (Some(sink), Counted::Link(code)) = (&self.sink, &query.of) {
            let hours = hours(query);
            let among = self.numbers_of(sink, code, hours).await?;
            return asked(operation, sink.by_minute(code, &among, hours).await);
        }
        self.read(operation, query, |db, query| Box::pin(by_minute(db, query)))
            .await
    }

    /// Deletes counts of minutes that are not the latest ones any more, at most `limit`; returns their number.
    #[boxed]
    pub async fn forget_minutes(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let sql = sql!(
            "WITH old AS MATERIALIZED (SELECT campaign_id, minute, class FROM visit_minutes \
             {INDEXED BY visit_minutes_by_minute }WHERE minute < $1 ORDER BY minute LIMIT $2",
            FREE,
            ") DELETE FROM visit_minutes WHERE (campaign_id, minute, class) IN \
             (SELECT campaign_id, minute, class FROM old)"
        );
        self.run("delete old counts", sql, args![since(now), limit])
            .await
    }
}

async fn by_minute(db: &mut Db<'_>, query: &CountQuery) -> Result<Vec<TimeCount>, sqlx::Error> {
    let (since, until) = hours(query);
    let (since, until) = (since * 60, until * 60);
    let read = |row: &Row| time_count(row, "minute", MINUTE_MS);
    let campaign = match query.of {
        Counted::Link(code) => {
            let Some(link) = link(db, &code).await? else {
                return Ok(Vec::new());
            };
            let sql = sql!(
                "SELECT at / $5 AS minute, class, count(*) AS visits FROM \
                 (SELECT at, class FROM visits WHERE ",
                LINK,
                " = $1 AND at >= $2 AND at < $3 ORDER BY id DESC LIMIT $4) AS latest \
                 GROUP BY minute, class ORDER BY minute, class"
            );
            let values = [
                link,
                (since * MINUTE_MS).into(),
                (until * MINUTE_MS).into(),
                MAX_COUNTED.into(),
                MINUTE_MS.into(),
            ];
            return db.all(sql, &values, read).await;
        }
        Counted::Campaign(id) => Value::from(id),
        Counted::All => Value::from(ALL),
    };
    let sql = sql!(
        "SELECT minute, class, visits FROM visit_minutes WHERE campaign_id = $1 \
         AND minute >= $2 AND minute < $3 ORDER BY minute, class"
    );
    let values = args![campaign, since, until];
    db.all(sql, values, read).await
}
