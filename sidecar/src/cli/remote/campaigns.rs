//! `shortlink campaigns`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Map, Value};

use super::export::{self, ExportArguments, ExportFormat};
use super::links::{confirm, second, tell_more, tell_rows};
use super::members::put;
use super::show::{block, member, parse, tell};
use super::values::{campaign_id, code_length, moment};
use crate::cli::client::{Client, Failure, Pager};
use crate::cli::columns::Columns;

/// What can be done with campaigns.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum CampaignsCommand {
    /// Makes a campaign.
    Create(Box<CreateArguments>),
    /// Shows a campaign.
    Get(OneCampaign),
    /// Lists campaigns, the latest first.
    List {
        /// At most how many.
        #[arg(
            long,
            value_name = "NUMBER",
            default_value_t = 50,
            conflicts_with = "all"
        )]
        limit: u64,
        /// As many as there are.
        #[arg(long)]
        all: bool,
    },
    /// Changes a campaign, and with it all its links. What is not named stays.
    Change(Box<ChangeArguments>),
    /// Has all its links answered 410 until it is resumed.
    Pause(OneCampaign),
    /// Has its links redirect again.
    Resume(OneCampaign),
    /// Revokes a campaign: all its links are answered 410 from then on, for good.
    Revoke {
        #[command(flatten)]
        campaign: OneCampaign,
        /// Does not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Writes all its links with their visits into a file.
    ExportResults {
        #[command(flatten)]
        campaign: OneCampaign,
        /// The form of the file, if its name does not say it; csv on standard output.
        #[arg(long, value_enum)]
        format: Option<ExportFormat>,
        /// The file; standard output without it.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(in crate::cli) struct OneCampaign {
    /// The campaign's id.
    #[arg(value_parser = campaign_id)]
    id: String,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CreateArguments {
    /// What people call it.
    name: String,
    /// Where its links lead, with names in braces: https://shop.example.com/p?m={member}&c={code}
    url: String,
    /// A name, in the order in which links keep their values. May be repeated.
    #[arg(long = "parameter", value_name = "NAME")]
    parameters: Vec<String>,
    /// What you call it.
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    #[command(flatten)]
    settings: CampaignSettings,
}

#[derive(Debug, Args)]
#[command(override_usage = "shortlink campaigns change [OPTIONS] <ID>",
    group = clap::ArgGroup::new("change").multiple(true).required(true)
    .args(["name", "url", "cleared", "status", "forward_query", "valid_since", "valid_until", "note",
           "default_strategy", "default_code_length", "default_max_visits", "default_tags"]))]
pub(in crate::cli) struct ChangeArguments {
    #[command(flatten)]
    campaign: OneCampaign,
    /// What people call it.
    #[arg(long)]
    name: Option<String>,
    /// Where its links lead. It can do without names of the old one but can't bring others.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// What it is to do without. May be repeated.
    #[arg(
        long = "clear",
        id = "cleared",
        value_name = "MEMBER",
        value_delimiter = ','
    )]
    cleared: Vec<Clearable>,
    #[command(flatten)]
    settings: CampaignSettings,
}

/// What can be said of a campaign when it is made, and later.
#[derive(Debug, Args)]
struct CampaignSettings {
    /// How its links redirect: 301, 302, 307 or 308.
    #[arg(long, value_name = "STATUS")]
    status: Option<u16>,
    /// Whether the visitor's query is appended to the target's.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    forward_query: Option<bool>,
    /// Its links are answered 404 before: a time like 2030-12-31T23:59:59Z, or a day.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    valid_since: Option<String>,
    /// Its links are answered 410 after.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    valid_until: Option<String>,
    /// What you want to remember.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// How codes of new links are made that say nothing else: permuted, pool, sequence or hash. What is
    /// said of defaults replaces all of them.
    #[arg(long, value_name = "STRATEGY")]
    default_strategy: Option<String>,
    /// How many characters their codes have: 7, or 7-9.
    #[arg(long, value_name = "LENGTH", value_parser = code_length)]
    default_code_length: Option<Value>,
    /// After about how many visits by people they end.
    #[arg(long, value_name = "VISITS")]
    default_max_visits: Option<u64>,
    /// A tag of theirs. May be repeated.
    #[arg(long = "default-tag", value_name = "TAG")]
    default_tags: Vec<String>,
}

/// What a campaign can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Clearable {
    /// When it begins.
    ValidSince,
    /// When it ends.
    ValidUntil,
    /// What you want to remember.
    Note,
    /// What is said for new links.
    Defaults,
}

impl CampaignSettings {
    fn add_to(&self, members: &mut Map<String, Value>) {
        put(members, "redirectStatus", self.status.as_ref());
        put(members, "forwardQuery", self.forward_query.as_ref());
        put(members, "validSince", self.valid_since.as_ref());
        put(members, "validUntil", self.valid_until.as_ref());
        put(members, "note", self.note.as_ref());
        let mut defaults = Map::new();
        put(&mut defaults, "strategy", self.default_strategy.as_ref());
        put(
            &mut defaults,
            "codeLength",
            self.default_code_length.as_ref(),
        );
        put(&mut defaults, "maxVisits", self.default_max_visits.as_ref());
        let tags = (!self.default_tags.is_empty()).then_some(&self.default_tags);
        put(&mut defaults, "tags", tags);
        put(
            members,
            "defaults",
            (!defaults.is_empty()).then_some(&defaults),
        );
    }
}

impl CampaignsCommand {
    /// Does it.
    pub(super) async fn run(self, client: &Client, json: bool) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(arguments) => {
                let mut members = Map::new();
                put(&mut members, "name", Some(&arguments.name));
                put(&mut members, "longUrl", Some(&arguments.url));
                let names = (!arguments.parameters.is_empty()).then_some(&arguments.parameters);
                put(&mut members, "parameters", names);
                put(&mut members, "externalId", arguments.external_id.as_ref());
                arguments.settings.add_to(&mut members);
                ask(client, json, Method::POST, "/v1/campaigns", Some(members)).await?;
            }
            Self::Get(campaign) => {
                ask(client, json, Method::GET, &campaign.path(""), None).await?;
            }
            Self::List { limit, all } => list(client, json, limit, all).await?,
            Self::Change(arguments) => {
                let path = arguments.campaign.path("");
                let members = Some(arguments.members());
                ask(client, json, Method::PATCH, &path, members).await?;
            }
            Self::Pause(campaign) => {
                ask(client, json, Method::POST, &campaign.path("/pause"), None).await?;
            }
            Self::Resume(campaign) => {
                ask(client, json, Method::POST, &campaign.path("/resume"), None).await?;
            }
            Self::Revoke { campaign, yes } => {
                if !yes {
                    let found = parse(&client.get(&campaign.path("")).await?)?;
                    let (name, target) = (member(&found, "/name"), member(&found, "/longUrl"));
                    let id = &campaign.id;
                    confirm(&format!(
                        "Campaign {id}, {name:?}, leads to {target}. Once revoked all its links are \
                         answered 410, for good."
                    ))?;
                }
                ask(client, json, Method::DELETE, &campaign.path(""), None).await?;
            }
            Self::ExportResults {
                campaign,
                format,
                out,
            } => {
                // An id that there is not has no links either, and is no success.
                client.get(&campaign.path("")).await?;
                let arguments = ExportArguments::of_campaign(campaign.id, format, out);
                export::run(client, json, &arguments).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ChangeArguments {
    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        put(&mut members, "name", self.name.as_ref());
        put(&mut members, "longUrl", self.url.as_ref());
        self.settings.add_to(&mut members);
        for cleared in &self.cleared {
            let name = match cleared {
                Clearable::ValidSince => "validSince",
                Clearable::ValidUntil => "validUntil",
                Clearable::Note => "note",
                Clearable::Defaults => "defaults",
            };
            members.insert(name.to_owned(), Value::Null);
        }
        members
    }
}

impl OneCampaign {
    fn path(&self, action: &str) -> String {
        format!("/v1/campaigns/{}{action}", self.id)
    }
}

async fn ask(
    client: &Client,
    json: bool,
    method: Method,
    path: &str,
    members: Option<Map<String, Value>>,
) -> Result<(), Failure> {
    let body = members.map(Value::Object);
    let answer = client.send(method, path, &[], body.as_ref()).await?;
    tell(&answer, json, describe)
}

async fn list(client: &Client, json: bool, limit: u64, all: bool) -> Result<(), Failure> {
    let most = (!all).then_some(limit);
    let mut pager = Pager::new(client, "/v1/campaigns", Vec::new(), most);
    let mut columns = Columns::new(["ID", "STATE", "CREATED", "NAME", "TARGET"], &[]);
    let row = |campaign: &Value| {
        [
            member(campaign, "/id"),
            member(campaign, "/state"),
            second(&member(campaign, "/createdAt")),
            member(campaign, "/name"),
            member(campaign, "/longUrl"),
        ]
    };
    while let Some(items) = pager.next().await? {
        tell_rows(&items, json, &mut columns, row)?;
    }
    tell_more(&pager, json, limit);
    Ok(())
}

/// A campaign as people read it.
fn describe(campaign: &Value) -> String {
    block(
        campaign,
        &[
            ("id", "/id"),
            ("name", "/name"),
            ("target", "/longUrl"),
            ("parameters", "/parameters"),
            ("state", "/state"),
            ("redirects", "/redirectStatus"),
            ("forwards query", "/forwardQuery"),
            ("valid since", "/validSince"),
            ("valid until", "/validUntil"),
            ("external id", "/externalId"),
            ("note", "/note"),
            ("defaults", "/defaults"),
            ("revision", "/revision"),
            ("created", "/createdAt"),
            ("updated", "/updatedAt"),
            ("in Redis", "/published"),
        ],
    )
}
