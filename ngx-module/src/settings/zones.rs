//! The shared memory of the counters and of the misses of each address.

use std::sync::atomic::AtomicU64;

use resolver::counters::{self, Counters, WorkerCounters};
use resolver::limit::{Limits, MissTable};

use crate::nginx::conf::Conf;
use crate::nginx::process;
use crate::nginx::shared::Zone;
use crate::nginx::variable::VariableIndex;

/// The names of the zones.
const COUNTERS: &str = "shortlink_counters";
const MISSES: &str = "shortlink_misses";

/// The name of a zone for a Redis, which may have none.
fn zone_name(zone: &str, redis: &str) -> String {
    match redis {
        "" => zone.to_owned(),
        _ => format!("{zone}:{redis}"),
    }
}

/// The counters of all workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterZone(Zone);

impl CounterZone {
    /// Asks nginx for the memory of the counters of a Redis.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn add(conf: &mut Conf, redis: &str) -> Result<Self, String> {
        conf.add_zone(&zone_name(COUNTERS, redis), counters::WORDS)
            .map(Self)
    }

    /// The counters.
    pub(crate) fn counters(self) -> Option<Counters<'static>> {
        Counters::new(self.0.words()?)
    }

    /// A place for this worker to count in.
    pub(crate) fn claim(self) -> Option<WorkerCounters<'static>> {
        Some(self.counters()?.claim(process::number(), process::is_alive))
    }
}

/// `shortlink_miss_limit`.
#[derive(Clone, Debug)]
pub(crate) struct MissLimitConf {
    pub(crate) limits: Limits,
    /// The name of the limits and the size, for zones.
    pub(crate) name: String,
    /// True if an address over the limit gets nothing at all.
    pub(crate) is_strict: bool,
    /// The bytes of each zone.
    pub(crate) bytes: usize,
    /// The index of the variable of `exempt=`.
    pub(crate) exempt: Option<VariableIndex>,
}

impl MissLimitConf {
    /// Returns whether two limits count misses together.
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The limit of misses of a location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MissLimiting {
    #[default]
    Off,
    /// That at this place among those of the configuration.
    By(usize),
}

/// The misses of each address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissZone(Zone);

impl MissZone {
    /// Asks nginx for so many bytes for the misses of a Redis; `limit` distinguishes limits of one Redis.
    ///
    /// # Errors
    /// When there are none.
    pub(crate) fn add(
        conf: &mut Conf,
        redis: &str,
        limit: Option<&str>,
        bytes: usize,
    ) -> Result<Self, String> {
        let mut name = zone_name(MISSES, redis);
        if let Some(limit) = limit {
            name = format!("{name} {limit}");
        }
        conf.add_zone(&name, bytes / size_of::<u64>()).map(Self)
    }

    /// The time until which an address may be limited.
    #[inline]
    pub(crate) fn alarm(self) -> Option<&'static AtomicU64> {
        self.0.own_word()
    }

    /// The misses.
    pub(crate) fn misses(self, limits: Limits) -> Option<MissTable<'static>> {
        let (words, secret) = (self.0.words()?, self.0.secret()?);
        Some(MissTable::new(words, self.alarm()?, secret, limits))
    }
}
