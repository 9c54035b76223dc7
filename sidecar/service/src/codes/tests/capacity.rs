//! Processes together never exceed the capacity of a length, and use all of it.

use std::sync::Arc;
use std::time::Duration;

use shortlink_core::testing::link;
use shortlink_store::testing::Fixture;
use shortlink_store::{Scheme, Store};
use vocabulary::{BodyLengths, Check, CodeRules};

use crate::codes::leases::Leases;
use crate::codes::lengths::Lengths;
use crate::codes::permuted::PermutedCodes;
use crate::codes::strategy::{CodeStrategy, DrawRequest};
use crate::jobs::Job;
use crate::testing::leases;

fn rules() -> CodeRules {
    CodeRules {
        check: Check::None,
        ..CodeRules::default()
    }
}

/// Creates links until the length is full; returns their number. One draw in four fails behind its reservation.
async fn create_until_full(store: Arc<Store>, leases: Arc<Leases>, one_in: u64, length: u8) -> u64 {
    let lengths = Lengths::new(Arc::clone(&leases), rules(), one_in);
    let strategy = PermutedCodes::new(leases, rules());
    let bounds = BodyLengths::new(length, length).expect("bounds");
    let (mut count, mut turn) = (0, 0);
    while let Some(reserved) = lengths
        .reserve(bounds, 1 + turn % 37)
        .await
        .expect("a store")
    {
        turn += 1;
        if turn % 4 == 0 {
            continue;
        }
        let targets = vec![""; reserved.codes as usize];
        let request = DrawRequest {
            length: reserved.length,
            targets: &targets,
            attempt: 0,
        };
        let codes = strategy.draw(&request).await.expect("codes");
        let links = codes.iter().map(|code| link(code.as_str())).collect();
        let created = store.create_links(links).await.expect("a store");
        count += (codes.len() - created.taken.len()) as u64;
        drop(reserved);
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_fill_a_length_exactly() {
    for (scheme, one_in, length, expected) in [
        (Scheme::Sqlite, 2, 2, 62 * 62 / 2),
        (Scheme::Postgres, 2, 2, 62 * 62 / 2),
        (Scheme::Postgres, 3, 1, 20),
        (Scheme::Postgres, 100, 3, 62 * 62 * 62 / 100),
    ] {
        let fixture = Fixture::new(scheme).await;
        let mut processes = Vec::new();
        let mut jobs = Vec::new();
        for holder in ["a", "b", "c"] {
            let store = if scheme == Scheme::Sqlite {
                Arc::clone(&fixture.store)
            } else {
                fixture.open().await
            };
            let leases = leases(&store, &rules(), holder);
            let mut job = Arc::clone(&leases);
            jobs.push(tokio::spawn(async move {
                let mut every = tokio::time::interval(Duration::from_millis(200));
                loop {
                    every.tick().await;
                    job.step().await.expect("a store");
                }
            }));
            processes.push(tokio::spawn(create_until_full(
                store, leases, one_in, length,
            )));
        }
        let mut count = 0;
        for process in processes {
            count += process.await.expect("no panic");
        }
        for job in jobs {
            job.abort();
        }
        assert_eq!(count, expected, "{scheme:?} {one_in} {length}");
        let usage = fixture.store.code_usage(0).await.expect("a store");
        assert_eq!(usage[0].links, expected);
    }
}

#[tokio::test]
async fn what_a_killed_process_held_is_free_again() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    let bounds = BodyLengths::new(1, 1).expect("bounds");
    let reserve = async |leases: &Arc<Leases>, wanted| {
        let lengths = Lengths::new(Arc::clone(leases), rules(), 2);
        let reserved = lengths.reserve(bounds, wanted).await.expect("a store");
        reserved.map_or(0, |it| it.codes)
    };
    let killed = leases(&fixture.store, &rules(), "killed");
    assert_eq!(reserve(&killed, 40).await, 31);
    let other = leases(&fixture.store, &rules(), "other");
    let other = Arc::into_inner(other).expect("one owner");
    let other = Arc::new(other.expiring(Duration::ZERO));
    assert_eq!(reserve(&other, 1).await, 0);
    assert_eq!(other.take_back().await.expect("a store"), 1);
    assert_eq!(reserve(&other, 40).await, 31);
}
