//! The sessions of a store.
//!
//! sqlx's pool opens sessions with one server only, hence this one: it opens them with the primary, and gives out none
//! that is with a former one.

use std::time::Duration;

use parking_lot::Mutex;
use sqlx::{Connection, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use super::servers::{Line, Live, Servers};
use super::session::is_sound;
use crate::StoreOptions;

/// After how long without use a session is tested before it is used. One that was used just now is as good as one that
/// was tested.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Time without use after which a session is closed.
const MAX_IDLE: Duration = Duration::from_mins(10);

/// Age at which a session is closed: the host of the URL may have got another address.
const MAX_AGE: Duration = Duration::from_mins(30);

/// A bounded number of sessions.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) servers: Servers,
    /// The session that was used last is the last.
    free: Mutex<Vec<Free>>,
    permits: Semaphore,
    max_sessions: u32,
    acquire_timeout: Duration,
}

#[derive(Debug)]
struct Free {
    live: Live,
    opened_at: Instant,
    used_at: Instant,
}

impl Pool {
    /// Opens no session yet.
    pub(super) fn new(servers: Servers, options: &StoreOptions) -> Self {
        Self {
            servers,
            free: Mutex::default(),
            permits: Semaphore::new(options.max_connections as usize),
            max_sessions: options.max_connections,
            acquire_timeout: options.acquire_timeout,
        }
    }

    /// Returns a free session, or a new one.
    pub(super) async fn acquire(&self) -> Result<Session<'_>, sqlx::Error> {
        let deadline = Instant::now() + self.acquire_timeout;
        let permit = timeout_at(deadline, self.permits.acquire()).await;
        let permit = permit.map_err(|_elapsed| sqlx::Error::PoolTimedOut)?;
        let permit = permit.map_err(|_closed| sqlx::Error::PoolClosed)?;
        let free = self.take_usable().await;
        let (live, opened_at) = match free {
            Some(free) => (free.live, free.opened_at),
            None => (self.servers.connect(deadline).await?, Instant::now()),
        };
        Ok(Session {
            pool: self,
            live: Some(live),
            opened_at,
            _permit: permit,
        })
    }

    /// Takes the free session that was used last and can still be used.
    async fn take_usable(&self) -> Option<Free> {
        loop {
            let mut free = self.free.lock().pop()?;
            if self.servers.is_unknown() {
                // It may be with a former primary, which a new session finds out.
                return None;
            }
            if free.opened_at.elapsed() > MAX_AGE || self.servers.is_former(&free.live) {
                continue;
            }
            if free.used_at.elapsed() <= TRUSTED_FOR && !self.servers.is_doubted_since(free.used_at)
            {
                return Some(free);
            }
            match timeout(self.servers.patience(), free.live.connection.ping()).await {
                Ok(Ok(())) => return Some(free),
                Ok(Err(_lost)) => self.servers.doubt_of(&free.live),
                Err(_elapsed) => {
                    self.servers.doubt_of(&free.live);
                    // Each of the others would cost as much time.
                    self.free.lock().clear();
                }
            }
        }
    }

    /// Closes every session, once all are free.
    pub(super) async fn close(&self) {
        let all = self.permits.acquire_many(self.max_sessions).await;
        self.permits.close();
        drop(all);
        let free = std::mem::take(&mut *self.free.lock());
        for free in free {
            // The server notices the end also without being notified.
            let _ = free.live.connection.close().await;
        }
    }
}

/// A session that is closed unless it is given back: after an error, or when the caller is dropped halfway, its next
/// response is unknown, and may never come.
#[derive(Debug)]
pub(super) struct Session<'p> {
    pool: &'p Pool,
    live: Option<Live>,
    opened_at: Instant,
    _permit: SemaphorePermit<'p>,
}

impl Session<'_> {
    pub(super) fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        let live = self.live.as_mut();
        Ok(&mut live.ok_or(sqlx::Error::PoolClosed)?.connection)
    }

    /// The timeline of its server, if the server may be replaced by another one.
    pub(super) fn line(&self) -> Option<Line> {
        self.live.as_ref()?.line
    }

    /// Ends the use of the session: it is free if it can be reused after this outcome.
    pub(super) fn end<T>(mut self, outcome: &Result<T, sqlx::Error>) {
        let Some(live) = self.live.take() else { return };
        if !outcome.as_ref().err().is_none_or(is_sound) {
            self.pool.servers.doubt_of(&live);
            return;
        }
        let now = Instant::now();
        let mut free = self.pool.free.lock();
        free.retain(|free| now - free.used_at <= MAX_IDLE);
        free.push(Free {
            live,
            opened_at: self.opened_at,
            used_at: now,
        });
    }
}
