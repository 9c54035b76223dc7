mod changes;
mod keys;
mod listing;

use std::num::NonZeroU64;

use jiff::{SignedDuration, Timestamp};
use vocabulary::Code;

use super::*;
use crate::domain::codes::numbering::CodeKey;
use crate::domain::link::tests::{link, moment};
use crate::domain::link::{Edit, Link, Second};
use crate::domain::ports::{CodeStore, LinkStore, OutboxSpan, OutboxStore, Receipt};
use crate::testing::changed_by;

/// A store in a directory of its own.
struct Fixture {
    store: SqliteStore,
    url: String,
    directory: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite:{}/made/links.db", directory.path().display());
        SqliteStore::migrate(&url, &KEY)
            .await
            .expect("an empty place");
        Self {
            store: open(&url).await,
            url,
            directory,
        }
    }

    /// The codes that wait, in whatever order.
    async fn waiting(&self) -> Vec<String> {
        let waiting = self.store.waiting(Timestamp::MAX).await;
        codes(&waiting.expect("a working store").links)
    }
}

async fn open(url: &str) -> SqliteStore {
    SqliteStore::open(url, 2)
        .await
        .expect("a migrated database")
}

/// What codes are numbered by.
const KEY: CodeKey = CodeKey::new([4; 32]);

fn codes(links: &[Link]) -> Vec<String> {
    links.iter().map(|link| link.code.to_string()).collect()
}

fn code(text: &str) -> Code {
    text.parse().expect("a code")
}

const REVOKED_AT: &str = "2026-02-01T00:00:00Z";

/// Keeps a link; `None` when its code is taken.
async fn try_create(store: &SqliteStore, link: Link) -> Option<Receipt> {
    let created = store.create_links(vec![link]).await;
    let created = created.expect("a working store");
    created.taken.is_empty().then_some(created.receipt)
}

async fn create(store: &SqliteStore, link: Link) -> Receipt {
    try_create(store, link).await.expect("a free code")
}

async fn revoke(store: &SqliteStore, text: &str) -> Option<Edit> {
    let editor = Box::new(|link: Link| link.revoke(moment(REVOKED_AT)));
    let edited = store
        .edit_link(&code(text), &changed_by("key"), editor)
        .await;
    edited.expect("a working store").map(|edited| edited.edit)
}

#[tokio::test]
async fn a_link_is_found_as_it_was_kept_and_its_code_is_taken() {
    let fixture = Fixture::new().await;
    let full = Link {
        redirect_status: vocabulary::RedirectStatus::PermanentRedirect,
        forward_query: true,
        valid_since: Second::at(moment("2029-01-01T00:00:00Z")),
        valid_until: Second::at(moment("2030-01-01T00:00:00Z")),
        max_visits: NonZeroU64::new(5),
        paused_at: Some(moment("2026-01-01T00:00:00.5Z")),
        external_id: Some("order 7".to_owned()),
        note: Some("two\nlines".to_owned()),
        tags: vec!["a".to_owned(), "\"ü\"".to_owned()],
        ..link("Full")
    };
    for link in [link("abc"), full] {
        create(&fixture.store, link.clone()).await;
        let found = fixture.store.find_link(&link.code).await.expect("a store");
        assert_eq!(found, Some(link));
    }
    let other = Link {
        created_by: "somebody else".to_owned(),
        ..link("abc")
    };
    assert_eq!(try_create(&fixture.store, other).await, None);
    let found = fixture
        .store
        .find_link(&code("abc"))
        .await
        .expect("a store");
    assert_eq!(found, Some(link("abc")));
    // Codes differ by case.
    assert_eq!(
        fixture
            .store
            .find_link(&code("ABC"))
            .await
            .expect("a store"),
        None
    );
    create(&fixture.store, link("ABC")).await;
}

#[tokio::test]
async fn many_are_kept_together_but_those_whose_codes_are_taken() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    create(store, link("taken")).await;
    // Codes of sixteen characters have no number.
    create(store, link("ABCDEFGHIJKLMNOP")).await;
    let mut links: Vec<Link> = (0..700).map(|n| link(&format!("c{n}"))).collect();
    links[3] = link("taken");
    links[300] = link("ABCDEFGHIJKLMNOP");
    links[301] = link("ABCDEFGHIJKLMNOQ");
    // Twice in one go: the first gets it.
    links[650] = link("c4");
    let created = store.create_links(links.clone()).await.expect("a store");
    assert_eq!(created.taken, [3, 300, 650]);
    for (place, link) in links.iter().enumerate() {
        let found = store.find_link(&link.code).await.expect("a store");
        assert_eq!(found.as_ref(), Some(link), "{place}");
    }
    let mut waiting = fixture.waiting().await;
    waiting.sort();
    let mut expected: Vec<String> = codes(&links);
    expected.sort();
    expected.dedup();
    assert_eq!(waiting, expected);
    store
        .settle(vec![created.receipt], moment(REVOKED_AT))
        .await
        .expect("a store");
    let mut waiting = fixture.waiting().await;
    waiting.sort();
    assert_eq!(waiting, ["ABCDEFGHIJKLMNOP", "taken"]);
    let usage = store.code_usage(0).await.expect("a store");
    let total: u64 = usage.iter().map(|usage| usage.links).sum();
    assert_eq!(total, expected.len() as u64);
}

#[tokio::test]
async fn codes_that_were_issued_together_share_a_row_of_the_outbox() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let issued: Vec<Link> = (0..1000)
        .filter_map(|count| {
            let check = vocabulary::Check::Luhn;
            store
                .numbering
                .issued(vocabulary::Alphabet::Base62, &check, 7, count)
        })
        .map(|code| link(code.as_str()))
        .collect();
    let created = store.create_links(issued.clone()).await.expect("a store");
    assert_eq!(created.receipt.0.len(), 1);
    // A change has a row of its own, and comes first.
    revoke(store, issued[500].code.as_str()).await;
    let waiting = store.waiting(Timestamp::MAX).await.expect("a store");
    assert_eq!(waiting.receipt.0.len(), 2);
    assert_eq!(waiting.links.len(), 1001);
    assert_eq!(waiting.links[0].revision, 2);
    store
        .settle(vec![waiting.receipt], moment(REVOKED_AT))
        .await
        .expect("a store");
    assert!(fixture.waiting().await.is_empty());
}

#[tokio::test]
async fn a_counter_is_leased_once_and_never_goes_back() {
    let fixture = Fixture::new().await;
    let store = Arc::new(fixture.store);
    let leases: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.lease("a", 0, 10).await })
        })
        .collect();
    let mut starts = Vec::new();
    for lease in leases {
        starts.push(lease.await.expect("no panic").expect("a store"));
    }
    starts.sort_unstable();
    let expected: Vec<u64> = (0..20).map(|number| number * 10).collect();
    assert_eq!(starts, expected);
    for (floor, count, expected) in [(500, 7, 500), (100, 1, 507), (0, 0, 508)] {
        let start = store.lease("a", floor, count).await;
        assert_eq!(start.expect("a store"), expected);
    }
    assert_eq!(store.lease("b", 0, 1).await.expect("a store"), 0);
}

#[tokio::test]
async fn the_pool_gives_each_code_once() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    create(store, link("aab")).await;
    let ahead = ["aaa", "aab", "aac", "aaa", "aad"].map(code);
    assert_eq!(store.fill_pool(ahead.to_vec()).await.expect("room"), 3);
    let first = store.take_pooled(3, 2).await.expect("a store");
    let second = store.take_pooled(3, 2).await.expect("a store");
    assert_eq!((first.len(), second.len()), (2, 1));
    assert!(store.take_pooled(4, 2).await.expect("a store").is_empty());
    store.void_pooled(second.clone()).await.expect("a store");
    let counts = store.count_pooled(3).await.expect("a store");
    assert_eq!((counts.unused, counts.used, counts.void), (0, 2, 1));
    // What was handed out does not come back.
    assert_eq!(store.fill_pool(ahead.to_vec()).await.expect("room"), 0);
}

/// A database of the first schema, as the first version made it.
#[tokio::test]
async fn links_that_were_kept_without_numbers_are_adopted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}/old.db", directory.path().display());
    let options = super::options(&url).expect("a URL").create_if_missing(true);
    let mut connection = options.connect().await.expect("a place");
    let first = sqlx::migrate::Migrator {
        migrations: sqlx::migrate!("../migrations/sqlite").migrations[..1]
            .to_vec()
            .into(),
        ..sqlx::migrate!("../migrations/sqlite")
    };
    first.run(&mut connection).await.expect("an empty file");
    for number in 0..1500 {
        sqlx::query(
            "INSERT INTO links (code, target, redirect_status, revision, expires_at, revoked_at, \
             created_at, updated_at, created_by) \
             VALUES (?1, 'https://example.com/a', 302, 1, NULL, NULL, ?2, ?2, 'key')",
        )
        .bind(format!("old{number}"))
        .bind(link("a").created_at.as_millisecond())
        .execute(&mut connection)
        .await
        .expect("room");
    }
    connection.close().await.expect("a good file");
    let applied = SqliteStore::migrate(&url, &KEY).await;
    assert!(applied.expect("a good file") > 0);
    let store = open(&url).await;
    for number in 0..1500 {
        let link = link(&format!("old{number}"));
        let found = store.find_link(&link.code).await.expect("a store");
        assert_eq!(found, Some(link));
    }
    // Redis is told of all of them.
    let count = store.count_waiting(Timestamp::MAX, 2000).await;
    assert!(count.expect("a store") > 0);
}

#[tokio::test]
async fn concurrent_creations_of_one_code_have_one_winner() {
    let fixture = Fixture::new().await;
    let store = Arc::new(fixture.store);
    let attempts: Vec<_> = (0..50)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { try_create(&store, link("abc")).await })
        })
        .collect();
    let mut winners = 0;
    for attempt in attempts {
        let won = attempt.await.expect("no panic");
        winners += usize::from(won.is_some());
    }
    assert_eq!(winners, 1);
}

#[tokio::test]
async fn edits_are_kept_and_revocation_is_final() {
    let fixture = Fixture::new().await;
    assert_eq!(revoke(&fixture.store, "abc").await, None);
    create(&fixture.store, link("abc")).await;
    let Some(Edit::Changed(revoked)) = revoke(&fixture.store, "abc").await else {
        panic!("a live link can be revoked");
    };
    let found = fixture
        .store
        .find_link(&code("abc"))
        .await
        .expect("a store");
    assert_eq!(found.as_ref(), Some(&revoked));
    assert_eq!(revoked.revision, 2);
    assert_eq!(
        revoke(&fixture.store, "abc").await,
        Some(Edit::Unchanged(revoked))
    );
    // A revoked link's code stays taken.
    assert_eq!(try_create(&fixture.store, link("abc")).await, None);
}

#[tokio::test]
async fn what_is_published_leaves_the_outbox_unless_it_has_changed_meanwhile() {
    let fixture = Fixture::new().await;
    let now = moment("2026-03-01T00:00:00Z");
    let id = |text| {
        let number = fixture.store.numbering.number(&code(text));
        number.expect("a short code").get()
    };
    let published = |text, revision| {
        Receipt(vec![OutboxSpan {
            first: id(text),
            last: id(text),
            revision,
        }])
    };
    for text in ["a", "b", "c"] {
        let receipt = create(&fixture.store, link(text)).await;
        assert_eq!(receipt, published(text, 1));
    }
    revoke(&fixture.store, "b").await;
    revoke(&fixture.store, "c").await;
    // Changes come first.
    assert_eq!(fixture.waiting().await, ["b", "c", "a"]);
    let count = fixture.store.count_waiting(Timestamp::MAX, 2).await;
    assert_eq!(count.expect("a store"), 2);
    let before_all = link("a").created_at - SignedDuration::from_millis(1);
    let count = fixture.store.count_waiting(before_all, 100).await;
    assert_eq!(count.expect("a store"), 0);

    // The first revisions are confirmed late: `b` and `c` have changed since.
    let late = vec![published("a", 1), published("b", 1), published("c", 1)];
    fixture.store.settle(late, now).await.expect("a store");
    assert_eq!(fixture.waiting().await, ["b", "c"]);

    let second = vec![published("b", 2)];
    fixture.store.settle(second, now).await.expect("a store");
    assert_eq!(fixture.waiting().await, ["c"]);

    // Another Redis: what was applied is applied again, and forgotten only when it is old.
    fixture.store.forget_applied(now).await.expect("a store");
    assert_eq!(fixture.store.reopen_applied().await.expect("a store"), 1);
    assert_eq!(fixture.waiting().await, ["b", "c"]);
    let second = vec![published("b", 2), published("c", 2)];
    fixture.store.settle(second, now).await.expect("a store");
    let later = now + SignedDuration::from_secs(1);
    fixture.store.forget_applied(later).await.expect("a store");
    assert_eq!(fixture.store.reopen_applied().await.expect("a store"), 0);

    // Asked again for what was done long ago: told again.
    revoke(&fixture.store, "b").await;
    assert_eq!(fixture.waiting().await, ["b"]);
}

#[tokio::test]
async fn the_outbox_outlives_the_process() {
    let fixture = Fixture::new().await;
    create(&fixture.store, link("abc")).await;
    // As after a kill: the database's files at this moment, opened elsewhere.
    let copy = fixture.directory.path().join("copy");
    std::fs::create_dir(&copy).expect("room");
    let made = fixture.directory.path().join("made");
    for entry in std::fs::read_dir(made).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), copy.join(entry.file_name())).expect("room");
    }
    let replayed = open(&format!("sqlite:{}/links.db", copy.display())).await;
    let waiting = replayed.waiting(Timestamp::MAX).await.expect("a store");
    assert_eq!(waiting.links, [link("abc")]);
}

#[tokio::test]
async fn closing_writes_what_was_asked_for_and_then_nothing_more() {
    let fixture = Fixture::new().await;
    create(&fixture.store, link("abc")).await;
    fixture.store.close().await;
    let refused = fixture.store.create_links(vec![link("def")]).await;
    assert!(refused.is_err());
    let found = open(&fixture.url).await.find_link(&code("abc")).await;
    assert!(found.expect("a store").is_some());
}

#[tokio::test]
async fn only_a_file_with_the_right_schema_is_opened() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}/a.db", directory.path().display());
    let refused = |opened: Result<SqliteStore, OpenError>| match opened {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let message = refused(SqliteStore::open(&url, 1).await);
    assert!(message.contains("run `shortlink migrate`"), "{message}");
    // An empty file is an empty database.
    std::fs::write(directory.path().join("a.db"), "").expect("room");
    let message = refused(SqliteStore::open(&url, 1).await);
    assert!(message.contains("run `shortlink migrate`"), "{message}");
    let applied = SqliteStore::migrate(&url, &KEY).await;
    assert_ne!(applied.expect("an empty file"), 0);
    assert_eq!(
        SqliteStore::migrate(&url, &KEY)
            .await
            .expect("nothing to do"),
        0
    );
    let store = SqliteStore::open(&url, 1).await.expect("a good file");
    store.close().await;
}
