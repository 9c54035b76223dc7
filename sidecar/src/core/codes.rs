//! Codes: how they are numbered, and where those of new links come from.
//!
//! A strategy proposes codes ([`strategy`]); the store decides, since only there a code is known to
//! be free. [`lengths`] says how long codes are to be.

pub mod hash;
pub mod lengths;
pub mod numbering;
pub mod permutation;
pub mod permuted;
pub mod pool;
pub(crate) mod random;
pub mod reserved;
pub mod sequence;
pub mod strategy;

#[cfg(test)]
mod tests;
