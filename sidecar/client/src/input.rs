//! Files, standard input, gzip and encodings.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use shortlink_api::csv_parser::{DELIMITERS, Recogniser};
use shortlink_api::encoding::{Charset, Decoder, NAMES};

/// The number of bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// The number of bytes after which a header is not read any further.
const LONGEST_HEADER: usize = 1 << 20;

/// The extension of a file's name in lower case, without that of a compressed file.
pub fn extension(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    Some(name.rsplit_once('.')?.1.to_owned())
}

/// Returns whether a file's name says that it is compressed with gzip.
pub fn is_named_gzip(path: &Path) -> bool {
    path.extension()
        .is_some_and(|it| it.eq_ignore_ascii_case("gz"))
}

/// Moves a position forward by the bytes that are read.
struct CountedRead<R> {
    reader: R,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for CountedRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Decodes what it reads.
struct Decoded<R> {
    reader: BufReader<R>,
    decoder: Decoder,
    text: Vec<u8>,
    /// The bytes of the text that were read.
    read: usize,
}

impl<R: Read> BufRead for Decoded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.read == self.text.len() {
            let part = self.reader.fill_buf()?;
            self.text.clear();
            self.read = 0;
            if part.is_empty() {
                self.decoder.finish(&mut self.text);
                break;
            }
            self.decoder.push(part, &mut self.text);
            let length = part.len();
            self.reader.consume(length);
        }
        Ok(&self.text[self.read..])
    }

    fn consume(&mut self, count: usize) {
        self.read += count;
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

/// Reads the name of an encoding.
///
/// # Errors
/// The list of encodings, if it is none of them.
pub fn charset(name: &str) -> Result<Charset, String> {
    Charset::by_name(name).ok_or_else(|| format!("must be one of {NAMES}"))
}

/// The text of a file as UTF-8. The file may be compressed with gzip, or must be; a byte order mark specifies its
/// encoding, or `charset` does. `position` advances by the bytes of the file that are read.
///
/// # Errors
/// Fails when it can't be read, or is not compressed though it must be.
pub fn text(
    raw: impl Read + Send + 'static,
    must_be_gzip: bool,
    charset: Charset,
    position: &Arc<AtomicU64>,
) -> io::Result<Box<dyn BufRead + Send>> {
    let raw = CountedRead {
        reader: raw,
        position: Arc::clone(position),
    };
    let raw = BufReader::with_capacity(BUFFER, raw);
    let (start, raw) = peek::<2>(raw)?;
    let plain: Box<dyn Read + Send> = if start == [0x1f, 0x8b] {
        Box::new(MultiGzDecoder::new(raw))
    } else if must_be_gzip {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not compressed with gzip, though its name ends in .gz",
        ));
    } else {
        Box::new(raw)
    };
    Ok(Box::new(Decoded {
        reader: BufReader::with_capacity(BUFFER, plain),
        decoder: Decoder::new(charset),
        text: Vec::new(),
        read: 0,
    }))
}

/// Recognises the separator of values from the header of a text, and returns it with the whole text.
///
/// # Errors
/// Fails when the text can't be read.
pub fn recognised(mut text: Box<dyn BufRead + Send>) -> io::Result<(u8, Box<dyn BufRead + Send>)> {
    let (mut start, mut recogniser) = (Vec::new(), Recogniser::default());
    loop {
        let part = match text.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            part => part?,
        };
        start.extend_from_slice(part);
        let (length, is_known) = (part.len(), recogniser.push(part));
        text.consume(length);
        if is_known || length == 0 || start.len() > LONGEST_HEADER {
            break;
        }
    }
    Ok((
        recogniser.delimiter(),
        Box::new(Cursor::new(start).chain(text)),
    ))
}

/// The name of a separator of values.
pub fn name_of(delimiter: u8) -> Option<&'static str> {
    let mut all = DELIMITERS.iter();
    all.find(|(_, it)| *it == delimiter).map(|(name, _)| *name)
}

/// The name of a separator of values that is not the comma.
pub fn separator(delimiter: u8) -> Option<&'static str> {
    name_of(delimiter).filter(|_| delimiter != b',')
}

/// The first bytes of a reader, fewer if it ends before, and a reader of all of it.
fn peek<const N: usize>(mut reader: impl Read) -> io::Result<(Vec<u8>, impl Read)> {
    let mut start = Vec::with_capacity(N);
    reader.by_ref().take(N as u64).read_to_end(&mut start)?;
    Ok((start.clone(), Cursor::new(start).chain(reader)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<String> {
        let mut found = String::new();
        let raw = Cursor::new(bytes.to_vec());
        let mut text = text(raw, false, Charset::default(), &Arc::default())?;
        text.read_to_string(&mut found)?;
        Ok(found)
    }

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(bytes).expect("a vector");
        writer.finish().expect("a vector")
    }

    #[test]
    fn compression_and_byte_order_marks_are_taken_away() {
        for (bytes, found) in [
            (b"".to_vec(), ""),
            (b"a".to_vec(), "a"),
            (b"abcd".to_vec(), "abcd"),
            (b"\xef\xbb\xbfabcd".to_vec(), "abcd"),
            (b"\xef\xbb\xbf".to_vec(), ""),
            (zipped(b"abcd"), "abcd"),
            (zipped(b"\xef\xbb\xbfabcd"), "abcd"),
            (b"\xff\xfea\0b\0".to_vec(), "ab"),
            (zipped(b"\xfe\xff\0a\0b"), "ab"),
            // Two gzip files, one after the other, are one text.
            ([zipped(b"ab"), zipped(b"cd")].concat(), "abcd"),
        ] {
            assert_eq!(read(&bytes).expect("text"), found, "{bytes:?}");
        }
        assert!(read(&zipped(b"abcd")[..12]).is_err(), "cut off");
    }
}
