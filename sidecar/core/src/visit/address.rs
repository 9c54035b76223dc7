//! Clients' addresses, and the part of them that is stored.

use std::net::IpAddr;

pub use vocabulary::address::parsed;
use vocabulary::address::truncated;

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

#[cfg(test)]
mod tests {
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
        ] {
            assert_eq!(kept(Truncated, whole).as_deref(), Some(truncated));
            assert_eq!(kept(Whole, whole).as_deref(), Some(whole));
            assert_eq!(kept(Nothing, whole), None);
        }
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
}
