//! Clients' addresses, and their networks: what is left of an address when it is truncated.

use core::fmt::{self, Write as _};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most bytes of an address in text.
const MAX_TEXT: usize = 45;

/// Reads an address. An IPv4-mapped IPv6 address becomes an IPv4 address: the same client may use
/// either, and truncated to 48 bits nothing would be left of it.
#[must_use]
pub fn parsed(text: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(text).ok()?;
    let address: IpAddr = text.parse().ok()?;
    Some(address.to_canonical())
}

/// The network of an address: its first 24 bits in IPv4, its first 48 in IPv6, the others 0.
#[must_use]
pub fn truncated(whole: IpAddr) -> IpAddr {
    match whole {
        IpAddr::V4(whole) => Ipv4Addr::from_bits(whole.to_bits() & (!0 << 8)).into(),
        IpAddr::V6(whole) => Ipv6Addr::from_bits(whole.to_bits() & (!0 << 80)).into(),
    }
}

/// The text of an address, without memory from the heap.
#[derive(Clone, Copy, Debug)]
pub struct AddressText {
    bytes: [u8; MAX_TEXT],
    length: usize,
}

impl AddressText {
    /// The text of the network of an address in text; empty if the text is no address, because
    /// then nothing shows which part of it could stay.
    #[must_use]
    pub fn truncated(text: &[u8]) -> Self {
        let mut network = Self {
            bytes: [0; MAX_TEXT],
            length: 0,
        };
        if let Some(address) = parsed(text)
            && write!(network, "{}", truncated(address)).is_err()
        {
            network.length = 0;
        }
        network
    }

    /// The bytes of the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Write for AddressText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let free = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> String {
        let network = AddressText::truncated(text.as_bytes());
        String::from_utf8(network.as_bytes().to_vec()).expect("a text")
    }

    #[test]
    fn a_network_is_all_that_is_left_of_an_address() {
        for (whole, expected) in [
            ("203.0.113.77", "203.0.113.0"),
            ("255.255.255.255", "255.255.255.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
            (
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                "ffff:ffff:ffff::",
            ),
            ("::1", "::"),
            ("::ffff:203.0.113.77", "203.0.113.0"),
            ("unix:", ""),
            ("fe80::1%eth0", ""),
            ("203.0.113.77:80", ""),
            ("", ""),
        ] {
            assert_eq!(network(whole), expected, "{whole}");
        }
    }

    proptest! {
        #[test]
        fn hosts_of_a_network_look_alike(
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
        fn every_address_has_a_text_for_its_network(octets in any::<[u8; 16]>()) {
            let whole = IpAddr::from(octets);
            let text = AddressText::truncated(whole.to_string().as_bytes());
            let read = parsed(text.as_bytes());
            prop_assert_eq!(read, Some(truncated(whole.to_canonical()).to_canonical()));
        }

        #[test]
        fn any_bytes_are_an_address_or_none(bytes in prop::collection::vec(any::<u8>(), 0..46)) {
            let _ = AddressText::truncated(&bytes);
        }
    }
}
