//! Codes: how they are numbered, and where those of new links come from.

pub mod numbering;
pub mod permutation;
