//! A cluster, for commands by the thousand: which master has which slot, and a pipeline to each of them.
//!
//! The library routes command by command, which costs as much as all the rest of a link. So commands are sorted by the
//! master of their key's slot, and all masters get theirs at once. A command that a master refuses because the slot has
//! moved, and those of a master whose connection is refused or breaks, are repeated through the library, which follows
//! redirections; and the map of slots is read anew. A master that is silent ends the operation at its time limit.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    Arg, AsyncConnectionConfig, Client, Cmd, ConnectionAddr, Pipeline, RedisError, ServerErrorKind,
    Value,
};
use tokio::time::Instant;
use vocabulary::slot::{SLOTS, slot_of_key};

use super::servers::Address;
use super::wire::refused;

/// The pause between attempts to connect to a master that is away.
const PAUSE: Duration = Duration::from_secs(1);

/// A cluster that the library connects to, and its map as far as it is known.
pub(super) struct Cluster {
    client: ClusterClient,
    /// The node that the URL names.
    asked: Address,
    /// The longest time that a connection to a master may take: the other masters wait.
    patience: Duration,
    map: Mutex<Option<Arc<Map>>>,
}

/// The masters of a cluster and their slots.
pub(super) struct Map {
    /// The place of each slot's master, plus one; 0 for a slot without one.
    owners: Vec<u16>,
    /// Every master with slots.
    pub(super) masters: Vec<Master>,
}

/// A master of a cluster.
pub(super) struct Master {
    /// Its address, with the user's credentials.
    pub(super) address: Address,
    /// The slots that it has.
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

/// A command's answer, or the error that its server answers with.
pub(super) type Answer = Result<Value, RedisError>;

/// Connections to all masters.
#[derive(Clone)]
pub(super) struct Masters {
    cluster: Arc<Cluster>,
    /// For single commands, and those without a key.
    pub(super) library: ClusterConnection,
    open: Arc<tokio::sync::Mutex<Option<Arc<Open>>>>,
}

/// Connections by a map; none to a master that was away when they were opened.
struct Open {
    map: Arc<Map>,
    connections: Vec<Option<MultiplexedConnection>>,
    /// Those that have failed since.
    failed: Mutex<HashSet<usize>>,
    at: Instant,
}

impl Open {
    /// Returns whether it is time to look for a master that was away.
    fn is_incomplete_for_long(&self) -> bool {
        self.at.elapsed() > PAUSE && self.connections.iter().any(Option::is_none)
    }

    /// Returns the connection to a server, if there is one that has not failed.
    fn to(&self, address: &ConnectionAddr) -> Option<MultiplexedConnection> {
        let mut masters = self.map.masters.iter();
        let place = masters.position(|master| master.address.info.addr() == address)?;
        let has_failed = self.failed.lock().contains(&place);
        self.connections[place].clone().filter(|_| !has_failed)
    }
}

impl Cluster {
    /// Prepares for operations that may take `limit`.
    pub(super) fn new(client: ClusterClient, asked: Address, limit: Duration) -> Self {
        Self {
            client,
            asked,
            patience: limit / 2,
            map: Mutex::default(),
        }
    }

    /// Opens connections to the masters.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Masters, RedisError> {
        Ok(Masters {
            cluster: Arc::clone(self),
            library: self.client.get_async_connection().await?,
            open: Arc::default(),
        })
    }

    /// Returns the map that was read last, or reads it.
    pub(super) async fn map(&self) -> Result<Arc<Map>, RedisError> {
        match self.known_map() {
            Some(map) => Ok(map),
            None => {
                let redis = self.client.get_async_connection().await?;
                self.read_map(redis).await
            }
        }
    }

    fn known_map(&self) -> Option<Arc<Map>> {
        self.map.lock().clone()
    }

    /// Reads the map.
    pub(super) async fn read_map(
        &self,
        mut redis: ClusterConnection,
    ) -> Result<Arc<Map>, RedisError> {
        let slots: Value = redis::cmd("CLUSTER")
            .arg("SLOTS")
            .query_async(&mut redis)
            .await?;
        let map = Map::parse(&slots, &self.asked)?;
        let mut known = self.map.lock();
        // Its connections stay open.
        if let Some(known) = known.as_ref().filter(|known| known.is_like(&map)) {
            return Ok(Arc::clone(known));
        }
        Ok(Arc::clone(known.insert(Arc::new(map))))
    }

    /// Has a map that has proved wrong read anew when it is needed next.
    pub(super) fn forget(&self, map: &Arc<Map>) {
        let mut known = self.map.lock();
        if known.as_ref().is_some_and(|it| Arc::ptr_eq(it, map)) {
            *known = None;
        }
    }

    /// The same with whatever map is known, if something took too long.
    pub(super) fn forget_all(&self) {
        *self.map.lock() = None;
    }
}

impl Map {
    /// Reads the answer to `CLUSTER SLOTS`. Nodes are reached as the one that was asked is.
    fn parse(slots: &Value, asked: &Address) -> io::Result<Self> {
        let malformed = || refused(b"CLUSTER SLOTS can't be read");
        let range = |range: &Value| {
            let [Value::Int(first), Value::Int(last), master, ..] = range.as_sequence()? else {
                return None;
            };
            let [host, Value::Int(port), ..] = master.as_sequence()? else {
                return None;
            };
            let host = match host {
                Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
                _ => String::new(),
            };
            let slots = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
            Some((host, u16::try_from(*port).ok()?, slots))
        };
        let mut map = Self {
            owners: vec![0; usize::from(SLOTS)],
            masters: Vec::new(),
        };
        let mut places = HashMap::new();
        for one in slots.as_sequence().ok_or_else(malformed)? {
            let (host, port, slots) = range(one).ok_or_else(malformed)?;
            let place = *places.entry((host.clone(), port)).or_insert_with(|| {
                map.masters.push(Master {
                    address: asked.of_node(host, port),
                    slots: Vec::new(),
                });
                map.masters.len() - 1
            });
            let range = usize::from(*slots.start())..=usize::from(*slots.end());
            let owners = map.owners.get_mut(range).ok_or_else(malformed)?;
            owners.fill(u16::try_from(place + 1).map_err(|_many| malformed())?);
            map.masters[place].slots.push(slots);
        }
        Ok(map)
    }

    fn is_like(&self, other: &Self) -> bool {
        let addresses = |map: &Self| -> Vec<ConnectionAddr> {
            map.masters
                .iter()
                .map(|it| it.address.info.addr().clone())
                .collect()
        };
        self.owners == other.owners && addresses(self) == addresses(other)
    }

    /// The place of the master that has a key.
    pub(super) fn owner(&self, key: &[u8]) -> Option<usize> {
        let owner = self.owners[usize::from(slot_of_key(key))];
        usize::from(owner).checked_sub(1)
    }
}

impl Address {
    /// The address of another node; its host is empty if it is this one.
    fn of_node(&self, host: String, port: u16) -> Self {
        let or_own = |own: &String| if host.is_empty() { own } else { &host }.clone();
        let address = match self.info.addr().clone() {
            ConnectionAddr::TcpTls {
                host: own,
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host: or_own(&own),
                port,
                insecure,
                tls_params,
            },
            ConnectionAddr::Tcp(own, _) => ConnectionAddr::Tcp(or_own(&own), port),
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self {
            info: self.info.clone().set_addr(address),
            tls: self.tls.clone(),
        }
    }
}

impl Masters {
    /// Reads the map of the cluster.
    pub(super) async fn read_map(&self) -> Result<Arc<Map>, RedisError> {
        self.cluster.read_map(self.library.clone()).await
    }

    /// Sends commands; returns the answers in their order.
    ///
    /// # Errors
    /// Fails if a command could not be sent, or its answer not be read.
    pub(super) async fn send(&self, commands: Vec<Cmd>) -> Result<Vec<Answer>, RedisError> {
        let open = self.open().await?;
        let count = commands.len();
        let mut shares: Vec<Share> = Vec::new();
        shares.resize_with(open.connections.len(), Share::default);
        // Those that the library sends, with their places.
        let mut others = Vec::new();
        for (place, command) in commands.into_iter().enumerate() {
            let owner = key_of(&command).and_then(|key| open.map.owner(key));
            match owner.filter(|owner| open.connections[*owner].is_some()) {
                Some(owner) => {
                    shares[owner].places.push(place);
                    shares[owner].pipeline.add_command(command);
                }
                None => others.push((place, command)),
            }
        }
        let mut answers: Vec<Option<Answer>> = Vec::new();
        answers.resize_with(count, || None);
        let asked = shares.iter().zip(&open.connections).enumerate();
        let asked = asked.filter_map(|(owner, (share, connection))| {
            (!share.places.is_empty()).then_some((owner, share, connection.clone()?))
        });
        let asked = asked.map(async |(owner, share, mut connection)| {
            let count = share.places.len();
            let sent = connection.req_packed_commands(&share.pipeline, 0, count);
            (owner, share, sent.await)
        });
        let mut is_outdated = false;
        for (owner, share, answered) in join_all(asked).await {
            let sent = share.places.iter().zip(share.pipeline.cmd_iter());
            let Ok(values) = answered else {
                is_outdated = true;
                open.failed.lock().insert(owner);
                others.extend(sent.map(|(place, command)| (*place, command.clone())));
                continue;
            };
            for ((&place, command), value) in sent.zip(values) {
                match value {
                    Value::ServerError(error) if is_redirected(error.kind()) => {
                        // A slot that is on its way does not show that the map is wrong.
                        is_outdated |= !matches!(
                            error.kind(),
                            Some(ServerErrorKind::Ask | ServerErrorKind::TryAgain)
                        );
                        others.push((place, command.clone()));
                    }
                    Value::ServerError(error) => answers[place] = Some(Err(error.into())),
                    value => answers[place] = Some(Ok(value)),
                }
            }
        }
        if is_outdated || open.is_incomplete_for_long() {
            self.cluster.forget(&open.map);
        }
        let repeated = others.iter().map(async |(place, command)| {
            let mut library = self.library.clone();
            match command.query_async(&mut library).await {
                Err(error) if error.is_io_error() => Err(error),
                answer => Ok((*place, answer)),
            }
        });
        for (place, answer) in try_join_all(repeated).await? {
            answers[place] = Some(answer);
        }
        let missing = || io::Error::other("a server answered fewer commands than it was sent");
        let answers = answers.into_iter().map(|it| it.ok_or_else(missing));
        Ok(answers.collect::<Result<_, _>>()?)
    }

    /// Returns connections to the masters of the present map.
    async fn open(&self) -> Result<Arc<Open>, RedisError> {
        let mut held = self.open.lock().await;
        let map = match self.cluster.known_map() {
            Some(map) => map,
            None => self.read_map().await?,
        };
        if let Some(open) = &*held
            && Arc::ptr_eq(&open.map, &map)
        {
            return Ok(Arc::clone(open));
        }
        let connections = map.masters.iter().map(async |master| {
            let info = &master.address.info;
            if let Some(open) = held.as_ref().and_then(|before| before.to(info.addr())) {
                return Some(open);
            }
            let client = Client::open(info.clone()).ok()?;
            // The caller has a time limit of its own.
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None);
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            let connected = tokio::time::timeout(self.cluster.patience, connecting).await;
            connected.ok()?.ok()
        });
        let open = Arc::new(Open {
            connections: join_all(connections).await,
            failed: Mutex::default(),
            at: Instant::now(),
            map,
        });
        *held = Some(Arc::clone(&open));
        Ok(open)
    }
}

/// The commands for one master.
#[derive(Default)]
struct Share {
    pipeline: Pipeline,
    /// The place of each among all commands.
    places: Vec<usize>,
}

/// The key of a command of this crate; `None` for one without a key.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    let word = |place: usize| match command.args_iter().nth(place)? {
        Arg::Simple(word) => Some(word),
        _ => None,
    };
    match word(0)? {
        b"EVAL" | b"EVALSHA" => word(3),
        _ => word(1),
    }
    .filter(|_| !matches!(word(0), Some(b"INFO" | b"CLUSTER" | b"SCRIPT")))
}

/// Returns whether the command belongs to another server now, or will do in a moment.
fn is_redirected(kind: Option<ServerErrorKind>) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    matches!(
        kind,
        Some(Moved | Ask | TryAgain | ClusterDown | MasterDown | ReadOnly)
    )
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    fn range(first: i64, last: i64, host: &str, port: i64) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = Value::Array(vec![text(host), Value::Int(port), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node])
    }

    fn parse(slots: &Value) -> io::Result<Map> {
        let info = "redis://10.0.0.1:7000"
            .into_connection_info()
            .expect("a URL");
        Map::parse(slots, &Address { info, tls: None })
    }

    #[test]
    fn keys_belong_to_the_masters_of_their_slots() {
        // The one that is asked does not know its own name.
        let slots = Value::Array(vec![
            range(0, 12738, "", 7000),
            range(12739, 12739, "10.0.0.2", 7001),
            range(12740, 16000, "", 7000),
        ]);
        let map = parse(&slots).expect("a map");
        let addresses: Vec<String> = map
            .masters
            .iter()
            .map(|master| master.address.info.addr().to_string())
            .collect();
        assert_eq!(addresses, ["10.0.0.1:7000", "10.0.0.2:7001"]);
        assert_eq!(map.owner(b"123456789"), Some(1));
        assert_eq!(map.owner(b"sl:gen{123456789}"), Some(1));
        assert_eq!(map.owners[16000], 1);
        assert_eq!(map.owners[16001], 0, "a slot that no master has");
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for slots in [
            Value::Okay,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16384, "a", 1)]),
            Value::Array(vec![range(-1, 4, "a", 1)]),
            Value::Array(vec![range(0, 4, "a", 70_000)]),
        ] {
            assert!(parse(&slots).is_err(), "{slots:?}");
        }
    }

    #[test]
    fn the_key_of_a_command_is_found() {
        let command = |words: &[&str]| {
            let mut command = Cmd::new();
            command.arg(words);
            key_of(&command).map(<[u8]>::to_vec)
        };
        assert_eq!(
            command(&["SET", "key", "value", "NX"]),
            Some(b"key".to_vec())
        );
        assert_eq!(
            command(&["EVALSHA", "sha", "1", "key", "x"]),
            Some(b"key".to_vec())
        );
        assert_eq!(command(&["INFO", "server"]), None);
        assert_eq!(command(&["DBSIZE"]), None);
    }
}
