//! The servers of a database: one of them is the primary, and a failover makes another one the primary.
//!
//! A session is opened with the primary only. The server that was the primary last is tried first; if it does not
//! respond soon, or is not the primary any more, all are tried at the same time, and again until one is.
//!
//! After a failover the former primary may still respond as if it was the primary, until its cluster manager has
//! stopped it. Each promotion begins a timeline, so of two primaries the one with the newer timeline is right.
//! Sessions with an older one than this process has seen are closed.

use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::time::{Instant, sleep, timeout_at};

use super::replica;

/// Longest wait for a server that is probably the primary before the others are tried, and for better answers after
/// the first good one.
const PATIENCE: Duration = Duration::from_millis(250);

/// Duration of an operation after which all servers are asked whether another one is the primary.
const SLOW: Duration = Duration::from_secs(1);

/// The shortest and the longest pause before a server is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// Knowledge of this process about the servers of a URL. The stores that are opened with clones of the same
/// [`StoreOptions`](crate::StoreOptions) share it, so that a failover that one notices is known to all.
#[derive(Clone, Debug, Default)]
pub struct KnownServers(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    state: Mutex<State>,
    /// Held by the caller that tries all servers, for all others.
    search: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The place in the list of the server that was the primary last, unless there is doubt about it.
    primary: Option<usize>,
    newest: Option<Line>,
    doubted_at: Option<Instant>,
}

/// A timeline of the servers that descend from one `initdb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) system: i64,
    pub(super) timeline: i64,
}

impl Line {
    fn is_older_than(self, other: Self) -> bool {
        self.system == other.system && self.timeline < other.timeline
    }
}

/// A session with a primary.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) connection: PgConnection,
    /// The place of its server in the list.
    server: usize,
    /// Unknown if the URL has a single host.
    pub(super) line: Option<Line>,
    pub(super) is_read_only: bool,
    /// The position up to which a replica has replayed the log; less than any for a primary.
    replayed: i64,
}

/// The reason for which a server is not used.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Failed(#[from] sqlx::Error),
    #[error("is a standby (in recovery), and the sidecar needs the primary")]
    Standby,
    #[error(
        "is a former primary, with timeline {0} when {1} is known; restart the sidecar if this server is the right one"
    )]
    Former(i64, i64),
    #[error("does not respond")]
    Silent,
}

impl Refusal {
    /// Returns whether the server may be usable a moment later.
    fn is_temporary(&self, has_others: bool) -> bool {
        match self {
            Self::Failed(sqlx::Error::Io(error)) => {
                has_others || error.kind() == io::ErrorKind::ConnectionRefused
            }
            Self::Failed(sqlx::Error::Database(error)) => error.is_transient_in_connect_phase(),
            Self::Failed(_) => false,
            Self::Standby | Self::Former(..) | Self::Silent => true,
        }
    }
}

/// The servers of a URL, with the options of a session.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    hosts: Vec<PgConnectOptions>,
    known: KnownServers,
    patience: Duration,
    /// Replicas are accepted as well; the one that has replayed most is chosen.
    may_be_replicas: bool,
}

impl Servers {
    /// Sessions are opened within `limit`.
    pub(super) fn new(hosts: Vec<PgConnectOptions>, known: &KnownServers, limit: Duration) -> Self {
        // A single server is waited for, since a slow one is better than none.
        let has_others = hosts.len() > 1;
        let patience = if has_others {
            PATIENCE.min(limit / 4)
        } else {
            limit / 2
        };
        Self {
            hosts,
            known: known.clone(),
            patience,
            may_be_replicas: false,
        }
    }

    /// The same servers, of which a replica serves as well as the primary. None is waited for: another one can answer
    /// what a replica can.
    pub(super) fn or_replicas(mut self) -> Self {
        self.may_be_replicas = true;
        self
    }

    /// Returns whether there are several servers.
    pub(super) fn has_others(&self) -> bool {
        self.hosts.len() > 1
    }

    /// The same servers, for sessions with further settings.
    pub(super) fn with<const N: usize>(&self, settings: &[(&str, String); N]) -> Self {
        let mut servers = self.clone();
        for host in &mut servers.hosts {
            *host = host
                .clone()
                .options(settings.iter().map(|(name, value)| (name, value)));
        }
        servers
    }

    /// The names of the servers and of the database, for messages.
    pub(super) fn names(&self) -> (String, String) {
        let names = self.hosts.iter().map(name).collect::<Vec<_>>().join(", ");
        let database = self.hosts.first().map(|host| {
            let database = host.get_database().unwrap_or(host.get_username());
            database.to_owned()
        });
        (names, database.unwrap_or_default())
    }

    /// The longest wait for the answer of a session that was good.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Opens a session with the primary; retries until `deadline` if a server may be usable later.
    pub(super) async fn connect(&self, deadline: Instant) -> Result<Live, sqlx::Error> {
        if self.hosts.len() == 1 {
            return self.search(deadline).await;
        }
        if let Some(live) = self.open_known(deadline).await {
            return Ok(live);
        }
        let Ok(_searching) = timeout_at(deadline, self.known.0.search.lock()).await else {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        };
        // Another caller may have found it.
        if let Some(live) = self.open_known(deadline).await {
            return Ok(live);
        }
        self.search(deadline).await
    }

    /// Opens a session with the server that was the primary last.
    async fn open_known(&self, deadline: Instant) -> Option<Live> {
        let server = self.known.0.state.lock().primary?;
        let limit = deadline.min(Instant::now() + self.patience);
        if let Ok(Ok(live)) = timeout_at(limit, self.open(server)).await {
            return Some(live);
        }
        self.doubt(server);
        None
    }

    /// Tries all servers at the same time, each again while it may become usable.
    async fn search(&self, deadline: Instant) -> Result<Live, sqlx::Error> {
        let mut refusals: Vec<_> = self.hosts.iter().map(|_| Refusal::Silent).collect();
        let first = |server| self.attempt(server, Duration::ZERO);
        let mut attempts: FuturesUnordered<_> = (0..self.hosts.len()).map(first).collect();
        let (mut best, mut limit): (Option<Live>, _) = (None, deadline);
        while let Ok(Some((server, paused, answer))) = timeout_at(limit, attempts.next()).await {
            match answer {
                Ok(live) => {
                    if best.is_none() {
                        limit = deadline.min(Instant::now() + self.patience);
                    }
                    let rank = |live: &Live| {
                        let timeline = live.line.map(|line| line.timeline);
                        (!live.is_read_only, timeline, live.replayed)
                    };
                    if best.as_ref().is_none_or(|best| rank(best) < rank(&live)) {
                        best = Some(live);
                    }
                }
                Err(refusal) => {
                    let may_change =
                        !self.may_be_replicas && refusal.is_temporary(self.has_others());
                    if best.is_none() && may_change {
                        attempts.push(self.attempt(server, (paused * 2).clamp(PAUSES.0, PAUSES.1)));
                    }
                    refusals[server] = refusal;
                }
            }
        }
        drop(attempts);
        let Some(live) = best else {
            return Err(self.failure(refusals));
        };
        self.known.0.state.lock().primary = Some(live.server);
        Ok(live)
    }

    /// Tries a server after a pause.
    async fn attempt(
        &self,
        server: usize,
        pause: Duration,
    ) -> (usize, Duration, Result<Live, Refusal>) {
        if !pause.is_zero() {
            sleep(pause).await;
        }
        (server, pause, self.open(server).await)
    }

    /// The error of a search in which no server was usable.
    fn failure(&self, mut refusals: Vec<Refusal>) -> sqlx::Error {
        if refusals.len() == 1 {
            return match refusals.pop() {
                Some(Refusal::Failed(error)) => error,
                Some(Refusal::Silent) | None => io::Error::from(io::ErrorKind::TimedOut).into(),
                Some(other) => io::Error::other(format!("the server {other}")).into(),
            };
        }
        let role = if self.may_be_replicas {
            "replica"
        } else {
            "primary"
        };
        let mut text = format!("none of {} servers is a usable {role}", refusals.len());
        for (host, refusal) in self.hosts.iter().zip(&refusals) {
            let colon = if matches!(refusal, Refusal::Failed(_)) {
                ":"
            } else {
                ""
            };
            // Writing to a string does not fail.
            let _ = write!(text, "; {}{colon} {refusal}", name(host));
        }
        io::Error::other(text).into()
    }

    /// Opens a session with a server that must be the primary.
    async fn open(&self, server: usize) -> Result<Live, Refusal> {
        let mut connection = self.hosts[server].connect().await?;
        if self.may_be_replicas {
            let replayed = replica::position(&mut connection).await?.replayed();
            return Ok(Live {
                connection,
                server,
                line: None,
                is_read_only: true,
                replayed,
            });
        }
        // Whatever the server's default is, an acknowledged write must be on the disk. A stricter setting is
        // not changed.
        let (is_standby, is_read_only, _): (bool, bool, Option<String>) = sqlx::query_as(
            "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean, \
             CASE current_setting('synchronous_commit') \
             WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END",
        )
        .fetch_one(&mut connection)
        .await?;
        if is_standby {
            return Err(Refusal::Standby);
        }
        let line = if self.hosts.len() > 1 {
            Some(line(&mut connection).await?)
        } else {
            None
        };
        let live = Live {
            connection,
            server,
            line,
            is_read_only,
            replayed: -1,
        };
        self.note(&live)?;
        Ok(live)
    }

    /// Notes the timeline of a primary.
    fn note(&self, live: &Live) -> Result<(), Refusal> {
        let newest = &mut self.known.0.state.lock().newest;
        match (live.line, *newest) {
            (Some(line), Some(known)) if line.is_older_than(known) => {
                Err(Refusal::Former(line.timeline, known.timeline))
            }
            (Some(line), _) => {
                *newest = Some(line);
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Returns whether a newer primary is known than that of a session.
    pub(super) fn is_former(&self, live: &Live) -> bool {
        self.is_over(live.line)
    }

    fn is_over(&self, line: Option<Line>) -> bool {
        let newest = self.known.0.state.lock().newest;
        line.zip(newest)
            .is_some_and(|(line, newest)| line.is_older_than(newest))
    }

    /// Returns whether the primary has to be looked up among several servers.
    pub(super) fn is_unknown(&self) -> bool {
        self.hosts.len() > 1 && self.known.0.state.lock().primary.is_none()
    }

    /// Ends once there is a newer primary than the one with this timeline: an operation with a former primary may
    /// never end, since its commit waits for standbys that follow another server. While the operation takes long, the
    /// servers are asked.
    pub(super) async fn end_of(&self, line: Option<Line>) {
        if line.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(SLOW).await;
            // One operation asks for all others.
            if let Ok(_searching) = self.known.0.search.try_lock() {
                let _ = self.search(Instant::now() + SLOW).await;
            }
            if self.is_over(line) {
                return;
            }
        }
    }

    /// Returns whether a session failed after this moment.
    pub(super) fn is_doubted_since(&self, moment: Instant) -> bool {
        let doubted_at = self.known.0.state.lock().doubted_at;
        doubted_at.is_some_and(|doubted_at| doubted_at >= moment)
    }

    /// Notes that a session failed in a way that another server may not.
    pub(super) fn doubt_of(&self, live: &Live) {
        self.doubt(live.server);
    }

    fn doubt(&self, server: usize) {
        let mut state = self.known.0.state.lock();
        state.doubted_at = Some(Instant::now());
        if state.primary == Some(server) {
            state.primary = None;
        }
    }
}

/// Reads the timeline that a primary writes.
async fn line(connection: &mut PgConnection) -> Result<Line, sqlx::Error> {
    let (system, timeline) = sqlx::query_as(
        "SELECT system_identifier, \
         ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint FROM pg_control_system()",
    )
    .fetch_one(connection)
    .await?;
    Ok(Line { system, timeline })
}

/// The name of a server, for messages.
fn name(host: &PgConnectOptions) -> String {
    match host.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", host.get_host(), host.get_port()),
    }
}
