//! One shared connection to Redis, reopened when it fails.
//!
//! Every operation has a time limit that includes waiting for a connection. A server that is
//! stopped, or lies behind a network that swallows packets, closes nothing: so a connection that
//! has missed a limit is given up like a broken one. After a failure operations fail at once until
//! a pause is over; then one caller tries to connect while others wait for that attempt.

use std::error::Error;
use std::time::Duration;

use parking_lot::Mutex;
use redis::RedisError;
use shortlink_core::ports::PublishError;
use tokio::time::Instant;

use super::servers::{Handle, RedisOptions, Servers, UrlError};

/// Pause after a failure, without attempts to connect.
const PAUSE: Duration = Duration::from_millis(200);

/// Writes a record unless the key has a newer one; returns the revision of that, or 0. With a third argument the record
/// expires after so many seconds, and without it never, whatever the present one does.
///
/// Whatever the version of the present record, its second field is its kind and its third its
/// revision; the compact record of a campaign's link implies revision 1. A negative
/// record (404) is not newer than anything, and neither is one whose revision leaves none to get
/// ahead of it, a value that has no such fields, or one that is no string at all.
const PUBLISH: &str = r"
local present = redis.pcall('GET', KEYS[1])
if type(present) == 'string' then
    local kind, revision = string.match(present, '^[^ ]+ ([^ ]+) (%d+)$')
    if not kind then
        kind, revision = string.match(present, '^[^ ]+ ([^ ]+) (%d+) ')
    end
    if string.match(present, '^c%w+ ') then
        kind, revision = 'C', '1'
    end
    if kind and kind ~= '404' then
        local standing = tonumber(revision)
        if standing < 9007199254740991 and standing > tonumber(ARGV[2]) then
            return standing
        end
    end
end
if ARGV[3] then
    redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
else
    redis.call('SET', KEYS[1], ARGV[1])
end
return 0
";

/// A connection that is ready for use.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) redis: Handle,
    /// SHA-1 by which this server names the publishing script.
    pub(super) publish_sha: String,
    /// Number of this connection, counted from the first.
    pub(super) number: u64,
}

pub(super) struct Connection {
    servers: Servers,
    timeout: Duration,
    state: Mutex<State>,
    /// Held while connecting, so that one caller does it for all.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Time of the next attempt to connect.
    paused_until: Option<Instant>,
    /// The number of connections opened so far.
    opened: u64,
}

impl Connection {
    /// Connects at the first operation.
    pub(super) fn new(options: &RedisOptions, timeout: Duration) -> Result<Self, UrlError> {
        Ok(Self {
            servers: Servers::new(options)?,
            timeout,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    /// Runs an operation within the time limit.
    pub(super) async fn run<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(Open) -> Result<T, RedisError>,
    ) -> Result<T, PublishError> {
        // Which connection the operation has used, to give up that one and not its successor.
        let mut used = None;
        let attempt = async {
            let Some(open) = self.open().await? else {
                return Ok(None);
            };
            used = Some(open.number);
            work(open).await.map(Some)
        };
        match tokio::time::timeout(self.timeout, attempt).await {
            Ok(Ok(done)) => done.ok_or(PublishError::Away { operation }),
            Ok(Err(error)) => {
                // An answer such as OOM or READONLY comes over a connection that is in order.
                // READONLY, though, means that the server is not the master any more.
                if error.is_unrecoverable_error() || error.is_io_error() || is_demoted(&error) {
                    self.give_up(used);
                }
                let source = RedisError::into(error);
                Err(PublishError::Refused { operation, source })
            }
            Err(_elapsed) => {
                self.give_up(used);
                Err(timed_out(operation, self.timeout))
            }
        }
    }

    /// Closes the connection, if there is one, until it is needed again.
    pub(super) fn close(&self) {
        self.state.lock().open = None;
    }

    /// Returns a connection; `None` during the pause after a failure.
    async fn open(&self) -> Result<Option<Open>, RedisError> {
        if let Some(present) = self.present() {
            return Ok(present);
        }
        let _turn = self.connecting.lock().await;
        // The previous holder of the lock may have connected, or failed.
        if let Some(present) = self.present() {
            return Ok(present);
        }
        let mut redis = self.servers.connect().await?;
        let publish_sha = load_publish(&mut redis).await?;
        let mut state = self.state.lock();
        state.opened += 1;
        state.paused_until = None;
        state.open = Some(Open {
            redis,
            publish_sha,
            number: state.opened,
        });
        Ok(state.open.clone())
    }

    /// Returns the open connection, or none during the pause after a failure; `None` when it is
    /// time to connect.
    fn present(&self) -> Option<Option<Open>> {
        let state = self.state.lock();
        let is_paused = state.paused_until.is_some_and(|it| Instant::now() < it);
        (state.open.is_some() || is_paused).then(|| state.open.clone())
    }

    /// Closes the connection that has failed; `None` when there was none to be had.
    fn give_up(&self, number: Option<u64>) {
        let mut state = self.state.lock();
        if state.open.as_ref().map(|open| open.number) == number {
            state.open = None;
            state.paused_until = Some(Instant::now() + PAUSE);
        }
    }
}

/// Gives work a time limit.
pub(super) async fn limited<T>(
    operation: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, Box<dyn Error + Send + Sync>>>,
) -> Result<T, PublishError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(|source| PublishError::Refused { operation, source }),
        Err(_elapsed) => Err(timed_out(operation, limit)),
    }
}

fn timed_out(operation: &'static str, limit: Duration) -> PublishError {
    PublishError::Timeout {
        operation,
        limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    }
}

fn is_demoted(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::ReadOnly)
}

/// Gives the server [`PUBLISH`]; answers the name that it is called by.
pub(super) async fn load_publish(redis: &mut Handle) -> Result<String, RedisError> {
    redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(PUBLISH)
        .query_async(redis)
        .await
}
