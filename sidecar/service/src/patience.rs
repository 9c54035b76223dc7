//! Retries, so that a restart of the database does not end a job of hours.

use std::error::Error;
use std::time::Duration;

use shortlink_core::ports::StoreError;

/// Runs an idempotent operation, with a retry after each of the pauses. `failure` is logged for each
/// error but the last.
pub(super) async fn again<T, F>(
    pauses: &[Duration],
    failure: &str,
    attempt: impl Fn() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for &pause in pauses {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => {
                let error = &error as &dyn Error;
                let pause_ms = pause.as_millis();
                tracing::warn!(error, pause_ms, "{failure}; trying again");
            }
        }
        tokio::time::sleep(pause).await;
    }
    attempt().await
}
