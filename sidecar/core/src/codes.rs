//! Codes: their numbers, and the policies for those of new links.

pub mod blocklist;
pub mod capacity;
pub mod numbering;
pub mod permutation;
pub mod random;
pub mod reserved;
pub mod strategy;
