mod keys;

use jiff::{SignedDuration, Timestamp};
use vocabulary::Code;

use super::*;
use crate::domain::link::tests::{link, moment};
use crate::domain::link::{Edit, Expiry, Link, State};
use crate::domain::ports::{LinkStore, Listing, OutboxStore, Position, Published};

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
        SqliteStore::migrate(&url).await.expect("an empty place");
        Self {
            store: open(&url).await,
            url,
            directory,
        }
    }

    /// The codes that wait, in whatever order.
    async fn waiting(&self) -> Vec<String> {
        let waiting = self.store.waiting(Timestamp::MAX, 1000).await;
        codes(&waiting.expect("a working store"))
    }
}

async fn open(url: &str) -> SqliteStore {
    SqliteStore::open(url, 2)
        .await
        .expect("a migrated database")
}

fn codes(links: &[Link]) -> Vec<String> {
    links.iter().map(|link| link.code.to_string()).collect()
}

fn code(text: &str) -> Code {
    text.parse().expect("a code")
}

const REVOKED_AT: &str = "2026-02-01T00:00:00Z";

async fn revoke(store: &SqliteStore, text: &str) -> Option<Edit> {
    let editor = Box::new(|link: Link| link.revoke(moment(REVOKED_AT)));
    let edit = store.edit_link(&code(text), editor).await;
    edit.expect("a working store")
}

#[tokio::test]
async fn a_link_is_found_as_it_was_kept_and_its_code_is_taken() {
    let fixture = Fixture::new().await;
    let full = Link {
        redirect_status: vocabulary::RedirectStatus::PermanentRedirect,
        expires_at: Expiry::at(moment("2030-01-01T00:00:00Z")),
        ..link("Full")
    };
    for link in [link("abc"), full] {
        assert!(fixture.store.create_link(&link).await.expect("room"));
        let found = fixture.store.find_link(&link.code).await.expect("a store");
        assert_eq!(found, Some(link));
    }
    let other = Link {
        created_by: "somebody else".to_owned(),
        ..link("abc")
    };
    assert!(!fixture.store.create_link(&other).await.expect("a store"));
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
    assert!(
        fixture
            .store
            .create_link(&link("ABC"))
            .await
            .expect("a store")
    );
}

#[tokio::test]
async fn concurrent_creations_of_one_code_have_one_winner() {
    let fixture = Fixture::new().await;
    let store = Arc::new(fixture.store);
    let attempts: Vec<_> = (0..50)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.create_link(&link("abc")).await })
        })
        .collect();
    let mut winners = 0;
    for attempt in attempts {
        let won = attempt.await.expect("no panic").expect("a working store");
        winners += usize::from(won);
    }
    assert_eq!(winners, 1);
}

#[tokio::test]
async fn edits_are_kept_and_revocation_is_final() {
    let fixture = Fixture::new().await;
    assert_eq!(revoke(&fixture.store, "abc").await, None);
    fixture.store.create_link(&link("abc")).await.expect("room");
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
    assert!(
        !fixture
            .store
            .create_link(&link("abc"))
            .await
            .expect("a store")
    );
}

#[tokio::test]
async fn listings_go_from_the_latest_to_the_first_without_gaps() {
    let fixture = Fixture::new().await;
    let start = moment("2026-01-01T00:00:00Z");
    let now = moment("2026-06-01T00:00:00Z");
    // Three links a millisecond: the code decides among them.
    let mut expected = Vec::new();
    for number in 0..30i64 {
        let created_at = start + SignedDuration::from_millis(number / 3);
        let expires_at = (number % 5 == 0).then(|| Expiry::at(REVOKED_AT.parse().ok()?));
        let link = Link {
            created_at,
            updated_at: created_at,
            expires_at: expires_at.flatten(),
            ..link(&format!("c{number:02}"))
        };
        fixture.store.create_link(&link).await.expect("room");
        if number % 7 == 0 {
            revoke(&fixture.store, link.code.as_str()).await;
        }
        expected.push((number, link.code.to_string()));
    }
    expected.reverse();
    for state in [
        None,
        Some(State::Live),
        Some(State::Expired),
        Some(State::Revoked),
    ] {
        let expected = expected.iter().filter(|(number, _)| match state {
            None => true,
            Some(State::Revoked) => number % 7 == 0,
            Some(State::Expired) => number % 7 != 0 && number % 5 == 0,
            Some(State::Live) => number % 7 != 0 && number % 5 != 0,
        });
        let expected: Vec<_> = expected.map(|(_, code)| code.clone()).collect();
        for limit in [1, 4, 1000] {
            let mut listing = Listing {
                state: state.map(|state| (state, now)),
                after: None,
                limit,
            };
            let mut listed = Vec::new();
            loop {
                let page = fixture.store.list_links(&listing).await.expect("a store");
                let Some(last) = page.last() else { break };
                listing.after = Some(Position {
                    created_at: last.created_at,
                    code: last.code,
                });
                assert!(page.len() <= limit as usize);
                listed.extend(codes(&page));
            }
            assert_eq!(listed, expected, "{state:?} by {limit}");
        }
    }
}

#[tokio::test]
async fn what_is_published_leaves_the_outbox_unless_it_has_changed_meanwhile() {
    let fixture = Fixture::new().await;
    let now = moment("2026-03-01T00:00:00Z");
    let published = |text, revision| Published {
        code: code(text),
        revision,
    };
    for text in ["a", "b", "c"] {
        fixture.store.create_link(&link(text)).await.expect("room");
    }
    revoke(&fixture.store, "b").await;
    revoke(&fixture.store, "c").await;
    // Changes come first.
    assert_eq!(fixture.waiting().await, ["b", "c", "a"]);
    let first_two = fixture.store.waiting(Timestamp::MAX, 2).await;
    assert_eq!(codes(&first_two.expect("a store")), ["b", "c"]);
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
    fixture.store.create_link(&link("abc")).await.expect("room");
    // As after a kill: the database's files at this moment, opened elsewhere.
    let copy = fixture.directory.path().join("copy");
    std::fs::create_dir(&copy).expect("room");
    let made = fixture.directory.path().join("made");
    for entry in std::fs::read_dir(made).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), copy.join(entry.file_name())).expect("room");
    }
    let replayed = open(&format!("sqlite:{}/links.db", copy.display())).await;
    let waiting = replayed.waiting(Timestamp::MAX, 10).await.expect("a store");
    assert_eq!(waiting, [link("abc")]);
}

#[tokio::test]
async fn closing_writes_what_was_asked_for_and_then_nothing_more() {
    let fixture = Fixture::new().await;
    fixture.store.create_link(&link("abc")).await.expect("room");
    fixture.store.close().await;
    assert!(fixture.store.create_link(&link("def")).await.is_err());
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
    assert_ne!(SqliteStore::migrate(&url).await.expect("an empty file"), 0);
    assert_eq!(SqliteStore::migrate(&url).await.expect("nothing to do"), 0);
    let store = SqliteStore::open(&url, 1).await.expect("a good file");
    store.close().await;
}
