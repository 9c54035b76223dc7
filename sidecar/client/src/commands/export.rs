//! `shortlink links export` and `shortlink campaigns recipients`: listings of the API, as files.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use shortlink_api::cells::Cells;
use shortlink_api::link::LinkSettings;
use shortlink_api::members::{Member, Members};
use shortlink_api::rules::PlanMembers;

use super::filters::{Filters, clicked};
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
const TAIL: [(&str, &str); 12] = [
    ("revision", "/revision"),
    ("createdAt", "/createdAt"),
    ("updatedAt", "/updatedAt"),
    ("createdBy", "/createdBy"),
    ("visits", "/visits/total"),
    ("visitsHuman", "/visits/human"),
    ("lastVisitAt", "/visits/lastAt"),
    ("visitsRefused", "/visits/refused"),
    ("strategy", "/strategy"),
    ("clicks", "/visits/clicks"),
    ("firstClickAt", "/visits/firstClickAt"),
    ("lastClickAt", "/visits/lastClickAt"),
];

/// The columns of the recipients of a campaign.
const OF_RECIPIENTS: [(&str, &str); 5] = [
    ("externalId", "/externalId"),
    ("shortCode", "/shortCode"),
    ("firstClickAt", "/firstClickAt"),
    ("lastClickAt", "/lastClickAt"),
    ("clicks", "/clicks"),
];

/// The columns of CSV: their names, and the places of their values.
type Columns = Vec<(&'static str, String)>;

fn places(columns: &'static [(&'static str, &'static str)]) -> Columns {
    let columns = columns.iter();
    let columns = columns.map(|(name, place)| (*name, (*place).to_owned()));
    columns.collect()
}

/// The columns of links.
fn of_links() -> Columns {
    let of = |members: &'static [Member]| {
        // Links have variants as rules. New columns are the last ones.
        let places = members
            .iter()
            .filter(|member| !["variants", "domain"].contains(&member.name));
        let places = places.map(|member| (member.name, format!("/{}", member.name)));
        places.collect::<Columns>()
    };
    [
        places(&HEAD),
        of(LinkSettings::MEMBERS),
        places(&TAIL),
        of(PlanMembers::MEMBERS),
        places(&[("domain", "/domain"), ("clickId", "/clickId")]),
    ]
    .concat()
}

/// The form of a file.
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

/// Options of a file.
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

/// Writes links.
pub(super) async fn run(session: &Session, arguments: &ExportArguments) -> Result<(), Failure> {
    let listing = Listing {
        path: "/v1/links",
        filters: arguments.filters.parameters(),
        columns: of_links(),
        items: "links",
    };
    write_all(session, listing, &arguments.file).await
}

/// Writes the recipients of a campaign, whose listing is at a path.
pub(super) async fn recipients(
    session: &Session,
    path: &str,
    filter: Option<bool>,
    file: &FileOptions,
) -> Result<(), Failure> {
    let listing = Listing {
        path,
        filters: clicked(filter).into_iter().collect(),
        columns: places(&OF_RECIPIENTS),
        items: "recipients",
    };
    write_all(session, listing, file).await
}

/// A listing that becomes a file.
struct Listing<'a> {
    path: &'a str,
    filters: Vec<(&'static str, String)>,
    columns: Columns,
    /// The word for its items.
    items: &'static str,
}

/// Writes items as they are listed; no more than a page of them is in memory.
async fn write_all(
    session: &Session,
    listing: Listing<'_>,
    file: &FileOptions,
) -> Result<(), Failure> {
    let Listing {
        path,
        filters,
        columns,
        items: word,
    } = listing;
    let format = file.format(session.json)?;
    let cells = Cells::raw(file.raw);
    let mut pager = Pager::new(&session.client, path, filters, None);
    // The first request is before the file is opened, so that an invalid key leaves it unchanged.
    let mut page = pager.next().await?;
    let out: Box<dyn Write> = match &file.out {
        None => Box::new(io::stdout()),
        Some(path) => {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("{} can't be written", path.display()))?)
        }
    };
    let bar = bar(
        None,
        &format!("{{spinner}} {{human_pos}} {word}, {{per_sec}}"),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let cant_write = || format!("{word} can't be written");
    let mut written = 0;
    let done = async {
        let mut writer = begin(format, &columns, BufWriter::new(out)).with_context(cant_write)?;
        while let Some(items) = page {
            for item in &items {
                write(&mut writer, &columns, cells, item.get())?.with_context(cant_write)?;
            }
            written += items.len() as u64;
            bar.set_position(written);
            page = pager.next().await?;
        }
        writer.finish().with_context(cant_write)?;
        Ok(())
    };
    let done: Result<(), Failure> = done.await;
    bar.finish_and_clear();
    let written = thousands(written);
    if let Err(failure) = done {
        if file.out.is_some() {
            eprintln!("shortlink: the file is incomplete: it has {written} {word}");
        }
        return Err(failure);
    }
    if let Some(path) = &file.out {
        eprintln!("shortlink: {written} {word} in {}", path.display());
    }
    Ok(())
}

fn begin<W: Write>(format: ExportFormat, columns: &Columns, out: W) -> io::Result<RowWriter<W>> {
    let delimiter = (format == ExportFormat::Csv).then_some(b',');
    RowWriter::new(out, delimiter, columns.iter().map(|(name, _)| *name))
}

/// Writes an item as the API returns it.
///
/// # Errors
/// Fails for an item that is no JSON; the inner error is that of the file.
fn write<W: Write>(
    writer: &mut RowWriter<W>,
    columns: &Columns,
    cells: Cells,
    item: &str,
) -> Result<io::Result<()>, Failure> {
    Ok(match writer {
        RowWriter::Json(out) => writeln!(out, "{item}"),
        RowWriter::Separated(writer) => {
            let item = parse(item.as_bytes())?;
            let values = columns.iter().map(|(_, place)| item.pointer(place));
            write_fields(writer, cells, values)
        }
    })
}

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
            let columns = of_links();
            let mut writer = begin(format, &columns, Vec::new()).expect("a head");
            let written = write(&mut writer, &columns, cells, &link).expect("a link");
            written.expect("a place");
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
