//! Four sidecars on one database give no code twice, and no link another's target, though they
//! are killed now and then.
//!
//! `SHORTLINK_CODES` is the number of codes that each test makes. It remembers two numbers of eight
//! bytes of each.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shortlink_tests::chance::Chance;
use shortlink_tests::made::{Made, list, make_batch};
use shortlink_tests::postgres::Postgres;
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::Sidecar;
use shortlink_tests::wait::{OverAtEnd, SOON, pass, until};
use shortlink_tests::{ports, stack};
use vocabulary::Alphabet;

/// The default number of codes.
const CODES: u64 = 20_000;

/// Number of sidecars, and the number of times that one of them is killed.
const SIDECARS: usize = 4;
const KILLS: u64 = 4;

/// Number of rows of a request.
const ROWS: u64 = 2500;

/// A code as a number, and a digest of its target.
type Entry = (u64, u64);

fn entry(made: &Made) -> Entry {
    // With a leading 1, so that the code's length counts.
    let code = made.code.bytes().fold(1, |number: u64, character| {
        let digit = Alphabet::Base62.digit(character).expect("a digit");
        let number = number.checked_mul(62).expect("a code of at most ten");
        number + u64::from(digit)
    });
    let mut hasher = DefaultHasher::new();
    made.target.hash(&mut hasher);
    (code, hasher.finish())
}

/// The common work of the clients.
struct Work {
    /// Number of links to make.
    wanted: u64,
    /// Number of links so far.
    made: AtomicU64,
    /// Rows that were answered that the database was not to be had: others had it for too long.
    refused: AtomicU64,
    is_over: AtomicBool,
    entries: Mutex<Vec<Entry>>,
}

/// Has a sidecar create links until there are enough of all.
fn make(sidecar: (u16, &str), work: &Work, mut target: impl FnMut() -> String) {
    let (port, key) = sidecar;
    while !work.is_over.load(Ordering::SeqCst) && work.made.load(Ordering::SeqCst) < work.wanted {
        let targets: Vec<String> = (0..ROWS).map(|_| target()).collect();
        let results = make_batch(port, &[("X-Api-Key", key)], &targets);
        {
            let mut entries = work.entries.lock().expect("no holder panics");
            for (index, made) in &results.made {
                assert_eq!(made.target, targets[*index]);
                entries.push(entry(made));
            }
        }
        for refused in &results.refused {
            assert!(refused.contains("\"status\":503"), "{refused}");
        }
        let count = |counter: &AtomicU64, count: usize| {
            counter.fetch_add(count as u64, Ordering::SeqCst);
        };
        count(&work.made, results.made.len());
        count(&work.refused, results.refused.len());
        if results.made.is_empty() {
            // Killed, and not yet there again.
            pass(Duration::from_millis(2));
        }
    }
}

fn assert_none_twice(entries: &mut [Entry]) {
    entries.sort_unstable();
    let twice = entries.windows(2).find(|pair| pair[0].0 == pair[1].0);
    assert_eq!(twice, None, "a code was given twice");
}

/// The database that the sidecars share.
#[derive(Clone, Copy)]
enum On {
    Sqlite,
    Postgres,
}

/// Makes codes of a strategy with four sidecars. `target` is given the sidecar's and the link's
/// number.
fn codes_of(on: On, strategy: &str, target: fn(&mut String, usize, u64)) {
    let wanted = std::env::var("SHORTLINK_CODES").ok();
    let wanted = wanted.map_or(CODES, |codes| codes.parse().expect("SHORTLINK_CODES"));
    let directory = stack::directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    let extra = format!(
        "timeout_ms = 5000\n[codes]\nstrategy = \"{strategy}\"\n\
         pool_low = 1000\npool_high = 5000\n"
    );
    let path = directory.path().join("sidecar");
    let postgres = match on {
        On::Sqlite => None,
        On::Postgres => Some(Postgres::start(&directory.path().join("postgres"))),
    };
    let file = || format!("sqlite:{}", path.join("links.db").display());
    let database = postgres.as_ref().map_or_else(file, Postgres::url);
    let first = Sidecar::start_on(&database, &path, ports::free(), redis.port, &extra);
    let mut sidecars: Vec<Sidecar> = (1..SIDECARS)
        .map(|_| first.start_beside(ports::free()))
        .collect();
    sidecars.push(first);
    let key = sidecars[0].key.clone();
    let clients: Vec<u16> = sidecars.iter().map(|sidecar| sidecar.port).collect();
    // Clients stop when there are enough, each with a request under way.
    let room = (wanted + (SIDECARS as u64) * ROWS) as usize;
    let work = Work {
        wanted,
        made: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        entries: Mutex::new(Vec::with_capacity(room)),
    };
    let begin = Instant::now();
    thread::scope(|scope| {
        let _over = OverAtEnd(&work.is_over);
        for (sidecar, &port) in clients.iter().enumerate() {
            let (work, key) = (&work, &*key);
            scope.spawn(move || {
                let mut number = 0;
                make((port, key), work, || {
                    let mut text = String::from("https://example.com/");
                    target(&mut text, sidecar, number);
                    number += 1;
                    text
                });
            });
        }
        let mut chance = Chance::default();
        for kill in 1..=KILLS {
            let limit = SOON + Duration::from_millis(wanted / 5);
            until("links are created", limit, || {
                let made = work.made.load(Ordering::SeqCst);
                made >= wanted * kill / (KILLS + 1)
            });
            let sidecar = &mut sidecars[chance.below(SIDECARS as u64) as usize];
            pass(chance.time_below(Duration::from_millis(20)));
            sidecar.kill();
            sidecar.start_again();
        }
        let limit = SOON + Duration::from_millis(wanted / 5);
        until("all links are created", limit, || {
            work.made.load(Ordering::SeqCst) >= wanted
        });
    });
    let mut entries = work.entries.into_inner().expect("no holder panics");
    println!(
        "{strategy}: {} links in {:.1?}, {} rows refused",
        entries.len(),
        begin.elapsed(),
        work.refused.load(Ordering::SeqCst)
    );
    assert_none_twice(&mut entries);
    let mut listed = Vec::with_capacity(room + room / 100);
    list(sidecars[0].port, &key, |made| listed.push(entry(&made)));
    assert_none_twice(&mut listed);
    // Requests that were broken off may have succeeded too.
    let mut listed = listed.iter();
    for entry in &entries {
        assert!(listed.any(|listed| listed == entry), "a link is lost");
    }
}

/// A target that no other link has.
fn own(text: &mut String, sidecar: usize, number: u64) {
    write!(text, "{sidecar}/{number}").expect("a text can grow");
}

/// A target that links of all sidecars have.
fn shared(text: &mut String, _: usize, number: u64) {
    write!(text, "{number}").expect("a text can grow");
}

#[test]
fn permuted_codes_of_four_sidecars_are_all_different() {
    codes_of(On::Sqlite, "permuted", own);
}

#[test]
fn pooled_codes_of_four_sidecars_are_all_different() {
    codes_of(On::Sqlite, "pool", own);
}

#[test]
fn codes_of_a_sequence_of_four_sidecars_are_all_different() {
    codes_of(On::Sqlite, "sequence", own);
}

/// All are asked for the same targets, for which they are offered the same codes.
#[test]
fn hashed_codes_of_four_sidecars_are_all_different() {
    codes_of(On::Sqlite, "hash", shared);
}

mod on_postgres {
    use super::{On, codes_of, own, shared};

    #[test]
    fn permuted_codes_of_four_sidecars_are_all_different() {
        codes_of(On::Postgres, "permuted", own);
    }

    #[test]
    fn pooled_codes_of_four_sidecars_are_all_different() {
        codes_of(On::Postgres, "pool", own);
    }

    #[test]
    fn codes_of_a_sequence_of_four_sidecars_are_all_different() {
        codes_of(On::Postgres, "sequence", own);
    }

    #[test]
    fn hashed_codes_of_four_sidecars_are_all_different() {
        codes_of(On::Postgres, "hash", shared);
    }
}
