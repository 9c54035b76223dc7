//! Steps of bulk jobs: what a step counts, changes or erases, and where the next one begins.

use jiff::Timestamp;
use serde_json::{Value as Json, json};
use shortlink_clickhouse::{Erasure, ErasureOf};
use shortlink_core::audit::ChangedBy;
use shortlink_core::bulk::{BulkAction, BulkJob, BulkOutcome, BulkStep, SelectedBy, Selection};
use shortlink_core::link::{Edit, Link};
use shortlink_core::ports::{Listing, OutboxSpan};
use vocabulary::Code;

use super::super::creation::Creation;
use super::super::db::Db;
use super::super::rows::{columns, known_ids, read as read_link};
use super::super::sql::{FOR_UPDATE, IN_NUMBERS, sql};
use super::super::value::{Row, args, invalid};
use super::super::visits::{click_ids, erasing, erasure, variants};
use super::super::webhooks::expiry;
use super::super::{conversions, links, listing, outbox};

/// The most links that a step changes: others who change links wait for the step on SQLite.
pub(super) const LINKS_PER_STEP: usize = 100;

/// The most links whose visits a step erases.
const ERASED_PER_STEP: u32 = 500;

/// The most parts of a list of codes whose tombstones a step stores.
const BURIED_PER_STEP: u32 = 20;

/// The most links that a step counts.
const COUNTED_PER_STEP: u32 = 5_000;

/// The next step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) phase: Phase,
    /// Begin of the step, as the creation time and the id of a link; or the number of a part or of a visit.
    pub(super) at: (i64, i64),
}

/// The phases of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Counts the selected links.
    Count,
    /// Works off the selected links.
    Links,
    /// Erases the visits of a campaign, also those of deleted links; before its links.
    Visits,
    /// Stores the tombstones of listed codes; before the first visit is deleted.
    Bury,
}

impl Phase {
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Count => 0,
            Self::Links => 1,
            Self::Visits => 2,
            Self::Bury => 3,
        }
    }

    pub(super) fn of(number: i64) -> Result<Self, sqlx::Error> {
        match number {
            0 => Ok(Self::Count),
            1 => Ok(Self::Links),
            2 => Ok(Self::Visits),
            3 => Ok(Self::Bury),
            _ => Err(invalid("phase")),
        }
    }
}

impl Place {
    /// The begin of a phase that walks through the parts of a list.
    pub(super) fn listed(phase: Phase) -> Self {
        Self { phase, at: (0, 0) }
    }

    /// The begin of a phase that walks through the links that existed when a job was created.
    pub(super) fn first(phase: Phase, created_at: Timestamp) -> Self {
        Self {
            phase,
            at: (created_at.as_millisecond(), i64::MAX),
        }
    }
}

/// Counts some of the selected links.
pub(super) async fn count(
    db: &mut Db<'_>,
    job: &mut BulkJob,
    place: Place,
) -> Result<Place, sqlx::Error> {
    let page = selected(db, job, place, COUNTED_PER_STEP).await?;
    let own = page.iter().filter(|(_, is_own)| *is_own);
    *job.selected.get_or_insert_default() += own.count() as u64;
    Ok(match page.last() {
        Some(&(at, _)) if page.len() == COUNTED_PER_STEP as usize => Place { at, ..place },
        _ if job.action == BulkAction::Erase => Place {
            phase: Phase::Visits,
            at: (0, i64::MIN),
        },
        _ => Place::first(Phase::Links, job.created_at),
    })
}

/// Stores the tombstones of some listed codes: those of all in one transaction would hold up all others who write.
pub(super) async fn bury(
    db: &mut Db<'_>,
    job: &BulkJob,
    place: Place,
) -> Result<Place, sqlx::Error> {
    let sql = sql!(
        "SELECT part, codes FROM job_codes WHERE job_id = $1 AND part >= $2 ORDER BY part LIMIT $3"
    );
    let read = |row: &Row| Ok((row.get::<i64>("part")?, codes(row)?));
    let values = args![job.id, place.at.1, BURIED_PER_STEP];
    let parts: Vec<(i64, Vec<Code>)> = db.all(sql, values, read).await?;
    let Some(&(last, _)) = parts.last() else {
        return Ok(Place::listed(Phase::Links));
    };
    let listed = parts.iter().flat_map(|(_, codes)| codes);
    let names = listed.map(|code| erasure::of_link(code.as_str()));
    erasure::wait_for_ingestion(db).await?;
    erasure::bury(db, names, job.created_at).await?;
    Ok(Place {
        at: (0, last + 1),
        ..place
    })
}

/// Reads the codes of a part.
fn codes(row: &Row) -> Result<Vec<Code>, sqlx::Error> {
    let texts: Option<Vec<String>> = serde_json::from_str(row.get("codes")?).ok();
    let codes = texts.and_then(|texts| texts.iter().map(|code| code.parse().ok()).collect());
    codes.ok_or_else(|| invalid("codes"))
}

/// Erases some visits of a campaign.
pub(super) async fn erase_campaign(
    db: &mut Db<'_>,
    job: &mut BulkJob,
    place: Place,
    now: Timestamp,
) -> Result<Place, sqlx::Error> {
    let links = Place::first(Phase::Links, job.created_at);
    let SelectedBy::Other(Selection::Campaign(id)) = job.selected_by else {
        return Ok(links);
    };
    // Visits of deleted links do not show by which key those were created.
    if job.is_trial || job.own.is_some() {
        return Ok(links);
    }
    let (id, after) = (id.get().cast_signed(), place.at.1);
    let erased = &mut job.erased;
    let elsewhere = Erasure {
        of: ErasureOf::Campaign(id),
        until: job.created_at.as_millisecond(),
        batch: 0,
    };
    if let Some(is_done) = erasing::erase(db, job.id, elsewhere, erased).await? {
        return Ok(if is_done { links } else { place });
    }
    let last = erasure::erase_of_campaign(db, id, after, job.created_at, now, erased).await?;
    Ok(last.map_or(links, |last| Place {
        at: (0, last),
        ..place
    }))
}

/// The creation times and ids of selected links behind a place, in the order of listings, and whether the job reaches each.
/// Those that it does not reach count as well, or a step would have no bound.
async fn selected(
    db: &mut Db<'_>,
    job: &BulkJob,
    place: Place,
    limit: u32,
) -> Result<Vec<((i64, i64), bool)>, sqlx::Error> {
    let mut listing = Listing {
        limit,
        ..Listing::default()
    };
    match &job.selected_by {
        SelectedBy::Other(Selection::Tag(tag)) => listing.tag = Some(tag.clone()),
        SelectedBy::Other(Selection::ExternalId(id)) => listing.external_id = Some(id.clone()),
        SelectedBy::Other(Selection::Campaign(id)) => listing.campaign = Some(*id),
        SelectedBy::Other(Selection::Upload(id)) => listing.upload = Some(*id),
        SelectedBy::Codes | SelectedBy::Other(Selection::Codes(_)) => return Ok(Vec::new()),
    }
    let mut statement = db.statement(sql!("SELECT created_at, id, created_by FROM "));
    listing::query(&mut statement, &listing, place.at, None);
    let read = |row: &Row| {
        let creator: String = row.get("created_by")?;
        let is_own = job.own.as_ref().is_none_or(|own| own.contains(&creator));
        Ok(((row.get("created_at")?, row.get("id")?), is_own))
    };
    db.all(&statement, &statement.values, read).await
}

/// Works off some of the selected links; returns the next place, if there may be more.
pub(super) async fn work(
    db: &mut Db<'_>,
    job: &mut BulkJob,
    place: Place,
    step: &mut BulkStep,
    now: Timestamp,
    creation: &Creation,
) -> Result<Option<Place>, sqlx::Error> {
    let (mut results, next) = match &job.selected_by {
        SelectedBy::Codes => {
            let sql = sql!("SELECT codes FROM job_codes WHERE job_id = $1 AND part = $2");
            let Some(codes) = db.one(sql, args![job.id, place.at.1], codes).await? else {
                return Ok(None);
            };
            let ids = known_ids(db, &codes).await?;
            let outcomes = change(
                db,
                job,
                ids.iter().flatten().copied().collect(),
                step,
                now,
                creation,
            )
            .await?;
            let results: Vec<(Code, BulkOutcome)> = codes
                .into_iter()
                .map(|code| {
                    let outcome = outcomes.iter().find(|(_, changed, _)| *changed == code);
                    (code, outcome.map_or(BulkOutcome::Unknown, |it| it.2))
                })
                .collect();
            (results, (0, place.at.1 + 1))
        }
        SelectedBy::Other(_) => {
            let limit = match job.action {
                BulkAction::Erase => ERASED_PER_STEP,
                _ => LINKS_PER_STEP as u32,
            };
            let page = selected(db, job, place, limit).await?;
            let Some(&(last, _)) = page.last() else {
                return Ok(None);
            };
            let own = page.into_iter().filter(|(_, is_own)| *is_own);
            let ids = own.map(|((_, id), _)| id).collect();
            let outcomes = change(db, job, ids, step, now, creation).await?;
            let results = outcomes
                .into_iter()
                .map(|(_, code, outcome)| (code, outcome));
            (results.collect(), last)
        }
    };
    if job.action == BulkAction::Erase && !erase(db, job, &mut results, now).await? {
        return Ok(Some(place));
    }
    for (_, outcome) in &results {
        job.counts.add(*outcome);
    }
    let sql = sql!(
        "INSERT INTO job_results (job_id, part, results) SELECT $1, coalesce(max(part), 0) + 1, $2 \
         FROM job_results WHERE job_id = $1"
    );
    let text = Json::from_iter(
        results
            .iter()
            .map(|(code, outcome)| json!([code.as_str(), outcome.name()])),
    );
    db.run(sql, args![job.id, text.to_string()]).await?;
    Ok(Some(Place { at: next, ..place }))
}

/// Erases visits of the links of a step, and notes that in their results. Returns false if there may be more of them.
async fn erase(
    db: &mut Db<'_>,
    job: &mut BulkJob,
    results: &mut [(Code, BulkOutcome)],
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    if !job.is_trial {
        let reached = results
            .iter()
            .filter(|(_, outcome)| job.own.is_none() || *outcome != BulkOutcome::Unknown);
        let codes: Vec<Code> = reached.map(|(code, _)| *code).collect();
        let names = codes.iter().map(|code| erasure::of_link(code.as_str()));
        match (&job.selected_by, &job.own) {
            // Since the steps before.
            (SelectedBy::Codes, None) => {}
            // Events of links are dropped since then; this is for links that are deleted later.
            (SelectedBy::Other(Selection::Campaign(_)), None) => {
                erasure::bury(db, names, job.created_at).await?;
            }
            _ => {
                erasure::wait_for_ingestion(db).await?;
                erasure::bury(db, names, job.created_at).await?;
            }
        }
        let until = job.created_at;
        if !conversions::erase(db, &codes, until).await?
            || !click_ids::erase(db, &codes, until).await?
        {
            return Ok(false);
        }
        variants::erase(db, &codes, until).await?;
        let elsewhere = Erasure {
            of: ErasureOf::Links(codes.iter().map(Code::to_string).collect()),
            until: until.as_millisecond(),
            batch: 0,
        };
        let is_done = match erasing::erase(db, job.id, elsewhere, &mut job.erased).await? {
            Some(is_done) => is_done,
            None => erasure::erase_of_links(db, &codes, until, now, &mut job.erased).await?,
        };
        if !is_done {
            return Ok(false);
        }
    }
    // Visits outlive a link that was deleted.
    let is_only =
        job.selected == Some(1) && job.selected_by == SelectedBy::Codes && job.erased.visits > 0;
    for (_, outcome) in results {
        if *outcome == BulkOutcome::Unchanged || is_only {
            *outcome = BulkOutcome::Changed;
        }
    }
    Ok(true)
}

/// Changes links, which are locked in the order of their ids, as all transactions do; returns their ids, codes and outcomes.
async fn change(
    db: &mut Db<'_>,
    job: &BulkJob,
    ids: Vec<i64>,
    step: &mut BulkStep,
    now: Timestamp,
    creation: &Creation,
) -> Result<Vec<(i64, Code, BulkOutcome)>, sqlx::Error> {
    let sql = sql!(
        "SELECT id, ",
        columns!(),
        " FROM links WHERE id",
        IN_NUMBERS,
        " ORDER BY id",
        FOR_UPDATE
    );
    let read = |row: &Row| Ok((row.get("id")?, read_link(row)?));
    let found: Vec<(i64, Link)> = db.all(sql, args![ids], read).await?;
    let by = job.action.audited().map(|action| ChangedBy {
        key_id: Some(job.key_id.clone()),
        action,
    });
    let mut outcomes = Vec::with_capacity(found.len());
    let mut changed = Vec::new();
    for (id, before) in found {
        let code = before.code;
        if job
            .own
            .as_ref()
            .is_some_and(|own| !own.contains(&before.created_by))
        {
            continue;
        }
        let edit = job.action.edit(before.clone(), &job.change, now);
        let (outcome, link) = match edit {
            Edit::Changed(link) => (BulkOutcome::Changed, Some(link)),
            Edit::Unchanged(link) => (BulkOutcome::Unchanged, Some(link)),
            Edit::Refused(refusal) => (refusal.into(), None),
        };
        outcomes.push((id, code, outcome));
        let (false, Some(link), Some(by)) = (job.is_trial, link, &by) else {
            continue;
        };
        if outcome == BulkOutcome::Changed {
            links::store(db, id, by, &before, &link, creation).await?;
            changed.push((id, before.valid_until, step.links.len()));
        }
        step.receipt.0.push(OutboxSpan {
            first: id,
            last: id,
            revision: link.revision,
        });
        step.links.push(link);
    }
    outbox::enqueue(db, &step.receipt.0, now).await?;
    let changed = changed.into_iter();
    let changed = changed.map(|(id, before, place)| (id, before, &step.links[place]));
    expiry::report_changed(db, changed, now).await?;
    Ok(outcomes)
}
