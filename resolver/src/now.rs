//! The time, as the owner of an edge passes it in.

/// The time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that never goes back.
    pub ms: u64,
    /// Seconds since 1970.
    pub unix: u64,
}
