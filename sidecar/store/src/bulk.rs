//! Bulk jobs. A step does its part and stores the position of the next one in the same transaction, so that a job that is
//! cut off anywhere continues there, and two processes never do a step twice.

mod request;
mod steps;

use jiff::Timestamp;
use serde_json::{Map, Value as Json, json};
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::boxed;
use shortlink_core::bulk::{
    BulkAction, BulkCounts, BulkJob, BulkOutcome, BulkState, BulkStep, Erased, NewBulkJob,
    Selection,
};
use shortlink_core::ports::StoreError;
use vocabulary::Code;

use super::creation::Creation;
use super::db::Db;
use super::sql::{FOR_UPDATE, sql};
use super::value::{Row, args, invalid};
use super::visits::erasure;
use super::{Store, audit, webhooks};
use request::Request;
use steps::{LINKS_PER_STEP, Phase, Place};

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

impl Store {
    /// Stores a new job, and an entry in the audit log.
    #[boxed]
    pub async fn create_bulk_job(&self, new: NewBulkJob) -> Result<BulkCreated, StoreError> {
        self.run_tx("store a new job", new, |db, new| Box::pin(create(db, new)))
            .await
    }

    /// Finds a job.
    #[boxed]
    pub async fn find_bulk_job(&self, id: u64) -> Result<Option<BulkJob>, StoreError> {
        let sql = sql!("SELECT ", COLUMNS, " FROM jobs WHERE id = $1");
        let found = self.one("find a job", sql, args![id], read).await?;
        Ok(found.map(|(job, _)| job))
    }

    /// Lists jobs, the latest first, those before a number: all, or those of some keys.
    #[boxed]
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
    #[boxed]
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
    #[boxed]
    pub async fn step_bulk_job(&self, id: u64, now: Timestamp) -> Result<BulkStep, StoreError> {
        self.erase_stored().await?;
        self.run_tx(
            "do a step of a job",
            (id, now, self.creation.clone()),
            |db, (id, now, creation)| Box::pin(step(db, *id, *now, creation)),
        )
        .await
    }

    /// Ends a running job before its time, and notes that in the audit log; returns the job, whatever its state.
    #[boxed]
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
    #[boxed]
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
    #[boxed]
    pub async fn forget_bulk_jobs(&self, before: Timestamp) -> Result<bool, StoreError> {
        let sql = sql!("SELECT id FROM jobs WHERE finished_at < $1 ORDER BY finished_at LIMIT 1");
        let read = |row: &Row| row.get::<i64>("id");
        let found = self
            .one("find an old job", sql, args![before], read)
            .await?;
        let Some(id) = found else {
            return Ok(false);
        };
        self.run_tx("forget an old job", id, |db, id| {
            Box::pin(async move {
                let id = *id;
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
    let is_erasure = new.action == BulkAction::Erase && !new.is_trial && new.own.is_none();
    let (selected, place) = match &new.selection {
        Selection::Codes(codes) => {
            let phase = if is_erasure {
                Phase::Bury
            } else {
                Phase::Links
            };
            (Some(codes.len() as u64), Place::listed(phase))
        }
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
    if let (true, Selection::Campaign(id)) = (is_erasure, &new.selection) {
        let name = erasure::of_campaign(id.get().cast_signed());
        erasure::wait_for_ingestion(db).await?;
        erasure::bury(db, std::iter::once(name), new.created_at).await?;
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

/// Does a step of a job; the last one if it is not running any more.
async fn step(
    db: &mut Db<'_>,
    id: u64,
    now: Timestamp,
    creation: &Creation,
) -> Result<BulkStep, sqlx::Error> {
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
        Phase::Count => Some(steps::count(db, &mut job, place).await?),
        Phase::Links => steps::work(db, &mut job, place, &mut step, now, creation).await?,
        Phase::Visits => Some(steps::erase_campaign(db, &mut job, place, now).await?),
        Phase::Bury => Some(steps::bury(db, &job, place).await?),
    };
    if next.is_none() {
        end(db, &mut job, BulkState::Done, None, now).await?;
        step.is_last = true;
    }
    save(db, &job, next.unwrap_or(place)).await?;
    Ok(step)
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
        if !job.is_trial {
            webhooks::read_again(db).await?;
        }
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
