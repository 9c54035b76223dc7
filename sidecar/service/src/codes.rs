//! Sources of codes for new links.
//!
//! A strategy proposes codes ([`strategy`]); the store decides, since only the store knows which
//! codes are free. [`lengths`] chooses their length.

pub mod hash;
pub mod leases;
pub mod lengths;
pub mod permuted;
pub mod pool;
pub mod sequence;
pub mod strategy;

#[cfg(test)]
mod tests;
