//! Reads ahead, many rows at a time, on a separate thread: reading and checking rows takes as much
//! processor time as storing them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use shortlink_api::csv_parser::Place;
use shortlink_api::encoding::Charset;
use shortlink_client::input;
use shortlink_core::link::Link;
use tokio::sync::mpsc;

use super::columns::{Cells, Names};
use super::csv::{CsvRows, Rows};
use super::input::{Format, Source};
use super::ndjson::NdjsonRows;
use super::row::{Checks, Refusal};

/// The approximate memory of a window in bytes. At most three exist at a time: one is stored, one
/// waits and one is being filled.
const WINDOW: usize = 64 << 20;

/// The memory of a row besides its texts.
const ROW: usize = size_of::<Link>() + size_of::<Origin>();

/// The position of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The index of the file.
    pub file: usize,
    /// Its first line.
    pub line: u64,
}

/// A row that is not a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// The position of the row.
    pub origin: Origin,
    /// Its code, if it has one; shortened.
    pub code: Option<String>,
    /// The reason.
    pub refusal: Refusal,
}

/// Rows that are imported together.
#[derive(Debug, Default)]
pub struct Window {
    /// Links in the order of the file.
    pub links: Vec<Link>,
    /// The position of each link.
    pub origins: Vec<Origin>,
    /// The others.
    pub refused: Vec<RefusedRow>,
    /// Lines that list the columns of the rows, those of earlier windows aside.
    pub columns: Vec<String>,
    /// The number of rows that span several lines, and the first of them.
    pub spanning: (u64, Option<Origin>),
    /// The number of bytes of all files that were read up to its end.
    pub position: u64,
    size: usize,
}

impl Window {
    fn is_empty(&self) -> bool {
        self.links.is_empty() && self.refused.is_empty() && self.columns.is_empty()
    }
}

/// The files to read, and the options for reading them.
pub struct Reading {
    /// The files, one after the other.
    pub files: Vec<(Source, Format)>,
    /// The names of the columns.
    pub names: Names,
    /// The names of the columns of files that have no header.
    pub header: Option<Vec<String>>,
    /// The encoding of files without a byte order mark.
    pub charset: Charset,
    /// The separator of columns, if it differs from the format's.
    pub delimiter: Option<u8>,
    /// The checks of rows.
    pub checks: Checks,
}

impl Reading {
    /// Begins to read. The thread ends when everything was read or the receiver is dropped.
    ///
    /// # Errors
    /// Fails when no thread can be started.
    pub fn start(self) -> io::Result<mpsc::Receiver<anyhow::Result<Window>>> {
        let (sender, receiver) = mpsc::channel(1);
        std::thread::Builder::new()
            .name("import".to_owned())
            .spawn(move || {
                if let Err(error) = self.read(&sender, WINDOW) {
                    // Without a receiver, the error does not matter.
                    let _ = sender.blocking_send(Err(error));
                }
            })?;
        Ok(receiver)
    }

    fn read(
        &self,
        windows: &mpsc::Sender<anyhow::Result<Window>>,
        most: usize,
    ) -> anyhow::Result<()> {
        let position = Arc::new(AtomicU64::new(0));
        let mut window = Window::default();
        let mut cells = Cells::default();
        for (file, (source, format)) in self.files.iter().enumerate() {
            let (mut rows, recognised) = self.open(source, *format, &position)?;
            let recognised = recognised.map(|separator| {
                let name = source.name();
                format!("{name}: columns are separated by {separator}s")
            });
            window.columns.extend(recognised);
            let mut last = None;
            loop {
                let row = rows.next(&mut cells).with_context(|| {
                    let behind = last.map(|line| format!(" behind line {line}"));
                    format!(
                        "cannot read {}{}",
                        source.name(),
                        behind.unwrap_or_default()
                    )
                })?;
                let Some((place, row)) = row else { break };
                last = Some(place.line);
                self.add(file, place, row, &cells, &mut window);
                if window.size >= most {
                    window.columns.extend(rows.found().lines(&source.name()));
                    window.position = position.load(Ordering::Relaxed);
                    if windows
                        .blocking_send(Ok(std::mem::take(&mut window)))
                        .is_err()
                    {
                        return Ok(());
                    }
                }
            }
            window.columns.extend(rows.found().lines(&source.name()));
        }
        if !window.is_empty() {
            window.position = position.load(Ordering::Relaxed);
            let _ = windows.blocking_send(Ok(window));
        }
        Ok(())
    }

    fn open(
        &self,
        source: &Source,
        format: Format,
        position: &Arc<AtomicU64>,
    ) -> anyhow::Result<(Box<dyn Rows>, Option<&'static str>)> {
        let cannot_read = || format!("cannot read {}", source.name());
        let reader = source
            .open(self.charset, position)
            .with_context(cannot_read)?;
        let Some(delimiter) = format.delimiter() else {
            return Ok((Box::new(NdjsonRows::new(reader, self.names.clone())), None));
        };
        let (delimiter, reader, separator) = match self.delimiter {
            // Without a header, there is nothing to recognise it by.
            None if format == Format::Csv && self.header.is_none() => {
                let (delimiter, reader) = input::recognised(reader).with_context(cannot_read)?;
                (delimiter, reader, input::separator(delimiter))
            }
            given => (given.unwrap_or(delimiter), reader, None),
        };
        let rows = CsvRows::new(reader, delimiter, &self.names, self.header.clone());
        Ok((Box::new(rows.with_context(cannot_read)?), separator))
    }

    /// Puts a row of a file into a window.
    fn add(
        &self,
        file: usize,
        Place { line, lines }: Place,
        row: Result<(), Refusal>,
        cells: &Cells,
        window: &mut Window,
    ) {
        let (origin, is_row) = (Origin { file, line }, row.is_ok());
        if is_row && lines > 1 {
            window.spanning.0 += 1;
            window.spanning.1.get_or_insert(origin);
        }
        let refusal = match row.and_then(|()| self.checks.link(cells)) {
            Ok(link) => {
                window.size += size_of_link(&link);
                window.links.push(link);
                window.origins.push(origin);
                return;
            }
            Err(refusal) => refusal,
        };
        let code = is_row.then(|| self.checks.shown_code(cells)).flatten();
        let texts = refusal.problem.len() + code.as_ref().map_or(0, String::len);
        window.size += size_of::<RefusedRow>() + texts;
        window.refused.push(RefusedRow {
            origin,
            code,
            refusal,
        });
    }
}

/// The approximate memory of a link in bytes.
fn size_of_link(link: &Link) -> usize {
    let tags: usize = link
        .tags
        .iter()
        .map(|tag| tag.len() + size_of::<String>())
        .sum();
    let of_option = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    ROW + link.destination.text().len()
        + link.created_by.len()
        + of_option(&link.external_id)
        + of_option(&link.note)
        + tags
}

#[cfg(test)]
mod tests {
    use shortlink_core::codes::reserved::ReservedWords;
    use shortlink_core::target::{OwnHosts, TargetPolicy};

    use super::*;

    #[tokio::test]
    async fn files_are_read_in_windows_one_after_the_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut files = Vec::new();
        for (file, name) in ["a.csv", "b.ndjson"].into_iter().enumerate() {
            let path = directory.path().join(name);
            let mut text = String::new();
            if file == 0 {
                text.push_str("code,url\n");
            }
            for number in 0..50 {
                let (code, url) = (format!("c{file}x{number}"), "https://example.com/");
                let bad = if number == 7 { "." } else { "" };
                text.push_str(&match file {
                    0 => format!("{code}{bad},{url}\n"),
                    _ => format!("{{\"code\":\"{code}{bad}\",\"url\":\"{url}\"}}\n"),
                });
            }
            std::fs::write(&path, text).expect("a file");
            let format = Format::of(&path).expect("a format");
            files.push((Source::new(path), format));
        }
        let reading = Reading {
            files,
            names: Names::default(),
            header: None,
            charset: Charset::default(),
            delimiter: None,
            checks: Checks {
                rules: vocabulary::CodeRules::default(),
                reserved: ReservedWords::default(),
                policy: TargetPolicy::default(),
                own: OwnHosts::default(),
                redirect_status: vocabulary::RedirectStatus::Found,
                created_by: "import".to_owned(),
                now: "2026-01-01T00:00:00Z".parse().expect("a moment"),
                campaigns: std::collections::HashMap::new(),
                prefix: String::new(),
                tag_delimiter: '|',
            },
        };
        let (sender, mut receiver) = mpsc::channel(1);
        std::thread::spawn(move || reading.read(&sender, 2000).expect("readable files"));
        let (mut links, mut refused, mut windows) = (Vec::new(), Vec::new(), 0);
        let mut columns = Vec::new();
        while let Some(window) = receiver.recv().await {
            let window = window.expect("readable files");
            assert_eq!(window.links.len(), window.origins.len());
            columns.extend(window.columns);
            links.extend(window.links.into_iter().zip(window.origins));
            refused.extend(window.refused);
            windows += 1;
        }
        assert!(windows > 5, "{windows}");
        assert_eq!(columns.len(), 2, "{columns:?}");
        assert_eq!(links.len(), 98);
        let (link, origin) = &links[49];
        assert_eq!(link.code.as_str(), "c1x0");
        assert_eq!(*origin, Origin { file: 1, line: 1 });
        let refused: Vec<_> = refused
            .into_iter()
            .map(|it| (it.origin.line, it.code.expect("a code")))
            .collect();
        assert_eq!(refused, [(9, "c0x7.".to_owned()), (8, "c1x7.".to_owned())]);
    }
}
