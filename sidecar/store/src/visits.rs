//! Rows that both stores derive from visits before they write them.

mod agents;
pub(crate) mod click_ids;
pub(crate) mod clicks;
mod counts;
mod day_keys;
mod erased;
pub(crate) mod erasing;
pub(crate) mod erasure;
pub(crate) mod export;
mod first_clicks;
mod keeping;
mod listing;
mod marks;
pub(crate) mod messages;
mod minutes;
mod moves;
mod moving;
mod network_minutes;
mod pruning;
mod quarantine;
mod recipients;
mod reclassify;
mod sink;
mod sketches;
mod top;
mod values;
pub(crate) mod variants;
mod watch;

pub use agents::AgentsPass;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use shortlink_core::ports::Dimension;
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::{Agent, Versioned};
use shortlink_core::visit::class::Class;
use shortlink_core::visit::ranges::Ranges;
use shortlink_core::visit::visitor::VisitorId;
use vocabulary::Code;
use vocabulary::visit::VisitMethod;
use vocabulary::visit::evidence::VisitEvidence;

use crate::Scheme;
use crate::db::Db;
use crate::rows::known_ids;
use crate::shared::DAY_MS;
use crate::value::{Row, Value, invalid};

/// Milliseconds of an hour and of a minute.
const HOUR_MS: i64 = 60 * MINUTE_MS;
const MINUTE_MS: i64 = 60 * 1000;

/// Hour under which a link's visits are counted after their own hour has been deleted. No moment
/// has it.
const EARLIER: i64 = -1_000_000_000;

/// [`EARLIER`] in the text of a statement, from which SQLite knows that an index has all rows.
const EARLIER_TEXT: &str = "-1000000000";

/// Id that stands for all campaigns and links without one.
const ALL: i64 = 0;

/// Id of the row of a user agent and its classification. It follows from both, so that no look-up is
/// needed, and so that a visit preserves its classification when the rules have improved.
fn agent_id(user_agent: &str, agent: &Agent) -> i64 {
    let (browser, browser_version) = parts(agent.browser.as_ref());
    let (os, os_version) = parts(agent.os.as_ref());
    let device = Some(agent.device.kind.name());
    let mut digest = Sha256::new_with_prefix(user_agent.as_bytes());
    for part in [browser, browser_version, os, os_version, device, agent.app] {
        // No text has these bytes: they separate the digested texts.
        digest.update(if part.is_some() { [0xff] } else { [0xfe] });
        digest.update(part.unwrap_or_default());
    }
    let mut id = [0; 8];
    id.copy_from_slice(&digest.finalize()[..8]);
    // Never negative: that looks odd in a database.
    i64::from_be_bytes(id) & i64::MAX
}

/// The hour of a visit, counted since 1970.
fn hour_of(visit: &Visit) -> i64 {
    visit.at.as_millisecond().div_euclid(HOUR_MS)
}

/// The minute of a visit, counted since 1970.
fn minute_of(visit: &Visit) -> i64 {
    visit.at.as_millisecond().div_euclid(MINUTE_MS)
}

/// Key of the visits of a link and of their counts: the id that the link has or would have in SQLite, the
/// code in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum LinkKey<'a> {
    Id(i64),
    Code(&'a str),
}

impl<'a> From<LinkKey<'a>> for Value<'a> {
    fn from(key: LinkKey<'a>) -> Self {
        match key {
            LinkKey::Id(id) => id.into(),
            LinkKey::Code(code) => code.into(),
        }
    }
}

/// The condition that a row belongs to one of the links whose keys are listed in `$1`.
const OF_LINKS: &str = "{link_id IN (SELECT value FROM json_each($1))|code = ANY($1::text[])}";

impl<'a> LinkKey<'a> {
    /// The keys of codes; a code that no visit can have has none.
    async fn known(
        db: &mut Db<'_>,
        codes: &'a [Code],
    ) -> Result<HashMap<Self, &'a Code>, sqlx::Error> {
        if db.scheme() == Scheme::Postgres {
            let keys = codes.iter().map(|code| (Self::Code(code.as_str()), code));
            return Ok(keys.collect());
        }
        // Every code that visits are stored of has an id.
        let ids = known_ids(db, codes).await?.into_iter().zip(codes);
        let keys = ids.filter_map(|(id, code)| Some((Self::Id(id?), code)));
        Ok(keys.collect())
    }

    /// Some keys by the ids that their links have or would have.
    async fn ids(
        db: &mut Db<'_>,
        keys: impl Iterator<Item = Self>,
    ) -> Result<Map<i64, Self>, sqlx::Error> {
        let mut by_id = Map::default();
        let mut unknown = Vec::new();
        for key in keys {
            match key {
                Self::Id(id) => _ = by_id.insert(id, key),
                Self::Code(text) => unknown.extend(text.parse::<Code>().ok().zip(Some(key))),
            }
        }
        if !unknown.is_empty() {
            let (codes, keys): (Vec<Code>, Vec<Self>) = unknown.into_iter().unzip();
            let ids = known_ids(db, &codes).await?.into_iter().zip(keys);
            by_id.extend(ids.filter_map(|(id, key)| Some((id?, key))));
        }
        Ok(by_id)
    }

    /// The value for [`OF_LINKS`].
    fn list<'k>(db: &Db<'_>, keys: impl Iterator<Item = &'k Self>) -> Value<'a>
    where
        'a: 'k,
    {
        let (mut ids, mut codes) = (Vec::new(), Vec::new());
        for key in keys {
            match key {
                Self::Id(id) => ids.push(*id),
                Self::Code(code) => codes.push(*code),
            }
        }
        match db.scheme() {
            Scheme::Sqlite => ids.into(),
            Scheme::Postgres => codes.into(),
        }
    }

    /// Reads the key in the column `link`.
    fn read(row: &'a Row) -> Result<Self, sqlx::Error> {
        match row {
            Row::Sqlite(_) => row.get("link").map(Self::Id),
            Row::Postgres(_) => row.get("link").map(Self::Code),
        }
    }
}

/// A map whose keys visitors may have chosen: another order in each process, as in the standard library, but faster.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A visit that is being stored.
#[derive(Clone, Copy)]
struct Taken<'a> {
    visit: &'a Visit,
    /// The key of its link.
    key: LinkKey<'a>,
    /// Its link, if that exists: a late visit of a deleted link is none of a recipient any more.
    link: Option<&'a VisitedLink<'a>>,
}

impl Taken<'_> {
    /// The campaign that its link belongs to.
    fn campaign(&self) -> Option<i64> {
        self.link?.campaign
    }
}

/// A visited link.
struct VisitedLink<'a> {
    code: &'a str,
    /// The campaign that it belongs to.
    campaign: Option<i64>,
    /// The time of its creation, in milliseconds since 1970; 0 unless visits are in ClickHouse.
    created: i64,
    /// Number of visits after which it ends.
    most_visits: Option<i64>,
    /// Its plan, or that of its campaign, has variants.
    has_variants: bool,
}

/// Additions to the counts for some visits, each row once and in order.
#[derive(Debug, Default)]
struct Counts<'a> {
    /// By link, hour and class: how many, and when the last was, in milliseconds.
    links: BTreeMap<(LinkKey<'a>, i64, &'static str), (i64, i64)>,
    /// By campaign, dimension, hour, value and class.
    hours: BTreeMap<(i64, &'static str, i64, &'a str, &'static str), i64>,
    /// By campaign, minute and class, of the latest minutes.
    minutes: BTreeMap<(i64, i64, &'static str), i64>,
    /// By minute and host.
    domains: BTreeMap<(i64, &'a str), i64>,
    /// Human ones by minute, host and known network.
    networks: BTreeMap<(i64, &'a str, &'a str), i64>,
    /// Visitors by campaign and day; only human ones.
    visitors: BTreeMap<(i64, i64), Vec<VisitorId>>,
}

/// Properties of visits that are counted in the same rows, except for their links: the campaign, the hour, the class, and
/// what the value of each dimension follows from.
type Alike<'a> = (Option<i64>, i64, &'static str, (usize, u16, [&'a str; 5]));

/// The dimensions whose values follow from the agent, and those whose values are other texts of the visit. The status is
/// left.
const OF_AGENTS: [Dimension; 3] = [Dimension::Device, Dimension::Browser, Dimension::Os];
const OF_TEXTS: [Dimension; 5] = [
    Dimension::Domain,
    Dimension::Country,
    Dimension::Network,
    Dimension::Referrer,
    Dimension::Variant,
];
const _: () = assert!(OF_AGENTS.len() + OF_TEXTS.len() + 1 == Dimension::ALL.len());

/// Numbers for what agents are counted by. Most visits have one of a few agents, which are found by their addresses.
#[derive(Default)]
struct CountedAgents<'a> {
    by_address: Map<usize, usize>,
    by_values: Map<[&'a str; 3], usize>,
}

impl<'a> CountedAgents<'a> {
    fn number(&mut self, visit: &'a Visit) -> usize {
        let address = Arc::as_ptr(&visit.agent).addr();
        *self.by_address.entry(address).or_insert_with(|| {
            let values = OF_AGENTS.map(|dimension| dimension.value(visit));
            let next = self.by_values.len();
            *self.by_values.entry(values).or_insert(next)
        })
    }
}

impl<'a> Counts<'a> {
    /// Counts visits: by the minute those since a minute.
    fn of(visits: &[Taken<'a>], minutes_since: i64) -> Self {
        let mut counts = Self::default();
        // Most visits have all properties in common with others of the same batch. Counting these
        // first means that each row is looked up only once.
        let mut alike: Map<Alike<'a>, (&Visit, i64)> = Map::default();
        let mut agents = CountedAgents::default();
        let mut links: Map<(LinkKey<'a>, i64, &'static str), (i64, i64)> = Map::default();
        // By these groups too, so that no visit is looked up once more.
        let mut minutes: Map<(i64, &str, Option<i64>, &'static str), i64> = Map::default();
        let mut networks: Map<(i64, &str, &str), i64> = Map::default();
        for taken in visits {
            let (visit, campaign) = (taken.visit, taken.campaign());
            let (hour, class) = (hour_of(visit), visit.classification.class.name());
            let at = visit.at.as_millisecond();
            let of_link = links.entry((taken.key, hour, class)).or_insert((0, at));
            *of_link = (of_link.0 + 1, of_link.1.max(at));
            if let (Some(visitor), Class::Human) = (visit.visitor, visit.classification.class) {
                for of in [Some(ALL), campaign].into_iter().flatten() {
                    let key = (of, at.div_euclid(DAY_MS));
                    counts.visitors.entry(key).or_default().push(visitor);
                }
            }
            let texts = OF_TEXTS.map(|dimension| dimension.value(visit));
            let values = (agents.number(visit), visit.status, texts);
            let key = (campaign, hour, class, values);
            alike.entry(key).or_insert((visit, 0)).1 += 1;
            let key = (minute_of(visit), &*visit.host, campaign, class);
            *minutes.entry(key).or_default() += 1;
            if let (Some(network), Class::Human) = (&visit.place.isp, visit.classification.class) {
                let key = (minute_of(visit), &*visit.host, &**network);
                *networks.entry(key).or_default() += 1;
            }
        }
        for ((minute, host, campaign, class), visits) in minutes {
            *counts.domains.entry((minute, host)).or_default() += visits;
            if minute >= minutes_since {
                for of in [Some(ALL), campaign].into_iter().flatten() {
                    *counts.minutes.entry((of, minute, class)).or_default() += visits;
                }
            }
        }
        // These groups have most rows in common: each is sorted in once.
        let mut rows: Map<(i64, &'static str, i64, &str, &'static str), i64> = Map::default();
        for ((campaign, hour, class, _), (visit, visits)) in alike {
            for of in [Some(ALL), campaign].into_iter().flatten() {
                for (dimension, value) in counted(|dimension| dimension.value(visit)) {
                    let key = (of, dimension.name(), hour, value, class);
                    *rows.entry(key).or_default() += visits;
                }
            }
        }
        Self {
            links: links.into_iter().collect(),
            hours: rows.into_iter().collect(),
            networks: networks.into_iter().collect(),
            ..counts
        }
    }
}

/// The values by which a visit is counted, with their dimensions.
fn counted<'a>(value: impl Fn(Dimension) -> &'a str) -> impl Iterator<Item = (Dimension, &'a str)> {
    let all = [Dimension::Total].into_iter().chain(Dimension::ALL);
    let values = all.map(move |dimension| (dimension, value(dimension)));
    values.filter(|(dimension, value)| !(value.is_empty() && dimension.is_sparse()))
}

/// Adds visits to the ranges of their origins, which contain the stored visits; returns the places of
/// the new ones.
fn add_new(visits: &[Visit], stored: &mut BTreeMap<i64, Ranges>) -> Vec<usize> {
    let mut new = Vec::with_capacity(visits.len());
    for (place, visit) in visits.iter().enumerate() {
        let ranges = stored.entry(visit.id.origin.cast_signed()).or_default();
        if ranges.add(visit.id.sequence) {
            new.push(place);
        }
    }
    new
}

/// Reads the ranges of an origin.
fn ranges(text: &str) -> Result<Ranges, sqlx::Error> {
    Ranges::parse(text).ok_or_else(|| invalid("ranges"))
}

/// Returns a text unless it is empty: empty texts are stored as NULL.
fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The name and the version of something, in that order.
fn parts(it: Option<&Versioned>) -> (Option<&str>, Option<&str>) {
    match it {
        Some(it) => (Some(&it.name), it.version.as_deref()),
        None => (None, None),
    }
}

/// A name and a version as they are shown.
fn joined(name: Option<&str>, version: Option<&str>) -> Option<String> {
    let name = name?;
    Some(match version {
        Some(version) => format!("{name} {version}"),
        None => name.to_owned(),
    })
}

/// The method with a name.
fn method(name: &str) -> VisitMethod {
    match name {
        "GET" => VisitMethod::Get,
        "HEAD" => VisitMethod::Head,
        _ => VisitMethod::Other,
    }
}

/// The evidence of a row; unknown for a visit without any.
fn evidence(row: &Row) -> Result<VisitEvidence, sqlx::Error> {
    let number: Option<i64> = row.find("evidence")?;
    let number = number.unwrap_or_default().cast_unsigned();
    Ok(VisitEvidence::from_number(number))
}

/// The column that [`evidence`] reads.
fn evidence_column(evidence: VisitEvidence) -> Option<u32> {
    (evidence != VisitEvidence::UNKNOWN).then_some(evidence.number())
}

/// The number of the client's autonomous system, if a row has one.
fn asn(row: &Row) -> Result<Option<u32>, sqlx::Error> {
    let number: Option<i64> = row.find("asn")?;
    Ok(number.and_then(|number| number.try_into().ok()))
}

/// Parses a stored class; one of a later version is unknown.
fn class(name: &str) -> Class {
    Class::by_name(name).unwrap_or(Class::Unknown)
}

/// Parses a stored visitor.
fn visitor_id(bytes: Option<&[u8]>) -> Option<VisitorId> {
    bytes?.try_into().ok().map(VisitorId)
}
