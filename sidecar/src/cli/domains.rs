//! `shortlink domains`

mod apps;
mod certificate;
mod table;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use shortlink_client::columns::Columns;
use shortlink_client::output::print;
use shortlink_client::{ClientArguments, commands};
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_store::Store;
use vocabulary::domains::{BoundTo, Brand, Domain, DomainState, Domains, Retirement};

use super::with_store;
use crate::config::Config;
use apps::Apps;
use certificate::Certificate;

/// The exit code for a table that is right with something about it that is not.
const CONCERNS: u8 = 2;

/// By default, certificates that expire within this number of days are reported.
const ENDS_WITHIN: u16 = 14;

/// The span over which visits are counted.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Commands for short domains.
#[derive(Debug, Subcommand)]
pub(super) enum DomainsCommand {
    /// Check the file with the short domains before nginx reads it.
    ///
    /// Shows the short domains as nginx will see them, certificates that are missing or expire soon, the files in
    /// `pages` beside it that open links in apps, and the visits of each short domain in the last hour. Changes
    /// nothing.
    ///
    /// Exit codes: 0 no warnings, 1 the file is invalid or cannot be read, 2 warnings.
    Check(CheckArguments),
    /// List the short domains as each nginx uses them, over the API of a running service.
    ///
    /// Shows the visits of each short domain in the last hour, and the short domains that are suspected
    /// blocked.
    ///
    /// Exit codes: 0 done, 1 failed or refused by the service, 2 invalid command line or client
    /// settings.
    List {
        #[command(flatten)]
        client: ClientArguments,
    },
}

impl DomainsCommand {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(arguments) => check(config, &arguments).await,
            Self::List { client } => Ok(commands::domains::run(&client).await),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// File with `shortlink_domains`.
    #[arg(
        default_value = "/etc/nginx/shortlink/domains.conf",
        env = "SHORTLINK_DOMAINS_FILE"
    )]
    file: PathBuf,
    /// Directory of nginx.conf, which relative paths in the file refer to. Default: the nearest
    /// directory above the file that contains an nginx.conf, else /etc/nginx.
    #[arg(long, value_name = "DIRECTORY")]
    nginx_directory: Option<PathBuf>,
    /// Warn about certificates that expire within this number of days: 0 to 65535.
    #[arg(long, value_name = "DAYS", default_value_t = ENDS_WITHIN)]
    ends_within: u16,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A row of the table of domains.
struct Row<'a> {
    domain: &'a Domain,
    brand: Option<&'a Brand>,
    certificate: Option<Certificate>,
    apps: Apps,
    /// Visits within the last hour; `None` when that could not be looked up.
    visits: Option<u64>,
}

/// The findings about a table that nginx accepts.
pub(super) struct Examined {
    text: String,
    json: String,
    /// The number of domains.
    pub(super) domains: usize,
    /// Findings that need attention.
    pub(super) concerns: Vec<String>,
}

impl CheckArguments {
    /// The arguments of `domains check` with only a file given.
    pub(super) fn of(file: PathBuf) -> Self {
        Self {
            file,
            nginx_directory: None,
            ends_within: ENDS_WITHIN,
            json: false,
        }
    }
}

async fn check(config: &Config, arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let examined = examine(config, arguments).await?;
    print(if arguments.json {
        &examined.json
    } else {
        &examined.text
    })?;
    Ok(if examined.concerns.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(CONCERNS)
    })
}

/// Checks a table.
///
/// # Errors
/// If nginx would refuse it.
pub(super) async fn examine(
    config: &Config,
    arguments: &CheckArguments,
) -> anyhow::Result<Examined> {
    let file = &arguments.file;
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{} can't be read", file.display()))?;
    let now = SystemClock.now();
    let soon = now + SignedDuration::from_hours(24 * i64::from(arguments.ends_within));
    let directory = arguments.nginx_directory.clone();
    let directory = directory.unwrap_or_else(|| nginx_directory(file));
    let domains = table::read(file, &text, &directory).map_err(|refused| anyhow!(refused))?;
    let (visits, unknown) = match visits_of_last_hour(config, now).await {
        Ok(visits) => (Some(visits), None),
        Err(error) => (None, Some(format!("visits are unknown: {error:#}"))),
    };
    // public.conf has them beside the table.
    let pages = file.with_file_name("pages");
    let rows: Vec<Row<'_>> = domains
        .entries()
        .iter()
        .map(|domain| Row {
            domain,
            brand: domains.brand_of(domain),
            certificate: certificate_of(&domains, domain, &directory),
            apps: match domain.state() {
                DomainState::Retired => Apps::default(),
                DomainState::Active | DomainState::Serving => Apps::read(&pages, domain),
            },
            visits: visits
                .as_ref()
                .map(|visits| count(visits, domain, &domains)),
        })
        .collect();
    let mut concerns = concerns(&rows, &directory, now, soon);
    for brand in domains.brands() {
        let logo = brand.logo().and_then(|logo| unreadable(&directory, logo));
        concerns.extend(logo.map(|logo| format!("the logo of the brand {}: {logo}", brand.name())));
    }
    concerns.extend(unknown);
    Ok(Examined {
        text: as_text(&rows, &concerns),
        json: as_json(&rows, &concerns),
        domains: rows.len(),
        concerns,
    })
}

/// The directory of nginx.conf, searched from a file beside or below it.
fn nginx_directory(file: &Path) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let mut above = file.ancestors().skip(1);
    let found = above.find(|directory| directory.join("nginx.conf").exists());
    found.unwrap_or(Path::new("/etc/nginx")).to_owned()
}

/// The certificate of a domain; `None` if it needs none or the table names none.
fn certificate_of(domains: &Domains, domain: &Domain, directory: &Path) -> Option<Certificate> {
    // The table is whole: it has both or none.
    let (pattern, key) = domains.certificates().ok()??;
    let name = domain.certificate_name();
    domain.is_public().then(|| {
        let (path, key) = (pattern.of(name), key.of(name));
        Certificate::read(&directory.join(path), &directory.join(key))
    })
}

/// The number of visits of each host.
async fn visits_of_last_hour(
    config: &Config,
    now: Timestamp,
) -> anyhow::Result<HashMap<String, u64>> {
    let count = async |store: &Arc<Store>| Ok(store.count_domains(now - HOUR).await?);
    let counts = with_store(config, count).await?;
    let mut visits = HashMap::new();
    for count in counts {
        *visits.entry(count.host).or_insert(0) += count.visits;
    }
    Ok(visits)
}

/// The number of visits of a domain; a wildcard counts all hosts that it covers.
fn count(visits: &HashMap<String, u64>, domain: &Domain, domains: &Domains) -> u64 {
    let of_it = visits.iter().filter(|(host, _)| {
        let found = domains.find(host.as_bytes());
        found.is_some_and(|found| found.name() == domain.name())
    });
    of_it.map(|(_, visits)| visits).sum()
}

/// Findings that need attention.
fn concerns(rows: &[Row<'_>], directory: &Path, now: Timestamp, soon: Timestamp) -> Vec<String> {
    let mut concerns = Vec::new();
    for row in rows {
        let name = row.domain.name();
        if let Some(certificate) = &row.certificate {
            let found = certificate.concern(row.domain, now, soon);
            concerns.extend(found.map(|concern| format!("{name}: {concern}")));
        }
        if let Some(Retirement::Page(page)) = row.domain.retirement() {
            let page = unreadable(directory, page);
            concerns.extend(page.map(|page| format!("{name}: its page {page}")));
        }
    }
    // Domains share files.
    let mut found: Vec<&String> = rows.iter().flat_map(|row| &row.apps.concerns).collect();
    found.sort();
    found.dedup();
    concerns.extend(found.into_iter().cloned());
    // A domain without visits while others have some may be blocked. A domain that has just become
    // active has none either, which the operator knows.
    let is_visited = |row: &&Row<'_>| row.visits.is_some_and(|visits| visits > 0);
    if rows.iter().any(|row| is_visited(&row)) {
        let active = rows
            .iter()
            .filter(|row| row.domain.state() == DomainState::Active);
        for row in active.filter(|row| row.visits == Some(0)) {
            let name = row.domain.name();
            concerns.push(format!(
                "{name}: active, but without a visit in the last hour, while others have some"
            ));
        }
    }
    concerns
}

/// The fault of a file that nginx opens when it reads the table; `None` if it can be read.
fn unreadable(directory: &Path, file: &str) -> Option<String> {
    let path = directory.join(file);
    let error = std::fs::File::open(&path).err()?;
    let path = path.display();
    Some(format!(
        "{path} can't be read ({error}): nginx would refuse the table"
    ))
}

/// Further remarks about a domain.
fn remarks(row: &Row<'_>) -> String {
    let systems = row.apps.systems.join(" and ");
    let apps = (!systems.is_empty()).then(|| format!("opens apps on {systems}"));
    let state = Some(state_remarks(row.domain)).filter(|it| !it.is_empty());
    let brand = row.brand.map(|brand| format!("brand {}", brand.name()));
    joined([state, brand, apps])
}

fn joined(remarks: impl IntoIterator<Item = Option<String>>) -> String {
    let remarks: Vec<String> = remarks.into_iter().flatten().collect();
    remarks.join(", ")
}

fn state_remarks(domain: &Domain) -> String {
    let base = domain.base();
    let unknown = domain.unknown_target();
    let unknown = unknown.map(|target| format!("unknown codes redirect to {target}"));
    let home = domain.home_target();
    let home = home.map(|target| format!("/ redirects to {target}"));
    match (domain.state(), domain.retirement()) {
        (DomainState::Active, _) => {
            let weight = (base.weight != 1).then(|| format!("weight {}", base.weight));
            let bound = base.bound.as_ref().map(|bound| match bound {
                BoundTo::Campaign(id) => format!("only campaign {id}"),
                BoundTo::Key(id) => format!("only key {id}"),
            });
            joined([Some(base.url.clone()), weight, bound, unknown, home])
        }
        (DomainState::Serving, _) => joined([unknown, home]),
        (DomainState::Retired, None) => "410".to_owned(),
        (DomainState::Retired, Some(Retirement::Target(target))) => {
            format!("redirects to {target}")
        }
        (DomainState::Retired, Some(Retirement::Page(page))) => format!("410 with {page}"),
    }
}

fn as_text(rows: &[Row<'_>], concerns: &[String]) -> String {
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            let certificate = row.certificate.as_ref();
            [
                row.domain.name().to_owned(),
                row.domain.state().name().to_owned(),
                row.visits
                    .map_or("-".to_owned(), |visits| visits.to_string()),
                certificate.map_or("-".to_owned(), Certificate::summary),
                remarks(row),
            ]
        })
        .collect();
    let heads = ["DOMAIN", "STATE", "VISITS/H", "CERTIFICATE", ""];
    let mut text = Columns::new(heads, &[2]).rows(&cells);
    for concern in concerns {
        // Into a string nothing fails.
        let _ = writeln!(text, "! {concern}");
    }
    text
}

fn as_json(rows: &[Row<'_>], concerns: &[String]) -> String {
    let domains: Vec<Value> = rows
        .iter()
        .map(|row| {
            let base = row.domain.base();
            let is_active = row.domain.state() == DomainState::Active;
            let (campaign, key) = match &base.bound {
                None => (None, None),
                Some(BoundTo::Campaign(id)) => (Some(id.to_string()), None),
                Some(BoundTo::Key(id)) => (None, Some(id)),
            };
            let (target, page) = match row.domain.retirement() {
                None => (None, None),
                Some(Retirement::Target(target)) => (Some(target), None),
                Some(Retirement::Page(page)) => (None, Some(page)),
            };
            json!({
                "name": row.domain.name(),
                "state": row.domain.state().name(),
                "shortUrlBase": is_active.then_some(&base.url),
                "weight": base.weight,
                "campaignId": campaign,
                "keyId": key,
                "retiredTarget": target,
                "retiredPage": page,
                "unknownTarget": row.domain.unknown_target(),
                "homeTarget": row.domain.home_target(),
                "brand": row.brand.map(Brand::name),
                "visitsLastHour": row.visits,
                "apps": row.apps.systems,
                "certificate": row.certificate.as_ref().map(Certificate::as_json),
            })
        })
        .collect();
    let whole = json!({ "domains": domains, "concerns": concerns });
    format!("{whole}\n")
}
