//! `shortlink import` and `shortlink export`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use flate2::Compression;
use flate2::write::GzEncoder;
use shortlink_api::encoding::Charset;
use shortlink_client::input::charset;
use shortlink_client::progress::Progress;
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::link::State;
use shortlink_core::ports::Publisher;
use shortlink_core::target::OwnHosts;
use shortlink_service::import::{ImportError, ImportOptions, Importer};
use shortlink_store::Store;
use vocabulary::CampaignId;

use crate::config::Config;
use crate::transfer::columns::{Assignment, Names};
use crate::transfer::export::{LinkWriter, export};
use crate::transfer::input::{Format, Source};
use crate::transfer::report::Report;
use crate::transfer::row::Checks;
use crate::transfer::windows::{Reading, Window};

/// The number of campaigns in a page.
const CAMPAIGNS_TOGETHER: u32 = 1000;

/// The progress of work of an unknown length.
const SPINNER: &str = "{spinner} {msg}";

/// The exit code of an import in which rows were refused or in conflict.
const SOME_ROWS: u8 = 2;

/// Options of `shortlink import`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Columns are found by name; upper and lower case, _, - and spaces make no difference:
  code     code, shortCode, slug, keyword, alias, address
  shortUrl shortUrl, shortLink, bitlink, link; read in files without a code: the code is the path
  url      longUrl, originalUrl, destination, destinationUrl, target, targetUrl, url
  created  created, createdAt, creationDate, dateCreated, timestamp
  expires  expires, expiresAt, validUntil, expirationDate, expiryDate, expireIn, expirationAt
  All others that `shortlink export` writes are known by their names there.
Other columns are ignored. The command lists both before it writes. Times are RFC 3339, YYYY-MM-DD with
or without HH:MM:SS (UTC), or seconds or milliseconds since 1970. Files can be compressed with gzip.

A row is refused if the other service did not redirect its link for all visitors: banned, bannedAt,
disabled, disabledAt, deleted, deletedAt, password, hasPassword or passwordProtected is set, or active
or enabled is false. `--map password=` ignores such a column.

The import never changes existing links. A row whose link exists with the same target is not an error, so
an interrupted import can be repeated. The service can be running; the import leaves it time to write.
Expired links are imported and answer 410.

Exit codes: 0 every row is in the database, 1 the import failed, 2 some rows are invalid or conflict
with existing links.")]
pub(super) struct ImportCommand {
    /// Files, imported one after the other; - is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Format of all files. Default: by the extension of each (.csv, .tsv, .tab, .ndjson or .jsonl,
    /// with or without .gz).
    #[arg(long)]
    format: Option<Format>,
    /// Names of columns in the files: code=keyword,url=dest. `created=` ignores a column.
    #[arg(long, value_name = "COLUMN=NAME,…", value_delimiter = ',')]
    map: Vec<Assignment>,
    /// Names of the columns, for files without a header line: keyword,url,title.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    header: Option<Vec<String>>,
    /// Encoding of the files: utf-8, utf-16, utf-16le, utf-16be, gbk or gb18030. A byte order mark takes precedence.
    /// Default: utf-8.
    #[arg(long, value_name = "NAME", value_parser = charset)]
    encoding: Option<Charset>,
    /// Separator of columns: one ASCII character, or \t for a tab. Default: a tab in TSV; in CSV the
    /// most frequent of comma, semicolon and tab in the first line, and the comma with --header.
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Leading segments of the paths of short URLs, to remove: s, or a/b. Without it, a path of several
    /// segments is refused.
    #[arg(long, value_name = "PATH", value_parser = prefix)]
    prefix: Option<String>,
    /// Separator of tags in a text: one character.
    #[arg(long, value_name = "CHARACTER", default_value_t = '|')]
    tag_delimiter: char,
    /// Check every row, also against existing links, and write nothing. Rows with the same code are
    /// detected only where they are close together in the file.
    #[arg(long)]
    dry_run: bool,
    /// Output file for a JSON object per line, for each row that did not create a link.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Action for a row whose code belongs to a link with another target.
    #[arg(long, value_enum, default_value_t = OnConflict::Skip)]
    on_conflict: OnConflict,
    /// Id of the API key that the links are recorded as created with. Default: "import".
    #[arg(long, value_name = "ID")]
    key_id: Option<String>,
    /// Short domain that targets must not be on, to prevent redirect loops. Can be repeated.
    #[arg(long = "own-domain", value_name = "NAME")]
    own_domains: Vec<String>,
    /// Leave no time for other writers. Only for a database that no service is using.
    #[arg(long)]
    full_speed: bool,
}

/// Options of `shortlink export`.
#[derive(Debug, Args)]
pub(super) struct ExportCommand {
    /// Format of the output. Default: by the extension of the file, else csv.
    #[arg(long)]
    format: Option<Format>,
    /// Only links in this state. Default: all links.
    #[arg(long, value_parser = state())]
    state: Option<State>,
    /// Output file, which appears when it is complete. The extension .gz compresses it with gzip.
    /// Default: standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnConflict {
    /// Skip the row and report it.
    Skip,
    /// Stop the import. Links imported until then remain.
    Fail,
}

/// Reads a state that links of an export can have.
fn state() -> impl TypedValueParser<Value = State> {
    let states = [State::Live, State::Expired, State::Revoked];
    let named = move |name: String| states.into_iter().find(|state| state.name() == name);
    let names = PossibleValuesParser::new(states.map(State::name));
    names.try_map(move |name| named(name).ok_or("no state"))
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n') => Ok(*byte),
        _ if text == "\\t" => Ok(b'\t'),
        _ => Err("must be one character such as ; or \\t".to_owned()),
    }
}

fn prefix(text: &str) -> Result<String, String> {
    let segments = text.trim_matches('/');
    if segments.is_empty() || segments.contains("//") || segments.contains(['?', '#', ':']) {
        return Err("must be leading segments of a path such as s or a/b".to_owned());
    }
    Ok(segments.to_owned())
}

impl ImportCommand {
    /// Imports the files.
    pub(super) async fn run(
        self,
        config: &Config,
        store: Arc<Store>,
        publisher: Arc<dyn Publisher>,
    ) -> anyhow::Result<ExitCode> {
        let clock = SystemClock;
        let began = clock.now();
        if let Some(id) = &self.key_id
            && store.find_key(id).await?.is_none()
        {
            anyhow::bail!("there is no key {id:?}; `shortlink keys list` shows all");
        }
        let files = self.sources()?;
        let names: Vec<String> = files.iter().map(|(source, _)| source.name()).collect();
        let mut own = OwnHosts::default();
        for domain in &self.own_domains {
            own.add(domain);
        }
        let report_file = match &self.report {
            None => None,
            Some(path) => {
                let file = File::create(path);
                let file =
                    file.with_context(|| format!("cannot write the report {}", path.display()))?;
                Some(Box::new(BufWriter::new(file)) as Box<dyn Write + Send>)
            }
        };
        let mut report = Report::new(&names, report_file);
        let length: Option<u64> = files.iter().map(|(source, _)| source.length()).sum();
        let template = match length {
            Some(_) => "{wide_bar} {percent}% {msg}, {eta} left",
            None => SPINNER,
        };
        let (progress, started) = (Progress::new(length, template), Instant::now());
        let reading = Reading {
            files,
            names: Names::new(self.map),
            header: self.header,
            charset: self.encoding.unwrap_or_default(),
            delimiter: self.delimiter,
            checks: Checks {
                rules: config.codes.rules.clone(),
                reserved: config.codes.reserved.clone(),
                policy: config.links.policy,
                own,
                redirect_status: config.links.redirect_status,
                created_by: self.key_id.unwrap_or_else(|| "import".to_owned()),
                now: began,
                campaigns: campaigns(&store).await?,
                prefix: self.prefix.unwrap_or_default(),
                tag_delimiter: self.tag_delimiter,
            },
        };
        let importer = Importer {
            store,
            publisher,
            clock: Arc::new(clock),
            began,
            options: ImportOptions {
                dry_run: self.dry_run,
                stop_at_conflict: self.on_conflict == OnConflict::Fail,
                full_speed: self.full_speed,
            },
        };
        let mut windows = reading.start().context("cannot start to read")?;
        let done = async {
            let mut start = 0;
            while let Some(window) = windows.recv().await {
                let window = window?;
                for line in &window.columns {
                    progress.print(line);
                }
                import(&importer, &window, &mut report, &progress, start, &names).await?;
                start = window.position;
            }
            anyhow::Ok(())
        };
        let done = done.await;
        finish(&progress, report.rows(), started);
        for line in report.lines(self.dry_run) {
            eprintln!("shortlink: {line}");
        }
        // Rows that were imported before the fault stay, and were counted.
        done?;
        Ok(match report.conflicts + report.refused() {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(SOME_ROWS),
        })
    }

    fn sources(&self) -> anyhow::Result<Vec<(Source, Format)>> {
        let mut sources = Vec::new();
        for path in &self.files {
            let format = self.format.or_else(|| Format::of(path)).with_context(|| {
                let name = path.display();
                format!("the format of {name} is unknown; set it with --format")
            })?;
            sources.push((Source::new(path.clone()), format));
        }
        let standard = |(source, _): &&(Source, Format)| matches!(source, Source::Standard);
        if sources.iter().filter(standard).count() > 1 {
            anyhow::bail!("standard input can be read once only");
        }
        Ok(sources)
    }
}

/// Imports a window, which begins behind so many bytes.
async fn import(
    importer: &Importer,
    window: &Window,
    report: &mut Report<'_>,
    progress: &Progress,
    start: u64,
    names: &[String],
) -> anyhow::Result<()> {
    let (before, done) = (report.rows(), AtomicU64::new(0));
    let advance = |count: usize| {
        let done = done.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        let share = done as f64 / window.links.len().max(1) as f64;
        let position = start + ((window.position - start) as f64 * share) as u64;
        progress.show(position, || format!("{} rows so far", before + done));
    };
    let imported = importer.import(&window.links, &advance).await;
    let imported = match imported {
        Ok(imported) => imported,
        Err(ImportError::Conflict { place }) => {
            let origin = window.origins[place];
            anyhow::bail!(
                "{} line {}: the code {} is taken by a link to another target; what was imported \
                 before stays",
                names[origin.file],
                origin.line,
                window.links[place].code
            );
        }
        Err(error @ ImportError::Store(_)) => return Err(error.into()),
    };
    report.waiting += imported.waiting;
    report
        .add(window, &imported.outcomes)
        .context("cannot write the report")
}

impl ExportCommand {
    /// Exports the links.
    pub(super) async fn run(self, store: &Store) -> anyhow::Result<ExitCode> {
        let name = self.out.as_deref();
        let format = self.format.or_else(|| name.and_then(Format::of));
        let format = format.unwrap_or(Format::Csv);
        let (progress, started) = (Progress::new(None, SPINNER), Instant::now());
        let count = match &self.out {
            None => {
                let out = BufWriter::new(io::stdout().lock());
                write_links(store, out, format, self.state, &progress)
                    .await?
                    .0
            }
            Some(path) => {
                let cannot = || format!("cannot write {}", path.display());
                // Under another name while it is not whole.
                let partial = beside(path);
                let file = File::create(&partial).with_context(cannot)?;
                let written = if path.extension().is_some_and(|it| it == "gz") {
                    let out = GzEncoder::new(BufWriter::new(file), Compression::fast());
                    let (count, out) =
                        write_links(store, out, format, self.state, &progress).await?;
                    (count, out.finish().with_context(cannot)?)
                } else {
                    write_links(store, BufWriter::new(file), format, self.state, &progress).await?
                };
                let (count, out) = written;
                let file = out.into_inner().map_err(io::IntoInnerError::into_error);
                let stored = file.and_then(|file| file.sync_all());
                let stored = stored.and_then(|()| std::fs::rename(&partial, path));
                stored.with_context(cannot)?;
                count
            }
        };
        finish(&progress, count, started);
        eprintln!("shortlink: {count} links exported");
        Ok(ExitCode::SUCCESS)
    }
}

/// The name that a file has until it is whole.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

async fn write_links<W: Write>(
    store: &Store,
    out: W,
    format: Format,
    state: Option<State>,
    progress: &Progress,
) -> anyhow::Result<(u64, W)> {
    let mut writer = LinkWriter::new(out, format, SystemClock.now())?;
    let rows = AtomicU64::new(0);
    let advance = |count| {
        let rows = rows.fetch_add(count, Ordering::Relaxed) + count;
        progress.show(0, || format!("{rows} rows so far"));
    };
    let count = export(store, &mut writer, state, advance).await?;
    Ok((count, writer.finish()?))
}

/// Removes the progress, and reports the speed.
fn finish(progress: &Progress, rows: u64, began: Instant) {
    progress.finish();
    let took = began.elapsed().as_secs_f64();
    eprintln!(
        "shortlink: {rows} rows in {took:.1} s ({:.0} a second)",
        rows as f64 / took.max(0.001)
    );
}

/// Every campaign's number of parameters.
async fn campaigns(store: &Store) -> anyhow::Result<HashMap<CampaignId, usize>> {
    let mut all = HashMap::new();
    let mut after = None;
    loop {
        let page = store
            .list_campaigns(after, CAMPAIGNS_TOGETHER, None)
            .await?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after = Some(last.id);
        all.extend(page.iter().map(|it| (it.id, it.target.names().len())));
    }
}
