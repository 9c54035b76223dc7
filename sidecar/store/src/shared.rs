//! Functions that both stores share.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shortlink_core::durations::DATABASE;
use shortlink_core::ports::{MAX_TOGETHER, OutboxSpan, StoreError};
use shortlink_core::trace;
use vocabulary::Code;

/// Time after which an operation is slow.
const SLOW: Duration = Duration::from_millis(500);

/// Minimum time between two log lines about slow operations: a disk that hangs slows all down.
const QUIET: Duration = Duration::from_secs(1);

/// Maximum distance between the ids of neighbouring links in a row of the outbox: codes that were
/// issued in sequence, with some gaps. All links between the first and the last of a row are
/// published, so none may be far from the others.
const NEAR: i64 = 62 * 8;

/// Maximum distance between the first and the last id of a row of the outbox.
pub(super) const LONGEST_SPAN: i64 = NEAR * MAX_TOGETHER as i64;

/// Milliseconds of a day, for the table of usage.
pub(super) const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The rows of the outbox for new links, given as ids and revisions in the order of the ids.
pub(super) fn spans(links: impl IntoIterator<Item = (i64, u64)>) -> Vec<OutboxSpan> {
    let mut spans: Vec<OutboxSpan> = Vec::new();
    for (id, revision) in links {
        match spans.last_mut() {
            Some(span) if id - span.last <= NEAR && span.revision == 1 && revision == 1 => {
                span.last = id;
            }
            _ => spans.push(OutboxSpan {
                first: id,
                last: id,
                revision,
            }),
        }
    }
    spans
}

/// Counts links, given as their codes and creation times in milliseconds, by the length of the code and
/// by day.
pub(super) fn usage<'a>(links: impl Iterator<Item = (&'a Code, i64)>) -> BTreeMap<(i64, i64), i64> {
    let mut counts = BTreeMap::new();
    for (code, created_at) in links {
        let day = created_at.div_euclid(DAY_MS);
        let length = code.as_bytes().len() as i64;
        *counts.entry((length, day)).or_default() += 1;
    }
    counts
}

/// The number of operations of this process that have failed.
static ERRORS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of operations of this process that have failed.
pub fn errors() -> u64 {
    ERRORS.load(Ordering::Relaxed)
}

/// Makes an error of an operation, and counts it.
pub(super) fn store_error(
    operation: &'static str,
    source: Arc<dyn Error + Send + Sync>,
) -> StoreError {
    ERRORS.fetch_add(1, Ordering::Relaxed);
    StoreError { operation, source }
}

/// Converts an error of an operation to a [`StoreError`].
pub(super) fn failed<E: Error + Send + Sync + 'static>(
    operation: &'static str,
) -> impl FnOnce(E) -> StoreError {
    move |error| store_error(operation, Arc::new(error))
}

/// Takes the time of something.
pub(super) async fn timed<T>(operation: &'static str, done: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let outcome = done.await;
    took(operation, begun.elapsed());
    outcome
}

/// Counts how long an operation took, and logs one that a request has waited for long: the log has its
/// trace.
pub(super) fn took(operation: &'static str, duration: Duration) {
    DATABASE.add(operation, duration);
    if duration < SLOW || trace::current().is_none() {
        return;
    }
    static LOGGED: Mutex<Option<Instant>> = Mutex::new(None);
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if logged.is_none_or(|logged| logged.elapsed() >= QUIET) {
        *logged = Some(Instant::now());
        tracing::warn!(
            operation,
            seconds = duration.as_secs_f64(),
            "the database was slow"
        );
    }
}
