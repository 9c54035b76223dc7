//! The format of the files that hold visits while Redis takes none.
//!
//! ```text
//! file   := "SLVISIT1" done(8 bytes, little endian) frame*
//! ```
//!
//! Frames are those of the [visit events](vocabulary::visit), appended and never changed. `done`
//! is the offset of the first frame that Redis has not confirmed; only it is overwritten. A file
//! whose writer was killed may end within a frame, whose event was never counted.

use vocabulary::visit::VisitFrames;

/// Beginning of every file.
const MAGIC: &[u8; 8] = b"SLVISIT1";

/// Offset of `done`.
pub const DONE_OFFSET: u64 = MAGIC.len() as u64;

/// Length of the header, and offset of the first frame.
pub const HEADER_LENGTH: usize = MAGIC.len() + 8;

/// The header of a file of whose frames none is confirmed.
pub fn header() -> [u8; HEADER_LENGTH] {
    let mut header = [0; HEADER_LENGTH];
    header[..8].copy_from_slice(MAGIC);
    header[8..].copy_from_slice(&(HEADER_LENGTH as u64).to_le_bytes());
    header
}

/// Reads a header: where the first frame stands that is not confirmed. `None` when it is none.
pub fn read_header(bytes: &[u8; HEADER_LENGTH]) -> Option<u64> {
    let (magic, done) = bytes.split_at(8);
    let done = u64::from_le_bytes(done.try_into().ok()?);
    (magic == MAGIC && done >= HEADER_LENGTH as u64).then_some(done)
}

/// The whole frames that bytes begin with: how long they are and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// Their length in bytes.
    pub length: usize,
    /// Their number.
    pub frames: u32,
}

/// Finds the whole frames that bytes begin with, up to about `most` bytes but at least one.
///
/// A frame that is whole but can't be read counts as well: the consumer quarantines frames of
/// another version.
pub fn whole_frames(bytes: &[u8], most: usize) -> Whole {
    let mut whole = Whole::default();
    let mut frames = VisitFrames::new(bytes);
    while whole.length < most {
        match frames.next() {
            None | Some(Err(vocabulary::visit::VisitError::Cut(_))) => break,
            Some(_) => {
                whole.length = bytes.len() - frames.rest().len();
                whole.frames += 1;
            }
        }
    }
    whole
}
