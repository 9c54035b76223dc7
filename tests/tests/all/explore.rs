//! A minute of random faults with seeds that are always the same; `make explore` draws others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use shortlink_tests::explore::plan::Plan;
use shortlink_tests::explore::run;

/// Seeds that draw every kind of fault and of world between them.
const SEEDS: [u64; 8] = [29, 40, 46, 55, 74, 86, 94, 167];

/// Number of schedules that run at a time: each mostly waits.
const JOBS: usize = 3;

#[test]
fn every_answer_meets_its_bound_whatever_breaks() {
    let next = AtomicUsize::new(0);
    let bad = thread::scope(|scope| {
        let jobs: Vec<_> = (0..JOBS)
            .map(|_| {
                scope.spawn(|| {
                    let mut bad = Vec::new();
                    while let Some(&seed) = SEEDS.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let outcome = run(&Plan::of(seed));
                        println!("{outcome}");
                        if !outcome.is_good() {
                            bad.push(outcome);
                        }
                    }
                    bad
                })
            })
            .collect();
        let bad = jobs.into_iter().flat_map(|job| job.join().expect("a job"));
        bad.collect::<Vec<_>>()
    });
    for outcome in &bad {
        eprintln!("{outcome}");
    }
    assert!(bad.is_empty(), "{} of {} schedules", bad.len(), SEEDS.len());
}
