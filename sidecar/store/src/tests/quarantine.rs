//! Entries of the stream of visits that are not visits.

use shortlink_core::ports::{Poison, QueuedId};
use shortlink_core::testing::moment;

use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    what_is_in_quarantine_is_counted_once_however_often_it_comes,
    what_is_in_quarantine_is_deleted_with_visits_of_its_time,
}

fn poison(entry: &str, place: usize) -> Poison {
    Poison {
        id: QueuedId {
            shard: 0,
            entry: entry.to_owned(),
        },
        place,
        reason: "the frame is cut".to_owned(),
        bytes: vec![0, 255],
    }
}

async fn what_is_in_quarantine_is_counted_once_however_often_it_comes(fixture: Fixture) {
    let store = &fixture.store;
    let count = || async { store.count_quarantine().await.expect("a working store") };
    assert_eq!(count().await, 0);
    let now = moment("2026-06-01T12:00:00Z");
    let found = vec![poison("1-0", 0), poison("1-0", 3), poison("2-0", 0)];
    for _ in 0..2 {
        let kept = store.quarantine(found.clone(), now).await;
        kept.expect("a working store");
        assert_eq!(count().await, 3);
    }
}

async fn what_is_in_quarantine_is_deleted_with_visits_of_its_time(fixture: Fixture) {
    let store = &fixture.store;
    for day in ["2026-06-01T12:00:00Z", "2026-06-02T12:00:00Z"] {
        let kept = store.quarantine(vec![poison(day, 0)], moment(day)).await;
        kept.expect("a working store");
    }
    for (before, left) in [("2026-06-01T12:00:00Z", 2), ("2026-06-02T12:00:00Z", 1)] {
        let forgotten = store.forget_visits(moment(before), 10).await;
        assert_eq!(forgotten.expect("a working store"), 0);
        let count = store.count_quarantine().await;
        assert_eq!(count.expect("a working store"), left);
    }
}
