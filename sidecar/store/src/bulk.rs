//! Bulk jobs. A step does its part and stores the position of the next one in the same transaction, so that a job that is
//! cut off anywhere continues there, and two processes never do a step twice.

mod request;

use jiff::Timestamp;
use serde_json::{Map, Value as Json, json};
use shortlink_core::audit::{Action, AuditEntry, ChangedBy, Subject};
use shortlink_core::bulk::{
    BulkAction, BulkCounts, BulkJob, BulkOutcome, BulkState, BulkStep, Erased, NewBulkJob,
    SelectedBy, Selection,
};
use shortlink_core::link::{Edit, Link};
use shortlink_core::ports::{Listing, OutboxSpan, StoreError};
use vocabulary::Code;

use super::db::Db;
use super::rows::{columns, known_ids, read as read_link};
use super::sql::{FOR_UPDATE, IN_NUMBERS, sql};
use super::value::{Row, args, invalid};
use super::visits::erasure;
use super::{Store, audit, changes, links, listing};
use request::Request;

/// The most links that a step changes: others who change links wait for the step on SQLite.
const LINKS_PER_STEP: usize = 100;

/// The most links whose visits a step erases.
const ERASED_PER_STEP: u32 = 500;

/// The most links that a step counts.
const COUNTED_PER_STEP: u32 = 5_000;

/// The most parts that are deleted with old jobs at a time.
const FORGOTTEN_PARTS: u32 = 1_000;

const COLUMNS: &str = "id, key_id, action, request, state, reason, created_at, started_at, finished_at, selected, changed, \
     unchanged, failed, visits, agents, counts, phase, place_at, place_id";

/// The outcome of a request for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkCreated {
    /// The job, created now or by an earlier request with the same idempotency key.
    Job(Box<BulkJob>),
    /// Another request has used the idempotency key.
    Different,
}

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
}

impl Phase {
    fn number(self) -> i64 {
        match self {
            Self::Count => 0,
            Self::Links => 1,
            Self::Visits => 2,
        }
    }

    fn of(number: i64) -> Result<Self, sqlx::Error> {
        match number {
            0 => Ok(Self::Count),
            1 => Ok(Self::Links),
            2 => Ok(Self::Visits),
            _ => Err(invalid("phase")),
        }
    }
}

impl Place {
    /// The begin of a phase that walks through the links that existed when a job was created.
    fn first(phase: Phase, created_at: Timestamp) -> Self {
        Self {
            phase,
            at: (created_at.as_millisecond(), i64::MAX),
        }
    }
}

impl Store {
    /// Stores a new job, and an entry in the audit log.
    pub async fn create_bulk_job(&self, new: NewBulkJob) -> Result<BulkCreated, StoreError> {
        self.run_tx("store a new job", new, |db, new| Box::pin(create(db, new)))
            .await
    }

    /// Finds a job.
    pub async fn find_bulk_job(&self, id: u64) -> Result<Option<BulkJob>, StoreError> {
        let sql = sql!("SELECT ", COLUMNS, " FROM jobs WHERE id = $1");
        let found = self.one("find a job", sql, args![id], read).await?;
        Ok(found.map(|(job, _)| job))
    }

    /// Lists jobs, the latest first, those before a number: all, or those of some keys.
    pub async fn list_bulk_jobs(
        &self,
        before: Option<u64>,
        keys: Option<&[String]>,
        limit: u32,
    ) -> Result<Vec<BulkJob>, StoreError> {
        let sql = sql!(
            "SELECT ",
            COLUMNS,
            " FROM jobs WHERE id < $1 AND (CAST($3 AS bigint) = 1 \
             OR key_id {IN (SELECT value FROM json_each($4))|= ANY($4::text[])}) ORDER BY id DESC LIMIT $2"
        );
        let is_of_all = i64::from(keys.is_none());
        let keys: Vec<&str> = keys
            .unwrap_or_default()
            .iter()
            .map(String::as_str)
            .collect();
        let before = before.map_or(i64::MAX, u64::cast_signed);
        let found: Vec<(BulkJob, Place)> = self
            .all(
                "list jobs",
                sql,
                args![before, limit, is_of_all, keys],
                read,
            )
            .await?;
        Ok(found.into_iter().map(|(job, _)| job).collect())
    }

    /// Finds the first running job behind a number, or the first of all: jobs take turns.
    pub async fn next_bulk_job(&self, after: u64) -> Result<Option<BulkJob>, StoreError> {
        let sql = sql!(
            "SELECT ",
            COLUMNS,
            " FROM jobs WHERE state = 'running' ORDER BY id <= $1, id LIMIT 1"
        );
        let found = self
            .one("find a running job", sql, args![after], read)
            .await?;
        Ok(found.map(|(job, _)| job))
    }

    /// Does a step of a job; the last one if it is not running any more.
    pub async fn step_bulk_job(&self, id: u64, now: Timestamp) -> Result<BulkStep, StoreError> {
        self.run_tx("do a step of a job", (id, now), |db, (id, now)| {
            Box::pin(step(db, *id, *now))
        })
        .await
    }

    /// Ends a running job before its time, and notes that in the audit log; returns the job, whatever its state.
    pub async fn end_bulk_job(
        &self,
        id: u64,
        state: BulkState,
        reason: Option<String>,
        key_id: Option<String>,
        now: Timestamp,
    ) -> Result<Option<BulkJob>, StoreError> {
        let args = (id, state, reason, key_id, now);
        self.run_tx("end a job", args, |db, (id, state, reason, key_id, now)| {
            Box::pin(async move {
                let Some((mut job, place)) = lock(db, *id).await? else {
                    return Ok(None);
                };
                if job.state == BulkState::Running {
                    job.reason.clone_from(reason);
                    end(db, &mut job, *state, key_id.clone(), *now).await?;
                    save(db, &job, place).await?;
                }
                Ok(Some(job))
            })
        })
        .await
    }

    /// Reads results of a job behind a part, in their order: the parts' last number, and the outcomes of `limit` parts at
    /// most.
    pub async fn bulk_results(
        &self,
        id: u64,
        after: i64,
        limit: u32,
    ) -> Result<Option<(i64, Vec<(Code, BulkOutcome)>)>, StoreError> {
        let sql = sql!(
            "SELECT part, results FROM job_results WHERE job_id = $1 AND part > $2 ORDER BY part LIMIT $3"
        );
        let read = |row: &Row| Ok((row.get::<i64>("part")?, results(row.get("results")?)?));
        let parts: Vec<_> = self
            .all(
                "read the results of a job",
                sql,
                args![id, after, limit],
                read,
            )
            .await?;
        let Some((last, _)) = parts.last() else {
            return Ok(None);
        };
        let last = *last;
        Ok(Some((
            last,
            parts.into_iter().flat_map(|(_, results)| results).collect(),
        )))
    }

    /// Deletes some of the jobs that ended before a moment; returns true if there may be more.
    pub async fn forget_bulk_jobs(&self, before: Timestamp) -> Result<bool, StoreError> {
        let sql = sql!("SELECT id FROM jobs WHERE finished_at < $1 LIMIT 1");
        let read = |row: &Row| row.get::<i64>("id");
        let found: Option<i64> = self
            .one("find an old job", sql, args![before], read)
            .await?;
        if found.is_none() {
            return Ok(false);
        }
        self.run_tx("forget an old job", before, |db, before| {
            Box::pin(async move {
                let sql =
                    sql!("SELECT id FROM jobs WHERE finished_at < $1 ORDER BY finished_at LIMIT 1");
                let found = db
                    .one(sql, args![*before], |row| row.get::<i64>("id"))
                    .await?;
                let Some(id) = found else {
                    return Ok(false);
                };
                let mut deleted = 0;
                for sql in [
                    sql!(
                        "DELETE FROM job_results WHERE job_id = $1 AND part IN \
                         (SELECT part FROM job_results WHERE job_id = $1 ORDER BY part LIMIT $2)"
                    ),
                    sql!(
                        "DELETE FROM job_codes WHERE job_id = $1 AND part IN \
                         (SELECT part FROM job_codes WHERE job_id = $1 ORDER BY part LIMIT $2)"
                    ),
                ] {
                    deleted += db.run(sql, args![id, FORGOTTEN_PARTS]).await?;
                }
                if deleted == 0 {
                    db.run(sql!("DELETE FROM jobs WHERE id = $1"), args![id])
                        .await?;
                }
                Ok(true)
            })
        })
        .await
    }
}

async fn create(db: &mut Db<'_>, new: &NewBulkJob) -> Result<BulkCreated, sqlx::Error> {
    let (selected, place) = match &new.selection {
        Selection::Codes(codes) => (
            Some(codes.len() as u64),
            Place {
                phase: Phase::Links,
                at: (0, 0),
            },
        ),
        _ => (None, Place::first(Phase::Count, new.created_at)),
    };
    let (idempotency_key, digest) = match &new.idempotency {
        Some((key, digest)) => (Some(key.as_str()), Some(digest.as_slice())),
        None => (None, None),
    };
    let sql = sql!(
        "INSERT INTO jobs (key_id, action, request, state, created_at, selected, phase, place_at, place_id, \
         idempotency_key, digest) VALUES ($1, $2, $3, 'running', $4, $5, $6, $7, $8, $9, $10) \
         ON CONFLICT (key_id, idempotency_key) DO NOTHING RETURNING id"
    );
    let values = args![
        &new.key_id,
        new.action.name(),
        Request::of(new).to_json(),
        new.created_at,
        selected,
        place.phase.number(),
        place.at.0,
        place.at.1,
        idempotency_key,
        digest,
    ];
    let Some(id) = db.one(sql, values, |row| row.get::<i64>("id")).await? else {
        let sql = sql!(
            "SELECT digest, ",
            COLUMNS,
            " FROM jobs WHERE key_id = $1 AND idempotency_key = $2"
        );
        let read = |row: &Row| Ok((row.find::<[u8; 32]>("digest")?, read(row)?.0));
        let (known, job) = db
            .get(sql, args![&new.key_id, idempotency_key], read)
            .await?;
        let is_same = known.as_ref().map(|it| it.as_slice()) == digest;
        return Ok(if is_same {
            BulkCreated::Job(Box::new(job))
        } else {
            BulkCreated::Different
        });
    };
    if let Selection::Codes(codes) = &new.selection {
        let parts = codes.chunks(LINKS_PER_STEP).zip(0_i64..);
        let parts: Vec<_> = parts
            .map(|(codes, part)| [id.into(), part.into(), list(codes).into()])
            .collect();
        let into = sql!("INSERT INTO job_codes (job_id, part, codes)");
        db.insert(
            into,
            ["bigint", "bigint", "text"],
            sql!(""),
            parts.into_iter(),
        )
        .await?;
    }
    // Before any visit is deleted: events that arrive meanwhile must not come back.
    if new.action == BulkAction::Erase && !new.is_trial && new.own.is_none() {
        erasure::wait_for_ingestion(db).await?;
        match &new.selection {
            Selection::Codes(codes) => {
                let names = codes.iter().map(|code| erasure::of_link(code.as_str()));
                erasure::bury(db, names, new.created_at).await?;
            }
            Selection::Campaign(id) => {
                let names = [erasure::of_campaign(id.get().cast_signed())];
                erasure::bury(db, names.into_iter(), new.created_at).await?;
            }
            _ => {}
        }
    }
    let sql = sql!("SELECT ", COLUMNS, " FROM jobs WHERE id = $1");
    let (job, _) = db.get(sql, args![id], read).await?;
    let (action, subject) = match (new.action, &new.selection) {
        (BulkAction::Erase, Selection::Campaign(id)) => {
            (Action::VisitsErase, Subject::Campaign(*id))
        }
        (BulkAction::Erase, Selection::Codes(codes)) if codes.len() == 1 => {
            (Action::VisitsErase, Subject::Link(codes[0]))
        }
        (BulkAction::Erase, _) => (Action::VisitsErase, Subject::Job(job.id)),
        _ => (Action::JobCreate, Subject::Job(job.id)),
    };
    let mut detail = Request::of(new).audited(new.action, selected);
    detail.insert("job".to_owned(), json!(job.id));
    let entry = AuditEntry {
        at: new.created_at,
        key_id: Some(new.key_id.clone()),
        action,
        subject,
        detail,
    };
    audit::append(db, &entry).await?;
    Ok(BulkCreated::Job(Box::new(job)))
}

fn list(codes: &[Code]) -> String {
    Json::from_iter(codes.iter().map(Code::as_str)).to_string()
}

/// Locks a job until the transaction ends.
async fn lock(db: &mut Db<'_>, id: u64) -> Result<Option<(BulkJob, Place)>, sqlx::Error> {
    let sql = sql!("SELECT ", COLUMNS, " FROM jobs WHERE id = $1", FOR_UPDATE);
    db.one(sql, args![id], read).await
}

async fn step(db: &mut Db<'_>, id: u64, now: Timestamp) -> Result<BulkStep, sqlx::Error> {
    let last = BulkStep {
        is_last: true,
        ..BulkStep::default()
    };
    let Some((mut job, place)) = lock(db, id).await? else {
        return Ok(last);
    };
    if job.state != BulkState::Running {
        return Ok(last);
    }
    job.started_at.get_or_insert(now);
    let mut step = BulkStep::default();
    let next = match place.phase {
        Phase::Count => Some(count(db, &mut job, place).await?),
        Phase::Links => work(db, &mut job, place, &mut step, now).await?,
        Phase::Visits => Some(erase_campaign(db, &mut job, place, now).await?),
    };
    if next.is_none() {
        end(db, &mut job, BulkState::Done, None, now).await?;
        step.is_last = true;
    }
    save(db, &job, next.unwrap_or(place)).await?;
    Ok(step)
}

/// Counts some of the selected links.
async fn count(db: &mut Db<'_>, job: &mut BulkJob, place: Place) -> Result<Place, sqlx::Error> {
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

/// Erases some visits of a campaign.
async fn erase_campaign(
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
async fn work(
    db: &mut Db<'_>,
    job: &mut BulkJob,
    place: Place,
    step: &mut BulkStep,
    now: Timestamp,
) -> Result<Option<Place>, sqlx::Error> {
    let (mut results, next) = match &job.selected_by {
        SelectedBy::Codes => {
            let sql = sql!("SELECT codes FROM job_codes WHERE job_id = $1 AND part = $2");
            let read = |row: &Row| {
                serde_json::from_str(row.get("codes")?).map_err(|_error| invalid("codes"))
            };
            let codes: Option<Vec<String>> = db.one(sql, args![job.id, place.at.1], read).await?;
            let Some(codes) = codes else {
                return Ok(None);
            };
            let codes: Option<Vec<Code>> = codes.iter().map(|code| code.parse().ok()).collect();
            let codes = codes.ok_or_else(|| invalid("codes"))?;
            let ids = known_ids(db, &codes).await?;
            let outcomes =
                change(db, job, ids.iter().flatten().copied().collect(), step, now).await?;
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
            let outcomes = change(db, job, ids, step, now).await?;
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
        let is_buried = job.own.is_none()
            && match &job.selected_by {
                SelectedBy::Codes => true,
                SelectedBy::Other(selection) => matches!(selection, Selection::Campaign(_)),
            };
        if !is_buried {
            erasure::wait_for_ingestion(db).await?;
        }
        erasure::bury(db, names, job.created_at).await?;
        let until = job.created_at;
        if !erasure::erase_of_links(db, &codes, until, now, &mut job.erased).await? {
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
            links::store(db, id, by, &before, &link).await?;
        }
        step.receipt.0.push(OutboxSpan {
            first: id,
            last: id,
            revision: link.revision,
        });
        step.links.push(link);
    }
    changes::append(db, step.receipt.0.iter(), now).await?;
    Ok(outcomes)
}

/// Ends a job, whose row is saved after it.
async fn end(
    db: &mut Db<'_>,
    job: &mut BulkJob,
    state: BulkState,
    key_id: Option<String>,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    job.state = state;
    job.finished_at = Some(now);
    let BulkCounts {
        changed,
        unchanged,
        failed,
    } = job.counts;
    let mut detail = Map::new();
    let counts = [
        ("changed", changed),
        ("unchanged", unchanged),
        ("failed", failed),
    ];
    detail.extend(counts.map(|(name, count)| (name.to_owned(), json!(count))));
    detail.insert("state".to_owned(), json!(state.name()));
    if let Some(reason) = &job.reason {
        detail.insert("reason".to_owned(), json!(reason));
    }
    if job.action == BulkAction::Erase {
        detail.insert("visits".to_owned(), json!(job.erased.visits));
    }
    let entry = AuditEntry {
        at: now,
        key_id: key_id.or_else(|| Some(job.key_id.clone())),
        action: match state {
            BulkState::Cancelled => Action::JobCancel,
            _ => Action::JobFinish,
        },
        subject: Subject::Job(job.id),
        detail,
    };
    audit::append(db, &entry).await
}

/// Stores the progress of a job.
async fn save(db: &mut Db<'_>, job: &BulkJob, place: Place) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "UPDATE jobs SET state = $2, reason = $3, started_at = $4, finished_at = $5, selected = $6, changed = $7, \
         unchanged = $8, failed = $9, visits = $10, agents = $11, counts = $12, phase = $13, place_at = $14, \
         place_id = $15 WHERE id = $1"
    );
    let values = args![
        job.id,
        job.state.name(),
        &job.reason,
        job.started_at,
        job.finished_at,
        job.selected,
        job.counts.changed,
        job.counts.unchanged,
        job.counts.failed,
        job.erased.visits,
        job.erased.agents,
        job.erased.counts,
        place.phase.number(),
        place.at.0,
        place.at.1,
    ];
    db.run(sql, values).await?;
    Ok(())
}

fn read(row: &Row) -> Result<(BulkJob, Place), sqlx::Error> {
    let request = Request::from_json(row.get("request")?).ok_or_else(|| invalid("request"))?;
    let own = request.own.clone();
    let (selected_by, change, is_trial) = request.parts().ok_or_else(|| invalid("request"))?;
    let job = BulkJob {
        id: row.get("id")?,
        key_id: row.get("key_id")?,
        action: BulkAction::by_name(row.get("action")?).ok_or_else(|| invalid("action"))?,
        selected_by,
        own,
        change,
        is_trial,
        state: BulkState::by_name(row.get("state")?).ok_or_else(|| invalid("state"))?,
        reason: row.find("reason")?,
        created_at: row.get("created_at")?,
        started_at: row.find("started_at")?,
        finished_at: row.find("finished_at")?,
        selected: row.find("selected")?,
        counts: BulkCounts {
            changed: row.get("changed")?,
            unchanged: row.get("unchanged")?,
            failed: row.get("failed")?,
        },
        erased: Erased {
            visits: row.get("visits")?,
            agents: row.get("agents")?,
            counts: row.get("counts")?,
        },
    };
    let place = Place {
        phase: Phase::of(row.get("phase")?)?,
        at: (row.get("place_at")?, row.get("place_id")?),
    };
    Ok((job, place))
}

/// Parses the results of a part.
fn results(text: &str) -> Result<Vec<(Code, BulkOutcome)>, sqlx::Error> {
    let results: Vec<(String, String)> =
        serde_json::from_str(text).map_err(|_error| invalid("results"))?;
    let results = results.into_iter();
    let results =
        results.map(|(code, outcome)| Some((code.parse().ok()?, BulkOutcome::by_name(&outcome)?)));
    results
        .collect::<Option<_>>()
        .ok_or_else(|| invalid("results"))
}
