//! `shortlink_redis`: where link records are read.

use std::ffi::CString;
use std::fs;

use resolver::vocabulary::KeyPrefix;
use resolver::vocabulary::number::parse_decimal;
use resolver::{Address, Credentials, Endpoint, NodeSettings, TopologySettings, Tracking};

use crate::directives::named;
use crate::directives::tls::TlsLines;
use crate::directives::words::{Set, read_time, shown};
use crate::nginx::address::SocketAddress;
use crate::nginx::conf::{Conf, Refused};
use crate::settings::redis::RedisConf;
use crate::settings::{MainConf, Settings};

/// The ports of servers and sentinels that are given without one.
const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The keys that a block may hold, for messages.
const KEYS: &str = "server, sentinel, cluster, replica, user, password, password_file, \
                    sentinel_user, sentinel_password, sentinel_password_file, database, prefix, \
                    budget, heartbeat, tracking, tls, tls_name, tls_verify, \
                    tls_trusted_certificate, tls_certificate, tls_certificate_key";

/// A block that is being read.
#[derive(Default)]
struct Block {
    addresses: Vec<(Address, Vec<SocketAddress>)>,
    unresolved: Option<(Address, String)>,
    nodes: NodeSettings,
    topology: Option<TopologySettings>,
    replica: Option<Address>,
    user: Option<String>,
    password: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    tls: TlsLines,
    /// The keys that were given.
    given: Vec<Vec<u8>>,
}

/// `shortlink_redis`
pub(crate) fn set(conf: &mut Conf) -> Result<(), Refused> {
    let (number, name) = named::read(conf)?;
    let is_given = |main: &mut MainConf| main.redis_mut(number).is_some_and(|it| it.conf.is_some());
    if conf.main_mut::<Settings>().is_some_and(is_given) {
        return Err(format!(
            "\"{}\" is given twice",
            named::words("shortlink_redis", &name)
        )
        .into());
    }
    let mut block = Block::default();
    conf.read_block(&mut block, |conf, block| block.read_line(conf))?;
    let read = block.finish(conf)?;
    let main = conf.main_mut::<Settings>();
    if let Some(redis) = main.and_then(|main| main.redis_mut(number)) {
        redis.conf = Some(read);
    }
    Ok(())
}

impl Block {
    fn read_line(&mut self, conf: &Conf) -> Set {
        let words = conf.words();
        let (&key, values) = words.split_first().ok_or("an empty line")?;
        if self.given.iter().any(|given| given == key) {
            return Err(format!(
                "\"{}\" is given twice in \"shortlink_redis\"",
                shown(key)
            ));
        }
        let other = match key {
            b"password" => "password_file",
            b"password_file" => "password",
            b"sentinel_password" => "sentinel_password_file",
            b"sentinel_password_file" => "sentinel_password",
            _ => "",
        };
        if self.given.iter().any(|given| given == other.as_bytes()) {
            return Err(format!("\"{}\" does not go with \"{other}\"", shown(key)));
        }
        self.given.push(key.to_vec());
        match key {
            b"sentinel" => return self.read_sentinel(conf, values),
            b"cluster" => return self.read_cluster(conf, values),
            _ => {}
        }
        if !is_key(key) {
            return Err(format!(
                "unknown \"{}\" in \"shortlink_redis\": allowed are {KEYS}",
                shown(key)
            ));
        }
        let &[value] = values else {
            return Err(format!(
                "\"{}\" in \"shortlink_redis\" takes one value",
                shown(key)
            ));
        };
        self.read_value(conf, key, value)
    }

    fn read_value(&mut self, conf: &Conf, key: &[u8], value: &[u8]) -> Set {
        let nodes = &mut self.nodes;
        match key {
            b"server" => {
                let address = self.read_address(conf, key, value, DEFAULT_PORT)?;
                self.choose(TopologySettings::Server(address))?;
            }
            b"replica" => {
                self.replica = Some(self.read_address(conf, key, value, DEFAULT_PORT)?);
            }
            b"prefix" => {
                nodes.prefix = KeyPrefix::new(value)
                    .map_err(|error| format!("prefix \"{}\": {error}", shown(value)))?;
            }
            b"database" => {
                nodes.database = parse_decimal(value)
                    .and_then(|number| u16::try_from(number).ok())
                    .ok_or_else(|| {
                        format!(
                            "database \"{}\" is not a number from 0 to 65535",
                            shown(value)
                        )
                    })?;
            }
            b"budget" => {
                nodes.budget = read_time("budget", value, 1, NodeSettings::LONGEST_BUDGET)?;
            }
            b"heartbeat" => {
                let most = NodeSettings::LONGEST_HEARTBEAT;
                nodes.heartbeat = read_time("heartbeat", value, 50, most)?;
            }
            b"tracking" => {
                nodes.tracking = Some(match value {
                    b"optin" => Tracking::OptIn,
                    b"broadcast" => Tracking::Broadcast,
                    _ => {
                        return Err(format!(
                            "tracking \"{}\" is not one of optin, broadcast",
                            shown(value)
                        ));
                    }
                });
            }
            b"user" => self.user = Some(shown(value)),
            b"password" => self.password = Some(shown(value)),
            b"password_file" => self.password = Some(read_secret(conf, key, value)?),
            b"sentinel_user" => self.sentinel_user = Some(shown(value)),
            b"sentinel_password" => self.sentinel_password = Some(shown(value)),
            b"sentinel_password_file" => {
                self.sentinel_password = Some(read_secret(conf, key, value)?);
            }
            _ => return self.tls.read(key, value),
        }
        Ok(())
    }

    fn read_sentinel(&mut self, conf: &Conf, values: &[&[u8]]) -> Set {
        let (master, addresses) = match values {
            [master, addresses @ ..] if !addresses.is_empty() => (master, addresses),
            _ => {
                return Err(
                    "\"sentinel\" takes the name of a master and the sentinels' addresses, such \
                     as sentinel mymaster 10.0.0.1:26379 10.0.0.2:26379"
                        .to_owned(),
                );
            }
        };
        let mut sentinels = Vec::new();
        for address in addresses {
            sentinels.push(self.read_address(conf, b"sentinel", address, DEFAULT_SENTINEL_PORT)?);
        }
        self.choose(TopologySettings::Sentinel {
            master: shown(master),
            sentinels,
        })
    }

    fn read_cluster(&mut self, conf: &Conf, values: &[&[u8]]) -> Set {
        if values.is_empty() {
            return Err(
                "\"cluster\" takes the addresses of some nodes, such as cluster 10.0.0.1:6379 \
                 10.0.0.2:6379"
                    .to_owned(),
            );
        }
        let mut seeds = Vec::new();
        for address in values {
            seeds.push(self.read_address(conf, b"cluster", address, DEFAULT_PORT)?);
        }
        self.choose(TopologySettings::Cluster { seeds })
    }

    fn choose(&mut self, topology: TopologySettings) -> Set {
        if self.topology.replace(topology).is_some() {
            return Err(
                "\"shortlink_redis\" takes one of \"server\", \"sentinel\" and \"cluster\", not \
                 several"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Reads an address. A name is looked up now, as for every server in nginx' configuration.
    fn read_address(
        &mut self,
        conf: &Conf,
        key: &[u8],
        value: &[u8],
        default_port: u16,
    ) -> Result<Address, String> {
        let parsed = conf.parse_address(value, default_port).map_err(|reason| {
            format!(
                "{} \"{}\" is neither host:port nor unix:/path: {reason}",
                shown(key),
                shown(value)
            )
        })?;
        let address =
            if let Some(path) = value.strip_prefix(b"unix:") {
                let path = shown(path);
                if SocketAddress::of_path(&path).is_none() {
                    return Err(format!("the path \"{path}\" is too long for a unix socket"));
                }
                Address::Unix(path)
            } else {
                let host = &parsed.host[..];
                let bare = host.strip_prefix(b"[").and_then(|h| h.strip_suffix(b"]"));
                let endpoint = Endpoint::new(bare.unwrap_or(host), parsed.port);
                Address::Tcp(endpoint.ok_or_else(|| {
                    format!("{} \"{}\" is not a host name", shown(key), shown(value))
                })?)
            };
        if parsed.found.is_empty() {
            let (file, line) = conf.place();
            self.unresolved
                .get_or_insert((address.clone(), format!("{file}:{line}")));
        }
        self.addresses.push((address.clone(), parsed.found));
        Ok(address)
    }

    /// Puts together what was read.
    fn finish(mut self, conf: &Conf) -> Result<RedisConf, String> {
        let topology = self.topology.take().ok_or(
            "\"shortlink_redis\" needs one of the lines \"server <address>;\", \
             \"sentinel <master> <address> …;\" and \"cluster <address> …;\"",
        )?;
        let is_cluster = matches!(topology, TopologySettings::Cluster { .. });
        let is_sentinel = matches!(topology, TopologySettings::Sentinel { .. });
        if is_cluster && self.nodes.database != 0 {
            return Err("\"database\": a cluster has only database 0".to_owned());
        }
        if is_cluster && self.replica.is_some() {
            return Err("\"replica\" does not go with \"cluster\"".to_owned());
        }
        if !is_sentinel && (self.sentinel_user.is_some() || self.sentinel_password.is_some()) {
            return Err("\"sentinel_password\" needs \"sentinel\"".to_owned());
        }
        self.nodes.credentials = credentials("", self.user.take(), self.password.take())?;
        self.nodes.sentinel_credentials = credentials(
            "sentinel_",
            self.sentinel_user.take(),
            self.sentinel_password.take(),
        )?;
        // The name that servers must prove to have, unless one is given.
        let name = match self.addresses.first() {
            Some((Address::Tcp(endpoint), _)) => endpoint.host.clone(),
            _ => String::new(),
        };
        let default_name = CString::new(name).unwrap_or_default();
        let tls = self.tls.finish(conf, default_name)?;
        Ok(RedisConf {
            addresses: self.addresses,
            unresolved: self.unresolved,
            tls,
            nodes: self.nodes,
            topology,
            replica: self.replica,
        })
    }
}

fn is_key(key: &[u8]) -> bool {
    KEYS.split(", ").any(|known| known.as_bytes() == key)
}

fn credentials(
    which: &str,
    user: Option<String>,
    password: Option<String>,
) -> Result<Option<Credentials>, String> {
    match (user, password) {
        (None, None) => Ok(None),
        (user, Some(password)) => Ok(Some(Credentials {
            user: user.unwrap_or_else(|| "default".to_owned()),
            password,
        })),
        (Some(_), None) => Err(format!(
            "\"{which}user\" needs \"{which}password\" or \"{which}password_file\""
        )),
    }
}

/// Reads a password from a file, whose last line end does not count.
fn read_secret(conf: &Conf, key: &[u8], value: &[u8]) -> Result<String, String> {
    let path = conf.config_path(value)?;
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("{} \"{path}\" can't be read: {error}", shown(key)))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
