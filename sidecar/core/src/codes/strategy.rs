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

named! {
    /// The way in which the code of a link was chosen.
    pub enum CodeOrigin: "way to choose a code" {
        /// By [`StrategyName::Permuted`].
        Permuted = "permuted",
        /// By [`StrategyName::Pool`].
        Pool = "pool",
        /// By [`StrategyName::Sequence`].
        Sequence = "sequence",
        /// By [`StrategyName::Hash`].
        Hash = "hash",
        /// By the caller.
        Custom = "custom",
    }
}

impl From<StrategyName> for CodeOrigin {
    fn from(strategy: StrategyName) -> Self {
        match strategy {
            StrategyName::Permuted => Self::Permuted,
            StrategyName::Pool => Self::Pool,
            StrategyName::Sequence => Self::Sequence,
            StrategyName::Hash => Self::Hash,
        }
    }
}

impl CodeOrigin {
    /// The number that a database stores: never changed, never used again.
    pub fn number(self) -> u8 {
        match self {
            Self::Permuted => 1,
            Self::Pool => 2,
            Self::Sequence => 3,
            Self::Hash => 4,
            Self::Custom => 5,
        }
    }

    /// The way with a number.
    pub fn by_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.number() == number)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_number_and_each_strategy_is_one() {
        for origin in CodeOrigin::ALL {
            assert_eq!(CodeOrigin::by_number(origin.number()), Some(origin));
        }
        assert_eq!([0, 6, 255].map(CodeOrigin::by_number), [None; 3]);
        for strategy in StrategyName::ALL {
            assert_eq!(CodeOrigin::from(strategy).name(), strategy.name());
        }
    }
}
