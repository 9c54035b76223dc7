//! Ends a batch whose rows are refused one after the other: its answer would only fill a disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{Stream, StreamExt, future, stream};

use super::results::{Answer, result_of_problem};
use crate::problem::Problem;

/// The number of rows that are refused one after the other before a batch ends. Rows that are in progress then still
/// have their results.
const MAX_REFUSED: u64 = 10_000;

/// Passes answers on. After [`MAX_REFUSED`] refused rows it raises `has_ended`, so that no more rows are read, and the
/// last result is about all rows that follow.
pub(super) fn until_futile(
    answers: impl Stream<Item = Answer>,
    has_ended: Arc<AtomicBool>,
) -> impl Stream<Item = Answer> {
    let (mut refused, mut rows) = (0, 0);
    answers
        .map(Some)
        .chain(stream::iter([None]))
        .filter_map(move |answer| {
            let Some(answer) = answer else {
                let ended = has_ended.load(Ordering::Relaxed);
                return future::ready(ended.then(|| unread(rows)));
            };
            rows += answer.counts.rows;
            refused = match answer.counts.is_refused() {
                true => refused + answer.counts.rows,
                false => 0,
            };
            if refused >= MAX_REFUSED {
                has_ended.store(true, Ordering::Relaxed);
            }
            future::ready(Some(answer))
        })
}

fn unread(rows: u64) -> Answer {
    let problem = Problem::futile(format!(
        "{MAX_REFUSED} rows were refused one after the other. Rows from index {rows} on were not read: correct the \
         rows, then send them again."
    ));
    Answer {
        results: vec![result_of_problem(None, &problem)],
        is_cut_off: true,
        ..Answer::default()
    }
}
