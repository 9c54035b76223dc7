//! The names of strategies, and the policy for the codes of new links.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The name of a strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StrategyName {
    /// Counted up and put through a keyed permutation: not guessable, never drawn twice.
    #[default]
    Permuted,
    /// Random, generated ahead.
    Pool,
    /// An increasing number between fillers, which can be decoded from the code.
    Sequence,
    /// Derived from the target.
    Hash,
}

impl StrategyName {
    /// Every strategy.
    pub const ALL: [Self; 4] = [Self::Permuted, Self::Pool, Self::Sequence, Self::Hash];

    /// The names, for messages that list what is allowed.
    pub const NAMES: &'static str = "permuted, pool, sequence, hash";

    /// The strategy's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Permuted => "permuted",
            Self::Pool => "pool",
            Self::Sequence => "sequence",
            Self::Hash => "hash",
        }
    }

    /// The least and the greatest length of a strategy's codes, without the check character.
    pub fn lengths(self) -> (u8, u8) {
        match self {
            Self::Permuted | Self::Pool => (1, 12),
            // Two characters are the length and a filler.
            Self::Sequence => (4, 12),
            // A digest is cut into four numbers of 64 bits.
            Self::Hash => (1, 8),
        }
    }
}

impl fmt::Display for StrategyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for StrategyName {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| UnknownStrategy {
            name: name.to_owned(),
        })
    }
}

impl Serialize for StrategyName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The policy by which the code of a new link is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodePolicy {
    /// The way.
    pub strategy: StrategyName,
    /// The least and the greatest number of characters, without the check character.
    pub lengths: (u8, u8),
}

/// A name that is no strategy's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no strategy {name:?}; allowed are {}", StrategyName::NAMES)]
pub struct UnknownStrategy {
    /// The requested name.
    pub name: String,
}
