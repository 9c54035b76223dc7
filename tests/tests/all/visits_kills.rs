//! Workers, Redis, the sidecar and the databases are killed in turn while links are followed: what is stored is
//! what was answered, less what the counters say was lost, and nothing twice.
//!
//! `SHORTLINK_KILLS` says how many there are in each test.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use shortlink_tests::chance::Chance;
use shortlink_tests::clickhouse::ClickHouse;
use shortlink_tests::http;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, StackOptions, directory};
use shortlink_tests::visits::Account;
use shortlink_tests::wait::{OverAtEnd, SOON, pass, until};

/// The default number of kills.
const KILLS: u64 = 6;

/// Number of clients that follow links at a time.
const CLIENTS: usize = 3;

/// The limit until a sidecar that was started again has stored the visits of its former self: the
/// bound is five seconds, and machines are slow.
const TAKEN_OVER: Duration = Duration::from_secs(12);

#[test]
fn every_answered_visit_is_stored_once_or_counted_as_lost() {
    visits_outlive_kills(Stack::start(), None, None);
}

#[test]
fn every_answered_visit_is_stored_once_on_postgres_or_counted_as_lost() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    visits_outlive_kills(Stack::on(&postgres), Some(postgres), None);
}

#[test]
fn every_answered_visit_is_stored_once_in_clickhouse_or_counted_as_lost() {
    let directory = directory();
    let clickhouse = ClickHouse::start(directory.path());
    let stack = Stack::with(&with_clickhouse(&clickhouse));
    visits_outlive_kills(stack, None, Some(clickhouse));
}

#[test]
fn every_answered_visit_is_stored_once_in_clickhouse_beside_postgres_or_counted_as_lost() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    let clickhouse = ClickHouse::start(directory.path());
    let stack = Stack::with(&StackOptions {
        database: Some(postgres.url()),
        ..with_clickhouse(&clickhouse)
    });
    visits_outlive_kills(stack, Some(postgres), Some(clickhouse));
}

fn with_clickhouse(clickhouse: &ClickHouse) -> StackOptions {
    StackOptions {
        sidecar: format!("[visits]\nclickhouse = \"{}\"\n", clickhouse.url()),
        ..StackOptions::default()
    }
}

#[test]
fn a_sidecar_that_is_started_again_soon_stores_what_it_had_read() {
    let mut stack = Stack::start();
    let code = stack.link("https://example.com/");
    // No visit can be stored while another program writes.
    let mut writer = Command::new("sqlite3")
        .args(["-batch", "-cmd", ".timeout 20000"])
        .arg(stack.directory().join("sidecar/links.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sqlite3 can be run");
    let mut input = writer.stdin.take().expect("a pipe");
    let begin = b"BEGIN IMMEDIATE;\nSELECT 'locked';\n";
    input.write_all(begin).expect("sqlite3 reads");
    let mut said = String::new();
    let mut output = BufReader::new(writer.stdout.take().expect("a pipe"));
    output.read_line(&mut said).expect("sqlite3 writes");
    assert_eq!(said.trim(), "locked");
    for _ in 0..3 {
        assert_eq!(stack.follow(&code).status, 302);
    }
    let pending = "return redis.call('XPENDING', KEYS[1], 'shortlink')[1]";
    until("the sidecar has read them", SOON, || {
        stack.redis.command(&["EVAL", pending, "1", "sl:v:{0}"]) != "0"
    });
    stack.sidecar.kill();
    drop(input);
    writer.wait().expect("sqlite3 ends");
    stack.sidecar.start_again();
    until("they are stored", TAKEN_OVER, || stored(&stack).len() == 3);
}

/// The visitors that got a redirect, by their names.
#[derive(Default)]
struct Ledger {
    answered: Mutex<HashSet<String>>,
    is_over: AtomicBool,
}

impl Ledger {
    fn count(&self) -> usize {
        self.answered.lock().expect("no holder panics").len()
    }

    fn wait_for_more(&self, more: u64) {
        let wanted = self.count() + usize::try_from(more).expect("a number");
        until("more links are followed", SOON, || self.count() >= wanted);
    }
}

fn follow(port: u16, client: usize, codes: &[String], ledger: &Ledger) {
    let mut number = 0;
    while !ledger.is_over.load(Ordering::Relaxed) {
        let name = format!("visitor-{client}-{number}");
        let path = format!("/{}", codes[number % codes.len()]);
        number += 1;
        let request = http::request("GET", &path, &[("User-Agent", &name)], b"");
        // A worker that is killed answers nothing, and one without Redis and sidecar 503.
        if http::try_send(port, "GET", &request).is_ok_and(|answer| answer.status == 302) {
            let mut answered = ledger.answered.lock().expect("no holder panics");
            answered.insert(name);
        }
    }
}

fn account(stack: &Stack) -> Account {
    let page = http::get(stack.nginx.internal_port, "/edge/metrics");
    Account::of(&String::from_utf8(page.body).expect("text"))
}

/// Returns the number of waiting batches, if the sidecar knows.
fn waiting(stack: &Stack) -> Option<u64> {
    let page = String::from_utf8(http::get(stack.sidecar.port, "/metrics").body).ok()?;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("shortlink_visit_queue_batches "))?;
    line.trim().parse().ok()
}

/// Returns the names of the visitors in the stored visits.
fn stored(stack: &Stack) -> Vec<String> {
    let headers = [
        ("X-Api-Key", &*stack.sidecar.key),
        ("Accept", "application/x-ndjson"),
    ];
    let export = http::send(stack.sidecar.port, "GET", "/v1/visits", &headers);
    assert_eq!(export.status, 200);
    let text = String::from_utf8(export.body).expect("text");
    let visits = text.lines().map(|line| {
        let visit: Value = serde_json::from_str(line).expect("JSON");
        visit["userAgent"].as_str().expect("a text").to_owned()
    });
    visits.collect()
}

fn kill_worker(stack: &Stack, place: u64) {
    let workers = stack.nginx.workers();
    let worker = workers[place as usize % workers.len()];
    stack.nginx.kill_workers(&[worker]);
}

fn visits_outlive_kills(
    mut stack: Stack,
    mut postgres: Option<Postgres>,
    mut clickhouse: Option<ClickHouse>,
) {
    let kills = std::env::var("SHORTLINK_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("SHORTLINK_KILLS"));
    let codes: Vec<String> = (0..20)
        .map(|number| stack.link(&format!("https://example.com/{number}")))
        .collect();
    let ledger = Ledger::default();
    let mut chance = Chance::default();
    let port = stack.nginx.public_port;
    thread::scope(|scope| {
        let _over = OverAtEnd(&ledger.is_over);
        for client in 0..CLIENTS {
            let (codes, ledger) = (&*codes, &ledger);
            scope.spawn(move || follow(port, client, codes, ledger));
        }
        for round in 0..kills {
            ledger.wait_for_more(chance.below(300));
            pass(chance.time_below(Duration::from_millis(50)));
            if let (Some(clickhouse), 1) = (&mut clickhouse, round % 2) {
                clickhouse.kill();
                ledger.wait_for_more(chance.below(100));
                clickhouse.start_again();
            }
            match (round % 4, &mut postgres) {
                (1, _) => {
                    stack.redis.kill();
                    ledger.wait_for_more(chance.below(100));
                    stack.redis.start_again();
                }
                (2, _) => {
                    stack.sidecar.kill();
                    ledger.wait_for_more(chance.below(100));
                    stack.sidecar.start_again();
                }
                (3, Some(postgres)) => {
                    postgres.kill();
                    ledger.wait_for_more(chance.below(100));
                    postgres.start_again();
                }
                _ => kill_worker(&stack, chance.below(100)),
            }
        }
        ledger.wait_for_more(100);
    });
    until("Redis has all visits", SOON, || {
        let told = account(&stack);
        (told.held, told.in_files) == (0, 0)
    });
    until("all of them are stored", SOON, || {
        waiting(&stack) == Some(0)
    });
    let told = account(&stack);
    assert_eq!(told.dropped, 0, "{told:?}");
    let stored = stored(&stack);
    let once: HashSet<&str> = stored.iter().map(String::as_str).collect();
    assert_eq!(once.len(), stored.len(), "a visit was stored twice");
    let answered = ledger.answered.into_inner().expect("no holder panics");
    let missing = answered
        .iter()
        .filter(|name| !once.contains(name.as_str()))
        .count() as u64;
    println!(
        "{kills} kills, {} answered, {} stored, {missing} missing, {told:?}",
        answered.len(),
        stored.len()
    );
    // A worker records a visit when its answer is sent, and may be killed between the two.
    let unrecorded = (answered.len() as u64).saturating_sub(told.total);
    assert!(unrecorded <= kills.div_ceil(2) * CLIENTS as u64);
    assert!(
        missing <= told.lost + unrecorded,
        "{missing} are missing, {unrecorded} unrecorded: {told:?}"
    );
    // Visits lost with a worker may have reached Redis just before.
    let count = stored.len() as u64;
    let all = told.total - told.lost..=told.total;
    assert!(all.contains(&count), "{count} are stored: {told:?}");
    let counted = stack.api("GET", "/v1/stats", None).json()["visits"]["total"].clone();
    assert_eq!(counted, count, "what is counted is what is stored");
    let of_links = codes.iter().map(|code| {
        let link = stack.api("GET", &format!("/v1/links/{code}"), None).json();
        link["visits"]["total"].as_u64().unwrap_or_default()
    });
    assert_eq!(of_links.sum::<u64>(), count, "links have the same visits");
}
