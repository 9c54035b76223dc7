use jiff::SignedDuration;
use rand::SeedableRng;
use serde_json::{Value, json};
use shortlink_core::api_key::{KeyState, PresentedKey};
use shortlink_core::audit::StoredAuditEntry;
use shortlink_core::ports::AuditListing;
use shortlink_core::testing::ManualClock;
use shortlink_store::testing::TemporaryStore;

use super::*;
use crate::access::Credentials;
use crate::testing::new_key;

struct Fixture {
    kept: TemporaryStore,
    clock: Arc<ManualClock>,
    access: Arc<Access>,
    keys: Keys,
}

impl Fixture {
    async fn new() -> Self {
        let kept = TemporaryStore::new().await;
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let access = Access::new(Arc::clone(&kept.store), Arc::clone(&clock) as _);
        let access = Arc::new(access);
        let keys = Keys::new(
            Arc::clone(&kept.store),
            Arc::clone(&clock) as _,
            StdRng::seed_from_u64(1),
            Some(Arc::clone(&access)),
        );
        Self {
            kept,
            clock,
            access,
            keys,
        }
    }

    async fn key(&self, scopes: &[Scope]) -> (ApiKey, String) {
        let made = self.keys.create(&Actor::Operator, new_key(scopes)).await;
        made.expect("an operator may make keys")
    }

    async fn recognise(&self, text: &str) -> Option<Caller> {
        let presented = PresentedKey::parse(text).expect("a key");
        self.access
            .recognise(&Credentials::Key(presented))
            .await
            .expect("a store")
    }

    async fn actor(&self, scopes: &[Scope]) -> (String, Actor) {
        let (key, text) = self.key(scopes).await;
        let caller = self.recognise(&text).await.expect("a live key");
        (key.id, Actor::Key(caller))
    }

    async fn audit(&self) -> Vec<StoredAuditEntry> {
        let listing = AuditListing {
            limit: 100,
            ..AuditListing::default()
        };
        let entries = self.kept.store.list_audit(&listing).await;
        entries.expect("a store").items
    }
}

/// The refusal, if any.
fn outcome<T>(done: &Result<T, KeyError>) -> Result<(), KeyRefusal> {
    match done {
        Ok(_) => Ok(()),
        Err(KeyError::Refused(refusal)) => Err(*refusal),
        Err(KeyError::Store(error)) => panic!("{error}"),
    }
}

#[tokio::test]
async fn nobody_grants_what_they_lack() {
    let fixture = Fixture::new().await;
    let (_, admin) = fixture.actor(&[Scope::Admin]).await;
    let (_, manager) = fixture.actor(&[Scope::KeysAdmin, Scope::LinksRead]).await;
    let lacks = |scope| Err(KeyRefusal::Scope(scope));
    for (actor, scopes, expected) in [
        (&admin, &Scope::ALL[..], Ok(())),
        (&Actor::Operator, &Scope::ALL, Ok(())),
        (&manager, &[Scope::LinksRead], Ok(())),
        (&manager, &[Scope::LinksRead, Scope::KeysAdmin], Ok(())),
        (&manager, &[Scope::LinksWrite], lacks(Scope::LinksWrite)),
        (
            &manager,
            &[Scope::LinksRead, Scope::Admin],
            lacks(Scope::Admin),
        ),
    ] {
        let created = fixture.keys.create(actor, new_key(scopes)).await;
        assert_eq!(outcome(&created), expected, "create {scopes:?}");
        let (target, _) = fixture.key(&[Scope::LinksRead]).await;
        let change = KeyChange {
            scopes: Some(scopes.to_vec()),
            ..KeyChange::default()
        };
        let changed = fixture.keys.change(actor, &target.id, change).await;
        assert_eq!(outcome(&changed), expected, "change to {scopes:?}");
        let (target, _) = fixture.key(scopes).await;
        let rotated = fixture.keys.rotate(actor, &target.id, SignedDuration::ZERO);
        assert_eq!(outcome(&rotated.await), expected, "rotate {scopes:?}");
    }
    // An actor may remove scopes from a key that has scopes beyond the actor's own.
    let (target, _) = fixture.key(&[Scope::LinksRead, Scope::LinksWrite]).await;
    let change = KeyChange {
        scopes: Some(vec![Scope::LinksWrite]),
        ..KeyChange::default()
    };
    let changed = fixture.keys.change(&manager, &target.id, change).await;
    assert_eq!(outcome(&changed), Ok(()));
    let revoked = fixture.keys.revoke(&manager, &target.id).await;
    assert_eq!(outcome(&revoked), Ok(()));
}

#[tokio::test]
async fn administrators_are_touched_by_administrators_alone_and_the_last_by_no_key() {
    let fixture = Fixture::new().await;
    let (_, manager) = fixture.actor(&[Scope::KeysAdmin]).await;
    let (first, admin) = fixture.actor(&[Scope::Admin]).await;
    let demotion = || KeyChange {
        scopes: Some(vec![Scope::KeysAdmin]),
        ..KeyChange::default()
    };
    let sooner = || KeyChange {
        expires_at: Some(Some(fixture.clock.now() + SignedDuration::from_secs(60))),
        ..KeyChange::default()
    };
    let renaming = || KeyChange {
        name: Some("other".to_owned()),
        ..KeyChange::default()
    };
    let keys = &fixture.keys;
    let lacks = Err(KeyRefusal::Scope(Scope::Admin));
    let last = Err(KeyRefusal::LastAdmin);
    for (actor, changed, reduced) in [(&manager, lacks, lacks), (&admin, Ok(()), last)] {
        let renamed = keys.change(actor, &first, renaming()).await;
        assert_eq!(outcome(&renamed), changed);
        assert_eq!(
            outcome(&keys.change(actor, &first, demotion()).await),
            reduced
        );
        assert_eq!(
            outcome(&keys.change(actor, &first, sooner()).await),
            reduced
        );
        assert_eq!(outcome(&keys.revoke(actor, &first).await), reduced);
    }
    // Its expiring predecessor does not count as another admin key.
    let rotation = keys.rotate(&admin, &first, SignedDuration::from_secs(60));
    let rotation = rotation.await.expect("allowed").expect("a key");
    let second = rotation.successor.id;
    assert_eq!(outcome(&keys.revoke(&admin, &second).await), last);
    assert_eq!(outcome(&keys.revoke(&admin, &first).await), Ok(()));
    assert_eq!(outcome(&keys.revoke(&admin, &second).await), last);
    let (_, third) = fixture.actor(&[Scope::Admin]).await;
    assert_eq!(outcome(&keys.revoke(&third, &second).await), Ok(()));
    // An operator at the command line can create another.
    let (fourth, _) = fixture.key(&[Scope::LinksRead]).await;
    assert_eq!(outcome(&keys.revoke(&third, &fourth.id).await), Ok(()));
    let Actor::Key(third) = third else {
        panic!("a key");
    };
    let revoked = keys.revoke(&Actor::Operator, &third.key().id).await;
    assert_eq!(outcome(&revoked), Ok(()));
}

#[tokio::test]
async fn an_administrator_that_has_expired_may_be_revoked() {
    let fixture = Fixture::new().await;
    let expires_at = fixture.clock.now() + SignedDuration::from_secs(60);
    let new = NewKey {
        expires_at: Some(expires_at),
        ..new_key(&[Scope::Admin])
    };
    let (old, _) = fixture
        .keys
        .create(&Actor::Operator, new)
        .await
        .expect("made");
    let (_, admin) = fixture.actor(&[Scope::Admin]).await;
    fixture.clock.advance(SignedDuration::from_secs(60));
    let revoked = fixture.keys.revoke(&admin, &old.id).await;
    assert_eq!(outcome(&revoked), Ok(()));
}

#[tokio::test]
async fn a_rotated_key_and_its_successor_both_count_for_a_while() {
    let fixture = Fixture::new().await;
    let new = NewKey {
        name: "shop".to_owned(),
        rate_limit: RateLimit::new(5, 10),
        policy: KeyPolicy {
            min_body_length: Some(8),
            ..KeyPolicy::default()
        },
        ..new_key(&[Scope::LinksWrite])
    };
    let (old, old_text) = fixture
        .keys
        .create(&Actor::Operator, new)
        .await
        .expect("made");
    fixture.clock.advance(SignedDuration::from_secs(1));
    let overlap = SignedDuration::from_secs(600);
    let rotate = async |id: &str| fixture.keys.rotate(&Actor::Operator, id, overlap).await;
    let rotation = rotate(&old.id).await.expect("allowed").expect("a key");
    let now = fixture.clock.now();
    assert_eq!(rotation.predecessor.expires_at, Some(now + overlap));
    let expected = ApiKey {
        id: rotation.successor.id.clone(),
        secret_sha256: rotation.successor.secret_sha256,
        created_at: now,
        ..old.clone()
    };
    assert_ne!(expected.secret_sha256, old.secret_sha256);
    assert_eq!(rotation.successor, expected);
    assert!(fixture.recognise(&rotation.secret).await.is_some());
    assert!(fixture.recognise(&old_text).await.is_some());
    assert_eq!(outcome(&rotate(&old.id).await), Err(KeyRefusal::Rotated));
    fixture.clock.advance(overlap);
    assert!(fixture.recognise(&old_text).await.is_none());
    assert!(fixture.recognise(&rotation.secret).await.is_some());
    assert_eq!(outcome(&rotate(&old.id).await), Err(KeyRefusal::Expired));
    assert!(rotate("nobody").await.expect("a store").is_none());

    // An overlap does not extend a key's life, and an overlap of zero ends it at once.
    let soon = fixture.clock.now() + SignedDuration::from_secs(10);
    let id = &rotation.successor.id;
    let change = KeyChange {
        expires_at: Some(Some(soon)),
        ..KeyChange::default()
    };
    let changed = fixture.keys.change(&Actor::Operator, id, change).await;
    assert_eq!(outcome(&changed), Ok(()));
    let rotation = rotate(id).await.expect("allowed").expect("a key");
    assert_eq!(rotation.predecessor.expires_at, Some(soon));
    assert_eq!(rotation.successor.expires_at, Some(soon));
    let at_once = fixture.keys.rotate(
        &Actor::Operator,
        &rotation.successor.id,
        SignedDuration::ZERO,
    );
    let at_once = at_once.await.expect("allowed").expect("a key");
    let state = at_once.predecessor.state(fixture.clock.now());
    assert_eq!(state, KeyState::Expired);
    assert!(fixture.recognise(&rotation.secret).await.is_none());
}

#[tokio::test]
async fn a_revoked_key_is_final() {
    let fixture = Fixture::new().await;
    let (key, _) = fixture.key(&[Scope::LinksRead]).await;
    let keys = &fixture.keys;
    let actor = Actor::Operator;
    let first = keys.revoke(&actor, &key.id).await.expect("allowed");
    fixture.clock.advance(SignedDuration::from_secs(1));
    let second = keys.revoke(&actor, &key.id).await.expect("allowed");
    assert_eq!(first, second);
    let revoked = Err(KeyRefusal::Revoked);
    let changed = keys.change(&actor, &key.id, KeyChange::default()).await;
    assert_eq!(outcome(&changed), revoked);
    let rotated = keys.rotate(&actor, &key.id, SignedDuration::ZERO).await;
    assert_eq!(outcome(&rotated), revoked);
    assert!(
        keys.revoke(&actor, "nobody")
            .await
            .expect("a store")
            .is_none()
    );
}

#[tokio::test]
async fn the_audit_log_tells_who_did_what_and_no_secrets() {
    let fixture = Fixture::new().await;
    let (admin_id, admin) = fixture.actor(&[Scope::Admin]).await;
    let keys = &fixture.keys;
    let new = new_key(&[Scope::LinksRead]);
    let (key, secret) = keys.create(&admin, new).await.expect("allowed");
    fixture.clock.advance(SignedDuration::from_secs(1));
    let change = KeyChange {
        name: Some("other".to_owned()),
        rate_limit: Some(RateLimit::new(3, 4)),
        ..KeyChange::default()
    };
    // The second change has no effect and is not reported.
    for _ in 0..2 {
        let changed = keys.change(&admin, &key.id, change.clone()).await;
        assert_eq!(outcome(&changed), Ok(()));
    }
    let rotated = keys.rotate(&admin, &key.id, SignedDuration::from_secs(60));
    let rotation = rotated.await.expect("allowed").expect("a key");
    let successor = &rotation.successor.id;
    for _ in 0..2 {
        let revoked = keys.revoke(&Actor::Operator, successor).await;
        assert_eq!(outcome(&revoked), Ok(()));
    }
    let told: Vec<_> = fixture
        .audit()
        .await
        .into_iter()
        .map(|entry| {
            let detail = Value::Object(entry.detail);
            let text = detail.to_string();
            for text_of_key in [&secret, &rotation.secret] {
                let secret = text_of_key.rsplit('_').next().expect("a secret");
                assert!(!text.contains(secret), "{text}");
            }
            assert!(!text.contains("sha256"), "{text}");
            (entry.action, entry.subject, entry.key_id, detail)
        })
        .collect();
    let whole = json!({
        "name": "other",
        "scopes": ["links:read"],
        "expiresAt": null,
        "rateLimit": {"requestsPerSecond": 3, "burst": 4},
        "policy": KeyPolicy::default(),
    });
    let mut created = whole.clone();
    created["name"] = json!("test");
    created["rateLimit"] = Value::Null;
    let mut admin_created = created.clone();
    admin_created["scopes"] = json!(["admin"]);
    let mut successor_created = whole.clone();
    successor_created["predecessorId"] = json!(key.id);
    let changed = json!({"name": "other", "rateLimit": whole["rateLimit"]});
    let rotated = json!({
        "successorId": successor,
        "expiresAt": "2026-06-01T00:01:01Z",
    });
    let entry = |action: &str, id: &str, by: Option<&String>, detail: &Value| {
        (
            action.to_owned(),
            format!("key:{id}"),
            by.cloned(),
            detail.clone(),
        )
    };
    let by = Some(&admin_id);
    assert_eq!(
        told,
        [
            entry("key.revoke", successor, None, &json!({})),
            entry("key.create", successor, by, &successor_created),
            entry("key.rotate", &key.id, by, &rotated),
            entry("key.change", &key.id, by, &changed),
            entry("key.create", &key.id, by, &created),
            entry("key.create", &admin_id, None, &admin_created),
        ]
    );
}
