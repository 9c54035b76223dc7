//! Files and standard input.

use std::fs::File;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use shortlink_api::encoding::Charset;
use shortlink_client::input::{extension, is_named_gzip, text};

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
        match &*extension(path)? {
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            _ => None,
        }
    }

    /// The separator of columns; `None` for JSON.
    pub fn delimiter(self) -> Option<u8> {
        match self {
            Self::Csv => Some(b','),
            Self::Tsv => Some(b'\t'),
            Self::Ndjson => None,
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

    /// Opens the source; `position` advances by the bytes that are read.
    ///
    /// # Errors
    /// Fails when it can't be read, or is not compressed though its name ends in `.gz`.
    pub fn open(
        &self,
        charset: Charset,
        position: &Arc<AtomicU64>,
    ) -> io::Result<Box<dyn BufRead + Send>> {
        match self {
            Self::Standard => text(io::stdin(), false, charset, position),
            Self::File(path) => text(File::open(path)?, is_named_gzip(path), charset, position),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
