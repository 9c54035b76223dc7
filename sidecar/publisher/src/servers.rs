//! Discovery of the servers that link records are written to: one server, the master that sentinels
//! name, or a cluster.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
};
use redis::{Pipeline, RedisError, RedisFuture, TlsMode, Value};
use secrecy::{ExposeSecret, SecretString};
use shortlink_core::ended::EndedDays;
use vocabulary::KeyPrefix;

use super::cluster::{Answer, Cluster, Masters};
use super::tls::{Certificates, Tls};

/// The servers can't be reached with these settings. Does not show the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// The URL is none of a Redis server.
    #[error(
        "redis.url must be like redis://127.0.0.1:6379/0, rediss://redis.example.com:6379/0 (with TLS) or \
         redis+unix:///run/redis.sock"
    )]
    Url {
        /// Its fault.
        #[from]
        source: RedisError,
    },
    /// There are certificates for connections without TLS.
    #[error(
        "redis.ca_file, redis.certificate_file and redis.certificate_key_file need a redis.url that begins with \
         rediss://"
    )]
    Plain,
    /// The certificates can't be used.
    #[error(
        "the files of redis.ca_file, redis.certificate_file and redis.certificate_key_file can't be used"
    )]
    Certificates {
        /// Their fault.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl UrlError {
    pub(super) fn certificates(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self::Certificates { source }
    }
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
    /// Certificates for a URL that begins with `rediss://`.
    pub certificates: Certificates,
    /// The user of the sentinels and its password, if they demand one; without a user, their default one.
    pub sentinel_login: Option<(Option<String>, SecretString)>,
    /// The prefix of every key.
    pub prefix: KeyPrefix,
    /// The time limit of an operation.
    pub timeout: Duration,
    /// The days for which the records of ended links stay.
    pub ended_days: EndedDays,
}

/// Opens connections.
pub(super) enum Servers {
    One(Client, Option<Tls>),
    /// Asked by one caller at a time.
    Sentinel(tokio::sync::Mutex<SentinelClient>, Option<Tls>),
    Cluster(Arc<Cluster>),
}

/// A server that can be connected to.
#[derive(Clone)]
pub(super) struct Address {
    /// Its address and the user's credentials.
    pub(super) info: ConnectionInfo,
    /// Secures connections of [`super::wire`], if it has TLS.
    pub(super) tls: Option<Tls>,
}

/// An open connection.
#[derive(Clone)]
pub(super) enum Handle {
    One(MultiplexedConnection),
    Cluster(Masters),
}

impl Servers {
    pub(super) fn new(options: &RedisOptions) -> Result<Self, UrlError> {
        let url = options.url.expose_secret();
        let mut info = without_name(url.into_connection_info()?);
        let certificates = &options.certificates;
        let is_secured = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let tls = match is_secured {
            true => {
                let client = Client::build_with_tls(info, certificates.for_library());
                let client = client.map_err(UrlError::certificates)?;
                info = client.get_connection_info().clone();
                Some(Tls::new(certificates)?)
            }
            false if certificates.are_given() => return Err(UrlError::Plain),
            false => None,
        };
        Ok(match &options.topology {
            Topology::Server => Self::One(Client::open(info)?, tls),
            Topology::Sentinel(nodes) => {
                let client = sentinel_client(options, nodes, &info)?;
                Self::Sentinel(tokio::sync::Mutex::new(client), tls)
            }
            Topology::Cluster(nodes) => {
                let scheme = if is_secured { "rediss" } else { "redis" };
                let mut seeds = vec![url.to_owned()];
                seeds.extend(nodes.iter().map(|node| format!("{scheme}://{node}")));
                // The library waits for every seed and every node: a silent one must leave time for the others.
                let mut builder =
                    ClusterClientBuilder::new(seeds).connection_timeout(options.timeout / 4);
                if let Some(user) = info.redis_settings().username() {
                    builder = builder.username(user);
                }
                if let Some(password) = info.redis_settings().password() {
                    builder = builder.password(password);
                }
                if is_secured {
                    builder = builder.certs(certificates.for_library());
                }
                let asked = Address { info, tls };
                let cluster = Cluster::new(builder.build()?, asked, options.timeout);
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
            Self::One(client, _) => Handle::One(
                client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?,
            ),
            Self::Sentinel(..) => {
                let client = Client::open(self.master().await?.info)?;
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                Handle::One(connection.await?)
            }
            Self::Cluster(cluster) => Handle::Cluster(cluster.connect().await?),
        })
    }

    /// The one server that is written to; an error in a cluster.
    pub(super) async fn master(&self) -> Result<Address, RedisError> {
        let (client, tls) = match self {
            Self::One(client, tls) => (client.clone(), tls),
            Self::Sentinel(client, tls) => (client.lock().await.async_get_client().await?, tls),
            Self::Cluster(_) => return Err(io::Error::other("there is no one server").into()),
        };
        Ok(Address {
            info: without_name(client.get_connection_info().clone()),
            tls: tls.clone(),
        })
    }

    /// Every server that is written to.
    pub(super) async fn all_masters(&self) -> Result<Vec<Address>, Box<dyn Error + Send + Sync>> {
        let Self::Cluster(cluster) = self else {
            return Ok(vec![self.master().await?]);
        };
        let redis = cluster.connect().await?;
        let map = redis.read_map().await?;
        let masters = map.masters.iter();
        Ok(masters.map(|master| master.address.clone()).collect())
    }
}

/// Settings by which the library does not send its name, a command that Redis has from 7.2 on and that the sidecar's
/// user has no right to. In a cluster the library sends it all the same, and goes on when it is refused. A connection
/// that does not log in sends it too: the library reads the first answer before it hands a connection over, and only
/// then shows why a server refuses a certificate.
fn without_name(info: ConnectionInfo) -> ConnectionInfo {
    if info.redis_settings().password().is_none() {
        return info;
    }
    let settings = info.redis_settings().clone();
    info.set_redis_settings(settings.set_skip_set_lib_name())
}

/// The client of sentinels that know the master whose group the URL names.
fn sentinel_client(
    options: &RedisOptions,
    nodes: &[String],
    info: &ConnectionInfo,
) -> Result<SentinelClient, UrlError> {
    let mut addresses = Vec::with_capacity(nodes.len());
    for node in nodes {
        let node = format!("redis://{node}").into_connection_info()?;
        addresses.push(node.addr().clone());
    }
    let master = master_name(options.url.expose_secret());
    let mut client = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?;
    let settings = info.redis_settings();
    client = client.set_client_to_redis_db(settings.db());
    if let Some(user) = settings.username() {
        client = client.set_client_to_redis_username(user);
    }
    if let Some(password) = settings.password() {
        client = client.set_client_to_redis_password(password);
    }
    if let Some((user, password)) = &options.sentinel_login {
        client = client.set_client_to_sentinel_password(password.expose_secret());
        if let Some(user) = user {
            client = client.set_client_to_sentinel_username(user);
        }
    }
    if let ConnectionAddr::TcpTls { .. } = info.addr() {
        let certificates = options.certificates.for_library();
        client = client
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_certificates(certificates);
    }
    Ok(client.build()?)
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
