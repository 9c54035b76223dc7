//! The check that the database takes changes.
//!
//! Reading does not reveal a full disk, a lock that another process holds, or a server that has become a replica. So a
//! note is written now and then. One attempt serves all requests of some seconds.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shortlink_core::boxed;
use shortlink_core::ports::StoreError;
use tokio::sync::Mutex;

use super::Store;
use super::shared::store_error;

/// For how long the outcome of an attempt is good.
const FRESH: Duration = Duration::from_secs(5);

/// Time limit of an attempt.
const LIMIT: Duration = Duration::from_millis(800);

/// The note that is written.
const NOTE: &str = "written";

/// The outcome of the last attempt, which all who ask meanwhile wait for.
#[derive(Debug, Default)]
pub(super) struct LastAttempt(Mutex<Option<(Instant, Result<(), StoreError>)>>);

impl Store {
    /// Reports whether the database takes changes, as of some seconds ago.
    ///
    /// # Errors
    /// When it does not, or not in time.
    #[boxed]
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        let mut last = self.last_attempt.0.lock().await;
        if let Some((at, outcome)) = &*last
            && at.elapsed() < FRESH
        {
            return outcome.clone();
        }
        let change = self.take_note(NOTE, Some("writable".to_owned()));
        let outcome = match tokio::time::timeout(LIMIT, change).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => {
                let slow = io::Error::from(io::ErrorKind::TimedOut);
                Err(store_error("store a change in time", Arc::new(slow)))
            }
        };
        *last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}
