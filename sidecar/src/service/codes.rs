//! Sources of codes for new links.
//!
//! A strategy proposes codes ([`strategy`]); the store decides, since only there a code is known to
//! be free. [`lengths`] chooses their length.

pub mod hash;
pub mod lengths;
pub mod permuted;
pub mod pool;
pub mod sequence;
pub mod strategy;

#[cfg(test)]
mod tests;
