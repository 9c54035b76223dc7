//! What both stores do alike.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{Database, Encode, QueryBuilder, Type};
use vocabulary::CampaignId;

use crate::core::link::{Link, State};
use crate::core::ports::{Listing, MAX_TOGETHER, OutboxSpan, StoreError};
use crate::durations::DATABASE;
use crate::trace;

/// How long an operation may take before it is slow.
const SLOW: Duration = Duration::from_millis(500);

/// How long nothing is said of slow ones when one was told of: a disk that hangs makes all slow.
const QUIET: Duration = Duration::from_secs(1);

/// How far the ids of two links may be apart that share a row of the outbox: codes that were
/// issued one after the other, with a few left out. All links between the first and the last of
/// a row are published, so none may be far from the others.
const NEAR: i64 = 62 * 8;

/// How far the first and the last id of a row of the outbox may be apart at most.
pub(super) const LONGEST_SPAN: i64 = NEAR * MAX_TOGETHER as i64;

/// How many milliseconds a day has, for the table of usage.
pub(super) const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The rows of the outbox for new links, given as ids and revisions in the order of the ids.
pub(super) fn spans(links: impl IntoIterator<Item = (i64, u64)>) -> Vec<OutboxSpan> {
    let mut spans: Vec<OutboxSpan> = Vec::new();
    for (id, revision) in links {
        match spans.last_mut() {
            Some(span) if id - span.last <= NEAR && span.revision == 1 && revision == 1 => {
                span.last = id;
            }
            _ => spans.push(OutboxSpan {
                first: id,
                last: id,
                revision,
            }),
        }
    }
    spans
}

/// How many links there are of each length of codes and each day.
pub(super) fn usage<'a>(links: impl IntoIterator<Item = &'a Link>) -> BTreeMap<(i64, i64), i64> {
    let mut counts = BTreeMap::new();
    for link in links {
        let day = link.created_at.as_millisecond().div_euclid(DAY_MS);
        let length = link.code.as_bytes().len() as i64;
        *counts.entry((length, day)).or_default() += 1;
    }
    counts
}

/// What finds the least links of a listing, and has an index with them in its order; whatever else
/// is asked for is looked at in each.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lead<'a> {
    /// A tag.
    Tag(&'a str),
    /// What the caller calls them.
    ExternalId(&'a str),
    /// Their campaign.
    Campaign(CampaignId),
    /// A state that few links have.
    State(State),
    /// Who has made them.
    Creator(&'a str),
    /// Nothing: all links are looked at.
    Age,
}

impl<'a> Lead<'a> {
    /// The lead of a listing. Few links are of a state other than live, so that one leads before
    /// whoever has made the links.
    pub(super) fn of(listing: &'a Listing) -> Self {
        if let Some(external_id) = &listing.external_id {
            return Self::ExternalId(external_id);
        }
        if let Some(tag) = &listing.tag {
            return Self::Tag(tag);
        }
        if let Some(id) = listing.campaign {
            return Self::Campaign(id);
        }
        match (listing.state, &listing.created_by) {
            (Some((State::Live, _)) | None, Some(created_by)) => Self::Creator(created_by),
            (Some((State::Live, _)) | None, None) => Self::Age,
            (Some((state, _)), _) => Self::State(state),
        }
    }

    /// Adds what an index finds links by.
    pub(super) fn push<DB>(self, query: &mut QueryBuilder<DB>)
    where
        DB: Database,
        i64: Type<DB> + for<'q> Encode<'q, DB>,
        String: Type<DB> + for<'q> Encode<'q, DB>,
    {
        match self {
            Self::Tag(tag) => query.push(" AND tag = ").push_bind(tag.to_owned()),
            Self::ExternalId(id) => query.push(" AND external_id = ").push_bind(id.to_owned()),
            Self::Campaign(id) => query.push(" AND campaign_id = ").push_bind(id.get() as i64),
            Self::State(State::Revoked) => query.push(" AND revoked_at IS NOT NULL"),
            Self::State(State::Paused) => query.push(" AND paused_at IS NOT NULL"),
            Self::State(State::Scheduled) => query.push(" AND valid_since IS NOT NULL"),
            Self::State(State::Expired) => query.push(" AND valid_until IS NOT NULL"),
            Self::Creator(id) => query.push(" AND created_by = ").push_bind(id.to_owned()),
            Self::State(State::Live) | Self::Age => query,
        };
    }
}

/// Adds the condition for a state at a second: it applies, and no state that precedes it does.
pub(super) fn push_state<DB>(query: &mut QueryBuilder<DB>, wanted: State, now: i64)
where
    DB: Database,
    i64: Type<DB> + for<'q> Encode<'q, DB>,
{
    for state in State::by_precedence() {
        match (state, state == wanted) {
            (State::Revoked, true) => query.push(" AND revoked_at IS NOT NULL"),
            (State::Revoked, false) => query.push(" AND revoked_at IS NULL"),
            (State::Expired, true) => query
                .push(" AND valid_until IS NOT NULL AND valid_until <= ")
                .push_bind(now),
            (State::Expired, false) => query
                .push(" AND (valid_until IS NULL OR valid_until > ")
                .push_bind(now)
                .push(")"),
            (State::Paused, true) => query.push(" AND paused_at IS NOT NULL"),
            (State::Paused, false) => query.push(" AND paused_at IS NULL"),
            (State::Scheduled, true) => query
                .push(" AND valid_since IS NOT NULL AND valid_since > ")
                .push_bind(now),
            (State::Scheduled, false) => query
                .push(" AND (valid_since IS NULL OR valid_since <= ")
                .push_bind(now)
                .push(")"),
            (State::Live, _) => query,
        };
        if state == wanted {
            return;
        }
    }
}

/// Makes a [`StoreError`] of what went wrong during an operation.
pub(super) fn failed<E: Error + Send + Sync + 'static>(
    operation: &'static str,
) -> impl FnOnce(E) -> StoreError {
    move |error| StoreError::new(operation, Arc::new(error))
}

/// Something that a store does and that a caller waits for.
pub(super) trait Operation<T> {
    /// Does it: takes its time, and names it when it fails.
    async fn operation(self, name: &'static str) -> Result<T, StoreError>;
}

impl<T, E, F> Operation<T> for F
where
    E: Error + Send + Sync + 'static,
    F: Future<Output = Result<T, E>> + Send,
{
    async fn operation(self, name: &'static str) -> Result<T, StoreError> {
        timed(name, self).await.map_err(failed(name))
    }
}

/// Takes the time of something.
pub(super) async fn timed<T>(operation: &'static str, done: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let outcome = done.await;
    took(operation, begun.elapsed());
    outcome
}

/// Counts how long an operation took, and logs one that a request has waited for long: the log has its
/// trace.
pub(super) fn took(operation: &'static str, duration: Duration) {
    DATABASE.add(operation, duration);
    if duration < SLOW || trace::current().is_none() {
        return;
    }
    static LOGGED: Mutex<Option<Instant>> = Mutex::new(None);
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if logged.is_none_or(|logged| logged.elapsed() >= QUIET) {
        *logged = Some(Instant::now());
        tracing::warn!(
            operation,
            seconds = duration.as_secs_f64(),
            "the database was slow"
        );
    }
}

/// What stands in a row can't be: somebody else has written there.
#[derive(Debug, thiserror::Error)]
#[error("{column} of a row of {table} is not valid")]
struct InvalidValue {
    table: &'static str,
    column: &'static str,
}

/// The error of a value that was read and can't be.
pub(super) fn invalid(table: &'static str, column: &'static str) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(InvalidValue { table, column }))
}
