//! Settings of visits.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use shortlink_core::visit::address::AddressPolicy;
use shortlink_enrich::geo::GeoFiles;
use shortlink_service::live::LiveLimits;
use shortlink_store::{VisitsOptions, check_visits_url};

use super::{Settings, fault};

/// One database for each version of IP.
const MAX_IP2REGION_FILES: usize = 2;

/// The longest time until visits are judged by behaviour: while visitors have ids.
const LONGEST_DELAY_S: i64 = 3600;

/// The longest retention in days.
const LONGEST_DAYS: i64 = 36_500;

/// The settings of visits.
#[derive(Debug)]
pub struct Visits {
    /// True if this process stores visits.
    pub stores: bool,
    /// The number of streams to which the edge appends visits.
    pub streams: u16,
    /// The retention of visits; `None` for ever.
    pub retention: Option<SignedDuration>,
    /// The retention of counts by the minute; `None` for ever.
    pub minutes_retention: Option<SignedDuration>,
    /// The retention of counts by the hour and day; `None` for ever.
    pub hours_retention: Option<SignedDuration>,
    /// The time from storing a visit to its judgement by behaviour; `None` for never.
    pub judge_after: Option<SignedDuration>,
    /// The number of recorded days without a visit after which a link expires; `None` for never.
    pub expire_unvisited_after_days: Option<u32>,
    /// The part of a visitor's address that is stored.
    pub address: AddressPolicy,
    /// The databases that locate addresses.
    pub geo: GeoFiles,
    /// The interval of the check for replaced databases.
    pub geo_check: Duration,
    /// The number of cached user agents.
    pub remembered_agents: usize,
    /// The limits of the live feed; no listeners means no feed.
    pub live: LiveLimits,
}

impl Settings {
    pub(super) fn visits(&self) -> anyhow::Result<Visits> {
        let retention = |key| -> anyhow::Result<Option<SignedDuration>> {
            let days: i64 = self.number(key, 0, LONGEST_DAYS)?;
            Ok((days > 0).then(|| SignedDuration::from_hours(24 * days)))
        };
        Ok(Visits {
            stores: self.get("visits.store"),
            streams: self.number("visits.streams", 1, 1024)?,
            retention: retention("visits.retention_days")?,
            minutes_retention: retention("visits.minutes_retention_days")?,
            hours_retention: retention("visits.hours_retention_days")?,
            judge_after: {
                let seconds: i64 = self.number("visits.judge_after_s", 0, LONGEST_DELAY_S)?;
                (seconds > 0).then(|| SignedDuration::from_secs(seconds))
            },
            expire_unvisited_after_days: self.unvisited_days()?,
            address: self.address("visits.address")?,
            geo: GeoFiles {
                geo_database: self.file("visits.geo_database"),
                asn_database: self.file("visits.asn_database"),
                ip2region: self.ip2region("visits.ip2region")?,
                language: self.language("visits.geo_language")?,
            },
            geo_check: Duration::from_secs(self.number("visits.geo_check_s", 1, 86_400)?),
            remembered_agents: self.number("visits.remembered_agents", 1, 1_000_000)?,
            live: LiveLimits {
                listeners: self.number("visits.live_listeners", 0, 1000)?,
                per_key: self.number("visits.live_listeners_per_key", 1, 1000)?,
                visits_per_s: self.number("visits.live_per_s", 1, 10_000)?,
            },
        })
    }

    /// Reads the ClickHouse database of visits, if they are not in that of links.
    pub(super) fn clickhouse(&self) -> anyhow::Result<Option<VisitsOptions>> {
        let key = "visits.clickhouse";
        let url: String = self.get(key);
        if url.is_empty() {
            return Ok(None);
        }
        // The URL may hold a password: the message does not show it.
        check_visits_url(&url).map_err(|error| anyhow::anyhow!("{key} {error}"))?;
        let days: u32 = self.number("visits.retention_days", 0, LONGEST_DAYS as u32)?;
        Ok(Some(VisitsOptions {
            url: url.into(),
            retention_days: (days > 0).then_some(days),
        }))
    }

    /// Reads the setting; recorded days are known only within the retention of hours.
    fn unvisited_days(&self) -> anyhow::Result<Option<u32>> {
        let key = "visits.expire_unvisited_after_days";
        let days: i64 = self.number(key, 0, LONGEST_DAYS)?;
        let known: i64 = self.get("visits.hours_retention_days");
        if known > 0 && days >= known {
            let allowed = format!("less than visits.hours_retention_days ({known})");
            return Err(fault(key, days, allowed));
        }
        Ok(u32::try_from(days).ok().filter(|days| *days > 0))
    }

    fn address(&self, key: &'static str) -> anyhow::Result<AddressPolicy> {
        let allowed = format!("one of {}", AddressPolicy::NAMES);
        self.parsed(key, &allowed, AddressPolicy::by_name)
    }

    fn ip2region(&self, key: &'static str) -> anyhow::Result<Vec<PathBuf>> {
        let paths: Vec<String> = self.get(key);
        if paths.len() > MAX_IP2REGION_FILES || paths.iter().any(String::is_empty) {
            let allowed = "a list of at most two files, one for IPv4 and one for IPv6";
            return Err(fault(key, paths.join(", "), allowed));
        }
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }

    fn language(&self, key: &'static str) -> anyhow::Result<String> {
        let allowed = "a language as databases name it, like en or zh-CN";
        self.parsed(key, allowed, |text| {
            let is_tag = text.split('-').all(|part| {
                (2..=8).contains(&part.len())
                    && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
            });
            is_tag.then(|| text.to_owned())
        })
    }
}
