//! Visits on their way to Redis: what a worker has recorded and Redis has not confirmed yet.
//!
//! Events are written one behind the other into an open batch. A batch is closed when it is full,
//! or when its first event is old enough and it can be sent, and goes out as one entry of a stream
//! (`XADD`). It stays in memory until Redis confirms it, and is retried after a lost connection or
//! an error with the same events under the same names, so that the consumer can deduplicate them.
//!
//! Nothing here grows without bound. Overflow is handed to the owner, who may write it to a file
//! ([`spool`]), or is refused. The time is passed in, nothing is read or written.

pub mod spool;

use std::collections::VecDeque;

use vocabulary::KeyPrefix;
use vocabulary::visit::{BATCH_FIELD, MAX_FRAME_LENGTH, VisitEvent, VisitId};

use crate::node_id::NodeId;

/// The most batches that are under way at once: reads wait behind no more than these.
const MOST_SENT: usize = 4;

/// Approximate memory of a batch besides its frames, in bytes.
const BATCH_OVERHEAD: usize = 96;

/// The first wait after Redis has refused a batch, in milliseconds; it doubles from there.
const FIRST_BACKOFF: u64 = 100;

/// The longest wait after Redis has refused a batch, in milliseconds.
const LONGEST_BACKOFF: u64 = 5000;

/// Interval of the search for a destination, in milliseconds.
const LOOK_AGAIN: u64 = 200;

/// Time for which an ending worker waits for the confirmation of sent batches, in milliseconds.
const GRACE: u64 = 1000;

/// The least time between two batches out of a file, in milliseconds: what has waited in a file
/// may wait a little longer, and Redis is just back.
const SPOOL_PACE: u64 = 10;

/// The most redirections of a batch from node to node of a cluster.
const MAX_REDIRECTIONS: u8 = 5;

/// Settings of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitSettings {
    /// The most events of a batch.
    pub batch: u32,
    /// Size in bytes at which a batch is full.
    pub bytes: usize,
    /// Age of a batch's first event at which it is sent, in milliseconds.
    pub interval: u64,
    /// The most memory that events take until Redis has confirmed them, in bytes.
    pub buffer: usize,
    /// Over how many streams workers spread.
    pub streams: u16,
}

impl VisitSettings {
    /// The most events that a batch may have.
    pub const MOST_BATCH: u32 = 10_000;
    /// The least and most bytes that may make a batch full.
    pub const BYTES: (usize, usize) = (1 << 10, 1 << 20);
    /// The longest that a batch may wait, in milliseconds.
    pub const LONGEST_INTERVAL: u64 = 60_000;
    /// The least and most memory.
    pub const BUFFER: (usize, usize) = (64 << 10, 4 << 30);
    /// The most streams.
    pub const MOST_STREAMS: u16 = 1024;
}

impl Default for VisitSettings {
    fn default() -> Self {
        Self {
            batch: 100,
            bytes: 32 << 10,
            interval: 200,
            buffer: 8 << 20,
            streams: 1,
        }
    }
}

/// Names a batch that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchId(u32);

/// Result of recording an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is stored.
    Kept,
    /// It is stored, and is the first of its batch: [`Visits::deadline`] has changed.
    First,
    /// It is stored, and a batch is due.
    Full,
    /// The buffer was full.
    Dropped,
}

/// A batch that Redis has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The number of its events.
    pub events: u32,
    /// Set when it came out of a file.
    pub is_spooled: bool,
}

/// Batches that were copied out to free memory: the oldest that are not under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    batches: usize,
    /// The number of their events.
    pub events: u64,
}

#[derive(Debug)]
struct Batch {
    id: BatchId,
    frames: Vec<u8>,
    events: u32,
    /// Set when it is also in a file.
    is_spooled: bool,
    /// Node that it was sent to, while it is under way.
    node: Option<NodeId>,
    redirections: u8,
}

impl Batch {
    fn bytes(&self) -> usize {
        self.frames.len() + BATCH_OVERHEAD
    }
}

/// A worker's visits.
#[derive(Debug)]
pub struct Visits {
    settings: VisitSettings,
    origin: u64,
    sequence: u64,
    /// The shard of the stream that this worker writes to.
    shard: u16,
    /// `XADD` up to the length of the frames.
    head: Vec<u8>,
    open: Vec<u8>,
    open_events: u32,
    open_since: u64,
    /// Batches to be sent, the oldest first.
    waiting: VecDeque<Batch>,
    /// Batches under way.
    sent: Vec<Batch>,
    next_id: u32,
    /// Events in memory that stand in no file.
    held: u64,
    /// Size of `waiting` and `sent`.
    bytes: usize,
    /// Nothing is sent before.
    retry_at: u64,
    /// Refusals in a row.
    failures: u32,
    jitter: u64,
    /// Until when an ending worker waits.
    drain_until: Option<u64>,
    /// The next batch out of a file is not taken before.
    spool_at: u64,
    /// Set while a batch out of a file is in `waiting` or `sent`.
    has_spooled: bool,
}

impl Visits {
    /// Begins with nothing. `origin` is a random number that no other worker has.
    pub fn new(settings: &VisitSettings, prefix: &KeyPrefix, origin: u64) -> Self {
        let shard = (origin % u64::from(settings.streams.max(1))) as u16;
        let key = prefix.visit_stream_key(shard);
        let head = format!(
            "*5\r\n$4\r\nXADD\r\n${}\r\n{key}\r\n$1\r\n*\r\n${}\r\n{BATCH_FIELD}\r\n$",
            key.len(),
            BATCH_FIELD.len(),
        );
        Self {
            settings: *settings,
            origin,
            sequence: 0,
            shard,
            head: head.into_bytes(),
            open: Vec::new(),
            open_events: 0,
            open_since: 0,
            waiting: VecDeque::new(),
            sent: Vec::new(),
            next_id: 0,
            held: 0,
            bytes: 0,
            retry_at: 0,
            failures: 0,
            jitter: origin | 1,
            drain_until: None,
            spool_at: 0,
            has_spooled: false,
        }
    }

    /// Returns the settings of batches.
    pub fn settings(&self) -> &VisitSettings {
        &self.settings
    }

    /// The shard of the stream that is written to.
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// Returns the number of events in memory that are not in a file as well.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// The memory that is taken, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.open.len()
    }

    /// Reports whether the next event may not fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.bytes() + MAX_FRAME_LENGTH + 2 * BATCH_OVERHEAD > self.settings.buffer
    }

    /// Records an event under the next name; what stands in its `id` does not matter.
    #[inline]
    pub fn record(&mut self, mut event: VisitEvent<'_>, now: u64) -> Recorded {
        event.id = VisitId {
            origin: self.origin,
            sequence: self.sequence,
        };
        self.sequence += 1;
        if self.is_full() {
            return Recorded::Dropped;
        }
        event.write(&mut self.open);
        self.open_events += 1;
        self.held += 1;
        if self.open_events == 1 {
            self.open_since = now;
        }
        if let Some(until) = &mut self.drain_until {
            *until = now + GRACE;
        }
        if self.open_events >= self.settings.batch || self.open.len() >= self.settings.bytes {
            self.close();
            Recorded::Full
        } else if self.drain_until.is_some() {
            Recorded::Full
        } else if self.open_events == 1 {
            Recorded::First
        } else {
            Recorded::Kept
        }
    }

    /// Closes the open batch: an exact copy is stored, so that the memory in use is what is
    /// counted.
    fn close(&mut self) {
        let frames = self.open.clone();
        self.open.clear();
        let events = std::mem::take(&mut self.open_events);
        self.push(frames, events, false);
    }

    fn push(&mut self, frames: Vec<u8>, events: u32, is_spooled: bool) {
        let batch = Batch {
            id: BatchId(self.next_id),
            frames,
            events,
            is_spooled,
            node: None,
            redirections: 0,
        };
        self.next_id = self.next_id.wrapping_add(1);
        self.bytes += batch.bytes();
        self.waiting.push_back(batch);
    }

    /// Reports whether the open batch is to be sent although it is not full.
    fn is_open_due(&self, now: u64) -> bool {
        self.open_events > 0
            && (self.drain_until.is_some() || now >= self.open_since + self.settings.interval)
    }

    /// Reports whether a batch is to be sent now, given a destination.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.retry_at
            && self.sent.len() < MOST_SENT
            && (!self.waiting.is_empty() || self.is_open_due(now))
    }

    /// Returns the time of the next call of [`Visits::is_due`]; `None` while only a reply can
    /// change it.
    #[inline]
    pub fn deadline(&self) -> Option<u64> {
        if self.sent.len() >= MOST_SENT {
            return None;
        }
        let at = if !self.waiting.is_empty() {
            0
        } else if self.open_events == 0 {
            return None;
        } else if self.drain_until.is_some() {
            0
        } else {
            self.open_since + self.settings.interval
        };
        Some(at.max(self.retry_at))
    }

    /// Takes the next batch to be sent, which then is under way to `node`; `None` when none is due.
    pub fn send(&mut self, node: NodeId, now: u64) -> Option<BatchId> {
        if !self.is_due(now) {
            return None;
        }
        if self.waiting.is_empty() {
            self.close();
        }
        let mut batch = self.waiting.pop_front()?;
        let id = batch.id;
        batch.node = Some(node);
        self.sent.push(batch);
        Some(id)
    }

    /// Appends the command that stores a batch which is under way.
    pub fn write(&self, id: BatchId, out: &mut Vec<u8>) {
        if let Some(batch) = self.sent.iter().find(|batch| batch.id == id) {
            out.reserve(self.head.len() + batch.frames.len() + 16);
            out.extend_from_slice(&self.head);
            out.extend_from_slice(format!("{}\r\n", batch.frames.len()).as_bytes());
            out.extend_from_slice(&batch.frames);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Notes that there is no destination now.
    pub fn postpone(&mut self, now: u64) {
        self.retry_at = self.retry_at.max(now + LOOK_AGAIN);
    }

    /// Notes that there is a destination again.
    pub fn retry(&mut self) {
        self.failures = 0;
        self.retry_at = 0;
    }

    fn take_sent(&mut self, id: BatchId) -> Option<Batch> {
        let index = self.sent.iter().position(|batch| batch.id == id)?;
        Some(self.sent.remove(index))
    }

    /// Redis has a batch: it is forgotten.
    pub fn confirmed(&mut self, id: BatchId) -> Option<Confirmed> {
        let batch = self.take_sent(id)?;
        self.failures = 0;
        self.bytes -= batch.bytes();
        if batch.is_spooled {
            self.has_spooled = false;
        } else {
            self.held -= u64::from(batch.events);
        }
        Some(Confirmed {
            events: batch.events,
            is_spooled: batch.is_spooled,
        })
    }

    /// Handles the refusal of a batch: it is retried after a wait that doubles with every refusal
    /// in a row.
    pub fn refused(&mut self, id: BatchId, now: u64) {
        let Some(batch) = self.take_sent(id) else {
            return;
        };
        self.put_back(batch);
        // Those that were under way with it are no further refusals.
        if now >= self.retry_at {
            let doubled = FIRST_BACKOFF << self.failures.min(10);
            self.failures += 1;
            self.retry_at = now + self.spread(doubled.min(LONGEST_BACKOFF));
        }
    }

    /// Notes that a batch is on its way to another node of a cluster; `false` when it was sent on
    /// too often already.
    pub fn forward(&mut self, id: BatchId, node: NodeId) -> bool {
        let Some(batch) = self.sent.iter_mut().find(|batch| batch.id == id) else {
            return false;
        };
        batch.redirections += 1;
        batch.node = Some(node);
        batch.redirections <= MAX_REDIRECTIONS
    }

    /// Handles a lost connection to a node: it is unknown what the node had received, so the
    /// batches under way there are retried. Returns their number.
    pub fn lost(&mut self, node: NodeId) -> u64 {
        let (lost, sent) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|batch| batch.node == Some(node));
        self.sent = sent;
        let mut count = 0;
        // The first that was sent comes to stand first.
        for batch in <Vec<Batch>>::into_iter(lost).rev() {
            self.put_back(batch);
            count += 1;
        }
        count
    }

    fn put_back(&mut self, mut batch: Batch) {
        batch.node = None;
        batch.redirections = 0;
        self.waiting.push_front(batch);
    }

    /// Anything between half of a wait and the whole, so that workers do not return in step.
    fn spread(&mut self, wait: u64) -> u64 {
        // Xorshift: any spread will do.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        wait / 2 + self.jitter % (wait / 2 + 1)
    }

    /// Begins the end of the worker: batches are sent without waiting for further events. The grace
    /// period counts from the first call, or from the last event.
    pub fn drain(&mut self, now: u64) {
        self.drain_until.get_or_insert(now + GRACE);
    }

    /// Until when an ending worker waits for what it has sent; `None` when it need not.
    pub fn drains_until(&self, now: u64) -> Option<u64> {
        self.drain_until
            .filter(|&until| self.held > 0 && now < until)
    }

    /// Copies the oldest batches that are not under way, at least `least` bytes of them if there
    /// are so many, for the owner to put them elsewhere and then to call [`Visits::spilled`].
    pub fn overflow(&self, least: usize, out: &mut Vec<u8>) -> Overflow {
        let mut overflow = Overflow {
            batches: 0,
            events: 0,
        };
        let begin = out.len();
        for batch in self.waiting.iter().filter(|batch| !batch.is_spooled) {
            if out.len() - begin >= least {
                break;
            }
            out.extend_from_slice(&batch.frames);
            overflow.batches += 1;
            overflow.events += u64::from(batch.events);
        }
        overflow
    }

    /// Forgets what [`Visits::overflow`] has copied since anything else was done.
    pub fn spilled(&mut self, overflow: Overflow) {
        let mut left = overflow.batches;
        let (bytes, held) = (&mut self.bytes, &mut self.held);
        self.waiting.retain(|batch| {
            if batch.is_spooled || left == 0 {
                return true;
            }
            left -= 1;
            *bytes -= batch.bytes();
            *held -= u64::from(batch.events);
            false
        });
    }

    /// Says that the worker ends and no reply will be read any more: all that is not confirmed
    /// waits, for [`Visits::overflow`] to copy it.
    pub fn leave(&mut self) {
        for batch in std::mem::take(&mut self.sent).into_iter().rev() {
            self.put_back(batch);
        }
        if self.open_events > 0 {
            self.close();
        }
    }

    /// Returns the time from which the next batch out of a file may be sent, which happens one at a
    /// time and only while Redis accepts visits and no other batch waits. `None` while only a reply
    /// can change it.
    pub fn spooled_at(&self) -> Option<u64> {
        let is_idle = self.waiting.is_empty() && !self.has_spooled && self.drain_until.is_none();
        is_idle.then(|| self.spool_at.max(self.retry_at))
    }

    /// Takes frames out of a file, to be sent like others.
    pub fn push_spooled(&mut self, frames: &[u8], events: u32, now: u64) {
        self.has_spooled = true;
        self.spool_at = now + SPOOL_PACE;
        self.push(frames.to_vec(), events, true);
    }
}
