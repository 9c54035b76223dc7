//! People, who are API keys without a secret: their sign-in at a provider, and their management by operators.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use shortlink_core::api_key::{ApiKey, Person, Role, Scope};
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::boxed;
use shortlink_core::ports::{KeyEdit, KeyToEdit, NewSession, SignIn, StoreError};
use shortlink_core::sign_in::{Identity, Judged};

use super::rules::{changed_to, may_grant, may_touch};
use super::{Actor, KeyError, Keys};
use crate::sessions::Sessions;

/// The result of a sign-in at the provider.
#[derive(Debug)]
pub enum Entered {
    /// A session has begun.
    Session {
        /// The person.
        key: Box<ApiKey>,
        /// The token of the session.
        token: String,
    },
    /// None of the person's groups gives a role. Their former sessions have ended.
    NoRole,
    /// An operator has blocked the person.
    Blocked,
}

impl Keys {
    /// Begins a session of a person, who gets the rights of their role, and is stored at the first sign-in. `detail` is
    /// for the audit log.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn enter(
        &self,
        sessions: &Sessions,
        identity: &Identity,
        judged: &Judged,
        detail: Map<String, Value>,
    ) -> Result<Entered, StoreError> {
        let person = Person {
            issuer: identity.issuer.clone(),
            subject: identity.subject.clone(),
            email: identity.email(),
            role: judged.role,
            signed_in_at: self.clock.now(),
        };
        let (issuer, subject) = (&identity.issuer, &identity.subject);
        let at = person.signed_in_at;
        let drawn = ApiKey::of_person(identity.name(), person, at, &mut *self.rng.lock());
        let (token, session) = sessions.draw();
        let editor = move |found| decide(found, &drawn, &session, &detail);
        let stored = self
            .store
            .sign_in(issuer, subject, Box::new(editor))
            .await?;
        let Some(SignIn { key, session, .. }) = stored else {
            return Ok(match judged.role {
                Some(_) => Entered::Blocked,
                None => Entered::NoRole,
            });
        };
        if let Some(access) = &self.access {
            access.forget(&key.id);
        }
        Ok(match session {
            Some(_) => Entered::Session {
                key: Box::new(key),
                token,
            },
            None => Entered::NoRole,
        })
    }

    /// Blocks a person: ends their sessions, and refuses their sign-ins. Blocking a blocked person has no effect and is
    /// no error. `None` when the id is that of no person.
    ///
    /// # Errors
    /// Fails if a rule forbids it or the store fails.
    #[boxed]
    pub async fn block(&self, actor: &Actor, id: &str) -> Result<Option<ApiKey>, KeyError> {
        self.set_blocked(actor, id, Some(self.clock.now())).await
    }

    /// Ends the block of a person, who may sign in again; only for those with the scope `admin`. `None` when the id is that of no person.
    ///
    /// # Errors
    /// Fails if a rule forbids it or the store fails.
    #[boxed]
    pub async fn unblock(&self, actor: &Actor, id: &str) -> Result<Option<ApiKey>, KeyError> {
        self.set_blocked(actor, id, None).await
    }

    async fn set_blocked(
        &self,
        actor: &Actor,
        id: &str,
        blocked_at: Option<Timestamp>,
    ) -> Result<Option<ApiKey>, KeyError> {
        let (now, actor) = (self.clock.now(), actor.clone());
        let editor = move |KeyToEdit { key, .. }| {
            may_touch(&actor, &key)?;
            if blocked_at.is_none() {
                // A blocked person could do it with an API key of their own.
                may_grant(&actor, &[Scope::Admin])?;
            }
            if key.revoked_at.is_some() == blocked_at.is_some() {
                return Ok(KeyEdit::Unchanged(Box::new(key)));
            }
            let action = match blocked_at {
                Some(_) => Action::PersonBlock,
                None => Action::PersonUnblock,
            };
            let entry = entry(actor.id(), action, &key.id, now, Map::new());
            let key = ApiKey {
                revoked_at: blocked_at,
                ..key
            };
            Ok(changed_to(key, None, vec![entry]))
        };
        let edit = self.edit(id, true, now, editor).await?;
        Ok(edit.map(|(key, _successor)| key))
    }

    /// Ends all sessions of a person; returns their number. `None` when the id is that of no person.
    ///
    /// # Errors
    /// Fails if a rule forbids it or the store fails.
    #[boxed]
    pub async fn end_sessions(&self, actor: &Actor, id: &str) -> Result<Option<u64>, KeyError> {
        let Some(key) = self.find_person(id).await? else {
            return Ok(None);
        };
        may_touch(actor, &key).map_err(KeyError::Refused)?;
        let (action, now) = (Action::PersonEndSessions, self.clock.now());
        let entry = entry(actor.id(), action, id, now, Map::new());
        Ok(Some(self.store.end_sessions_of(id, entry).await?))
    }

    /// Finds a person.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn find_person(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        let found = self.store.find_key(id).await?;
        Ok(found.filter(|key| key.person.is_some()))
    }

    /// Finds an API key that is no person.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn find(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        let found = self.store.find_key(id).await?;
        Ok(found.filter(|key| key.person.is_none()))
    }
}

/// Decides about a sign-in; `drawn` is the person as the provider describes them, with a new id.
fn decide(
    found: Option<ApiKey>,
    drawn: &ApiKey,
    session: &NewSession,
    detail: &Map<String, Value>,
) -> Option<SignIn> {
    let role = drawn.person.as_ref().and_then(|it| it.role);
    let is_blocked = |key: &ApiKey| key.revoked_at.is_some();
    if found.as_ref().map_or(role.is_none(), is_blocked) {
        return None;
    }
    let before = found.as_ref().map(members);
    let key = ApiKey {
        name: drawn.name.clone(),
        scopes: drawn.scopes.clone(),
        person: drawn.person.clone(),
        ..found.unwrap_or_else(|| drawn.clone())
    };
    let entry = |action, detail| {
        entry(
            Some(key.id.clone()),
            action,
            &key.id,
            session.begun_at,
            detail,
        )
    };
    let mut audit = Vec::new();
    match before {
        None => audit.push(entry(Action::PersonCreate, members(&key))),
        Some(before) => {
            let mut changed = members(&key);
            changed.retain(|name, value| before.get(name) != Some(value));
            if !changed.is_empty() {
                audit.push(entry(Action::PersonChange, changed));
            }
        }
    }
    if role.is_some() {
        audit.push(entry(Action::SessionBegin, detail.clone()));
    }
    Some(SignIn {
        session: role.map(|_| session.clone()),
        key,
        audit,
    })
}

fn entry(
    key_id: Option<String>,
    action: Action,
    id: &str,
    at: Timestamp,
    detail: Map<String, Value>,
) -> AuditEntry {
    AuditEntry {
        at,
        key_id,
        action,
        subject: Subject::Person(id.to_owned()),
        detail,
    }
}

/// The members of a person that the provider decides.
fn members(key: &ApiKey) -> Map<String, Value> {
    let person = key.person.as_deref();
    let email = person.and_then(|it| it.email.as_deref());
    let role = person.and_then(|it| it.role).map(Role::name);
    let members = [
        ("name", json!(key.name)),
        ("email", json!(email)),
        ("role", json!(role)),
    ];
    members
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests;
