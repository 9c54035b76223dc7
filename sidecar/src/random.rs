//! Secret random numbers, seeded by the operating system.

use std::error::Error;

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

/// The operating system has no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the operating system has no random numbers to give")]
pub struct RandomError(#[source] Box<dyn Error + Send + Sync>);

/// Seeds a generator.
///
/// # Errors
/// Fails if the operating system has no random numbers.
pub fn generator() -> Result<StdRng, RandomError> {
    let mut seed = <StdRng as SeedableRng>::Seed::default();
    SysRng
        .try_fill_bytes(&mut seed)
        .map_err(|source| RandomError(Box::new(source)))?;
    Ok(StdRng::from_seed(seed))
}

/// Draws bytes.
///
/// # Errors
/// Fails if the operating system has no random numbers.
pub fn bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    generator()?.fill_bytes(&mut bytes);
    Ok(bytes)
}

/// Draws the name of this process among all that claim jobs in SQL.
///
/// # Errors
/// Fails if the operating system has no random numbers.
pub fn holder() -> Result<String, RandomError> {
    Ok(format!("{:016x}", u64::from_be_bytes(bytes()?)))
}
