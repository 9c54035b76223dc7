//! Discovery of the servers that link records are written to: one server, the master that sentinels
//! name, or a cluster.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr};
use redis::{IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError, RedisFuture, Value};
use secrecy::{ExposeSecret, SecretString};
use vocabulary::KeyPrefix;

use super::cluster::{Answer, Cluster, Masters};

/// The URL is not one of a Redis server. Does not show the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
#[error("redis.url must be like redis://127.0.0.1:6379/0 or redis+unix:///run/redis.sock")]
pub struct UrlError {
    /// Fault of the URL.
    #[from]
    pub source: RedisError,
}

/// The configured way to find the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// The URL names the server.
    Server,
    /// The URL's host is the name of the master's group; these sentinels, `host:port` each, know
    /// which server that is.
    Sentinel(Vec<String>),
    /// Some nodes of a cluster, `host:port` each; the URL's host is one more.
    Cluster(Vec<String>),
}

/// The servers, and the keys of this service in them.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The address: `redis://…` or `redis+unix://…`. Secret, since a URL may hold a password.
    pub url: SecretString,
    /// The way in which the servers are found through it.
    pub topology: Topology,
    /// The prefix of every key.
    pub prefix: KeyPrefix,
    /// The time limit of an operation.
    pub timeout: Duration,
}

/// Opens connections.
pub(super) enum Servers {
    One(Client),
    /// Asked by one caller at a time.
    Sentinel(tokio::sync::Mutex<SentinelClient>),
    Cluster(Arc<Cluster>),
}

/// Address of a server, with the user's credentials.
pub(super) type Address = (ConnectionAddr, RedisConnectionInfo);

/// An open connection.
#[derive(Clone)]
pub(super) enum Handle {
    One(MultiplexedConnection),
    Cluster(Masters),
}

impl Servers {
    pub(super) fn new(options: &RedisOptions) -> Result<Self, UrlError> {
        let url = options.url.expose_secret();
        let info = url.into_connection_info()?;
        let settings = info.redis_settings().clone();
        Ok(match &options.topology {
            Topology::Server => Self::One(Client::open(info)?),
            Topology::Sentinel(nodes) => {
                let node = SentinelNodeConnectionInfo::default();
                let master = master_name(url).to_owned();
                Self::Sentinel(tokio::sync::Mutex::new(SentinelClient::build(
                    nodes.iter().map(|node| address(node)).collect(),
                    master,
                    Some(node.set_redis_connection_info(settings)),
                    SentinelServerType::Master,
                )?))
            }
            Topology::Cluster(nodes) => {
                let mut seeds = vec![url.to_owned()];
                seeds.extend(nodes.iter().map(|node| address(node)));
                let mut builder = ClusterClientBuilder::new(seeds);
                if let Some(user) = settings.username() {
                    builder = builder.username(user);
                }
                if let Some(password) = settings.password() {
                    builder = builder.password(password);
                }
                let cluster = Cluster::new(builder.build()?, info, options.timeout);
                Self::Cluster(Arc::new(cluster))
            }
        })
    }

    pub(super) async fn connect(&self) -> Result<Handle, RedisError> {
        // The caller has a time limit of its own.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        Ok(match self {
            Self::One(client) => Handle::One(
                client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?,
            ),
            Self::Sentinel(client) => {
                let mut client = client.lock().await;
                Handle::One(client.get_async_connection_with_config(&config).await?)
            }
            Self::Cluster(cluster) => Handle::Cluster(cluster.connect().await?),
        })
    }

    /// The one server that is written to; an error in a cluster.
    pub(super) async fn master(&self) -> Result<Client, RedisError> {
        match self {
            Self::One(client) => Ok(client.clone()),
            Self::Sentinel(client) => client.lock().await.async_get_client().await,
            Self::Cluster(_) => Err(io::Error::other("there is no one server").into()),
        }
    }

    /// Every server that is written to.
    pub(super) async fn all_masters(&self) -> Result<Vec<Address>, Box<dyn Error + Send + Sync>> {
        let Self::Cluster(cluster) = self else {
            let info = self.master().await?;
            let info = info.get_connection_info();
            return Ok(vec![(info.addr().clone(), info.redis_settings().clone())]);
        };
        let redis = cluster.connect().await?;
        let map = redis.read_map().await?;
        let masters = map.masters.iter();
        Ok(masters.map(|master| master.address.clone()).collect())
    }
}

impl Handle {
    /// Sends commands for several keys: in one pipeline, or in a cluster in one to each master.
    ///
    /// # Errors
    /// Fails if a command could not be sent, or a server answers one with an error.
    pub(super) async fn send(&mut self, commands: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::Cluster(masters) => masters.send(commands).await?.into_iter().collect(),
            Self::One(connection) => pipeline_of(commands).query_async(connection).await,
        }
    }

    /// As [`Handle::send`], with the errors of servers among the answers.
    ///
    /// # Errors
    /// Fails if a command could not be sent.
    pub(super) async fn answers(&mut self, commands: Vec<Cmd>) -> Result<Vec<Answer>, RedisError> {
        match self {
            Self::Cluster(masters) => masters.send(commands).await,
            Self::One(connection) => {
                let count = commands.len();
                let pipeline = pipeline_of(commands);
                let values = connection.req_packed_commands(&pipeline, 0, count).await?;
                Ok(values.into_iter().map(Value::extract_error).collect())
            }
        }
    }
}

fn pipeline_of(commands: Vec<Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

impl ConnectionLike for Handle {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            Self::Cluster(masters) => masters.library.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(cmd, offset, count),
            Self::Cluster(masters) => masters.library.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(masters) => masters.library.get_db(),
        }
    }
}

fn address(node: &str) -> String {
    format!("redis://{node}")
}

/// The host of a URL: behind the user and password, before the port and the database.
fn master_name(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_is_the_master_s_name() {
        for url in [
            "redis://links",
            "redis://links/0",
            "redis://links:1/0",
            "redis://user:p@ss@links/2",
            "redis://:secret@links?protocol=resp3",
        ] {
            assert_eq!(master_name(url), "links", "{url}");
        }
    }
}
