//! `shortlink links export`: the API's listing of links, as a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use shortlink_api::cells::Cells;
use shortlink_api::link::LinkSettings;
use shortlink_api::members::Members;

use super::filters::Filters;
use super::session::Session;
use super::show::parse;
use crate::output::thousands;
use crate::progress::bar;
use crate::rows::{RowWriter, write_fields};
use crate::{Failure, Pager};

/// The columns of CSV before the settings of a link, and the places of their values.
const HEAD: [(&str, &str); 7] = [
    ("shortCode", "/shortCode"),
    ("shortUrl", "/shortUrl"),
    ("longUrl", "/longUrl"),
    ("state", "/state"),
    ("campaignId", "/campaignId"),
    ("campaignState", "/campaignState"),
    ("parameters", "/parameters"),
];

/// The columns behind them.
const TAIL: [(&str, &str); 9] = [
    ("revision", "/revision"),
    ("createdAt", "/createdAt"),
    ("updatedAt", "/updatedAt"),
    ("createdBy", "/createdBy"),
    ("visits", "/visits/total"),
    ("visitsByPeople", "/visits/human"),
    ("lastVisitAt", "/visits/lastAt"),
    ("visitsRefused", "/visits/refused"),
    ("strategy", "/strategy"),
];

/// The columns of CSV: their names, and the places of their values.
fn columns() -> impl Iterator<Item = (&'static str, String)> {
    let settings = LinkSettings::MEMBERS.iter();
    let settings = settings.map(|member| (member.name, format!("/{}", member.name)));
    let others = |columns: &'static [(&'static str, &str)]| {
        let columns = columns.iter();
        columns.map(|(name, place)| (*name, (*place).to_owned()))
    };
    others(&HEAD).chain(settings).chain(others(&TAIL))
}

/// The form of a file of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line, as the API returns each link.
    Ndjson,
}

/// Options of `shortlink links export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    file: FileOptions,
}

/// Options of a file of links.
#[derive(Debug, Args)]
pub struct FileOptions {
    /// Format of the output. Default: ndjson with --json, else by the extension of the file (.csv,
    /// .ndjson or .jsonl), else csv on standard output.
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// Output file. Default: standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Leave the cells of CSV as they are, for programs. Without it, an apostrophe goes before what a
    /// spreadsheet would take for a formula.
    #[arg(long)]
    raw: bool,
}

impl ExportArguments {
    /// All links of a campaign.
    pub(super) fn of_campaign(id: String, file: FileOptions) -> Self {
        Self {
            filters: Filters::of_campaign(id),
            file,
        }
    }
}

impl FileOptions {
    /// The format of the file: as specified, else JSON with `--json`, else by the file's name.
    fn format(&self, json: bool) -> Result<ExportFormat, Failure> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        if json {
            return Ok(ExportFormat::Ndjson);
        }
        let Some(out) = &self.out else {
            return Ok(ExportFormat::Csv);
        };
        match out.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(ExportFormat::Csv),
            Some("ndjson" | "jsonl") => Ok(ExportFormat::Ndjson),
            _ => Err(Failure::Usage(format!(
                "{} is called neither .csv nor .ndjson: give --format",
                out.display()
            ))),
        }
    }
}

/// Writes links as they are listed; no more than a page of them is in memory.
pub(super) async fn run(session: &Session, arguments: &ExportArguments) -> Result<(), Failure> {
    let file = &arguments.file;
    let format = file.format(session.json)?;
    let cells = Cells::raw(file.raw);
    let mut pager = Pager::new(
        &session.client,
        "/v1/links",
        arguments.filters.parameters(),
        None,
    );
    // The first request is before the file is opened, so that an invalid key leaves it unchanged.
    let mut page = pager.next().await?;
    let out: Box<dyn Write> = match &file.out {
        None => Box::new(io::stdout()),
        Some(path) => {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("{} can't be written", path.display()))?)
        }
    };
    let bar = bar(None, "{spinner} {human_pos} links, {per_sec}");
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut links = 0;
    let done = async {
        let mut writer = begin(format, BufWriter::new(out)).context(CANT_WRITE)?;
        while let Some(items) = page {
            for item in &items {
                write(&mut writer, cells, item.get())?;
            }
            links += items.len() as u64;
            bar.set_position(links);
            page = pager.next().await?;
        }
        writer.finish().context(CANT_WRITE)?;
        Ok(())
    };
    let done: Result<(), Failure> = done.await;
    bar.finish_and_clear();
    let links = thousands(links);
    if let Err(failure) = done {
        if file.out.is_some() {
            eprintln!("shortlink: the file is incomplete: it has {links} links");
        }
        return Err(failure);
    }
    if let Some(path) = &file.out {
        eprintln!("shortlink: {links} links in {}", path.display());
    }
    Ok(())
}

fn begin<W: Write>(format: ExportFormat, out: W) -> io::Result<RowWriter<W>> {
    let delimiter = (format == ExportFormat::Csv).then_some(b',');
    RowWriter::new(out, delimiter, columns().map(|(name, _)| name))
}

/// Writes a link as the API returns it.
fn write<W: Write>(writer: &mut RowWriter<W>, cells: Cells, link: &str) -> Result<(), Failure> {
    let written = match writer {
        RowWriter::Json(out) => writeln!(out, "{link}"),
        RowWriter::Separated(writer) => {
            let link = parse(link.as_bytes())?;
            let values = columns().map(|(_, place)| link.pointer(&place));
            write_fields(writer, cells, values)
        }
    };
    Ok(written.context(CANT_WRITE)?)
}

const CANT_WRITE: &str = "links can't be written";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_written_as_csv_and_as_they_came() {
        let link =
            r#"{"shortCode":"a","longUrl":"https://x/?a,b","tags":["x","y"],"note":"a \"b\"\nc",
            "parameters":{"m":"1"},"externalId":"=1+1","forwardQuery":false,"strategy":"hash","visits":{"total":3}}"#
                .replace('\n', "");
        let file = |format, cells| {
            let mut writer = begin(format, Vec::new()).expect("a head");
            write(&mut writer, cells, &link).expect("a link");
            writer.finish().expect("an end")
        };
        let ndjson = file(ExportFormat::Ndjson, Cells::Text);
        let csv = file(ExportFormat::Csv, Cells::Text);
        let raw = String::from_utf8(file(ExportFormat::Csv, Cells::Raw)).expect("text");
        assert!(raw.contains(",=1+1,"), "{raw}");
        assert_eq!(String::from_utf8(ndjson), Ok(format!("{link}\n")));
        let mut reader = csv::Reader::from_reader(&*csv);
        let names = reader.headers().expect("names").clone();
        let row = reader.records().next().expect("a row").expect("a row");
        let of = |name: &str| {
            let column = names.iter().position(|found| found == name);
            row.get(column.expect(name)).expect("a value").to_owned()
        };
        assert_eq!(of("shortCode"), "a");
        assert_eq!(of("longUrl"), "https://x/?a,b");
        assert_eq!(of("tags"), "x|y");
        assert_eq!(of("note"), "a \"b\"\nc");
        assert_eq!(of("parameters"), r#"{"m":"1"}"#);
        assert_eq!(of("forwardQuery"), "false");
        assert_eq!(of("externalId"), "'=1+1");
        assert_eq!(of("visits"), "3");
        assert_eq!(of("lastVisitAt"), "");
        assert_eq!(of("strategy"), "hash");
    }

    #[test]
    fn a_file_says_its_form_by_its_name() {
        let file = |format, out: Option<&str>| FileOptions {
            format,
            out: out.map(PathBuf::from),
            raw: false,
        };
        for (format, out, json, expected) in [
            (None, None, false, Some(ExportFormat::Csv)),
            (None, None, true, Some(ExportFormat::Ndjson)),
            (None, Some("a.csv"), false, Some(ExportFormat::Csv)),
            (None, Some("a.jsonl"), false, Some(ExportFormat::Ndjson)),
            (
                Some(ExportFormat::Csv),
                Some("a"),
                true,
                Some(ExportFormat::Csv),
            ),
            (None, Some("a.txt"), false, None),
        ] {
            let found = file(format, out).format(json).ok();
            assert_eq!(found, expected, "{out:?}");
        }
    }
}
