//! Ways to come up with codes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Serialize, Serializer};
use vocabulary::{Code, CodeError};

use crate::core::ports::{PublishError, StoreError};

/// What codes are asked for.
#[derive(Clone, Copy, Debug)]
pub struct DrawRequest<'a> {
    /// How many characters they have before the check character.
    pub length: usize,
    /// Where the links will lead, one code for each: a strategy may derive the code from it.
    pub targets: &'a [&'a str],
    /// How often codes were drawn for these links before and found taken or reserved.
    pub attempt: u32,
}

/// A way to come up with codes.
///
/// A strategy may propose codes that are taken, as long as it proposes others when asked again.
/// It may keep state of its own, here or elsewhere, which is why drawing is asynchronous and can
/// fail.
#[async_trait]
pub trait CodeStrategy: Send + Sync {
    /// Proposes codes, in the order of the targets. Fewer than there are targets when the length
    /// has no more to offer.
    ///
    /// # Errors
    /// When there are none to be had now.
    async fn draw(&self, request: &DrawRequest<'_>) -> Result<Vec<Code>, DrawError>;
}

/// The name of a strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StrategyName {
    /// Counted up and put through a keyed permutation: not guessable, never drawn twice.
    #[default]
    Permuted,
    /// Random, made ahead.
    Pool,
    /// An increasing number between fillers: a code tells its number to whoever knows how.
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

    /// The shortest and the longest codes that a strategy makes, without the check character.
    pub fn lengths(self) -> (u8, u8) {
        match self {
            Self::Permuted | Self::Pool => (1, 12),
            // Room for the length and a filler.
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

/// How a link's code is come up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodePolicy {
    /// The way.
    pub strategy: StrategyName,
    /// How many characters it may have before the check character.
    pub lengths: (u8, u8),
}

/// There is no such strategy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no strategy {name:?}; allowed are {}", StrategyName::NAMES)]
pub struct UnknownStrategy {
    /// What was asked for.
    pub name: String,
}

/// All strategies.
#[derive(Clone)]
pub struct Strategies {
    /// [`StrategyName::Permuted`]
    pub permuted: Arc<dyn CodeStrategy>,
    /// [`StrategyName::Pool`]
    pub pool: Arc<dyn CodeStrategy>,
    /// [`StrategyName::Sequence`]
    pub sequence: Arc<dyn CodeStrategy>,
    /// [`StrategyName::Hash`]
    pub hash: Arc<dyn CodeStrategy>,
}

impl Strategies {
    /// Finds a strategy by its name.
    pub fn get(&self, name: StrategyName) -> &dyn CodeStrategy {
        match name {
            StrategyName::Permuted => &*self.permuted,
            StrategyName::Pool => &*self.pool,
            StrategyName::Sequence => &*self.sequence,
            StrategyName::Hash => &*self.hash,
        }
    }
}

/// Why a strategy has no codes to propose.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// The body that was drawn does not fit the rules for codes.
    #[error("a code of {length} characters could not be completed")]
    Rules {
        /// The body's length.
        length: usize,
        /// What is wrong with it.
        #[source]
        source: CodeError,
    },
    /// The store does not hand out any.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What counts codes up does not answer.
    #[error(transparent)]
    Counter(#[from] PublishError),
}
