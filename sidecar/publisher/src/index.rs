//! Writes, compares, lists and removes the records of many links.
//!
//! It has connections of its own, so that a link that is published meanwhile does not wait behind thousands of others.
//! Commands are packed and replies read by [`super::wire`]; those for a cluster are sorted by master, and all masters
//! are asked at once.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use shortlink_core::campaign::Campaign;
use shortlink_core::ended::{EndedDays, Stay};
use shortlink_core::ports::{Filled, MAX_TOGETHER, PublishError, RecordIndex, Stood};
use shortlink_core::records::{Drift, Records, Standing};
use tokio::sync::mpsc;
use vocabulary::{CampaignId, KeyPrefix};

use super::cluster::Cluster;
use super::connection::{Connection, limited};
use super::generations::{IDENTITY, incarnation_of};
use super::servers::{Address, RedisOptions, Servers, UrlError};
use super::wire::{Commands, Reply, Wire, unexpected};
use super::{KeyedRecord, publish_all};

/// Least time limit of one exchange of thousands of commands.
const LIMIT: Duration = Duration::from_secs(5);

/// The most idle connections to a server that are held for the next exchange.
const MAX_IDLE: usize = 8;

/// The number of keys that a server examines for a page of [`RecordIndex::scan`].
const SCANNED_TOGETHER: &[u8] = b"2000";

/// Errors of a node of a cluster whose command another one answers, or the same in a moment.
const REDIRECTIONS: [&[u8]; 5] = [
    b"MOVED ",
    b"ASK ",
    b"TRYAGAIN",
    b"CLUSTERDOWN",
    b"MASTERDOWN",
];

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
    ended_days: EndedDays,
    limit: Duration,
    /// By the server's address.
    idle: Mutex<HashMap<String, Vec<Wire>>>,
    /// Most of what was filled last stood there already: then reading first is cheaper.
    is_full: AtomicBool,
}

impl RedisIndex {
    /// Looks after the server at `url`, or those that are found through it. Does not connect yet.
    ///
    /// # Errors
    /// Fails if the URL does not name a Redis server.
    pub fn new(options: &RedisOptions) -> Result<Self, UrlError> {
        let limit = options.timeout.max(LIMIT);
        Ok(Self {
            servers: Servers::new(options)?,
            connection: Connection::new(options, limit)?,
            prefix: options.prefix.clone(),
            ended_days: options.ended_days,
            limit,
            idle: Mutex::default(),
            is_full: AtomicBool::new(false),
        })
    }

    /// Sends commands and hands over what each is answered with: a text, nothing, or that the
    /// value is no text.
    async fn exchange(
        &self,
        operation: &'static str,
        commands: Commands,
        mut each: impl FnMut(usize, Standing<'_>) + Send,
    ) -> Result<(), PublishError> {
        let repeated = match &self.servers {
            Servers::Cluster(cluster) => {
                let work = self.exchange_with_all(cluster, &commands, &mut each);
                let done = limited(operation, self.limit, work).await;
                if done.is_err() {
                    // A silent master may have a successor.
                    cluster.forget_all();
                    self.idle.lock().clear();
                }
                done?
            }
            _ => {
                let work = async {
                    let master = self.servers.master().await?;
                    let hand_over = |place, reply: Reply<'_>| {
                        each(place, standing_of(&reply)?);
                        Ok(())
                    };
                    Ok(self.exchange_with(&master, &commands, hand_over).await?)
                };
                let done = limited(operation, self.limit, work).await;
                if done.is_err() {
                    // Whatever has broken one has probably broken them all, and the master may be another.
                    self.idle.lock().clear();
                }
                return done;
            }
        };
        let (places, commands): (Vec<usize>, Vec<Cmd>) = repeated.into_iter().unzip();
        let answers = self.each(operation, commands.into_iter()).await?;
        for (place, answer) in places.into_iter().zip(&answers) {
            each(place, standing(answer));
        }
        Ok(())
    }

    /// Sends commands to one server.
    async fn exchange_with(
        &self,
        address: &Address,
        commands: &Commands,
        each: impl FnMut(usize, Reply<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = address.info.addr().to_string();
        let idle = self.idle.lock().get_mut(&name).and_then(Vec::pop);
        let mut wire = match idle {
            Some(wire) => wire,
            None => Wire::connect(address).await?,
        };
        wire.exchange(commands, each).await?;
        let mut idle = self.idle.lock();
        let idle = idle.entry(name).or_default();
        if idle.len() < MAX_IDLE {
            idle.push(wire);
        }
        Ok(())
    }

    /// Sends commands to the masters of their keys, to all at once; returns those that are to be repeated, with their
    /// places: their slots have moved, or their master is away.
    async fn exchange_with_all(
        &self,
        cluster: &Cluster,
        commands: &Commands,
        each: impl FnMut(usize, Standing<'_>) + Send,
    ) -> Result<Vec<(usize, Cmd)>, Box<dyn Error + Send + Sync>> {
        let map = cluster.map().await?;
        let mut shares: Vec<(Commands, Vec<usize>)> = Vec::new();
        shares.resize_with(map.masters.len(), Default::default);
        let mut is_done = vec![false; commands.len()];
        for (place, (words, packed)) in commands.each().enumerate() {
            // Every command that is packed has its key behind its name.
            if let Some(owner) = words.get(1).and_then(|key| map.owner(key)) {
                shares[owner].0.packed(packed);
                shares[owner].1.push(place);
            }
        }
        let handed_over = Mutex::new((each, &mut is_done));
        let asked = map.masters.iter().zip(&shares);
        let asked = asked.filter(|(_, (_, places))| !places.is_empty());
        let asked = asked.map(async |(master, (commands, places))| {
            let hand_over = |index: usize, reply: Reply<'_>| {
                if let Reply::Error(error) = &reply
                    && REDIRECTIONS.iter().any(|it| error.starts_with(it))
                {
                    return Ok(());
                }
                let standing = standing_of(&reply)?;
                let (each, is_done) = &mut *handed_over.lock();
                each(places[index], standing);
                is_done[places[index]] = true;
                Ok(())
            };
            let done = self.exchange_with(&master.address, commands, hand_over);
            (&master.address, done.await)
        });
        for (address, done) in join_all(asked).await {
            if done.is_err() {
                self.idle.lock().remove(&address.info.addr().to_string());
            }
        }
        drop(handed_over);
        let repeated = commands.each().enumerate();
        let repeated = repeated.filter(|(place, _)| !is_done[*place]);
        let repeated = repeated.map(|(place, (words, _))| {
            let mut command = Cmd::new();
            for word in words {
                command.arg(word);
            }
            (place, command)
        });
        let repeated: Vec<(usize, Cmd)> = repeated.collect();
        if !repeated.is_empty() {
            cluster.forget(&map);
        }
        Ok(repeated)
    }

    /// Stores records unless their keys exist; returns the places of those whose keys do, and of those that Redis needs
    /// no more.
    async fn store_where_nothing_stands(
        &self,
        records: &Records,
    ) -> Result<Vec<usize>, PublishError> {
        let mut commands = Commands::default();
        let (mut refused, mut places) = (Vec::new(), Vec::with_capacity(records.len()));
        for (place, wanted) in records.iter().enumerate() {
            let expiry_s = match records.stay(place, self.ended_days) {
                Stay::Over => {
                    refused.push(place);
                    continue;
                }
                stay => stay.expiry_s(),
            };
            places.push(place);
            commands.begin(if expiry_s.is_some() { 6 } else { 4 });
            commands.word(&[b"SET"]);
            commands.word(&[self.prefix.as_bytes(), b"l:", wanted.code.as_bytes()]);
            commands.word(&[wanted.text]);
            commands.word(&[b"NX"]);
            if let Some(seconds) = expiry_s {
                commands.word(&[b"EX"]);
                commands.word(&[seconds.to_string().as_bytes()]);
            }
        }
        self.exchange("store link records", commands, |index, answer| {
            if answer == Standing::Nothing {
                refused.push(places[index]);
            }
        })
        .await?;
        Ok(refused)
    }

    /// Reads what stands under names and hands it over with the name's place.
    async fn read_each<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]> + Send,
        each: impl FnMut(usize, Standing<'_>) + Send,
    ) -> Result<(), PublishError> {
        let mut commands = Commands::default();
        for name in names {
            commands.begin(2);
            commands.word(&[b"GET"]);
            commands.word(&[self.prefix.as_bytes(), b"l:", name]);
        }
        self.exchange("read link records", commands, each).await
    }

    /// Sends commands through the library, some at a time. An answer that a key is of the wrong
    /// type is one that is no text.
    async fn each(
        &self,
        operation: &'static str,
        commands: impl Iterator<Item = Cmd>,
    ) -> Result<Vec<Value>, PublishError> {
        let commands: Vec<Cmd> = commands.collect();
        let mut answers = Vec::with_capacity(commands.len());
        for some in commands.chunks(MAX_TOGETHER) {
            let done = self.connection.run(operation, async |mut open| {
                let answers = open.redis.answers(some.to_vec()).await?.into_iter();
                let answers = answers.map(|answer| match answer {
                    Err(error) if error.code() == Some("WRONGTYPE") => Ok(Value::Boolean(false)),
                    other => other,
                });
                answers.collect::<Result<Vec<Value>, _>>()
            });
            answers.extend(done.await?);
        }
        Ok(answers)
    }

    /// Runs the script that publishes; returns the places of records left out since a newer one
    /// stands there.
    async fn publish(
        &self,
        operation: &'static str,
        records: impl Iterator<Item = KeyedRecord>,
    ) -> Result<Vec<usize>, PublishError> {
        let records: Vec<KeyedRecord> = records.collect();
        let mut put = Vec::with_capacity(records.len());
        for some in records.chunks(MAX_TOGETHER) {
            put.extend(publish_all(&self.connection, operation, some).await?.1);
        }
        let put = put.into_iter().enumerate();
        let newer = put.filter(|(_, put)| *put != Value::Int(0));
        Ok(newer.map(|(place, _)| place).collect())
    }

    /// Replaces the records of links; returns the number left out since a newer one stands there.
    async fn replace(&self, records: &Records) -> Result<u64, PublishError> {
        let keyed = records
            .iter()
            .enumerate()
            .map(|(place, wanted)| KeyedRecord {
                key: self.prefix.link_key(&wanted.code),
                record: wanted.text.to_vec(),
                revision: wanted.revision,
                expiry_s: records.stay(place, self.ended_days).expiry_s(),
                is_withdrawn_when_full: false,
            });
        let newer = self.publish("store link records", keyed).await?;
        Ok(newer.len() as u64)
    }

    /// Reads a page of keys, of which it adds the names; returns the cursor of the next page.
    fn read_page(&self, reply: &Reply<'_>, names: &mut Vec<Vec<u8>>) -> io::Result<Vec<u8>> {
        let page = match reply {
            Reply::Array(parts) => parts.as_slice(),
            _ => &[],
        };
        let [Reply::Bulk(Some(next)), Reply::Array(keys)] = page else {
            return Err(unexpected(reply));
        };
        for key in keys {
            let Reply::Bulk(Some(key)) = key else {
                return Err(unexpected(key));
            };
            let name = key.strip_prefix(self.prefix.as_bytes());
            let name = name.and_then(|name| name.strip_prefix(b"l:"));
            names.extend(name.map(<[u8]>::to_vec));
        }
        Ok(next.to_vec())
    }
}

/// Reads what stands under a key from a reply.
fn standing_of<'a>(reply: &Reply<'a>) -> io::Result<Standing<'a>> {
    match reply {
        Reply::Simple(text) | Reply::Bulk(Some(text)) => Ok(Standing::Text(text)),
        Reply::Bulk(None) => Ok(Standing::Nothing),
        Reply::Error(error) if error.starts_with(b"WRONGTYPE") => Ok(Standing::OtherType),
        other => Err(unexpected(other)),
    }
}

/// The answer of the library to a command.
fn standing(answer: &Value) -> Standing<'_> {
    match answer {
        Value::Okay => Standing::Text(b"OK"),
        Value::BulkString(text) => Standing::Text(text),
        Value::Nil => Standing::Nothing,
        _ => Standing::OtherType,
    }
}

fn stood(standing: Standing<'_>) -> Stood {
    match standing {
        Standing::Nothing => Stood::Nothing,
        Standing::Text(text) => Stood::Text(text.to_vec()),
        Standing::OtherType => Stood::OtherType,
    }
}

#[async_trait]
impl RecordIndex for RedisIndex {
    fn ended_days(&self) -> EndedDays {
        self.ended_days
    }

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
            let newer = self.replace(&missing.some(refused.iter().copied())).await?;
            filled.newer += newer;
            filled.replaced += refused.len() as u64 - newer;
        }
        let newer = self
            .replace(&others.some(differing.iter().copied()))
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
        let codes = codes.iter().map(vocabulary::Code::as_bytes);
        self.read_each(codes, |place, standing| {
            let drift = records.drift(place, standing, self.ended_days);
            drifts.extend(drift.map(|drift| (place, drift)));
        })
        .await?;
        Ok(drifts)
    }

    async fn fill_campaigns(&self, campaigns: &[Campaign]) -> Result<Vec<usize>, PublishError> {
        let records = campaigns.iter();
        let records = records.map(|campaign| KeyedRecord::of_campaign(&self.prefix, campaign));
        self.publish("store the records of campaigns", records)
            .await
    }

    async fn read_campaigns(&self, ids: &[CampaignId]) -> Result<Vec<Stood>, PublishError> {
        let commands = ids.iter().map(|id| Cmd::get(self.prefix.campaign_key(*id)));
        let values = self.each("read the records of campaigns", commands).await?;
        Ok(values.iter().map(|it| stood(standing(it))).collect())
    }

    async fn scan(&self, pages: mpsc::Sender<Vec<Vec<u8>>>) -> Result<(), PublishError> {
        let operation = "list the keys of link records";
        let mut pattern = Vec::new();
        for &byte in self.prefix.as_bytes() {
            if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^') {
                pattern.push(b'\\');
            }
            pattern.push(byte);
        }
        pattern.extend_from_slice(b"l:*");
        let masters = limited(operation, self.limit, self.servers.all_masters()).await?;
        for address in &masters {
            let connect = async { Ok(Wire::connect(address).await?) };
            let mut wire = limited(operation, self.limit, connect).await?;
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
                    let asked = wire.exchange(&commands, |_, reply| {
                        cursor = self.read_page(&reply, &mut page)?;
                        Ok(())
                    });
                    Ok(asked.await?)
                };
                limited(operation, self.limit, ask).await?;
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
        let mut found = vec![Stood::Nothing; names.len()];
        if names.is_empty() {
            return Ok(found);
        }
        self.read_each(names.iter().map(Vec::as_slice), |place, standing| {
            found[place] = stood(standing);
        })
        .await?;
        Ok(found)
    }

    async fn remove(&self, read: &[(Vec<u8>, Stood)]) -> Result<u64, PublishError> {
        let read = read.iter().filter(|(_, stood)| *stood != Stood::Nothing);
        let commands = read.map(|(name, stood)| {
            let mut command = redis::cmd("EVAL");
            command.arg(REMOVE).arg(1);
            command.arg([self.prefix.as_bytes(), b"l:", name.as_slice()].concat());
            if let Stood::Text(text) = stood {
                command.arg(text.as_slice());
            }
            command
        });
        let answers = self.each("remove link records", commands).await?;
        let removed = answers.iter().filter(|answer| **answer == Value::Int(1));
        Ok(removed.count() as u64)
    }

    async fn count(&self) -> Result<u64, PublishError> {
        self.connection
            .run("count its keys", async |mut open| {
                redis::cmd("DBSIZE").query_async(&mut open.redis).await
            })
            .await
    }

    async fn incarnation(&self) -> Result<String, PublishError> {
        let info = self
            .connection
            .run(IDENTITY, async |mut open| {
                redis::cmd("INFO")
                    .arg("server")
                    .query_async(&mut open.redis)
                    .await
            })
            .await?;
        incarnation_of(&info)
    }
}

#[cfg(test)]
mod tests;
