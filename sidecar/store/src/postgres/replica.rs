//! A replica: a server that repeats the log of the primary, and answers reads while it is not too far behind.
//!
//! No clock of a server is read. This process notes the position of the primary's log at moments of its own monotonic
//! clock (*samples*). A replica on the same timeline that has replayed a position holds everything that was committed
//! before that sample, so its age is at most the time since then.
//!
//! Once the primary is away there are no more samples. Then the watermark of Redis bounds the age: while it stands still,
//! no process has made a change since, so a replica that was current at the last sample still is.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secrecy::SecretString;
use shortlink_core::boxed;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::ports::StoreError;
use sqlx::postgres::PgConnection;
use tokio::time::{Instant, timeout};

use super::pool::Pool;
use super::servers::Line;
use super::{KnownServers, OpenError, session};
use crate::StoreOptions;
use crate::db::Db;
use crate::tx::Work;

/// The most samples: at the usual interval, those of half an hour.
const MAX_SAMPLES: usize = 4096;

/// Time limit for a session with the replica, and for its position: a read must not wait for long for what the primary
/// can answer.
const CHECK_LIMIT: Duration = Duration::from_millis(500);

/// Time limit for a look at a server.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// The age at which the watermark that was read from Redis proves nothing any more.
const WATERMARK_AGE: Duration = Duration::from_secs(2);

/// Time after the last sample in which the watermark may still rise, by changes of before.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);

/// The position of a server in its log. A standby learns a new timeline for certain with its next restart point.
const POSITION: &str = "SELECT pg_is_in_recovery(), system_identifier, \
    CASE WHEN pg_is_in_recovery() THEN greatest((SELECT timeline_id FROM pg_control_checkpoint()), \
    (SELECT min_recovery_end_timeline FROM pg_control_recovery()))::bigint \
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END, \
    (coalesce(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END, \
    '0/0'::pg_lsn) - '0/0'::pg_lsn)::bigint FROM pg_control_system()";

/// The replica of a database.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// URL of one or several servers. Secret, since it can contain a password.
    pub url: SecretString,
    /// Knowledge of this process about the servers of the URL.
    pub known_servers: KnownServers,
    /// Knowledge of this process about the replica's age.
    pub state: ReplicaState,
}

/// Knowledge of this process about a replica. Clones share it.
#[derive(Clone, Debug)]
pub struct ReplicaState(Arc<Known>);

#[derive(Debug)]
struct Known {
    max_lag: Duration,
    samples: Mutex<Samples>,
    /// The last attempt to sample the primary failed.
    primary_is_away: AtomicBool,
    /// The newest sample that the replica had at the last look; `None` if it did not respond or is not a replica.
    held: Mutex<Option<Option<Instant>>>,
    listings: AtomicU64,
    visitors: AtomicU64,
}

/// Positions of the primary, in their order.
#[derive(Debug, Default)]
struct Samples {
    all: VecDeque<Sample>,
    /// The generation and watermark that Redis showed last, and when; `None` if its data set had none.
    watermark: Option<(Instant, Option<(u64, u64)>)>,
    /// Those that it showed last while the primary responded, or soon after.
    settled: Option<Option<(u64, u64)>>,
}

/// The position of the primary at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    at: Instant,
    position: Position,
}

/// A position in the log of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    line: Line,
    lsn: i64,
    is_standby: bool,
}

impl Position {
    /// The position up to which a replica has replayed the log; less than any for a primary, which is to be relieved.
    pub(super) fn replayed(self) -> i64 {
        if self.is_standby { self.lsn } else { -1 }
    }
}

/// The reads that a replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Listings, exports and statistics.
    Listings,
    /// The answers to visitors while the primary is away.
    Visitors,
}

/// The reason for which a replica answers nothing.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "the replica is further behind than database.replica_max_lag_s, or on another timeline"
    )]
    Late,
    #[error("the primary is away, and Redis does not prove that the replica has all changes")]
    Unproven,
    #[error("the primary is away, and Redis has later changes than the replica")]
    Overtaken,
    #[error("the server is a replica of another database than that of database.url")]
    Foreign,
}

/// The state and the use of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStanding {
    /// It responds, and is a replica of this database.
    pub is_up: bool,
    /// The upper bound of its age; `None` if it is unknown.
    pub lag: Option<Duration>,
    /// Reads for listings, exports and statistics that it has answered.
    pub listings: u64,
    /// Reads for visitors that it has answered.
    pub visitors: u64,
}

impl ReplicaState {
    /// Begins without knowledge. Data of a greater age than `max_lag` are not read.
    pub fn new(max_lag: Duration) -> Self {
        Self(Arc::new(Known {
            max_lag,
            samples: Mutex::default(),
            primary_is_away: AtomicBool::new(false),
            held: Mutex::default(),
            listings: AtomicU64::new(0),
            visitors: AtomicU64::new(0),
        }))
    }

    /// The greatest age of data that are read.
    pub fn max_lag(&self) -> Duration {
        self.0.max_lag
    }

    /// Returns the present knowledge.
    pub fn standing(&self) -> ReplicaStanding {
        let held = *self.0.held.lock();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReplicaStanding {
            is_up: held.is_some(),
            lag: held.flatten().map(|at| at.elapsed()),
            listings: count(&self.0.listings),
            visitors: count(&self.0.visitors),
        }
    }

    /// Returns whether the primary did not respond when it was asked last.
    pub fn primary_is_away(&self) -> bool {
        self.0.primary_is_away.load(Ordering::Relaxed)
    }

    /// Notes the generation and the watermark that Redis showed to a question of `at`.
    pub fn note_watermark(&self, at: Instant, watermark: Option<(u64, u64)>) {
        self.0.samples.lock().note_watermark(at, watermark);
    }

    fn count(&self, used: Use) {
        let counter = match used {
            Use::Listings => &self.0.listings,
            Use::Visitors => &self.0.visitors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Samples {
    fn add(&mut self, sample: Sample) {
        // The later of two samples with the same position says more.
        let is_same = self
            .all
            .back()
            .is_some_and(|it| it.position == sample.position);
        if is_same || self.all.len() >= MAX_SAMPLES {
            let _older = if is_same {
                self.all.pop_back()
            } else {
                self.all.pop_front()
            };
        }
        self.all.push_back(sample);
    }

    fn note_watermark(&mut self, at: Instant, watermark: Option<(u64, u64)>) {
        self.watermark = Some((at, watermark));
        if self
            .all
            .back()
            .is_some_and(|it| at <= it.at + SETTLES_WITHIN)
        {
            self.settled = Some(watermark);
        }
    }

    /// The newest sample that a replica at a position holds.
    fn held(&self, position: Position) -> Option<&Sample> {
        let mut newest_first = self.all.iter().rev();
        newest_first.find(|it| it.position.line == position.line && it.position.lsn <= position.lsn)
    }

    /// Checks that a replica at a position may answer.
    fn check(
        &self,
        position: Position,
        max_lag: Duration,
        used: Use,
        now: Instant,
    ) -> Result<(), Refusal> {
        let (Some(held), Some(newest)) = (self.held(position), self.all.back()) else {
            return Err(Refusal::Late);
        };
        if now - held.at <= max_lag {
            return Ok(());
        }
        // The primary is away since; the replica was late before.
        if used == Use::Listings || newest.at - held.at > max_lag {
            return Err(Refusal::Late);
        }
        let fresh = self.watermark.filter(|(at, _)| now - *at <= WATERMARK_AGE);
        match (fresh, self.settled) {
            (Some((_, watermark)), Some(settled)) if watermark <= settled => Ok(()),
            (Some(_), Some(_)) => Err(Refusal::Overtaken),
            _ => Err(Refusal::Unproven),
        }
    }
}

/// Reads on a replica.
#[derive(Debug)]
pub(super) struct Replica {
    pool: Pool,
    state: ReplicaState,
    limit: Duration,
    used: Use,
}

impl Replica {
    /// Opens no session yet.
    pub(super) fn new(
        options: &StoreOptions,
        replica: &ReplicaOptions,
        used: Use,
    ) -> Result<Self, OpenError> {
        let options = StoreOptions {
            acquire_timeout: options.acquire_timeout.min(CHECK_LIMIT),
            ..options.clone()
        };
        Ok(Self {
            pool: Pool::new(session::replicas(&options, replica)?, &options),
            state: replica.state.clone(),
            limit: session::limit(&options),
            used,
        })
    }

    /// Returns whether a listing is worth the attempt, as of the last look.
    pub(super) fn is_promising(&self) -> bool {
        let held = *self.state.0.held.lock();
        held.flatten()
            .is_some_and(|at| at.elapsed() <= self.state.max_lag())
    }

    /// Runs a read, on a session whose server has just proved that it may answer.
    pub(super) fn read<'a>(
        &'a self,
        numbering: &'a Numbering,
        work: &'a mut dyn Work,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let checked = timeout(CHECK_LIMIT * 2, async {
                let mut session = self.pool.acquire().await?;
                let position = position(session.connection()?).await;
                Ok::<_, sqlx::Error>((session, position))
            });
            let checked = checked.await.unwrap_or_else(|_elapsed| Err(timed_out()));
            let (mut session, position) = checked.inspect_err(|error| {
                // While all sessions are in use, the replica works.
                if !matches!(error, sqlx::Error::PoolTimedOut) {
                    self.fail();
                }
            })?;
            let position = match position {
                Ok(position) => position,
                Err(error) => {
                    self.fail();
                    let failed = Err(error);
                    session.end(&failed);
                    return failed;
                }
            };
            let now = Instant::now();
            let admitted =
                (self.state.0.samples.lock()).check(position, self.state.max_lag(), self.used, now);
            if let Err(refusal) = admitted {
                // Another server may be further.
                session.end(&match self.pool.servers.has_others() {
                    true => Err(sqlx::Error::PoolTimedOut),
                    false => Ok(()),
                });
                return Err(io::Error::other(refusal).into());
            }
            let mut db = Db::postgres(session.connection()?, numbering);
            let outcome = timeout(self.limit, work.run(&mut db)).await;
            let outcome = outcome.unwrap_or_else(|_elapsed| Err(timed_out()));
            session.end(&outcome);
            if outcome.is_ok() {
                self.state.count(self.used);
            }
            outcome
        })
    }

    /// Has listings wait for no further attempt before the next look.
    fn fail(&self) {
        *self.state.0.held.lock() = None;
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

fn timed_out() -> sqlx::Error {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// Reads the position of a server.
pub(super) async fn position(connection: &mut PgConnection) -> Result<Position, sqlx::Error> {
    let position = sqlx::query_as(POSITION).fetch_one(connection);
    let (is_standby, system, timeline, lsn) = position.await?;
    Ok(Position {
        line: Line { system, timeline },
        lsn,
        is_standby,
    })
}

/// Looks at the primary and at the replica, each over one session of its own.
pub struct ReplicaWatch {
    primary: Pool,
    replica: Pool,
    state: ReplicaState,
}

impl ReplicaWatch {
    /// Watches the replica of the options; `None` without one. Opens no session yet.
    ///
    /// # Errors
    /// Fails if a URL is invalid.
    pub fn new(options: &StoreOptions) -> Result<Option<Self>, OpenError> {
        let Some(replica) = &options.replica else {
            return Ok(None);
        };
        let options = StoreOptions {
            max_connections: 1,
            acquire_timeout: options.acquire_timeout.min(LOOK_LIMIT),
            ..options.clone()
        };
        Ok(Some(Self {
            primary: Pool::new(session::servers(&options)?, &options),
            replica: Pool::new(session::replicas(&options, replica)?, &options),
            state: replica.state.clone(),
        }))
    }

    /// Knowledge of the replica.
    pub fn state(&self) -> &ReplicaState {
        &self.state
    }

    /// Notes the positions of both servers.
    ///
    /// # Errors
    /// Fails if the replica does not respond, or is one of another database.
    #[boxed]
    pub async fn look(&self) -> Result<(), StoreError> {
        let sampled = look_at(&self.primary).await;
        let is_away = sampled.is_err();
        if let Ok((at, position)) = sampled {
            self.state.0.samples.lock().add(Sample { at, position });
        }
        self.state
            .0
            .primary_is_away
            .store(is_away, Ordering::Relaxed);
        let looked = look_at(&self.replica).await.and_then(|(_, position)| {
            let samples = self.state.0.samples.lock();
            let (first, last) = (samples.all.front(), samples.all.back());
            if last.is_some_and(|it| it.position.line.system != position.line.system) {
                return Err(io::Error::other(Refusal::Foreign).into());
            }
            // Further behind than the first sample, at least.
            Ok(samples.held(position).or(first).map(|it| it.at))
        });
        *self.state.0.held.lock() = looked.as_ref().ok().copied();
        // Not counted among the errors of the database: the primary answers instead.
        looked.map(drop).map_err(|error| StoreError {
            operation: "read the position of the replica",
            source: Arc::new(error),
        })
    }

    /// Closes its sessions.
    #[boxed]
    pub async fn close(&self) {
        self.primary.close().await;
        self.replica.close().await;
    }
}

/// Reads the position of a server of a pool, and the moment before.
async fn look_at(pool: &Pool) -> Result<(Instant, Position), sqlx::Error> {
    let look = async {
        let mut session = pool.acquire().await?;
        let at = Instant::now();
        let position = position(session.connection()?).await;
        session.end(&position);
        Ok((at, position?))
    };
    let looked = timeout(LOOK_LIMIT, look).await;
    looked.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

#[cfg(test)]
mod tests;
