//! Writes link records into Redis. Nothing else in the sidecar does.
//!
//! The keys, named by [`vocabulary::keys`]:
//!
//! - `<prefix>l:<code>`: a link's record, without an expiry in Redis. Written by a script, which
//!   never puts an older revision in place of a newer one.
//! - the same key with the negative record `1 404 0` and a short expiry, for an unknown code;
//!   written only where the key is empty.
//! - `<prefix>c:<id>`: a campaign's record, written in the same way.
//! - `<prefix>n:<name>`: a counter that all sidecars share.
#![forbid(unsafe_code)]

mod condition;
mod connection;
mod index;
mod servers;
mod tail;
mod visits;
mod wire;

use async_trait::async_trait;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use shortlink_core::campaign::Campaign;
use shortlink_core::link::Link;
use shortlink_core::ports::{PublishError, Publisher};
use vocabulary::{Code, KeyPrefix, Record};

use connection::{Connection, load_publish};
use servers::Handle;

pub use condition::{ConditionError, ServerCondition, examine};
pub use index::RedisIndex;
pub use servers::{RedisOptions, Topology, UrlError};
pub use tail::RedisTail;
pub use visits::RedisVisits;

/// Moves a counter forward, to a floor first.
const ADVANCE: &str = r"
local standing = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
if standing < tonumber(ARGV[1]) then
    standing = tonumber(ARGV[1])
end
standing = standing + tonumber(ARGV[2])
redis.call('SET', KEYS[1], string.format('%.0f', standing))
return standing
";

/// The servers that link records are written to.
pub struct RedisPublisher {
    connection: Connection,
    prefix: KeyPrefix,
    negative_ttl_s: u64,
}

impl RedisPublisher {
    /// Writes to the servers. Does not connect yet.
    ///
    /// # Errors
    /// Fails if the URL does not name a Redis server.
    pub fn new(options: &RedisOptions, negative_ttl_s: u64) -> Result<Self, UrlError> {
        Ok(Self {
            connection: Connection::new(options, options.timeout)?,
            prefix: options.prefix.clone(),
            negative_ttl_s,
        })
    }

    async fn publish_records(&self, records: Vec<KeyedRecord>) -> Result<(), PublishError> {
        let written = publish_all(&self.connection, "store records", &records);
        written.await.map(drop)
    }
}

/// A record and where it goes.
struct KeyedRecord {
    key: String,
    record: Vec<u8>,
    revision: u64,
}

impl KeyedRecord {
    fn of_campaign(prefix: &KeyPrefix, campaign: &Campaign) -> Self {
        Self {
            key: prefix.campaign_key(campaign.id),
            record: campaign.record().to_vec(),
            revision: campaign.revision,
        }
    }
}

/// Writes records unless the keys have newer ones; returns 0 for those that do, else 1.
async fn publish_all(
    connection: &Connection,
    operation: &'static str,
    records: &[KeyedRecord],
) -> Result<Vec<Value>, PublishError> {
    let run = async |redis: &mut Handle, sha: &str| {
        let commands = records.iter().map(|record| {
            let mut command = redis::cmd("EVALSHA");
            command.arg(sha).arg(1).arg(&record.key);
            command.arg(&record.record).arg(record.revision);
            command
        });
        redis.send(commands.collect()).await
    };
    connection
        .run(operation, async |mut open| {
            let sha = &open.publish_sha;
            let done = run(&mut open.redis, sha).await;
            if !done.as_ref().is_err_and(is_noscript) {
                return done;
            }
            // A server has lost its scripts by a flush, or is new.
            load_publish(&mut open.redis).await?;
            run(&mut open.redis, sha).await
        })
        .await
}

#[async_trait]
impl Publisher for RedisPublisher {
    async fn publish_new(&self, links: &[Link]) -> Result<(), PublishError> {
        let commands = links.iter().map(|link| {
            let mut command = redis::cmd("SET");
            command.arg(self.prefix.link_key(&link.code));
            command.arg(link.record().to_vec()).arg("NX");
            command
        });
        let commands = commands.collect();
        let answers = self
            .connection
            .run("store link records", async |mut open| {
                open.redis.send(commands).await
            })
            .await?;
        // A negative record was written before the link existed, or the link has changed since.
        let left_out = links.iter().zip(answers);
        let left_out = left_out.filter(|(_, answer)| *answer != Value::Okay);
        let left_out: Vec<Link> = left_out.map(|(link, _)| link.clone()).collect();
        if left_out.is_empty() {
            return Ok(());
        }
        self.publish(&left_out).await
    }

    async fn publish(&self, links: &[Link]) -> Result<(), PublishError> {
        let records = links.iter().map(|link| KeyedRecord {
            key: self.prefix.link_key(&link.code),
            record: link.record().to_vec(),
            revision: link.revision,
        });
        self.publish_records(records.collect()).await
    }

    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<(), PublishError> {
        let records = campaigns.iter();
        let records = records.map(|campaign| KeyedRecord::of_campaign(&self.prefix, campaign));
        self.publish_records(records.collect()).await
    }

    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError> {
        let mut command = redis::cmd("SET");
        command.arg(self.prefix.link_key(code));
        command.arg(Record::Unknown.to_vec());
        command.arg("NX").arg("EX").arg(self.negative_ttl_s);
        self.connection
            .run("store a negative record", async |mut open| {
                command.exec_async(&mut open.redis).await
            })
            .await
    }

    async fn advance(&self, counter: &str, floor: u64, by: u64) -> Result<u64, PublishError> {
        let mut command = redis::cmd("EVAL");
        command.arg(ADVANCE).arg(1);
        command.arg(self.prefix.counter_key(counter));
        command.arg(floor).arg(by);
        self.connection
            .run("count", async |mut open| {
                command.query_async(&mut open.redis).await
            })
            .await
    }

    async fn incarnation(&self) -> Result<String, PublishError> {
        ask_incarnation(&self.connection).await
    }
}

/// Asks the servers which start of theirs this is.
async fn ask_incarnation(connection: &Connection) -> Result<String, PublishError> {
    let operation = "report its identity";
    let info: Value = connection
        .run(operation, async |mut open| {
            let mut command = redis::cmd("INFO");
            command.arg("server").query_async(&mut open.redis).await
        })
        .await?;
    // One server answers with a text, a cluster with one for each of its nodes.
    let mut run_ids = Vec::new();
    collect_run_ids(&info, &mut run_ids);
    run_ids.sort_unstable();
    if run_ids.is_empty() {
        return Err(PublishError::Refused {
            operation,
            source: "INFO server has no run_id".into(),
        });
    }
    Ok(run_ids.join(" "))
}

/// Finds the run ids in whatever `INFO server` was answered.
fn collect_run_ids(info: &Value, run_ids: &mut Vec<String>) {
    let text = match info {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Map(nodes) => {
            for (_, info) in nodes {
                collect_run_ids(info, run_ids);
            }
            return;
        }
        _ => return,
    };
    let run_id = text.lines().find_map(|line| line.strip_prefix("run_id:"));
    run_ids.extend(run_id.map(|run_id| run_id.trim_end().to_owned()));
}

fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests;
