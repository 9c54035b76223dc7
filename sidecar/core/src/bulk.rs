//! Bulk jobs: one request that concerns many links, which the service works off in the background.

use jiff::Timestamp;
use vocabulary::{CampaignId, Code};

use crate::audit;
use crate::link::{Change, Edit, Link, Refusal, UploadId};
use crate::named;
use crate::revised::Revised;

/// The most codes that a job selects by a list.
pub const MAX_CODES: usize = 100_000;

named! {
    /// Effect of a job on each of its links.
    pub enum BulkAction: "action" {
        /// Revokes it.
        Revoke = "revoke",
        /// Pauses it.
        Pause = "pause",
        /// Resumes it.
        Resume = "resume",
        /// Changes members of it.
        Change = "change",
        /// Erases its visits.
        Erase = "erase",
    }
}

named! {
    /// The state of a job.
    pub enum BulkState: "state" {
        /// It waits for its next step.
        Running = "running",
        /// All selected links have a result.
        Done = "done",
        /// A caller has cancelled it. Links that were changed stay so.
        Cancelled = "cancelled",
        /// Its API key does not allow it any more. Links that were changed stay so.
        Failed = "failed",
    }
}

named! {
    /// Result of a job for a link.
    pub enum BulkOutcome: "outcome" {
        /// It was changed; of a trial, it would be.
        Changed = "changed",
        /// It was as it should be already.
        Unchanged = "unchanged",
        /// There is no link with the code.
        Unknown = "unknown",
        /// It is revoked, which is final.
        Revoked = "revoked",
        /// It would end before it begins.
        NeverValid = "never-valid",
        /// Its rules and targets would be too long together.
        PlanTooLong = "plan-too-long",
        /// Its campaign defines the member.
        OfCampaign = "of-campaign",
        /// It belongs to no campaign.
        OfNoCampaign = "of-no-campaign",
    }
}

impl From<Refusal> for BulkOutcome {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            // A job expects no revision.
            Refusal::Revoked | Refusal::OtherRevision { .. } => Self::Revoked,
            Refusal::NeverValid => Self::NeverValid,
            Refusal::PlanTooLong => Self::PlanTooLong,
            // A job ends no test.
            Refusal::OfCampaign | Refusal::NoVariant { .. } => Self::OfCampaign,
            Refusal::OfNoCampaign => Self::OfNoCampaign,
        }
    }
}

impl BulkAction {
    /// The action in the audit log for each link; `None` where the entries of the job suffice.
    pub fn audited(self) -> Option<audit::Action> {
        match self {
            Self::Revoke => Some(audit::Action::LinkRevoke),
            Self::Pause => Some(audit::Action::LinkPause),
            Self::Resume => Some(audit::Action::LinkResume),
            Self::Change => Some(audit::Action::LinkChange),
            Self::Erase => None,
        }
    }

    /// Decides the change of a link, as a request for a single link would. An erasure changes none.
    pub fn edit(self, link: Link, change: &Change, now: Timestamp) -> Edit {
        match self {
            Self::Revoke => link.revoke(now),
            Self::Pause => link.pause(now),
            Self::Resume => link.resume(now),
            Self::Change => link.change(change, now),
            Self::Erase => Edit::Unchanged(link),
        }
    }
}

/// The links that a job concerns: those that exist when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Links by their codes, at most [`MAX_CODES`], each once.
    Codes(Vec<Code>),
    /// The links with a tag.
    Tag(String),
    /// The links with an external id.
    ExternalId(String),
    /// The links of a campaign.
    Campaign(CampaignId),
    /// The links of an upload.
    Upload(UploadId),
}

/// A job that is yet to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBulkJob {
    /// The id of the API key that it acts for.
    pub key_id: String,
    /// Its action.
    pub action: BulkAction,
    /// The links that it concerns.
    pub selection: Selection,
    /// The creators whose links it reaches; `None` for all.
    pub own: Option<Vec<String>>,
    /// The members that it changes; those of [`BulkAction::Change`].
    pub change: Change,
    /// Only finds out what would happen.
    pub is_trial: bool,
    /// The idempotency key of its request, and the digest of the request.
    pub idempotency: Option<(String, [u8; 32])>,
    /// Time of its creation. An erasure concerns the visits up to here.
    pub created_at: Timestamp,
}

/// The selection of a stored job, whose list of codes is stored apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectedBy {
    /// A list of codes.
    Codes,
    /// Another selection.
    Other(Selection),
}

/// A stored job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkJob {
    /// Later jobs have greater numbers.
    pub id: u64,
    /// The id of the API key that it acts for.
    pub key_id: String,
    /// Its action.
    pub action: BulkAction,
    /// The links that it concerns.
    pub selected_by: SelectedBy,
    /// The creators whose links it reaches; `None` for all.
    pub own: Option<Vec<String>>,
    /// The members that it changes.
    pub change: Change,
    /// Only finds out what would happen.
    pub is_trial: bool,
    /// Its state.
    pub state: BulkState,
    /// Reason of its failure.
    pub reason: Option<String>,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its first step.
    pub started_at: Option<Timestamp>,
    /// Time of its last step.
    pub finished_at: Option<Timestamp>,
    /// Number of selected links; `None` until they are counted.
    pub selected: Option<u64>,
    /// Numbers of links by their outcomes.
    pub counts: BulkCounts,
    /// Numbers of erased rows.
    pub erased: Erased,
}

/// Numbers of links by their outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkCounts {
    /// Those that were changed; of a trial, those that would be.
    pub changed: u64,
    /// Those that were as they should be already.
    pub unchanged: u64,
    /// Those that cannot be changed so, and codes without a link.
    pub failed: u64,
}

impl BulkCounts {
    /// The number of links with a result.
    pub fn done(self) -> u64 {
        self.changed + self.unchanged + self.failed
    }

    /// Counts an outcome.
    pub fn add(&mut self, outcome: BulkOutcome) {
        *match outcome {
            BulkOutcome::Changed => &mut self.changed,
            BulkOutcome::Unchanged => &mut self.unchanged,
            _ => &mut self.failed,
        } += 1;
    }
}

/// Numbers of rows that an erasure has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Visits.
    pub visits: u64,
    /// User agents that no visit had any more.
    pub agents: u64,
    /// Counts that could be those of one visitor: the hours of single links.
    pub counts: u64,
}

/// The outcome of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkStep {
    /// Changed links, and unchanged ones, which are published again.
    pub links: Vec<Link>,
    /// Their places in the log of changes.
    pub receipt: crate::ports::Receipt,
    /// Nothing is left to do.
    pub is_last: bool,
}
