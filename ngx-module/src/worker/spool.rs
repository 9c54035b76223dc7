//! Files that hold visits while Redis takes none.
//!
//! A file is written by one worker, which holds a lock on it that the kernel releases when the
//! worker is gone, however it went. Any worker may claim a file that is not locked. It then holds
//! the lock, sends the file's content and removes it. So no file is shared, and a living worker
//! sends those of dead ones.
//!
//! Writing and reading happen in the worker's loop. That is bearable because it is rare (Redis is
//! away for longer than memory lasts, or just back) and because what is written goes to the
//! system's memory, 128 KB at a time, and is not waited for to be on the disk. A disk that makes
//! it wait nevertheless gets no writes for a while.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use resolver::visits::spool::{DONE_OFFSET, HEADER_LENGTH, header, read_header, whole_frames};
use resolver::vocabulary::visit::MAX_FRAME_LENGTH;

/// The extension of the files' names.
const ENDING: &str = "visits";

/// Number of files that share the allowed size, and the least size of each.
const FILES: u64 = 128;
const LEAST_FILE: u64 = 256 << 10;

/// The pause after a write that failed or took too long, in milliseconds.
const REST: u64 = 10_000;

/// The longest time that a write should take.
const SLOW: Duration = Duration::from_millis(100);

/// The interval between two searches for files of workers that are gone, in milliseconds.
const LOOK_EVERY: u64 = 10_000;

/// A file that is being written.
#[derive(Debug)]
struct Writing {
    file: File,
    length: u64,
}

/// A file that is being sent.
#[derive(Debug)]
struct Reading {
    file: File,
    path: PathBuf,
    /// Offset of the first frame that is not confirmed.
    done: u64,
    /// Length of the frames that are under way.
    sent: u64,
}

/// A worker's part of the files.
#[derive(Debug)]
pub(crate) struct Spool {
    directory: PathBuf,
    origin: u64,
    number: u32,
    file_length: u64,
    most_files: usize,
    /// Number of files at the last count.
    files: usize,
    writing: Option<Writing>,
    reading: Option<Reading>,
    rests_until: u64,
    look_at: u64,
}

impl Spool {
    /// Begins without a file; `size` is that of all files together. `origin` is a random number that no other worker
    /// has.
    pub(crate) fn new(directory: PathBuf, size: u64, origin: u64) -> Self {
        let file_length = (size / FILES).max(LEAST_FILE);
        Self {
            directory,
            origin,
            number: 0,
            file_length,
            // At least 1: the least size that is allowed is larger than the least file.
            most_files: usize::try_from(size / file_length).unwrap_or(usize::MAX),
            files: 0,
            writing: None,
            reading: None,
            rests_until: 0,
            look_at: 0,
        }
    }

    /// Returns the number of files at the last count, and the most that there may be.
    pub(crate) fn fullness(&self) -> (u64, u64) {
        (self.files as u64, self.most_files as u64)
    }

    /// Returns whether nothing is to be written now.
    pub(crate) fn rests(&self, now: u64) -> bool {
        now < self.rests_until
    }

    /// The next time that [`Spool::next`] may find frames.
    pub(crate) fn look_at(&self) -> u64 {
        self.look_at
    }

    /// Appends frames, all or none of them.
    ///
    /// # Errors
    /// Why they were not written, for the log.
    pub(crate) fn append(&mut self, frames: &[u8], now: u64) -> Result<(), String> {
        let begin = Instant::now();
        let written = self.try_append(frames);
        if begin.elapsed() > SLOW || written.is_err() {
            self.rests_until = now + REST;
        }
        self.look_at = now;
        written.map_err(|error| format!("{}: {error}", self.directory.display()))
    }

    fn try_append(&mut self, frames: &[u8]) -> io::Result<()> {
        let length = frames.len() as u64;
        if let Some(writing) = &self.writing
            && writing.length + length > self.file_length
        {
            self.writing = None;
        }
        let mut writing = match self.writing.take() {
            Some(writing) => writing,
            None => self.begin()?,
        };
        if let Err(error) = writing.file.write_all(frames) {
            // The frames that were written count as dropped, so they must not be sent either.
            writing.file.set_len(writing.length)?;
            return Err(error);
        }
        writing.length += length;
        self.writing = Some(writing);
        Ok(())
    }

    /// Begins a file, if there may be one more.
    fn begin(&mut self) -> io::Result<Writing> {
        let name = format!("{:016x}-{}.{ENDING}", self.origin, self.number);
        self.number = self.number.wrapping_add(1);
        let path = self.directory.join(name);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        // Locked before it has a header: without one it is not taken for a file that is done.
        file.try_lock().map_err(io::Error::from)?;
        // It is there before the files are counted: two workers can't both take the last place.
        self.files = files(&self.directory)?.count();
        if self.files > self.most_files {
            self.files = self.most_files;
            fs::remove_file(&path)?;
            return Err(io::Error::other("spool_size is used up"));
        }
        (&file).write_all(&header())?;
        Ok(Writing {
            file,
            length: HEADER_LENGTH as u64,
        })
    }

    /// Takes the next frames to be sent, up to about `most` bytes, and how many they are; what was
    /// taken before must be confirmed. `None` when there are none.
    ///
    /// # Errors
    /// What is wrong with a file, for the log.
    pub(crate) fn next(&mut self, most: usize, now: u64) -> Result<Option<(Vec<u8>, u32)>, String> {
        // The caller can send, so the file that is being written is not needed any more.
        self.writing = None;
        loop {
            if self.reading.is_none() {
                self.reading = self.claim();
            }
            let Some(reading) = &mut self.reading else {
                self.look_at = now + LOOK_EVERY;
                return Ok(None);
            };
            let mut frames = vec![0; most + 2 * MAX_FRAME_LENGTH];
            let path = reading.path.display();
            let length = match reading.file.read_at(&mut frames, reading.done) {
                Ok(length) => length,
                Err(error) => {
                    self.look_at = now + REST;
                    return Err(format!("{path}: {error}"));
                }
            };
            let whole = whole_frames(&frames[..length], most);
            if whole.frames > 0 {
                frames.truncate(whole.length);
                reading.sent = whole.length as u64;
                return Ok(Some((frames, whole.frames)));
            }
            // All is sent, but perhaps a frame whose writer was killed while it wrote.
            let is_done = length < MAX_FRAME_LENGTH;
            let aside = reading.path.with_extension("unreadable");
            let moved = if is_done {
                fs::remove_file(&reading.path)
            } else {
                fs::rename(&reading.path, &aside)
            };
            if let Err(error) = moved {
                self.look_at = now + REST;
                return Err(format!("{path}: {error}"));
            }
            self.reading = None;
            if !is_done {
                return Err(format!(
                    "{} contains bytes that are not visits; the visits before them were sent",
                    aside.display()
                ));
            }
        }
    }

    /// Redis has what [`Spool::next`] gave.
    pub(crate) fn confirmed(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.done += std::mem::take(&mut reading.sent);
            // If this fails they are sent once more some day, and the sidecar deduplicates them.
            let _ = reading
                .file
                .write_all_at(&reading.done.to_le_bytes(), DONE_OFFSET);
        }
    }

    /// Claims a file without a holder.
    fn claim(&mut self) -> Option<Reading> {
        let all: Vec<PathBuf> = files(&self.directory).ok()?.collect();
        self.files = all.len();
        all.into_iter().find_map(|path| try_claim(path).ok()?)
    }
}

/// The files of a directory.
fn files(directory: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(directory)?.filter_map(Result::ok);
    Ok(entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == ENDING)))
}

/// Returns whether a directory has files with visits.
pub(crate) fn has_files(directory: &Path) -> bool {
    files(directory).is_ok_and(|mut files| files.next().is_some())
}

/// Claims a file; `None` if it has a holder, or is none of ours.
fn try_claim(path: PathBuf) -> io::Result<Option<Reading>> {
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    // Its last holder may have removed it meanwhile.
    let (mine, there) = (file.metadata()?, fs::metadata(&path)?);
    if (mine.dev(), mine.ino()) != (there.dev(), there.ino()) {
        return Ok(None);
    }
    let mut bytes = [0; HEADER_LENGTH];
    if mine.len() < HEADER_LENGTH as u64 {
        // Its writer was killed before it had written anything.
        fs::remove_file(&path)?;
        return Ok(None);
    }
    (&file).read_exact(&mut bytes)?;
    Ok(read_header(&bytes).map(|done| Reading {
        file,
        path,
        done,
        sent: 0,
    }))
}
