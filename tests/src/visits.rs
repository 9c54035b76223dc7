//! The visits that the edge has recorded, as they stand in Redis, and its metrics of them.

use std::collections::BTreeSet;

use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{BATCH_FIELD, VisitEvent, VisitFrames, VisitId, VisitMethod};

use crate::redis::try_command_bytes;

/// One visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Its name: the worker's origin and the event's number.
    pub id: (u64, u64),
    /// Time of the answer: milliseconds since 1970.
    pub time_ms: u64,
    /// The status of the answer.
    pub status: u16,
    /// The request's method.
    pub method: VisitMethod,
    /// Code, host, client, user agent, referrer, accept language and purpose.
    pub texts: [Vec<u8>; 7],
    /// Other properties of the request.
    pub evidence: VisitEvidence,
    /// The name of the rule that was followed; empty without one.
    pub variant: Vec<u8>,
}

impl Visit {
    /// The code.
    pub fn code(&self) -> String {
        String::from_utf8_lossy(&self.texts[0]).into_owned()
    }

    /// The client's address.
    pub fn client(&self) -> String {
        String::from_utf8_lossy(&self.texts[2]).into_owned()
    }
}

/// The batches in a stream of the server on `port`, the oldest first.
///
/// # Panics
/// When Redis does not answer, or something else stands there.
pub fn batches(port: u16, key: &str) -> Vec<Vec<Visit>> {
    let texts = try_command_bytes(port, &["XRANGE", key, "-", "+"]).expect("a stream");
    let entries = texts.chunks(3).map(|entry| {
        assert_eq!(entry[1], BATCH_FIELD.as_bytes());
        VisitFrames::new(&entry[2])
            .map(|frame| {
                let event = frame.expect("a visit");
                let VisitId { origin, sequence } = event.id;
                let texts = [
                    event.code,
                    event.host,
                    event.client,
                    event.user_agent,
                    event.referrer,
                    event.accept_language,
                    event.purpose,
                ];
                Visit {
                    id: (origin, sequence),
                    time_ms: event.time_ms,
                    status: event.status,
                    method: event.method,
                    texts: texts.map(<[u8]>::to_vec),
                    evidence: event.evidence,
                    variant: event.variant.to_vec(),
                }
            })
            .collect()
    });
    entries.collect()
}

/// The visits in a stream, duplicates included.
pub fn visits(port: u16, key: &str) -> Vec<Visit> {
    batches(port, key).into_iter().flatten().collect()
}

/// The names of the visits in a stream.
pub fn names(port: u16, key: &str) -> BTreeSet<(u64, u64)> {
    let found = visits(port, key);
    found.into_iter().map(|visit| visit.id).collect()
}

/// Appends a batch of made-up visits to a stream of the server on `port`, as the edge does it: one
/// for each name, with this user agent.
///
/// # Panics
/// When Redis does not take it.
pub fn put(port: u16, key: &str, names: impl IntoIterator<Item = VisitId>, user_agent: &str) {
    let visits = names.into_iter().map(|id| (id, "made", 1_780_315_200_000));
    put_of(port, key, visits, user_agent);
}

/// As [`put`], for visits of codes at times in milliseconds since 1970.
///
/// # Panics
/// When Redis does not take it.
pub fn put_of<'c>(
    port: u16,
    key: &str,
    visits: impl IntoIterator<Item = (VisitId, &'c str, u64)>,
    user_agent: &str,
) {
    let mut frames = Vec::new();
    for (id, code, time_ms) in visits {
        let event = VisitEvent {
            id,
            time_ms,
            status: 302,
            method: VisitMethod::Get,
            code: code.as_bytes(),
            host: b"localhost",
            client: b"192.0.2.7",
            user_agent: user_agent.as_bytes(),
            referrer: b"",
            accept_language: b"",
            purpose: b"",
            evidence: VisitEvidence::UNKNOWN,
            click: None,
            variant: b"",
        };
        event.write(&mut frames);
    }
    let field = BATCH_FIELD.as_bytes();
    let words = [b"XADD", key.as_bytes(), b"*", field, &frames];
    try_command_bytes(port, &words).expect("a stream");
}

/// The edge's metrics of visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Those that came in.
    pub total: u64,
    /// Those that Redis has.
    pub stored: u64,
    /// Those in files: written there, and not yet in Redis. Below 0 when files are older than
    /// the numbers.
    pub in_files: i64,
    /// Those that are given up.
    pub dropped: u64,
    /// Those that were lost with a worker.
    pub lost: u64,
    /// Those in memory.
    pub held: u64,
}

impl Account {
    /// Reads it from a page of metrics.
    ///
    /// # Panics
    /// When a number is missing, or they do not add up.
    pub fn of(metrics: &str) -> Self {
        let number = |name: &str| -> u64 {
            let lines = metrics.lines().filter(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with([' ', '{']))
            });
            let values: Vec<u64> = lines
                .map(|line| {
                    let (_, value) = line.rsplit_once(' ').expect("a number");
                    value.parse().expect("a number")
                })
                .collect();
            assert!(!values.is_empty(), "no {name} in {metrics}");
            values.iter().sum()
        };
        let spooled = number("shortlink_visits_spooled_total");
        let unspooled = number("shortlink_visits_unspooled_total");
        let account = Self {
            total: number("shortlink_visits_total"),
            stored: number("shortlink_visits_stored_total"),
            in_files: spooled.wrapping_sub(unspooled) as i64,
            dropped: number("shortlink_visits_dropped_total"),
            lost: number("shortlink_visits_lost_total"),
            held: number("shortlink_visits_held"),
        };
        let elsewhere = account.stored + account.dropped + account.lost + account.held;
        assert_eq!(
            account.total,
            elsewhere.wrapping_add_signed(account.in_files),
            "{account:?}"
        );
        account
    }
}
