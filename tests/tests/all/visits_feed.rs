//! The feed of visits while two sidecars store them and are killed: each visit once, in the order of storing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use shortlink_tests::chance::Chance;
use shortlink_tests::http;
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::Sidecar;
use shortlink_tests::stack::directory;
use shortlink_tests::visits::put_of;
use shortlink_tests::wait::{OverAtEnd, pass, until};
use vocabulary::visit::VisitId;

/// Number of kills, and of visits before each of them.
const KILLS: u64 = 8;
const VISITS: u64 = 2000;

/// Number of visits of a batch. Each batch has an origin of its own, so that transactions do not wait for each other.
const BATCH: u64 = 20;

/// Number of visits that the reader may be behind.
const AHEAD: u64 = 4000;

/// The limit until visits are stored that a killed sidecar had read.
const TAKEN_OVER: Duration = Duration::from_secs(60);

const STREAM: &str = "sl:v:{0}";

#[test]
fn the_feed_has_each_visit_once_on_sqlite() {
    let directory = directory();
    let file = directory.path().join("sidecar/links.db");
    outlives_kills(&format!("sqlite:{}", file.display()), directory.path());
}

#[test]
fn the_feed_has_each_visit_once_on_postgres() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    outlives_kills(&postgres.url(), directory.path());
}

/// Adds visits with the codes `v0`, `v1` … until it is over, at most [`AHEAD`] before the reader; some are a day late.
fn visit(redis: u16, sent: &AtomicU64, seen: &AtomicU64, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let first = sent.load(Ordering::Relaxed);
        let has_room = || first < seen.load(Ordering::Relaxed) + AHEAD;
        until("the reader follows", TAKEN_OVER, || {
            has_room() || is_over.load(Ordering::Relaxed)
        });
        let codes: Vec<String> = (first..first + BATCH).map(|n| format!("v{n}")).collect();
        let visits = codes.iter().zip(0..).map(|(code, sequence)| {
            let origin = first + 1;
            let time = 1_780_315_200_000 - sequence % 3 * 86_400_000;
            (VisitId { origin, sequence }, code.as_str(), time)
        });
        put_of(redis, STREAM, visits, "an agent");
        sent.fetch_add(BATCH, Ordering::Relaxed);
    }
}

/// Reads the feed of either sidecar until it has had all visits; returns their ids and codes.
fn follow(
    ports: [u16; 2],
    key: &str,
    (sent, count): (&AtomicU64, &AtomicU64),
    is_over: &AtomicBool,
) -> Vec<(i64, String)> {
    let mut chance = Chance::default();
    let mut after = String::new();
    let mut seen = Vec::new();
    loop {
        let is_complete =
            is_over.load(Ordering::Relaxed) && seen.len() as u64 >= sent.load(Ordering::Relaxed);
        let limit = 1 + chance.below(1000);
        let path = format!("/v1/visits?after={after}&wait=1&limit={limit}");
        let request = http::request("GET", &path, &[("X-Api-Key", key)], b"");
        // A sidecar that was killed answers nothing.
        let answer = http::try_send(*chance.choose(&ports), "GET", &request);
        let Ok(answer) = answer else { continue };
        let page = answer.json();
        assert!([200, 503].contains(&answer.status), "{page}");
        let Some(next) = page["nextCursor"].as_str() else {
            continue;
        };
        next.clone_into(&mut after);
        let visits = page["visits"].as_array().expect("visits");
        seen.extend(visits.iter().map(|it| {
            let text = |member: &str| it[member].as_str().expect("a text").to_owned();
            (text("id").parse().expect("a number"), text("shortCode"))
        }));
        count.store(seen.len() as u64, Ordering::Relaxed);
        // Once more than needed: another visit would be one too many.
        if is_complete && visits.is_empty() {
            return seen;
        }
    }
}

fn outlives_kills(database: &str, directory: &std::path::Path) {
    let redis = Redis::start(&directory.join("redis"), ports::free());
    let first = Sidecar::start_on(
        database,
        &directory.join("sidecar"),
        ports::free(),
        redis.port,
        "[visits]\nlive_listeners = 64\nlive_listeners_per_key = 64\n",
    );
    let second = first.start_beside(ports::free());
    let (ports, key) = ([first.port, second.port], first.key.clone());
    let mut sidecars = [first, second];
    let (sent, count, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let mut chance = Chance::default();
    let seen = thread::scope(|scope| {
        let over = OverAtEnd(&is_over);
        scope.spawn(|| visit(redis.port, &sent, &count, &is_over));
        let reader = scope.spawn(|| follow(ports, &key, (&sent, &count), &is_over));
        for kill in 0..KILLS {
            let before = count.load(Ordering::Relaxed);
            until("more visits", TAKEN_OVER, || {
                count.load(Ordering::Relaxed) >= before + VISITS
            });
            pass(chance.time_below(Duration::from_millis(50)));
            let sidecar = &mut sidecars[(kill % 2) as usize];
            sidecar.kill();
            sidecar.start_again();
        }
        drop(over);
        reader.join().expect("a reader that has all visits")
    });
    let ids: Vec<i64> = seen.iter().map(|(id, _)| *id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "out of order");
    let codes: BTreeSet<&str> = seen.iter().map(|(_, code)| &**code).collect();
    let all = sent.load(Ordering::Relaxed);
    assert_eq!((seen.len() as u64, codes.len() as u64), (all, all));
    // The feed from its begin has the same visits in the same order.
    let again = follow(ports, &key, (&sent, &count), &is_over);
    assert!(
        again == seen,
        "{} visits, and {} before",
        again.len(),
        seen.len()
    );
    let counted = http::send(
        ports[0],
        "GET",
        "/v1/stats?since=2026-05-01T00:00:00Z",
        &[("X-Api-Key", &key)],
    );
    let counted: Value = counted.json();
    assert_eq!(counted["visits"]["total"], all, "{counted}");
    println!("{KILLS} kills, {all} visits");
}
