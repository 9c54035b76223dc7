//! Clients' addresses, and the part of them that is stored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::named;

named! {
    /// The part of a client's address that is stored.
    #[derive(Default)]
    pub enum AddressPolicy: "address policy" {
        /// The network that the client is in: 24 bits of an IPv4 address, 48 of an IPv6 address.
        #[default]
        Truncated = "truncated",
        /// The whole address.
        Whole = "whole",
        /// Nothing.
        None = "none",
    }
}

impl AddressPolicy {
    /// Returns the part of an address to store.
    pub fn kept(self, whole: IpAddr) -> Option<IpAddr> {
        match self {
            Self::Truncated => Some(truncated(whole)),
            Self::Whole => Some(whole),
            Self::None => None,
        }
    }
}

/// Reads an address. An IPv4-mapped IPv6 address becomes an IPv4 address: the same client may use
/// either, and truncated to 48 bits nothing would be left of it.
pub fn parsed(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    text.parse()
        .ok()
        .map(|address: IpAddr| address.to_canonical())
}

fn truncated(whole: IpAddr) -> IpAddr {
    match whole {
        IpAddr::V4(whole) => Ipv4Addr::from_bits(whole.to_bits() & (!0 << 8)).into(),
        IpAddr::V6(whole) => Ipv6Addr::from_bits(whole.to_bits() & (!0 << 80)).into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(policy: AddressPolicy, text: &str) -> Option<String> {
        let whole = parsed(text.as_bytes())?;
        policy.kept(whole).map(|kept| kept.to_string())
    }

    #[test]
    fn addresses_are_kept_as_the_policy_says() {
        use AddressPolicy::{None as Nothing, Truncated, Whole};
        for (whole, truncated) in [
            ("203.0.113.77", "203.0.113.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
            ("::1", "::"),
        ] {
            assert_eq!(kept(Truncated, whole).as_deref(), Some(truncated));
            assert_eq!(kept(Whole, whole).as_deref(), Some(whole));
            assert_eq!(kept(Nothing, whole), None);
        }
        assert_eq!(
            kept(Truncated, "::ffff:203.0.113.77").as_deref(),
            Some("203.0.113.0")
        );
        assert_eq!(AddressPolicy::default(), Truncated);
    }

    #[test]
    fn policies_have_names() {
        let names: Vec<_> = AddressPolicy::NAMES.split(", ").collect();
        assert_eq!(names.len(), 3);
        for name in names {
            assert!(AddressPolicy::by_name(name).is_some(), "{name}");
        }
        assert_eq!(AddressPolicy::by_name("Whole"), None);
    }

    proptest! {
        #[test]
        fn what_is_truncated_does_not_tell_hosts_apart(
            network in any::<[u8; 6]>(),
            hosts in any::<[[u8; 10]; 2]>(),
        ) {
            let six = |host: [u8; 10]| {
                let mut octets = [0; 16];
                octets[..6].copy_from_slice(&network);
                octets[6..].copy_from_slice(&host);
                truncated(IpAddr::from(octets))
            };
            prop_assert_eq!(six(hosts[0]), six(hosts[1]));
            let four = |host: [u8; 10]| {
                truncated(IpAddr::from([network[0], network[1], network[2], host[0]]))
            };
            prop_assert_eq!(four(hosts[0]), four(hosts[1]));
        }

        #[test]
        fn any_bytes_are_an_address_or_none(bytes in prop::collection::vec(any::<u8>(), 0..46)) {
            let _ = parsed(&bytes);
        }
    }
}
