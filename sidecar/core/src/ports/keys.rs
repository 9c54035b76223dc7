//! Storage of API keys.

use jiff::Timestamp;

use crate::api_key::{ApiKey, Scope};
use crate::audit::AuditEntry;

/// A position in the listing of keys: behind the key with this creation time and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPosition {
    /// The time at which the key was created.
    pub created_at: Timestamp,
    /// The key's id.
    pub id: String,
}

/// The filter and position of a listing of keys.
#[derive(Clone, Debug)]
pub struct KeyListing {
    /// People in place of the keys that have secrets.
    pub people: bool,
    /// Only keys behind this position.
    pub after: Option<KeyPosition>,
    /// The most keys to answer with.
    pub limit: u32,
}

/// A key that is about to be changed.
#[derive(Clone, Debug)]
pub struct KeyToEdit {
    /// The key as it is.
    pub key: ApiKey,
    /// True if another live key has the scope `admin` at the moment of the change. Keys that
    /// have a successor don't count: they are on their way out.
    pub has_other_admin: bool,
}

/// The decision about a change of a key.
#[derive(Clone, Debug)]
pub enum KeyEdit {
    /// The key is changed.
    Changed {
        /// The key as it is to be stored.
        key: Box<ApiKey>,
        /// A new key to be stored with it.
        successor: Option<Box<ApiKey>>,
        /// The entries for the audit log.
        audit: Vec<AuditEntry>,
    },
    /// The key was as it should be already.
    Unchanged(Box<ApiKey>),
    /// The change is refused.
    Refused(KeyRefusal),
}

/// The reason that a key is not created or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// The caller lacks a scope that the key has or would get.
    #[error("the scope {0} is needed")]
    Scope(Scope),
    /// The key is revoked, which is final.
    #[error("the API key is revoked")]
    Revoked,
    /// The key has expired.
    #[error("the API key has expired")]
    Expired,
    /// The key has a successor already.
    #[error("the API key has been rotated already")]
    Rotated,
    /// The key would have a scope that reaches the links of others.
    #[error(
        "an API key with ownLinksOnly cannot have the scopes admin, keys:admin and webhooks:admin"
    )]
    OwnLinksOnly,
    /// No key would be left that may do everything.
    #[error("this is the last live API key with the scope admin")]
    LastAdmin,
}

/// The changes that a sign-in at the provider stores.
#[derive(Clone, Debug)]
pub struct SignIn {
    /// The person, new or as they are from now on.
    pub key: ApiKey,
    /// The entries for the audit log.
    pub audit: Vec<AuditEntry>,
    /// The new session; `None` ends all sessions of the person instead.
    pub session: Option<NewSession>,
}

/// A session of a person.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The digest of its token.
    pub id: String,
    /// The time of its beginning.
    pub begun_at: Timestamp,
    /// The time of its end.
    pub until: Timestamp,
}

/// A stored session of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// The id of the person's key.
    pub key_id: String,
    /// The time of the last request, as far as that is recorded.
    pub used_at: Timestamp,
    /// The time of its end.
    pub until: Timestamp,
}

/// Decides about the sign-in of a person, who is unknown at the first one, inside the store's transaction. `None` stores
/// nothing.
pub type SignInEditor = Box<dyn Fn(Option<ApiKey>) -> Option<SignIn> + Send + Sync>;

/// Decides about a change of the stored key, inside the store's transaction.
pub type KeyEditor = Box<dyn Fn(KeyToEdit) -> KeyEdit + Send + Sync>;
