use std::sync::Arc;

use jiff::SignedDuration;
use rand::SeedableRng;
use rand::rngs::StdRng;
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::ports::AuditListing;
use shortlink_core::sign_in::{RoleOfGroup, RoleRules};
use shortlink_core::testing::ManualClock;
use shortlink_store::testing::TemporaryStore;

use super::*;
use crate::access::{Access, Caller, PeopleRules};
use crate::sessions::PeopleLimits;

const LIFE: SignedDuration = SignedDuration::from_hours(12);
const IDLE: SignedDuration = SignedDuration::from_hours(2);

struct Fixture {
    kept: TemporaryStore,
    clock: Arc<ManualClock>,
    access: Arc<Access>,
    keys: Keys,
    sessions: Sessions,
}

/// People of a provider with some roles.
fn people(roles: &[Role]) -> PeopleRules {
    let roles = roles.iter().map(|role| RoleOfGroup {
        group: role.name().to_owned(),
        role: *role,
    });
    PeopleRules {
        issuer: "https://id.example.com/".to_owned(),
        roles: RoleRules {
            claim: "groups".to_owned(),
            roles: roles.collect(),
        },
    }
}

impl Fixture {
    async fn new() -> Self {
        let kept = TemporaryStore::new().await;
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let access = Access::new(Arc::clone(&kept.store), Arc::clone(&clock) as _);
        let access = Arc::new(access.with_people(Some(people(&Role::ALL))));
        let rng = StdRng::seed_from_u64;
        let keys = Keys::new(
            Arc::clone(&kept.store),
            Arc::clone(&clock) as _,
            rng(1),
            Some(Arc::clone(&access)),
        );
        let limits = PeopleLimits {
            life: LIFE,
            idle: IDLE,
        };
        let (store, key) = (Arc::clone(&kept.store), CodeKey::new([1; 32]));
        let sessions = Sessions::new(store, &key, Arc::clone(&clock) as _, rng(2), limits);
        Self {
            kept,
            clock,
            access,
            keys,
            sessions,
        }
    }

    /// Signs Ann in with a role; returns the token of her session.
    async fn enter(&self, role: Option<Role>) -> Option<String> {
        let identity = Identity {
            issuer: "https://id.example.com".to_owned(),
            subject: "ann".to_owned(),
            claims: Map::new(),
        };
        let judged = Judged { role, groups: None };
        let entered = self
            .keys
            .enter(&self.sessions, &identity, &judged, Map::new());
        match entered.await.expect("a store") {
            Entered::Session { token, .. } => Some(token),
            Entered::NoRole | Entered::Blocked => None,
        }
    }

    /// The person of a token, as a request with it has them.
    async fn caller(&self, token: &str) -> Option<Caller> {
        let session = self.sessions.find(token).await.expect("a store")?;
        let caller = self.access.recognise(&session.credentials).await;
        caller.expect("a store")
    }

    async fn actions(&self) -> Vec<String> {
        let listing = AuditListing {
            limit: 100,
            ..AuditListing::default()
        };
        let log = self.kept.store.list_audit(&listing).await.expect("a store");
        log.items.into_iter().rev().map(|it| it.action).collect()
    }
}

#[tokio::test]
async fn a_session_has_the_rights_of_the_last_sign_in_and_ends_by_age_or_idleness() {
    let fixture = Fixture::new().await;
    let first = fixture.enter(Some(Role::Viewer)).await.expect("a session");
    let caller = fixture.caller(&first).await.expect("a person");
    assert_eq!(caller.key().scopes, Role::Viewer.scopes());
    let second = fixture.enter(Some(Role::Admin)).await.expect("a session");
    for token in [&first, &second] {
        let caller = fixture.caller(token).await.expect("a person");
        assert_eq!(caller.key().scopes, [Scope::Admin]);
    }
    assert!(fixture.caller("person.").await.is_none());
    assert!(fixture.caller(&first[..first.len() - 1]).await.is_none());

    // One is used every hour, the other is not.
    for _ in 1..12 {
        fixture.clock.advance(SignedDuration::from_hours(1));
        assert!(fixture.caller(&first).await.is_some());
    }
    assert!(fixture.caller(&second).await.is_none());
    fixture.clock.advance(SignedDuration::from_hours(1));
    assert!(fixture.caller(&first).await.is_none());

    let third = fixture.enter(Some(Role::Admin)).await.expect("a session");
    assert_eq!(fixture.enter(None).await, None);
    assert!(fixture.caller(&third).await.is_none());
    let expected = [
        "person.create",
        "session.begin",
        "person.change",
        "session.begin",
        "session.begin",
        "person.change",
    ];
    assert_eq!(fixture.actions().await, expected);
}

#[tokio::test]
async fn a_stranger_without_a_role_leaves_no_trace() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.enter(None).await, None);
    assert!(fixture.actions().await.is_empty());
}

#[tokio::test]
async fn a_block_ends_sessions_and_refuses_sign_ins_until_it_ends() {
    let fixture = Fixture::new().await;
    let token = fixture
        .enter(Some(Role::Operator))
        .await
        .expect("a session");
    let caller = fixture.caller(&token).await.expect("a person");
    let id = caller.key().id.clone();
    let (keys, operator) = (&fixture.keys, Actor::Operator);
    // A person is no key that could be changed, rotated or revoked.
    assert!(
        keys.revoke(&operator, &id)
            .await
            .expect("a store")
            .is_none()
    );
    let rotated = keys.rotate(&operator, &id, SignedDuration::ZERO).await;
    assert!(rotated.expect("a store").is_none());
    assert!(keys.find(&id).await.expect("a store").is_none());
    for _ in 0..2 {
        let blocked = keys.block(&operator, &id).await.expect("a store");
        assert!(blocked.expect("a person").revoked_at.is_some());
    }
    assert!(fixture.caller(&token).await.is_none());
    assert_eq!(fixture.enter(Some(Role::Admin)).await, None);
    keys.unblock(&operator, &id)
        .await
        .expect("a store")
        .expect("a person");
    assert!(fixture.caller(&token).await.is_none());
    let token = fixture.enter(Some(Role::Admin)).await.expect("a session");
    // A person who manages keys may not touch an administrator.
    let refused = keys.block(&Actor::Key(caller.clone()), &id).await;
    assert!(matches!(refused, Err(KeyError::Refused(_))));
    let refused = keys.end_sessions(&Actor::Key(caller), &id).await;
    assert!(matches!(refused, Err(KeyError::Refused(_))));
    assert_eq!(
        keys.end_sessions(&operator, &id).await.expect("a store"),
        Some(1)
    );
    assert!(fixture.caller(&token).await.is_none());
    assert!(
        keys.block(&operator, "unknown")
            .await
            .expect("a store")
            .is_none()
    );
    let actions = fixture.actions().await;
    let of_operator = actions.iter().filter(|it| {
        let marks = ["person.block", "person.unblock", "person.end-sessions"];
        marks.contains(&&***it)
    });
    assert_eq!(of_operator.count(), 3);
}

#[tokio::test]
async fn sessions_are_of_the_provider_and_the_roles_of_now() {
    let fixture = Fixture::new().await;
    let token = fixture.enter(Some(Role::Admin)).await.expect("a session");
    assert!(fixture.caller(&token).await.is_some());
    let of_another = PeopleRules {
        issuer: "https://id.example.org".to_owned(),
        ..people(&Role::ALL)
    };
    for rules in [None, Some(of_another), Some(people(&[Role::Viewer]))] {
        let access = Access::new(
            Arc::clone(&fixture.kept.store),
            Arc::clone(&fixture.clock) as _,
        );
        let access = access.with_people(rules);
        let session = fixture.sessions.find(&token).await.expect("a store");
        let session = session.expect("a session that has not ended");
        let caller = access.recognise(&session.credentials).await;
        assert!(caller.expect("a store").is_none());
    }
}

#[tokio::test]
async fn a_key_that_manages_people_ends_no_block() {
    let fixture = Fixture::new().await;
    let token = fixture
        .enter(Some(Role::Operator))
        .await
        .expect("a session");
    let caller = fixture.caller(&token).await.expect("a person");
    let (keys, id) = (&fixture.keys, caller.key().id.clone());
    keys.block(&Actor::Key(caller.clone()), &id)
        .await
        .expect("a manager of keys may block");
    let refused = keys.unblock(&Actor::Key(caller), &id).await;
    assert!(matches!(refused, Err(KeyError::Refused(_))));
}
