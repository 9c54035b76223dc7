//! Making, changing, rotating and revoking API keys.
//!
//! Who manages keys hands out rights, so three rules hold here: nobody grants a scope that they
//! lack; keys with the scope `admin` are touched by those with the scope `admin` alone; and the
//! last key with this scope can't be taken away, except by an operator at the command line, who
//! can make another.

mod rules;

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;

use crate::clock::Clock;
use crate::core::api_key::{ApiKey, KeyPolicy, RateLimit, Scope};
use crate::core::ports::{KeyEdit, KeyEditor, KeyListing, KeyRefusal, StoreError};
use crate::service::access::{Access, Caller};
use crate::store::Store;

/// Who manages keys.
#[derive(Clone)]
pub enum Actor {
    /// Whoever has sent a request.
    Key(Caller),
    /// Whoever has the command line, and so the database.
    Operator,
}

impl Actor {
    fn id(&self) -> Option<String> {
        match self {
            Self::Key(caller) => Some(caller.key().id.clone()),
            Self::Operator => None,
        }
    }

    fn allows(&self, scope: Scope) -> bool {
        match self {
            Self::Key(caller) => caller.key().allows(scope),
            Self::Operator => true,
        }
    }
}

/// What a new key is to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// What its owner calls it.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// From when on it opens nothing.
    pub expires_at: Option<Timestamp>,
    /// How many requests may be made with it.
    pub rate_limit: Option<RateLimit>,
    /// What may be made with it.
    pub policy: KeyPolicy,
}

/// What to change of a key. What is `None` stays as it is.
#[derive(Clone, Debug, Default)]
pub struct KeyChange {
    /// Another name.
    pub name: Option<String>,
    /// Other scopes, in place of those that it has.
    pub scopes: Option<Vec<Scope>>,
    /// Another expiry, or `Some(None)` for none.
    pub expires_at: Option<Option<Timestamp>>,
    /// Another limit, or `Some(None)` for none.
    pub rate_limit: Option<Option<RateLimit>>,
    /// Another policy, in place of the one that it has.
    pub policy: Option<KeyPolicy>,
}

/// A key that has been rotated.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The old key, with the expiry that it has now.
    pub predecessor: ApiKey,
    /// The new key.
    pub successor: ApiKey,
    /// The text that the new key is presented with.
    pub secret: String,
}

/// Makes, changes, rotates and revokes API keys.
pub struct Keys {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    rng: Mutex<StdRng>,
    /// What has to be told of changes; `None` in a process that answers no requests.
    access: Option<Arc<Access>>,
}

impl Keys {
    /// Manages the keys of a store; `rng` is where secrets come from.
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        rng: StdRng,
        access: Option<Arc<Access>>,
    ) -> Self {
        Self {
            store,
            clock,
            rng: Mutex::new(rng),
            access,
        }
    }

    /// Makes a key; the text that it is presented with is known only now.
    ///
    /// # Errors
    /// When the actor lacks one of its scopes or the store fails.
    pub async fn create(&self, actor: &Actor, new: NewKey) -> Result<(ApiKey, String), KeyError> {
        if let Some(scope) = rules::lacking(actor, &new.scopes) {
            return Err(KeyRefusal::Scope(scope).into());
        }
        let (drawn, secret) = self.generate();
        let key = ApiKey {
            name: new.name,
            scopes: Scope::unique(&new.scopes),
            rate_limit: new.rate_limit,
            policy: new.policy,
            expires_at: new.expires_at.map(stored),
            ..drawn
        };
        let audit = rules::creation(actor, &key, None);
        self.store.create_key(&key, &audit).await?;
        Ok((key, secret))
    }

    /// Finds a key.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find(&self, id: &str) -> Result<Option<ApiKey>, KeyError> {
        Ok(self.store.find_key(id).await?)
    }

    /// Lists keys, the latest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(&self, listing: &KeyListing) -> Result<Vec<ApiKey>, KeyError> {
        Ok(self.store.list_keys(listing).await?)
    }

    /// Changes a key; `None` when there is none of this id.
    ///
    /// # Errors
    /// When a rule forbids it or the store fails.
    pub async fn change(
        &self,
        actor: &Actor,
        id: &str,
        mut change: KeyChange,
    ) -> Result<Option<ApiKey>, KeyError> {
        change.expires_at = change.expires_at.map(|expiry| expiry.map(stored));
        let (now, actor) = (self.clock.now(), actor.clone());
        let editor = Box::new(move |edited| rules::change(&actor, edited, change.clone(), now));
        let edit = self.edit(id, now, editor).await?;
        Ok(edit.map(|(key, _successor)| key))
    }

    /// Gives a key a successor of the same name, scopes, limit, policy and expiry; the key itself
    /// expires when `overlap` has passed, unless it does so before. `None` when there is none of
    /// this id.
    ///
    /// # Errors
    /// When a rule forbids it, the key does not live or has a successor, or the store fails.
    pub async fn rotate(
        &self,
        actor: &Actor,
        id: &str,
        overlap: SignedDuration,
    ) -> Result<Option<Rotation>, KeyError> {
        let (now, actor) = (self.clock.now(), actor.clone());
        let (drawn, secret) = self.generate();
        let editor =
            Box::new(move |edited| rules::rotate(&actor, edited, drawn.clone(), overlap, now));
        Ok(match self.edit(id, now, editor).await? {
            Some((predecessor, Some(successor))) => Some(Rotation {
                predecessor,
                successor,
                secret,
            }),
            _ => None,
        })
    }

    /// Revokes a key. A revoked one stays as it is, which is no error. `None` when there is none
    /// of this id.
    ///
    /// # Errors
    /// When a rule forbids it or the store fails.
    pub async fn revoke(&self, actor: &Actor, id: &str) -> Result<Option<ApiKey>, KeyError> {
        let (now, actor) = (self.clock.now(), actor.clone());
        let editor = Box::new(move |edited| rules::revoke(&actor, edited, now));
        let edit = self.edit(id, now, editor).await?;
        Ok(edit.map(|(key, _successor)| key))
    }

    /// What has become of a key, and its new successor.
    async fn edit(
        &self,
        id: &str,
        now: Timestamp,
        editor: KeyEditor,
    ) -> Result<Option<(ApiKey, Option<ApiKey>)>, KeyError> {
        let edit = self.store.edit_key(id, now, editor).await;
        // After an error too: nobody knows whether it has been stored.
        if let Some(access) = &self.access {
            access.forget(id);
        }
        match edit? {
            None => Ok(None),
            Some(KeyEdit::Unchanged(key)) => Ok(Some((*key, None))),
            Some(KeyEdit::Changed { key, successor, .. }) => {
                Ok(Some((*key, successor.map(|successor| *successor))))
            }
            Some(KeyEdit::Refused(refusal)) => Err(refusal.into()),
        }
    }

    fn generate(&self) -> (ApiKey, String) {
        // A generator is in order whatever happened to its last user.
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        ApiKey::generate(String::new(), Vec::new(), self.clock.now(), &mut *rng)
    }
}

/// A moment as exact as it is stored.
fn stored(moment: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(moment.as_millisecond()).unwrap_or(moment)
}

/// Why something could not be done with a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A rule forbids it.
    #[error(transparent)]
    Refused(#[from] KeyRefusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests;
