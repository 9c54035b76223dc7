//! Endpoints: URLs of others, which must not lead into the networks of the service.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::{Host, Url};

use crate::target::{is_private, is_private_address};

/// The most bytes of a URL.
pub const MAX_URL_LENGTH: usize = 2048;

/// An address of Azure's hosts that is public by its number: it has the metadata of a machine.
const WIRE_SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(168, 63, 129, 16));

/// A network: an address and the number of its leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// The text is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a network such as 10.1.0.0/16 or fd00::/8")]
pub struct InvalidNetwork;

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_error| InvalidNetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| {
            bits.parse().map_err(|_error| InvalidNetwork)
        })?;
        let network = Self { address, bits };
        let is_first = bits <= most && mask(address, bits) == mask(address, most);
        is_first.then_some(network).ok_or(InvalidNetwork)
    }
}

/// The leading bits of an address.
fn mask(address: IpAddr, bits: u8) -> u128 {
    let (number, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let rest = width - u32::from(bits).min(width);
    number.checked_shr(rest).map_or(0, |number| number << rest)
}

impl Network {
    /// Reports whether the network has an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && mask(address, self.bits) == mask(self.address, self.bits)
    }
}

/// The endpoints that are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// Endpoints without TLS are allowed.
    pub plain_http: bool,
    /// Private networks with endpoints.
    pub networks: Vec<Network>,
}

impl EndpointPolicy {
    /// Reports whether messages may be sent to an address.
    pub fn admits(&self, address: IpAddr) -> bool {
        // An IPv4 address in the form of IPv6 is that address.
        let address = address.to_canonical();
        let is_listed = || self.networks.iter().any(|it| it.contains(address));
        (!is_private_address(address) && address != WIRE_SERVER) || is_listed()
    }
}

/// The URL of an endpoint, in its normal form.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointUrl(String);

impl EndpointUrl {
    /// Checks a URL. The addresses of a name are checked when a message is sent.
    ///
    /// # Errors
    /// The requirement that it violates.
    pub fn parse(text: &str, policy: &EndpointPolicy) -> Result<Self, EndpointError> {
        if text.len() > MAX_URL_LENGTH {
            return Err(EndpointError::TooLong);
        }
        let url = Url::parse(text).map_err(|_error| EndpointError::NoUrl)?;
        match url.scheme() {
            "https" => {}
            "http" if policy.plain_http => {}
            "http" => return Err(EndpointError::Plain),
            _ => return Err(EndpointError::NoUrl),
        }
        let host = url.host().ok_or(EndpointError::NoUrl)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        if url.fragment().is_some() {
            return Err(EndpointError::Fragment);
        }
        let is_admitted = match host {
            Host::Ipv4(address) => policy.admits(address.into()),
            Host::Ipv6(address) => policy.admits(address.into()),
            Host::Domain(_) => !policy.networks.is_empty() || !is_private(&host),
        };
        if !is_admitted {
            return Err(EndpointError::Private);
        }
        let text = String::from(url);
        if text.len() > MAX_URL_LENGTH {
            return Err(EndpointError::TooLong);
        }
        Ok(Self(text))
    }

    /// Reports whether messages would be sent without TLS.
    pub fn is_plain(&self) -> bool {
        self.0.starts_with("http:")
    }

    /// Takes a URL that was stored.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its host, if that is an address. URLs have many spellings of addresses, which parsing resolves.
    pub fn address(&self) -> Option<IpAddr> {
        match Url::parse(&self.0).ok()?.host()? {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }

    /// Its scheme, host and port: a path can have a secret.
    pub fn origin(&self) -> String {
        Url::parse(&self.0).map_or_else(|_| String::new(), |url| url.origin().ascii_serialization())
    }
}

impl fmt::Debug for EndpointUrl {
    /// Shows the origin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}

/// The reason for which a URL can't be an endpoint, in words for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It has too many bytes.
    #[error("must have at most {MAX_URL_LENGTH} bytes")]
    TooLong,
    /// It is not a URL.
    #[error("must be an https URL")]
    NoUrl,
    /// It has no TLS.
    #[error("must be an https URL; the setting webhooks.plain_http allows http")]
    Plain,
    /// It has a user or a password.
    #[error("must not contain a user or a password")]
    Credentials,
    /// It has a fragment.
    #[error("must not contain a fragment")]
    Fragment,
    /// It leads to a private address.
    #[error(
        "must not lead to a private, local or reserved address or name; the setting webhooks.allowed_networks allows networks"
    )]
    Private,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(networks: &[&str]) -> EndpointPolicy {
        EndpointPolicy {
            plain_http: true,
            networks: networks
                .iter()
                .map(|it| it.parse().expect("a network"))
                .collect(),
        }
    }

    #[test]
    fn networks_are_read_and_have_their_addresses() {
        for (network, address, is_inside) in [
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.0.0/16", "::ffff:10.1.0.1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "192.168.1.1", true),
            ("0.0.0.0/0", "::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "::1", true),
        ] {
            let network: Network = network.parse().expect("a network");
            let address = address.parse().expect("an address");
            assert_eq!(
                network.contains(address),
                is_inside,
                "{network:?} {address}"
            );
        }
        for text in [
            "",
            "10.1.0.0/33",
            "10.1.0.1/16",
            "fd00::/129",
            "a/8",
            "10.0.0.0/",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(text.parse::<Network>(), Err(InvalidNetwork), "{text}");
        }
    }

    #[test]
    fn private_addresses_are_refused_in_every_spelling() {
        for text in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://0x7f000001/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/latest/meta-data",
            "http://10.0.0.1/",
            "http://100.100.100.200/",
            "http://168.63.129.16/",
            "http://[fd00:ec2::254]/",
            "http://[fe80::1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://0.0.0.0/",
            "http://localhost/",
            "http://metadata.google.internal/",
            "http://router.local/",
            "http://service/",
            "http://\u{ff11}27.0.0.1/",
        ] {
            assert_eq!(
                EndpointUrl::parse(text, &policy(&[])),
                Err(EndpointError::Private),
                "{text}"
            );
        }
        for text in [
            "http://8.8.8.8/",
            "http://[2600::1]/",
            "https://hooks.example.com/a?b=c",
        ] {
            assert!(EndpointUrl::parse(text, &policy(&[])).is_ok(), "{text}");
        }
        let local = policy(&["127.0.0.0/8", "::1"]);
        for (text, is_allowed) in [
            ("http://127.0.0.1:8080/", true),
            ("http://[::ffff:127.0.0.1]/", true),
            ("http://[::1]/", true),
            ("http://localhost/", true),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(
                EndpointUrl::parse(text, &local).is_ok(),
                is_allowed,
                "{text}"
            );
        }
    }

    #[test]
    fn urls_are_normalised_and_have_neither_credentials_nor_fragments() {
        let parse = |text: &str| EndpointUrl::parse(text, &EndpointPolicy::default());
        let parsed = parse("HTTPS://Hooks.Example.COM:443/a/../b?c").expect("a URL");
        assert_eq!(parsed.as_str(), "https://hooks.example.com/b?c");
        assert_eq!(format!("{parsed:?}"), "https://hooks.example.com");
        for (text, error) in [
            ("", EndpointError::NoUrl),
            ("hooks.example.com", EndpointError::NoUrl),
            ("ftp://hooks.example.com/", EndpointError::NoUrl),
            ("http://hooks.example.com/", EndpointError::Plain),
            (
                "https://user@hooks.example.com/",
                EndpointError::Credentials,
            ),
            (
                "https://:secret@hooks.example.com/",
                EndpointError::Credentials,
            ),
            ("https://hooks.example.com/#a", EndpointError::Fragment),
            (
                &format!("https://hooks.example.com/{}", "a".repeat(MAX_URL_LENGTH)),
                EndpointError::TooLong,
            ),
            (
                &format!("https://hooks.example.com/{}", "ü".repeat(1000)),
                EndpointError::TooLong,
            ),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
