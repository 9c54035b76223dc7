//! Runs random schedules of faults (`make explore`): see `shortlink_tests::explore`.
//!
//! `SEED` runs one schedule, `MINUTES` (30) is the time for random ones, `JOBS` the number that run at
//! the same time. With `--shrink`, a schedule that fails is run again without each of its faults, for
//! the fewest that still fail.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shortlink_tests::chance::Chance;
use shortlink_tests::explore::plan::Plan;
use shortlink_tests::explore::report::Outcome;
use shortlink_tests::explore::run;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text}; allowed is a whole number")))
}

fn main() -> ExitCode {
    let shrinks = std::env::args().any(|argument| argument == "--shrink");
    if let Some(seed) = variable("SEED") {
        let outcome = run(&Plan::of(seed));
        println!("{outcome}");
        if shrinks && !outcome.is_good() {
            println!("\nfewest faults:\n{}", shrink(outcome.clone()));
        }
        return if outcome.is_good() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let end = Instant::now() + Duration::from_secs(60 * variable("MINUTES").unwrap_or(30));
    let jobs = variable("JOBS").unwrap_or(3);
    let first = Chance::default().below(1_000_000_000);
    let (next, good) = (AtomicU64::new(first), AtomicUsize::new(0));
    let bad = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while Instant::now() < end {
                    let outcome = run(&Plan::of(next.fetch_add(1, Ordering::SeqCst)));
                    println!("{outcome}");
                    if outcome.is_good() {
                        good.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    if shrinks {
                        println!("\nfewest faults:\n{}", shrink(outcome.clone()));
                    }
                    bad.lock().expect("no holder panics").push(outcome);
                }
            });
        }
    });
    let bad = bad.into_inner().expect("no holder panics");
    println!("{} schedules good, {} bad", good.into_inner(), bad.len());
    for outcome in &bad {
        println!("SEED={}: {:?}", outcome.plan.seed, outcome.bounds);
    }
    if bad.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Removes each fault without which the schedule still fails.
fn shrink(mut outcome: Outcome) -> Outcome {
    let mut place = 0;
    while place < outcome.plan.faults.len() && outcome.plan.faults.len() > 1 {
        let less = run(&outcome.plan.without(place));
        if less.is_good() {
            place += 1;
        } else {
            outcome = less;
        }
    }
    outcome
}
