//! Revisions of links and campaigns: both are changed, paused, resumed and revoked in the same way.

use jiff::Timestamp;

/// Result of an attempt to change a link or a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit<T> {
    /// The link or campaign as it is to be stored, with its next revision.
    Changed(T),
    /// It was as it should be already.
    Unchanged(T),
    /// It stays as it is.
    Refused(Refusal),
}

/// Reason for which a link or a campaign is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is revoked, which is final.
    Revoked,
    /// It has another revision than was expected.
    OtherRevision {
        /// The revision that it has.
        revision: u64,
    },
    /// It would end before it begins.
    NeverValid,
    /// The link belongs to a campaign, which determines its target and redirect status.
    OfCampaign,
    /// The plan would be longer than a record can have.
    PlanTooLong,
    /// The winner of an A/B test is none of its variants.
    NoVariant {
        /// The names of the variants, in their order.
        names: Vec<String>,
    },
    /// The link belongs to no campaign that could have parameters.
    OfNoCampaign,
}

/// Revisions that may be edited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Any revision.
    #[default]
    Any,
    /// One of these.
    OneOf(Vec<u64>),
}

impl<T> Edit<T> {
    /// Refuses the edit unless the revision before it was one of those expected. A refusal for
    /// another reason takes precedence.
    #[must_use]
    pub fn only_of(self, expected: &Expected, revision: u64) -> Self {
        match (&self, expected) {
            (Self::Refused(_), _) | (_, Expected::Any) => self,
            (_, Expected::OneOf(revisions)) if revisions.contains(&revision) => self,
            _ => Self::Refused(Refusal::OtherRevision { revision }),
        }
    }
}

/// The members that links and campaigns share.
pub struct Life<'a> {
    /// 1 for a new one, one more for each change.
    pub revision: &'a mut u64,
    /// Time of its last change.
    pub updated_at: &'a mut Timestamp,
    /// Time of its pause, while it is paused.
    pub paused_at: &'a mut Option<Timestamp>,
    /// Time of its revocation.
    pub revoked_at: &'a mut Option<Timestamp>,
}

/// A link or a campaign, which is changed in revisions until it is revoked.
pub trait Revised: Clone + PartialEq {
    /// The members that matter here.
    fn life(&mut self) -> Life<'_>;

    /// Applies a change; a revoked one is refused, and one without effect makes no revision.
    fn edited(mut self, now: Timestamp, change: impl FnOnce(&mut Self)) -> Edit<Self> {
        if self.life().revoked_at.is_some() {
            return Edit::Refused(Refusal::Revoked);
        }
        let mut changed = self.clone();
        change(&mut changed);
        if changed == self {
            return Edit::Unchanged(self);
        }
        let revision = *self.life().revision;
        changed.overtake(revision, now)
    }

    /// Pauses it; a paused one stays as it is.
    fn pause(self, now: Timestamp) -> Edit<Self> {
        self.edited(now, |it| {
            it.life().paused_at.get_or_insert(now);
        })
    }

    /// Ends a pause; one that is not paused stays as it is.
    fn resume(self, now: Timestamp) -> Edit<Self> {
        self.edited(now, |it| *it.life().paused_at = None)
    }

    /// Revokes it; a revoked one stays as it is.
    fn revoke(mut self, now: Timestamp) -> Edit<Self> {
        if self.life().revoked_at.is_some() {
            return Edit::Unchanged(self);
        }
        self.edited(now, |it| *it.life().revoked_at = Some(now))
    }

    /// Gives it a revision beyond another one, unless it has one.
    fn overtake(mut self, other: u64, now: Timestamp) -> Edit<Self> {
        let Life {
            revision,
            updated_at,
            ..
        } = self.life();
        if *revision > other {
            return Edit::Unchanged(self);
        }
        *revision = other + 1;
        // A clock that was set back must not date a change before the last one.
        *updated_at = now.max(*updated_at);
        Edit::Changed(self)
    }
}

/// Lists the members of [`Life`].
macro_rules! revised {
    ($Type:ty) => {
        impl $crate::revised::Revised for $Type {
            fn life(&mut self) -> $crate::revised::Life<'_> {
                $crate::revised::Life {
                    revision: &mut self.revision,
                    updated_at: &mut self.updated_at,
                    paused_at: &mut self.paused_at,
                    revoked_at: &mut self.revoked_at,
                }
            }
        }
    };
}

/// Overwrites each member of a link or campaign that a change has.
macro_rules! overwrite {
    ($it:ident, $change:ident: $($member:ident),*) => {
        $(if let Some(value) = $change.$member {
            $it.$member = value;
        })*
    };
}

pub(crate) use {overwrite, revised};
