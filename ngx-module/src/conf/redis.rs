//! `shortlink_redis`: where link records are read.

use std::ffi::{CStr, CString, c_char, c_void};
use std::{fs, mem, slice};

use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::ffi::{NGX_OK, ngx_command_t, ngx_conf_t, ngx_int_t, ngx_parse_url, ngx_str_t, ngx_url_t};
use resolver::vocabulary::KeyPrefix;
use resolver::vocabulary::number::parse_decimal;
use resolver::{
    Address, CacheSettings, Credentials, EdgeSettings, Endpoint, NodeSettings, TopologySettings,
    Tracking,
};

use super::MainConf;
use super::tls::TlsLines;
use super::words::{Set, config_path, finish, read_block, read_time, shown, words};
use crate::addresses::SocketAddress;
use crate::tls::Tls;

/// The ports of servers and sentinels that are given without one.
const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The keys that a block may hold, for messages.
const KEYS: &str = "server, sentinel, cluster, replica, user, password, password_file, \
                    sentinel_user, sentinel_password, sentinel_password_file, database, prefix, \
                    budget, heartbeat, tracking, tls, tls_name, tls_verify, \
                    tls_trusted_certificate, tls_certificate, tls_certificate_key";

/// `shortlink_redis`.
#[derive(Debug)]
pub(crate) struct RedisConf {
    /// The addresses behind names of the configuration.
    pub(crate) addresses: Vec<(Address, Vec<SocketAddress>)>,
    /// The TLS of connections; `None` if they are in the clear.
    pub(crate) tls: Option<Tls>,
    /// The first name that has no address, and where it stands.
    pub(crate) unresolved: Option<(Address, String)>,
    nodes: NodeSettings,
    topology: TopologySettings,
    replica: Option<Address>,
}

impl RedisConf {
    /// Returns the edge's settings for it.
    pub(crate) fn edge_settings(&self, cache: Option<CacheSettings>) -> EdgeSettings {
        EdgeSettings {
            nodes: self.nodes.clone(),
            topology: self.topology.clone(),
            replica: self.replica.clone(),
            cache,
        }
    }
}

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

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with this module's main configuration.
    unsafe {
        let main = &mut *conf.cast::<MainConf>();
        if main.redis.is_some() {
            return finish(cf, Err("\"shortlink_redis\" is given twice".to_owned()));
        }
        let mut block = Block::default();
        if read_block(cf, set_line, (&raw mut block).cast()) != NGX_CONF_OK {
            return NGX_CONF_ERROR;
        }
        let set = block.finish(cf).map(|conf| main.redis = Some(conf));
        finish(cf, set)
    }
}

unsafe extern "C" fn set_line(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    block: *mut c_void,
) -> *mut c_char {
    // SAFETY: `set` hands its block to the parser, which calls this while `set` waits.
    unsafe {
        let block = &mut *block.cast::<Block>();
        let set = block.read_line(cf);
        finish(cf, set)
    }
}

impl Block {
    unsafe fn read_line(&mut self, cf: *mut ngx_conf_t) -> Set {
        // SAFETY: the caller's configuration is valid.
        unsafe {
            let words = words(cf);
            let (&key, values) = words.split_first().ok_or("an empty line")?;
            if self.given.iter().any(|given| given == key) {
                return Err(format!(
                    "\"{}\" is given twice in \"shortlink_redis\"",
                    shown(key)
                ));
            }
            self.given.push(key.to_vec());
            match key {
                b"sentinel" => return self.read_sentinel(cf, values),
                b"cluster" => return self.read_cluster(cf, values),
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
            self.read_value(cf, key, value)
        }
    }

    unsafe fn read_value(&mut self, cf: *mut ngx_conf_t, key: &[u8], value: &[u8]) -> Set {
        let nodes = &mut self.nodes;
        // SAFETY: the caller's configuration is valid.
        unsafe {
            match key {
                b"server" => {
                    let address = self.read_address(cf, key, value, DEFAULT_PORT)?;
                    self.choose(TopologySettings::Server(address))?;
                }
                b"replica" => {
                    self.replica = Some(self.read_address(cf, key, value, DEFAULT_PORT)?);
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
                b"password_file" => self.password = Some(read_secret(cf, key, value)?),
                b"sentinel_user" => self.sentinel_user = Some(shown(value)),
                b"sentinel_password" => self.sentinel_password = Some(shown(value)),
                b"sentinel_password_file" => {
                    self.sentinel_password = Some(read_secret(cf, key, value)?);
                }
                _ => return self.tls.read(key, value),
            }
        }
        Ok(())
    }

    unsafe fn read_sentinel(&mut self, cf: *mut ngx_conf_t, values: &[&[u8]]) -> Set {
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
            // SAFETY: the caller's configuration is valid.
            let address =
                unsafe { self.read_address(cf, b"sentinel", address, DEFAULT_SENTINEL_PORT) };
            sentinels.push(address?);
        }
        self.choose(TopologySettings::Sentinel {
            master: shown(master),
            sentinels,
        })
    }

    unsafe fn read_cluster(&mut self, cf: *mut ngx_conf_t, values: &[&[u8]]) -> Set {
        if values.is_empty() {
            return Err(
                "\"cluster\" takes the addresses of some nodes, such as cluster 10.0.0.1:6379 \
                 10.0.0.2:6379"
                    .to_owned(),
            );
        }
        let mut seeds = Vec::new();
        for address in values {
            // SAFETY: the caller's configuration is valid.
            seeds.push(unsafe { self.read_address(cf, b"cluster", address, DEFAULT_PORT) }?);
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
    unsafe fn read_address(
        &mut self,
        cf: *mut ngx_conf_t,
        key: &[u8],
        value: &[u8],
        default_port: u16,
    ) -> Result<Address, String> {
        // SAFETY: all zeros is how nginx' own modules begin a URL. The value is a word of the
        // configuration, which lives as long as it; on success the addresses are an array in the
        // configuration's pool, and on failure `err` is a static text or null.
        unsafe {
            let mut url: ngx_url_t = mem::zeroed();
            url.url = ngx_str_t {
                len: value.len(),
                data: value.as_ptr().cast_mut(),
            };
            url.default_port = default_port;
            // A resolver may later find a name that has no address now.
            let mut unresolved = url;
            unresolved.set_no_resolve(1);
            let is_sound = ngx_parse_url((*cf).pool, &mut unresolved) == NGX_OK as ngx_int_t;
            if ngx_parse_url((*cf).pool, &mut url) != NGX_OK as ngx_int_t && is_sound {
                url = unresolved;
            }
            if !is_sound {
                let reason = if url.err.is_null() {
                    "no address".to_owned()
                } else {
                    CStr::from_ptr(url.err).to_string_lossy().into_owned()
                };
                return Err(format!(
                    "{} \"{}\" is neither host:port nor unix:/path: {reason}",
                    shown(key),
                    shown(value)
                ));
            }
            let found = match url.naddrs {
                0 => &[],
                count => slice::from_raw_parts(url.addrs, count),
            };
            let address = if let Some(path) = value.strip_prefix(b"unix:") {
                let path = shown(path);
                if SocketAddress::of_path(&path).is_none() {
                    return Err(format!("the path \"{path}\" is too long for a unix socket"));
                }
                Address::Unix(path)
            } else {
                let host = url.host.as_bytes();
                let bare = host.strip_prefix(b"[").and_then(|h| h.strip_suffix(b"]"));
                let endpoint = Endpoint::new(bare.unwrap_or(host), url.port);
                Address::Tcp(endpoint.ok_or_else(|| {
                    format!("{} \"{}\" is no host's name", shown(key), shown(value))
                })?)
            };
            let addresses = found
                .iter()
                .map(|address| SocketAddress::of_nginx(address))
                .collect();
            if found.is_empty() {
                let file = &*(*cf).conf_file;
                let place = format!("{}:{}", file.file.name, file.line);
                self.unresolved.get_or_insert((address.clone(), place));
            }
            self.addresses.push((address.clone(), addresses));
            Ok(address)
        }
    }

    /// Puts together what was read.
    unsafe fn finish(mut self, cf: *mut ngx_conf_t) -> Result<RedisConf, String> {
        let topology = self.topology.take().ok_or(
            "\"shortlink_redis\" needs one of the lines \"server <address>;\", \
             \"sentinel <master> <address> …;\" and \"cluster <address> …;\"",
        )?;
        let is_cluster = matches!(topology, TopologySettings::Cluster { .. });
        let is_sentinel = matches!(topology, TopologySettings::Sentinel { .. });
        if is_cluster && self.nodes.database != 0 {
            return Err("\"database\": a cluster has no other than 0".to_owned());
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
        // SAFETY: the caller's configuration is valid.
        let tls = unsafe { self.tls.finish(cf, default_name) }?;
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
unsafe fn read_secret(cf: *mut ngx_conf_t, key: &[u8], value: &[u8]) -> Result<String, String> {
    // SAFETY: the caller's configuration is valid.
    let path = unsafe { config_path(cf, value) }?;
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("{} \"{path}\" can't be read: {error}", shown(key)))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
