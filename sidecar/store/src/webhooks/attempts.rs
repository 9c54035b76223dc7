//! The log of attempts: the latest of each webhook.

use std::time::Duration;

use shortlink_core::boxed;
use shortlink_core::ports::StoreError;
use shortlink_core::webhook::Attempt;

use crate::Store;
use crate::db::Db;
use crate::sql::sql;
use crate::value::{Row, Value, args};

/// The most attempts that are stored of a webhook.
const STORED: u32 = 1000;

impl Store {
    /// Lists the attempts of a webhook, the latest first, those before a number; each with its number.
    #[boxed]
    pub async fn webhook_attempts(
        &self,
        webhook: &str,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<(i64, Attempt)>, StoreError> {
        let sql = sql!(
            "SELECT id, at, message_id, events, attempt, status, error, took_ms FROM webhook_attempts \
             WHERE webhook_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3"
        );
        let values = args![webhook, before.unwrap_or(i64::MAX), limit];
        self.all("list attempts of a webhook", sql, values, read)
            .await
    }

    /// Adds an attempt to the log, such as a test.
    #[boxed]
    pub async fn note_attempt(&self, webhook: &str, attempt: Attempt) -> Result<(), StoreError> {
        let args = (webhook.to_owned(), vec![attempt]);
        self.run_tx("note an attempt", args, |db, (webhook, attempts)| {
            Box::pin(add(db, webhook, attempts))
        })
        .await
    }
}

/// Adds attempts, and deletes the oldest ones.
pub(super) async fn add(
    db: &mut Db<'_>,
    webhook: &str,
    attempts: &[Attempt],
) -> Result<(), sqlx::Error> {
    if attempts.is_empty() {
        return Ok(());
    }
    let rows = attempts.iter().map(|it| -> [Value<'_>; 8] {
        [
            webhook.into(),
            it.at.into(),
            (&it.message_id).into(),
            it.events.into(),
            it.attempt.into(),
            it.status.map(i64::from).into(),
            (&it.error).into(),
            (it.took.as_millis() as u64).into(),
        ]
    });
    let into = sql!(
        "INSERT INTO webhook_attempts (webhook_id, at, message_id, events, attempt, status, error, took_ms)"
    );
    let types = [
        "text", "bigint", "text", "bigint", "bigint", "bigint", "text", "bigint",
    ];
    db.insert(into, types, sql!(""), rows).await?;
    let sql = sql!(
        "DELETE FROM webhook_attempts WHERE webhook_id = $1 AND id <= \
         (SELECT id FROM webhook_attempts WHERE webhook_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)"
    );
    db.run(sql, args![webhook, STORED]).await?;
    Ok(())
}

fn read(row: &Row) -> Result<(i64, Attempt), sqlx::Error> {
    let attempt = Attempt {
        at: row.get("at")?,
        message_id: row.get("message_id")?,
        events: row.get("events")?,
        attempt: row.get("attempt")?,
        status: row.find("status")?,
        error: row.find("error")?,
        took: Duration::from_millis(row.get("took_ms")?),
    };
    Ok((row.get("id")?, attempt))
}
