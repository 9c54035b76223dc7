//! `…/stats`: counts of visits over time and by dimension.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp, Unit};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_core::ports::{BY_MINUTE, CountQuery, Counted, Dimension, Hours};
use shortlink_core::visit::class::Class;

use super::app::SharedApp;
use super::auth::{MayReadStats, check_reaches_all};
use super::calendar::{Zone, floor};
use super::campaigns::{self, CampaignInPath, no_such_campaign};
use super::extract::{CODE, CodeInPath, no_such_link};
use super::operation::parameter::{number, of, parameters};
use super::operation::{Operation, operations};
use super::problem::Problem;
use super::query::{Asked, Limit, MAX_LIMIT, Number, SINCE, UNTIL, query, values};
use super::words;

/// The default time span.
const DEFAULT_SPAN: SignedDuration = SignedDuration::from_hours(24 * 7);

/// The longest time span whose intervals are hours by default.
const SHORT_SPAN: SignedDuration = SignedDuration::from_hours(24 * 3);

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The maximum time span with intervals of a minute, and the default one.
const MINUTES_SPAN: SignedDuration = SignedDuration::from_hours(24);

/// The maximum time span.
const LONGEST_SPAN: SignedDuration = SignedDuration::from_hours(24 * 800);

/// The default number of values of a dimension.
const DEFAULT_VALUES: u32 = 50;

/// The maximum number of values with intervals of their own, and the maximum number of intervals.
const MAX_VALUES_OVER_TIME: usize = 20;
const MAX_INTERVALS_OF_VALUES: i64 = 1000;

/// The default and the maximum number of minutes in the statistics of domains.
const DEFAULT_MINUTES: i64 = 60;
const MAX_MINUTES: u32 = 24 * 60;

/// Numbers of visits by class.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "VisitCounts")]
pub(super) struct ClassCounts {
    /// Visits of all classes.
    pub(super) total: u64,
    pub(super) human: u64,
    preview: u64,
    scanner: u64,
    bot: u64,
    unknown: u64,
    /// Visits answered with 410, after the link had ended or while it was paused; no other class
    /// has them.
    refused: u64,
}

impl ClassCounts {
    pub(super) fn add(&mut self, class: Class, visits: u64) {
        self.total += visits;
        *match class {
            Class::Human => &mut self.human,
            Class::Preview => &mut self.preview,
            Class::Scanner => &mut self.scanner,
            Class::Bot => &mut self.bot,
            Class::Unknown => &mut self.unknown,
            Class::Refused => &mut self.refused,
        } += visits;
    }
}

/// Numbers of visits in an interval.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StatsInterval")]
struct IntervalBody {
    begin: Timestamp,
    #[serde(flatten)]
    visits: ClassCounts,
}

/// Numbers of visits with the same value of a dimension.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StatsValue")]
struct ValueBody {
    /// Value of the dimension; empty if unknown, `(other)` for the values beyond the first 1,000 of a day.
    value: String,
    #[serde(flatten)]
    visits: ClassCounts,
    /// Intervals with such visits, if `valueIntervals` is set; only for the values with the most
    /// visits.
    #[serde(skip_serializing_if = "Option::is_none")]
    intervals: Option<Vec<IntervalBody>>,
}

/// Number of unique visitors on a day, as far as the day is in the period.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StatsVisitors")]
struct VisitorsBody {
    begin: Timestamp,
    /// For a campaign and for all links, null if the period contains only a part of the day: their visitors are counted
    /// by whole days. The current day is whole if the period contains it up to now.
    visitors: Option<u64>,
}

/// Counts of visits.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Stats")]
pub(super) struct StatsBody {
    /// Start of the counted period, a whole hour.
    since: Timestamp,
    /// End of the counted period, a whole hour, which is not part of it.
    until: Timestamp,
    #[schemars(with = "words::Interval")]
    interval: &'static str,
    /// Time zone of the days.
    timezone: String,
    visits: ClassCounts,
    /// Intervals with visits. The first and the last day have only their visits of the period. Minutes of a link are
    /// those of its latest visits that are stored, so that `visits` can be greater than their sum.
    intervals: Vec<IntervalBody>,
    /// Unique visitors per day of UTC, in every time zone. A visitor counts once on each day: visitors cannot be
    /// recognised on another day.
    visitors: Vec<VisitorsBody>,
    /// Counts per requested dimension.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by: BTreeMap<&'static str, Vec<ValueBody>>,
}

parameters! {
    MINUTES: query "minutes", "Minutes", "Length of the period up to now, in minutes.",
        |_| number(1, MAX_MINUTES.into(), DEFAULT_MINUTES);
    INTERVAL: query "interval", "Interval",
        "Length of the intervals. Default: an hour for a period of up to three days, else a day. `minute` is for \
         at most 24 hours of the last two days, and the present hour.",
        of::<words::Interval>;
    TIMEZONE: query "timezone", "Timezone",
        "Time zone of the days, by its name in the IANA database. Visits are counted by hours of \
         UTC, so a day begins with the UTC hour that contains its first moment.",
        |_| json!({ "type": "string", "default": "UTC", "examples": ["Asia/Shanghai"] });
    pub(super) BY: query "by", "By", "Dimensions to count by, separated by commas.", |generator| {
        json!({ "type": "array", "items": of::<words::Dimension>(generator), "minItems": 1 })
    };
    VALUES: query "limit", "Values", "Maximum number of values per dimension.",
        |_| number(1, MAX_LIMIT.into(), DEFAULT_VALUES.into());
    VALUE_INTERVALS: query "valueIntervals", "ValueIntervals",
        format!(
            "Return intervals for the {MAX_VALUES_OVER_TIME} values with the most visits as well. The \
             period then has at most {MAX_INTERVALS_OF_VALUES} intervals, each an hour or a day."
        ),
        |_| json!({ "type": "boolean", "default": false });
}

query! {
    /// The query of statistics.
    StatsQuery {
        since: Timestamp = SINCE,
        until: Timestamp = UNTIL,
        interval: Interval = INTERVAL,
        timezone: Zone = TIMEZONE,
        by: Vec<Dimension> = BY,
        limit: Limit = VALUES,
        value_intervals: bool = VALUE_INTERVALS,
    }
}

query! {
    /// The query of the statistics of domains.
    DomainsQuery { minutes: Number<MAX_MINUTES> = MINUTES, }
}

operations! {
    get "/v1/stats", "getStats", "Counts all visits", of_all { .also(counts) }
    get "/v1/links/{code}/stats", "getLinkStats", "Counts visits of a link", of_link {
        .also(counts).takes(&[CODE])
    }
    get "/v1/campaigns/{id}/stats", "getCampaignStats", "Counts visits of a campaign's links", of_campaign {
        .also(counts).takes(&[campaigns::ID])
    }
    get "/v1/domains/stats", "getDomainStats", "Counts visits of each short domain", of_domains {
        .text("Counts by minute make a blocked domain visible. Minutes without visits are omitted.")
        .answers::<DomainsBody>(200, "The counts.")
    }
}

/// Describes what all statistics share.
fn counts(operation: Operation) -> Operation {
    operation.answers::<StatsBody>(200, "The counts.")
}

/// `GET /v1/stats`
async fn of_all(
    State(app): State<SharedApp>,
    MayReadStats(caller): MayReadStats,
    Asked(asked): Asked<StatsQuery>,
) -> Result<Json<StatsBody>, Problem> {
    check_reaches_all(&caller, "ask for the statistics of a link or a campaign")?;
    count(&app, Counted::All, asked).await
}

/// `GET /v1/campaigns/{id}/stats`
async fn of_campaign(
    State(app): State<SharedApp>,
    _: MayReadStats,
    CampaignInPath(id): CampaignInPath,
    Asked(asked): Asked<StatsQuery>,
) -> Result<Json<StatsBody>, Problem> {
    if app.store.find_campaign(id).await?.is_none() {
        return Err(no_such_campaign());
    }
    count(&app, Counted::Campaign(id), asked).await
}

/// `GET /v1/links/{code}/stats`
async fn of_link(
    State(app): State<SharedApp>,
    _: MayReadStats,
    CodeInPath(code): CodeInPath,
    Asked(asked): Asked<StatsQuery>,
) -> Result<Json<StatsBody>, Problem> {
    if app.store.find_link(&code).await?.is_none() {
        return Err(no_such_link());
    }
    count(&app, Counted::Link(code), asked).await
}

values! {
    Interval: |name| Interval::ALL.into_iter().find(|it| it.name() == name), "minute, hour or day";
}

/// The length of intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interval {
    /// A minute.
    Minute,
    /// An hour or a day.
    Hours(Hours),
}

impl Interval {
    const ALL: [Self; 3] = [
        Self::Minute,
        Self::Hours(Hours::One),
        Self::Hours(Hours::Day),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hours(Hours::One) => "hour",
            Self::Hours(Hours::Day) => "day",
        }
    }
}

/// The period of statistics and the length of its intervals. Both bounds are rounded down to whole
/// hours, so that periods that touch share no visit and lose none. Without `until`, the period
/// includes the present hour.
fn period(asked: &StatsQuery, now: Timestamp) -> Result<(Timestamp, Timestamp, Interval), Problem> {
    let last = floor(asked.until.unwrap_or(now), Unit::Hour);
    let until = match asked.until {
        Some(_) => last,
        None => last + SignedDuration::from_hours(1),
    };
    let default_span = match asked.interval {
        Some(Interval::Minute) => MINUTES_SPAN,
        _ => DEFAULT_SPAN,
    };
    let default = || last.checked_sub(default_span).unwrap_or(Timestamp::MIN);
    let since = floor(asked.since.unwrap_or_else(default), Unit::Hour);
    if since >= until {
        return Err(Problem::query(format!(
            "since must be before until, but the period begins at {since} and ends at {until}: bounds \
             are rounded down to whole hours."
        )));
    }
    let span = last.duration_since(since);
    if span > LONGEST_SPAN {
        return Err(Problem::query(format!(
            "The period from {since} to {until} is longer than 800 days."
        )));
    }
    let interval = asked.interval.unwrap_or(if span <= SHORT_SPAN {
        Interval::Hours(Hours::One)
    } else {
        Interval::Hours(Hours::Day)
    });
    let fault = match interval {
        Interval::Minute => by_minute_fault(asked, (since, until), span, now),
        Interval::Hours(hours) => {
            let is_too_long = span.as_hours() / hours.count() > MAX_INTERVALS_OF_VALUES;
            (asked.value_intervals == Some(true) && is_too_long).then(|| {
                format!(
                    "valueIntervals is for at most {MAX_INTERVALS_OF_VALUES} intervals: ask for days, or a \
                     shorter time."
                )
            })
        }
    };
    match fault {
        Some(fault) => Err(Problem::query(fault)),
        None => Ok((since, until, interval)),
    }
}

/// The fault of a period that cannot be counted by the minute.
fn by_minute_fault(
    asked: &StatsQuery,
    (since, until): (Timestamp, Timestamp),
    span: SignedDuration,
    now: Timestamp,
) -> Option<String> {
    let first = floor(now, Unit::Hour) - BY_MINUTE;
    if span > MINUTES_SPAN {
        Some(format!(
            "interval=minute is for at most 24 hours, but the period begins at {since} and ends at {until}: \
             specify a later since or an earlier until, or interval=hour."
        ))
    } else if since < first {
        Some(format!(
            "interval=minute is for the last two days, but since is {since}: it can be {first} or later."
        ))
    } else if asked.value_intervals == Some(true) {
        Some(
            "valueIntervals cannot be combined with interval=minute: specify interval=hour or interval=day."
                .to_owned(),
        )
    } else {
        None
    }
}

async fn count(
    app: &SharedApp,
    of: Counted,
    asked: StatsQuery,
) -> Result<Json<StatsBody>, Problem> {
    let now = app.clock.now();
    let (since, until, interval) = period(&asked, now)?;
    // The visitors of a link are counted from its visits, those of others from a sketch per day.
    let is_known = |day: Timestamp| {
        let has_end = until > now || until.duration_since(day) >= DAY;
        matches!(of, Counted::Link(_)) || (since <= day && has_end)
    };
    let query = CountQuery { of, since, until };
    let zone = asked.timezone.unwrap_or_else(Zone::utc);
    let limit = asked.limit.map_or(DEFAULT_VALUES, |limit| limit.0);
    let mut dimensions = asked.by.unwrap_or_default();
    dimensions.sort_unstable();
    dimensions.dedup();
    let mut visits = ClassCounts::default();
    let mut intervals: BTreeMap<Timestamp, ClassCounts> = BTreeMap::new();
    let counts = app.listings.count(&query, &dimensions).await?;
    for count in &counts.times {
        visits.add(count.class, count.visits);
    }
    let (length, times) = match interval {
        Interval::Minute => (None, app.listings.count_minutes(&query).await?),
        Interval::Hours(length) => (Some(length), counts.times),
    };
    for count in times {
        let begin = length.map_or(count.begin, |length| zone.begin_of(length, count.begin));
        let counts = intervals.entry(begin).or_default();
        counts.add(count.class, count.visits);
    }
    let mut by = BTreeMap::new();
    for (dimension, counts) in dimensions.into_iter().zip(counts.by) {
        let mut values: BTreeMap<String, ClassCounts> = BTreeMap::new();
        for count in counts {
            let counts = values.entry(count.value).or_default();
            counts.add(count.class, count.visits);
        }
        let mut values: Vec<ValueBody> = values
            .into_iter()
            .map(|(value, visits)| ValueBody {
                value,
                visits,
                intervals: None,
            })
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.visits.total));
        values.truncate(limit as usize);
        if let (Some(true), Some(length)) = (asked.value_intervals, length) {
            let first = values.len().min(MAX_VALUES_OVER_TIME);
            add_intervals(app, &query, dimension, length, &zone, &mut values[..first]).await?;
        }
        by.insert(dimension.name(), values);
    }
    Ok(Json(StatsBody {
        since,
        until,
        interval: interval.name(),
        timezone: zone.name().to_owned(),
        visits,
        intervals: listed(intervals),
        visitors: counts
            .visitors
            .into_iter()
            .map(|day| VisitorsBody {
                begin: day.day,
                visitors: is_known(day.day).then_some(day.visitors),
            })
            .collect(),
        by,
    }))
}

/// Intervals in chronological order.
fn listed(intervals: BTreeMap<Timestamp, ClassCounts>) -> Vec<IntervalBody> {
    let intervals = intervals.into_iter();
    intervals
        .map(|(begin, visits)| IntervalBody { begin, visits })
        .collect()
}

/// Adds to each value when its visits were.
async fn add_intervals(
    app: &SharedApp,
    query: &CountQuery,
    dimension: Dimension,
    length: Hours,
    zone: &Zone,
    values: &mut [ValueBody],
) -> Result<(), Problem> {
    let names: Vec<String> = values.iter().map(|value| value.value.clone()).collect();
    let mut found: HashMap<String, BTreeMap<Timestamp, ClassCounts>> = HashMap::new();
    for (part, by) in zone.parts(length, query) {
        let counts = app
            .listings
            .count_over_time(&part, dimension, &names, by)
            .await?;
        for count in counts {
            let begin = zone.begin_of(length, count.begin.max(part.since));
            let intervals = found.entry(count.value).or_default();
            let counts = intervals.entry(begin).or_default();
            counts.add(count.class, count.visits);
        }
    }
    for value in values {
        value.intervals = Some(listed(found.remove(&value.value).unwrap_or_default()));
    }
    Ok(())
}

/// Visits of a short domain.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DomainStats")]
struct DomainBody {
    domain: String,
    visits: u64,
    minutes: Vec<MinuteBody>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DomainMinute")]
struct MinuteBody {
    begin: Timestamp,
    visits: u64,
}

/// Visits of all short domains.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DomainsStats")]
pub(super) struct DomainsBody {
    /// Start of the counted period, a whole minute. It ends now.
    since: Timestamp,
    domains: Vec<DomainBody>,
}

/// `GET /v1/domains/stats`: by minute, so that a domain that is blocked shows. Minutes without
/// visits are left out.
async fn of_domains(
    State(app): State<SharedApp>,
    MayReadStats(caller): MayReadStats,
    Asked(asked): Asked<DomainsQuery>,
) -> Result<Json<DomainsBody>, Problem> {
    check_reaches_all(&caller, "ask for the statistics of a link or a campaign")?;
    let minutes = asked
        .minutes
        .map_or(DEFAULT_MINUTES, |minutes| minutes.0.into());
    let since = floor(app.clock.now(), Unit::Minute) - SignedDuration::from_mins(minutes);
    let mut domains: BTreeMap<String, DomainBody> = BTreeMap::new();
    for count in app.listings.count_domains(since).await? {
        let domain = domains
            .entry(count.host.clone())
            .or_insert_with(|| DomainBody {
                domain: count.host,
                visits: 0,
                minutes: Vec::new(),
            });
        domain.visits += count.visits;
        domain.minutes.push(MinuteBody {
            begin: count.minute,
            visits: count.visits,
        });
    }
    Ok(Json(DomainsBody {
        since,
        domains: domains.into_values().collect(),
    }))
}
