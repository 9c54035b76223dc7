//! Strategies, which propose codes.

use std::sync::Arc;

use async_trait::async_trait;
use shortlink_core::codes::strategy::StrategyName;
use shortlink_core::ports::StoreError;
use vocabulary::{Code, CodeError, CodeRules};

/// A request for codes.
#[derive(Clone, Copy, Debug)]
pub struct DrawRequest<'a> {
    /// Length of the codes without the check character.
    pub length: usize,
    /// Targets of the links, one code for each. A strategy may derive the code from its target.
    pub targets: &'a [&'a str],
    /// Number of earlier draws for these links, whose codes were taken or reserved.
    pub attempt: u32,
}

/// A way to generate codes.
///
/// A strategy may propose codes that are taken, as long as it proposes others at the next attempt.
/// It may have state of its own, here or elsewhere, so drawing is asynchronous and can fail.
#[async_trait]
pub trait CodeStrategy: Send + Sync {
    /// Proposes codes, in the order of the targets. Fewer than there are targets when the length
    /// has no more to offer.
    ///
    /// # Errors
    /// Fails if no code is available now.
    async fn draw(&self, request: &DrawRequest<'_>) -> Result<Vec<Code>, DrawError>;
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

/// Completes a code from the characters before its check character.
pub(super) fn complete(rules: &CodeRules, body: &[u8]) -> Result<Code, DrawError> {
    rules.complete(body).map_err(|source| DrawError::Rules {
        length: body.len(),
        source,
    })
}

/// The reason a strategy proposes no codes.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// The drawn body violates the rules for codes.
    #[error("a code of {length} characters could not be completed")]
    Rules {
        /// Length of the body.
        length: usize,
        /// The violated rule.
        #[source]
        source: CodeError,
    },
    /// The pool can't be filled with codes of a length.
    #[error("the pool got no codes of {length} characters")]
    Fill {
        /// The length of their bodies.
        length: usize,
        /// The cause.
        #[source]
        source: Box<DrawError>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
