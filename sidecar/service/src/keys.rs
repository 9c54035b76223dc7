//! Creates, changes, rotates and revokes API keys.
//!
//! Key management grants rights, so three rules apply here: an actor cannot grant a scope that it
//! lacks; only keys with the scope `admin` can change keys with that scope; and only an operator at
//! the command line, who can create another, can remove the last key with that scope. People are no such keys: the provider
//! of their sign-in may be unavailable.

mod people;
mod rules;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use shortlink_core::api_key::{ApiKey, KeyPolicy, RateLimit, Scope};
use shortlink_core::boxed;
use shortlink_core::clock::{Clock, whole_milliseconds};
use shortlink_core::ports::{KeyEdit, KeyRefusal, KeyToEdit, StoreError};
use shortlink_store::Store;

use crate::access::{Access, Caller};

pub use people::Entered;

/// The actor that manages keys.
#[derive(Clone)]
pub enum Actor {
    /// The caller of the API.
    Key(Caller),
    /// The operator at the command line, who has access to the database.
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

/// An API key to create.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its name.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// Time from which it is invalid.
    pub expires_at: Option<Timestamp>,
    /// Rate limit of its requests.
    pub rate_limit: Option<RateLimit>,
    /// Policy for its links.
    pub policy: KeyPolicy,
}

/// Changes to a key; `None` leaves a property unchanged.
#[derive(Clone, Debug, Default)]
pub struct KeyChange {
    /// New name.
    pub name: Option<String>,
    /// New scopes, in place of the present ones.
    pub scopes: Option<Vec<Scope>>,
    /// New expiry, or `Some(None)` for none.
    pub expires_at: Option<Option<Timestamp>>,
    /// New limit, or `Some(None)` for none.
    pub rate_limit: Option<Option<RateLimit>>,
    /// New policy, in place of the present one.
    pub policy: Option<KeyPolicy>,
}

/// A rotated key.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The old key, with its new expiry.
    pub predecessor: ApiKey,
    /// The new key.
    pub successor: ApiKey,
    /// Text of the new key, which includes its secret.
    pub secret: String,
}

/// Creates, changes, rotates and revokes API keys.
pub struct Keys {
    /// The store of the keys.
    pub store: Arc<Store>,
    clock: Arc<dyn Clock>,
    rng: Mutex<StdRng>,
    /// Cache to invalidate on changes; `None` in a process that serves no requests.
    access: Option<Arc<Access>>,
}

impl Keys {
    /// Manages the keys of a store; `rng` generates secrets.
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

    /// Creates a key; its secret text is available only now.
    ///
    /// # Errors
    /// Fails if the actor lacks one of its scopes, the scopes do not go with the policy, or the store fails.
    #[boxed]
    pub async fn create(&self, actor: &Actor, new: NewKey) -> Result<(ApiKey, String), KeyError> {
        rules::may_grant(actor, &new.scopes)?;
        let (drawn, secret) = self.generate();
        let key = ApiKey {
            name: new.name,
            scopes: Scope::unique(&new.scopes),
            rate_limit: new.rate_limit,
            policy: new.policy,
            expires_at: new.expires_at.map(whole_milliseconds),
            ..drawn
        };
        if !key.is_consistent() {
            return Err(KeyRefusal::OwnLinksOnly.into());
        }
        let audit = rules::creation(actor, &key, None);
        self.store.create_key(&key, &audit).await?;
        Ok((key, secret))
    }

    /// Changes a key; `None` when the id is unknown.
    ///
    /// # Errors
    /// Fails if a rule forbids it or the store fails.
    #[boxed]
    pub async fn change(
        &self,
        actor: &Actor,
        id: &str,
        mut change: KeyChange,
    ) -> Result<Option<ApiKey>, KeyError> {
        change.expires_at = change
            .expires_at
            .map(|expiry| expiry.map(whole_milliseconds));
        let (now, actor) = (self.clock.now(), actor.clone());
        let editor = move |edited| rules::change(&actor, edited, change.clone(), now);
        let edit = self.edit(id, false, now, editor).await?;
        Ok(edit.map(|(key, _successor)| key))
    }

    /// Creates a successor of a key with the same name, scopes, limit, policy and expiry. The key
    /// itself expires after `overlap`, unless it does so before. `None` when the id is unknown.
    ///
    /// # Errors
    /// Fails if a rule forbids it, the key is not live or has a successor, or the store fails.
    #[boxed]
    pub async fn rotate(
        &self,
        actor: &Actor,
        id: &str,
        overlap: SignedDuration,
    ) -> Result<Option<Rotation>, KeyError> {
        let (now, actor) = (self.clock.now(), actor.clone());
        let (drawn, secret) = self.generate();
        let editor = move |edited| rules::rotate(&actor, edited, drawn.clone(), overlap, now);
        Ok(match self.edit(id, false, now, editor).await? {
            Some((predecessor, Some(successor))) => Some(Rotation {
                predecessor,
                successor,
                secret,
            }),
            _ => None,
        })
    }

    /// Revokes a key. Revoking a revoked key has no effect and is no error. `None` when the id is
    /// unknown.
    ///
    /// # Errors
    /// Fails if a rule forbids it or the store fails.
    #[boxed]
    pub async fn revoke(&self, actor: &Actor, id: &str) -> Result<Option<ApiKey>, KeyError> {
        let (now, actor) = (self.clock.now(), actor.clone());
        let editor = move |edited| rules::revoke(&actor, edited, now);
        let edit = self.edit(id, false, now, editor).await?;
        Ok(edit.map(|(key, _successor)| key))
    }

    /// Returns the edited key, and its new successor; `None` when the id is unknown, or that of a person where a key is
    /// meant, or the other way round.
    async fn edit(
        &self,
        id: &str,
        is_person: bool,
        now: Timestamp,
        editor: impl Fn(KeyToEdit) -> Result<KeyEdit, KeyRefusal> + Send + Sync + 'static,
    ) -> Result<Option<(ApiKey, Option<ApiKey>)>, KeyError> {
        let editor = move |edited: KeyToEdit| match edited.key.person.is_some() == is_person {
            true => editor(edited).unwrap_or_else(KeyEdit::Refused),
            false => KeyEdit::Unchanged(Box::new(edited.key)),
        };
        let edit = self.store.edit_key(id, now, Box::new(editor)).await;
        // After an error too: the change may have been stored.
        if let Some(access) = &self.access {
            access.forget(id);
        }
        match edit? {
            None => Ok(None),
            Some(KeyEdit::Unchanged(key)) if key.person.is_some() != is_person => Ok(None),
            Some(KeyEdit::Unchanged(key)) => Ok(Some((*key, None))),
            Some(KeyEdit::Changed { key, successor, .. }) => {
                Ok(Some((*key, successor.map(|successor| *successor))))
            }
            Some(KeyEdit::Refused(refusal)) => Err(refusal.into()),
        }
    }

    fn generate(&self) -> (ApiKey, String) {
        let mut rng = self.rng.lock();
        ApiKey::generate(String::new(), Vec::new(), self.clock.now(), &mut *rng)
    }
}

/// The reason an operation on a key failed.
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
