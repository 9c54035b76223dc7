//! `shortlink visits follow`

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::form_urlencoded::Serializer;

use super::boxed;
use super::session::Session;
use super::values::{CodeText, campaign_id};
use crate::output::print;
use crate::{ClientArguments, Failure};

/// The longest wait for visits, in seconds, within the time limit of a response.
const LONGEST_WAIT_S: u64 = 20;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// Options of `shortlink visits follow`.
#[derive(Debug, Args)]
pub struct FollowArguments {
    /// Position after which to begin: `now`, `start` for all visits that are stored, or a cursor of the API.
    #[arg(long, value_name = "CURSOR", default_value = "now")]
    after: String,
    /// File with the position. If it exists, the command begins there. It writes the file after it has printed a page
    /// of visits, so after a crash it prints the last page again.
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// Only visits of this class: human, preview, scanner, bot, unknown or refused.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Only visits of this link.
    #[arg(long, value_name = "CODE")]
    code: Option<CodeText>,
    /// Only visits that were counted for this campaign.
    #[arg(long, value_name = "ID", value_parser = campaign_id)]
    campaign: Option<String>,
    /// Exit after the visits that are stored now, instead of waiting for more.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    client: ClientArguments,
}

/// A page of the feed.
#[derive(Deserialize)]
struct Page {
    visits: Vec<Box<RawValue>>,
    #[serde(rename = "nextCursor")]
    next_cursor: String,
}

/// Prints visits as they are stored.
#[boxed]
pub async fn run(arguments: &FollowArguments) -> ExitCode {
    let followed = follow(arguments).await;
    followed.map_or_else(|failure| failure.tell(), |()| ExitCode::SUCCESS)
}

async fn follow(arguments: &FollowArguments) -> Result<(), Failure> {
    let session = Session::new(&arguments.client)?;
    let mut after = arguments.begin()?;
    let mut is_failing = false;
    loop {
        let path = arguments.path(&after, session.client.time_limit());
        let answer = match session.client.get(&path).await {
            Ok(answer) => answer,
            Err(failure) if !arguments.no_wait && failure.may_pass() => {
                if !std::mem::replace(&mut is_failing, true) {
                    failure.tell();
                    eprintln!("shortlink: trying again until the service answers");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        is_failing = false;
        let page: Page = serde_json::from_slice(&answer).context(
            "the service's answer is not a page of the feed: it may be an older version",
        )?;
        let lines: String = page.visits.iter().map(|it| format!("{it}\n")).collect();
        print(&lines)?;
        let is_last = page.next_cursor == after;
        after = page.next_cursor;
        if let (Some(file), false) = (&arguments.cursor_file, is_last) {
            let written = write_cursor(file, &after);
            written.with_context(|| format!("{} can't be written", file.display()))?;
        }
        if arguments.no_wait && is_last {
            return Ok(());
        }
    }
}

impl FollowArguments {
    /// The position to begin behind.
    fn begin(&self) -> Result<String, Failure> {
        if let Some(file) = &self.cursor_file {
            match fs::read_to_string(file) {
                Ok(text) => return Ok(text.trim().to_owned()),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let file = file.display();
                    return Err(Failure::Usage(format!("{file} can't be read: {error}")));
                }
            }
        }
        Ok(match &*self.after {
            "start" => String::new(),
            after => after.to_owned(),
        })
    }

    fn path(&self, after: &str, limit: Duration) -> String {
        let mut query = Serializer::new(String::new());
        query
            .append_pair("after", after)
            .append_pair("limit", "1000");
        if !self.no_wait {
            let wait = (limit.as_secs() / 2).min(LONGEST_WAIT_S);
            query.append_pair("wait", &wait.to_string());
        }
        let code = self.code.as_ref().map(|code| code.0.clone());
        for (name, value) in [
            ("class", &self.class),
            ("code", &code),
            ("campaignId", &self.campaign),
        ] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        format!("/v1/visits?{}", query.finish())
    }
}

/// Replaces the file of the position, so that a crash leaves the old or the new one.
fn write_cursor(path: &Path, cursor: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let mut file = fs::File::create(&name)?;
    writeln!(file, "{cursor}")?;
    file.sync_all()?;
    fs::rename(&name, path)
}
