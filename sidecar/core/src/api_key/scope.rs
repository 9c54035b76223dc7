//! Scopes of API keys.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Permission that a key grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// To read links.
    LinksRead,
    /// To create, change and revoke links.
    LinksWrite,
    /// To read campaigns.
    CampaignsRead,
    /// To create, change and end campaigns.
    CampaignsWrite,
    /// To read statistics.
    StatsRead,
    /// To create, change, rotate and revoke API keys.
    KeysAdmin,
    /// Everything.
    Admin,
}

impl Scope {
    /// Every scope, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::LinksRead,
        Self::LinksWrite,
        Self::CampaignsRead,
        Self::CampaignsWrite,
        Self::StatsRead,
        Self::KeysAdmin,
        Self::Admin,
    ];

    /// The scopes' names, for messages.
    pub const NAMES: &'static str = "links:read, links:write, campaigns:read, campaigns:write, \
                                     stats:read, keys:admin, admin";

    /// The scope's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::LinksRead => "links:read",
            Self::LinksWrite => "links:write",
            Self::CampaignsRead => "campaigns:read",
            Self::CampaignsWrite => "campaigns:write",
            Self::StatsRead => "stats:read",
            Self::KeysAdmin => "keys:admin",
            Self::Admin => "admin",
        }
    }

    /// The scopes of a list, each once and in the order of [`Scope::ALL`].
    pub fn unique(scopes: &[Self]) -> Vec<Self> {
        let mut unique = Self::ALL.to_vec();
        unique.retain(|scope| scopes.contains(scope));
        unique
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(name: &str) -> Result<Self, UnknownScope> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == name)
            .ok_or_else(|| UnknownScope {
                name: name.to_owned(),
            })
    }
}

/// A name that is no scope's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no scope {name:?}; allowed are {}", Scope::NAMES)]
pub struct UnknownScope {
    /// Requested name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scopes_are_read_as_they_are_written() {
        for scope in Scope::ALL {
            assert_eq!(scope.name().parse(), Ok(scope));
        }
        for name in ["", "links", "Admin", "links:write ", "keys:write"] {
            assert!(name.parse::<Scope>().is_err(), "{name:?}");
        }
        assert_eq!(Scope::ALL.map(Scope::name).join(", "), Scope::NAMES);
    }

    #[test]
    fn a_list_of_scopes_names_each_once() {
        let scopes = [Scope::Admin, Scope::LinksRead, Scope::Admin];
        assert_eq!(Scope::unique(&scopes), [Scope::LinksRead, Scope::Admin]);
    }
}
