//! Keys of look-ups.

use std::hash::{Hash, Hasher};

use vocabulary::{CampaignId, Code};

/// Key of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A link, by its code.
    Link(Code),
    /// A campaign, by its id.
    Campaign(CampaignId),
}

impl Hash for Key {
    /// A link's hash is that of its code, so that it is made in one way wherever it is needed.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Link(code) => code.hash(state),
            Self::Campaign(id) => state.write_u64(id.get()),
        }
    }
}

impl From<Code> for Key {
    fn from(code: Code) -> Self {
        Self::Link(code)
    }
}

impl From<CampaignId> for Key {
    fn from(id: CampaignId) -> Self {
        Self::Campaign(id)
    }
}
