//! `shortlink links import`, `shortlink messages import`, `shortlink conversions import` and `shortlink receipts import`: a
//! link, a message, a conversion or a delivery receipt of each row of a file, by one request that can be repeated.

mod lines;
mod source;
mod tally;
mod window;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use shortlink_api::csv_parser::DELIMITERS;
use shortlink_api::encoding::Charset;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use super::session::Session;
use super::values::campaign_id;
use crate::input::{charset, extension, name_of, separator};
use crate::output::{print, thousands};
use crate::progress::bar;
use crate::{Client, Failure, Upload};
use source::{Reading, Source, Text};
use tally::{MOST_TOLD, Summary, SummaryLine, Tally, take};
use window::{Answered, Window};

/// The number of parts of the file that are read ahead.
const PARTS_AHEAD: usize = 4;

/// The time that the file's reader has to finish once its parts are not needed any more.
const READER_ENDS: Duration = Duration::from_millis(500);

/// The longest that a request may be called.
const LONGEST_KEY: usize = 255;

/// The format of the rows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowFormat {
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    Ndjson,
}

impl RowFormat {
    fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv",
            Self::Ndjson => "application/x-ndjson",
        }
    }

    /// The format by a file's name.
    fn of(path: &Path) -> Option<Self> {
        match &*extension(path)? {
            "csv" => Some(Self::Csv),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            _ => None,
        }
    }
}

/// The content of the rows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// Links.
    Links,
    /// Texts of messages.
    Messages,
    /// Conversions.
    Conversions,
    /// Delivery receipts.
    Receipts,
}

impl Rows {
    fn path(self) -> &'static str {
        match self {
            Self::Links => "/v1/links/batch",
            Self::Messages => "/v1/messages",
            Self::Conversions => "/v1/conversions",
            Self::Receipts => "/v1/receipts",
        }
    }

    /// The beginning of idempotency keys: one file may be imported as both.
    fn key(self) -> &'static str {
        match self {
            Self::Links => "import",
            Self::Messages => "messages",
            Self::Conversions => "conversions",
            Self::Receipts => "receipts",
        }
    }

    /// Rows have ids of their own, by which the service recognises them.
    fn have_ids(self) -> bool {
        matches!(self, Self::Conversions | Self::Receipts)
    }

    /// Advice to repeat an interrupted import.
    fn repeated(self, key: &str) -> String {
        if self.have_ids() {
            return "repeat the command: rows are not counted again".to_owned();
        }
        format!(
            "repeat the command with --idempotency-key {key}: existing links are not created again"
        )
    }
}

/// The help of a command below its options.
pub(super) fn about(rows: Rows) -> String {
    let (members, done) = match rows {
        Rows::Links => (
            "Each row has the members that `POST /v1/links` accepts. The first line of a CSV file names them, such \
             as longUrl, externalId, tags (separated by |), campaignId and parameters.NAME. Each line of an NDJSON \
             file is one object.",
            "every row has its link",
        ),
        Rows::Messages => (
            "Each row has a text, values for its variables, and the members that `POST /v1/links` accepts for each \
             link of it. The first line of a CSV file names them, such as text, parameters.NAME and externalId. Each \
             line of an NDJSON file is one object. The texts with short links are in the file of --results, or are \
             printed with --json.",
            "every row has its message",
        ),
        Rows::Conversions => {
            return "\
Each row has a conversionId, a clickId, an externalId or a shortCode, and can have campaignId, value, currency and at, or \
refunded if it is a refund. The first line of a CSV file names them. Each line of an NDJSON file is one object.

The command can be repeated at any time: a conversion with the same conversionId for the same link is counted once. \
Rows whose links do not exist are reported with their lines.

Exit codes: 0 every row is counted, 1 rows failed or the import was interrupted, 2 invalid command line, \
input file or client settings."
                .to_owned();
        }
        Rows::Receipts => {
            return "Each row is the status of the message with a link: status (sent, rejected, expired, failed or \
                delivered), shortCode, or externalId and campaignId, and optionally network and at. The first line of a CSV \
                file names them. Each line of an NDJSON file is one object.

A status replaces one of an earlier time, so a command can be repeated, and files can be sent in any order.

Exit codes: 0 every receipt has its link, 1 rows failed or the import was interrupted, 2 invalid command line, input \
                file or client settings."
                .to_owned();
        }
    };
    format!(
        "{members}

The request is idempotent: the service remembers its results for 24 hours, and an interrupted command that \
is repeated unchanged creates no duplicate links. The command prints its Idempotency-Key, which is derived \
from the content of the file. For standard input the key is random: repeat the command with \
--idempotency-key and the printed key. A changed file has another key: to create links for rows that failed, \
put only those rows into a new file.

Exit codes: 0 {done}, 1 rows failed or the import was interrupted, 2 invalid command line, \
input file or client settings."
    )
}

/// Options of an import.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// CSV or NDJSON file, which can be compressed with gzip (.gz); - is standard input.
    file: PathBuf,
    /// Format of the file. Default: by its extension (.csv, .ndjson or .jsonl, with or without
    /// .gz).
    #[arg(long, value_enum)]
    format: Option<RowFormat>,
    /// Separator of the values of a CSV file. Default: the most frequent one in the first line.
    #[arg(long, value_name = "NAME", value_parser = delimiter())]
    delimiter: Option<u8>,
    /// Encoding of the file: utf-8, utf-16, utf-16le, utf-16be, gbk or gb18030. A byte order mark takes precedence.
    /// Default: utf-8.
    #[arg(long, value_name = "NAME", value_parser = charset)]
    encoding: Option<Charset>,
    /// Idempotency-Key of the request: 1 to 255 visible ASCII characters. Default: derived from the
    /// content of the file, or random for standard input.
    #[arg(long, value_name = "KEY", value_parser = checked_key)]
    idempotency_key: Option<String>,
    /// Output file for the result of each row, as one JSON object per line.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Id of the campaign of all rows that name none.
    #[arg(long, value_name = "ID", value_parser = campaign_id)]
    campaign: Option<String>,
}

/// Reads the name of a separator.
fn delimiter() -> impl TypedValueParser<Value = u8> {
    let names = PossibleValuesParser::new(DELIMITERS.map(|(name, _)| name));
    names.try_map(|name| {
        let known = DELIMITERS.iter().find(|(known, _)| *known == name);
        known.map(|(_, byte)| *byte).ok_or("no separator")
    })
}

/// Checks an idempotency key.
pub(super) fn checked_key(text: &str) -> Result<String, String> {
    let is_fine =
        (1..=LONGEST_KEY).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_fine
        .then(|| text.to_owned())
        .ok_or_else(|| format!("give 1 to {LONGEST_KEY} visible ASCII characters"))
}

/// Sends the file, and reports the outcomes of its rows.
pub(super) async fn run(
    session: &Session,
    arguments: ImportArguments,
    rows: Rows,
) -> Result<ExitCode, Failure> {
    let Session { client, json } = session;
    if rows == Rows::Messages && arguments.results.is_none() && !json {
        return Err(Failure::Usage(
            "the texts would be lost: give --results FILE, or --json".to_owned(),
        ));
    }
    let path = &arguments.file;
    let format = arguments.format.or_else(|| RowFormat::of(path));
    let format = format.ok_or_else(|| {
        let path = path.display();
        Failure::Usage(format!(
            "the format of {path} is unknown: give --format csv or ndjson"
        ))
    })?;
    let delimiter = arguments.delimiter;
    if delimiter.is_some() && format != RowFormat::Csv {
        return Err(Failure::Usage("--delimiter is for CSV".to_owned()));
    }
    let mut source = Source::open(path, arguments.encoding.unwrap_or_default())?;
    let mut results = match &arguments.results {
        None => None,
        Some(path) => {
            let file = File::create(path);
            let file = file.with_context(|| format!("{} can't be written", path.display()))?;
            Some(BufWriter::new(file))
        }
    };
    let key = match arguments.idempotency_key {
        Some(key) => key,
        None => source.name(rows, format, delimiter)?,
    };
    if !rows.have_ids() {
        eprintln!("shortlink: Idempotency-Key {key}");
    }
    let length = source.length();
    let bar = bar(
        length,
        match length {
            Some(_) => "{bar:40} {percent} %, {msg} rows, {eta} left",
            None => "{spinner} {msg} rows",
        },
    );
    let reading = Reading::default();
    let text = source.text(format, delimiter, &reading.bytes);
    let text = text.context("the file can't be read")?;
    let recognised = separator(text.delimiter);
    if delimiter.is_none()
        && let Some(name) = recognised
    {
        bar.suspend(|| eprintln!("shortlink: columns are separated by {name}s"));
    }
    let separator = delimiter.map_or(recognised, name_of);
    let mut request = format!("{}?summary=true", rows.path());
    let campaign = arguments.campaign.as_deref().map(|id| ("campaignId", id));
    let parameters = separator.map(|name| ("delimiter", name));
    for (name, value) in campaign.into_iter().chain(parameters) {
        request.push_str(&format!("&{name}={value}"));
    }
    let done = send(client, request, text, reading, key.clone(), &bar, |line| {
        if let Some(results) = &mut results {
            let written = results
                .write_all(line)
                .and_then(|()| results.write_all(b"\n"));
            written.context("the results can't be written")?;
        }
        if *json {
            print(&format!("{}\n", String::from_utf8_lossy(line)))?;
        }
        Ok(())
    });
    let (tally, ended) = done.await;
    bar.finish_and_clear();
    if let Some(results) = &mut results {
        results.flush().context("the results can't be written")?;
    }
    if tally.failed > MOST_TOLD {
        let more = thousands(tally.failed - MOST_TOLD);
        eprintln!("shortlink: {more} more rows failed: --results FILE has them all");
    }
    let repeated = rows.repeated(&key);
    if let Err(failure) = ended {
        // A request that was refused as a whole has created nothing.
        if !matches!(&failure, Failure::Problem(_)) || tally.all() > 0 {
            eprintln!(
                "shortlink: interrupted after {}; {repeated}",
                tally.text(rows)
            );
        }
        return Err(failure);
    }
    if *json {
        eprintln!("shortlink: {}", tally.text(rows));
    } else {
        print(&format!("{}\n", tally.text(rows)))?;
    }
    if tally.unavailable > 0 {
        let waiting = thousands(tally.unavailable);
        eprintln!("shortlink: {waiting} rows failed for now; {repeated}");
    }
    Ok(if tally.failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Sends the file to a path, and reads the results at the same time; passes each result to `each`.
async fn send(
    client: &Client,
    path: String,
    text: Text,
    reading: Reading,
    idempotency_key: String,
    bar: &ProgressBar,
    mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> (Tally, Result<(), Failure>) {
    let mut tally = Tally::default();
    let (to_lines, lines) = std::sync::mpsc::channel();
    let (to_parts, parts) = mpsc::channel(PARTS_AHEAD);
    let upload = Upload {
        media_type: text.format.media_type(),
        idempotency_key,
        parts,
        sent: Arc::default(),
        is_reading: Arc::clone(&reading.is_reading),
    };
    let progress = reading.clone();
    let (answered_rows, answers) = watch::channel(Answered::default());
    let (to_end, end) = oneshot::channel();
    let sent = Arc::clone(&upload.sent);
    let (mut rows, mut summary) = (0, None);
    let (runtime, warned) = (Handle::current(), bar.clone());
    // A separate thread: one that waits for standard input ends with the process and does not delay
    // it.
    std::thread::spawn(move || {
        let mut window = Window::new(runtime, answers);
        let warn = |line: &str| warned.suspend(|| eprintln!("shortlink: {line}"));
        let read = text.read(&reading, &mut window, &to_lines, warn, &to_parts);
        // The end is reported before the channel of the parts closes.
        let _ = to_end.send(read);
    });
    let taken = async {
        let mut answered = client.upload(&path, upload).await?;
        while let Some(line) = answered.next_line().await? {
            if line.starts_with(b"{\"summary\"") {
                let line: SummaryLine = serde_json::from_slice(&line)
                    .context("the service's answer does not end with a summary")?;
                summary = Some(line.summary);
                continue;
            }
            each(&line)?;
            // Rows are reported before they are sent, so an answered row has its place here.
            let place = lines.try_recv().ok();
            if let Some(place) = place {
                rows += 1;
                answered_rows.send_modify(|answered| {
                    answered.rows += 1;
                    answered.bytes = place.part;
                });
            }
            take(&line, &mut tally, place, bar)?;
            bar.set_position(progress.bytes.load(Ordering::Relaxed));
            bar.set_message(thousands(tally.all()));
        }
        Ok(())
    };
    let taken = taken.await;
    drop(answered_rows);
    // A reader that has failed reports it at once; one that still waits for standard input is
    // abandoned.
    let read = tokio::time::timeout(READER_ENDS, end).await;
    let read = read.ok().and_then(Result::ok).unwrap_or(Ok(()));
    // The failure to read explains more than the failure of the request that it causes.
    if let Err(error) = read {
        let failure = anyhow::Error::new(error).context("the file can't be read");
        return (tally, Err(failure.into()));
    }
    let missing = lines.try_iter().count();
    let ended = taken.and_then(|()| match missing {
        0 => {
            let bytes = sent.load(Ordering::Relaxed);
            Summary::check(summary, Summary { rows, bytes })
        }
        missing => Err(Failure::Other(anyhow!(
            "{} rows have no result",
            thousands(missing as u64)
        ))),
    });
    (tally, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_its_form_by_its_name() {
        for (name, format) in [
            ("a.csv", Some(RowFormat::Csv)),
            ("dir.csv/a.ndjson", Some(RowFormat::Ndjson)),
            ("a.csv.gz", Some(RowFormat::Csv)),
            ("a.jsonl", Some(RowFormat::Ndjson)),
            ("a.gz", None),
            ("a.txt", None),
            ("-", None),
        ] {
            assert_eq!(RowFormat::of(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn requests_are_called_by_visible_characters() {
        assert_eq!(checked_key("a-1").as_deref(), Ok("a-1"));
        for key in ["", "a b", "ä", &"x".repeat(256)] {
            assert!(checked_key(key).is_err(), "{key}");
        }
    }
}
