use jiff::SignedDuration;
use shortlink_core::api_key::{RateLimit, Scope};
use shortlink_core::testing::ManualClock;
use shortlink_store::testing::TemporaryStore;

use super::*;
use crate::keys::{Actor, KeyChange, Keys, NewKey};
use crate::testing::{keep_key, new_key};
use rand::SeedableRng;
use rand::rngs::StdRng;

struct Fixture {
    kept: TemporaryStore,
    clock: Arc<ManualClock>,
    access: Arc<Access>,
}

impl Fixture {
    async fn new() -> Self {
        let kept = TemporaryStore::new().await;
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let access = Access::new(Arc::clone(&kept.store), Arc::clone(&clock) as _);
        Self {
            kept,
            clock,
            access: Arc::new(access),
        }
    }

    async fn key(&self, seed: u64, key: NewKey) -> (ApiKey, Credentials) {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let (key, text) = keep_key(&self.kept.store, &clock, seed, key).await;
        let presented = PresentedKey::parse(&text).expect("a key");
        (key, Credentials::Key(presented))
    }

    /// Returns key management of this process, or of another one.
    fn keys(&self, is_here: bool) -> Keys {
        Keys::new(
            Arc::clone(&self.kept.store),
            Arc::clone(&self.clock) as _,
            StdRng::seed_from_u64(9),
            is_here.then(|| Arc::clone(&self.access)),
        )
    }

    async fn recognises(&self, presented: &Credentials) -> bool {
        let caller = self.access.recognise(presented).await;
        caller.expect("a store").is_some()
    }

    async fn caller(&self, presented: &Credentials) -> Caller {
        let caller = self.access.recognise(presented).await;
        caller.expect("a store").expect("a live key")
    }
}

#[tokio::test]
async fn a_revocation_counts_here_at_once_and_elsewhere_within_a_second() {
    let fixture = Fixture::new().await;
    for (seed, is_here) in [(1, true), (2, false)] {
        let (key, presented) = fixture.key(seed, new_key(&[Scope::LinksRead])).await;
        assert!(fixture.recognises(&presented).await);
        let revoked = fixture
            .keys(is_here)
            .revoke(&Actor::Operator, &key.id)
            .await;
        assert!(revoked.expect("a store").is_some());
        assert_eq!(fixture.recognises(&presented).await, !is_here);
        fixture.clock.advance(SignedDuration::from_millis(999));
        assert_eq!(fixture.recognises(&presented).await, !is_here);
        fixture.clock.advance(SignedDuration::from_millis(1));
        assert!(!fixture.recognises(&presented).await);
    }
}

#[tokio::test]
async fn a_key_that_is_known_needs_no_database() {
    let fixture = Fixture::new().await;
    let (_, presented) = fixture.key(1, new_key(&[Scope::LinksRead])).await;
    assert!(fixture.recognises(&presented).await);
    fixture.kept.store.close().await;
    assert!(fixture.recognises(&presented).await);
    fixture.clock.advance(SignedDuration::from_secs(1));
    // A stale key is an error: neither accepted nor rejected.
    assert!(fixture.access.recognise(&presented).await.is_err());
}

#[tokio::test]
async fn a_key_expires_at_its_moment_however_well_it_is_known() {
    let fixture = Fixture::new().await;
    let expires_at = fixture.clock.now() + SignedDuration::from_millis(500);
    let new = NewKey {
        expires_at: Some(expires_at),
        ..new_key(&[Scope::LinksRead])
    };
    let (_, presented) = fixture.key(1, new).await;
    assert!(fixture.recognises(&presented).await);
    fixture.clock.advance(SignedDuration::from_millis(499));
    assert!(fixture.recognises(&presented).await);
    fixture.clock.advance(SignedDuration::from_millis(1));
    assert!(!fixture.recognises(&presented).await);
}

#[tokio::test]
async fn what_was_found_before_a_change_is_not_kept_after_it() {
    let fixture = Fixture::new().await;
    let (key, presented) = fixture.key(1, new_key(&[Scope::LinksRead])).await;
    let question = fixture.access.known(&key.id).err().expect("not known yet");
    let found = fixture.kept.store.find_key(&key.id).await.expect("a store");
    // The key is revoked here between the look-up and its result.
    let revoked = fixture.keys(true).revoke(&Actor::Operator, &key.id).await;
    assert!(revoked.expect("a store").is_some());
    let caller = fixture.access.answered(&key.id, &question, found);
    assert!(caller.is_some());
    assert!(!fixture.recognises(&presented).await);
}

#[tokio::test]
async fn a_limit_is_counted_on_when_its_key_is_found_again_and_begins_anew_when_it_changes() {
    let fixture = Fixture::new().await;
    let limited = NewKey {
        rate_limit: RateLimit::new(1, 10),
        ..new_key(&[Scope::LinksRead])
    };
    let (key, presented) = fixture.key(1, limited).await;
    let (_, free) = fixture.key(2, new_key(&[Scope::LinksRead])).await;
    assert_eq!(fixture.caller(&free).await.charge(u32::MAX), Ok(()));
    assert_eq!(fixture.caller(&presented).await.charge(10), Ok(()));
    fixture.clock.advance(SignedDuration::from_secs(2));
    let caller = fixture.caller(&presented).await;
    assert!(caller.charge(3).is_err());
    assert_eq!(caller.charge(1), Ok(()));
    let keys = fixture.keys(true);
    let renamed = KeyChange {
        name: Some("other".to_owned()),
        ..KeyChange::default()
    };
    let changed = keys.change(&Actor::Operator, &key.id, renamed).await;
    assert!(changed.expect("a store").is_some());
    let caller = fixture.caller(&presented).await;
    assert_eq!(caller.key().name, "other");
    assert_eq!(caller.charge(1), Ok(()));
    assert!(caller.charge(1).is_err());
    let relimited = KeyChange {
        rate_limit: Some(RateLimit::new(1, 5)),
        ..KeyChange::default()
    };
    let changed = keys.change(&Actor::Operator, &key.id, relimited).await;
    assert!(changed.expect("a store").is_some());
    let caller = fixture.caller(&presented).await;
    assert_eq!(caller.charge(5), Ok(()));
    assert_eq!(caller.charge(6), Err(ChargeError::TooMany { most: 5 }));
}

#[test]
fn no_more_keys_are_kept_than_there_is_room_for() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
    let mut cache = Cache::new();
    let mut rng = StdRng::seed_from_u64(1);
    let now = Duration::from_secs(100);
    let (key, _) = ApiKey::generate(String::new(), vec![], clock.now(), &mut rng);
    for number in 0..MOST_KEYS.get() + 10 {
        let id = number.to_string();
        cache.keep(ApiKey { id, ..key.clone() }, Some(now), &clock);
        assert_eq!(cache.entries.len(), MOST_KEYS.get().min(number + 1));
    }
    assert!(!cache.entries.contains("9"));
    assert!(cache.entries.contains("10"));
}
