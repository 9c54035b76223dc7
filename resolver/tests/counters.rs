//! The workers' numbers: slots, totals, and the text that shows them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::thread;

use shortlink_resolver::counters::{Counter, Counters, Gauge, Outcome, Source, WORDS, render};

/// The metrics after one worker has counted a little, of any version; `UPDATE_GOLDEN=1` writes them anew.
const GOLDEN: &str = include_str!("golden/metrics.txt");

fn memory() -> Vec<AtomicU64> {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn over(words: &[AtomicU64]) -> Counters<'_> {
    Counters::new(words).expect("enough words")
}

fn text(counters: &Counters<'_>, is_alive: impl Fn(u32) -> bool) -> String {
    let mut out = String::new();
    render(&[("", *counters)], is_alive, 1_780_000_000, &mut out);
    check_format(&out);
    out
}

/// The value of a sample; the name is with its labels.
fn value(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.rsplit_once(' '))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.to_owned())
}

#[track_caller]
fn assert_shown(text: &str, name: &str, expected: &str) {
    assert_eq!(value(text, name).as_deref(), Some(expected), "{name}");
}

/// Returns whether Prometheus accepts a name: letters, digits and `_`, no digit first.
fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The labels of a sample, each with its value.
fn labels_of(text: &str) -> Vec<(&str, &str)> {
    let Some(inner) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) else {
        assert_eq!(text, "");
        return Vec::new();
    };
    let labels: Vec<_> = inner
        .split(',')
        .map(|label| {
            let (name, value) = label.split_once('=').expect("a value");
            let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
            let value = value.expect("quotes");
            assert!(is_name(name), "{text}");
            assert!(!value.contains(['"', '\\', '\n', '<']), "{text}");
            (name, value)
        })
        .collect();
    let names: HashSet<_> = labels.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), labels.len(), "{text}");
    labels
}

/// Checks the text format 0.0.4: each metric has one HELP and one TYPE, directly before all of
/// its samples; no sample is there twice; histograms are whole.
fn check_format(text: &str) {
    assert!(text.ends_with('\n'));
    let mut metrics = HashSet::new();
    let mut samples = HashSet::new();
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    let mut parts = HashMap::new();
    let mut metric = ("", "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help");
            assert!(is_name(name) && !help.is_empty(), "{line}");
            assert!(!help.contains('\\'), "{line}");
            assert!(metrics.insert(name), "{name} twice");
            let of_type = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
            let (of, kind) = of_type.and_then(|t| t.split_once(' ')).expect("a type");
            assert_eq!(of, name);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            metric = (name, kind);
            continue;
        }
        assert!(!line.starts_with('#'), "{line}");
        let (sample, value) = line.rsplit_once(' ').expect("a value");
        assert!(samples.insert(sample), "{sample} twice");
        let (name, labels) = sample.split_at(sample.find('{').unwrap_or(sample.len()));
        let labels = labels_of(labels);
        let number: f64 = value.parse().expect("a number");
        assert!(number >= 0.0, "{line}");
        let (of, kind) = metric;
        if kind != "histogram" {
            assert_eq!(name, of, "{line}");
            assert!(value.bytes().all(|byte| byte.is_ascii_digit()), "{line}");
            continue;
        }
        match name.strip_prefix(of).expect("the metric's name") {
            "_bucket" => {
                let [("le", bound)] = labels[..] else {
                    panic!("{line}");
                };
                // Rust reads `+Inf` as Prometheus does.
                buckets.push((bound.parse().expect("a bound"), number));
            }
            part => {
                assert!(labels.is_empty(), "{line}");
                parts.insert(part, number);
            }
        }
    }
    assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    let (bound, all) = buckets.last().expect("buckets");
    assert_eq!(*bound, f64::INFINITY);
    assert_eq!(parts.len(), 2);
    assert_eq!(parts["_count"], *all);
    assert!(parts.contains_key("_sum"));
}

#[test]
fn the_text_is_the_golden_one() {
    let words = memory();
    let counters = over(&words);
    let worker = counters.claim(4711, |_| true);
    worker.count_request(Outcome::Redirect, Source::Redis);
    worker.count_request(Outcome::Redirect, Source::Cache);
    worker.count_request(Outcome::Redirect, Source::Cache);
    worker.count_request(Outcome::Limited, Source::None);
    worker.count(Counter::Trimmed);
    worker.add(Counter::ReplyRecord, 3);
    worker.count(Counter::RedisTopology);
    worker.set(Gauge::CacheEntries, 12);
    worker.set(Gauge::CacheBytes, 3456);
    worker.set(Gauge::RedisConnected, 1);
    worker.set(Gauge::Epoch, 7);
    worker.observe(50, 1);
    worker.observe(51, 2);
    worker.observe(2_000_000, 1);
    let shown = text(&counters, |_| true);
    assert_eq!(shown, text(&counters, |_| true), "always the same order");
    let version = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    assert!(shown.contains(version), "{shown}");
    let shown = shown.replace(version, "{version=\"VERSION\"}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metrics.txt");
        std::fs::write(path, &shown).expect("the golden text is written");
    }
    assert_eq!(shown, GOLDEN);
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let words = memory();
    assert!(Counters::new(&words[..WORDS - 1]).is_none());
    assert!(Counters::new(&[]).is_none());
    assert_eq!(WORDS % 64, 0);
}

/// Every number has a place of its own: what is counted is shown under its name and nowhere else.
#[test]
fn no_two_numbers_share_a_place() {
    let words = memory();
    let counters = over(&words);
    let worker = counters.claim(1, |_| true);
    let mut count = 0;
    for &outcome in Outcome::ALL {
        for &source in Source::ALL {
            count += 1;
            for _ in 0..count {
                worker.count_request(outcome, source);
            }
        }
    }
    worker.add(Counter::Trimmed, 1000);
    worker.add(Counter::BreakerOpened, 1001);
    worker.set(Gauge::CacheEntries, 1002);
    worker.set(Gauge::Epoch, 1003);
    worker.observe(1, 1004);
    worker.observe(u64::MAX >> 20, 1005);
    let shown = text(&counters, |_| true);
    let mut count = 0;
    for outcome in Outcome::ALL {
        for source in Source::ALL {
            count += 1;
            let (outcome, source) = (outcome.name(), source.name());
            let labels = format!(r#"{{outcome="{outcome}",source="{source}"}}"#);
            let name = format!("shortlink_requests_total{labels}");
            assert_shown(&shown, &name, &count.to_string());
        }
    }
    assert_shown(&shown, "shortlink_trimmed_total", "1000");
    assert_shown(&shown, "shortlink_breaker_opened_total", "1001");
    assert_shown(&shown, "shortlink_cache_entries", "1002");
    assert_shown(&shown, r#"shortlink_epoch{worker="1"}"#, "1003");
    let bucket = |bound| format!("shortlink_redis_round_trip_seconds_bucket{{le=\"{bound}\"}}");
    assert_shown(&shown, &bucket("0.00005"), "1004");
    assert_shown(&shown, &bucket("1"), "1004");
    assert_shown(&shown, &bucket("+Inf"), "2009");
}

#[test]
fn replies_fall_into_the_bucket_that_holds_them() {
    for (micros, bound) in [
        (0, "0.00005"),
        (50, "0.00005"),
        (51, "0.0001"),
        (2_500, "0.0025"),
        (2_501, "0.005"),
        (1_000_000, "1"),
        (1_000_001, "+Inf"),
    ] {
        let words = memory();
        let counters = over(&words);
        counters.claim(1, |_| true).observe(micros, 1);
        let shown = text(&counters, |_| true);
        let first = shown
            .lines()
            .filter(|line| line.contains("_bucket"))
            .find(|line| line.ends_with(" 1"));
        let expected = format!("shortlink_redis_round_trip_seconds_bucket{{le=\"{bound}\"}} 1");
        assert_eq!(first, Some(expected.as_str()), "{micros}");
        let seconds = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        assert_shown(&shown, "shortlink_redis_round_trip_seconds_sum", &seconds);
    }
}

#[test]
fn totals_outlive_their_workers_and_gauges_do_not() {
    let words = memory();
    let counters = over(&words);
    let old = counters.claim(10, |_| true);
    let other = counters.claim(11, |_| true);
    assert_eq!((old.slot(), other.slot()), (0, 1));
    for worker in [&old, &other] {
        worker.add(Counter::Coalesced, 5);
        worker.set(Gauge::CacheEntries, 100);
        worker.set(Gauge::Epoch, 3);
    }
    let shown = text(&counters, |_| true);
    assert_shown(&shown, "shortlink_coalesced_total", "10");
    assert_shown(&shown, "shortlink_cache_entries", "200");
    assert_shown(&shown, "shortlink_workers", "2");

    // The first is killed.
    let shown = text(&counters, |process| process != 10);
    assert_shown(&shown, "shortlink_coalesced_total", "10");
    assert_shown(&shown, "shortlink_cache_entries", "100");
    assert_shown(&shown, "shortlink_workers", "1");
    assert_eq!(value(&shown, r#"shortlink_epoch{worker="10"}"#), None);
    assert_shown(&shown, r#"shortlink_epoch{worker="11"}"#, "3");

    // Its successor takes the slot, and with it the totals.
    let new = counters.claim(12, |process| process != 10);
    assert_eq!(new.slot(), 0);
    new.count(Counter::Coalesced);
    let shown = text(&counters, |process| process != 10);
    assert_shown(&shown, "shortlink_coalesced_total", "11");
    assert_shown(&shown, "shortlink_cache_entries", "100");
    assert_shown(&shown, "shortlink_workers", "2");
    assert_shown(&shown, r#"shortlink_epoch{worker="12"}"#, "0");

    // It was not dead after all: what it counts is counted, what it says is not heard.
    old.count(Counter::Coalesced);
    old.set(Gauge::CacheEntries, 1);
    assert!(!old.is_own() && new.is_own());
    let shown = text(&counters, |process| process != 10);
    assert_shown(&shown, "shortlink_coalesced_total", "12");
    assert_shown(&shown, "shortlink_cache_entries", "100");
}

#[test]
fn a_worker_with_the_number_of_a_dead_one_takes_its_slot() {
    let words = memory();
    let counters = over(&words);
    for process in 1..=3 {
        counters.claim(process, |_| true).set(Gauge::CacheBytes, 9);
    }
    // Number 2 died and its number was given to a new worker: it looks alive, but it is us.
    let again = counters.claim(2, |_| true);
    assert_eq!(again.slot(), 1);
    let shown = text(&counters, |_| true);
    assert_shown(&shown, "shortlink_workers", "3");
    assert_shown(&shown, "shortlink_cache_bytes", "18");
}

#[test]
fn without_a_free_slot_the_last_is_shared() {
    let words = memory();
    let counters = over(&words);
    for process in 1..=64 {
        let worker = counters.claim(process, |_| true);
        assert!(worker.is_own());
        worker.set(Gauge::WaitingRequests, 1);
    }
    let late = counters.claim(65, |_| true);
    assert_eq!((late.slot(), late.is_own()), (63, false));
    late.set(Gauge::WaitingRequests, 1000);
    late.count_request(Outcome::Gone, Source::Stale);
    let shown = text(&counters, |_| true);
    assert_shown(&shown, "shortlink_waiting_requests", "64");
    assert_shown(&shown, "shortlink_workers", "64");
    let name = r#"shortlink_requests_total{outcome="gone",source="stale"}"#;
    assert_shown(&shown, name, "1");
}

/// All workers of a start claim at once, while all of the last generation are dead.
#[test]
fn workers_that_claim_at_once_get_a_slot_each() {
    let words = memory();
    let counters = over(&words);
    for generation in 0..200u32 {
        let barrier = std::sync::Barrier::new(8);
        let slots: HashSet<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (1..=8)
                .map(|number| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let process = generation * 8 + number;
                        barrier.wait();
                        let worker = counters.claim(process, |owner| owner > generation * 8);
                        assert!(worker.is_own());
                        for _ in 0..10 {
                            worker.count(Counter::Trimmed);
                        }
                        worker.slot()
                    })
                })
                .collect();
            let slots = threads.into_iter().map(|thread| thread.join());
            slots.map(|slot| slot.expect("a slot")).collect()
        });
        assert_eq!(slots.len(), 8);
    }
    let shown = text(&counters, |_| true);
    assert_shown(&shown, "shortlink_trimmed_total", "16000");
}

#[test]
fn a_shared_slot_loses_nothing() {
    let words = memory();
    let counters = over(&words);
    for process in 1..=64 {
        counters.claim(process, |_| true);
    }
    thread::scope(|scope| {
        for process in 100..108 {
            let worker = counters.claim(process, |_| true);
            scope.spawn(move || {
                for _ in 0..20_000 {
                    worker.count(Counter::CacheHit);
                    worker.observe(60, 2);
                }
            });
        }
    });
    let shown = text(&counters, |_| true);
    let name = r#"shortlink_cache_lookups_total{result="hit"}"#;
    assert_shown(&shown, name, "160000");
    assert_shown(&shown, "shortlink_redis_round_trip_seconds_count", "320000");
    assert_shown(
        &shown,
        "shortlink_redis_round_trip_seconds_sum",
        "19.200000",
    );
}

#[test]
fn what_a_worker_held_of_visits_is_lost_when_it_is_dead() {
    let words = memory();
    let counters = over(&words);
    let killed = counters.claim(10, |_| true);
    let other = counters.claim(11, |_| true);
    killed.add(Counter::Visit, 100);
    killed.add(Counter::VisitStored, 50);
    killed.add(Counter::VisitSpooled, 20);
    killed.add(Counter::VisitNoMemory, 5);
    // Out of a file that another has written.
    other.add(Counter::VisitUnspooled, 15);
    other.add(Counter::VisitStored, 15);
    other.add(Counter::Visit, 3);
    let check = |shown: &str, held: &str, lost: &str| {
        assert_shown(shown, "shortlink_visits_held", held);
        assert_shown(shown, "shortlink_visits_lost_total", lost);
        assert_shown(shown, "shortlink_visits_total", "103");
        assert_shown(shown, "shortlink_visits_stored_total", "65");
    };
    check(&text(&counters, |_| true), "28", "0");
    let is_alive = |process| process != 10;
    check(&text(&counters, is_alive), "3", "25");
    // The same once another process has its slot, and for good.
    let new = counters.claim(12, is_alive);
    assert_eq!(new.slot(), killed.slot());
    check(&text(&counters, is_alive), "3", "25");
    // A worker may also get the very number of the one that was killed.
    let again = counters.claim(12, |_| true);
    assert_eq!(again.slot(), killed.slot());
    check(&text(&counters, |_| true), "3", "25");
}

#[test]
fn what_all_workers_measure_alike_is_not_added_up() {
    let words = memory();
    let counters = over(&words);
    let (one, two) = (counters.claim(10, |_| true), counters.claim(11, |_| true));
    one.set(Gauge::SpoolFiles, 3);
    two.set(Gauge::SpoolFiles, 5);
    one.set(Gauge::CacheEntries, 3);
    two.set(Gauge::CacheEntries, 5);
    let shown = text(&counters, |_| true);
    assert_shown(&shown, "shortlink_spool_files", "5");
    assert_shown(&shown, "shortlink_cache_entries", "8");
    // A process that is gone adds no values any more.
    let shown = text(&counters, |process| process == 10);
    assert_shown(&shown, "shortlink_spool_files", "3");
}

#[test]
fn the_numbers_of_visits_add_up_at_any_moment() {
    let words = memory();
    let counters = over(&words);
    let worker = counters.claim(10, |_| true);
    let number = |shown: &str, name: &str| -> u64 {
        let value = value(shown, &format!("shortlink_visits_{name}"));
        value.expect("a number").parse().expect("a number")
    };
    thread::scope(|scope| {
        let counting = scope.spawn(|| {
            for _ in 0..200_000 {
                worker.add(Counter::Visit, 3);
                worker.count(Counter::VisitSpooled);
                worker.count(Counter::VisitStored);
                worker.count(Counter::VisitAtExit);
                worker.count(Counter::VisitUnspooled);
                worker.count(Counter::VisitStored);
            }
        });
        while !counting.is_finished() {
            let shown = text(&counters, |_| true);
            let come = number(&shown, "total") + number(&shown, "unspooled_total");
            let gone = number(&shown, "stored_total")
                + number(&shown, "spooled_total")
                + number(&shown, r#"dropped_total{reason="exit"}"#)
                + number(&shown, "held");
            assert_eq!(come, gone);
        }
    });
    assert_shown(&text(&counters, |_| true), "shortlink_visits_held", "0");
}
