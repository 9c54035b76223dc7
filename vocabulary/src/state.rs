//! The state of a link or a campaign.

use crate::validity::Phase;

/// The state of a link or a campaign at a time. Of the states that apply, the last one in this
/// order counts: a paused link that has expired is expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It redirects.
    Live,
    /// Its validity has not begun: 404.
    Scheduled,
    /// It is paused until it is resumed: 410.
    Paused,
    /// Its validity has ended: 410.
    Expired,
    /// It is revoked, which is final: 410.
    Revoked,
}

impl State {
    /// Every state, in the order of the enum.
    pub const ALL: [Self; 5] = [
        Self::Live,
        Self::Scheduled,
        Self::Paused,
        Self::Expired,
        Self::Revoked,
    ];

    /// The states in the order in which they are examined: the first one that applies counts.
    pub fn by_precedence() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().rev()
    }

    /// Finds the state in a phase of the validity.
    pub fn new(phase: Phase, is_paused: bool, is_revoked: bool) -> Self {
        let state = Self::by_precedence().find(|state| match state {
            Self::Live => false,
            Self::Scheduled => phase == Phase::Early,
            Self::Paused => is_paused,
            Self::Expired => phase == Phase::Over,
            Self::Revoked => is_revoked,
        });
        // Live is what no other state rules out.
        state.unwrap_or(Self::Live)
    }

    /// Finds a state by its name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The name of the state.
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
