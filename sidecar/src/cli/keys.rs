//! `shortlink keys`

use std::num::NonZeroU64;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use shortlink_api::key::KeyBody;
use shortlink_client::columns::Columns;
use shortlink_client::output::print;
use shortlink_core::api_key::{ApiKey, KeyPolicy, MAX_OVERLAP, RateLimit, Scope, parse_name};
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::codes::strategy::StrategyName;
use shortlink_core::ports::{KeyListing, KeyPosition};
use shortlink_core::target::domains::{DomainRule, DomainRules};
use shortlink_service::keys::{Actor, Keys, NewKey};
use shortlink_store::Store;

use crate::random;

/// The number of keys in a page.
const PAGE_LENGTH: u32 = 1000;

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Create an API key and print it.
    ///
    /// The key cannot be shown again.
    Create(Box<CreateArguments>),
    /// List all API keys.
    List {
        /// Print one JSON object, with the API keys as the API returns them.
        #[arg(long)]
        json: bool,
    },
    /// Revoke an API key permanently.
    ///
    /// Running sidecars reject the key within one second.
    Revoke {
        /// Id of the API key, as shown by `keys list`.
        id: String,
    },
    /// Create a successor of an API key and print it.
    ///
    /// The successor has the same name, scopes, rate limit, policy and expiry. It cannot be shown
    /// again.
    Rotate {
        /// Id of the API key, as shown by `keys list`.
        id: String,
        /// Number of seconds for which the old key remains valid: 0 to 7776000 (90 days).
        #[arg(
            long,
            value_name = "SECONDS",
            value_parser = clap::value_parser!(i64).range(0..=MAX_OVERLAP.as_secs())
        )]
        overlap_seconds: i64,
    },
}

#[derive(Debug, Args)]
pub(super) struct CreateArguments {
    /// Name of the API key, such as its purpose: 1 to 100 characters.
    #[arg(long, value_parser = parse_name)]
    name: String,
    /// Scope of the API key: links:read, links:write, campaigns:read, campaigns:write,
    /// receipts:write, stats:read, webhooks:admin, conversions:write, keys:admin or admin. Can be
    /// repeated.
    #[arg(long = "scope", required = true, value_name = "SCOPE")]
    scopes: Vec<Scope>,
    /// Time of expiry in the future, such as 2030-12-31T23:59:59Z. Default: the key does not expire.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<Timestamp>,
    /// Rate limit in requests per second, for each sidecar process: 1 to 1000000. Each row of a
    /// batch counts as one request. Default: no limit.
    #[arg(long, value_name = "REQUESTS", value_parser = units())]
    rate_limit: Option<u32>,
    /// Number of requests that can be sent at once: 1 to 1000000. Default: the rate limit.
    #[arg(long, value_name = "REQUESTS", requires = "rate_limit", value_parser = units())]
    burst: Option<u32>,
    /// Strategy that codes can be issued with: permuted, pool, sequence or hash. Can be repeated.
    /// Default: all strategies.
    #[arg(long = "strategy", value_name = "STRATEGY")]
    strategies: Vec<StrategyName>,
    /// Minimum number of characters of issued codes, without the check character: 1 to 12.
    #[arg(long, value_name = "LENGTH")]
    min_body_length: Option<u8>,
    /// Maximum number of characters of issued codes, without the check character: 1 to 12.
    #[arg(long, value_name = "LENGTH")]
    max_body_length: Option<u8>,
    /// Domain that targets can be on: example.com with its subdomains, =example.com without them, or
    /// an IP address. Can be repeated. Default: all domains.
    #[arg(long = "allowed-domain", value_name = "DOMAIN")]
    allowed_domains: Vec<DomainRule>,
    /// Forbid custom codes. Default: links can have custom codes.
    #[arg(long)]
    no_custom_codes: bool,
    /// Minimum number of characters of custom codes: 1 to 64.
    #[arg(long, value_name = "LENGTH")]
    min_custom_length: Option<u8>,
    /// Number of links that can be created with the API key, and with its successors. Links that have ended or were
    /// deleted count too. Default: any number.
    #[arg(long, value_name = "LINKS")]
    max_links: Option<NonZeroU64>,
    /// Let the API key reach only links and campaigns that were created with it, or with its successors. Not with the
    /// scopes admin, keys:admin and webhooks:admin.
    #[arg(long)]
    own_links_only: bool,
}

impl KeysCommand {
    pub(super) async fn run(self, store: &Arc<Store>) -> anyhow::Result<()> {
        let clock = SystemClock;
        let now = clock.now();
        let rng = random::generator()?;
        let keys = Keys::new(Arc::clone(store), Arc::new(clock), rng, None);
        let actor = Actor::Operator;
        match self {
            Self::Create(arguments) => {
                let (key, text) = keys.create(&actor, arguments.new_key(now)?).await?;
                eprintln!(
                    "shortlink: key {} for {:?} with {}; it is not shown again",
                    key.id,
                    key.name,
                    scope_names(&key)
                );
                print(&format!("{text}\n"))
            }
            Self::List { json } => {
                let keys = all(&keys, false).await?;
                print(&if json {
                    as_json(&keys, now)
                } else {
                    table(&keys, now)
                })
            }
            Self::Revoke { id } => {
                let revoked = keys.revoke(&actor, &id).await?;
                revoked.with_context(|| no_such_key(&id))?;
                eprintln!("shortlink: key {id} is revoked");
                Ok(())
            }
            Self::Rotate {
                id,
                overlap_seconds,
            } => {
                let overlap = SignedDuration::from_secs(overlap_seconds);
                let rotation = keys.rotate(&actor, &id, overlap).await?;
                let rotation = rotation.with_context(|| no_such_key(&id))?;
                eprintln!(
                    "shortlink: key {} replaces key {id}, which remains valid until {}; it is not \
                     shown again",
                    rotation.successor.id,
                    moment(rotation.predecessor.expires_at)
                );
                print(&format!("{}\n", rotation.secret))
            }
        }
    }
}

impl CreateArguments {
    fn new_key(self, now: Timestamp) -> anyhow::Result<NewKey> {
        if self.expires_at.is_some_and(|expiry| expiry <= now) {
            anyhow::bail!("--expires-at must be in the future");
        }
        let rate_limit = self
            .rate_limit
            .and_then(|limit| RateLimit::new(limit, self.burst.unwrap_or(limit)));
        let domains: DomainRules = self.allowed_domains.into_iter().collect();
        let policy = KeyPolicy {
            strategies: (!self.strategies.is_empty()).then_some(self.strategies),
            min_body_length: self.min_body_length,
            max_body_length: self.max_body_length,
            allowed_domains: (!domains.is_empty()).then_some(domains),
            custom_codes: !self.no_custom_codes,
            min_custom_length: self.min_custom_length,
            max_links: self.max_links,
            own_links_only: self.own_links_only,
        };
        policy.validate()?;
        Ok(NewKey {
            name: self.name,
            scopes: self.scopes,
            expires_at: self.expires_at,
            rate_limit,
            policy,
        })
    }
}

fn units() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(RateLimit::MOST))
}

fn no_such_key(id: &str) -> String {
    format!("there is no key {id:?}; `shortlink keys list` shows all")
}

/// Every key, or every person, the oldest first.
pub(super) async fn all(keys: &Keys, people: bool) -> anyhow::Result<Vec<ApiKey>> {
    let mut found: Vec<ApiKey> = Vec::new();
    loop {
        let after = found.last().map(|key| KeyPosition {
            created_at: key.created_at,
            id: key.id.clone(),
        });
        let listing = KeyListing {
            people,
            after,
            limit: PAGE_LENGTH,
        };
        let page = keys.store.list_keys(&listing).await?;
        if page.is_empty() {
            found.reverse();
            return Ok(found);
        }
        found.extend(page);
    }
}

fn scope_names(key: &ApiKey) -> String {
    let names: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
    names.join(",")
}

fn moment(moment: Option<Timestamp>) -> String {
    moment.map_or_else(|| "-".to_owned(), |moment| moment.to_string())
}

fn as_json(keys: &[ApiKey], now: Timestamp) -> String {
    let keys = keys.iter().map(|key| KeyBody::new(key, now));
    let keys: Vec<KeyBody> = keys.collect();
    format!("{}\n", json!({ "keys": keys }))
}

/// The keys as a table.
fn table(keys: &[ApiKey], now: Timestamp) -> String {
    let heads = [
        "ID",
        "NAME",
        "SCOPES",
        "STATE",
        "CREATED",
        "EXPIRES",
        "REVOKED",
        "LIMIT",
        "SUCCESSOR",
    ];
    let rows = keys.iter().map(|key| {
        let limit = key.rate_limit.map(|limit| {
            let (per_second, burst) = (limit.per_second(), limit.burst());
            format!("{per_second}/s,{burst}")
        });
        [
            key.id.clone(),
            key.name.escape_debug().to_string(),
            scope_names(key),
            key.state(now).name().to_owned(),
            key.created_at.to_string(),
            moment(key.expires_at),
            moment(key.revoked_at),
            limit.unwrap_or_else(|| "-".to_owned()),
            key.successor_id.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    Columns::new(heads, &[]).rows(&rows.collect::<Vec<_>>())
}
