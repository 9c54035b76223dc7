//! The lease for the delivery of the outbox.
//!
//! Publishing a change twice is harmless but useless, so one of several healthy sidecars delivers
//! the outbox for all: its session holds an advisory lock. A process that ends loses the lock with its
//! session, and one that hangs loses its session soon after.
//!
//! A sidecar that cannot reach Redis does not block the others: if it has not settled what it read
//! last, it releases the lease, goes on without it, and requests it again after it has settled
//! something.

use std::time::Duration;

use shortlink_core::ports::Receipt;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::servers::{Live, Servers};

/// Advisory lock of the holder: "shortout".
const LOCK: i64 = 0x7368_6f72_746f_7574;

/// Idle time after which the server ends a session. The lease is requested many times as often.
const SILENCE: Duration = Duration::from_secs(10);

/// The state of the lease in this process.
pub(crate) struct Turn {
    servers: Servers,
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Session>,
    /// Receipt of the latest read, until it has been settled.
    unsettled: Option<Receipt>,
}

/// A connection that does nothing but have the lock, or wait for it.
struct Session {
    live: Live,
    has_lock: bool,
}

impl Turn {
    /// Begins without the lease.
    pub(super) fn new(servers: &Servers, limit: Duration) -> Self {
        let silence = SILENCE.as_millis().to_string();
        Self {
            servers: servers.with(&[("idle_session_timeout", silence)]),
            limit,
            state: Mutex::default(),
        }
    }

    /// Requests the lease; returns whether to deliver now.
    pub(crate) async fn take(&self) -> Result<bool, sqlx::Error> {
        let mut state = self.state.lock().await;
        // The lock ends with the connection.
        let session = state.session.take();
        if state.unsettled.take().is_some() {
            return Ok(true);
        }
        if let Some(mut session) = session
            && !self.servers.is_former(&session.live)
        {
            if self.ask(&mut session).await.is_ok() {
                let has_lock = session.has_lock;
                state.session = Some(session);
                return Ok(has_lock);
            }
            self.servers.doubt_of(&session.live);
        }
        let live = self.servers.connect(Instant::now() + self.limit).await?;
        let mut session = Session {
            live,
            has_lock: false,
        };
        self.ask(&mut session).await?;
        let has_lock = session.has_lock;
        state.session = Some(session);
        Ok(has_lock)
    }

    /// Takes the lock if it is free. When this session has it already this shows that there still
    /// is such a session.
    async fn ask(&self, session: &mut Session) -> Result<(), sqlx::Error> {
        let ask = sqlx::query_scalar("SELECT $1 OR pg_try_advisory_lock($2)")
            .bind(session.has_lock)
            .bind(LOCK)
            .fetch_one(&mut session.live.connection);
        let asked = tokio::time::timeout(self.limit, ask).await;
        session.has_lock = asked.unwrap_or_else(|_elapsed| {
            Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
        })?;
        Ok(())
    }

    /// Notes the receipt of a delivery that begins.
    pub(crate) async fn note_begun(&self, receipt: &Receipt) {
        if !receipt.0.is_empty() {
            self.state.lock().await.unsettled = Some(receipt.clone());
        }
    }

    /// Notes that receipts were settled.
    pub(crate) async fn note_settled(&self, receipts: &[Receipt]) {
        let mut state = self.state.lock().await;
        let is_done = state.unsettled.as_ref();
        if is_done.is_some_and(|receipt| receipts.contains(receipt)) {
            state.unsettled = None;
        }
    }

    /// Releases the lease; it can be requested again.
    pub(crate) async fn end(&self) {
        self.state.lock().await.session = None;
    }
}
