//! Live feeds of streams in memory, and frames for them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use shortlink_core::ports::{EntryId, PublishError, StreamBounds, TailBatch, VisitTail};
use shortlink_core::testing::{ManualClock, enrichment};
use shortlink_core::visit::visitor::DayKeys;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitEvent, VisitId, VisitMethod};

use crate::live::{LiveLimits, LiveParts, LiveVisits};
use tokio_util::sync::CancellationToken;

/// Streams in memory.
#[derive(Default)]
pub struct MemoryTail {
    streams: Mutex<Vec<MemoryStream>>,
    is_away: AtomicBool,
    reads: AtomicUsize,
    closed: AtomicUsize,
}

#[derive(Default)]
struct MemoryStream {
    entries: Vec<(EntryId, Vec<u8>)>,
    last: EntryId,
}

impl MemoryTail {
    /// Empty streams.
    pub fn new(streams: usize) -> Self {
        let tail = Self::default();
        let mut all = tail.streams.lock().expect("no holder panics");
        all.resize_with(streams, MemoryStream::default);
        drop(all);
        tail
    }

    /// Appends a batch to a stream.
    pub fn put(&self, stream: usize, ms: u64, frames: Vec<u8>) {
        let entry = EntryId { ms, number: 0 };
        let mut streams = self.streams.lock().expect("no holder panics");
        streams[stream].entries.push((entry, frames));
        streams[stream].last = entry;
    }

    /// Removes entries before a time.
    pub fn trim(&self, before: u64) {
        let mut streams = self.streams.lock().expect("no holder panics");
        for stream in &mut *streams {
            stream.entries.retain(|(entry, _)| entry.ms >= before);
        }
    }

    /// Takes them away or brings them back.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Loses everything.
    pub fn forget(&self) {
        let mut streams = self.streams.lock().expect("no holder panics");
        streams.fill_with(MemoryStream::default);
    }

    /// Number of times that its connection was closed.
    pub fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    /// Number of reads.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<(), PublishError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let operation = "look on at visits";
        let is_away = self.is_away.load(Ordering::SeqCst);
        (!is_away)
            .then_some(())
            .ok_or(PublishError::Away { operation })
    }
}

#[async_trait]
impl VisitTail for MemoryTail {
    fn streams(&self) -> u16 {
        self.streams.lock().expect("no holder panics").len() as u16
    }

    async fn bounds(&self) -> Result<Vec<StreamBounds>, PublishError> {
        self.check()?;
        let streams = self.streams.lock().expect("no holder panics");
        let bounds = streams.iter().map(|stream| StreamBounds {
            first: stream.entries.first().map(|(entry, _)| *entry),
            last: stream.last,
        });
        Ok(bounds.collect())
    }

    async fn read(
        &self,
        stream: u16,
        after: EntryId,
        most: usize,
    ) -> Result<Vec<TailBatch>, PublishError> {
        self.check()?;
        let streams = self.streams.lock().expect("no holder panics");
        let entries = streams[usize::from(stream)].entries.iter();
        let behind = entries.filter(|(entry, _)| *entry > after).take(most);
        let batches = behind.map(|(entry, frames)| TailBatch {
            stream,
            entry: *entry,
            frames: frames.clone(),
        });
        Ok(batches.collect())
    }

    fn close(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

/// The user agent of a phone.
pub const PHONE: &[u8] =
    b"Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 \
    (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1";
/// The user agent of a bot.
pub const BOT: &[u8] = b"curl/8.0";

/// 2026-06-01T12:00:00Z
const NOON_MS: u64 = 1_780_315_200_000;

/// The frame of a visit with the number `sequence`.
pub fn frame(sequence: u64, code: &str, host: &str, user_agent: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let event = VisitEvent {
        id: VisitId {
            origin: 7,
            sequence,
        },
        time_ms: NOON_MS,
        status: 302,
        method: VisitMethod::Get,
        code: code.as_bytes(),
        host: host.as_bytes(),
        client: b"192.0.2.7",
        user_agent,
        referrer: b"",
        accept_language: b"de",
        purpose: b"",
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    };
    event.write(&mut frame);
    frame
}

/// The frame of a visit from a phone.
pub fn tap(sequence: u64) -> Vec<u8> {
    frame(sequence, "abc", "s.example.com", PHONE)
}

/// Starts a feed of streams in memory.
pub fn start(
    tail: &Arc<MemoryTail>,
    keys: Arc<dyn DayKeys>,
    limits: LiveLimits,
) -> (Arc<LiveVisits>, CancellationToken) {
    let stop = CancellationToken::new();
    let feed = Arc::new(LiveVisits::new(LiveParts {
        tail: Arc::clone(tail) as _,
        keys,
        enrichment: Arc::new(enrichment()),
        clock: Arc::new(ManualClock::at("2026-06-01T12:00:00Z")),
        limits,
        stop: stop.clone(),
    }));
    tokio::spawn(Arc::clone(&feed).run());
    (feed, stop)
}
