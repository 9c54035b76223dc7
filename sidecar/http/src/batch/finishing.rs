//! The end of a batch, which is stored before its answer ends.

use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt, stream};

use super::results::{Answer, Counts};

/// Stores the end of a batch with the outcomes of its rows; returns a last answer if that fails.
pub(super) type Finish = Box<dyn FnOnce(Counts) -> BoxFuture<'static, Option<Answer>> + Send>;

/// Passes answers on, and calls `finish` after the last one if all rows were read.
pub(super) fn finishing(
    answers: impl Stream<Item = Answer>,
    mut finish: Option<Finish>,
) -> impl Stream<Item = Answer> {
    let mut counts = Counts::default();
    answers
        .map(Some)
        .chain(stream::iter([None]))
        .filter_map(move |answer| {
            let mut ended = None;
            match &answer {
                Some(answer) if answer.is_cut_off => finish = None,
                Some(answer) => counts.add(answer.counts),
                None => ended = finish.take().map(|finish| finish(counts)),
            }
            async move {
                match ended {
                    Some(ended) => ended.await,
                    None => answer,
                }
            }
        })
}
