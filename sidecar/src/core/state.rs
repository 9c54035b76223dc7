//! States of links and of campaigns.

/// Determines a link's response. A link of a campaign redirects when both are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Redirects.
    Live,
    /// Not valid yet: 404.
    Scheduled,
    /// Paused until it is resumed: 410.
    Paused,
    /// No longer valid: 410.
    Expired,
    /// Revoked for good: 410.
    Revoked,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Live,
        Self::Scheduled,
        Self::Paused,
        Self::Expired,
        Self::Revoked,
    ];

    /// Returns the state's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Scheduled => "scheduled",
            Self::Paused => "paused",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}
