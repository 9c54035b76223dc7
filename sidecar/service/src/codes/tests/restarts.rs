//! Codes that a process has leased and not used are not lost: neither when it stops nor when it is killed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::link::Link;
use shortlink_core::testing::{MemoryPublisher, link, moment};
use shortlink_store::testing::Fixture;
use shortlink_store::{NumbersWanted, PooledWanted, Scheme, Store};
use tokio::time::Instant;
use vocabulary::{Check, Code, CodeRules};

use crate::codes::leases::Leases;
use crate::codes::permuted::PermutedCodes;
use crate::codes::pool::{PooledCodes, Watermarks};
use crate::codes::sequence::{SequenceCodes, number_of};
use crate::codes::strategy::{CodeStrategy, DrawRequest};
use crate::testing::leases;

/// The shortest time after which these tests take leases back.
const EXPIRY: Duration = Duration::from_millis(1);

/// A process: its leases, and one of its strategies.
struct Process {
    store: Arc<Store>,
    leases: Arc<Leases>,
    strategy: Arc<dyn CodeStrategy>,
}

impl Process {
    fn new(store: &Arc<Store>, rules: &CodeRules, life: u64, strategy: &str) -> Self {
        let leases = Leases::new(
            Arc::clone(store),
            rules.clone(),
            Arc::new(SystemClock),
            format!("{strategy} {life}"),
        );
        let leases = Arc::new(leases.expiring(EXPIRY));
        let (rules, rng) = (rules.clone(), StdRng::seed_from_u64(life));
        let strategy: Arc<dyn CodeStrategy> = match strategy {
            "permuted" => Arc::new(PermutedCodes::new(Arc::clone(&leases), rules)),
            "pool" => {
                let watermarks = Watermarks { low: 10, high: 50 };
                Arc::new(PooledCodes::new(
                    Arc::clone(&leases),
                    rules,
                    watermarks,
                    rng,
                ))
            }
            _ => {
                let redis = Arc::new(MemoryPublisher::default());
                Arc::new(SequenceCodes::new(
                    Arc::clone(&leases),
                    redis,
                    rules,
                    100_000,
                    rng,
                ))
            }
        };
        Self {
            store: Arc::clone(store),
            leases,
            strategy,
        }
    }

    /// Draws codes of a length.
    async fn draw(&self, length: usize, count: usize) -> Vec<Code> {
        let targets = vec!["https://example.com/"; count];
        let request = DrawRequest {
            length,
            targets: &targets,
            attempt: 0,
        };
        self.strategy.draw(&request).await.expect("a store")
    }

    /// Creates a link with a code of a length; `None` if there is none.
    async fn create(&self, length: usize) -> Option<Code> {
        let code = *self.draw(length, 1).await.first()?;
        let new = Link {
            created_at: SystemClock.now(),
            ..link(code.as_str())
        };
        let created = self.store.create_links(vec![new]).await.expect("a store");
        assert!(created.taken.is_empty(), "{code} was drawn twice");
        Some(code)
    }
}

/// Takes back what killed processes had leased.
async fn take_back(survivor: &Leases) {
    survivor.take_back().await.expect("a store");
    let begun = Instant::now();
    while begun.elapsed() <= EXPIRY {
        tokio::task::yield_now().await;
    }
    survivor.take_back().await.expect("a store");
}

fn rules() -> CodeRules {
    CodeRules {
        check: Check::None,
        ..CodeRules::default()
    }
}

/// All of a small space gets links, however the processes end.
async fn fills(scheme: Scheme, is_killed: bool) {
    let fixture = Fixture::new(scheme).await;
    let rules = rules();
    let survivor = leases(&fixture.store, &rules, "survivor");
    let survivor = Arc::into_inner(survivor)
        .expect("one owner")
        .expiring(EXPIRY);
    let mut count = 0;
    for life in 0..62 {
        let process = Process::new(&fixture.store, &rules, life, "permuted");
        if process.create(1).await.is_some() {
            count += 1;
        }
        if is_killed {
            take_back(&survivor).await;
        } else {
            process.leases.give_back().await;
        }
    }
    assert_eq!(count, 62, "{scheme:?} {is_killed}");
}

#[tokio::test]
async fn every_code_of_a_small_space_gets_a_link_over_62_lives() {
    for scheme in [Scheme::Sqlite, Scheme::Postgres] {
        for is_killed in [false, true] {
            fills(scheme, is_killed).await;
        }
    }
}

#[tokio::test]
async fn restarts_and_kills_skip_no_permuted_number() {
    let rules = rules();
    for (scheme, is_killed, lives) in [
        (Scheme::Sqlite, false, 50),
        (Scheme::Postgres, false, 50),
        (Scheme::Sqlite, true, 20),
        (Scheme::Postgres, true, 20),
    ] {
        let fixture = Fixture::new(scheme).await;
        let survivor = Leases::new(
            Arc::clone(&fixture.store),
            rules.clone(),
            Arc::new(SystemClock),
            "survivor".to_owned(),
        );
        let survivor = survivor.expiring(EXPIRY);
        for life in 0..lives {
            let process = Process::new(&fixture.store, &rules, life, "permuted");
            for _ in 0..3 {
                process.create(3).await.expect("a code");
            }
            if is_killed {
                take_back(&survivor).await;
            } else {
                process.leases.give_back().await;
            }
        }
        let leases = fixture.store.leases().await.expect("a store");
        let free: Vec<_> = leases
            .iter()
            .map(|it| (&*it.holder, it.next, it.until))
            .collect();
        assert_eq!(
            free,
            [("", 3 * lives, 62_u64.pow(3) / 256)],
            "{scheme:?} {is_killed}"
        );
    }
}

#[tokio::test]
async fn a_sequence_of_few_numbers_survives_restarts_and_kills() {
    let rules = CodeRules::default();
    for scheme in [Scheme::Sqlite, Scheme::Postgres] {
        for is_killed in [false, true] {
            let fixture = Fixture::new(scheme).await;
            let survivor = leases(&fixture.store, &rules, "survivor");
            let survivor = Arc::into_inner(survivor)
                .expect("one owner")
                .expiring(EXPIRY);
            let mut numbers = Vec::new();
            for life in 0..50 {
                let process = Process::new(&fixture.store, &rules, life, "sequence");
                let Some(code) = process.create(4).await else {
                    break;
                };
                numbers.push(number_of(&code, &rules).expect("a number"));
                if is_killed {
                    take_back(&survivor).await;
                } else {
                    process.leases.give_back().await;
                }
            }
            // Two of the three characters beside the length are fillers, so there are 62 numbers, of which one in eight
            // is used.
            assert!(numbers.len() >= 4, "{scheme:?} {is_killed}: {numbers:?}");
            assert!(
                numbers.is_sorted_by(|one, other| one < other),
                "{numbers:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_process_that_was_stopped_for_long_does_not_use_what_others_have_now() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let rules = rules();
    let stopped = Process::new(&fixture.store, &rules, 1, "permuted");
    stopped.create(3).await.expect("a code");
    let survivor = Process::new(&fixture.store, &rules, 2, "permuted");
    take_back(&survivor.leases).await;
    survivor.create(3).await.expect("a code");
    // `create` asserts that the code is free.
    stopped.create(3).await.expect("a code");
    survivor.create(3).await.expect("a code");
}

#[tokio::test]
async fn a_pooled_code_returns_to_the_pool_unless_it_has_a_link() {
    for (scheme, is_killed) in [
        (Scheme::Sqlite, false),
        (Scheme::Postgres, false),
        (Scheme::Sqlite, true),
        (Scheme::Postgres, true),
    ] {
        let fixture = Fixture::new(scheme).await;
        let store = &fixture.store;
        let rules = CodeRules::default();
        let process = Process::new(store, &rules, 1, "pool");
        let code = process.create(5).await.expect("a code");
        let before = store.count_pooled(6).await.expect("a store");
        if is_killed {
            take_back(&Process::new(store, &rules, 3, "pool").leases).await;
        } else {
            process.leases.give_back().await;
        }
        let after = store.count_pooled(6).await.expect("a store");
        assert_eq!(
            (after.used, after.unused + 1),
            (1, before.unused + before.used)
        );
        let next = Process::new(store, &rules, 2, "pool");
        for _ in 0..20 {
            assert_ne!(next.create(5).await, Some(code));
        }
    }
}

#[tokio::test]
async fn leases_that_are_reported_are_not_taken_back() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let rules = rules();
    let process = Process::new(&fixture.store, &rules, 1, "permuted");
    process.create(3).await.expect("a code");
    let survivor = Process::new(&fixture.store, &rules, 2, "permuted");
    assert_eq!(survivor.leases.take_back().await.expect("a store"), 0);
    process.leases.report_all().await.expect("a store");
    assert_eq!(survivor.leases.take_back().await.expect("a store"), 0);
    let of_process = |it: &shortlink_core::ports::CodeLease| it.holder == "permuted 1";
    let leases = fixture.store.leases().await.expect("a store");
    assert!(leases.iter().any(of_process));
    // Links of other times do not matter.
    let old = Link {
        created_at: moment("2020-01-01T00:00:00Z"),
        ..link("abc")
    };
    fixture
        .store
        .create_links(vec![old])
        .await
        .expect("a store");
}

#[tokio::test]
async fn numbers_whose_lease_was_answered_to_nobody_are_found_again() {
    const BLOCK: u64 = 62_u64.pow(3) / 256;
    for scheme in [Scheme::Sqlite, Scheme::Postgres] {
        let fixture = Fixture::new(scheme).await;
        let store = &fixture.store;
        let process = Process::new(store, &rules(), 1, "permuted");
        let mut drawn = HashSet::new();
        for round in 0..3 {
            // The connection breaks behind the commit: the process sends this request again.
            let wanted = NumbersWanted {
                counter: "permuted:3",
                floor: 0,
                size: BLOCK,
                limit: 62_u64.pow(3),
                used_up: round * BLOCK,
            };
            let now = SystemClock.now();
            let lost = store.lease_numbers(wanted, "permuted 1", now).await;
            assert!(lost.expect("a store").is_some());
            drawn.extend(process.draw(3, BLOCK as usize).await);
            let counted = (round + 1) * BLOCK;
            assert_eq!(drawn.len() as u64, counted, "{scheme:?}");
            let next = store.lease("permuted:3", 0, 0).await;
            assert_eq!(next.expect("a store"), counted, "{scheme:?}");
        }
        let leases = store.leases().await.expect("a store");
        assert_eq!(leases.len(), 1, "{leases:?}");
    }
}

#[tokio::test]
async fn pooled_codes_whose_lease_was_answered_to_nobody_are_found_again() {
    for scheme in [Scheme::Sqlite, Scheme::Postgres] {
        let fixture = Fixture::new(scheme).await;
        let store = &fixture.store;
        let rules = CodeRules::default();
        let other = Process::new(store, &rules, 1, "pool");
        other.draw(5, 40).await;
        other.leases.give_back().await;
        let process = Process::new(store, &rules, 2, "pool");
        let mut drawn = HashSet::new();
        for request in 1..=3 {
            let wanted = PooledWanted {
                length: 6,
                count: 10,
                held: Vec::new(),
                request,
            };
            let lost = store.lease_pooled(wanted, "pool 2", SystemClock.now());
            let lost: HashSet<Code> = lost.await.expect("a store").into_iter().collect();
            assert_eq!(lost.len(), 10, "{scheme:?}");
            let used = async || store.count_pooled(6).await.expect("a store").used;
            let before = used().await;
            let codes: HashSet<Code> = process.draw(5, 10).await.into_iter().collect();
            assert_eq!((&codes, used().await), (&lost, before), "{scheme:?}");
            assert!(drawn.is_disjoint(&codes), "{scheme:?}");
            drawn.extend(codes);
        }
    }
}

#[tokio::test]
async fn a_lease_in_use_delays_no_question_for_all_leases() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let process = Process::new(&fixture.store, &rules(), 1, "permuted");
    process.create(3).await.expect("a code");
    let all = async || {
        let all = tokio::time::timeout(Duration::from_secs(20), process.leases.all());
        let all = all.await.expect("no wait").expect("a store");
        all.iter().map(|it| it.next).collect::<Vec<_>>()
    };
    assert_eq!(all().await, [1]);
    process.create(3).await.expect("a code");
    // A draw waits for the database.
    let mut held = process.leases.hold("permuted:3").await.expect("a lease");
    held.number().expect("a number");
    assert_eq!(all().await, [2], "as it was reported last");
    drop(held);
    assert_eq!(all().await, [3]);
}
