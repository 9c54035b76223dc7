//! `shortlink links`

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value};
use shortlink_api::link::LinkSettings;
use shortlink_api::members::Members;
use shortlink_api::rules::PlanMembers;

use super::export::ExportArguments;
use super::filters::Filters;
use super::import::{ImportArguments, Rows};
use super::members::{Changes, Link, Options, put};
use super::session::Session;
use super::show::{block, member, parse, plain};
use super::values::{CodeText, code_length, dedupe};
use super::{explain, export, import};
use crate::Failure;
use crate::output::print;

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
    /// End an A/B test: the target of a variant becomes that of the link, and the variants are removed.
    Winner {
        #[command(flatten)]
        link: OneLink,
        /// Name of the variant; empty if the default target has won.
        variant: String,
    },
    /// Revoke a link permanently: it answers 410 from then on.
    Revoke {
        #[command(flatten)]
        link: OneLink,
        /// Revoke without asking for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Explain the response to a code, with or without a link.
    ///
    /// The options describe a visitor, for links whose target depends on it.
    Explain(explain::ExplainArguments),
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
    #[command(after_long_help = import::about(Rows::Links))]
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
    /// Custom code: 1 to 64 letters, digits, hyphens and underscores. Default: a code is issued.
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
    /// Return the link of an identical earlier request if it is live and unchanged. With a time such as 1h, only if the
    /// last identical request with the same time is not older than that. Not with --slug or --idempotency-key.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = dedupe,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    dedupe: Option<Value>,
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
    #[command(flatten)]
    changes: Changes<Link>,
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
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(arguments) => create(session, &arguments).await?,
            Self::Get { code } => session.get(&code.path(""), describe).await?,
            Self::List(arguments) => list(session, &arguments).await?,
            Self::Change(arguments) => {
                let members = Some(arguments.members());
                act(session, &arguments.link, Method::PATCH, "", members).await?;
            }
            Self::Pause(link) => act(session, &link, Method::POST, "/pause", None).await?,
            Self::Resume(link) => act(session, &link, Method::POST, "/resume", None).await?,
            Self::Winner { link, variant } => {
                let mut members = Map::new();
                put(&mut members, "variant", Some(&variant));
                act(session, &link, Method::POST, "/winner", Some(members)).await?;
            }
            Self::Revoke { link, yes } => {
                if !yes {
                    let found = parse(&session.client.get(&link.code.path("")).await?)?;
                    let (code, target) = (member(&found, "/shortCode"), member(&found, "/longUrl"));
                    confirm(&format!(
                        "{code} redirects to {target}. A revoked link answers 410 permanently."
                    ))?;
                }
                act(session, &link, Method::DELETE, "", None).await?;
            }
            Self::Explain(arguments) => explain::run(session, &arguments).await?,
            Self::History { code, limit } => {
                let path = code.path("/history");
                let table = [
                    ("REVISION", "/before/revision"),
                    ("CHANGED", "/changedAt"),
                    ("BY KEY", "/changedBy"),
                    ("TARGET BEFORE", "/before/longUrl"),
                ];
                let limit = Some(limit);
                session
                    .list(&path, Vec::new(), limit, &table, &[0], |_, _| {})
                    .await?;
            }
            Self::Qr { code } => {
                let answer = session.client.get(&code.path("/qr")).await?;
                print(&format!(
                    "{}\n",
                    String::from_utf8_lossy(&answer).trim_end()
                ))?;
            }
            Self::Import(arguments) => return import::run(session, arguments, Rows::Links).await,
            Self::Export(arguments) => export::run(session, &arguments).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn create(session: &Session, arguments: &CreateArguments) -> Result<(), Failure> {
    session.either(arguments.quiet)?;
    let mut members = Map::new();
    put(&mut members, "longUrl", arguments.url.as_ref());
    put(&mut members, "campaignId", arguments.campaign.as_ref());
    put(&mut members, "customSlug", arguments.slug.as_ref());
    put(&mut members, "strategy", arguments.strategy.as_ref());
    put(&mut members, "codeLength", arguments.code_length.as_ref());
    put(&mut members, "dedupe", arguments.dedupe.as_ref());
    arguments.options.add_to(&mut members);
    let key = arguments.idempotency_key.iter();
    let headers: Vec<_> = key.map(|key| ("Idempotency-Key", key.clone())).collect();
    let body = Value::Object(members);
    let answer = session
        .client
        .send(Method::POST, "/v1/links", &headers, Some(&body));
    let answer = answer.await?;
    if !arguments.quiet {
        return session.tell(&answer, describe);
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

async fn act(
    session: &Session,
    link: &OneLink,
    method: Method,
    action: &str,
    members: Option<Map<String, Value>>,
) -> Result<(), Failure> {
    let revision = link.if_revision.iter();
    let headers = revision.map(|revision| ("If-Match", format!("\"{revision}\"")));
    let (path, headers) = (link.code.path(action), headers.collect::<Vec<_>>());
    session
        .send(method, &path, &headers, members, describe)
        .await
}

impl ChangeArguments {
    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        put(&mut members, "longUrl", self.url.as_ref());
        self.changes.add_to(&mut members);
        members
    }
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
    let asked = write!(error, "{what}\nContinue? [y/N] ").and_then(|()| error.flush());
    asked.context("the question can't be written")?;
    let mut answer = String::new();
    let read = input.read_line(&mut answer);
    read.context("the answer can't be read")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Other(anyhow::anyhow!("nothing was done"))),
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
const TAIL: [(&str, &str); 12] = [
    ("visits", "/visits/total"),
    ("human", "/visits/human"),
    ("refused", "/visits/refused"),
    ("last visit", "/visits/lastAt"),
    ("first click", "/visits/firstClickAt"),
    ("last click", "/visits/lastClickAt"),
    ("revision", "/revision"),
    ("created", "/createdAt"),
    ("by key", "/createdBy"),
    ("strategy", "/strategy"),
    ("updated", "/updatedAt"),
    ("in Redis", "/published"),
];

/// A link as text.
fn describe(link: &Value) -> String {
    let settings = LinkSettings::MEMBERS.iter().chain(PlanMembers::MEMBERS);
    let settings = settings.map(|member| {
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

async fn list(session: &Session, arguments: &ListArguments) -> Result<(), Failure> {
    let limit = (!arguments.all).then_some(arguments.limit);
    let filters = arguments.filters.parameters();
    let table = [
        ("CODE", "/shortCode"),
        ("STATE", "/state"),
        ("VISITS", "/visits/total"),
        ("HUMAN", "/visits/human"),
        ("CREATED", "/createdAt"),
        ("TARGET", "/longUrl"),
    ];
    let amend = |link: &Value, row: &mut [String; 6]| row[1] = state(link);
    session
        .list("/v1/links", filters, limit, &table, &[2, 3], amend)
        .await
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
}
