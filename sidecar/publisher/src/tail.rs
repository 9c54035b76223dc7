//! Looks at the streams of visits without taking anything.
//!
//! The streams are polled instead of read with `BLOCK`: in a cluster those of a node share a
//! connection, where a blocked read would delay the others, and polling detects a server that hangs
//! within one time limit.

use std::collections::HashMap;

use async_trait::async_trait;
use redis::streams::{StreamId, StreamRangeReply, StreamReadReply};
use redis::{Cmd, ErrorKind, RedisError, Value};
use shortlink_core::ports::{EntryId, PublishError, StreamBounds, TailBatch, VisitTail};

use super::connection::{Connection, Open};
use super::servers::{RedisOptions, UrlError};
use super::visits::{frames, is_no_key, stream_keys};

/// Read-only view of the streams of visits.
pub struct RedisTail {
    connection: Connection,
    /// The key of each stream.
    keys: Vec<String>,
}

impl RedisTail {
    /// Reads so many streams of the server at `url`, or of those that are found through it. Does
    /// not connect yet.
    ///
    /// # Errors
    /// Fails if the URL does not name a Redis server.
    pub fn new(options: &RedisOptions, shards: u16) -> Result<Self, UrlError> {
        Ok(Self {
            connection: Connection::new(options, options.timeout)?,
            keys: stream_keys(&options.prefix, shards),
        })
    }
}

#[async_trait]
impl VisitTail for RedisTail {
    fn streams(&self) -> u16 {
        u16::try_from(self.keys.len()).unwrap_or(u16::MAX)
    }

    async fn bounds(&self) -> Result<Vec<StreamBounds>, PublishError> {
        let mut all = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let bounds = self
                .connection
                .run("find the ends of the visits", async |open| {
                    bounds(key, open).await
                });
            all.push(bounds.await?);
        }
        Ok(all)
    }

    async fn read(
        &self,
        stream: u16,
        after: EntryId,
        most: usize,
    ) -> Result<Vec<TailBatch>, PublishError> {
        let Some(key) = self.keys.get(usize::from(stream)) else {
            return Ok(Vec::new());
        };
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(most).arg("STREAMS").arg(key);
        command.arg(after.to_string());
        let reply: Option<StreamReadReply> = self
            .connection
            .run("look on at visits", async |mut open| {
                command.query_async(&mut open.redis).await
            })
            .await?;
        let streams = reply.map(|reply| reply.keys).unwrap_or_default();
        let entries = streams.into_iter().flat_map(|stream| stream.ids);
        Ok(entries.filter_map(|it| batch(stream, &it)).collect())
    }

    fn close(&self) {
        self.connection.close();
    }
}

async fn bounds(key: &str, mut open: Open) -> Result<StreamBounds, RedisError> {
    let range = Cmd::xrange_count(key, "-", "+", 1);
    let range: StreamRangeReply = range.query_async(&mut open.redis).await?;
    let info = Cmd::xinfo_stream(key).query_async(&mut open.redis).await;
    let info: HashMap<String, Value> = match info {
        Err(error) if is_no_key(&error) => return Ok(StreamBounds::default()),
        info => info?,
    };
    let last = match info.get("last-generated-id") {
        Some(Value::BulkString(id)) => str::from_utf8(id).ok().and_then(EntryId::parse),
        _ => None,
    };
    let unreadable = "a stream has no last-generated-id";
    Ok(StreamBounds {
        first: range.ids.first().and_then(|it| EntryId::parse(&it.id)),
        last: last
            .ok_or_else(|| RedisError::from((ErrorKind::UnexpectedReturnType, unreadable)))?,
    })
}

fn batch(stream: u16, entry: &StreamId) -> Option<TailBatch> {
    Some(TailBatch {
        stream,
        entry: EntryId::parse(&entry.id)?,
        frames: frames(entry),
    })
}

#[cfg(test)]
mod tests;
