//! Files, standard input, gzip and byte order marks.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flate2::read::MultiGzDecoder;
use shortlink_client::counted_read::CountedRead;

/// The number of bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// The format of the rows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values with a header line.
    Csv,
    /// Tab-separated values with a header line.
    Tsv,
    /// One JSON object per line.
    Ndjson,
}

impl Format {
    /// The format that a file's name speaks of, compressed or not.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.')?.1 {
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            _ => None,
        }
    }
}

/// The source of rows.
#[derive(Clone, Debug)]
pub enum Source {
    /// Standard input.
    Standard,
    /// A file.
    File(PathBuf),
}

impl Source {
    /// `-` is standard input.
    pub fn new(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            Self::Standard
        } else {
            Self::File(path)
        }
    }

    /// The name in messages.
    pub fn name(&self) -> String {
        match self {
            Self::Standard => "-".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// The number of bytes to read, if it can be known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Standard => None,
            Self::File(path) => {
                let metadata = std::fs::metadata(path).ok()?;
                metadata.is_file().then_some(metadata.len())
            }
        }
    }

    /// Opens the source; `position` advances by the bytes that are read. Data compressed with gzip
    /// is decompressed, whatever the file's name.
    ///
    /// # Errors
    /// Fails when it can't be read or is written in UTF-16.
    pub fn open(&self, position: &Arc<AtomicU64>) -> io::Result<Box<dyn BufRead + Send>> {
        let raw: Box<dyn Read + Send> = match self {
            Self::Standard => Box::new(io::stdin()),
            Self::File(path) => Box::new(File::open(path)?),
        };
        text(CountedRead {
            reader: raw,
            position: Arc::clone(position),
        })
    }
}

/// The text of a file that may be compressed and may begin with a byte order mark.
fn text(raw: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let raw = BufReader::with_capacity(BUFFER, raw);
    let (start, raw) = peek::<2>(raw)?;
    let plain: Box<dyn Read + Send> = if start == [0x1f, 0x8b] {
        Box::new(MultiGzDecoder::new(raw))
    } else {
        Box::new(raw)
    };
    let (start, plain) = peek::<3>(plain)?;
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is written in UTF-16; make UTF-8 of it, as with iconv -f UTF-16 -t UTF-8",
        ));
    }
    let mut plain = BufReader::with_capacity(BUFFER, plain);
    if start == [0xef, 0xbb, 0xbf] {
        plain.read_exact(&mut [0; 3])?;
    }
    Ok(Box::new(plain))
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
        text(Cursor::new(bytes.to_vec()))?.read_to_string(&mut found)?;
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
            // Two gzip files, one after the other, are one text.
            ([zipped(b"ab"), zipped(b"cd")].concat(), "abcd"),
        ] {
            assert_eq!(read(&bytes).expect("text"), found, "{bytes:?}");
        }
        assert!(read(b"\xff\xfea\0").is_err());
        assert!(read(&zipped(b"abcd")[..12]).is_err(), "cut off");
    }

    #[test]
    fn a_name_tells_the_format() {
        for (name, format) in [
            ("links.csv", Some(Format::Csv)),
            ("a/LINKS.CSV.GZ", Some(Format::Csv)),
            ("links.tsv", Some(Format::Tsv)),
            ("links.jsonl", Some(Format::Ndjson)),
            ("links.ndjson.gz", Some(Format::Ndjson)),
            ("links.json", None),
            ("links", None),
            ("-", None),
        ] {
            assert_eq!(Format::of(Path::new(name)), format, "{name}");
        }
    }
}
