//! Rules for changes to keys, and their audit entries.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use shortlink_core::api_key::{ApiKey, KeyState, Scope};
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::ports::{KeyEdit, KeyRefusal, KeyToEdit};

use super::{Actor, KeyChange};

/// Refuses to grant a scope that an actor lacks.
pub(super) fn may_grant(actor: &Actor, scopes: &[Scope]) -> Result<(), KeyRefusal> {
    let lacking = scopes.iter().find(|scope| !actor.allows(**scope));
    lacking.map_or(Ok(()), |scope| Err(KeyRefusal::Scope(*scope)))
}

/// Applies a change.
pub(super) fn change(
    actor: &Actor,
    edited: KeyToEdit,
    change: KeyChange,
    now: Timestamp,
) -> Result<KeyEdit, KeyRefusal> {
    let KeyToEdit {
        key,
        has_other_admin,
    } = edited;
    if key.revoked_at.is_some() {
        return Err(KeyRefusal::Revoked);
    }
    may_touch(actor, &key)?;
    let changed = ApiKey {
        name: change.name.unwrap_or_else(|| key.name.clone()),
        scopes: match &change.scopes {
            Some(scopes) => Scope::unique(scopes),
            None => key.scopes.clone(),
        },
        expires_at: change.expires_at.unwrap_or(key.expires_at),
        rate_limit: change.rate_limit.unwrap_or(key.rate_limit),
        policy: change.policy.unwrap_or_else(|| key.policy.clone()),
        ..key.clone()
    };
    if changed == key {
        return Ok(KeyEdit::Unchanged(Box::new(key)));
    }
    if !changed.is_consistent() {
        return Err(KeyRefusal::OwnLinksOnly);
    }
    let mut granted = changed.scopes.clone();
    granted.retain(|scope| !key.scopes.contains(scope));
    may_grant(actor, &granted)?;
    let lives_shorter = match (changed.expires_at, key.expires_at) {
        (Some(changed), Some(before)) => changed < before,
        (changed, _) => changed.is_some() && key.expires_at.is_none(),
    };
    let is_less = lives_shorter || !changed.scopes.contains(&Scope::Admin);
    if is_less && is_last_admin(actor, &key, has_other_admin, now) {
        return Err(KeyRefusal::LastAdmin);
    }
    let detail = difference(&key, &changed);
    let audit = entry(actor, Action::KeyChange, &key, now, detail);
    Ok(changed_to(changed, None, vec![audit]))
}

/// Creates the successor of a key; `drawn` has its id and secret.
pub(super) fn rotate(
    actor: &Actor,
    edited: KeyToEdit,
    drawn: ApiKey,
    overlap: SignedDuration,
    now: Timestamp,
) -> Result<KeyEdit, KeyRefusal> {
    let key = edited.key;
    match key.state(now) {
        KeyState::Revoked => return Err(KeyRefusal::Revoked),
        KeyState::Expired => return Err(KeyRefusal::Expired),
        KeyState::Live if key.successor_id.is_some() => return Err(KeyRefusal::Rotated),
        // A rotation reveals a secret with the scopes of the key.
        KeyState::Live => may_grant(actor, &key.scopes)?,
    }
    let successor = ApiKey {
        name: key.name.clone(),
        scopes: key.scopes.clone(),
        rate_limit: key.rate_limit,
        policy: key.policy.clone(),
        expires_at: key.expires_at,
        first_id: key.first_id.clone(),
        ..drawn
    };
    let end = now.checked_add(overlap).unwrap_or(Timestamp::MAX);
    let predecessor = ApiKey {
        expires_at: Some(key.expires_at.map_or(end, |expiry| expiry.min(end))),
        successor_id: Some(successor.id.clone()),
        ..key
    };
    let detail = object(json!({
        "successorId": successor.id,
        "expiresAt": predecessor.expires_at,
    }));
    let audit = vec![
        entry(actor, Action::KeyRotate, &predecessor, now, detail),
        creation(actor, &successor, Some(&predecessor)),
    ];
    Ok(changed_to(predecessor, Some(successor), audit))
}

/// Revokes a key.
pub(super) fn revoke(
    actor: &Actor,
    edited: KeyToEdit,
    now: Timestamp,
) -> Result<KeyEdit, KeyRefusal> {
    let KeyToEdit {
        key,
        has_other_admin,
    } = edited;
    may_touch(actor, &key)?;
    if key.revoked_at.is_some() {
        return Ok(KeyEdit::Unchanged(Box::new(key)));
    }
    if is_last_admin(actor, &key, has_other_admin, now) {
        return Err(KeyRefusal::LastAdmin);
    }
    let revoked = ApiKey {
        revoked_at: Some(now),
        ..key
    };
    let audit = entry(actor, Action::KeyRevoke, &revoked, now, Map::new());
    Ok(changed_to(revoked, None, vec![audit]))
}

/// Returns the audit entry of a new key.
pub(super) fn creation(actor: &Actor, key: &ApiKey, predecessor: Option<&ApiKey>) -> AuditEntry {
    let mut detail = members(key);
    if let Some(predecessor) = predecessor {
        detail.insert("predecessorId".to_owned(), json!(predecessor.id));
    }
    entry(actor, Action::KeyCreate, key, key.created_at, detail)
}

pub(super) fn changed_to(
    key: ApiKey,
    successor: Option<ApiKey>,
    audit: Vec<AuditEntry>,
) -> KeyEdit {
    KeyEdit::Changed {
        key: Box::new(key),
        successor: successor.map(Box::new),
        audit,
    }
}

pub(super) fn may_touch(actor: &Actor, key: &ApiKey) -> Result<(), KeyRefusal> {
    match key.scopes.contains(&Scope::Admin) {
        true => may_grant(actor, &[Scope::Admin]),
        false => Ok(()),
    }
}

/// Returns true for the last admin key, when the actor could not create another.
fn is_last_admin(actor: &Actor, key: &ApiKey, has_other_admin: bool, now: Timestamp) -> bool {
    matches!(actor, Actor::Key(_))
        && key.scopes.contains(&Scope::Admin)
        && key.state(now) == KeyState::Live
        && !has_other_admin
}

fn entry(
    actor: &Actor,
    action: Action,
    key: &ApiKey,
    at: Timestamp,
    detail: Map<String, Value>,
) -> AuditEntry {
    AuditEntry {
        at,
        key_id: actor.id(),
        action,
        subject: Subject::Key(key.id.clone()),
        detail,
    }
}

/// Returns the new values of the properties of a key that have changed.
fn difference(before: &ApiKey, after: &ApiKey) -> Map<String, Value> {
    let before = members(before);
    let mut after = members(after);
    after.retain(|name, value| before.get(name) != Some(value));
    after
}

/// The properties of a key that administrators set. The digest of its secret is not among them.
fn members(key: &ApiKey) -> Map<String, Value> {
    object(json!({
        "name": key.name,
        "scopes": key.scopes,
        "expiresAt": key.expires_at,
        "rateLimit": key.rate_limit,
        "policy": key.policy,
    }))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
