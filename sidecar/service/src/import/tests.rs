use shortlink_core::link::Destination;
use shortlink_core::target::Target;
use shortlink_core::testing::{ManualClock, MemoryPublisher, link};
use shortlink_store::testing::{TemporaryStore, waiting};

use super::*;

struct Fixture {
    importer: Importer,
    publisher: Arc<MemoryPublisher>,
    _temporary: TemporaryStore,
}

impl Fixture {
    async fn new(options: ImportOptions) -> Self {
        let temporary = TemporaryStore::new().await;
        let publisher = Arc::new(MemoryPublisher::default());
        Self {
            importer: Importer {
                store: Arc::clone(&temporary.store),
                publisher: Arc::clone(&publisher) as _,
                clock: Arc::new(ManualClock::at("2026-05-01T00:00:00Z")),
                began: jiff::Timestamp::MIN,
                options,
            },
            publisher,
            _temporary: temporary,
        }
    }

    async fn import(&self, links: &[Link]) -> Vec<Outcome> {
        let imported = self.importer.import(links, &|_| {}).await;
        imported.expect("a working store").outcomes
    }

    async fn waiting(&self) -> usize {
        waiting(&self.importer.store).await.links.len()
    }

    async fn scan(&self) -> Vec<Link> {
        let mut all: Vec<Link> = Vec::new();
        loop {
            let after = all.last().map(|link| link.code);
            let links = self.importer.store.scan_links(after.as_ref(), 700).await;
            let links = links.expect("a working store");
            if links.is_empty() {
                return all;
            }
            all.extend(links);
        }
    }
}

const OPTIONS: ImportOptions = ImportOptions {
    dry_run: false,
    stop_at_conflict: false,
    full_speed: true,
};

fn to(code: &str, target: &str) -> Link {
    Link {
        destination: Destination::Target(Target::from_stored(target.to_owned())),
        ..link(code)
    }
}

use Outcome::{Conflict, Created as Made, Same};

#[tokio::test]
async fn links_are_imported_once_and_published() {
    let fixture = Fixture::new(OPTIONS).await;
    let mut links: Vec<Link> = (0..2500)
        .map(|number| link(&format!("x{number}")))
        .collect();
    // Codes without a number, and a revoked link.
    links.push(link("ABCDEFGHIJKLMNOP"));
    links.push(link("ABCDEFGHIJKLMNOQ"));
    links[5].revoked_at = Some(links[5].created_at);
    links[5].revision = 2;
    assert_eq!(fixture.import(&links).await, vec![Made; links.len()]);
    // A change waits until the sidecar, which knows the data set, has published it.
    assert_eq!(fixture.waiting().await, 1);
    assert_eq!(
        fixture.publisher.record("x5").as_deref(),
        Some("1 410 2"),
        "a revoked link"
    );
    assert!(fixture.publisher.record("ABCDEFGHIJKLMNOP").is_some());
    assert_eq!(fixture.import(&links).await, vec![Same; links.len()]);
    let mut scanned = fixture.scan().await;
    scanned.sort_by_key(|link| link.code);
    links.sort_by_key(|link| link.code);
    assert_eq!(scanned, links);
}

#[tokio::test]
async fn the_first_of_a_code_gets_it_and_nothing_is_changed() {
    for dry_run in [false, true] {
        let options = ImportOptions { dry_run, ..OPTIONS };
        let fixture = Fixture::new(options).await;
        let there = to("old", "https://example.com/there");
        let created = fixture.importer.store.create_links(vec![there.clone()]);
        created.await.expect("a working store");
        let links = [
            to("new", "https://example.com/1"),
            to("old", "https://example.com/1"),
            to("new", "https://example.com/2"),
            to("old", "https://example.com/there"),
            to("new", "https://example.com/1"),
            to("New", "https://example.com/3"),
        ];
        let expected = [Made, Conflict, Conflict, Same, Same, Made];
        assert_eq!(fixture.import(&links).await, expected);
        let count = fixture.scan().await.len();
        assert_eq!(count, if dry_run { 1 } else { 3 });
        let old = fixture.importer.store.find_link(&there.code).await;
        assert_eq!(old.expect("a store"), Some(there));
    }
}

#[tokio::test]
async fn a_conflict_can_be_the_end() {
    let fixture = Fixture::new(ImportOptions {
        stop_at_conflict: true,
        ..OPTIONS
    })
    .await;
    fixture.import(&[link("old")]).await;
    let links = [link("new"), to("old", "https://example.com/b")];
    let stopped = fixture.importer.import(&links, &|_| {}).await;
    assert!(
        matches!(stopped, Err(ImportError::Conflict { place: 1 })),
        "{stopped:?}"
    );
    assert_eq!(fixture.scan().await.len(), 1);
}

#[tokio::test]
async fn without_redis_links_wait_in_the_outbox() {
    let fixture = Fixture::new(OPTIONS).await;
    fixture.publisher.set_away(true);
    let links = [link("a"), link("b")];
    let imported = fixture.importer.import(&links, &|_| {}).await;
    assert_eq!(imported.expect("a working store").waiting, 2);
    assert_eq!(fixture.waiting().await, 2);
}
