use std::time::Duration;

use shortlink_core::testing::eventually;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::visitor::{DayKey, day_of};
use shortlink_store::testing::TemporaryStore;

use super::listener::MOST_WAITING;
use super::*;
use crate::testing::live::{BOT, MemoryTail, PHONE, frame, start, tap};

fn taps(sequences: std::ops::Range<u64>) -> Vec<u8> {
    sequences.flat_map(tap).collect()
}

struct Scene {
    tail: Arc<MemoryTail>,
    feed: Arc<LiveVisits>,
    stop: CancellationToken,
    kept: TemporaryStore,
}

impl Scene {
    async fn with(streams: usize, limits: LiveLimits) -> Self {
        let kept = TemporaryStore::new().await;
        let day = day_of("2026-06-01T12:00:00Z".parse().expect("a moment"));
        let made = kept.store.day_key(day, DayKey::new([3; 32])).await;
        made.expect("a working store");
        let tail = Arc::new(MemoryTail::new(streams));
        let (feed, stop) = start(&tail, Arc::clone(&kept.store) as _, limits);
        Self {
            tail,
            feed,
            stop,
            kept,
        }
    }

    async fn new() -> Self {
        Self::with(1, PLENTY).await
    }

    /// A listener without a filter, after its start message.
    async fn listener(&self) -> Listener {
        self.listener_with(LiveFilter::default(), None).await
    }

    async fn listener_with(&self, filter: LiveFilter, after: Option<&str>) -> Listener {
        let after = after.map(|text| LiveId::parse(text).expect("an id"));
        let listener = self.feed.listen("key", filter, after);
        let mut listener = listener.expect("a place for another listener");
        let told = next(&mut listener).await;
        assert!(matches!(told, Told::Begun(_)), "{told:?}");
        listener
    }
}

const PLENTY: LiveLimits = LiveLimits {
    listeners: 3,
    per_key: 3,
    visits_per_s: 10_000,
};

async fn next(listener: &mut Listener) -> Told {
    let limit = Duration::from_secs(20);
    let told = tokio::time::timeout(limit, listener.next()).await;
    told.expect("an event").expect("an open feed")
}

/// The sequence number of the next visit.
async fn next_tap(listener: &mut Listener) -> u64 {
    match next(listener).await {
        Told::Visit(visit) => visit.visit.id.sequence,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn everybody_is_told_of_what_comes_from_then_on_and_nothing_is_read_for_nobody() {
    let scene = Scene::new().await;
    scene.tail.put(0, 1, tap(0));
    assert_eq!(scene.tail.reads(), 0);
    let mut first = scene.listener().await;
    let mut second = scene.listener().await;
    scene.tail.put(0, 2, [tap(1), tap(2)].concat());
    for listener in [&mut first, &mut second] {
        let Told::Visit(visit) = next(listener).await else {
            panic!("no visit");
        };
        assert_eq!(visit.id.to_string(), "0:2-0:0:1");
        assert_eq!(visit.visit.classification.class, Class::Human);
        assert!(visit.visit.visitor.is_some());
        assert_eq!(next_tap(listener).await, 2);
    }
    drop((first, second));
    assert_eq!(scene.feed.listeners(), 0);
    // The next listener finds an idle feed.
    eventually("nothing is read", async || scene.tail.closed() == 1).await;
    let reads = scene.tail.reads();
    scene.tail.put(0, 3, tap(3));
    assert_eq!(scene.tail.reads(), reads);
    let mut third = scene.listener().await;
    scene.tail.put(0, 4, tap(4));
    assert_eq!(next_tap(&mut third).await, 4);
}

#[tokio::test]
async fn there_is_room_for_so_many_listeners_and_for_another_when_one_has_left() {
    let limits = LiveLimits {
        per_key: 2,
        ..PLENTY
    };
    let scene = Scene::with(1, limits).await;
    let listen = |key_id| scene.feed.listen(key_id, LiveFilter::default(), None);
    let refused = |key_id| listen(key_id).err();
    let first = listen("key");
    let second = listen("key");
    assert!(first.is_ok() && second.is_ok());
    // One key cannot take the places of all.
    assert_eq!(refused("key"), Some(Full::OfKey));
    let other = listen("other");
    assert!(other.is_ok());
    assert_eq!(refused("third"), Some(Full::All));
    drop(first);
    assert!(listen("key").is_ok());
}

#[tokio::test]
async fn listeners_are_told_of_what_they_want() {
    let scene = Scene::new().await;
    let filter = |code: Option<&str>, host: Option<&str>, class| LiveFilter {
        code: code.map(|code| code.parse().expect("a code")),
        host: host.map(str::to_owned),
        class,
    };
    let mut by_code = scene
        .listener_with(filter(Some("abd"), None, None), None)
        .await;
    let mut by_host = scene
        .listener_with(filter(None, Some("Go.Example"), None), None)
        .await;
    let mut bots = scene
        .listener_with(filter(Some("abc"), None, Some(Class::Bot)), None)
        .await;
    let batch = [
        frame(0, "abc", "s.example.com", PHONE),
        frame(1, "abd", "s.example.com", BOT),
        frame(2, "abc", "GO.example", BOT),
        frame(3, "abd", "go.example", PHONE),
    ];
    scene.tail.put(0, 1, batch.concat());
    scene.tail.put(0, 2, frame(4, "abc", "s.example.com", BOT));
    assert_eq!(next_tap(&mut by_code).await, 1);
    assert_eq!(next_tap(&mut by_code).await, 3);
    assert_eq!(next_tap(&mut by_host).await, 2);
    assert_eq!(next_tap(&mut by_host).await, 3);
    assert_eq!(next_tap(&mut bots).await, 2);
    assert_eq!(next_tap(&mut bots).await, 4);
}

#[tokio::test]
async fn what_comes_twice_or_can_not_be_read_is_left_out() {
    let scene = Scene::new().await;
    let mut listener = scene.listener().await;
    scene.tail.put(0, 1, Vec::new());
    scene.tail.put(0, 2, b"\xff\xff nonsense".to_vec());
    let mut later = tap(0);
    // The byte after the length, which takes two bytes.
    later[2] = 9;
    scene.tail.put(0, 3, [later, tap(1)].concat());
    scene.tail.put(0, 4, taps(1..3));
    assert_eq!(next_tap(&mut listener).await, 1);
    let Told::Visit(visit) = next(&mut listener).await else {
        panic!("no visit");
    };
    assert_eq!(visit.visit.id.sequence, 2);
    assert_eq!(visit.id.to_string(), "0:4-0:1:0");
}

#[tokio::test]
async fn who_does_not_read_loses_visits_is_told_how_many_and_keeps_nobody_back() {
    let scene = Scene::new().await;
    let mut slow = scene.listener().await;
    let mut quick = scene.listener().await;
    let most = MOST_WAITING as u64;
    // First with space in both queues, then with none in one of them.
    for (ms, sequences) in [(1, 0..most), (2, most..most + 100)] {
        scene.tail.put(0, ms, taps(sequences.clone()));
        for sequence in sequences {
            assert_eq!(next_tap(&mut quick).await, sequence);
        }
    }
    assert_eq!(next(&mut slow).await, Told::Lost(100));
    for sequence in 0..most {
        assert_eq!(next_tap(&mut slow).await, sequence);
    }
    scene.tail.put(0, 3, tap(most + 100));
    assert_eq!(next_tap(&mut slow).await, most + 100);
}

#[tokio::test]
async fn of_too_many_some_are_told_and_how_many_were_not() {
    let scene = Scene::with(
        1,
        LiveLimits {
            visits_per_s: 10,
            ..PLENTY
        },
    )
    .await;
    let mut listener = scene.listener().await;
    scene.tail.put(0, 1, taps(0..200));
    let (mut told, mut left_out) = (0, 0);
    while told + left_out < 200 {
        match next(&mut listener).await {
            Told::Visit(_) => told += 1,
            Told::LeftOut(visits) => left_out += visits,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told + left_out, 200);
    // The limiter also admits visits for the duration of the test.
    assert!((10..150).contains(&told), "{told}");
}

#[tokio::test]
async fn a_redis_that_is_away_is_told_and_nothing_is_missing_when_it_is_back() {
    let scene = Scene::new().await;
    let mut listener = scene.listener().await;
    scene.tail.put(0, 1, tap(0));
    assert_eq!(next_tap(&mut listener).await, 0);
    scene.tail.set_away(true);
    assert_eq!(next(&mut listener).await, Told::Interrupted);
    let mut newcomer = scene
        .feed
        .listen("key", LiveFilter::default(), None)
        .expect("a place for another listener");
    assert_eq!(next(&mut newcomer).await, Told::Interrupted);
    scene.tail.put(0, 2, tap(1));
    scene.tail.set_away(false);
    assert_eq!(next(&mut listener).await, Told::Resumed);
    assert_eq!(next_tap(&mut listener).await, 1);
    assert_eq!(next(&mut newcomer).await, Told::Resumed);
    scene.tail.put(0, 3, tap(2));
    for listener in [&mut listener, &mut newcomer] {
        assert_eq!(next_tap(listener).await, 2);
    }
}

#[tokio::test]
async fn a_stream_that_was_lost_is_read_from_its_new_beginning() {
    let scene = Scene::new().await;
    let mut listener = scene.listener().await;
    scene.tail.put(0, 50, tap(0));
    assert_eq!(next_tap(&mut listener).await, 0);
    scene.tail.set_away(true);
    assert_eq!(next(&mut listener).await, Told::Interrupted);
    scene.tail.forget();
    scene.tail.set_away(false);
    assert_eq!(next(&mut listener).await, Told::Resumed);
    // The clock of another server is behind.
    scene.tail.put(0, 40, tap(1));
    assert_eq!(next_tap(&mut listener).await, 1);
}

#[tokio::test]
async fn who_comes_again_goes_on_behind_what_they_were_told_last() {
    let scene = Scene::new().await;
    scene.tail.put(0, 1, taps(0..2));
    scene.tail.put(0, 2, taps(2..4));
    let everything = LiveFilter::default();
    let listen = async |after: &str| {
        let after = LiveId::parse(after).expect("an id");
        let listener = scene.feed.listen("key", everything.clone(), Some(after));
        let mut listener = listener.expect("a place for another listener");
        let told = next(&mut listener).await;
        assert!(matches!(told, Told::Begun(_)), "{told:?}");
        listener
    };
    let mut listener = listen("0:1-0:0:1").await;
    for sequence in 1..4 {
        assert_eq!(next_tap(&mut listener).await, sequence);
    }
    scene.tail.put(0, 3, tap(4));
    assert_eq!(next_tap(&mut listener).await, 4);

    // When the entry is gone, further visits of it may be missing.
    scene.tail.trim(2);
    let mut listener = listen("0:1-0:1:0").await;
    assert_eq!(next(&mut listener).await, Told::Gap);
    for sequence in 2..5 {
        assert_eq!(next_tap(&mut listener).await, sequence);
    }
    drop(listener);

    // Unless it was the last entry, and its visits were all delivered.
    scene.tail.trim(4);
    let mut listener = listen("0:3-0:0:0").await;
    let mut cut = listen("0:3-0:0:1").await;
    assert_eq!(next(&mut cut).await, Told::Gap);
    scene.tail.put(0, 5, tap(5));
    for listener in [&mut listener, &mut cut] {
        assert_eq!(next_tap(listener).await, 5);
    }
    drop((listener, cut));

    // A listener without a visit yet resumes from its start.
    let listener = scene.feed.listen("key", everything.clone(), None);
    let mut listener = listener.expect("a place for another listener");
    let Told::Begun(at) = next(&mut listener).await else {
        panic!("not begun");
    };
    drop(listener);
    let mut listener = listen(&at.to_string()).await;
    scene.tail.put(0, 6, tap(6));
    assert_eq!(next_tap(&mut listener).await, 6);
    drop(listener);
    let mut listener = listen(&at.to_string()).await;
    assert_eq!(next_tap(&mut listener).await, 6);
    drop(listener);

    // No listener gets more visits than its queue holds.
    scene.tail.put(0, 7, taps(7..2000));
    let mut listener = listen("0:6-0:0:0").await;
    assert_eq!(next(&mut listener).await, Told::Gap);
    assert_eq!(next_tap(&mut listener).await, 7);
}

#[tokio::test]
async fn of_several_streams_all_are_told_and_resumed() {
    let scene = Scene::with(2, PLENTY).await;
    scene.tail.put(0, 4000, tap(100));
    let mut listener = scene.listener().await;
    scene.tail.put(0, 5000, tap(0));
    assert_eq!(next_tap(&mut listener).await, 0);
    scene.tail.put(1, 5100, tap(1));
    assert_eq!(next_tap(&mut listener).await, 1);
    scene.tail.put(0, 5200, tap(2));
    assert_eq!(next_tap(&mut listener).await, 2);
    // Visits of the other stream may be duplicated, but none is missing.
    let after = Some("1:5100-0:0:0");
    let mut again = scene.listener_with(LiveFilter::default(), after).await;
    assert_eq!(next_tap(&mut again).await, 0);
    assert_eq!(next_tap(&mut again).await, 2);
    drop(again);
    // Unless that is unknown, since the entries of the second before are gone.
    scene.tail.trim(4500);
    let mut again = scene.listener_with(LiveFilter::default(), after).await;
    assert_eq!(next(&mut again).await, Told::Gap);
    drop(again);
    // A stream that does not exist any more.
    let after = Some("2:5100-0:0:0");
    let mut again = scene.listener_with(LiveFilter::default(), after).await;
    assert_eq!(next(&mut again).await, Told::Gap);
}

#[tokio::test]
async fn a_day_whose_key_nobody_has_made_has_no_visitors_and_gets_no_key() {
    let scene = Scene::new().await;
    let tomorrow = day_of("2026-06-02T12:00:00Z".parse().expect("a moment"));
    let destroyed = scene.kept.store.destroy_day_keys(tomorrow).await;
    assert_eq!(destroyed.expect("a working store"), 1);
    let mut listener = scene.listener().await;
    scene.tail.put(0, 1, tap(0));
    let Told::Visit(visit) = next(&mut listener).await else {
        panic!("no visit");
    };
    assert_eq!(visit.visit.visitor, None);
    let destroyed = scene.kept.store.destroy_day_keys(tomorrow).await;
    assert_eq!(destroyed.expect("a working store"), 0);
}

#[tokio::test]
async fn all_listening_ends_when_the_service_stops() {
    let scene = Scene::new().await;
    let mut listener = scene.listener().await;
    scene.stop.cancel();
    assert_eq!(listener.next().await, None);
}
