//! The types of the configuration, which directives set.

pub(crate) mod certificates;
pub(crate) mod redis;
pub(crate) mod zones;

use std::path::PathBuf;

use resolver::fallback::FallbackLimits;
use resolver::vocabulary::CodeRules;
use resolver::vocabulary::domains::Domains;
use resolver::{CacheSettings, VisitSettings};

use crate::nginx::conf::Server;
use crate::nginx::identity;
use crate::nginx::request::RequestHandler;
use crate::nginx::ssl::SslServer;
use crate::nginx::variable::VariableIndex;
use crate::settings::certificates::ReadCertificates;
use crate::settings::redis::{Redis, RedisNumber};
use crate::settings::zones::{MissLimitConf, MissLimiting};

/// The module's settings, for nginx.
pub(crate) struct Settings;

// SAFETY: the root of this crate makes the module's context for these, and no other type implements the trait.
unsafe impl identity::Settings for Settings {
    type Main = MainConf;
    type Location = LocationConf;
}

/// The default of `shortlink_cache`.
pub(crate) const DEFAULT_CACHE: CacheSettings = CacheSettings {
    bytes: 32 << 20,
    stale_for: 60_000,
    longest_age: 600_000,
};

/// The directives of the `http` block.
#[derive(Debug)]
pub(crate) struct MainConf {
    /// Each Redis that `shortlink_redis` defines or a location names; the one without a name is first.
    pub(crate) redis: Vec<Redis>,
    /// The default of `shortlink_check`, then each that is given.
    pub(crate) rules: Vec<CodeRules>,
    /// `shortlink_cache`, or its default; `None` when it is off.
    pub(crate) cache: Option<CacheSettings>,
    /// Each `shortlink_miss_limit` that is not off.
    pub(crate) miss_limits: Vec<MissLimitConf>,
    /// The limit of the `http` block.
    pub(crate) miss_limit: MissLimiting,
    /// The settings of `shortlink_visits`; `None` where it is on nowhere.
    pub(crate) visits: Option<VisitsConf>,
    /// Each `shortlink_domains`.
    pub(crate) tables: Vec<DomainTable>,
    /// The place of that of the `http` block, which servers have unless they have one of their own.
    pub(crate) table: Option<usize>,
    /// Each server with `shortlink_certificates`, and the place of its table.
    pub(crate) secured: Vec<(SslServer, usize)>,
    /// `shortlink_languages`; none unless it is given.
    pub(crate) languages: Vec<Box<[u8]>>,
    /// The variables of `shortlink_country`: that with the country, and that with the region.
    pub(crate) country: [Option<VariableIndex>; 2],
    /// The index of `$shortlink_code` among nginx' variables.
    pub(crate) code_variable: Option<VariableIndex>,
    /// The variable with the click id that the fallback has made.
    pub(crate) click_variable: Option<VariableIndex>,
    /// The variable with the code that the fallback has found a link of.
    pub(crate) code_header: Option<VariableIndex>,
    /// The variable with the variant that the fallback has chosen.
    pub(crate) variant_header: Option<VariableIndex>,
    /// The variable with the status of the server that the fallback has asked.
    pub(crate) upstream_status: Option<VariableIndex>,
    /// The variable that is 1 if the fallback knows that there is no link.
    pub(crate) unknown_header: Option<VariableIndex>,
    /// The variable that is 1 if the fallback has answered with the page of a preview.
    pub(crate) preview_header: Option<VariableIndex>,
    /// True if a location has `shortlink_status`.
    pub(crate) has_status: bool,
    /// Each location with `shortlink`, for the check of the whole.
    pub(crate) locations: Vec<UsedLocation>,
    /// The directives of which only one may be given, and that were.
    pub(crate) given: Given,
}

/// Directives that were given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    pub(crate) cache: bool,
}

impl MainConf {
    /// The place of the Redis with a name, which it gets if it has none yet.
    pub(crate) fn redis_number(&mut self, name: &str) -> RedisNumber {
        let known = self.redis.iter().position(|redis| redis.name == name);
        RedisNumber::new(known.unwrap_or_else(|| {
            self.redis.push(Redis {
                name: name.to_owned(),
                ..Redis::default()
            });
            self.redis.len() - 1
        }))
    }

    /// A Redis of the configuration.
    pub(crate) fn redis_mut(&mut self, number: RedisNumber) -> Option<&mut Redis> {
        self.redis.get_mut(number.index())
    }

    /// Each Redis that locations use.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Redis> {
        self.redis.iter().filter(|redis| redis.used_in.is_some())
    }
}

impl Default for MainConf {
    fn default() -> Self {
        Self {
            redis: vec![Redis::default()],
            rules: vec![CodeRules::default()],
            cache: Some(DEFAULT_CACHE),
            miss_limits: Vec::new(),
            miss_limit: MissLimiting::Off,
            visits: None,
            tables: Vec::new(),
            table: None,
            secured: Vec::new(),
            languages: Vec::new(),
            country: [None; 2],
            code_variable: None,
            click_variable: None,
            code_header: None,
            variant_header: None,
            upstream_status: None,
            unknown_header: None,
            preview_header: None,
            has_status: false,
            locations: Vec::new(),
            given: Given::default(),
        }
    }
}

/// `shortlink_domains`.
#[derive(Debug)]
pub(crate) struct DomainTable {
    pub(crate) domains: Domains,
    /// The certificates that it names.
    pub(crate) certificates: Option<ReadCertificates>,
}

/// The directives of a location.
#[derive(Debug, Default)]
pub(crate) struct LocationConf {
    /// True if the location has `shortlink`.
    pub(crate) is_enabled: bool,
    /// The Redis of `shortlink`; of a server that of one of its locations, as a guess.
    pub(crate) redis: RedisNumber,
    /// The directive that answers the requests of the location.
    pub(crate) content: Option<ContentConf>,
    /// The place of `shortlink_check`; 0 without one.
    pub(crate) rules: usize,
    /// `shortlink_fallback`.
    pub(crate) fallback: Option<FallbackConf>,
    /// `shortlink_miss_limit`.
    pub(crate) miss_limit: Option<MissLimiting>,
    /// False to ask Redis for each request; `None` is true.
    pub(crate) uses_cache: Option<bool>,
    /// `shortlink_visits`.
    pub(crate) recording: Option<Recording>,
    /// `shortlink_visit_address`.
    pub(crate) visit_address: Option<VisitAddress>,
    /// The place of its server's `shortlink_domains`.
    pub(crate) table: Option<usize>,
}

/// A directive that answers the requests of a location.
#[derive(Clone, Debug)]
pub(crate) struct ContentConf {
    pub(crate) directive: &'static str,
    /// The function that nginx calls with the requests.
    pub(crate) handler: RequestHandler,
    /// The file with the directive, and its line, for messages.
    pub(crate) file: String,
    pub(crate) line: usize,
}

/// A location with `shortlink`, for the check of the whole.
#[derive(Debug)]
pub(crate) struct UsedLocation {
    pub(crate) server: Server,
    pub(crate) redis: RedisNumber,
    pub(crate) fallback: Option<FallbackConf>,
}

/// `shortlink_fallback`.
#[derive(Clone, Debug)]
pub(crate) struct FallbackConf {
    /// The named location, with the `@`.
    pub(crate) name: Box<[u8]>,
    /// Its bounds.
    pub(crate) limits: FallbackLimits,
    /// Its place among those of the location's Redis.
    pub(crate) index: usize,
    /// The file with the directive, and its line, for messages.
    pub(crate) file: String,
    pub(crate) line: usize,
}

/// The requests of a location whose visits are recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Recording {
    #[default]
    None,
    All,
    /// Those whose variable is neither empty nor `0`.
    If(VariableIndex),
}

/// The parameters of `shortlink_visits on`.
#[derive(Clone, Debug, Default)]
pub(crate) struct VisitsConf {
    pub(crate) settings: VisitSettings,
    pub(crate) spool: Option<SpoolConf>,
}

/// `spool=` and `spool_size=`.
#[derive(Clone, Debug)]
pub(crate) struct SpoolConf {
    /// The directory of the files.
    pub(crate) directory: PathBuf,
    /// The most bytes that they take together.
    pub(crate) size: u64,
}

/// The part of a client's address that a visit has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum VisitAddress {
    /// All of it.
    #[default]
    Full,
    /// The network.
    Truncated,
}
