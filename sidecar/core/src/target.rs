//! Validation of the targets of links.
//!
//! A short link lends its sender's name to its target, and is opened by phones and by the
//! previewers of messengers. So a new target is parsed as a browser parses it (the WHATWG URL
//! standard), must be reachable for the public, and is stored in its serialised form: the checked
//! URL is the served one.

pub mod domains;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};
use url::{Host, Url};
use vocabulary::target::{MAX_TARGET_LENGTH, is_servable};

/// Requirements for new targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPolicy {
    /// Allows addresses and names that mean something else, or nothing, to the link's visitors: for
    /// tests on one machine.
    pub allow_private: bool,
    /// The least bytes of a target as serialised.
    pub min_bytes: usize,
    /// The most bytes of a target, as given and as serialised; at most [`MAX_TARGET_LENGTH`].
    pub max_bytes: usize,
}

impl Default for TargetPolicy {
    fn default() -> Self {
        Self {
            allow_private: false,
            min_bytes: 0,
            max_bytes: MAX_TARGET_LENGTH,
        }
    }
}

/// The hosts that a target may not have: those that short links are served under.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnHosts {
    hosts: Vec<String>,
    /// Suffixes of all hosts below a name, each with its leading dot.
    below: Vec<String>,
}

impl OwnHosts {
    /// Adds a host as configured: an address, or a name in any case, in Unicode or punycode, with
    /// or without a trailing dot; a leading `*.` adds all names below it. Anything else is ignored,
    /// since no target can have it.
    pub fn add(&mut self, host: &str) {
        if let Some(name) = host.strip_prefix("*.") {
            if let Ok(name) = Host::parse(name) {
                self.below.push(format!(".{}", bare(&name)));
            }
        } else if let Ok(host) = Host::parse(host) {
            self.hosts.push(bare(&host));
        }
    }

    fn contain(&self, host: &Host<&str>) -> bool {
        let host = bare(host);
        let is_below = |end: &String| host.len() > end.len() && host.ends_with(&**end);
        self.hosts.contains(&host) || self.below.iter().any(is_below)
    }
}

/// A target that was valid when its link was created or changed.
#[derive(Clone, PartialEq, Eq)]
pub struct Target(String);

impl Target {
    /// Reads a new target.
    ///
    /// # Errors
    /// Fails if it is not an absolute `http` or `https` URL or the policy refuses it.
    pub fn parse(text: &str, policy: TargetPolicy, own: &OwnHosts) -> Result<Self, TargetError> {
        let most = policy.max_bytes.min(MAX_TARGET_LENGTH);
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text.len() > most {
            return Err(TargetError::TooLong { most });
        }
        // A URL parser would silently drop some of these and turn `\` into `/`, so a browser would
        // open another URL than the caller sent.
        if let Some(character) = text.chars().find(|&c| is_refused(c)) {
            return Err(TargetError::Character { character });
        }
        // A URL parser would also take `http:example.com` and `http:///example.com` for
        // `http://example.com`.
        let authority = after_scheme(text).ok_or(TargetError::Scheme)?;
        if authority.is_empty() || authority.starts_with(['/', '?', '#']) {
            return Err(TargetError::Host);
        }
        let url = Url::parse(text).map_err(|source| TargetError::Malformed { source })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetError::Scheme);
        }
        let authority_end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
        // An empty user name (`http://@host`) leaves no trace in the parsed URL.
        if authority[..authority_end].contains('@') {
            return Err(TargetError::Userinfo);
        }
        let host = url.host().ok_or(TargetError::Host)?;
        if bare(&host).split('.').any(str::is_empty) {
            return Err(TargetError::Host);
        }
        if url.port() == Some(0) {
            return Err(TargetError::Port);
        }
        if own.contain(&host) {
            return Err(TargetError::OwnDomain);
        }
        if !policy.allow_private && is_private(&host) {
            return Err(TargetError::Private);
        }
        let serialised = String::from(url);
        if serialised.len() > most {
            return Err(TargetError::TooLong { most });
        }
        if serialised.len() < policy.min_bytes {
            let least = policy.min_bytes;
            return Err(TargetError::TooShort { least });
        }
        if !is_servable(serialised.as_bytes()) {
            return Err(TargetError::Unservable);
        }
        Ok(Self(serialised))
    }

    /// Reads a target that links may have, in the spelling in which they have it. Checks no policy: links outlive it.
    ///
    /// # Errors
    /// Fails if it is not an absolute `http` or `https` URL.
    pub fn normalise(text: &str) -> Result<Self, TargetError> {
        let policy = TargetPolicy {
            allow_private: true,
            ..TargetPolicy::default()
        };
        Self::parse(text, policy, &OwnHosts::default())
    }

    /// Returns the hash by which links are found by their target: the first 64 bits of SHA-256. It needs no key: a
    /// second URL with the hash of a given one takes 2^64 attempts, and one without a key stays right in a copy of the
    /// links.
    pub fn hash(&self) -> i64 {
        let digest = Sha256::digest(self.0.as_bytes());
        let (first, _) = digest.split_first_chunk().unwrap_or((&[0; 8], &[]));
        i64::from_be_bytes(*first)
    }

    /// Restores a target from the output of [`Target::parse`].
    pub fn from_stored(serialised: String) -> Self {
        Self(serialised)
    }

    /// The target for the `Location` header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Target {
    /// Shows no more than the length: targets hold recipients' data and must not reach logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({} bytes)", self.0.len())
    }
}

/// Reason for the refusal of a target, worded for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// It has too few bytes as serialised.
    #[error("must have at least {least} bytes: shorter targets need no short link")]
    TooShort {
        /// The least bytes it may have.
        least: usize,
    },
    /// It has too many bytes, as given or as serialised.
    #[error("must have at most {most} bytes, written as a URL with its percent-encoding")]
    TooLong {
        /// The most bytes it may have.
        most: usize,
    },
    /// It has a character that a URL parser would drop or replace.
    #[error("must not contain the character {character:?}: no spaces, control characters or \\")]
    Character {
        /// The first such character.
        character: char,
    },
    /// It does not begin with a scheme that can be redirected to.
    #[error("must begin with http:// or https://")]
    Scheme,
    /// It is not a URL.
    #[error("is not a valid URL: {source}")]
    Malformed {
        /// Error of the parser.
        source: url::ParseError,
    },
    /// It has no host, or one with an empty part between dots.
    #[error("must have a host")]
    Host,
    /// Its port is 0.
    #[error("must not have the port 0")]
    Port,
    /// It has a user name or password.
    #[error("must not contain a user name or password")]
    Userinfo,
    /// Its host is not one that a stranger can reach.
    #[error("must not lead to a private, local or reserved address or name")]
    Private,
    /// Its host is one of our own.
    #[error("must not lead back to a short domain")]
    OwnDomain,
    /// Its serialised form would not be served.
    #[error("can't be put into a Location header")]
    Unservable,
}

/// A host in the one spelling in which hosts are compared.
fn bare<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(name) => {
            let name = name.as_ref();
            name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
        }
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

fn is_refused(character: char) -> bool {
    character.is_control() || character.is_whitespace() || character == '\\'
}

/// Returns the part after `http://` or `https://`, in any case of letters.
fn after_scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")).then_some(rest)
}

/// The ends of names that mean something else in each network, or nothing (IANA's special-use names, and `internal`, which
/// ICANN has reserved). A name without a dot is one, too.
const PRIVATE_NAMES: [&str; 7] = [
    "alt",
    "home.arpa",
    "internal",
    "invalid",
    "local",
    "localhost",
    "onion",
];

/// Reports whether a host is a private, local or reserved address or name.
pub(crate) fn is_private(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(_) => {
            let name = bare(host);
            let is_below = |end: &&str| {
                let name = name.strip_suffix(*end);
                name.is_some_and(|name| name.ends_with('.'))
            };
            !name.contains('.') || PRIVATE_NAMES.iter().any(is_below)
        }
        Host::Ipv4(address) => is_private_v4(*address),
        Host::Ipv6(address) => is_private_v6(*address),
    }
}

/// Reports whether an address is private, local or reserved.
pub(crate) fn is_private_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

/// Reports whether the address is multicast or in IANA's special-purpose registry.
fn is_private_v4(address: Ipv4Addr) -> bool {
    match address.octets() {
        // This network, private use, loopback.
        [0 | 10 | 127, ..] => true,
        // Shared address space of carriers (100.64.0.0/10).
        [100, 64..=127, ..] => true,
        // Link-local.
        [169, 254, ..] => true,
        // Private use.
        [172, 16..=31, ..] | [192, 168, ..] => true,
        // Protocol assignments, documentation, the former 6to4 relays.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] => true,
        // Benchmarking.
        [198, 18 | 19, ..] => true,
        // Documentation.
        [198, 51, 100, _] | [203, 0, 113, _] => true,
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    }
}

/// Reports whether the address is anything but ordinary global unicast. Only 2000::/3 is allocated
/// as such. Outside of it are loopback, unique local, link-local, multicast, and the forms that
/// wrap an IPv4 address (mapped, NAT64), which could hide a private one.
fn is_private_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    match (first, second) {
        // Protocol assignments (2001::/23, with Teredo) and documentation.
        (0x2001, 0..=0x1ff | 0xdb8) => true,
        // 6to4, which wraps an IPv4 address.
        (0x2002, _) => true,
        // Documentation (3fff::/20).
        (0x3fff, 0..=0xfff) => true,
        (0x2000..=0x3fff, _) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
