//! Filters the streams for each listener.
//!
//! Reading an event costs next to nothing; converting it to a visit does not. So it is converted
//! only when it is delivered, and once for all listeners. A filter by class needs the visit before
//! it decides; one limit bounds these conversions for all listeners together.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::Timestamp;
use lru::LruCache;
use shortlink_core::ports::TailBatch;
use shortlink_core::visit::visitor::LiveKeys;
use shortlink_core::visit::{Enrichment, arrive};
use vocabulary::visit::{VisitEvent, VisitFrames, VisitId};

use super::listener::Queue;
use super::{LiveFilter, LiveId, LiveVisit};

/// The most conversions per second to filter by class, for all listeners together.
const JUDGED_PER_S: NonZeroU32 = NonZeroU32::new(10_000).expect("more than none");

/// Number of visits remembered for deduplication: the edge writes a batch again when its
/// confirmation was lost.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(8192).expect("more than none");

/// Dependencies of the conversion.
pub(super) struct Making {
    pub(super) enrichment: Arc<Enrichment>,
    pub(super) keys: LiveKeys,
    pub(super) now: Timestamp,
}

impl Making {
    /// Converts an event to a visit; `None` when the event is invalid.
    fn visit(&self, id: LiveId, event: &VisitEvent<'_>) -> Option<Arc<LiveVisit>> {
        let (event, _) = arrive(event, self.now);
        let visit = self.enrichment.visit(&event, &self.keys).ok()?;
        Some(Arc::new(LiveVisit { id, visit }))
    }
}

/// Delivers visits to listeners.
pub(super) struct Sieve {
    seen: LruCache<VisitId, ()>,
    judged: DefaultDirectRateLimiter,
}

impl Sieve {
    pub(super) fn new() -> Self {
        Self {
            seen: LruCache::new(REMEMBERED),
            judged: RateLimiter::direct(Quota::per_second(JUDGED_PER_S)),
        }
    }

    /// Delivers the matching visits of new batches to listeners.
    pub(super) fn pass(&mut self, batches: &[TailBatch], queues: &[Arc<Queue>], making: &Making) {
        for (id, event) in batches.iter().flat_map(events) {
            if self.seen.put(event.id, ()).is_none() {
                self.pass_one(id, &event, queues, making);
            }
        }
    }

    fn pass_one(
        &mut self,
        id: LiveId,
        event: &VisitEvent<'_>,
        queues: &[Arc<Queue>],
        making: &Making,
    ) {
        let mut made = None;
        for queue in queues.iter().filter(|queue| queue.filter.may_want(event)) {
            if let Some(class) = queue.filter.class {
                if made.is_none() && self.judged.check().is_err() {
                    queue.leave_out();
                    continue;
                }
                let visit = made.get_or_insert_with(|| making.visit(id, event));
                let Some(visit) = visit else { return };
                if visit.visit.classification.class != class {
                    continue;
                }
            }
            if !queue.admits() {
                continue;
            }
            match made.get_or_insert_with(|| making.visit(id, event)) {
                Some(visit) => queue.put(Arc::clone(visit)),
                None => return,
            }
        }
    }
}

/// Returns the visits of earlier batches that match a listener's filter, after position `after` and
/// at most `most`, and true when these are all.
pub(super) fn missed(
    batches: &[TailBatch],
    after: LiveId,
    most: usize,
    filter: &LiveFilter,
    making: &Making,
) -> (Vec<Arc<LiveVisit>>, bool) {
    let mut visits = Vec::new();
    for (id, event) in batches.iter().flat_map(events) {
        let is_same_entry = (id.stream, id.entry) == (after.stream, after.entry);
        if (is_same_entry && id.place <= after.place) || !filter.may_want(&event) {
            continue;
        }
        let Some(visit) = making.visit(id, &event) else {
            continue;
        };
        let class = visit.visit.classification.class;
        if filter.class.is_some_and(|wanted| wanted != class) {
            continue;
        }
        if visits.len() == most {
            return (visits, false);
        }
        visits.push(visit);
    }
    (visits, true)
}

/// Returns the valid events of a batch with the positions of their visits.
fn events(batch: &TailBatch) -> impl Iterator<Item = (LiveId, VisitEvent<'_>)> {
    let frames: Vec<_> = VisitFrames::new(&batch.frames).collect();
    let count = frames.len();
    let named = frames.into_iter().enumerate().map(move |(place, event)| {
        // The size of a batch is limited by Redis, and each frame takes more than one byte.
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let id = LiveId {
            stream: batch.stream,
            entry: batch.entry,
            place: number(place),
            rest: number(count - 1 - place),
        };
        (id, event)
    });
    named.filter_map(|(id, event)| Some((id, event.ok()?)))
}
