//! One shared connection to Redis, reopened when it fails.
//!
//! Every operation has a time limit that includes waiting for a connection. A server that is
//! stopped, or lies behind a network that swallows packets, closes nothing: so a connection that
//! has missed a limit is given up like a broken one. After a failure operations fail at once until
//! a pause is over; then one caller tries to connect while others wait for that attempt.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::RedisError;
use tokio::time::Instant;

use super::failure::Failure;
use super::load_publish;
use super::servers::{Handle, Servers};

/// Pause after a failure, without attempts to connect.
const PAUSE: Duration = Duration::from_millis(200);

/// A connection that is ready for use.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) redis: Handle,
    /// SHA-1 by which this server names the publishing script.
    pub(super) publish_sha: String,
    /// Number of this connection, counted from the first.
    number: u64,
}

pub(super) struct Connection {
    servers: Servers,
    timeout: Duration,
    state: Mutex<State>,
    /// Held while connecting, so that one caller does it for all.
    connecting: tokio::sync::Mutex<()>,
}

struct State {
    open: Option<Open>,
    /// Time of the next attempt to connect.
    paused_until: Option<Instant>,
    /// The number of connections opened so far.
    opened: u64,
}

impl Connection {
    pub(super) fn new(servers: Servers, timeout: Duration) -> Self {
        Self {
            servers,
            timeout,
            state: Mutex::new(State {
                open: None,
                paused_until: None,
                opened: 0,
            }),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    pub(super) fn timeout_ms(&self) -> u64 {
        u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs an operation within the time limit.
    pub(super) async fn run<T>(
        &self,
        operation: impl AsyncFnOnce(Open) -> Result<T, RedisError>,
    ) -> Result<T, Failure> {
        // Which connection the operation has used, to give up that one and not its successor.
        let mut used = None;
        let attempt = async {
            let open = self.open().await?;
            used = Some(open.number);
            operation(open).await.map_err(Attempt::Redis)
        };
        match tokio::time::timeout(self.timeout, attempt).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(Attempt::Paused)) => Err(Failure::Away),
            Ok(Err(Attempt::Redis(error))) => {
                // An answer such as OOM or READONLY comes over a connection that is in order.
                // READONLY, though, means that the server is not the master any more.
                if error.is_unrecoverable_error() || error.is_io_error() || is_demoted(&error) {
                    self.give_up(used);
                }
                Err(error.into())
            }
            Err(_elapsed) => {
                self.give_up(used);
                Err(Failure::Timeout)
            }
        }
    }

    /// Closes the connection, if there is one, until it is needed again.
    pub(super) fn close(&self) {
        self.state().open = None;
    }

    async fn open(&self) -> Result<Open, Attempt> {
        if let Some(open) = self.present()? {
            return Ok(open);
        }
        let _turn = self.connecting.lock().await;
        // The previous holder of the lock may have connected, or failed.
        if let Some(open) = self.present()? {
            return Ok(open);
        }
        let mut redis = self.servers.connect().await.map_err(Attempt::Redis)?;
        let publish_sha = load_publish(&mut redis).await.map_err(Attempt::Redis)?;
        let mut state = self.state();
        state.opened += 1;
        state.paused_until = None;
        let open = Open {
            redis,
            publish_sha,
            number: state.opened,
        };
        state.open = Some(open.clone());
        Ok(open)
    }

    /// Returns the open connection, or an error during the pause after a failure.
    fn present(&self) -> Result<Option<Open>, Attempt> {
        let state = self.state();
        if state.open.is_some() {
            return Ok(state.open.clone());
        }
        match state.paused_until {
            Some(until) if Instant::now() < until => Err(Attempt::Paused),
            _ => Ok(None),
        }
    }

    /// Closes the connection that has failed; `None` when there was none to be had.
    fn give_up(&self, number: Option<u64>) {
        let mut state = self.state();
        let is_current = match (&state.open, number) {
            (Some(open), Some(number)) => open.number == number,
            (None, None) => true,
            _ => false,
        };
        if is_current {
            state.open = None;
            state.paused_until = Some(Instant::now() + PAUSE);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing under this lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Attempt {
    Paused,
    Redis(RedisError),
}

fn is_demoted(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::ReadOnly)
}
