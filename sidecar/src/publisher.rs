//! Writes link records into Redis. Nothing else in the sidecar does.
//!
//! What is kept there, under the names of [`vocabulary::keys`]:
//!
//! - `<prefix>l:<code>`: a link's record, without an expiry in Redis. Written by [`PUBLISH`], which
//!   never puts an older revision in place of a newer one.
//! - the same key with the negative record `1 404 0` and a short expiry, for a code that nobody
//!   knows; written only where nothing stands.

mod connection;

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use vocabulary::{Code, KeyPrefix, Record};

use crate::domain::link::Link;
use crate::domain::ports::{PublishError, Publisher};
use connection::{Connection, Failure};

/// Puts a record in place unless a newer one stands there.
///
/// Whatever the version of the record that stands there, its second field is its kind and its
/// third its revision. A negative record (404) is not newer than anything, and neither is a value
/// that has no such fields, or is no string at all.
const PUBLISH: &str = r"
local present = redis.pcall('GET', KEYS[1])
if type(present) == 'string' then
    local kind, revision = string.match(present, '^[^ ]+ ([^ ]+) (%d+)$')
    if not kind then
        kind, revision = string.match(present, '^[^ ]+ ([^ ]+) (%d+) ')
    end
    if kind and kind ~= '404' then
        local standing = tonumber(revision)
        if standing <= 9007199254740991 and standing > tonumber(ARGV[2]) then
            return 0
        end
    end
end
redis.call('SET', KEYS[1], ARGV[1])
return 1
";

/// The server that link records are written to.
pub struct RedisPublisher {
    connection: Connection,
    prefix: KeyPrefix,
    negative_ttl_s: u64,
}

impl RedisPublisher {
    /// Writes to the server at `url` (`redis://…` or `redis+unix://…`), giving each operation
    /// `timeout`. Does not connect yet.
    ///
    /// # Errors
    /// When the URL is not one of a Redis server.
    pub fn new(
        url: &str,
        prefix: KeyPrefix,
        timeout: Duration,
        negative_ttl_s: u64,
    ) -> Result<Self, UrlError> {
        let client = redis::Client::open(url).map_err(|source| UrlError { source })?;
        Ok(Self {
            connection: Connection::new(client, timeout),
            prefix,
            negative_ttl_s,
        })
    }

    fn error(&self, operation: &'static str, failure: Failure) -> PublishError {
        match failure {
            Failure::Timeout => PublishError::Timeout {
                operation,
                limit_ms: self.connection.timeout_ms(),
            },
            Failure::Away => PublishError::Away { operation },
            Failure::Refused(source) => PublishError::Refused { operation, source },
        }
    }

    fn publish_pipeline(&self, links: &[Link], sha: &str) -> redis::Pipeline {
        let mut pipeline = redis::Pipeline::with_capacity(links.len());
        for link in links {
            pipeline
                .cmd("EVALSHA")
                .arg(sha)
                .arg(1)
                .arg(self.prefix.link_key(&link.code))
                .arg(link.record().to_vec())
                .arg(link.revision)
                .ignore();
        }
        pipeline
    }
}

#[async_trait]
impl Publisher for RedisPublisher {
    async fn publish(&self, links: &[Link]) -> Result<(), PublishError> {
        self.connection
            .run(async |mut connection| {
                let pipeline = self.publish_pipeline(links, &connection.publish_sha);
                let done = pipeline.exec_async(&mut connection.redis).await;
                if !done.as_ref().is_err_and(is_noscript) {
                    return done;
                }
                // Somebody has flushed the server's scripts.
                load_publish(&mut connection.redis).await?;
                pipeline.exec_async(&mut connection.redis).await
            })
            .await
            .map_err(|failure| self.error("store link records", failure))
    }

    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError> {
        self.connection
            .run(async |mut connection| {
                redis::cmd("SET")
                    .arg(self.prefix.link_key(code))
                    .arg(Record::Unknown.to_vec())
                    .arg("NX")
                    .arg("EX")
                    .arg(self.negative_ttl_s)
                    .exec_async(&mut connection.redis)
                    .await
            })
            .await
            .map_err(|failure| self.error("store a negative record", failure))
    }

    async fn incarnation(&self) -> Result<String, PublishError> {
        let operation = "say which server it is";
        let info: String = self
            .connection
            .run(async |mut connection| {
                redis::cmd("INFO")
                    .arg("server")
                    .query_async(&mut connection.redis)
                    .await
            })
            .await
            .map_err(|failure| self.error(operation, failure))?;
        info.lines()
            .find_map(|line| line.strip_prefix("run_id:"))
            .map(|run_id| run_id.trim_end().to_owned())
            .ok_or_else(|| PublishError::Refused {
                operation,
                source: "INFO server has no run_id".into(),
            })
    }
}

/// The URL is not one of a Redis server. Does not show the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
#[error("redis.url must be like redis://127.0.0.1:6379/0 or redis+unix:///run/redis.sock")]
pub struct UrlError {
    /// What is wrong with it.
    #[source]
    pub source: RedisError,
}

fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Gives the server [`PUBLISH`]; answers the name that it is called by.
async fn load_publish(redis: &mut redis::aio::MultiplexedConnection) -> Result<String, RedisError> {
    redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(PUBLISH)
        .query_async(redis)
        .await
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Refused(Box::<dyn Error + Send + Sync>::from(error))
    }
}

#[cfg(test)]
mod tests;
