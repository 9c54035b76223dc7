//! `shortlink links`

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use shortlink_api::link::LinkSettings;
use shortlink_api::members::Members;

use super::export::ExportArguments;
use super::filters::Filters;
use super::import::ImportArguments;
use super::members::{Link, Options, put};
use super::show::{block, member, parse, plain, tell};
use super::values::{CodeText, code_length};
use super::{explain, export, import};
use crate::columns::Columns;
use crate::output::print;
use crate::{Client, Failure, Pager};

/// Commands for links.
#[derive(Debug, Subcommand)]
pub enum LinksCommand {
    /// Create a link.
    Create(Box<CreateArguments>),
    /// Show a link.
    Get {
        /// Code or short URL of the link.
        code: CodeText,
    },
    /// List links, the newest first.
    List(ListArguments),
    /// Change a link.
    ///
    /// Changes only the members that are given.
    Change(Box<ChangeArguments>),
    /// Pause a link: it answers 410 until it is resumed.
    Pause(OneLink),
    /// Resume a paused link.
    Resume(OneLink),
    /// Revoke a link permanently: it answers 410 from then on.
    Revoke {
        #[command(flatten)]
        link: OneLink,
        /// Revoke without asking for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Explain the response to a code, with or without a link.
    Explain {
        /// Code or short URL.
        code: CodeText,
    },
    /// List the changes of a link, the newest first.
    ///
    /// Shows the link before each change, and the API key that changed it.
    History {
        /// Code or short URL of the link.
        code: CodeText,
        /// Maximum number of changes.
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: u64,
    },
    /// Print the QR code of a link's short URL, as SVG.
    Qr {
        /// Code or short URL of the link.
        code: CodeText,
    },
    /// Create a link from each row of a CSV or NDJSON file.
    Import(ImportArguments),
    /// Export links, with their numbers of visits, as CSV or NDJSON.
    Export(ExportArguments),
}

#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Target of the link: an http or https URL of at most 8192 bytes.
    #[arg(required_unless_present = "campaign", conflicts_with = "campaign")]
    url: Option<String>,
    /// Id of the link's campaign, which defines the target.
    #[arg(long, value_name = "ID")]
    campaign: Option<String>,
    /// Print only the short URL.
    #[arg(long, short)]
    quiet: bool,
    /// Custom code: 1 to 16 letters and digits. Default: a code is issued.
    #[arg(long, value_name = "CODE")]
    slug: Option<String>,
    /// Strategy that issues the code: permuted, pool, sequence or hash. Default: that of the
    /// campaign, else `codes.strategy` of the sidecar.
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<String>,
    /// Number of characters of the code, without the check character: 7, or a range such as 7-9.
    /// From 1 to 12; sequence 4 to 12, hash 1 to 8. Default: that of the campaign, else
    /// `codes.body_length` to `codes.longest_body_length` of the sidecar.
    #[arg(long, value_name = "LENGTH", value_parser = code_length)]
    code_length: Option<Value>,
    /// Return the link of an identical earlier request if it is live and unchanged. Not with --slug
    /// or --idempotency-key.
    #[arg(long)]
    dedupe: bool,
    /// Idempotency-Key of the request: 1 to 255 visible ASCII characters. Repeated commands with
    /// the same key create one link within 24 hours.
    #[arg(long, value_name = "KEY", value_parser = super::import::checked_key)]
    idempotency_key: Option<String>,
    #[command(flatten)]
    options: Options<Link>,
}

#[derive(Debug, Args)]
#[command(override_usage = "shortlink links change [OPTIONS] <CODE>",
    group = Options::<Link>::one_of(["url", "cleared"]))]
pub struct ChangeArguments {
    #[command(flatten)]
    link: OneLink,
    /// New target: an http or https URL of at most 8192 bytes. Not for a link of a campaign.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Member to remove. Can be repeated; commas separate several values.
    #[arg(
        long = "clear",
        id = "cleared",
        value_name = "MEMBER",
        value_delimiter = ',',
        value_parser = Options::<Link>::removable()
    )]
    cleared: Vec<String>,
    #[command(flatten)]
    options: Options<Link>,
}

#[derive(Debug, Args)]
pub struct OneLink {
    /// Code or short URL of the link.
    code: CodeText,
    /// Revision that the link must have; otherwise the command fails and changes nothing.
    #[arg(long, value_name = "REVISION")]
    if_revision: Option<u64>,
}

#[derive(Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    filters: Filters,
    /// Maximum number of links.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 50,
        conflicts_with = "all"
    )]
    limit: u64,
    /// List all links.
    #[arg(long)]
    all: bool,
}

impl LinksCommand {
    /// Runs the command.
    pub(super) async fn run(self, client: &Client, json: bool) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(arguments) => create(client, json, &arguments).await?,
            Self::Get { code } => {
                let answer = client.get(&format!("/v1/links/{}", code.0)).await?;
                tell(&answer, json, describe)?;
            }
            Self::List(arguments) => list(client, json, &arguments).await?,
            Self::Change(arguments) => change(client, json, &arguments).await?,
            Self::Pause(link) => act(client, json, &link, Method::POST, "/pause").await?,
            Self::Resume(link) => act(client, json, &link, Method::POST, "/resume").await?,
            Self::Revoke { link, yes } => revoke(client, json, &link, yes).await?,
            Self::Explain { code } => explain::run(client, json, &code).await?,
            Self::History { code, limit } => history(client, json, &code, limit).await?,
            Self::Qr { code } => {
                let answer = client.get(&format!("/v1/links/{}/qr", code.0)).await?;
                print(&format!(
                    "{}\n",
                    String::from_utf8_lossy(&answer).trim_end()
                ))?;
            }
            Self::Import(arguments) => return import::run(client, json, arguments).await,
            Self::Export(arguments) => export::run(client, json, &arguments).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn create(client: &Client, json: bool, arguments: &CreateArguments) -> Result<(), Failure> {
    let mut members = Map::new();
    put(&mut members, "longUrl", arguments.url.as_ref());
    put(&mut members, "campaignId", arguments.campaign.as_ref());
    put(&mut members, "customSlug", arguments.slug.as_ref());
    put(&mut members, "strategy", arguments.strategy.as_ref());
    put(&mut members, "codeLength", arguments.code_length.as_ref());
    put(&mut members, "dedupe", arguments.dedupe.then_some(&true));
    arguments.options.add_to(&mut members);
    let key = arguments.idempotency_key.clone();
    let headers: Vec<_> = key
        .map(|key| ("Idempotency-Key", key))
        .into_iter()
        .collect();
    let body = Value::Object(members);
    if arguments.quiet && json {
        let problem = "--quiet and --json exclude each other: choose one";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let answer = client.send(Method::POST, "/v1/links", &headers, Some(&body));
    let answer = answer.await?;
    if !arguments.quiet {
        return tell(&answer, json, describe);
    }
    let link = parse(&answer)?;
    let Some(url) = link["shortUrl"].as_str() else {
        let code = member(&link, "/shortCode");
        return Err(Failure::Other(anyhow::anyhow!(
            "link {code} was created, but no active short domain is for it: see `shortlink domains list`"
        )));
    };
    Ok(print(&format!("{url}\n"))?)
}

async fn change(client: &Client, json: bool, arguments: &ChangeArguments) -> Result<(), Failure> {
    let mut members = Map::new();
    put(&mut members, "longUrl", arguments.url.as_ref());
    arguments.options.add_to(&mut members);
    Options::<Link>::clear(&mut members, &arguments.cleared);
    let path = format!("/v1/links/{}", arguments.link.code.0);
    let headers = arguments.link.headers();
    let body = Value::Object(members);
    let answer = client.send(Method::PATCH, &path, &headers, Some(&body));
    tell(&answer.await?, json, describe)
}

async fn act(
    client: &Client,
    json: bool,
    link: &OneLink,
    method: Method,
    action: &str,
) -> Result<(), Failure> {
    let path = format!("/v1/links/{}{action}", link.code.0);
    let answer = client.send(method, &path, &link.headers(), None).await?;
    tell(&answer, json, describe)
}

async fn revoke(client: &Client, json: bool, link: &OneLink, yes: bool) -> Result<(), Failure> {
    if !yes {
        let found = parse(&client.get(&format!("/v1/links/{}", link.code.0)).await?)?;
        let (code, target) = (member(&found, "/shortCode"), member(&found, "/longUrl"));
        confirm(&format!(
            "{code} redirects to {target}. A revoked link answers 410, for good."
        ))?;
    }
    act(client, json, link, Method::DELETE, "").await
}

/// Prints the effect of a command, and asks for confirmation.
pub(super) fn confirm(what: &str) -> Result<(), Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(Failure::Usage(format!(
            "{what} Input is not a terminal: confirm with --yes"
        )));
    }
    let mut error = std::io::stderr().lock();
    let asked = write!(error, "{what}\nRevoke? [y/N] ").and_then(|()| error.flush());
    asked.context("the question can't be written")?;
    let mut answer = String::new();
    let read = input.read_line(&mut answer);
    read.context("the answer can't be read")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Other(anyhow::anyhow!("nothing was done"))),
    }
}

impl OneLink {
    fn headers(&self) -> Vec<(&'static str, String)> {
        let revision = self.if_revision.into_iter();
        revision
            .map(|revision| ("If-Match", format!("\"{revision}\"")))
            .collect()
    }
}

/// The lines of a link before its settings: labels, and the places of their values.
const HEAD: [(&str, &str); 7] = [
    ("short URL", "/shortUrl"),
    ("code", "/shortCode"),
    ("target", "/longUrl"),
    ("state", "/state"),
    ("campaign", "/campaignId"),
    ("of state", "/campaignState"),
    ("parameters", "/parameters"),
];

/// The lines behind them.
const TAIL: [(&str, &str); 8] = [
    ("visits", "/visits/total"),
    ("human", "/visits/human"),
    ("last visit", "/visits/lastAt"),
    ("revision", "/revision"),
    ("created", "/createdAt"),
    ("by key", "/createdBy"),
    ("updated", "/updatedAt"),
    ("in Redis", "/published"),
];

/// A link as text.
fn describe(link: &Value) -> String {
    let settings = LinkSettings::MEMBERS.iter().map(|member| {
        let label = match member.name {
            "redirectStatus" => "redirects".to_owned(),
            "forwardQuery" => "forwards query".to_owned(),
            _ => member.label(),
        };
        (label, format!("/{}", member.name))
    });
    let settings: Vec<(String, String)> = settings.collect();
    let settings = settings.iter().map(|(label, place)| (&**label, &**place));
    let lines: Vec<(&str, &str)> = HEAD.into_iter().chain(settings).chain(TAIL).collect();
    block(link, &lines)
}

async fn list(client: &Client, json: bool, arguments: &ListArguments) -> Result<(), Failure> {
    let limit = (!arguments.all).then_some(arguments.limit);
    let mut pager = Pager::new(client, "/v1/links", arguments.filters.parameters(), limit);
    let mut columns = Columns::new(
        ["CODE", "STATE", "VISITS", "PEOPLE", "CREATED", "TARGET"],
        &[2, 3],
    );
    let row = |link: &Value| {
        [
            member(link, "/shortCode"),
            state(link),
            member(link, "/visits/total"),
            member(link, "/visits/human"),
            second(&member(link, "/createdAt")),
            member(link, "/longUrl"),
        ]
    };
    while let Some(items) = pager.next().await? {
        tell_rows(&items, json, &mut columns, row)?;
    }
    tell_more(&pager, json, arguments.limit);
    Ok(())
}

async fn history(client: &Client, json: bool, code: &CodeText, limit: u64) -> Result<(), Failure> {
    let path = format!("/v1/links/{}/history", code.0);
    let mut pager = Pager::new(client, &path, Vec::new(), Some(limit));
    let mut columns = Columns::new(["REVISION", "CHANGED", "BY KEY", "TARGET BEFORE"], &[0]);
    let row = |change: &Value| {
        [
            member(change, "/before/revision"),
            second(&member(change, "/changedAt")),
            member(change, "/changedBy"),
            member(change, "/before/longUrl"),
        ]
    };
    while let Some(items) = pager.next().await? {
        tell_rows(&items, json, &mut columns, row)?;
    }
    tell_more(&pager, json, limit);
    Ok(())
}

/// Prints rows of a listing: unchanged, one a line, or as a table.
pub(super) fn tell_rows<const N: usize>(
    items: &[Box<RawValue>],
    json: bool,
    columns: &mut Columns<N>,
    row: impl Fn(&Value) -> [String; N],
) -> Result<(), Failure> {
    if json {
        let lines: String = items.iter().map(|item| format!("{item}\n")).collect();
        return Ok(print(&lines)?);
    }
    let rows: Result<Vec<[String; N]>, Failure> = items
        .iter()
        .map(|item| Ok(row(&parse(item.get().as_bytes())?)))
        .collect();
    Ok(print(&columns.rows(&rows?))?)
}

/// Reports that a listing has more items than the limit.
pub(super) fn tell_more(pager: &Pager<'_>, json: bool, limit: u64) {
    if !json && pager.has_more() && limit > 0 {
        eprintln!("shortlink: these are the latest {limit}, and there are more: --limit");
    }
}

/// The state of a link; that of its campaign too when it holds the link back.
fn state(link: &Value) -> String {
    let own = member(link, "/state");
    match link.pointer("/campaignState").and_then(Value::as_str) {
        Some(campaign) if own == "live" && campaign != "live" => {
            format!("campaign {}", plain(campaign))
        }
        _ => own,
    }
}

/// A moment without parts of a second.
pub(super) fn second(moment: &str) -> String {
    match moment.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => moment.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_link_that_its_campaign_holds_back_is_not_called_live() {
        for (link, expected) in [
            (json!({"state": "live"}), "live"),
            (json!({"state": "live", "campaignState": "live"}), "live"),
            (
                json!({"state": "live", "campaignState": "paused"}),
                "campaign paused",
            ),
            (
                json!({"state": "revoked", "campaignState": "paused"}),
                "revoked",
            ),
        ] {
            assert_eq!(state(&link), expected);
        }
    }

    #[test]
    fn moments_are_shown_by_the_second() {
        assert_eq!(second("2026-01-02T03:04:05.678Z"), "2026-01-02T03:04:05Z");
        assert_eq!(second("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05Z");
        assert_eq!(second("-"), "-");
    }
}
