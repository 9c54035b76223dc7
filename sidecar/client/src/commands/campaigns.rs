//! `shortlink campaigns`

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value};

use super::export::{self, ExportArguments, FileOptions};
use super::links::confirm;
use super::members::{Campaign, Changes, Options, put};
use super::session::Session;
use super::show::{block, member, parse};
use super::values::campaign_id;
use crate::Failure;

/// Commands for campaigns.
#[derive(Debug, Subcommand)]
pub enum CampaignsCommand {
    /// Create a campaign.
    Create(Box<CreateArguments>),
    /// Show a campaign.
    Get(OneCampaign),
    /// List campaigns, the newest first.
    List {
        /// Maximum number of campaigns.
        #[arg(
            long,
            value_name = "NUMBER",
            default_value_t = 50,
            conflicts_with = "all"
        )]
        limit: u64,
        /// List all campaigns.
        #[arg(long)]
        all: bool,
    },
    /// Change a campaign, and with it all its links.
    ///
    /// Changes only the members that are given.
    Change(Box<ChangeArguments>),
    /// Pause a campaign: all its links answer 410 until it is resumed.
    Pause(OneCampaign),
    /// Resume a paused campaign.
    Resume(OneCampaign),
    /// End an A/B test: the target of a variant becomes that of the campaign, and the variants are removed.
    Winner {
        #[command(flatten)]
        campaign: OneCampaign,
        /// Name of the variant; empty if the default target has won.
        variant: String,
    },
    /// Revoke a campaign permanently: all its links answer 410 from then on.
    Revoke {
        #[command(flatten)]
        campaign: OneCampaign,
        /// Revoke without asking for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Export all links of a campaign, with their numbers of visits, as CSV or NDJSON.
    ExportResults {
        #[command(flatten)]
        campaign: OneCampaign,
        #[command(flatten)]
        file: FileOptions,
    },
    /// Export the recipients of a campaign with their clicks, as CSV or NDJSON: the external id and code of each link,
    /// the times of its first and last human visit, and the number of its human visits.
    Recipients {
        #[command(flatten)]
        campaign: OneCampaign,
        /// Only recipients with a human visit (true), or only those without one (false).
        #[arg(long, value_name = "BOOL")]
        clicked: Option<bool>,
        #[command(flatten)]
        file: FileOptions,
    },
}

#[derive(Debug, Args)]
pub struct OneCampaign {
    /// Id of the campaign.
    #[arg(value_parser = campaign_id)]
    id: String,
}

#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Name of the campaign: 1 to 200 characters.
    name: String,
    /// Target of its links: a URL with names of parameters in braces, and {code} for the code, such
    /// as https://shop.example.com/p?m={member}&c={code}
    url: String,
    /// Name of a parameter: a letter, then up to 31 letters, digits or _; at most 16 parameters.
    /// Can be repeated, in the order in which links store the values; other names in the URL
    /// follow.
    #[arg(long = "parameter", value_name = "NAME")]
    parameters: Vec<String>,
    /// Your own id for the campaign: at most 128 characters.
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    #[command(flatten)]
    options: Options<Campaign>,
}

#[derive(Debug, Args)]
#[command(override_usage = "shortlink campaigns change [OPTIONS] <ID>",
    group = Options::<Campaign>::one_of(["name", "url", "cleared"]))]
pub struct ChangeArguments {
    #[command(flatten)]
    campaign: OneCampaign,
    /// New name: 1 to 200 characters.
    #[arg(long)]
    name: Option<String>,
    /// New target of its links: a URL with names of parameters in braces. It can omit parameters of
    /// the old target but not add others.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    changes: Changes<Campaign>,
}

impl CampaignsCommand {
    /// Runs the command.
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let send = async |method, path: &str, members| {
            session.send(method, path, &[], members, describe).await
        };
        match self {
            Self::Create(arguments) => {
                let mut members = Map::new();
                put(&mut members, "name", Some(&arguments.name));
                put(&mut members, "longUrl", Some(&arguments.url));
                let names = (!arguments.parameters.is_empty()).then_some(&arguments.parameters);
                put(&mut members, "parameters", names);
                put(&mut members, "externalId", arguments.external_id.as_ref());
                arguments.options.add_to(&mut members);
                send(Method::POST, "/v1/campaigns", Some(members)).await
            }
            Self::Get(campaign) => session.get(&campaign.path(""), describe).await,
            Self::List { limit, all } => {
                let table = [
                    ("ID", "/id"),
                    ("STATE", "/state"),
                    ("CREATED", "/createdAt"),
                    ("NAME", "/name"),
                    ("TARGET", "/longUrl"),
                ];
                let (path, limit) = ("/v1/campaigns", (!all).then_some(limit));
                session
                    .list(path, Vec::new(), limit, &table, &[], |_, _| {})
                    .await
            }
            Self::Change(arguments) => {
                let members = Some(arguments.members());
                send(Method::PATCH, &arguments.campaign.path(""), members).await
            }
            Self::Pause(campaign) => send(Method::POST, &campaign.path("/pause"), None).await,
            Self::Resume(campaign) => send(Method::POST, &campaign.path("/resume"), None).await,
            Self::Winner { campaign, variant } => {
                let mut members = Map::new();
                put(&mut members, "variant", Some(&variant));
                send(Method::POST, &campaign.path("/winner"), Some(members)).await
            }
            Self::Revoke { campaign, yes } => {
                if !yes {
                    let found = parse(&session.client.get(&campaign.path("")).await?)?;
                    let (name, target) = (member(&found, "/name"), member(&found, "/longUrl"));
                    let id = &campaign.id;
                    confirm(&format!(
                        "Campaign {id}, {name:?}, redirects to {target}. All links of a revoked \
                         campaign answer 410 permanently."
                    ))?;
                }
                send(Method::DELETE, &campaign.path(""), None).await
            }
            Self::ExportResults { campaign, file } => {
                // An unknown id has no links either, and must be an error.
                session.client.get(&campaign.path("")).await?;
                let arguments = ExportArguments::of_campaign(campaign.id, file);
                export::run(session, &arguments).await
            }
            Self::Recipients {
                campaign,
                clicked,
                file,
            } => export::recipients(session, &campaign.path("/recipients"), clicked, &file).await,
        }
    }
}

impl ChangeArguments {
    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        put(&mut members, "name", self.name.as_ref());
        put(&mut members, "longUrl", self.url.as_ref());
        self.changes.add_to(&mut members);
        members
    }
}

impl OneCampaign {
    fn path(&self, action: &str) -> String {
        format!("/v1/campaigns/{}{action}", self.id)
    }
}

/// A campaign as text.
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
            ("rules", "/rules"),
            ("expired target", "/expiredTarget"),
            ("paused target", "/pausedTarget"),
            ("not yet target", "/notYetTarget"),
            ("preview", "/preview"),
            ("revision", "/revision"),
            ("created", "/createdAt"),
            ("updated", "/updatedAt"),
            ("in Redis", "/published"),
        ],
    )
}
