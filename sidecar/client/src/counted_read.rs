//! Counts the bytes that a reader returns, for progress bars.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Moves `position` forward by the bytes that are read.
pub struct CountedRead<R> {
    /// The reader that is counted.
    pub reader: R,
    /// The number of bytes that were read.
    pub position: Arc<AtomicU64>,
}

impl<R: Read> Read for CountedRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
