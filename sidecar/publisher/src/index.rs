//! Looks after the records of many links: fills, compares, lists and removes.
//!
//! Connections of its own carry what it asks, so that a link that is published meanwhile does not
//! wait behind thousands of others. Where there is one server (or one master), commands are packed
//! and replies read by [`super::wire`]; a cluster is asked through the library, command by
//! command.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::{RedisError, Value};
use shortlink_core::campaign::Campaign;
use shortlink_core::ports::{Filled, MAX_TOGETHER, PublishError, RecordIndex, Stood};
use shortlink_core::records::{Drift, Records, Standing};
use tokio::sync::mpsc;
use vocabulary::{CampaignId, KeyPrefix};

use super::connection::Connection;
use super::failure::Failure;
use super::servers::{Handle, Master, Servers, Topology};
use super::wire::{Commands, Reply, Wire, unexpected};
use super::{PUBLISH, UrlError, ask_incarnation, failure_error, is_noscript, load_publish};

/// Least time limit of one exchange of thousands of commands.
const LIMIT: Duration = Duration::from_secs(5);

/// The most idle connections that are held for the next exchange.
const MAX_IDLE: usize = 8;

/// The number of keys that a server examines for a page of [`RecordIndex::scan`].
const SCANNED_TOGETHER: &[u8] = b"2000";

/// Deletes a key if its value is still the given text or, without a text, no string.
const REMOVE: &str = r"
local present = redis.pcall('GET', KEYS[1])
if ARGV[1] then
    if present ~= ARGV[1] then return 0 end
elseif type(present) ~= 'table' or not present.err then
    return 0
end
return redis.call('DEL', KEYS[1])
";

/// The records in the servers that [`super::RedisPublisher`] writes to.
pub struct RedisIndex {
    servers: Servers,
    connection: Connection,
    prefix: KeyPrefix,
    limit: Duration,
    idle: Mutex<Vec<Wire>>,
    /// Most of what was filled last stood there already: then reading first is cheaper.
    is_full: AtomicBool,
}

impl RedisIndex {
    /// Looks after the server at `url`, or those that are found through it. Does not connect yet.
    ///
    /// # Errors
    /// Fails if the URL does not name a Redis server.
    pub fn new(
        url: &str,
        topology: &Topology,
        prefix: KeyPrefix,
        timeout: Duration,
    ) -> Result<Self, UrlError> {
        let servers = || Servers::new(url, topology).map_err(|source| UrlError { source });
        let limit = timeout.max(LIMIT);
        Ok(Self {
            servers: servers()?,
            connection: Connection::new(servers()?, limit),
            prefix,
            limit,
            idle: Mutex::default(),
            is_full: AtomicBool::new(false),
        })
    }

    fn error(&self, operation: &'static str, failure: Failure) -> PublishError {
        failure_error(operation, failure, &self.connection)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Wire>> {
        // Connections are put in and taken out whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends commands to the one server that there is.
    async fn exchange(
        &self,
        operation: &'static str,
        commands: &Commands,
        each: impl FnMut(usize, Reply<'_>) -> io::Result<()>,
    ) -> Result<(), PublishError> {
        let work = async {
            let idle = self.idle().pop();
            let mut wire = match idle {
                Some(wire) => wire,
                None => match self.servers.master().await? {
                    Master::One(client) => Wire::connect(&client).await?,
                    Master::Cluster => {
                        return Err(io::Error::other("there is no one server").into());
                    }
                },
            };
            wire.exchange(commands, each).await?;
            let mut idle = self.idle();
            if idle.len() < MAX_IDLE {
                idle.push(wire);
            }
            Ok(())
        };
        let done = tokio::time::timeout(self.limit, work).await;
        let failure = match done {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_elapsed) => Failure::Timeout,
        };
        // Whatever has broken one has probably broken them all, and the master may be another.
        self.idle().clear();
        Err(self.error(operation, failure))
    }

    /// Stores the records at some places unless their keys exist; returns the places whose keys do.
    async fn store_where_nothing_stands(
        &self,
        records: &Records,
    ) -> Result<Vec<usize>, PublishError> {
        let operation = "store link records";
        let mut refused_places = Vec::new();
        if self.servers.is_cluster() {
            let answers: Vec<Value> = self
                .each(operation, records.len(), |place| {
                    let wanted = records.get(place);
                    let mut command = redis::cmd("SET");
                    command.arg(self.prefix.link_key(&wanted.code));
                    command.arg(wanted.text).arg("NX");
                    command
                })
                .await?;
            let places = answers.iter().enumerate();
            let refused = places.filter(|(_, answer)| **answer != Value::Okay);
            return Ok(refused.map(|(place, _)| place).collect());
        }
        let mut commands = Commands::default();
        for wanted in records.iter() {
            commands.begin(4);
            commands.word(&[b"SET"]);
            commands.word(&[self.prefix.as_bytes(), b"l:", wanted.code.as_bytes()]);
            commands.word(&[wanted.text]);
            commands.word(&[b"NX"]);
        }
        self.exchange(operation, &commands, |place, reply| match reply {
            Reply::Simple(_) => Ok(()),
            Reply::Bulk(None) => {
                refused_places.push(place);
                Ok(())
            }
            other => Err(unexpected(&other)),
        })
        .await?;
        Ok(refused_places)
    }

    /// Reads what stands under names and hands it over with the name's place.
    async fn read_each<'n>(
        &self,
        names: impl ExactSizeIterator<Item = &'n [u8]> + Clone + Send,
        mut each: impl FnMut(usize, Standing<'_>) + Send,
    ) -> Result<(), PublishError> {
        let operation = "read link records";
        if self.servers.is_cluster() {
            let names: Vec<&[u8]> = names.collect();
            let answers: Vec<Value> = self
                .each(operation, names.len(), |place| {
                    let mut command = redis::cmd("GET");
                    command.arg([self.prefix.as_bytes(), b"l:", names[place]].concat());
                    command
                })
                .await?;
            for (place, answer) in answers.iter().enumerate() {
                match answer {
                    Value::BulkString(text) => each(place, Standing::Text(text)),
                    Value::Nil => each(place, Standing::Nothing),
                    _ => each(place, Standing::OtherType),
                }
            }
            return Ok(());
        }
        let mut commands = Commands::default();
        for name in names {
            commands.begin(2);
            commands.word(&[b"GET"]);
            commands.word(&[self.prefix.as_bytes(), b"l:", name]);
        }
        self.exchange(operation, &commands, |place, reply| {
            match reply {
                Reply::Bulk(Some(text)) => each(place, Standing::Text(text)),
                Reply::Bulk(None) => each(place, Standing::Nothing),
                Reply::Error(error) if error.starts_with(b"WRONGTYPE") => {
                    each(place, Standing::OtherType);
                }
                other => return Err(unexpected(&other)),
            }
            Ok(())
        })
        .await
    }

    /// Sends commands through the library, some at a time. An answer that a key is of the wrong
    /// type is one that is no text.
    async fn each(
        &self,
        operation: &'static str,
        count: usize,
        command: impl Fn(usize) -> redis::Cmd,
    ) -> Result<Vec<Value>, PublishError> {
        let mut answers = Vec::with_capacity(count);
        let places: Vec<usize> = (0..count).collect();
        for some in places.chunks(MAX_TOGETHER) {
            let commands: Vec<redis::Cmd> = some.iter().map(|&place| command(place)).collect();
            let done: Vec<Value> = self
                .connection
                .run(async |open| {
                    let each = commands.iter().map(|command| {
                        let mut redis: Handle = open.redis.clone();
                        async move {
                            match command.query_async::<Value>(&mut redis).await {
                                Err(error) if error.code() == Some("WRONGTYPE") => {
                                    Ok(Value::Boolean(false))
                                }
                                other => other,
                            }
                        }
                    });
                    try_join_all(each).await
                })
                .await
                .map_err(|failure| self.error(operation, failure))?;
            answers.extend(done);
        }
        Ok(answers)
    }

    /// Runs the script that publishes, for all records; answers how many it left out since a
    /// newer one stands there.
    async fn publish(&self, records: &Records) -> Result<u64, PublishError> {
        let operation = "store link records";
        let places: Vec<usize> = (0..records.len()).collect();
        let mut newer = 0;
        for some in places.chunks(MAX_TOGETHER) {
            let put: Vec<u64> = self
                .connection
                .run(async |mut open| {
                    let sha = open.publish_sha.clone();
                    let done = self.run_publish(records, some, &sha, &mut open.redis).await;
                    if !done.as_ref().is_err_and(is_noscript) {
                        return done;
                    }
                    load_publish(&mut open.redis).await?;
                    self.run_publish(records, some, &sha, &mut open.redis).await
                })
                .await
                .map_err(|failure| self.error(operation, failure))?;
            newer += put.iter().filter(|&&put| put == 0).count() as u64;
        }
        Ok(newer)
    }

    async fn run_publish(
        &self,
        records: &Records,
        places: &[usize],
        sha: &str,
        redis: &mut Handle,
    ) -> Result<Vec<u64>, RedisError> {
        let command = |place: usize| {
            let wanted = records.get(place);
            let mut command = redis::cmd("EVALSHA");
            command
                .arg(sha)
                .arg(1)
                .arg(self.prefix.link_key(&wanted.code))
                .arg(wanted.text)
                .arg(wanted.revision);
            command
        };
        if redis.takes_pipelines() {
            let mut pipeline = redis::Pipeline::with_capacity(places.len());
            for &place in places {
                pipeline.add_command(command(place));
            }
            return pipeline.query_async(redis).await;
        }
        let each = places.iter().map(|&place| {
            let (command, mut redis) = (command(place), redis.clone());
            async move { command.query_async(&mut redis).await }
        });
        try_join_all(each).await
    }
}

#[async_trait]
impl RecordIndex for RedisIndex {
    async fn fill(&self, records: &Records) -> Result<Filled, PublishError> {
        let mut filled = Filled::default();
        if records.is_empty() {
            return Ok(filled);
        }
        let others = if self.is_full.load(Ordering::Relaxed) {
            records.clone()
        } else {
            let refused = self.store_where_nothing_stands(records).await?;
            filled.added = (records.len() - refused.len()) as u64;
            records.some(refused)
        };
        let (mut missing, mut differing) = (Vec::new(), Vec::new());
        for (place, drift) in self.compare(&others).await? {
            match drift {
                Drift::Missing => missing.push(place),
                Drift::Newer(_) => filled.newer += 1,
                _ => differing.push(place),
            }
        }
        let drifted = missing.len() + differing.len();
        filled.same = others.len() as u64 - drifted as u64 - filled.newer;
        let stood = (others.len() - missing.len()) * 2;
        self.is_full.store(stood > records.len(), Ordering::Relaxed);
        // Those that were missing may have come meanwhile.
        let missing = others.some(missing);
        if !missing.is_empty() {
            let refused = self.store_where_nothing_stands(&missing).await?;
            filled.added += (missing.len() - refused.len()) as u64;
            let newer = self.publish(&missing.some(refused.iter().copied())).await?;
            filled.newer += newer;
            filled.replaced += refused.len() as u64 - newer;
        }
        let newer = self
            .publish(&others.some(differing.iter().copied()))
            .await?;
        filled.newer += newer;
        filled.replaced += differing.len() as u64 - newer;
        Ok(filled)
    }

    async fn compare(&self, records: &Records) -> Result<Vec<(usize, Drift)>, PublishError> {
        let mut drifts = Vec::new();
        if records.is_empty() {
            return Ok(drifts);
        }
        let codes: Vec<vocabulary::Code> = records.iter().map(|wanted| wanted.code).collect();
        self.read_each(
            codes.iter().map(vocabulary::Code::as_bytes),
            |place, standing| {
                drifts.extend(records.drift(place, standing).map(|drift| (place, drift)));
            },
        )
        .await?;
        Ok(drifts)
    }

    async fn fill_campaigns(&self, campaigns: &[Campaign]) -> Result<Vec<usize>, PublishError> {
        let put = self
            .each("store the records of campaigns", campaigns.len(), |place| {
                let campaign = &campaigns[place];
                let mut command = redis::cmd("EVAL");
                command
                    .arg(PUBLISH)
                    .arg(1)
                    .arg(self.prefix.campaign_key(campaign.id))
                    .arg(campaign.record().to_vec())
                    .arg(campaign.revision);
                command
            })
            .await?;
        let put = put.into_iter().enumerate();
        let newer = put.filter(|(_, put)| *put == Value::Int(0));
        Ok(newer.map(|(place, _)| place).collect())
    }

    async fn read_campaigns(&self, ids: &[CampaignId]) -> Result<Vec<Stood>, PublishError> {
        let values = self
            .each("read the records of campaigns", ids.len(), |place| {
                let mut command = redis::cmd("GET");
                command.arg(self.prefix.campaign_key(ids[place]));
                command
            })
            .await?;
        let stood = values.into_iter().map(|value| match value {
            Value::Nil => Stood::Nothing,
            Value::BulkString(text) => Stood::Text(text),
            _ => Stood::OtherType,
        });
        Ok(stood.collect())
    }

    async fn scan(&self, pages: mpsc::Sender<Vec<Vec<u8>>>) -> Result<(), PublishError> {
        let operation = "list the keys of link records";
        let failed = |error: io::Error| self.error(operation, Failure::Refused(Box::new(error)));
        let limited = |done: Result<Result<(), Failure>, _>| match done {
            Ok(done) => done,
            Err(_elapsed) => Err(Failure::Timeout),
        };
        let mut pattern = Vec::new();
        for &byte in self.prefix.as_bytes() {
            if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^') {
                pattern.push(b'\\');
            }
            pattern.push(byte);
        }
        pattern.extend_from_slice(b"l:*");
        let masters = self.servers.all_masters(self.limit).await;
        let masters = masters.map_err(|failure| self.error(operation, failure))?;
        for (address, settings) in &masters {
            let mut wire = Wire::connect_to(address, settings).await.map_err(failed)?;
            let mut cursor = b"0".to_vec();
            loop {
                let mut commands = Commands::default();
                commands.command(&[
                    b"SCAN",
                    &cursor,
                    b"MATCH",
                    &pattern,
                    b"COUNT",
                    SCANNED_TOGETHER,
                ]);
                let mut page = Vec::new();
                let ask = async {
                    wire.exchange(&commands, |_, reply| {
                        let Reply::Array(parts) = &reply else {
                            return Err(unexpected(&reply));
                        };
                        let [Reply::Bulk(Some(next)), Reply::Array(keys)] = parts.as_slice() else {
                            return Err(unexpected(&reply));
                        };
                        cursor = next.to_vec();
                        for key in keys {
                            let Reply::Bulk(Some(key)) = key else {
                                return Err(unexpected(key));
                            };
                            let name = key.strip_prefix(self.prefix.as_bytes());
                            let name = name.and_then(|name| name.strip_prefix(b"l:"));
                            page.extend(name.map(<[u8]>::to_vec));
                        }
                        Ok(())
                    })
                    .await
                    .map_err(Failure::from)
                };
                let asked = limited(tokio::time::timeout(self.limit, ask).await);
                asked.map_err(|failure| self.error(operation, failure))?;
                if !page.is_empty() && pages.send(page).await.is_err() {
                    return Ok(());
                }
                if cursor == b"0" {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn read(&self, names: &[Vec<u8>]) -> Result<Vec<Stood>, PublishError> {
        let mut stood = vec![Stood::Nothing; names.len()];
        if names.is_empty() {
            return Ok(stood);
        }
        self.read_each(names.iter().map(Vec::as_slice), |place, standing| {
            stood[place] = match standing {
                Standing::Nothing => Stood::Nothing,
                Standing::Text(text) => Stood::Text(text.to_vec()),
                Standing::OtherType => Stood::OtherType,
            };
        })
        .await?;
        Ok(stood)
    }

    async fn remove(&self, read: &[(Vec<u8>, Stood)]) -> Result<u64, PublishError> {
        let read: Vec<_> = read
            .iter()
            .filter(|(_, stood)| *stood != Stood::Nothing)
            .collect();
        let answers = self
            .each("remove link records", read.len(), |place| {
                let (name, stood) = read[place];
                let mut command = redis::cmd("EVAL");
                command.arg(REMOVE).arg(1);
                command.arg([self.prefix.as_bytes(), b"l:", name.as_slice()].concat());
                if let Stood::Text(text) = stood {
                    command.arg(text.as_slice());
                }
                command
            })
            .await?;
        let removed = answers.iter().filter(|answer| **answer == Value::Int(1));
        Ok(removed.count() as u64)
    }

    async fn count(&self) -> Result<u64, PublishError> {
        self.connection
            .run(async |mut open| redis::cmd("DBSIZE").query_async(&mut open.redis).await)
            .await
            .map_err(|failure| self.error("count its keys", failure))
    }

    async fn incarnation(&self) -> Result<String, PublishError> {
        ask_incarnation(&self.connection).await
    }
}

#[cfg(test)]
mod tests;
