//! Processes never draw the same code. No links are created from the codes here: the store would
//! detect a taken code and have another one drawn, which would hide the fault.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use rand::SeedableRng;
use rand::rngs::StdRng;
use shortlink_core::campaign::Campaign;
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::link::Link;
use shortlink_core::ports::{DataSet, Mark, PublishError, Published, Publisher, Session};
use shortlink_core::testing::MemoryPublisher;
use shortlink_store::Store;
use shortlink_store::sqlite::SqliteStore;
use tempfile::TempDir;
use vocabulary::{Code, CodeRules};

use crate::codes::leases::Leases;
use crate::codes::permuted::PermutedCodes;
use crate::codes::pool::{PooledCodes, Watermarks};
use crate::codes::sequence::{SequenceCodes, number_of};
use crate::codes::strategy::{CodeStrategy, DrawRequest};
use crate::testing::leases;

const LENGTH: usize = 7;

/// Number of concurrent processes, number of successive processes in each place, and number of
/// codes per draw. The sizes leave most of a block unused at the end.
const PROCESSES: u64 = 4;
const LIVES: u64 = 5;
const SIZES: [usize; 5] = [1, 700, 3, 250, 1];

/// A database for several processes.
struct Database {
    url: String,
    _directory: TempDir,
}

impl Database {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite:{}/links.db", directory.path().display());
        let key = CodeKey::new([9; 32]);
        let migrated = SqliteStore::migrate(&url, &key).await;
        migrated.expect("an empty place");
        Self {
            url,
            _directory: directory,
        }
    }

    async fn open(&self) -> Arc<Store> {
        let store = SqliteStore::open(&self.url, 1).await;
        Arc::new(store.expect("a good database"))
    }

    /// The leases of another process.
    async fn leases(&self, holder: &str) -> Arc<Leases> {
        leases(&self.open().await, &CodeRules::default(), holder)
    }
}

async fn draw(strategy: &dyn CodeStrategy, count: usize) -> Vec<Code> {
    let targets = vec!["https://example.com/"; count];
    let request = DrawRequest {
        length: LENGTH,
        targets: &targets,
        attempt: 0,
    };
    let mut tries = 0;
    loop {
        match strategy.draw(&request).await {
            Ok(codes) => {
                assert_eq!(codes.len(), count);
                return codes;
            }
            // Several processes share a file, whose lock SQLite gives to any of them.
            Err(error) => {
                tries += 1;
                assert!(tries < 5, "{error}");
            }
        }
    }
}

/// Codes drawn by concurrent and successive processes. Each process ends as if it were killed and
/// abandons the rest of its block.
async fn drawn_by_all<F>(make: F) -> Vec<Code>
where
    F: Fn(Arc<Leases>, u64) -> Arc<dyn CodeStrategy> + Clone + Send + Sync + 'static,
{
    let database = Arc::new(Database::new().await);
    let places: Vec<_> = (0..PROCESSES)
        .map(|place| {
            let (database, make) = (Arc::clone(&database), make.clone());
            tokio::spawn(async move {
                let mut codes = Vec::new();
                for life in 0..LIVES {
                    let process = place * LIVES + life;
                    let strategy = make(database.leases(&process.to_string()).await, process);
                    for size in SIZES {
                        codes.extend(draw(&*strategy, size).await);
                    }
                }
                codes
            })
        })
        .collect();
    let mut codes = Vec::new();
    for place in places {
        codes.extend(place.await.expect("no process panics"));
    }
    codes
}

fn assert_all_different<T: std::hash::Hash + Eq>(things: &[T]) {
    let different: HashSet<&T> = things.iter().collect();
    assert_eq!(different.len(), things.len());
}

fn numbers(codes: &[Code]) -> Vec<u64> {
    let rules = CodeRules::default();
    let numbers = codes.iter().map(|code| number_of(code, &rules));
    numbers.map(|number| number.expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permuted_code_is_drawn_twice() {
    let codes =
        drawn_by_all(|leases, _| Arc::new(PermutedCodes::new(leases, CodeRules::default())));
    assert_all_different(&codes.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pooled_code_is_drawn_twice() {
    let watermarks = Watermarks { low: 10, high: 50 };
    let codes = drawn_by_all(move |leases, process| {
        let rng = StdRng::seed_from_u64(process);
        let rules = CodeRules::default();
        Arc::new(PooledCodes::new(leases, rules, watermarks, rng))
    });
    assert_all_different(&codes.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_of_a_sequence_is_drawn_twice() {
    let redis = Arc::new(MemoryPublisher::default());
    let codes = drawn_by_all(move |leases, process| {
        // Redis is unreachable for one process in three, and has lost its counters for another.
        match process % 3 {
            0 => redis.set_away(true),
            1 => redis.restart(),
            _ => redis.set_away(false),
        }
        let rng = StdRng::seed_from_u64(process);
        let redis = Arc::clone(&redis) as Arc<dyn Publisher>;
        Arc::new(SequenceCodes::new(
            leases,
            redis,
            CodeRules::default(),
            1,
            rng,
        ))
    });
    let codes = codes.await;
    assert_all_different(&codes);
    // Random fillers would hide duplicates.
    assert_all_different(&numbers(&codes));
}

/// A Redis that works; before its answer arrives, another process that cannot reach Redis takes
/// numbers.
struct Meanwhile {
    redis: MemoryPublisher,
    other: SequenceCodes<StdRng>,
    drawn: tokio::sync::Mutex<Vec<Code>>,
}

#[async_trait]
impl Publisher for Meanwhile {
    async fn publish(&self, links: &[Link]) -> Result<Published, PublishError> {
        self.redis.publish(links).await
    }

    async fn publish_new(&self, links: &[Link]) -> Result<Published, PublishError> {
        self.redis.publish_new(links).await
    }

    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<Published, PublishError> {
        self.redis.publish_campaigns(campaigns).await
    }

    async fn advance(&self, counter: &str, floor: u64, by: u64) -> Result<u64, PublishError> {
        let end = self.redis.advance(counter, floor, by).await;
        self.drawn.lock().await.extend(draw(&self.other, 20).await);
        end
    }

    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError> {
        self.redis.note_unknown(code).await
    }

    async fn inspect(&self) -> Result<(Session, DataSet), PublishError> {
        self.redis.inspect().await
    }

    async fn mark(&self, mark: &Mark) -> Result<bool, PublishError> {
        self.redis.mark(mark).await
    }
}

#[tokio::test]
async fn a_sequence_counts_on_when_redis_is_away_for_some_and_not_for_others() {
    let database = Database::new().await;
    let rules = CodeRules::default();
    let away = Arc::new(MemoryPublisher::default());
    away.set_away(true);
    let rng = || StdRng::seed_from_u64(1);
    let other = SequenceCodes::new(database.leases("a").await, away, rules.clone(), 1, rng());
    let meanwhile = Arc::new(Meanwhile {
        redis: MemoryPublisher::default(),
        other,
        drawn: tokio::sync::Mutex::default(),
    });
    let redis = Arc::clone(&meanwhile) as Arc<dyn Publisher>;
    let codes = SequenceCodes::new(database.leases("b").await, redis, rules, 1, rng());
    let mut drawn = draw(&codes, 20).await;
    drawn.extend(meanwhile.drawn.lock().await.iter());
    // Redis is asked twice: where its counter is, and to raise it.
    assert_eq!(drawn.len(), 20 + 2 * 20);
    assert_all_different(&numbers(&drawn));
}
