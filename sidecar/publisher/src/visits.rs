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
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use shortlink_core::ports::{EntryId, PublishError, QueueDepth, QueuedBatch, QueuedId, VisitQueue};
use vocabulary::KeyPrefix;
use vocabulary::visit::BATCH_FIELD;

use super::connection::{Connection, Open};
use super::servers::{Handle, RedisOptions, UrlError};

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
    pub fn new(options: &RedisOptions, shards: u16, consumer: String) -> Result<Self, UrlError> {
        Ok(Self {
            connection: Connection::new(options, options.timeout)?,
            keys: stream_keys(&options.prefix, shards),
            consumer,
        })
    }

    /// Sends a command of the group of a stream. If there is none, the group is made, from the
    /// stream's beginning, and the stream with it.
    async fn ask<T: redis::FromRedisValue>(
        &self,
        operation: &'static str,
        key: &str,
        command: &Cmd,
    ) -> Result<T, PublishError> {
        let work = async |Open { mut redis, .. }: Open| match command.query_async(&mut redis).await
        {
            Err(error) if error.code() == Some("NOGROUP") => {
                let make = Cmd::xgroup_create_mkstream(key, GROUP, "0");
                match make.query_async::<()>(&mut redis).await {
                    // Another sidecar was faster.
                    Err(error) if error.code() == Some("BUSYGROUP") => {}
                    made => made?,
                }
                command.query_async(&mut redis).await
            }
            answer => answer,
        };
        self.connection.run(operation, work).await
    }

    /// Returns the streams that have some of these batches, each with their entries.
    fn entries<'a>(
        &'a self,
        batches: &'a [QueuedId],
    ) -> impl Iterator<Item = (&'a String, Vec<&'a str>)> {
        let streams = self.keys.iter().enumerate();
        let streams = streams.map(|(shard, key)| {
            let entries = batches
                .iter()
                .filter(move |id| usize::from(id.shard) == shard);
            (key, entries.map(|id| id.entry.as_str()).collect())
        });
        streams.filter(|(_, entries): &(_, Vec<_>)| !entries.is_empty())
    }

    fn batches(shard: usize, entries: Vec<StreamId>) -> impl Iterator<Item = QueuedBatch> {
        entries.into_iter().map(move |entry| QueuedBatch {
            // An entry without the field is passed on without frames.
            frames: frames(&entry),
            id: QueuedId {
                shard: shard as u16,
                entry: entry.id,
            },
        })
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
            let reply: Option<StreamReadReply> = self.ask("read visits", key, &command).await?;
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
                let reply: StreamAutoClaimReply =
                    self.ask("take visits over", key, &command).await?;
                taken.extend(Self::batches(shard, reply.claimed));
                from = reply.next_stream_id;
                if from == BEGINNING {
                    break;
                }
            }
        }
        Ok(taken)
    }

    async fn renew(&self, batches: &[QueuedId]) -> Result<(), PublishError> {
        for (key, entries) in self.entries(batches) {
            let mut command = redis::cmd("XCLAIM");
            command.arg(key).arg(GROUP).arg(&self.consumer).arg(0);
            command.arg(entries).arg("JUSTID");
            self.ask::<Value>("renew visits", key, &command).await?;
        }
        Ok(())
    }

    async fn settle(&self, batches: &[QueuedId]) -> Result<(), PublishError> {
        for (key, entries) in self.entries(batches) {
            let command = Cmd::xack(key, GROUP, &entries);
            let settled = self.connection.run("settle visits", async |mut open| {
                command.exec_async(&mut open.redis).await
            });
            settled.await?;
        }
        Ok(())
    }

    async fn trim(&self) -> Result<(), PublishError> {
        for key in &self.keys {
            let trimmed = self.connection.run("trim the visits", async |mut open| {
                let Some(first) = first_unsettled(key, &mut open.redis).await? else {
                    return Ok(());
                };
                let mut command = redis::cmd("XTRIM");
                command.arg(key).arg("MINID").arg(first.to_string());
                command.query_async(&mut open.redis).await
            });
            trimmed.await?;
        }
        Ok(())
    }

    async fn forget_readers(&self, idle: Duration) -> Result<(), PublishError> {
        for key in &self.keys {
            let mut command = redis::cmd("EVAL");
            command.arg(FORGET_READERS).arg(1).arg(key).arg(GROUP);
            command.arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
            self.ask::<Value>("forget readers of visits", key, &command)
                .await?;
        }
        Ok(())
    }

    async fn depth(&self) -> Result<QueueDepth, PublishError> {
        let mut depth = QueueDepth::default();
        for key in &self.keys {
            let look = async |mut open: Open| {
                let Some(first) = first_unsettled(key, &mut open.redis).await? else {
                    return Ok((0, None));
                };
                let range = Cmd::xrange_count(key, first.to_string(), "+", 1);
                let range: StreamRangeReply = range.query_async(&mut open.redis).await?;
                let Some(oldest) = range.ids.first() else {
                    return Ok((0, None));
                };
                // Settled entries are trimmed soon, so the length is about that of the backlog.
                let length = Cmd::xlen(key).query_async(&mut open.redis).await?;
                Ok((length, EntryId::parse(&oldest.id)))
            };
            let (batches, oldest) = self.connection.run("look at the visits", look).await?;
            depth.batches += batches;
            let oldest = oldest
                .and_then(|entry| i64::try_from(entry.ms).ok())
                .and_then(|ms| Timestamp::from_millisecond(ms).ok());
            depth.oldest = depth.oldest.into_iter().chain(oldest).min();
        }
        Ok(depth)
    }
}

/// The smallest entry of a stream that some group has not settled.
async fn first_unsettled(key: &str, redis: &mut Handle) -> Result<Option<EntryId>, RedisError> {
    let groups: StreamInfoGroupsReply = match Cmd::xinfo_groups(key).query_async(redis).await {
        Err(error) if is_no_key(&error) => return Ok(None),
        groups => groups?,
    };
    let mut first: Option<EntryId> = None;
    for group in groups.groups {
        let pending = Cmd::xpending(key, &group.name).query_async(redis).await?;
        let next = match pending {
            StreamPendingReply::Data(data) => EntryId::parse(&data.start_id),
            // Nothing is pending.
            _ => EntryId::parse(&group.last_delivered_id).map(|last| EntryId {
                number: last.number + 1,
                ..last
            }),
        };
        // An unreadable id must not decide what is trimmed.
        if next.is_none() {
            return Ok(None);
        }
        first = first.into_iter().chain(next).min();
    }
    Ok(first)
}

/// The keys of so many streams.
pub(super) fn stream_keys(prefix: &KeyPrefix, shards: u16) -> Vec<String> {
    let shards = 0..shards.max(1);
    shards.map(|shard| prefix.visit_stream_key(shard)).collect()
}

/// The frames of an entry; none if it is no batch.
pub(super) fn frames(entry: &StreamId) -> Vec<u8> {
    match entry.map.get(BATCH_FIELD) {
        Some(Value::BulkString(frames)) => frames.clone(),
        _ => Vec::new(),
    }
}

pub(super) fn is_no_key(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError)
        && error
            .detail()
            .is_some_and(|detail| detail.contains("no such key"))
}

#[cfg(test)]
mod tests;
