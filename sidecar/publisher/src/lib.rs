//! Writes link records into Redis. Nothing else in the sidecar does.
//!
//! The keys, named by [`vocabulary::keys`]:
//!
//! - `<prefix>l:<code>`: a link's record, with an expiry in Redis if the link has ended
//!   ([`shortlink_core::ended`]). Written by a script, which never puts an older revision in place of a newer one.
//! - the same key with the negative record `1 404 <generation>` and a short expiry, for an unknown code;
//!   written only where the key is empty.
//! - `<prefix>c:<id>`: a campaign's record, written in the same way.
//! - `<prefix>n:<name>`: a counter that all sidecars share.
//! - `<prefix>gen`: the generation, watermark and beat of the data set.
#![forbid(unsafe_code)]

mod cluster;
mod condition;
mod connection;
mod generations;
mod index;
mod servers;
mod tail;
mod tls;
mod visits;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::Mutex;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use shortlink_core::campaign::Campaign;
use shortlink_core::clock::Clock;
use shortlink_core::ended::{EndedDays, Stay};
use shortlink_core::link::{Link, since_1970};
use shortlink_core::ports::{DataSet, Mark, PublishError, Published, Publisher, Session};
use vocabulary::{Code, KeyPrefix, Record};

use connection::{Connection, load_publish};
use servers::Handle;

pub use condition::{ConditionError, ServerCondition, examine};
pub use index::RedisIndex;
pub use servers::{RedisOptions, Topology, UrlError};
pub use tail::RedisTail;
pub use tls::Certificates;
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
    ended_days: EndedDays,
    /// The clock that links end by.
    clock: Arc<dyn Clock>,
    /// The connection that was marked last, and the generation of its data set.
    current: Mutex<(Session, u64)>,
}

impl RedisPublisher {
    /// Writes to the servers. Does not connect yet.
    ///
    /// # Errors
    /// Fails if the URL does not name a Redis server.
    pub fn new(
        options: &RedisOptions,
        negative_ttl_s: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, UrlError> {
        Ok(Self {
            connection: Connection::new(options, options.timeout)?,
            prefix: options.prefix.clone(),
            negative_ttl_s,
            ended_days: options.ended_days,
            clock,
            current: Mutex::default(),
        })
    }

    /// The records of links as they are now.
    fn records_of(&self, links: &[Link]) -> Vec<KeyedRecord> {
        let now = self.clock.now();
        let records = links
            .iter()
            .map(|link| KeyedRecord::of_link(&self.prefix, link, self.ended_days, now));
        records.collect()
    }

    /// Writes records. A server that is full refuses them all; then those that stand there and may not are
    /// deleted. An error if any may not be.
    async fn publish_records(&self, records: Vec<KeyedRecord>) -> Result<Published, PublishError> {
        let written = publish_all(&self.connection, "store records", &records).await;
        let (session, answers) = match written {
            Err(error) if is_full(&error) => {
                let stale = records
                    .iter()
                    .filter(|record| record.is_withdrawn_when_full);
                let stale: Vec<&str> = stale.map(|record| record.key.as_str()).collect();
                let session = self.delete(&stale).await?;
                if stale.len() < records.len() {
                    return Err(error);
                }
                return Ok(Published {
                    session,
                    is_withdrawn: true,
                    ..Published::default()
                });
            }
            written => written?,
        };
        let newer = answers.iter().enumerate();
        let newer = newer.filter_map(|(place, answer)| match answer {
            Value::Int(revision) if *revision > 0 => Some((place, revision.cast_unsigned())),
            _ => None,
        });
        Ok(Published {
            session,
            newer: newer.collect(),
            is_withdrawn: false,
        })
    }

    async fn delete(&self, keys: &[&str]) -> Result<Session, PublishError> {
        let commands = keys.iter().map(|key| {
            let mut command = redis::cmd("DEL");
            command.arg(key);
            command
        });
        let commands: Vec<_> = commands.collect();
        self.connection
            .run("delete records", async |mut open| {
                if !commands.is_empty() {
                    open.redis.send(commands).await?;
                }
                Ok(Session(open.number))
            })
            .await
    }
}

/// A record and where it goes.
struct KeyedRecord {
    key: String,
    record: Vec<u8>,
    revision: u64,
    /// The seconds after which Redis deletes it, if it does.
    expiry_s: Option<u64>,
    /// The fallback can answer instead. It cannot for all links of a campaign at once, so that only the record of
    /// a campaign that does not redirect is withdrawn.
    is_withdrawn_when_full: bool,
}

impl KeyedRecord {
    fn of_link(prefix: &KeyPrefix, link: &Link, days: EndedDays, now: Timestamp) -> Self {
        let stay = days.stay(link.ended_s(now), since_1970(now));
        let record = match stay {
            // The campaign of a link may have a target for those that have expired.
            Stay::Over if link.destination.campaign().is_none() => Record::Revoked {
                revision: link.revision,
            },
            _ => link.record(),
        };
        Self {
            key: prefix.link_key(&link.code),
            record: record.to_vec(),
            revision: link.revision,
            expiry_s: stay.expiry_s(),
            is_withdrawn_when_full: true,
        }
    }

    fn of_campaign(prefix: &KeyPrefix, campaign: &Campaign) -> Self {
        Self {
            key: prefix.campaign_key(campaign.id),
            record: campaign.record().to_vec(),
            revision: campaign.revision,
            expiry_s: None,
            is_withdrawn_when_full: campaign.paused_at.is_some() || campaign.revoked_at.is_some(),
        }
    }
}

/// Writes records unless the keys have newer ones; returns the revisions of these, or 0.
async fn publish_all(
    connection: &Connection,
    operation: &'static str,
    records: &[KeyedRecord],
) -> Result<(Session, Vec<Value>), PublishError> {
    let run = async |redis: &mut Handle, sha: &str| {
        let commands = records.iter().map(|record| {
            let mut command = redis::cmd("EVALSHA");
            command.arg(sha).arg(1).arg(&record.key);
            command.arg(&record.record).arg(record.revision);
            command.arg(record.expiry_s);
            command
        });
        redis.send(commands.collect()).await
    };
    connection
        .run(operation, async |mut open| {
            let session = Session(open.number);
            let sha = &open.publish_sha;
            let done = run(&mut open.redis, sha).await;
            if !done.as_ref().is_err_and(is_noscript) {
                return Ok((session, done?));
            }
            // A server has lost its scripts by a flush, or is new.
            load_publish(&mut open.redis).await?;
            Ok((session, run(&mut open.redis, sha).await?))
        })
        .await
}

#[async_trait]
impl Publisher for RedisPublisher {
    async fn publish_new(&self, links: &[Link]) -> Result<Published, PublishError> {
        let commands = self.records_of(links).into_iter().map(|record| {
            let mut command = redis::cmd("SET");
            command.arg(record.key).arg(record.record).arg("NX");
            if let Some(seconds) = record.expiry_s {
                command.arg("EX").arg(seconds);
            }
            command
        });
        let commands = commands.collect();
        let (session, answers) = self
            .connection
            .run("store link records", async |mut open| {
                let session = Session(open.number);
                Ok((session, open.redis.send(commands).await?))
            })
            .await?;
        // A negative record was written before the link existed, or the link has changed since.
        let left_out = links.iter().zip(answers).enumerate();
        let left_out = left_out.filter(|(_, (_, answer))| *answer != Value::Okay);
        let (places, left_out): (Vec<usize>, Vec<Link>) = left_out
            .map(|(place, (link, _))| (place, link.clone()))
            .unzip();
        if left_out.is_empty() {
            return Ok(Published {
                session,
                ..Published::default()
            });
        }
        let mut published = self.publish(&left_out).await?;
        for (place, _) in &mut published.newer {
            *place = places[*place];
        }
        if published.session != session {
            // Part of the links went to what may be another server.
            published.session = Session::default();
        }
        Ok(published)
    }

    async fn publish(&self, links: &[Link]) -> Result<Published, PublishError> {
        self.publish_records(self.records_of(links)).await
    }

    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<Published, PublishError> {
        let records = campaigns.iter();
        let records = records.map(|campaign| KeyedRecord::of_campaign(&self.prefix, campaign));
        self.publish_records(records.collect()).await
    }

    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError> {
        let (session, generation) = *self.current.lock();
        let record = Record::Unknown { generation };
        let mut command = redis::cmd("SET");
        command.arg(self.prefix.link_key(code)).arg(record.to_vec());
        command.arg("NX").arg("EX").arg(self.negative_ttl_s);
        self.connection
            .run("store a negative record", async |mut open| {
                // Of another data set than the one that was inspected no generation is known.
                if generation > 0 && session == Session(open.number) {
                    command.exec_async(&mut open.redis).await?;
                }
                Ok(())
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

    async fn inspect(&self) -> Result<(Session, DataSet), PublishError> {
        generations::inspect(&self.connection, &self.prefix).await
    }

    async fn mark(&self, mark: &Mark) -> Result<bool, PublishError> {
        let is_marked = generations::mark(&self.connection, &self.prefix, mark).await?;
        if is_marked {
            *self.current.lock() = (mark.session, mark.generation);
        }
        Ok(is_marked)
    }
}

/// Reports whether a server has refused to store anything for want of memory.
fn is_full(error: &PublishError) -> bool {
    let PublishError::Refused { source, .. } = error else {
        return false;
    };
    let errors = source.downcast_ref::<RedisError>().cloned();
    let errors = errors.and_then(RedisError::into_server_errors);
    errors.is_some_and(|errors| errors.iter().any(|(_, error)| error.code() == "OOM"))
}

fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests;
