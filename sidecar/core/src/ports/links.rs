//! Storage of links.

use jiff::Timestamp;
use vocabulary::{CampaignId, Code};

use super::{Receipt, UsedUp};
use crate::link::{Edit, Link, State, UploadId, Window};
use crate::target::Target;

/// Decides about a change of the stored link, inside the store's transaction.
pub type Editor = Box<dyn Fn(Link) -> Edit + Send + Sync>;

/// A position in the listing of links: behind the link with this creation time and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The time at which the link was created.
    pub created_at: Timestamp,
    /// The link's code.
    pub code: Code,
}

/// The filter of a listing of links; a link must match every member that is set.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Only links in this state at the given moment.
    pub state: Option<(State, Timestamp)>,
    /// Only links that have this tag.
    pub tag: Option<String>,
    /// Only links that the caller calls so.
    pub external_id: Option<String>,
    /// Only links that have this target of their own.
    pub target: Option<Target>,
    /// Only links of this campaign.
    pub campaign: Option<CampaignId>,
    /// Only links of this upload.
    pub upload: Option<UploadId>,
    /// Only links that were created with one of these API keys.
    pub created_by: Option<Vec<String>>,
    /// Only links with a human visit, or only those without one.
    pub clicked: Option<bool>,
    /// Only links behind this position.
    pub after: Option<Position>,
    /// Only links before this position, and the link that it names.
    pub until: Option<Position>,
    /// The most links to answer with.
    pub limit: u32,
}

impl Listing {
    /// True if the listing scans links that don't match it, since no index has only those that do.
    pub fn is_searched(&self) -> bool {
        let named = [
            self.tag.is_some(),
            self.external_id.is_some(),
            self.target.is_some(),
            self.campaign.is_some(),
            self.upload.is_some(),
            self.created_by.is_some(),
            self.state.is_some(),
        ];
        // No index has the links with clicks, or those without.
        let named = named.into_iter().filter(|&is_named| is_named).count();
        let is_revoked = matches!(self.state, Some((State::Revoked, _)));
        named > 1 || self.clicked.is_some() || (self.state.is_some() && !is_revoked)
    }
}

/// The outcome of the creation of links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// The places of those that were not stored, in ascending order: their codes are taken.
    pub taken: Vec<usize>,
    /// The places of others that were not stored, in ascending order, each with the quota that is used up. A taken code
    /// may have left a place in it.
    pub over: Vec<(usize, UsedUp)>,
    /// The others' rows in the outbox.
    pub receipt: Receipt,
}

/// The SHA-256 of a request by which equal requests get the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestDigest(pub [u8; 32]);

/// A request whose repetitions get the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its digest, which depends on its window, too.
    pub digest: RequestDigest,
    /// The time within which a repetition gets the same link; `None` for any time.
    pub within: Option<Window>,
}

impl Identity {
    /// Reports whether a request at a moment is within the window of the last one, if there is a window.
    pub fn is_recent(&self, last: Option<Timestamp>, now: Timestamp) -> bool {
        let window = self.within;
        window.is_none_or(|window| last.is_some_and(|last| window.covers(last, now)))
    }
}

/// The link that was stored last for a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identical {
    /// The link, whatever has become of it.
    pub link: Link,
    /// Time of the last request; `None` without a window.
    pub used_at: Option<Timestamp>,
}

/// The outcome of the creation of links that is skipped where an equal link exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundOrCreated {
    /// The places of those whose codes are taken, in ascending order.
    pub taken: Vec<usize>,
    /// As in [`Created`].
    pub over: Vec<(usize, UsedUp)>,
    /// The places of those that were not stored, in ascending order, each with the equal link that
    /// exists.
    pub found: Vec<(usize, Link)>,
    /// The others' rows in the outbox.
    pub receipt: Receipt,
}

/// The most nginx whose announcements are stored.
pub const MAX_NODES: u64 = 64;

/// The most links that are created or published together.
pub const MAX_TOGETHER: usize = 1000;

/// The outcome of an edit of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The decision.
    pub edit: Edit,
    /// The link's row in the outbox; empty when the edit was refused.
    pub receipt: Receipt,
}
