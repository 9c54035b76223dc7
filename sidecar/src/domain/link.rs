//! Links, and how they change.

use std::num::NonZeroU64;

use jiff::Timestamp;
use vocabulary::{Code, LinkRecord, Record, RedirectStatus, Validity};

use crate::domain::target::Target;

/// The second from which a link answers 410.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(NonZeroU64);

impl Expiry {
    /// The whole second that a moment falls into; `None` up to the first second of 1970.
    pub fn at(moment: Timestamp) -> Option<Self> {
        let second = u64::try_from(moment.as_second()).ok()?;
        NonZeroU64::new(second).map(Self)
    }

    /// The second, counted from 1970.
    pub fn get(self) -> NonZeroU64 {
        self.0
    }

    /// The expiry's moment.
    pub fn moment(self) -> Timestamp {
        // Only moments make expiries, so that the way back is always open.
        i64::try_from(self.0.get())
            .ok()
            .and_then(|second| Timestamp::from_second(second).ok())
            .unwrap_or(Timestamp::MAX)
    }
}

/// What a link answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It redirects.
    Live,
    /// Its expiry has passed: 410.
    Expired,
    /// It was revoked, which can't be undone: 410.
    Revoked,
}

/// A short link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its code, unique for ever: a revoked link's code is not given out again.
    pub code: Code,
    /// Where it leads.
    pub target: Target,
    /// How it redirects.
    pub redirect_status: RedirectStatus,
    /// 1 for a new link, one more for each change.
    pub revision: u64,
    /// From when on it answers 410.
    pub expires_at: Option<Expiry>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
    /// The id of the API key that asked for it.
    pub created_by: String,
}

/// What to change of a link. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// A new target.
    pub target: Option<Target>,
    /// Another redirect status.
    pub redirect_status: Option<RedirectStatus>,
    /// Another expiry, or `Some(None)` for none.
    pub expires_at: Option<Option<Expiry>>,
}

/// What became of an attempt to change a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The link as it is to be stored, with its next revision.
    Changed(Link),
    /// The link was as it should be already.
    Unchanged(Link),
    /// The link is revoked and can't be changed.
    Refused,
}

impl Link {
    /// What the link answers at a moment.
    pub fn state(&self, now: Timestamp) -> State {
        if self.revoked_at.is_some() {
            State::Revoked
        } else if self.expires_at.is_some_and(|expiry| now >= expiry.moment()) {
            State::Expired
        } else {
            State::Live
        }
    }

    /// Applies a change.
    pub fn change(self, change: &Change, now: Timestamp) -> Edit {
        if self.revoked_at.is_some() {
            return Edit::Refused;
        }
        let changed = Self {
            target: change.target.clone().unwrap_or_else(|| self.target.clone()),
            redirect_status: change.redirect_status.unwrap_or(self.redirect_status),
            expires_at: change.expires_at.unwrap_or(self.expires_at),
            ..self.clone()
        };
        if changed == self {
            return Edit::Unchanged(self);
        }
        Edit::Changed(changed.next_revision(now))
    }

    /// Revokes the link; a revoked one stays as it is.
    pub fn revoke(self, now: Timestamp) -> Edit {
        if self.revoked_at.is_some() {
            return Edit::Unchanged(self);
        }
        let revoked = Self {
            revoked_at: Some(now),
            ..self
        };
        Edit::Changed(revoked.next_revision(now))
    }

    /// The record that stands for the link in Redis.
    pub fn record(&self) -> Record<'_> {
        if self.revoked_at.is_some() {
            return Record::Revoked {
                revision: self.revision,
            };
        }
        Record::Link(LinkRecord {
            status: self.redirect_status,
            forwards_query: false,
            revision: self.revision,
            // No moment lies beyond the year 9999, the only bound there is.
            validity: Validity::new(None, self.expires_at.map(|expiry| expiry.0))
                .unwrap_or_default(),
            target: self.target.as_str().as_bytes(),
        })
    }

    fn next_revision(self, now: Timestamp) -> Self {
        Self {
            revision: self.revision + 1,
            // A clock that was set back must not make a link younger than its last change.
            updated_at: now.max(self.updated_at),
            ..self
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn moment(text: &str) -> Timestamp {
        text.parse().expect("a moment")
    }

    pub(crate) fn link(code: &str) -> Link {
        Link {
            code: code.parse().expect("a code"),
            target: Target::from_stored("https://example.com/a".to_owned()),
            redirect_status: RedirectStatus::Found,
            revision: 1,
            expires_at: None,
            revoked_at: None,
            created_at: moment("2026-01-01T00:00:00Z"),
            updated_at: moment("2026-01-01T00:00:00Z"),
            created_by: "key".to_owned(),
        }
    }

    #[test]
    fn a_link_expires_at_the_very_second_and_revocation_outranks_expiry() {
        let expiry = moment("2026-06-01T00:00:00Z");
        let mut link = link("abc");
        link.expires_at = Expiry::at(expiry);
        let before = moment("2026-05-31T23:59:59.999Z");
        assert_eq!(link.state(before), State::Live);
        assert_eq!(link.state(expiry), State::Expired);
        link.revoked_at = Some(before);
        assert_eq!(link.state(expiry), State::Revoked);
    }

    #[test]
    fn only_a_real_change_makes_a_revision() {
        let now = moment("2026-02-01T00:00:00Z");
        let expiry = Expiry::at(moment("2027-01-01T00:00:00Z"));
        let other = Target::from_stored("https://example.com/b".to_owned());
        let same = Target::from_stored("https://example.com/a".to_owned());
        for (change, changes) in [
            (Change::default(), false),
            (
                Change {
                    target: Some(same),
                    ..Change::default()
                },
                false,
            ),
            (
                Change {
                    expires_at: Some(None),
                    ..Change::default()
                },
                false,
            ),
            (
                Change {
                    target: Some(other),
                    ..Change::default()
                },
                true,
            ),
            (
                Change {
                    expires_at: Some(expiry),
                    ..Change::default()
                },
                true,
            ),
            (
                Change {
                    redirect_status: Some(RedirectStatus::MovedPermanently),
                    ..Change::default()
                },
                true,
            ),
        ] {
            match link("abc").change(&change, now) {
                Edit::Changed(link) => {
                    assert!(changes, "{change:?}");
                    assert_eq!((link.revision, link.updated_at), (2, now));
                }
                Edit::Unchanged(unchanged) => {
                    assert!(!changes, "{change:?}");
                    assert_eq!(unchanged, link("abc"));
                }
                Edit::Refused => panic!("{change:?} was refused"),
            }
        }
    }

    #[test]
    fn a_revoked_link_is_final() {
        let now = moment("2026-02-01T00:00:00Z");
        let Edit::Changed(revoked) = link("abc").revoke(now) else {
            panic!("a live link can be revoked");
        };
        assert_eq!(revoked.revision, 2);
        assert_eq!(revoked.record(), Record::Revoked { revision: 2 });
        assert_eq!(
            revoked.clone().revoke(moment("2026-03-01T00:00:00Z")),
            Edit::Unchanged(revoked.clone())
        );
        assert_eq!(revoked.change(&Change::default(), now), Edit::Refused);
    }
}
