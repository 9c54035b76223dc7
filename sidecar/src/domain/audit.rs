//! The audit log: who has changed what, and when.
//!
//! An entry is stored in the transaction of the change that it tells of, so that there is neither
//! a change without its entry nor an entry without its change. Entries are never changed. They
//! hold no secrets, and of targets and recipients no more than what the change was about.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value};
use vocabulary::Code;

/// What was done. Its name says to what, and then what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An API key was made.
    KeyCreate,
    /// An API key's name, scopes, expiry, limit or policy were changed.
    KeyChange,
    /// An API key was given a successor.
    KeyRotate,
    /// An API key was revoked.
    KeyRevoke,
}

impl Action {
    /// The action's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyCreate => "key.create",
            Self::KeyChange => "key.change",
            Self::KeyRotate => "key.rotate",
            Self::KeyRevoke => "key.revoke",
        }
    }
}

/// What it was done to. Written with its kind, since a key's id might be some link's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An API key, by its id.
    Key(String),
    /// A link.
    Link(Code),
    /// A campaign, by its id.
    Campaign(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(id) => write!(f, "key:{id}"),
            Self::Link(code) => write!(f, "link:{code}"),
            Self::Campaign(id) => write!(f, "campaign:{id}"),
        }
    }
}

/// An entry that is yet to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// When it was done.
    pub at: Timestamp,
    /// The id of the API key that it was done with; `None` for the command line.
    pub key_id: Option<String>,
    /// What was done.
    pub action: Action,
    /// What it was done to.
    pub subject: Subject,
    /// What else there is to say: as a rule the members that were changed, each as it is now.
    pub detail: Map<String, Value>,
}

/// An entry as it is stored. Its texts are those that were written, perhaps by a later version
/// of this program with actions that this one does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAuditEntry {
    /// Later entries have greater numbers.
    pub id: i64,
    /// When it was done.
    pub at: Timestamp,
    /// The id of the API key that it was done with; `None` for the command line.
    pub key_id: Option<String>,
    /// What was done: an [`Action`]'s name.
    pub action: String,
    /// What it was done to: a [`Subject`] as text.
    pub subject: String,
    /// What else there is to say.
    pub detail: Map<String, Value>,
}
