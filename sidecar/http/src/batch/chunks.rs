//! Cuts a batch into chunks: rows whose links are created together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::BodyDataStream;
use futures_util::stream::{self, Peekable};
use futures_util::{Stream, StreamExt};
use shortlink_core::ports::MAX_TOGETHER;

use super::rows::{BrokenBody, RawRow, Rows};

/// The maximum size of a chunk's rows in bytes, which bounds chunks of long rows.
const CHUNK_BYTES: usize = 2 << 20;

/// The time that rows of an incomplete chunk wait for others.
const PATIENCE: Duration = Duration::from_millis(50);

/// The longest pause of a body. nginx allows a client the same.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Cuts a body into chunks while it arrives. `waits` fills chunks regardless of the delay: a retry
/// of a request must have the same chunks. `bytes` counts what is read of the body.
pub(super) fn chunks(
    body: Peekable<BodyDataStream>,
    rows: Rows,
    waits: bool,
    bytes: Arc<AtomicU64>,
) -> impl Stream<Item = RawChunk> {
    let reader = Reader {
        body,
        rows,
        read: Vec::new(),
        waits,
        bytes,
        next_index: 0,
        next_chunk: 0,
        end: None,
    };
    stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((chunk, reader))
    })
}

/// Rows whose links are created together.
pub(super) struct RawChunk {
    pub(super) number: u32,
    /// The index of the first row.
    pub(super) first_index: u64,
    pub(super) rows: Vec<RawRow>,
    /// The names of CSV values; values without a name are ignored.
    pub(super) names: Vec<Option<String>>,
    /// The reason why the rows end early.
    pub(super) broken: Option<BrokenBody>,
}

struct Reader {
    body: Peekable<BodyDataStream>,
    rows: Rows,
    /// Rows that do not belong to a chunk yet.
    read: Vec<RawRow>,
    waits: bool,
    bytes: Arc<AtomicU64>,
    next_index: u64,
    next_chunk: u32,
    /// The outcome of reading the body, once it has ended.
    end: Option<Result<(), BrokenBody>>,
}

impl Reader {
    async fn next(&mut self) -> Option<RawChunk> {
        let mut cut = self.cut();
        while cut == 0 && self.end.is_none() {
            let is_waited_for = !self.read.is_empty() && !self.waits;
            let patience = if is_waited_for {
                PATIENCE
            } else {
                LONGEST_PAUSE
            };
            let part = match tokio::time::timeout(patience, self.body.next()).await {
                Ok(part) => part.map(|part| part.map_err(|_broken| BrokenBody::from("broke off"))),
                Err(_elapsed) if is_waited_for => {
                    cut = self.read.len();
                    break;
                }
                Err(_elapsed) => Some(Err(BrokenBody::from("paused for five minutes"))),
            };
            let pushed = match part {
                Some(Ok(part)) => {
                    self.bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
                    self.rows.push(&part, &mut self.read)
                }
                Some(Err(broken)) => {
                    // A partial chunk would differ from the complete one that a retry sends.
                    if self.waits {
                        self.read.clear();
                    }
                    Err(broken)
                }
                None => {
                    self.end = Some(Ok(()));
                    self.rows.finish(&mut self.read)
                }
            };
            if let Err(broken) = pushed {
                self.end = Some(Err(broken));
            }
            cut = self.cut();
        }
        if cut == 0 {
            cut = self.read.len();
        }
        let rest = self.read.split_off(cut);
        let rows = std::mem::replace(&mut self.read, rest);
        // Reported once, after the last row.
        let broken = match &mut self.end {
            Some(end) if self.read.is_empty() => std::mem::replace(end, Ok(())).err(),
            _ => None,
        };
        if rows.is_empty() && broken.is_none() {
            return None;
        }
        let chunk = RawChunk {
            number: self.next_chunk,
            first_index: self.next_index,
            names: self.rows.names().to_vec(),
            rows,
            broken,
        };
        self.next_chunk += 1;
        self.next_index += chunk.rows.len() as u64;
        Some(chunk)
    }

    /// The number of read rows that fill a chunk; 0 if they do not fill one. Only the rows
    /// determine it.
    fn cut(&self) -> usize {
        let mut bytes = 0;
        for (place, row) in self.read.iter().enumerate() {
            bytes += row.len();
            if place + 1 == MAX_TOGETHER || bytes >= CHUNK_BYTES {
                return place + 1;
            }
        }
        0
    }
}
