//! Counters of the workers, and their Prometheus text.
//!
//! The numbers lie in memory that all worker processes share, divided into slots: each worker
//! writes to a slot of its own, so that no two wait for the same cache line, and the worker that
//! renders the text adds the slots up. The slots outlive their workers: a total never goes back,
//! over reloads and crashes, until nginx itself is stopped. (The new nginx of a binary upgrade has
//! memory of its own and begins at 0.)
//!
//! A slot is a header, which says who owns it, and the numbers. Counters and the histogram are
//! never set back, so that it does not matter when a worker is killed. Gauges say how things
//! are; those of a slot whose owner is dead are not shown, and its next owner begins with 0.
//!
//! The number of visits that a worker holds is not stored but derived from its counters: so it is
//! right at any moment, and the remainder in the slot of a dead owner is what was lost.
//!
//! - `names`: every metric with its name, its help and its labels, in one table.
//! - `requests`: how requests were answered, and by whom.
//! - `render`: the text.

mod names;
mod render;
mod requests;

use std::sync::atomic::{AtomicU64, Ordering};

pub use names::{Counter, Gauge};
pub use requests::{Outcome, Source};

/// The number of workers with a slot of their own. During a reload there are those of both
/// generations, and more when long connections hold older ones.
const SLOTS: usize = 64;

/// The histogram's upper bounds, inclusive: in microseconds, and in seconds as the text shows
/// them. The last bucket has no bound.
const BOUNDS: [(u64, &str); 13] = [
    (50, "0.00005"),
    (100, "0.0001"),
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (1_000_000, "1"),
];

// Where a slot's numbers begin, in words. The first word is the header.
const REQUESTS: usize = 1;
const COUNTERS: usize = REQUESTS + Outcome::ALL.len() * Source::ALL.len();
const GAUGES: usize = COUNTERS + Counter::COUNT;
const BUCKETS: usize = GAUGES + Gauge::COUNT;
const SUM: usize = BUCKETS + BOUNDS.len() + 1;

/// A slot's size: whole cache lines of 64 bytes.
const SLOT_WORDS: usize = (SUM + 1).next_multiple_of(8);

/// The number of words of shared memory that the numbers take.
pub const WORDS: usize = SLOTS * SLOT_WORDS;

type Slot = [AtomicU64; SLOT_WORDS];

/// Claim of a slot: the owner's process number in the lower half, 0 if it was never claimed, and
/// the number of claims in the upper half, so that no two claims have one header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header(u64);

impl Header {
    fn of(slot: &Slot) -> Self {
        Self(slot[0].load(Ordering::Relaxed))
    }

    /// The owner's process number.
    fn owner(self) -> u32 {
        self.0 as u32
    }

    /// The header after a claim.
    fn claimed_by(self, process: u32) -> Self {
        let generation = (self.0 >> 32).wrapping_add(1);
        Self(generation << 32 | u64::from(process))
    }
}

/// The numbers of all workers, in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Counters<'a> {
    slots: &'a [Slot; SLOTS],
}

impl<'a> Counters<'a> {
    /// A view of the numbers that lie in the first [`WORDS`] of `words`, which were 0 when the
    /// first process began; `None` when there are fewer. Slots keep off each other's cache lines
    /// when the memory begins at a multiple of 64 bytes.
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        let (slots, _) = words.as_chunks();
        Some(Self {
            slots: slots.first_chunk()?,
        })
    }

    /// Takes a slot for the calling worker: one that it owns already, or a free one, or one whose
    /// owner is dead. `process` is the worker's process number, not 0; `is_alive` reports whether a
    /// process number is in use.
    ///
    /// If all slots have living owners, the worker counts in the last one, which loses nothing
    /// because all workers add atomically; its gauges are not shown and it does not count among the
    /// workers shown.
    pub fn claim(&self, process: u32, is_alive: impl Fn(u32) -> bool) -> WorkerCounters<'a> {
        // A slot with our number is ours, or that of a dead worker whose number we have got.
        let ours = |header: Header| header.owner() == process;
        let free = |header: Header| header.owner() == 0 || !is_alive(header.owner());
        let (index, header) = self
            .claim_where(process, ours)
            .or_else(|| self.claim_where(process, free))
            .unwrap_or((SLOTS - 1, None));
        let slot = &self.slots[index];
        if header.is_some() {
            // The visits of its last owner were lost with it.
            let lost = &slot[COUNTERS + Counter::VisitLost as usize];
            lost.fetch_add(held_visits(slot), Ordering::Relaxed);
            // A worker that is killed before this is done leaves gauges that are never shown.
            for gauge in &slot[GAUGES..BUCKETS] {
                gauge.store(0, Ordering::Relaxed);
            }
        }
        WorkerCounters {
            slot,
            index,
            header,
        }
    }

    /// Takes the first slot that suits. A worker that loses a slot to another tries the next.
    fn claim_where(
        &self,
        process: u32,
        suits: impl Fn(Header) -> bool,
    ) -> Option<(usize, Option<Header>)> {
        self.slots.iter().enumerate().find_map(|(index, slot)| {
            let old = Header::of(slot);
            let new = old.claimed_by(process);
            let claimed = suits(old)
                && slot[0]
                    .compare_exchange(old.0, new.0, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            claimed.then_some((index, Some(new)))
        })
    }
}

/// Appends the numbers of each Redis, by its name, in Prometheus' text format 0.0.4, which is served
/// as `text/plain; version=0.0.4`; always in the same order. Those of a Redis without a name have no
/// label `redis`. Numbers that workers change meanwhile are taken as they are found. `unix` is the
/// time, in seconds since 1970.
pub fn render(
    all: &[(&str, Counters<'_>)],
    is_alive: impl Fn(u32) -> bool,
    unix: u64,
    out: &mut String,
) {
    let all: Vec<_> = all
        .iter()
        .map(|(name, counters)| render::Numbers::copy(name, counters.slots, &is_alive))
        .collect();
    render::render(&all, unix, out);
}

/// The visits that a slot's owner holds in memory: those that came in and did not go elsewhere.
fn held_visits(slot: &Slot) -> u64 {
    let sum = |counters: &[Counter]| {
        counters
            .iter()
            .map(|&counter| slot[COUNTERS + counter as usize].load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    };
    let gone = sum(&[
        Counter::VisitStored,
        Counter::VisitSpooled,
        Counter::VisitNoMemory,
        Counter::VisitNoSpool,
        Counter::VisitAtExit,
        Counter::VisitLost,
    ]);
    let come = sum(&[Counter::VisitUnspooled, Counter::Visit]);
    // Workers that share a slot can make a mess of it, but not a number beyond all bounds.
    u64::try_from(come.wrapping_sub(gone) as i64).unwrap_or(0)
}

/// Counters of one worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerCounters<'a> {
    slot: &'a Slot,
    index: usize,
    /// The slot's header while it is this worker's own; `None` when it is another's.
    header: Option<Header>,
}

impl WorkerCounters<'_> {
    /// The number of the worker's slot, from 0.
    pub fn slot(&self) -> usize {
        self.index
    }

    /// Reports whether the worker has a slot of its own.
    pub fn is_own(&self) -> bool {
        self.header == Some(Header::of(self.slot))
    }

    /// Counts a request when it is done.
    #[inline]
    pub fn count_request(&self, outcome: Outcome, source: Source) {
        self.add_at(REQUESTS + requests::index(outcome, source), 1);
    }

    /// Counts one.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts several at once.
    #[inline]
    pub fn add(&self, counter: Counter, count: u64) {
        self.add_at(COUNTERS + counter as usize, count);
    }

    /// Says how things are now; without effect in a slot that is another's.
    #[inline]
    pub fn set(&self, gauge: Gauge, value: u64) {
        if self.is_own() {
            self.slot[GAUGES + gauge as usize].store(value, Ordering::Relaxed);
        }
    }

    /// Counts `count` replies of Redis that took `micros` microseconds each.
    #[inline]
    pub fn observe(&self, micros: u64, count: u64) {
        let bucket = BOUNDS.iter().take_while(|&&(bound, _)| micros > bound);
        self.add_at(BUCKETS + bucket.count(), count);
        self.add_at(SUM, micros.wrapping_mul(count));
    }

    /// Adds atomically, because a slot may be shared; and in order, because those of visits are
    /// held against each other.
    #[inline]
    fn add_at(&self, place: usize, count: u64) {
        self.slot[place].fetch_add(count, Ordering::Release);
    }
}
