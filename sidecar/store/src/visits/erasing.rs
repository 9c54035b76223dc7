//! Erasure in ClickHouse: one step of each job, which is stored before it is done.
//!
//! The transaction of a job's step stores what is to be erased. It is then counted and erased outside of transactions,
//! after all batches that were stored before; each part can be repeated. The job's next step takes the result.

use shortlink_clickhouse::{ClickHouse, Erased as ErasedInClickHouse, Erasure, ErasureOf};
use shortlink_core::bulk::Erased;
use shortlink_core::ports::StoreError;

use super::erased::{DIMENSIONS, Erased as ErasedCounts};
use super::sink::{SERVER, asked};
use crate::Store;
use crate::db::Db;
use crate::sql::sql;
use crate::value::{Row, args, invalid};

/// Erases something for a job in ClickHouse, if visits are there: stores it at the first call, and adds the result up at the
/// call after it was erased. `None` if visits are in SQL; false if the step must be called again.
pub(crate) async fn erase(
    db: &mut Db<'_>,
    job: u64,
    erasure: Erasure,
    erased: &mut Erased,
) -> Result<Option<bool>, sqlx::Error> {
    let place = sql!("SELECT 1 AS any FROM visit_sink WHERE place = 'clickhouse'");
    if db.one(place, &[], |_row| Ok(())).await?.is_none() {
        return Ok(None);
    }
    if matches!(&erasure.of, ErasureOf::Links(codes) if codes.is_empty()) {
        return Ok(Some(true));
    }
    let stored = sql!("SELECT visits, counts, is_done FROM visit_erasing WHERE job_id = $1");
    let read = |row: &Row| {
        let counts = (row.find::<u64>("visits")?, row.find::<u64>("counts")?);
        Ok((counts, row.get::<i64>("is_done")? != 0))
    };
    match db.one(stored, args![job], read).await? {
        Some(((visits, counts), true)) => {
            erased.visits += visits.unwrap_or_default();
            erased.counts += counts.unwrap_or_default();
            let remove = sql!("DELETE FROM visit_erasing WHERE job_id = $1");
            db.run(remove, args![job]).await?;
            Ok(Some(true))
        }
        Some((_, false)) => Ok(Some(false)),
        None => {
            // Corrections that have read these visits are given up.
            let lock = sql!(
                "UPDATE visit_sink SET batches = batches + 1, corrections = corrections + 1 \
                 WHERE id = 1 AND server = ",
                SERVER,
                " RETURNING batches"
            );
            // Otherwise numbers are compared before the next call.
            let Some(batch) = db.one(lock, &[], |row| row.get("batches")).await? else {
                return Ok(Some(false));
            };
            let erasure = Erasure { batch, ..erasure };
            let text = serde_json::to_string(&erasure).map_err(|_error| invalid("erasure"))?;
            let add =
                sql!("INSERT INTO visit_erasing (job_id, erasure, is_done) VALUES ($1, $2, 0)");
            db.run(add, args![job, text]).await?;
            Ok(Some(false))
        }
    }
}

/// A stored step.
struct Step {
    job: i64,
    erasure: Erasure,
    /// The number of its visits, if they have been counted.
    visits: Option<u64>,
}

impl Store {
    /// Erases in ClickHouse what steps of jobs have stored; does nothing if visits are in SQL.
    pub(crate) async fn erase_stored(&self) -> Result<(), StoreError> {
        match &self.sink {
            Some(sink) => {
                self.check_ids(sink).await?;
                self.erase_all(sink).await
            }
            None => Ok(()),
        }
    }

    pub(super) async fn erase_all(&self, sink: &ClickHouse) -> Result<(), StoreError> {
        let operation = "erase visits";
        let sql = sql!("SELECT job_id, erasure, visits FROM visit_erasing WHERE is_done = 0");
        let read = |row: &Row| {
            let erasure = serde_json::from_str(row.get("erasure")?);
            Ok(Step {
                job: row.get("job_id")?,
                erasure: erasure.map_err(|_error| invalid("erasure"))?,
                visits: row.find("visits")?,
            })
        };
        let steps: Vec<Step> = self.all(operation, sql, &[], read).await?;
        for step in steps {
            // Rows that were stored before the step and are not there yet would be found by neither of both.
            self.flush_visits().await?;
            let visits = match step.visits {
                Some(visits) => visits,
                None => {
                    let found = sink.count_erased(&step.erasure, &DIMENSIONS).await;
                    let found = asked(operation, found)?;
                    let visits = found.visits;
                    self.run_tx(operation, (step.job, found), |db, (job, found)| {
                        Box::pin(note(db, *job, found))
                    })
                    .await?;
                    visits
                }
            };
            let codes: Vec<&str> = match &step.erasure.of {
                ErasureOf::Links(codes) => codes.iter().map(String::as_str).collect(),
                ErasureOf::Campaign(_) => Vec::new(),
            };
            let links = self.clicked_links(&codes).await?;
            let erased = sink.erase(&step.erasure, visits > 0, &links).await;
            asked(operation, erased)?;
            let sql = sql!("UPDATE visit_erasing SET is_done = 1 WHERE job_id = $1");
            self.run(operation, sql, args![step.job]).await?;
        }
        Ok(())
    }
}

/// Notes how much a step erases, and takes it out of the counts in SQL; nothing after another process has done so, and has
/// perhaps erased the visits.
async fn note(db: &mut Db<'_>, job: i64, found: &ErasedInClickHouse) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "UPDATE visit_erasing SET visits = $2, counts = $3 \
         WHERE job_id = $1 AND is_done = 0 AND visits IS NULL"
    );
    if db.run(sql, args![job, found.visits, found.counts]).await? == 0 {
        return Ok(());
    }
    let counts = ErasedCounts::of_clickhouse(found).take_out(db).await?;
    let sql = sql!("UPDATE visit_erasing SET counts = counts + $2 WHERE job_id = $1");
    db.run(sql, args![job, counts]).await?;
    Ok(())
}
