//! `shortlink visits`

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use async_trait::async_trait;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use shortlink_client::commands::follow::{self, FollowArguments};
use shortlink_client::output::{print, thousands};
use shortlink_client::progress;
use shortlink_core::ports::{StoreError, VisitsToExport};
use shortlink_service::jobs::{Job, Next, Outcome, Run};
use shortlink_store::Store;
use shortlink_warehouse::{Destination, PartFiles, Progress, WarehouseError};

use super::workbench::Workbench;
use crate::config::Config;
use crate::lifecycle::cancelled_by_signal;

/// The number of visits that are read at a time.
const TOGETHER: u32 = 5000;

/// The longest wait for the claim of a killed run.
const PATIENCE: Duration = Duration::from_secs(15);

/// Commands for visits.
#[derive(Debug, Subcommand)]
pub(super) enum VisitsCommand {
    /// Export stored visits to files for a data warehouse, by day.
    ///
    /// Writes the visits that no earlier run has written to the same place, in the order in which they were stored, and
    /// notes its progress there. The service can be running. The next run resumes an interrupted one and replaces its
    /// incomplete files, so that each visit is in one file.
    ///
    /// Credentials and settings of S3 are the usual variables of the environment: AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for a storage other than Amazon's.
    ///
    /// Exit codes: 0 done, 1 failed or interrupted.
    Export(ExportArguments),
    /// Print visits of a running service in the order in which they are stored, over its API.
    ///
    /// One JSON object per line, each visit exactly once. The command waits for more visits, and for a
    /// service that does not answer.
    ///
    /// Exit codes: 0 done, 1 failed or refused by the service, 2 invalid command line or client settings.
    Follow(FollowArguments),
}

/// The format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileFormat {
    /// Apache Parquet, compressed with Zstandard.
    Parquet,
}

/// Options of `shortlink visits export`.
#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    /// Format of the files.
    #[arg(long, value_enum, default_value_t = FileFormat::Parquet)]
    format: FileFormat,
    /// Destination: a directory, which is created if it is missing, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "PLACE")]
    out: String,
    /// Maximum number of visits of a part: 1 to 10000000. The visits of a part become one file per day. Larger parts
    /// need more memory.
    #[arg(long, value_name = "VISITS", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(i64).range(1..=10_000_000))]
    part: i64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl VisitsCommand {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let arguments = match self {
            Self::Export(arguments) => arguments,
            Self::Follow(arguments) => return Ok(follow::run(&arguments).await),
        };
        let FileFormat::Parquet = arguments.format;
        let destination = Destination::new(&arguments.out)?;
        let exported = async |bench: &Workbench| export(bench, destination, &arguments).await;
        Workbench::with(config, exported).await?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn export(
    bench: &Workbench,
    destination: Destination,
    arguments: &ExportArguments,
) -> anyhow::Result<()> {
    let export = Export {
        store: Arc::clone(&bench.store),
        destination,
        part: arguments.part,
        to_export: None,
        progress: None,
        done: Done::default(),
    };
    let shutdown = cancelled_by_signal()?;
    let begun = Instant::now();
    let display = progress::Progress::of_items("visits");
    let mut run = Run::new(export, &bench.claims);
    let mut report = |job: Option<&Export>| match job {
        Some(job) => {
            let (exported, goal) = job.reached();
            let before = exported.saturating_sub(job.done.visits);
            display.show_items("visits", exported, goal, before);
        }
        None => {
            eprintln!("shortlink: another process exports visits or was killed; waiting");
        }
    };
    let outcome = run.finish(PATIENCE, &shutdown, &mut report).await;
    display.finish();
    let outcome = outcome?;
    if outcome == Outcome::Claimed {
        bail!("another process exports visits of this database; wait until it ends");
    }
    let seconds = begun.elapsed().as_secs_f64();
    print(
        &run.job
            .text(outcome == Outcome::Done, seconds, arguments.json),
    )?;
    if outcome != Outcome::Done {
        bail!("interrupted; the next run continues here");
    }
    Ok(())
}

/// The result of this run.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    visits: u64,
    files: u64,
    bytes: u64,
}

/// An export under way; each step writes a part.
struct Export {
    store: Arc<Store>,
    destination: Destination,
    /// The most visits of a part.
    part: i64,
    to_export: Option<VisitsToExport>,
    progress: Option<Progress>,
    done: Done,
}

/// The failure of an export.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Warehouse(#[from] WarehouseError),
    #[error("{0} has visits of another database; use a separate place for each database")]
    OtherDatabase(String),
    #[error(
        "{0} has visits up to number {1}, and the database only up to {2}: it was restored from a backup; export into \
         another place, or remove the files of the later visits and correct {note} there",
        note = Progress::NAME
    )]
    Restored(String, i64, i64),
}

#[async_trait]
impl Job for Export {
    type Error = ExportError;
    const NAME: &'static str = "export-visits";
    const FAILURE: &'static str = "visits can't be exported";
    /// Short, so that a run need not wait long for the claim of a killed one. Two runs that both believe to hold it
    /// write the same files.
    const LEASE: Option<Duration> = Some(Duration::from_secs(5));

    async fn begin(&mut self) -> Result<(), ExportError> {
        let to_export = self.store.visits_to_export().await?;
        let database = self.store.export_identity();
        let progress = match self.destination.progress().await? {
            Some(progress) => progress,
            None => {
                let progress = Progress::start(database.clone());
                self.destination.note(&progress).await?;
                progress
            }
        };
        let name = || self.destination.name().to_owned();
        if progress.database != database {
            return Err(ExportError::OtherDatabase(name()));
        }
        let written = progress.writing;
        if written > to_export.stored {
            return Err(ExportError::Restored(name(), written, to_export.stored));
        }
        self.to_export = Some(to_export);
        self.progress = Some(progress);
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, ExportError> {
        let (Some(to_export), Some(progress)) = (self.to_export, &mut self.progress) else {
            return Ok(Next::Idle);
        };
        if let Some(part) = progress.part() {
            let visits = write_part(&self.store, &self.destination, part).await?;
            self.done.visits += visits.visits;
            self.done.files += visits.files;
            self.done.bytes += visits.bytes;
        } else if progress.exported >= to_export.judged {
            return Ok(Next::Idle);
        }
        // The files of a part are written only after its note: a repeated run writes the same ones again.
        let mut next = progress.clone();
        next.advance(to_export.judged.min(next.writing + self.part));
        self.destination.note(&next).await?;
        *progress = next;
        Ok(Next::Now)
    }
}

/// Writes the files of a part.
async fn write_part(
    store: &Store,
    destination: &Destination,
    part: (i64, i64),
) -> Result<Done, ExportError> {
    let mut files = PartFiles::new()?;
    let mut done = Done::default();
    let (mut after, last) = part;
    loop {
        let visits = store.exported_visits(after, last, TOGETHER).await?;
        let Some(latest) = visits.last() else { break };
        after = latest.visit.number;
        done.visits += visits.len() as u64;
        for visit in visits {
            files.push(visit)?;
        }
    }
    for (path, bytes) in files.finish(part)? {
        done.files += 1;
        done.bytes += bytes.len() as u64;
        destination.write(&path, bytes).await?;
    }
    Ok(done)
}

impl Export {
    /// The last visit that is exported, and the last one that is to be.
    fn reached(&self) -> (u64, u64) {
        let exported = self.progress.as_ref().map_or(0, |it| it.exported);
        let goal = self.to_export.map_or(0, |it| it.judged);
        (exported.unsigned_abs(), goal.unsigned_abs())
    }

    /// The report of this run.
    fn text(&self, is_done: bool, seconds: f64, json: bool) -> String {
        let Done {
            visits,
            files,
            bytes,
        } = self.done;
        let (exported, _) = self.reached();
        let waiting = self.to_export.map_or(0, |it| it.stored - it.judged);
        if json {
            let report = json!({
                "isDone": is_done,
                "visits": visits,
                "files": files,
                "bytes": bytes,
                "lastId": exported,
                "notJudged": waiting,
                "seconds": seconds,
            });
            return format!("{report}\n");
        }
        let mut text = format!(
            "{} visits in {} files ({} bytes) in {seconds:.1} s: {} has the visits up to number {exported}\n",
            thousands(visits),
            thousands(files),
            thousands(bytes),
            self.destination.name(),
        );
        if waiting > 0 {
            let waiting = thousands(waiting.unsigned_abs());
            text.push_str(&format!(
                "at most {waiting} visits are not judged by behaviour yet; a later run exports them\n"
            ));
        }
        text
    }
}
