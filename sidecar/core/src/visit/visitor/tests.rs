use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

/// Stores keys as a store does.
#[derive(Default)]
struct TestKeys {
    kept: Mutex<HashMap<Date, DayKey>>,
    asked: Mutex<u32>,
}

#[async_trait]
impl DayKeys for TestKeys {
    async fn day_key(&self, day: Date, fresh: DayKey) -> Result<DayKey, StoreError> {
        *self.asked.lock() += 1;
        let mut kept = self.kept.lock();
        Ok(kept.entry(day).or_insert(fresh).clone())
    }

    async fn known_day_key(&self, day: Date) -> Result<Option<DayKey>, StoreError> {
        *self.asked.lock() += 1;
        let kept = self.kept.lock();
        Ok(kept.get(&day).cloned())
    }

    async fn destroy_day_keys(&self, before: Date) -> Result<u64, StoreError> {
        let mut kept = self.kept.lock();
        let many = kept.len();
        kept.retain(|day, _| *day >= before);
        Ok((many - kept.len()) as u64)
    }
}

fn moment(text: &str) -> Timestamp {
    text.parse().expect("a moment")
}

fn client(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[tokio::test]
async fn keys_live_from_shortly_before_their_day_to_six_hours_behind_it() {
    let store = Arc::new(TestKeys::default());
    let ring = KeyRing::new(store.clone());
    let mut rng = StdRng::seed_from_u64(1);
    let day = |keys: &LiveKeys, at: &str| {
        let id = keys.visitor(moment(at), client("192.0.2.1"), b"agent");
        id.is_some()
    };
    for (now, yesterday, tomorrow) in [
        ("2026-06-02T00:00:00Z", true, false),
        ("2026-06-02T05:59:59Z", true, false),
        ("2026-06-02T06:00:00Z", false, false),
        ("2026-06-02T23:54:59Z", false, false),
        ("2026-06-02T23:55:00Z", false, true),
    ] {
        let keys = ring.live(moment(now), &mut rng).await.expect("a store");
        ring.destroy_old(moment(now)).await.expect("a store");
        assert_eq!(day(&keys, "2026-06-01T23:00:00Z"), yesterday, "{now}");
        assert!(day(&keys, "2026-06-02T12:00:00Z"), "{now}");
        assert_eq!(day(&keys, "2026-06-03T00:00:00Z"), tomorrow, "{now}");
        let kept = store.kept.lock().len();
        assert_eq!(
            kept,
            1 + usize::from(yesterday) + usize::from(tomorrow),
            "{now}"
        );
    }
}

#[tokio::test]
async fn the_store_is_asked_for_a_key_once_and_all_have_the_same() {
    let store = Arc::new(TestKeys::default());
    let now = moment("2026-06-02T12:00:00Z");
    let mut ids = Vec::new();
    for seed in 0..2 {
        let ring = KeyRing::new(store.clone());
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..3 {
            let keys = ring.live(now, &mut rng).await.expect("a store");
            ids.push(
                keys.visitor(now, client("192.0.2.1"), b"agent")
                    .expect("a key"),
            );
        }
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(*store.asked.lock(), 2);
}

#[tokio::test]
async fn a_destroyed_key_is_forgotten_here_too() {
    let store = Arc::new(TestKeys::default());
    let ring = KeyRing::new(store.clone());
    let mut rng = StdRng::seed_from_u64(1);
    let now = moment("2026-06-02T12:00:00Z");
    ring.live(now, &mut rng).await.expect("a store");
    let later = moment("2026-06-03T06:00:00Z");
    assert_eq!(ring.destroy_old(later).await.expect("a store"), 1);
    assert!(ring.kept.lock().0.is_empty());
    assert_eq!(ring.destroy_old(later).await.expect("a store"), 0);
}

#[test]
fn visitors_differ_by_client_agent_day_and_key() {
    let days = [
        (day_of(moment("2026-06-01T00:00:00Z")), DayKey::new([1; 32])),
        // Keys are never reused; even so, the day distinguishes visitors.
        (day_of(moment("2026-06-02T00:00:00Z")), DayKey::new([1; 32])),
    ];
    let keys: LiveKeys = days.into_iter().collect();
    let other: LiveKeys = [(day_of(moment("2026-06-01T00:00:00Z")), DayKey::new([2; 32]))]
        .into_iter()
        .collect();
    let id = |keys: &LiveKeys, at, address, agent| {
        let id = keys.visitor(moment(at), client(address), agent);
        id.expect("a key")
    };
    let ids = [
        id(&keys, "2026-06-01T00:00:00Z", "192.0.2.1", b"agent"),
        id(&keys, "2026-06-02T00:00:00Z", "192.0.2.1", b"agent"),
        id(&keys, "2026-06-01T00:00:00Z", "192.0.2.2", b"agent"),
        id(&keys, "2026-06-01T00:00:00Z", "192.0.2.1", b"agenT"),
        id(&keys, "2026-06-01T00:00:00Z", "2001:db8::1", b"agent"),
        id(&other, "2026-06-01T00:00:00Z", "192.0.2.1", b"agent"),
    ];
    for (place, one) in ids.iter().enumerate() {
        assert!(ids[place + 1..].iter().all(|other| other != one), "{place}");
    }
    let evening = id(&keys, "2026-06-01T23:59:59Z", "192.0.2.1", b"agent");
    assert_eq!(evening, ids[0]);
    assert_eq!(
        keys.visitor(moment("2026-06-03T00:00:00Z"), client("192.0.2.1"), b""),
        None
    );
    assert_eq!(evening.to_string().len(), 32);
}

#[test]
fn keys_are_not_shown() {
    let key = DayKey::new([0x5a; 32]);
    assert_eq!(format!("{key:?}"), "DayKey");
    let keys: LiveKeys = [(day_of(moment("2026-06-01T00:00:00Z")), key)]
        .into_iter()
        .collect();
    let shown = format!("{keys:?}");
    assert!(!shown.contains("90") && !shown.contains("5a"), "{shown}");
}

#[tokio::test]
async fn who_only_looks_makes_no_keys_and_keeps_none_that_is_not_live_any_more() {
    let store = Arc::new(TestKeys::default());
    let (writer, looker) = (KeyRing::new(store.clone()), KeyRing::new(store.clone()));
    let mut rng = StdRng::seed_from_u64(1);
    let noon = moment("2026-06-01T12:00:00Z");
    let today = day_of(noon);
    assert!(!looker.known(noon).await.expect("a store").has(today));
    assert_eq!(store.kept.lock().len(), 0);
    let made = writer.live(noon, &mut rng).await.expect("a store");
    let known = looker.known(noon).await.expect("a store");
    let visitor = |keys: &LiveKeys| keys.visitor(noon, client("192.0.2.1"), b"agent");
    assert!(visitor(&made).is_some());
    assert_eq!(visitor(&known), visitor(&made));
    // A key in memory is not fetched from the store again.
    let asked = *store.asked.lock();
    looker.known(noon).await.expect("a store");
    assert_eq!(*store.asked.lock(), asked);
    assert!(looker.held(noon).has(today));
    assert!(!looker.held(moment("2026-06-02T06:00:00Z")).has(today));
    assert!(!looker.held(noon).has(today));
}
