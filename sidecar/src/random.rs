//! Secret random numbers, seeded by the operating system.

use anyhow::Context;
use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng};

/// Seeds a generator.
///
/// # Errors
/// Fails if the operating system has no random numbers.
pub fn generator() -> anyhow::Result<StdRng> {
    StdRng::try_from_rng(&mut SysRng).context("the operating system provides no random numbers")
}

/// Draws the name of this process among all that claim jobs in SQL.
///
/// # Errors
/// Fails if the operating system has no random numbers.
pub fn holder() -> anyhow::Result<String> {
    Ok(format!("{:016x}", generator()?.random::<u64>()))
}
