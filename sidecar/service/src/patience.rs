//! Retries, so that a restart of the database does not end a job of hours.

use std::time::Duration;

use shortlink_core::ports::StoreError;

/// Runs an idempotent operation, with a retry after each of the pauses. `complain` receives each
/// error but the last.
pub(super) async fn again<T, F>(
    pauses: &[Duration],
    attempt: impl Fn() -> F,
    complain: impl Fn(&StoreError, Duration),
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for &pause in pauses {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => complain(&error, pause),
        }
        tokio::time::sleep(pause).await;
    }
    attempt().await
}
