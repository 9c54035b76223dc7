//! The place of visits: this database, or ClickHouse.
//!
//! The database knows it (`visit_sink`), and a process whose configuration differs does not start: it would store visits
//! where no other process reads them.

use std::fmt::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};
use shortlink_clickhouse::{ClickHouse, Fault, UrlError};
use shortlink_core::boxed;
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::ports::StoreError;

use crate::sql::sql;
use crate::value::Row;
use crate::{OpenError, Store, StoreOptions, VisitsOptions};

/// The reason for which the store of visits can't be used.
#[derive(Debug, thiserror::Error)]
pub enum VisitsError {
    /// Visits are in ClickHouse, and none is configured.
    #[error("the visits of this database are in ClickHouse; set visits.clickhouse to its URL")]
    InClickHouse,
    /// ClickHouse is configured, and visits are in SQL.
    #[error(
        "the visits of this database are in SQL; run `shortlink migrate` to have ClickHouse store them, or remove visits.clickhouse"
    )]
    InSql,
    /// Visits came while others were moved.
    #[error(
        "visits were stored while they were moved to ClickHouse, so they are still in SQL; stop every sidecar and run `shortlink migrate` again"
    )]
    Moving,
    /// First clicks, which only visits in SQL have, are events of a webhook.
    #[error(
        "a webhook gets the first click of each link, which is unknown once visits are in ClickHouse; delete it, or set its clicks to each (`shortlink webhooks change ID --clicks each`), and run `shortlink migrate` again"
    )]
    FirstClicks,
    /// The URL is none.
    #[error("visits.clickhouse {0}")]
    Url(#[from] UrlError),
    /// The database can't be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// ClickHouse can't be prepared.
    #[error(transparent)]
    ClickHouse(#[from] Fault),
}

/// The time limit of a statement of a move.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Names a database among those that may share a ClickHouse server.
fn owner(key: &CodeKey) -> String {
    let digest = Sha256::new_with_prefix(b"visits")
        .chain_update(key.bytes())
        .finalize();
    digest[..8].iter().fold(String::new(), |mut name, byte| {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

fn sink(store: &Store, options: &VisitsOptions) -> Result<ClickHouse, VisitsError> {
    let owner = owner(&store.code_key);
    Ok(ClickHouse::new(
        &options.url,
        owner,
        options.retention_days,
    )?)
}

/// The store of the visits of an open database; `None` if that is this database.
pub(crate) async fn open(
    store: &Store,
    options: Option<&VisitsOptions>,
) -> Result<Option<ClickHouse>, VisitsError> {
    match (store.visits_are_elsewhere().await?, options) {
        (false, None) => Ok(None),
        (true, Some(options)) => sink(store, options).map(Some),
        (true, None) => Err(VisitsError::InClickHouse),
        (false, Some(_)) => Err(VisitsError::InSql),
    }
}

/// Prepares ClickHouse, and moves visits there unless they are there already.
pub(crate) async fn migrate(
    options: &StoreOptions,
    visits: &VisitsOptions,
) -> Result<(), OpenError> {
    // A move reads everything that there is.
    let patient = StoreOptions {
        statement_timeout: PATIENCE,
        ..options.clone()
    };
    let store = crate::open_engine(&patient).await?;
    let done = async {
        let sink = sink(&store, visits)?;
        let is_elsewhere = store.visits_are_elsewhere().await?;
        if !is_elsewhere && store.has_first_clicks().await? {
            return Err(VisitsError::FirstClicks);
        }
        if !sink.migrate().await? {
            if is_elsewhere {
                store.count_clicks(&sink).await?;
            }
            sink.finish_migration().await?;
        }
        let is_done = is_elsewhere || store.move_visits(&sink).await?;
        is_done.then_some(()).ok_or(VisitsError::Moving)
    };
    let done = done.await;
    store.close().await;
    Ok(done?)
}

impl Store {
    /// Asks ClickHouse for its version, and checks its tables without changing them; `None` if visits are in this database.
    #[boxed]
    pub async fn examine_clickhouse(&self) -> Option<Result<String, VisitsError>> {
        let sink = self.sink.as_ref()?;
        let examined = async {
            let version = sink.version().await?;
            sink.verify().await?;
            Ok(version)
        };
        Some(examined.await)
    }

    /// The number of batches of visits that ClickHouse does not have yet.
    #[boxed]
    pub async fn count_batches(&self) -> Result<u64, StoreError> {
        let sql = sql!("SELECT count(*) AS batches FROM visit_batches");
        let count = self.one("count batches of visits", sql, &[], |row| {
            row.get("batches")
        });
        Ok(count.await?.unwrap_or_default())
    }

    /// Finds out whether ClickHouse responds; `None` if visits are in this database.
    #[boxed]
    pub async fn clickhouse_responds(&self) -> Option<bool> {
        let version = self.sink.as_ref()?.version().await;
        Some(version.is_ok())
    }

    pub(crate) async fn visits_are_elsewhere(&self) -> Result<bool, StoreError> {
        let place = sql!("SELECT place FROM visit_sink WHERE id = 1");
        let read = |row: &Row| Ok(row.get::<&str>("place")? == "clickhouse");
        let found = self.one("find where visits are", place, &[], read).await?;
        Ok(found.unwrap_or_default())
    }
}
