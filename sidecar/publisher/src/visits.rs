//! The queue of visits: streams that the edge appends to.
//!
//! All sidecars read as one group, so that each entry goes to one of them. Settled entries are
//! removed once all earlier ones are settled, in every group.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use redis::streams::{
    StreamAutoClaimReply, StreamId, StreamInfoGroupsReply, StreamPendingReply, StreamRangeReply,
    StreamReadReply,
};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use shortlink_core::ports::{PublishError, QueueDepth, QueuedBatch, QueuedId, VisitQueue};
use vocabulary::KeyPrefix;
use vocabulary::visit::BATCH_FIELD;

use super::connection::{Connection, Open};
use super::failure::Failure;
use super::servers::{Servers, Topology};
use super::{UrlError, failure_error};

/// The group that all sidecars read as.
const GROUP: &str = "shortlink";

/// Removes idle readers, since each process has a name of its own. A script, because a removed
/// reader would lose entries delivered between the check and the removal.
const FORGET_READERS: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 then return end
for _, reader in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local fields = {}
    for place = 1, #reader, 2 do fields[reader[place]] = reader[place + 1] end
    if fields.pending == 0 and fields.idle > tonumber(ARGV[2]) then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], fields.name)
    end
end";

/// Id before all entries: the scan of pending entries begins here, and Redis returns it at the end.
const BEGINNING: &str = "0-0";

/// The streams of visits.
pub struct RedisVisits {
    connection: Connection,
    /// The key of each shard's stream.
    keys: Vec<String>,
    /// Name of this reader within its group.
    consumer: String,
}

impl RedisVisits {
    /// Reads so many streams of the server at `url`, or of those that are found through it, as
    /// `consumer`. Does not connect yet.
    ///
    /// # Errors
    /// Fails if the URL does not name a Redis server.
    pub fn new(
        url: &str,
        topology: &Topology,
        prefix: &KeyPrefix,
        timeout: Duration,
        shards: u16,
        consumer: String,
    ) -> Result<Self, UrlError> {
        let servers = Servers::new(url, topology).map_err(|source| UrlError { source })?;
        Ok(Self {
            connection: Connection::new(servers, timeout),
            keys: (0..shards.max(1))
                .map(|shard| prefix.visit_stream_key(shard))
                .collect(),
            consumer,
        })
    }

    fn error(&self, operation: &'static str, failure: Failure) -> PublishError {
        failure_error(operation, failure, &self.connection)
    }

    async fn run<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(Open) -> Result<T, RedisError>,
    ) -> Result<T, PublishError> {
        let done = self.connection.run(work).await;
        done.map_err(|failure| self.error(operation, failure))
    }

    /// Makes the group of a stream, from its beginning, and the stream if there is none.
    async fn make_group(&self, key: &str, mut open: Open) -> Result<(), RedisError> {
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(key).arg(GROUP).arg("0");
        command.arg("MKSTREAM");
        match command.query_async::<()>(&mut open.redis).await {
            // Another sidecar was faster.
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            done => done,
        }
    }

    /// Sends a command of the group, which is made if there is none.
    async fn ask<T: redis::FromRedisValue>(
        &self,
        key: &str,
        open: &Open,
        command: &redis::Cmd,
    ) -> Result<T, RedisError> {
        let mut redis = open.redis.clone();
        match command.query_async(&mut redis).await {
            Err(error) if is_no_group(&error) => {
                self.make_group(key, open.clone()).await?;
                command.query_async(&mut redis).await
            }
            answer => answer,
        }
    }

    fn batches(shard: usize, entries: Vec<StreamId>) -> Vec<QueuedBatch> {
        let entries = entries.into_iter();
        entries
            .map(|entry| QueuedBatch {
                id: QueuedId {
                    shard: shard as u16,
                    entry: entry.id.clone(),
                },
                // An entry without the field is passed on without frames.
                frames: match entry.map.get(BATCH_FIELD) {
                    Some(Value::BulkString(frames)) => frames.clone(),
                    _ => Vec::new(),
                },
            })
            .collect()
    }

    /// The smallest entry of a stream that some group has not settled.
    async fn first_unsettled(&self, key: &str, open: &Open) -> Result<Option<String>, RedisError> {
        let mut redis = open.redis.clone();
        let mut command = redis::cmd("XINFO");
        command.arg("GROUPS").arg(key);
        let groups: StreamInfoGroupsReply = match command.query_async(&mut redis).await {
            Err(error) if is_no_key(&error) => return Ok(None),
            groups => groups?,
        };
        let mut first: Option<(u64, u64)> = None;
        for group in groups.groups {
            let mut command = redis::cmd("XPENDING");
            command.arg(key).arg(&group.name);
            let pending: StreamPendingReply = command.query_async(&mut redis).await?;
            let next = match pending {
                StreamPendingReply::Data(data) => parts(&data.start_id),
                // Nothing is pending.
                _ => parts(&group.last_delivered_id).map(|(ms, number)| (ms, number + 1)),
            };
            first = match (first, next) {
                (Some(first), Some(next)) => Some(first.min(next)),
                (None, next) => next,
                // An unreadable id must not decide what is trimmed.
                (Some(_), None) => return Ok(None),
            };
        }
        Ok(first.map(|(ms, number)| format!("{ms}-{number}")))
    }
}

#[async_trait]
impl VisitQueue for RedisVisits {
    async fn take(&self, most: usize) -> Result<Vec<QueuedBatch>, PublishError> {
        let mut taken = Vec::new();
        for (shard, key) in self.keys.iter().enumerate() {
            let mut command = redis::cmd("XREADGROUP");
            command.arg("GROUP").arg(GROUP).arg(&self.consumer);
            command.arg("COUNT").arg(most).arg("STREAMS").arg(key);
            command.arg(">");
            let reply: Option<StreamReadReply> = self
                .run("read visits", async |open| {
                    self.ask(key, &open, &command).await
                })
                .await?;
            let keys = reply.map(|reply| reply.keys).unwrap_or_default();
            for stream in keys {
                taken.extend(Self::batches(shard, stream.ids));
            }
        }
        Ok(taken)
    }

    async fn take_over(
        &self,
        idle: Duration,
        most: usize,
    ) -> Result<Vec<QueuedBatch>, PublishError> {
        let mut taken = Vec::new();
        for (shard, key) in self.keys.iter().enumerate() {
            let mut from = BEGINNING.to_owned();
            // Each time Redis looks at some of what is taken: others may work on all of that.
            while taken.len() < most {
                let mut command = redis::cmd("XAUTOCLAIM");
                command.arg(key).arg(GROUP).arg(&self.consumer);
                command.arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
                command.arg(&from).arg("COUNT").arg(most - taken.len());
                let reply: StreamAutoClaimReply = self
                    .run("take visits over", async |open| {
                        self.ask(key, &open, &command).await
                    })
                    .await?;
                taken.extend(Self::batches(shard, reply.claimed));
                from = reply.next_stream_id;
                if from == BEGINNING {
                    break;
                }
            }
        }
        Ok(taken)
    }

    async fn settle(&self, batches: &[QueuedId]) -> Result<(), PublishError> {
        for (shard, key) in self.keys.iter().enumerate() {
            let entries: Vec<&str> = batches
                .iter()
                .filter(|id| usize::from(id.shard) == shard)
                .map(|id| id.entry.as_str())
                .collect();
            if entries.is_empty() {
                continue;
            }
            let mut command = redis::cmd("XACK");
            command.arg(key).arg(GROUP).arg(entries);
            self.run("settle visits", async |mut open| {
                command.query_async::<()>(&mut open.redis).await
            })
            .await?;
        }
        Ok(())
    }

    async fn trim(&self) -> Result<(), PublishError> {
        for key in &self.keys {
            self.run("trim the visits", async |mut open| {
                let Some(first) = self.first_unsettled(key, &open).await? else {
                    return Ok(());
                };
                let mut command = redis::cmd("XTRIM");
                command.arg(key).arg("MINID").arg(first);
                command.query_async(&mut open.redis).await
            })
            .await?;
        }
        Ok(())
    }

    async fn forget_readers(&self, idle: Duration) -> Result<(), PublishError> {
        for key in &self.keys {
            let mut command = redis::cmd("EVAL");
            command.arg(FORGET_READERS).arg(1).arg(key).arg(GROUP);
            command.arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
            self.run("forget readers of visits", async |open| {
                self.ask::<Value>(key, &open, &command).await
            })
            .await?;
        }
        Ok(())
    }

    async fn depth(&self) -> Result<QueueDepth, PublishError> {
        let mut depth = QueueDepth::default();
        for key in &self.keys {
            let (batches, oldest) = self
                .run("look at the visits", async |mut open| {
                    let Some(first) = self.first_unsettled(key, &open).await? else {
                        return Ok((0, None));
                    };
                    let mut range = redis::cmd("XRANGE");
                    range.arg(key).arg(first).arg("+").arg("COUNT").arg(1);
                    let range: StreamRangeReply = range.query_async(&mut open.redis).await?;
                    let Some(oldest) = range.ids.first() else {
                        return Ok((0, None));
                    };
                    // Settled entries are trimmed soon, so the length is about that of the backlog.
                    let mut length = redis::cmd("XLEN");
                    let length: u64 = length.arg(key).query_async(&mut open.redis).await?;
                    Ok((length, parts(&oldest.id)))
                })
                .await?;
            depth.batches += batches;
            let oldest = oldest
                .and_then(|(ms, _)| i64::try_from(ms).ok())
                .and_then(|ms| Timestamp::from_millisecond(ms).ok());
            depth.oldest = match (depth.oldest, oldest) {
                (Some(known), Some(other)) => Some(known.min(other)),
                (known, other) => known.or(other),
            };
        }
        Ok(depth)
    }
}

/// The time and the number of an entry.
fn parts(entry: &str) -> Option<(u64, u64)> {
    let (ms, number) = entry.split_once('-')?;
    Some((ms.parse().ok()?, number.parse().ok()?))
}

fn is_no_group(error: &RedisError) -> bool {
    error.code() == Some("NOGROUP")
}

pub(super) fn is_no_key(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError)
        && error
            .detail()
            .is_some_and(|detail| detail.contains("no such key"))
}

#[cfg(test)]
mod tests;
