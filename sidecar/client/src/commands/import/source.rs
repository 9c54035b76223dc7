//! The imported file: its compression, its idempotency key, and its parts.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context;
use hyper::body::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::lines::LineFinder;
use super::window::Window;
use super::{RowFormat, Rows};
use crate::Failure;
use crate::input::{is_named_gzip, recognised, text};
use rand::TryRng;
use rand::rngs::SysRng;
use shortlink_api::csv_parser::MAX_LINES;
use shortlink_api::encoding::Charset;

/// The number of bytes that are sent at once.
const PART: usize = 16 * 1024;

/// The bytes of one row that count in the window. The service reads past longer rows, and a row has no result before it
/// ends: a window that counted them all would never open again.
const COUNTED_OF_ROW: u64 = 1 << 20;

/// A file or standard input.
#[derive(Debug)]
pub(super) struct Source {
    file: Option<File>,
    is_named_gzip: bool,
    charset: Charset,
}

/// The progress of reading the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Bytes of the file as it lies on the disk.
    pub(super) bytes: Arc<AtomicU64>,
    /// True while it waits for the next part.
    pub(super) is_reading: Arc<AtomicBool>,
}

/// The position of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowPlace {
    /// The line, from 1.
    pub(super) line: u64,
    /// The number of bytes that were sent before the part in which it was found.
    pub(super) part: u64,
}

impl Source {
    /// Opens it, with the encoding that it has without a byte order mark; `-` is standard input.
    pub(super) fn open(path: &Path, charset: Charset) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self {
                file: None,
                is_named_gzip: false,
                charset,
            });
        }
        let shown = path.display();
        let file = File::open(path)
            .map_err(|error| Failure::Usage(format!("{shown} can't be read: {error}")))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(Failure::Usage(format!("{shown} is a directory")));
        }
        Ok(Self {
            file: Some(file),
            is_named_gzip: is_named_gzip(path),
            charset,
        })
    }

    /// Its length on the disk.
    pub(super) fn length(&self) -> Option<u64> {
        let metadata = self.file.as_ref()?.metadata().ok()?;
        metadata.is_file().then_some(metadata.len())
    }

    /// The default idempotency key: derived from the content, so that the same command can be
    /// repeated, or random for an input that can't be read twice.
    pub(super) fn name(
        &mut self,
        rows: Rows,
        format: RowFormat,
        delimiter: Option<u8>,
    ) -> Result<String, Failure> {
        let begin = rows.key();
        let is_seekable = self.length().is_some();
        let Some(file) = self.file.as_mut().filter(|_| is_seekable) else {
            let mut bytes = [0; 16];
            SysRng
                .try_fill_bytes(&mut bytes)
                .context("the operating system provides no random numbers")?;
            return Ok(format!("{begin}-{}", hexadecimal(&bytes)));
        };
        let mut digest = Sha256::new();
        digest.update(format.media_type());
        if self.charset != Charset::default() {
            digest.update(self.charset.name());
        }
        digest.update(delimiter.as_slice());
        let mut part = vec![0; PART];
        let hashed: io::Result<()> = (|| {
            loop {
                let length = file.read(&mut part)?;
                if length == 0 {
                    return file.rewind();
                }
                digest.update(&part[..length]);
            }
        })();
        hashed.context("the file can't be read")?;
        Ok(format!("{begin}-{}", hexadecimal(&digest.finalize()[..16])))
    }

    /// Opens its text, and recognises the separator of its values, unless it is given.
    pub(super) fn text(
        self,
        format: RowFormat,
        delimiter: Option<u8>,
        bytes: &Arc<AtomicU64>,
    ) -> io::Result<Text> {
        let input = match self.file {
            Some(file) => text(file, self.is_named_gzip, self.charset, bytes),
            None => text(io::stdin(), false, self.charset, bytes),
        };
        let (delimiter, input) = match delimiter {
            None if format == RowFormat::Csv => recognised(input?)?,
            given => (given.unwrap_or(b','), input?),
        };
        Ok(Text {
            format,
            delimiter,
            input,
        })
    }
}

/// The text of the file, as UTF-8.
pub(super) struct Text {
    pub(super) format: RowFormat,
    /// The separator of values.
    pub(super) delimiter: u8,
    input: Box<dyn BufRead + Send>,
}

impl Text {
    /// Reads it to its end, part by part, and reports each row's line before the part is sent. Ends
    /// early when the receiver of the parts is dropped. Blocks.
    pub(super) fn read(
        mut self,
        reading: &Reading,
        window: &mut Window,
        lines: &std::sync::mpsc::Sender<RowPlace>,
        warn: impl Fn(&str),
        parts: &mpsc::Sender<io::Result<Bytes>>,
    ) -> io::Result<()> {
        let mut finder = LineFinder::new(self.format, self.delimiter);
        let (mut sent, mut of_row) = (0, 0);
        let mut swallowing = None;
        // The request must not look like one that has ended.
        let broken = |error: io::Error| {
            let _ = parts.blocking_send(Err(io::Error::new(error.kind(), error.to_string())));
            error
        };
        loop {
            let mut part = vec![0; PART];
            reading.is_reading.store(true, Ordering::Relaxed);
            let read = self.input.read(&mut part);
            reading.is_reading.store(false, Ordering::Relaxed);
            let length = match read {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(broken(error)),
            };
            part.truncate(length);
            let mut rows = 0;
            finder.push(&part, |line| {
                rows += 1;
                // Without a receiver, lines are not needed.
                let _ = lines.send(RowPlace { line, part: sent });
            });
            if length == 0 {
                return Ok(());
            }
            let began = std::mem::replace(&mut swallowing, finder.swallowing());
            if let Some(line) = swallowing.filter(|_| swallowing != began) {
                warn(&format!(
                    "line {line}: the row spans more than {MAX_LINES} lines and is refused, with all lines up to the \
                     next quotation mark: is one not closed?"
                ));
            }
            of_row = if rows > 0 { 0 } else { of_row + length as u64 };
            let counted = if of_row > COUNTED_OF_ROW {
                0
            } else {
                length as u64
            };
            sent += counted;
            if !window.enter(rows, counted) {
                return Ok(());
            }
            if parts.blocking_send(Ok(part.into())).is_err() {
                return Ok(());
            }
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_same_name_for_as_long_as_it_is_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.csv");
        let name = |text: &str, format| {
            std::fs::write(&path, text).expect("a file");
            let mut source = Source::open(&path, Charset::default()).expect("a source");
            let name = source.name(Rows::Links, format, None).expect("a name");
            // It is read from its beginning afterwards.
            let mut rest = String::new();
            let mut file = source.file.expect("a file");
            file.read_to_string(&mut rest).expect("a text");
            assert_eq!(rest, text);
            name
        };
        let first = name("longUrl\nx\n", RowFormat::Csv);
        assert_eq!(name("longUrl\nx\n", RowFormat::Csv), first);
        assert_ne!(name("longUrl\ny\n", RowFormat::Csv), first);
        assert_ne!(name("longUrl\nx\n", RowFormat::Ndjson), first);
        assert_eq!(first.len(), "import-".len() + 32);
    }

    #[test]
    fn what_comes_once_has_a_name_by_chance() {
        let name = || {
            let mut source = Source::open(Path::new("-"), Charset::default()).expect("a source");
            source
                .name(Rows::Links, RowFormat::Csv, None)
                .expect("a name")
        };
        assert_ne!(name(), name());
    }
}
