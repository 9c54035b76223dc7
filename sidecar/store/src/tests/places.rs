//! The order of changes, and the data sets that they are applied to.

use shortlink_core::link::{Change, Link};
use shortlink_core::ports::{Adopted, DataSet, Settled};
use shortlink_core::testing::{changed_by, eventually, link, moment};
use sqlx::Connection;

use crate::testing::*;
use crate::{Scheme, in_every_store};

in_every_store! {
    a_data_set_is_adopted_once_and_again_when_it_may_lack_something,
    what_was_published_to_another_data_set_is_not_settled,
    the_log_forgets_old_changes_and_knows_it,
    changes_are_read_again_in_their_order_or_those_that_restrict,
}

const NOW: &str = "2026-06-01T00:00:00Z";

fn seen(incarnation: &str, standing: Option<(u64, u64)>) -> DataSet {
    DataSet {
        incarnation: incarnation.to_owned(),
        standing,
        is_whole: standing.is_some(),
        is_nearly_empty: false,
    }
}

async fn adopt(fixture: &Fixture, seen: DataSet) -> Adopted {
    fixture.store.adopt(seen).await.expect("a working store")
}

/// Stores links and changes each: their changes have the places from 1 on.
async fn changed(fixture: &Fixture, texts: &[&str]) {
    for text in texts {
        create(&fixture.store, link(text)).await;
        revoke(&fixture.store, text).await;
    }
}

async fn a_data_set_is_adopted_once_and_again_when_it_may_lack_something(fixture: Fixture) {
    let first = adopt(&fixture, seen("one", None)).await;
    assert!(first.is_new && !first.is_incomplete, "{first:?}");
    let generation = first.generation;
    changed(&fixture, &["a", "b", "c"]).await;
    let same = adopt(&fixture, seen("one", Some((generation, 3)))).await;
    assert!(!same.is_new && same.generation == generation, "{same:?}");
    // A replica that lags takes over.
    let other = adopt(&fixture, seen("two", Some((generation, 1)))).await;
    assert!(other.is_new && !other.is_incomplete, "{other:?}");
    assert_eq!(
        (other.generation, other.watermark, other.replay_to),
        (generation + 1, 1, 3)
    );
    // Another process sees what this one has marked.
    let same = adopt(&fixture, seen("two", Some((generation + 1, 1)))).await;
    assert!(!same.is_new && same.replay_to == 3, "{same:?}");
    // One server of several has another generation.
    let mixed = DataSet {
        is_whole: false,
        ..seen("two", Some((generation + 1, 3)))
    };
    assert!(adopt(&fixture, mixed).await.is_new);
    // The database was restored: the data set has changes that it does not know.
    let ahead = adopt(&fixture, seen("two", Some((generation + 2, 9)))).await;
    assert!(ahead.is_new && ahead.watermark == 3, "{ahead:?}");
    // One that was emptied has nothing that could be stale.
    let emptied = DataSet {
        is_nearly_empty: true,
        ..seen("two", None)
    };
    assert!(!adopt(&fixture, emptied).await.is_incomplete);
    // Nothing is known of a data set without a mark, nor of another database's.
    for standing in [None, Some((77, 3))] {
        let foreign = adopt(&fixture, seen("two", standing)).await;
        assert!(foreign.is_new && foreign.is_incomplete, "{foreign:?}");
        assert_eq!((foreign.watermark, foreign.replay_to), (0, 3));
        let incomplete = fixture.store.incomplete_generation().await;
        assert_eq!(incomplete.expect("a store"), Some(foreign.generation));
        let compared = fixture.store.note_compared(foreign.generation).await;
        compared.expect("a working store");
        let incomplete = fixture.store.incomplete_generation().await;
        assert_eq!(incomplete.expect("a store"), None);
    }
}

async fn what_was_published_to_another_data_set_is_not_settled(fixture: Fixture) {
    let store = &fixture.store;
    let generation = adopt(&fixture, seen("one", None)).await.generation;
    changed(&fixture, &["a"]).await;
    let waiting = waiting(store).await;
    adopt(&fixture, seen("two", Some((generation, 0)))).await;
    let mut settled = Settled {
        generation,
        receipts: vec![waiting.receipt],
        campaigns: Vec::new(),
    };
    let is_settled = store.settle(settled.clone(), moment(NOW)).await;
    assert!(!is_settled.expect("a working store"));
    assert_eq!(count_waiting(store, 9).await, 2);
    settled.generation += 1;
    let is_settled = store.settle(settled, moment(NOW)).await;
    assert!(is_settled.expect("a working store"));
    assert_eq!(count_waiting(store, 9).await, 0);
}

async fn the_log_forgets_old_changes_and_knows_it(fixture: Fixture) {
    let store = &fixture.store;
    let generation = adopt(&fixture, seen("one", None)).await.generation;
    changed(&fixture, &["a", "b"]).await;
    let waiting = waiting(store).await;
    let settled = Settled {
        generation,
        receipts: vec![waiting.receipt],
        campaigns: Vec::new(),
    };
    assert!(store.settle(settled, moment(NOW)).await.expect("a store"));
    changed(&fixture, &["c"]).await;
    store.forget_changes(moment(NOW)).await.expect("a store");
    assert_eq!(fixture.count("changes").await, 3);
    let later = moment("2026-06-01T00:00:01Z");
    store.forget_changes(later).await.expect("a store");
    // A pending change stays however old it is.
    assert_eq!(fixture.count("changes").await, 1);
    let behind = adopt(&fixture, seen("two", Some((generation, 1)))).await;
    assert!(behind.is_incomplete, "{behind:?}");
}

async fn changes_are_read_again_in_their_order_or_those_that_restrict(fixture: Fixture) {
    let store = &fixture.store;
    changed(&fixture, &["a", "b"]).await;
    create(store, link("c")).await;
    let note = |link: Link| {
        let change = Change {
            note: Some(Some("seen".to_owned())),
            ..Default::default()
        };
        link.change(&change, moment(NOW))
    };
    let by = changed_by("key");
    let edited = store.edit_link(&code("c"), &by, Box::new(note)).await;
    edited.expect("a working store").expect("a link");
    revoke(store, "c").await;
    let read = async |after, is_restricting| {
        let changes = store.replayed_changes(after, 9, is_restricting).await;
        let changes = changes.expect("a working store");
        let mut texts = codes(&changes.links);
        texts.sort_unstable();
        (texts.concat(), changes.last)
    };
    assert_eq!(read(0, false).await, ("abc".to_owned(), Some(4)));
    assert_eq!(read(2, false).await, ("c".to_owned(), Some(4)));
    assert_eq!(read(3, true).await, ("c".to_owned(), Some(4)));
    assert_eq!(read(4, false).await, (String::new(), None));
}

#[tokio::test]
async fn a_transaction_that_ends_late_holds_back_the_order() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let store = &fixture.store;
    let ended = async || store.places().await.expect("a working store").ended;
    changed(&fixture, &["a"]).await;
    // Known once no transaction is under way that was at the last look, in any database of the server.
    eventually("the order is known", async || ended().await == 1).await;
    let mut session = connect(secrecy::ExposeSecret::expose_secret(&fixture.options.url)).await;
    let mut late = session.begin().await.expect("a session");
    let insert =
        "INSERT INTO changes (link_id, revision, restricts, enqueued_at) VALUES (7, 2, true, 0)";
    sqlx::raw_sql(insert)
        .execute(&mut *late)
        .await
        .expect("a row");
    changed(&fixture, &["b"]).await;
    for _ in 0..3 {
        assert_eq!(ended().await, 1);
    }
    late.commit().await.expect("a session");
    eventually("the order goes on", async || ended().await == 3).await;
    assert_eq!(store.places().await.expect("a store").applied(), 0);
}
