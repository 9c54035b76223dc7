//! The numbers of the visits of a batch, for visits in ClickHouse.
//!
//! Numbers rise with batches. `visit_marks` therefore has a row only once in [`DISTANCE`] numbers: a batch and its first
//! number. The visits of a batch are between the numbers of the marks around it: before the first mark if none precedes the
//! batch, and behind the last one if none follows, as on a replica that lags behind.

use shortlink_clickhouse::{ClickHouse, Numbers};
use shortlink_core::ports::StoreError;
use vocabulary::Code;

use super::sink::asked;
use crate::Store;
use crate::db::Db;
use crate::sql::{sql, table};
use crate::value::{Row, args};

/// The least distance of the numbers of two marks. Less of it would make more of them than it saves ClickHouse to read.
const DISTANCE: i64 = 8192;

/// The batches of a link that are looked up; the visits of earlier ones may have any number before those.
const MOST_BATCHES: usize = 64;

/// Notes the first number of a batch, if it is far enough behind the last one that was noted.
pub(super) async fn mark(db: &mut Db<'_>, batch: i64, number: i64) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO visit_marks (batch, number) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM \
         (SELECT number FROM visit_marks ORDER BY batch DESC LIMIT 1) AS last WHERE number > $2 - $3)"
    );
    db.run(sql, args![batch, number, DISTANCE]).await?;
    Ok(())
}

/// Forgets all marks: numbers of batches begin anew.
pub(super) async fn clear(db: &mut Db<'_>) -> Result<(), sqlx::Error> {
    db.run(sql!("DELETE FROM visit_marks"), &[]).await?;
    Ok(())
}

impl Store {
    /// Numbers that have all visits of a link from one hour since 1970 on and before another, and those of others.
    pub(crate) async fn numbers_of(
        &self,
        sink: &ClickHouse,
        code: &Code,
        hours: (i64, i64),
    ) -> Result<Numbers, StoreError> {
        let operation = "find the visits of a link";
        let batches = sink.batches(code, hours, MOST_BATCHES);
        let batches = asked(operation, batches.await)?;
        if batches.is_empty() {
            return Ok(Numbers::default());
        }
        let mut ranges: Vec<(i64, i64)> = self
            .read(operation, &batches, |db, batches| {
                Box::pin(async move {
                    let sql = sql!(
                        "SELECT (SELECT number FROM visit_marks WHERE visit_marks.batch <= link.batch \
                         ORDER BY visit_marks.batch DESC LIMIT 1) AS since, \
                         (SELECT number FROM visit_marks WHERE visit_marks.batch > link.batch \
                         ORDER BY visit_marks.batch LIMIT 1) AS until FROM ",
                        table!("link": 1 "batch" "bigint")
                    );
                    let values = db.table(batches.iter().map(|batch| [(*batch).into()]));
                    let read = |row: &Row| {
                        let since = row.find("since")?.unwrap_or(i64::MIN);
                        Ok((since, row.find("until")?.unwrap_or(i64::MAX)))
                    };
                    db.all(sql, &values, read).await
                })
            })
            .await?;
        if batches.len() == MOST_BATCHES {
            let last = ranges.iter().map(|(_, until)| *until).min();
            ranges.push((i64::MIN, last.unwrap_or(i64::MAX)));
        }
        Ok(Numbers::of(ranges))
    }
}
