//! The names of strategies, and the policy for the codes of new links.

use crate::named;

named! {
    /// The name of a strategy.
    #[derive(Default)]
    pub enum StrategyName: "strategy" {
        /// Counted up and put through a keyed permutation: not guessable, never drawn twice.
        #[default]
        Permuted = "permuted",
        /// Random, generated ahead.
        Pool = "pool",
        /// An increasing number between fillers, which can be decoded from the code.
        Sequence = "sequence",
        /// Derived from the target.
        Hash = "hash",
    }
}

impl StrategyName {
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

/// The policy by which the code of a new link is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodePolicy {
    /// The way.
    pub strategy: StrategyName,
    /// The least and the greatest number of characters, without the check character.
    pub lengths: (u8, u8),
}
