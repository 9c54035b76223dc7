//! `shortlink jobs`: changes of many links, which the service does in the background.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::links::confirm;
use super::members::{Changes, Link, Options, put};
use super::session::Session;
use super::show::{block, parse};
use super::values::campaign_id;
use crate::Failure;
use crate::output::{print, thousands};
use crate::progress::Progress;

/// The interval at which the progress of a job is read.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Commands for jobs.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Revoke many links permanently, such as those of a wrong upload.
    Revoke {
        #[command(flatten)]
        new: NewJob,
        /// Revoke without asking for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Pause many links: they answer 410 until they are resumed.
    Pause(NewJob),
    /// Resume many paused links.
    Resume(NewJob),
    /// Change many links.
    ///
    /// Changes only the members that are given.
    Change(Box<ChangeArguments>),
    /// Show a job.
    Get(OneJob),
    /// Wait until a job has ended.
    Wait(OneJob),
    /// Cancel a job: links that it has changed stay changed.
    Cancel(OneJob),
    /// Print the results of a job so far, as NDJSON.
    Results(OneJob),
    /// List jobs, the newest first.
    List {
        /// Maximum number of jobs.
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: u64,
    },
}

#[derive(Debug, Args)]
pub struct OneJob {
    /// Id of the job.
    id: u64,
}

#[derive(Debug, Args)]
#[command(override_usage = "shortlink jobs change [OPTIONS] \
    <--of-upload <ID>|--of-campaign <ID>|--of-tag <TAG>|--of-external-id <ID>|--codes <FILE>> \
    <--url <URL>|--status <STATUS>|…>",
    group = Options::<Link>::one_of(["url", "cleared"]))]
pub struct ChangeArguments {
    #[command(flatten)]
    new: NewJob,
    /// New target: an http or https URL of at most 8192 bytes. Not for links of a campaign.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    changes: Changes<Link>,
}

/// The links of a job, and how it runs.
#[derive(Debug, Args)]
pub struct NewJob {
    #[command(flatten)]
    selection: Selected,
    /// Report what would happen, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Return as soon as the service has accepted the job.
    #[arg(long)]
    no_wait: bool,
    /// Idempotency-Key of the request: 1 to 255 visible ASCII characters. Repeated commands with the
    /// same key create one job.
    #[arg(long, value_name = "KEY", value_parser = super::import::checked_key)]
    idempotency_key: Option<String>,
}

/// The links of a job, by one of these options.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Selected {
    /// Links that this upload created.
    #[arg(long, value_name = "ID")]
    of_upload: Option<String>,
    /// Links of this campaign.
    #[arg(long, value_name = "ID", value_parser = campaign_id)]
    of_campaign: Option<String>,
    /// Links with this tag.
    #[arg(long, value_name = "TAG")]
    of_tag: Option<String>,
    /// Links with this external id.
    #[arg(long, value_name = "ID")]
    of_external_id: Option<String>,
    /// File with the codes of the links, one per line: at most 100,000.
    #[arg(long, value_name = "FILE")]
    codes: Option<PathBuf>,
}

impl Selected {
    fn add_to(&self, members: &mut Map<String, Value>) -> Result<(), Failure> {
        put(members, "uploadId", self.of_upload.as_ref());
        put(members, "campaignId", self.of_campaign.as_ref());
        put(members, "tag", self.of_tag.as_ref());
        put(members, "externalId", self.of_external_id.as_ref());
        if let Some(path) = &self.codes {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("{} can't be read", path.display()))?;
            let codes = text.lines().map(str::trim).filter(|line| !line.is_empty());
            members.insert("codes".to_owned(), codes.collect());
        }
        Ok(())
    }
}

impl JobsCommand {
    /// Runs the command; fails unless all links of the job are as they were to be.
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Failure> {
        match self {
            Self::Revoke { new, yes } => {
                if !yes && !new.dry_run {
                    confirm("Revoked links answer 410 permanently.")?;
                }
                return create(session, &new, "revoke", None).await;
            }
            Self::Pause(new) => return create(session, &new, "pause", None).await,
            Self::Resume(new) => return create(session, &new, "resume", None).await,
            Self::Change(arguments) => {
                let mut change = Map::new();
                put(&mut change, "longUrl", arguments.url.as_ref());
                arguments.changes.add_to(&mut change);
                return create(session, &arguments.new, "change", Some(change)).await;
            }
            Self::Wait(OneJob { id }) => return wait(session, id).await,
            Self::Get(job) => session.get(&job.path(""), describe).await?,
            Self::Cancel(job) => {
                let (method, path) = (Method::DELETE, job.path(""));
                session.send(method, &path, &[], None, describe).await?;
            }
            Self::Results(job) => {
                let answer = session.client.get(&job.path("/results")).await?;
                print(&String::from_utf8_lossy(&answer))?;
            }
            Self::List { limit } => {
                let table = [
                    ("ID", "/id"),
                    ("ACTION", "/action"),
                    ("STATE", "/state"),
                    ("SELECTED", "/selected"),
                    ("CHANGED", "/changed"),
                    ("FAILED", "/failed"),
                    ("CREATED", "/createdAt"),
                ];
                session
                    .list(
                        "/v1/jobs",
                        Vec::new(),
                        Some(limit),
                        &table,
                        &[0, 3, 4, 5],
                        |_, _| {},
                    )
                    .await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl OneJob {
    fn path(&self, more: &str) -> String {
        format!("/v1/jobs/{}{more}", self.id)
    }
}

async fn create(
    session: &Session,
    new: &NewJob,
    action: &str,
    change: Option<Map<String, Value>>,
) -> Result<ExitCode, Failure> {
    let mut members = Map::new();
    members.insert("action".to_owned(), json!(action));
    put(&mut members, "change", change.as_ref());
    put(&mut members, "dryRun", new.dry_run.then_some(&true));
    new.selection.add_to(&mut members)?;
    let key = new.idempotency_key.iter();
    let headers: Vec<_> = key.map(|key| ("Idempotency-Key", key.clone())).collect();
    let body = Value::Object(members);
    let answer = session
        .client
        .send(Method::POST, "/v1/jobs", &headers, Some(&body))
        .await?;
    if new.no_wait {
        session.tell(&answer, describe)?;
        return Ok(ExitCode::SUCCESS);
    }
    let id = parse(&answer)?["id"].as_u64();
    let id = id.context("the service has answered with a job that has no id")?;
    eprintln!(
        "shortlink: job {id}; an interrupted command does not end it: shortlink jobs wait {id}"
    );
    wait(session, id).await
}

/// Follows a job until it has ended.
async fn wait(session: &Session, id: u64) -> Result<ExitCode, Failure> {
    let progress = Progress::of_items("links");
    let path = format!("/v1/jobs/{id}");
    loop {
        let answer = session.client.get(&path).await?;
        let job = parse(&answer)?;
        if job["state"] == "running" {
            let count = |name: &str| job[name].as_u64().unwrap_or_default();
            progress.show_items("links", count("done"), count("selected"), 0);
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        progress.finish();
        session.tell(&answer, describe)?;
        let failed = job["failed"].as_u64().unwrap_or_default();
        if failed > 0 {
            let failed = thousands(failed);
            eprintln!("shortlink: {failed} links failed: shortlink jobs results {id}");
        }
        let is_done = job["state"] == "done" && failed == 0;
        return Ok(if is_done {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
}

/// A job as text.
fn describe(job: &Value) -> String {
    let lines = [
        ("job", "/id"),
        ("action", "/action"),
        ("of codes", "/selection/codes"),
        ("of upload", "/selection/uploadId"),
        ("of campaign", "/selection/campaignId"),
        ("of tag", "/selection/tag"),
        ("of external id", "/selection/externalId"),
        ("dry run", "/dryRun"),
        ("state", "/state"),
        ("reason", "/reason"),
        ("selected", "/selected"),
        ("done", "/done"),
        ("changed", "/changed"),
        ("unchanged", "/unchanged"),
        ("failed", "/failed"),
        ("created", "/createdAt"),
        ("started", "/startedAt"),
        ("finished", "/finishedAt"),
    ];
    block(job, &lines)
}
