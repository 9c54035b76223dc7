//! Work of hours does not end because a database was restarted.

use std::time::Duration;

use crate::core::ports::StoreError;

/// Does something, again after each of the pauses if it fails: all of it can be done again.
/// `complain` is told of each failure but the last.
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
