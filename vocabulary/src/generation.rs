//! The generation of a Redis data set: the proof that it is current.
//!
//! Redis can lose what it confirmed: a replica that lags is promoted, a snapshot is restored. A
//! redirect from such a data set was right not long ago, but "unknown" and "gone" may be wrong for
//! links that are live. The sidecar therefore states in one key of each data set how far it has this
//! data set; replication and snapshots carry the key with the data.
//!
//! ```text
//! 3 81540 1722
//! ```
//!
//! - **generation**: identity of the data set, 1 or more. It is raised when a data set is found that
//!   is not provably the one that was last written to.
//! - **watermark**: every change of a link or campaign whose sequence number is at most this one is
//!   in this data set.
//! - **beat**: grows about every [`BEAT_MS`] while the sidecar, connected to this data set, has
//!   verified the generation and nothing in SQL is overdue for Redis. It does not grow while changes
//!   are replayed.
//!
//! A reader takes a data set for current as long as it sees the beat grow. The first value that it
//! sees proves nothing: it may be old.

use alloc::vec::Vec;

use crate::number::{parse_decimal, push_decimal};
use crate::record::MAX_REVISION;

/// The time between two beats, in milliseconds.
pub const BEAT_MS: u64 = 500;

/// The value of a generation's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Identity of the data set: 1 to [`MAX_REVISION`].
    pub generation: u64,
    /// The changes up to this sequence number are in the data set; at most [`MAX_REVISION`].
    pub watermark: u64,
    /// Grows while the data set is current; at most [`MAX_REVISION`].
    pub beat: u64,
}

impl Generation {
    /// Reads a value; `None` when it is not one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = text.split(|&byte| byte == b' ');
        let mut number = || parse_decimal(fields.next()?).filter(|&number| number <= MAX_REVISION);
        let value = Self {
            generation: number().filter(|&generation| generation > 0)?,
            watermark: number()?,
            beat: number()?,
        };
        fields.next().is_none().then_some(value)
    }

    /// The text that [`Generation::parse`] reads. The caller keeps to the bounds that the fields
    /// name.
    pub fn to_vec(self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, end) in [
            (self.generation, &b" "[..]),
            (self.watermark, b" "),
            (self.beat, b""),
        ] {
            push_decimal(&mut out, number);
            out.extend_from_slice(end);
        }
        out
    }
}
