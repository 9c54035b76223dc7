use jiff::SignedDuration;
use sqlx::{ConnectOptions, Connection};

use super::*;
use crate::domain::codes::numbering::CodeKey;
use crate::domain::link::tests::{link, moment};
use crate::domain::link::{Link, Second};
use crate::domain::ports::{CodeStore, LinkStore, MAX_TOGETHER, OutboxStore};

const NOW: &str = "2026-06-01T00:00:00Z";

struct Fixture {
    store: SqliteStore,
    url: String,
    _directory: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite:{}/links.db", directory.path().display());
        let migrated = SqliteStore::migrate(&url, &CodeKey::new([4; 32])).await;
        migrated.expect("an empty place");
        Self {
            store: SqliteStore::open(&url, 2).await.expect("a database"),
            url,
            _directory: directory,
        }
    }

    /// Keeps a link, of which Redis was told.
    async fn keep(&self, link: &Link) {
        let created = self.store.create_links(vec![link.clone()]).await;
        let created = created.expect("a working store");
        assert_eq!(created.taken, Vec::<usize>::new());
        let receipts = vec![created.receipt];
        let settled = self.store.settle(receipts, link.updated_at).await;
        settled.expect("a working store");
    }

    async fn execute(&self, statement: &'static str) {
        let options = super::super::options(&self.url).expect("a good URL");
        let mut connection = options.connect().await.expect("a database");
        let done = sqlx::query(statement).execute(&mut connection).await;
        done.expect("a good statement");
        connection.close().await.expect("an open connection");
    }

    /// All records, read so many at a time, by code.
    async fn walk(&self, limit: u32) -> Vec<(String, String)> {
        let (mut place, mut all) = (Some(Place::START), Vec::new());
        while let Some(after) = place {
            let page = self.store.records_after(after, limit, moment(NOW)).await;
            let page = page.expect("a working store");
            all.extend(texts(&page.records));
            place = page.next;
        }
        all.sort_unstable();
        all
    }
}

fn texts(records: &Records) -> Vec<(String, String)> {
    let texts = records.iter().map(|wanted| {
        let text = std::str::from_utf8(wanted.text).expect("a readable record");
        (wanted.code.to_string(), text.to_owned())
    });
    texts.collect()
}

fn expiring(code: &str, at: &str) -> Link {
    Link {
        valid_until: Second::at(moment(at)),
        ..link(code)
    }
}

fn revoked(code: &str, at: &str) -> Link {
    Link {
        revoked_at: Some(moment(at)),
        updated_at: moment(at),
        revision: 2,
        ..link(code)
    }
}

fn code(text: &str) -> Code {
    text.parse().expect("a code")
}

#[tokio::test]
async fn every_link_is_walked_past_once_whatever_it_is() {
    let fixture = Fixture::new().await;
    // The longest code has no number and lies before all others.
    for kept in [
        link("abc"),
        revoked("abd", NOW),
        expiring("abe", "2026-05-01T00:00:00Z"),
        expiring("abf", "2026-07-01T00:00:00Z"),
        link("abcdefghijklmnop"),
        link("abg"),
    ] {
        fixture.keep(&kept).await;
    }
    let expected = |abg: &str| {
        let text = |code: &str, text: &str| (code.to_owned(), text.to_owned());
        vec![
            text("abc", "1 302 1 0 https://example.com/a"),
            text("abcdefghijklmnop", "1 302 1 0 https://example.com/a"),
            text("abd", "1 410 2"),
            text("abe", "1 410 1"),
            text("abf", "1 302 1 1782864000 https://example.com/a"),
            text("abg", abg),
        ]
    };
    for limit in [1, 2, 5, 6, 7, 100] {
        let all = fixture.walk(limit).await;
        assert_eq!(all, expected("1 302 1 0 https://example.com/a"), "{limit}");
    }
    // One whose record is not plain is read as a whole.
    fixture
        .execute("UPDATE links SET max_visits = 5 WHERE code = 'abg'")
        .await;
    for limit in [1, 2, 100] {
        let all = fixture.walk(limit).await;
        let abg = "1 302 1 0 https://example.com/a";
        assert_eq!(all.len(), 6);
        assert_eq!(all[5].0, expected(abg)[5].0);
    }
    // What nobody here has stored is no link left out in silence.
    fixture
        .execute("UPDATE links SET target = 'a' || char(10) || 'b' WHERE code = 'abc'")
        .await;
    let page = fixture.store.records_after(Place::START, 10, moment(NOW));
    page.await.expect_err("an error");
}

#[tokio::test]
async fn records_are_found_by_code_and_said_to_wait_until_redis_was_told() {
    let fixture = Fixture::new().await;
    let links: Vec<Link> = (0..3)
        .map(|count| {
            let numbering = fixture.store.numbering();
            let (alphabet, check) = (vocabulary::Alphabet::Base62, vocabulary::Check::Luhn);
            let issued = numbering.issued(alphabet, &check, 7, count);
            Link {
                code: issued.expect("a code"),
                ..link("abc")
            }
        })
        .collect();
    let created = fixture.store.create_links(links.clone()).await;
    let receipt = created.expect("a working store").receipt;
    fixture.keep(&link("abcdefghijklmnop")).await;
    let codes: Vec<Code> = [links[1].code, code("nothere"), code("abcdefghijklmnop")].into();
    let kept = fixture.store.records_of(&codes, moment(NOW)).await;
    let kept = kept.expect("a working store");
    let place = |code: &Code| {
        let place = kept.records.iter().position(|wanted| wanted.code == *code);
        place.expect("a record")
    };
    assert_eq!(kept.records.len(), 2);
    assert!(kept.waiting[place(&codes[0])]);
    assert!(!kept.waiting[place(&codes[2])]);
    let settled = fixture.store.settle(vec![receipt], moment(NOW)).await;
    settled.expect("a working store");
    let kept = fixture.store.records_of(&codes, moment(NOW)).await;
    assert_eq!(kept.expect("a working store").waiting, [false, false]);
    let missing = fixture.store.codes_without_link(&codes).await;
    assert_eq!(missing.expect("a working store"), [1]);
    let unknown = [code("abcdefghijklmnoq")];
    let missing = fixture.store.codes_without_link(&unknown).await;
    assert_eq!(missing.expect("a working store"), [0]);
}

#[tokio::test]
async fn what_has_expired_is_walked_past_in_that_order() {
    let fixture = Fixture::new().await;
    for kept in [
        expiring("abc", "2026-05-03T00:00:00Z"),
        expiring("abd", "2026-05-01T00:00:00Z"),
        expiring("abe", "2026-05-01T00:00:00Z"),
        expiring("abf", "2026-06-01T00:00:01Z"),
        link("abg"),
    ] {
        fixture.keep(&kept).await;
    }
    let mut after = ExpiryPlace {
        second: 0,
        place: Place::START,
    };
    let mut seen = Vec::new();
    loop {
        let page = fixture.store.records_expired(after, moment(NOW), 1).await;
        let page = page.expect("a working store");
        seen.extend(texts(&page.records));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2], ("abc".to_owned(), "1 410 1".to_owned()));
}

#[tokio::test]
async fn a_dead_link_is_deleted_with_all_that_is_its_own_and_its_code_is_taken_until_freed() {
    let fixture = Fixture::new().await;
    let dead = revoked("abcdefghijklmnop", "2026-01-02T00:00:00Z");
    fixture.keep(&dead).await;
    fixture.keep(&expiring("abd", "2026-01-02T00:00:00Z")).await;
    fixture.keep(&revoked("abe", "2026-05-31T00:00:00Z")).await;
    fixture.keep(&link("abf")).await;
    fixture
        .execute("DELETE FROM outbox WHERE revision > 1")
        .await;
    fixture
        .execute("UPDATE links SET tags = '[\"a\",\"b\"]' WHERE code = 'abcdefghijklmnop'")
        .await;
    fixture
        .execute("INSERT INTO link_tags SELECT 'a', created_at, id FROM links WHERE code = 'abcdefghijklmnop'")
        .await;
    let (store, now) = (&fixture.store, moment(NOW));
    let before = now - SignedDuration::from_hours(24 * 30);
    let found = store.records_dead_since(before, 10, now).await;
    let mut found = texts(&found.expect("a working store"));
    found.sort_unstable();
    assert_eq!(
        found.iter().map(|(code, _)| &**code).collect::<Vec<_>>(),
        ["abcdefghijklmnop", "abd"]
    );
    // Another revision is another link than was looked at.
    let deleted = store.delete_links(vec![(dead.code, 1)], now).await;
    assert_eq!(deleted.expect("a working store"), 0);
    let deleted = store.delete_links(vec![(dead.code, 2)], now).await;
    assert_eq!(deleted.expect("a working store"), 1);
    assert_eq!(store.find_link(&dead.code).await.expect("a store"), None);
    let tags: i64 = sqlx::query_scalar("SELECT count(*) FROM link_tags")
        .fetch_one(&store.readers)
        .await
        .expect("a table");
    assert_eq!(tags, 0);
    let usage = store.code_usage(0).await.expect("a working store");
    assert_eq!(usage.iter().map(|it| it.links).sum::<u64>(), 3);
    let again = Link {
        revoked_at: None,
        revision: 1,
        ..dead.clone()
    };
    let created = store.create_links(vec![again.clone()]).await;
    assert_eq!(created.expect("a working store").taken, [0]);
    let known = store.codes_without_link(&[dead.code]).await;
    assert_eq!(known.expect("a working store"), Vec::<usize>::new());
    let early = store.deleted_links(before, 10).await;
    assert_eq!(early.expect("a working store"), []);
    let gone = store.deleted_links(now, 10).await;
    assert_eq!(gone.expect("a working store"), [(dead.code, 2)]);
    store.free_codes(vec![dead.code]).await.expect("a store");
    fixture.keep(&again).await;
}

#[tokio::test]
async fn one_holder_has_a_task_until_its_claim_ends() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let now = moment(NOW);
    let later = |seconds| now + SignedDuration::from_secs(seconds);
    let claim = async |holder: &str, at: i64| {
        let claimed = store.claim("task", holder, later(at), later(at + 10));
        claimed.await.expect("a working store")
    };
    assert!(claim("one", 0).await);
    assert!(!claim("two", 5).await);
    assert!(claim("one", 9).await);
    assert!(!claim("two", 18).await);
    assert!(claim("two", 19).await);
    store.release("task", "one").await.expect("a working store");
    assert!(!claim("one", 20).await);
    store.release("task", "two").await.expect("a working store");
    assert!(claim("one", 20).await);

    assert_eq!(store.note("task").await.expect("a store"), None);
    let text = Some("text".to_owned());
    store
        .take_note("task", text.clone())
        .await
        .expect("a store");
    assert_eq!(store.note("task").await.expect("a store"), text);
    store.take_note("task", None).await.expect("a store");
    assert_eq!(store.note("task").await.expect("a store"), None);
}

#[tokio::test]
async fn statements_for_upkeep_read_no_more_than_they_need() {
    let fixture = Fixture::new().await;
    for (statement, index) in [
        (WALK, "SEARCH links USING INTEGER PRIMARY KEY (rowid>?)"),
        (WALK_BY_EXPIRY, "SEARCH links USING INDEX links_by_end"),
        (
            REVOKED_SINCE,
            "SEARCH links USING INDEX links_by_revocation (revoked_at>?",
        ),
        (EXPIRED_SINCE, "SEARCH links USING INDEX links_by_end"),
        (FIND, "SEARCH links USING INTEGER PRIMARY KEY (rowid=?)"),
    ] {
        let explained = format!("EXPLAIN QUERY PLAN {statement}");
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(explained))
            .fetch_all(&fixture.store.readers)
            .await
            .expect("a plan");
        let plan: Vec<String> = plan.into_iter().map(|(.., detail)| detail).collect();
        assert!(plan.iter().any(|line| line.contains(index)), "{plan:?}");
        assert!(
            !plan.iter().any(|line| line.contains("TEMP B-TREE")),
            "{plan:?}"
        );
        assert!(
            !plan.iter().any(|line| line.starts_with("SCAN links")),
            "{plan:?}"
        );
        assert!(
            !plan.iter().any(|line| line.starts_with("SCAN outbox")),
            "{plan:?}"
        );
    }
    assert!(LONGEST_SPAN >= MAX_TOGETHER as i64);
}
