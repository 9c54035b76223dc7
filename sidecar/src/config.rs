//! Settings: the defaults, a file over them, the environment over both.
//!
//! `config.default.toml` is the bottom layer and defines the keys. A key of another layer must be
//! one of these and have a value of the same type, or it is refused by name: a misspelt setting
//! that is silently ignored is worse than a program that does not start.

mod layers;
mod sign_in;
mod visits;
mod webhooks;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use shortlink_core::codes::blocklist::Blocklist;
use shortlink_core::codes::reserved::ReservedWords;
use shortlink_core::codes::strategy::{CodePolicy, StrategyName};
use shortlink_core::ended::EndedDays;
use shortlink_core::target::TargetPolicy;
use shortlink_core::target::domains::{DomainRule, DomainRules, TargetDomains};
use shortlink_core::trace::Sampling;
use shortlink_http::ProxySecret;
use shortlink_publisher::{Certificates, RedisOptions, Topology};
use shortlink_service::codes::pool::Watermarks;
use shortlink_store::{
    KnownServers, ReplicaOptions, ReplicaState, Scheme, StoreOptions, check_replica_url,
};
use toml::Table;
use tracing::level_filters::LevelFilter;
use vocabulary::target::MAX_TARGET_LENGTH;
use vocabulary::{Alphabet, BodyLengths, Check, CheckKeys, CodeRules, KeyPrefix, RedirectStatus};

pub use sign_in::{OpenIdSettings, SignIn};
pub use visits::Visits;
pub use webhooks::Webhooks;

/// The setting that names the file with check keys.
const CHECK_KEYS: &str = "codes.check_keys_file";

/// The setting that names the file with the secret of nginx.
const PROXY_SECRET: &str = "http.proxy_secret_file";

/// The file with words that codes do not contain.
const BLOCKLIST: &str = "codes.blocklist_file";

/// Every setting.
#[derive(Debug)]
pub struct Config {
    /// `[http]`
    pub http: Http,
    /// `[database]`
    pub database: StoreOptions,
    /// The most connections that the fallback resolver has besides.
    pub resolver_connections: u32,
    /// `[redis]`
    pub redis: RedisOptions,
    /// `[codes]`
    pub codes: Codes,
    /// `[links]`
    pub links: LinkDefaults,
    /// `[upkeep]`
    pub upkeep: Upkeep,
    /// `[visits]`
    pub visits: Visits,
    /// `[webhooks]`
    pub webhooks: Webhooks,
    /// `[sign_in]`
    pub sign_in: SignIn,
    /// `[log]`
    pub log: Log,
}

/// The settings of the HTTP service.
#[derive(Debug)]
pub struct Http {
    /// The address on which it listens.
    pub listen: SocketAddr,
    /// The most bytes in the body of a request.
    pub body_limit_bytes: usize,
    /// The time that requests have to finish after the signal to stop.
    pub shutdown_grace: Duration,
    /// The secret by which the API recognises nginx.
    pub proxy_secret: Option<ProxySecret>,
    /// Its file.
    pub proxy_secret_file: Option<PathBuf>,
}

/// The settings of codes.
#[derive(Debug)]
pub struct Codes {
    /// The rules that nginx shares.
    pub rules: CodeRules,
    /// The file with their secret keys, if they have some.
    pub keys_file: Option<PathBuf>,
    /// The default policy for new codes.
    pub policy: CodePolicy,
    /// The least ratio of a length's possible codes to its links.
    pub one_in: u64,
    /// The least mean number of guesses for a link, by a guesser who knows a code of `sequence`.
    pub sequence_one_in: u64,
    /// The number of codes that the pool holds.
    pub pool: Watermarks,
    /// Words that are no codes.
    pub reserved: ReservedWords,
    /// Words that issued codes do not contain.
    pub blocklist: Blocklist,
    /// Words that custom codes do not contain.
    pub custom_blocklist: Blocklist,
}

/// The settings of links.
#[derive(Debug)]
pub struct LinkDefaults {
    /// The default redirect status.
    pub redirect_status: RedirectStatus,
    /// The rules for targets.
    pub policy: TargetPolicy,
    /// The allowed domains of targets.
    pub domains: TargetDomains,
    /// The time in seconds for which Redis remembers that a code is unknown.
    pub negative_ttl_s: u64,
    /// The number of days after which dead links are deleted; 0 for never.
    pub quarantine_days: u32,
}

/// The settings of background jobs.
#[derive(Debug)]
pub struct Upkeep {
    /// The number of links that are compared with Redis each second; 0 for none.
    pub reconcile_per_s: u32,
    /// The number of lanes of each job that sidecars share.
    pub lanes: u32,
    /// True if an empty Redis is filled automatically.
    pub rebuild: bool,
    /// The interval between sweeps of dead links; `None` for no sweeps.
    pub sweep: Option<Duration>,
}

/// The most lanes: each may use a connection to the database.
const MAX_LANES: u32 = 32;

/// The settings of the log.
#[derive(Debug)]
pub struct Log {
    /// The format.
    pub format: LogFormat,
    /// The least important events.
    pub level: LevelFilter,
    /// The sample of requests that are traced into the database.
    pub sampling: Sampling,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text.
    Text,
    /// JSON, one object a line.
    Json,
}

impl Config {
    /// Puts the settings together.
    ///
    /// # Errors
    /// Fails when a file can't be read, a key is unknown, or a value is not allowed.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> anyhow::Result<Self> {
        let settings = Settings(layers::merged(file, environment)?);
        let timeout = |key| settings.milliseconds(key, 10, 60_000);
        let blocklist = settings.blocklist()?;
        Ok(Self {
            http: Http {
                listen: settings.listen("http.listen")?,
                body_limit_bytes: settings.number("http.body_limit_bytes", 1024, 16 << 20)?,
                shutdown_grace: settings.milliseconds("http.shutdown_grace_ms", 0, 600_000)?,
                proxy_secret: settings.proxy_secret()?,
                proxy_secret_file: settings.file(PROXY_SECRET),
            },
            database: StoreOptions {
                url: settings.store_url("database.url")?,
                known_servers: KnownServers::default(),
                replica: settings.replica()?,
                max_connections: settings.number("database.max_connections", 1, 64)?,
                acquire_timeout: timeout("database.acquire_timeout_ms")?,
                statement_timeout: timeout("database.statement_timeout_ms")?,
                lock_timeout: timeout("database.lock_timeout_ms")?,
                find_by_target: settings.get("links.find_by_target"),
                visits: settings.clickhouse()?,
            },
            resolver_connections: settings.number("database.resolver_connections", 1, 64)?,
            redis: RedisOptions {
                url: settings.get::<String>("redis.url").into(),
                topology: settings.topology()?,
                certificates: settings.certificates()?,
                sentinel_login: settings.sentinel_login()?,
                prefix: settings.prefix("redis.prefix")?,
                timeout: timeout("redis.timeout_ms")?,
                ended_days: EndedDays(settings.number("redis.ended_days", 0, 100_000)?),
            },
            codes: Codes {
                rules: settings.rules()?,
                keys_file: settings.file(CHECK_KEYS),
                policy: settings.code_policy()?,
                one_in: settings.number("codes.one_in", 1, 1 << 40)?,
                sequence_one_in: settings.number("codes.sequence_one_in", 1, 1 << 40)?,
                pool: settings.watermarks()?,
                reserved: ReservedWords::new(settings.get::<Vec<String>>("codes.reserved")),
                custom_blocklist: match settings.get("codes.blocklist_custom") {
                    true => blocklist.clone(),
                    false => Blocklist::default(),
                },
                blocklist,
            },
            links: LinkDefaults {
                redirect_status: settings.redirect_status("links.default_redirect_status")?,
                policy: TargetPolicy {
                    allow_private: settings.get("links.allow_private_targets"),
                    min_bytes: settings.number("links.min_target_bytes", 0, MAX_TARGET_LENGTH)?,
                    max_bytes: settings.number("links.max_target_bytes", 16, MAX_TARGET_LENGTH)?,
                },
                domains: TargetDomains {
                    allowed: settings.domains("links.allowed_domains")?,
                    denied: settings.domains("links.denied_domains")?,
                },
                negative_ttl_s: settings.number("links.negative_ttl_s", 1, 86_400)?,
                quarantine_days: settings.number("links.quarantine_days", 0, 100_000)?,
            },
            upkeep: Upkeep {
                reconcile_per_s: settings.number("upkeep.reconcile_per_s", 0, 1_000_000)?,
                lanes: settings.number("upkeep.lanes", 1, MAX_LANES)?,
                rebuild: settings.get("upkeep.rebuild"),
                sweep: match settings.number("upkeep.sweep_every_s", 0, 86_400)? {
                    0 => None,
                    seconds => Some(Duration::from_secs(seconds)),
                },
            },
            visits: settings.visits()?,
            webhooks: settings.webhooks()?,
            sign_in: settings.sign_in()?,
            log: Log {
                format: settings.one_of(
                    "log.format",
                    &[("text", LogFormat::Text), ("json", LogFormat::Json)],
                )?,
                level: settings.log_level("log.level")?,
                sampling: Sampling {
                    one_in: settings.number("log.sample_one_in", 0, 1 << 40)?,
                },
            },
        })
    }
}

/// The error for a value that is not allowed.
fn fault(key: &str, value: impl Display, allowed: impl Display) -> anyhow::Error {
    let value = value.to_string();
    anyhow!("{key} is {value:?}, but must be {allowed}")
}

/// The merged layers. Every key is there and of its default's type: [`layers`] has seen to it.
struct Settings(Table);

impl Settings {
    /// A value of a type that holds all values of its default's type.
    fn get<T: DeserializeOwned + Default>(&self, key: &str) -> T {
        let value = key
            .split_once('.')
            .and_then(|(group, key)| self.0.get(group)?.get(key));
        let value = value.cloned().and_then(|value| value.try_into().ok());
        value.unwrap_or_default()
    }

    /// A file, or none for an empty text. A missing file is noticed when it is opened.
    fn file(&self, key: &str) -> Option<PathBuf> {
        Some(self.get(key)).filter(|path: &PathBuf| !path.as_os_str().is_empty())
    }

    fn number<N>(&self, key: &'static str, least: N, most: N) -> anyhow::Result<N>
    where
        N: TryFrom<i64> + Copy + PartialOrd + std::fmt::Display,
    {
        let value: i64 = self.get(key);
        match N::try_from(value) {
            Ok(number) if least <= number && number <= most => Ok(number),
            _ => {
                let allowed = format!("a whole number from {least} to {most}");
                Err(fault(key, value, allowed))
            }
        }
    }

    fn milliseconds(&self, key: &'static str, least: u64, most: u64) -> anyhow::Result<Duration> {
        self.number(key, least, most).map(Duration::from_millis)
    }

    /// Parses a text; the error lists the allowed values.
    fn parsed<T>(
        &self,
        key: &'static str,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> anyhow::Result<T> {
        let text: String = self.get(key);
        parse(&text).ok_or_else(|| fault(key, &text, allowed))
    }

    /// Finds the value that a text names.
    fn one_of<T: Clone>(&self, key: &'static str, allowed: &[(&str, T)]) -> anyhow::Result<T> {
        let names: Vec<&str> = allowed.iter().map(|(name, _)| *name).collect();
        self.parsed(key, &format!("one of {}", names.join(", ")), |text| {
            let found = allowed.iter().find(|(name, _)| *name == text);
            found.map(|(_, value)| value.clone())
        })
    }

    fn listen(&self, key: &'static str) -> anyhow::Result<SocketAddr> {
        let allowed = "an IP address and a port, like 127.0.0.1:8090 or [::1]:8090";
        self.parsed(key, allowed, |text| text.parse().ok())
    }

    fn store_url(&self, key: &'static str) -> anyhow::Result<SecretString> {
        let url: String = self.get(key);
        if Scheme::of(&url).is_some() {
            return Ok(url.into());
        }
        // A URL may hold a password, so the message shows only the faulty part.
        let value = match url.split_once(':') {
            Some((scheme, _)) => format!("{scheme}:…"),
            None => "…".to_owned(),
        };
        let allowed = format!("a URL that begins with {}", Scheme::NAMES);
        Err(fault(key, value, allowed))
    }

    /// The replica of the database, if there is one.
    fn replica(&self) -> anyhow::Result<Option<ReplicaOptions>> {
        let key = "database.replica_url";
        let max_lag = self.number("database.replica_max_lag_s", 2, 600)?;
        let url: String = self.get(key);
        if url.is_empty() {
            return Ok(None);
        }
        if Scheme::of(&self.get::<String>("database.url")) != Some(Scheme::Postgres) {
            bail!("{key} must be empty when database.url is not one of PostgreSQL");
        }
        // A URL may hold a password, so the message shows only the faulty part.
        if Scheme::of(&url) != Some(Scheme::Postgres) {
            bail!("{key} must begin with postgres: or postgresql:");
        }
        check_replica_url(&url).map_err(|error| anyhow!("{key}: {error}"))?;
        Ok(Some(ReplicaOptions {
            url: url.into(),
            known_servers: KnownServers::default(),
            state: ReplicaState::new(Duration::from_secs(max_lag)),
        }))
    }

    fn topology(&self) -> anyhow::Result<Topology> {
        let key = "redis.nodes";
        let nodes: Vec<String> = self.get(key);
        if let Some(node) = nodes.iter().find(|node| !is_host_and_port(node)) {
            return Err(fault(key, node, "a list of host:port"));
        }
        let allowed = [
            ("server", Topology::Server),
            ("sentinel", Topology::Sentinel(nodes.clone())),
            ("cluster", Topology::Cluster(nodes.clone())),
        ];
        let topology = self.one_of("redis.topology", &allowed)?;
        match &topology {
            Topology::Sentinel(nodes) if nodes.is_empty() => {
                bail!("{key} must be set when redis.topology is \"sentinel\"")
            }
            Topology::Server if !nodes.is_empty() => {
                let allowed = "empty when redis.topology is \"server\"";
                Err(fault(key, nodes.join(", "), allowed))
            }
            _ => Ok(topology),
        }
    }

    fn sentinel_login(&self) -> anyhow::Result<Option<(Option<String>, SecretString)>> {
        let text = |key| Some(self.get::<String>(key)).filter(|text| !text.is_empty());
        match (text("redis.sentinel_user"), text("redis.sentinel_password")) {
            (user, Some(password)) => Ok(Some((user, password.into()))),
            (Some(_), None) => bail!("redis.sentinel_user needs redis.sentinel_password"),
            (None, None) => Ok(None),
        }
    }

    fn certificates(&self) -> anyhow::Result<Certificates> {
        let text = |key| self.read_file(key, std::fs::read_to_string);
        let [own, key] = ["redis.certificate_file", "redis.certificate_key_file"];
        let own = match (text(own)?, text(key)?) {
            (Some((_, certificate)), Some((_, key))) => Some((certificate, key.into())),
            (None, None) => None,
            _ => bail!("{own} and {key} must be set together"),
        };
        let trusted = text("redis.ca_file")?.map(|(_, text)| text);
        Ok(Certificates { trusted, own })
    }

    fn prefix(&self, key: &'static str) -> anyhow::Result<KeyPrefix> {
        let allowed = "at most 32 visible ASCII characters without { and }";
        self.parsed(key, allowed, |text| KeyPrefix::new(text.as_bytes()).ok())
    }

    fn redirect_status(&self, key: &'static str) -> anyhow::Result<RedirectStatus> {
        let code: i64 = self.get(key);
        let status = u16::try_from(code).ok().and_then(RedirectStatus::from_code);
        let allowed = format_args!("one of {}", RedirectStatus::CODES);
        status.ok_or_else(|| fault(key, code, allowed))
    }

    fn domains(&self, key: &'static str) -> anyhow::Result<DomainRules> {
        let allowed = "a list of domains: example.com for it and all below, =example.com for just \
                       it, or an IP address";
        let rules = self.get::<Vec<String>>(key).into_iter();
        let rules = rules.map(|text| {
            text.parse::<DomainRule>()
                .map_err(|_error| fault(key, &text, allowed))
        });
        rules.collect()
    }

    fn log_level(&self, key: &'static str) -> anyhow::Result<LevelFilter> {
        let allowed = [
            ("error", LevelFilter::ERROR),
            ("warn", LevelFilter::WARN),
            ("info", LevelFilter::INFO),
            ("debug", LevelFilter::DEBUG),
            ("trace", LevelFilter::TRACE),
        ];
        self.one_of(key, &allowed)
    }

    fn rules(&self) -> anyhow::Result<CodeRules> {
        let alphabet = format!("one of {}", Alphabet::NAMES);
        let alphabet = self.parsed("codes.alphabet", &alphabet, |text| {
            Alphabet::by_name(text.as_bytes())
        })?;
        let length = self.number("codes.body_length", 1, BodyLengths::LONGEST)?;
        let bodies = BodyLengths::new(length, length).unwrap_or_default();
        let methods = format!("one of {}", Check::NAMES);
        let check = self.parsed("codes.check", &methods, |text| match text {
            "none" => Some(Ok(Check::None)),
            "luhn" => Some(Ok(Check::Luhn)),
            "keyed" => Some(self.check_keys().map(Check::Keyed)),
            _ => None,
        })??;
        Ok(CodeRules {
            alphabet,
            check,
            bodies,
            ignores_case: self.get("codes.ignore_case"),
        })
    }

    fn code_policy(&self) -> anyhow::Result<CodePolicy> {
        let allowed = format!("one of {}", StrategyName::NAMES);
        let strategy = self.parsed("codes.strategy", &allowed, |text| {
            text.parse::<StrategyName>().ok()
        })?;
        let (least, most) = strategy.lengths();
        let shortest = self.number("codes.body_length", least, most)?;
        let longest = self.number("codes.longest_body_length", shortest, most)?;
        Ok(CodePolicy {
            strategy,
            lengths: (shortest, longest),
        })
    }

    fn watermarks(&self) -> anyhow::Result<Watermarks> {
        let high = self.number("codes.pool_high", 1, 10_000_000)?;
        let low = self.number("codes.pool_low", 0, high)?;
        Ok(Watermarks { low, high })
    }

    /// Reads the file that a setting names, if any; also returns how errors name it.
    fn read_file<T>(
        &self,
        key: &str,
        read: impl FnOnce(PathBuf) -> std::io::Result<T>,
    ) -> anyhow::Result<Option<(String, T)>> {
        let Some(path) = self.file(key) else {
            return Ok(None);
        };
        let the_file = format!("the file {path:?} that {key} names");
        let content = read(path).with_context(|| format!("{the_file} can't be read"))?;
        Ok(Some((the_file, content)))
    }

    /// The words that codes do not contain.
    fn blocklist(&self) -> anyhow::Result<Blocklist> {
        let file = self.read_file(BLOCKLIST, std::fs::read_to_string)?;
        let file = file.map(|(_, text)| text).unwrap_or_default();
        let built_in = match self.get("codes.blocklist") {
            true => Blocklist::built_in(),
            false => "",
        };
        Blocklist::parse([built_in, &file])
            .with_context(|| format!("the file that {BLOCKLIST} names can't be used"))
    }

    fn check_keys(&self) -> anyhow::Result<CheckKeys> {
        let Some((the_file, text)) = self.read_file(CHECK_KEYS, std::fs::read)? else {
            bail!("{CHECK_KEYS} must be set when codes.check is \"keyed\"");
        };
        CheckKeys::parse(&text).with_context(|| format!("{the_file} does not hold check keys"))
    }

    fn proxy_secret(&self) -> anyhow::Result<Option<ProxySecret>> {
        let Some((the_file, text)) = self.read_file(PROXY_SECRET, std::fs::read_to_string)? else {
            return Ok(None);
        };
        let secret = ProxySecret::parse(&text);
        let expected = "must have one line: proxy_set_header X-Shortlink-Secret \"…\"; with 16 or more letters, digits, \
                        - and _";
        secret
            .map(Some)
            .with_context(|| format!("{the_file} {expected}"))
    }
}

fn is_host_and_port(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| {
        !host.is_empty() && port.parse().is_ok_and(|port: u16| port != 0)
    })
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
