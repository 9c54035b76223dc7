//! Servers are killed at random moments, again and again, while links are created.
//!
//! An acknowledged link is one whose whole answer a client has read. It exists for ever after and
//! has the right target, and no code is given twice. `SHORTLINK_KILLS` is the number of times that
//! each test kills the sidecar.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::chance::Chance;
use shortlink_tests::http;
use shortlink_tests::made::{Made, listed, make_batch};
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, directory, text};
use shortlink_tests::visitor::Visitor;
use shortlink_tests::wait::{OverAtEnd, SOON, pass, until};

/// The default number of times that the sidecar is killed.
const KILLS: u64 = 8;

/// Number of rows of a batch: three chunks, which are stored and answered one by one.
const ROWS: usize = 2200;

/// The pause of a client before it retries when a server is away.
const AWAY: Duration = Duration::from_millis(2);

/// The links that clients got, and whether they should continue.
#[derive(Default)]
struct Ledger {
    made: Mutex<Vec<(Made, bool)>>,
    is_over: AtomicBool,
}

impl Ledger {
    fn made(&self) -> MutexGuard<'_, Vec<(Made, bool)>> {
        self.made.lock().expect("no holder panics")
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The newest links, so many at most.
    fn last(&self, most: usize) -> Vec<Made> {
        let made = self.made();
        let first = made.len().saturating_sub(most);
        made[first..].iter().map(|(made, _)| made.clone()).collect()
    }

    fn wait_for_more(&self, count: u64) {
        let enough = self.made().len() + count as usize;
        until("links are created", SOON, || self.made().len() >= enough);
    }
}

fn kills() -> u64 {
    let kills = std::env::var("SHORTLINK_KILLS").ok();
    kills.map_or(KILLS, |kills| kills.parse().expect("SHORTLINK_KILLS"))
}

/// Creates links one by one until it is over. `lost` are the statuses of answers that say that a
/// server is away.
fn make_singles(port: u16, key: &str, client: usize, lost: &[u16], ledger: &Ledger) {
    for number in 0.. {
        if ledger.is_over() {
            return;
        }
        let target = format!("https://example.com/{client}/{number}");
        let body = json!({ "longUrl": target }).to_string();
        let headers = [("X-Api-Key", key), ("Content-Type", "application/json")];
        let request = http::request("POST", "/v1/links", &headers, body.as_bytes());
        match http::try_send(port, "POST", &request) {
            Ok(answer) if answer.status == 201 => {
                let link = answer.json();
                assert_eq!(text(&link, "longUrl"), target);
                let code = text(&link, "shortCode");
                let is_published = link["published"] == true;
                ledger.made().push((Made { code, target }, is_published));
            }
            Ok(answer) => {
                let said = String::from_utf8_lossy(&answer.body);
                assert!(lost.contains(&answer.status), "{}: {said}", answer.status);
                pass(AWAY);
            }
            // Killed, or not yet there again.
            Err(_) => pass(AWAY),
        }
    }
}

/// Sends batches until it is over. Each is retried until it is answered whole, and a row is answered
/// with the same code each time.
fn make_batches(
    port: u16,
    key: &str,
    client: &str,
    known: &Mutex<HashMap<String, String>>,
    is_over: &AtomicBool,
) {
    let mut broken = 0;
    for number in 0.. {
        if is_over.load(Ordering::SeqCst) {
            println!("{number} batches of {client}, broken off within their answer: {broken}");
            return;
        }
        let name = format!("{client}-{number}");
        let target = |row| format!("https://example.com/{name}/{row}");
        let targets: Vec<String> = (0..ROWS).map(target).collect();
        loop {
            let headers = [("X-Api-Key", key), ("Idempotency-Key", &*name)];
            let results = make_batch(port, &headers, &targets);
            assert_eq!(results.refused, [""; 0]);
            for (row, (index, Made { code, target })) in results.made.iter().enumerate() {
                assert_eq!((row, target), (*index, &targets[row]));
                let mut known = known.lock().expect("no holder panics");
                let first = known.entry(target.clone()).or_insert_with(|| code.clone());
                assert_eq!(first, code, "{target} has two codes");
            }
            match results.made.len() {
                ROWS => break,
                0 => {}
                _ => broken += 1,
            }
            pass(AWAY);
        }
    }
}

fn assert_leads(visitor: &mut Visitor, Made { code, target }: &Made) {
    let answer = visitor.get(&format!("/{code}"), &[]);
    let found = (answer.status, answer.location());
    assert_eq!(found, (302, Some(&**target)), "{code}");
}

fn assert_exists(api: &mut Visitor, key: &str, Made { code, target }: &Made) {
    let answer = api.get(&format!("/v1/links/{code}"), &[("X-Api-Key", key)]);
    assert_eq!(answer.status, 200, "{code}");
    assert_eq!(text(&answer.json(), "longUrl"), *target, "{code}");
}

/// Waits until Redis has the record of every link, though none is visited.
fn wait_until_all_are_told(stack: &Stack, links: usize) {
    until("Redis has every link", SOON, || stack.redis.keys() == links);
}

#[test]
fn single_links_outlive_a_sidecar_that_is_killed_again_and_again() {
    single_links_outlive_kills(Stack::start());
}

#[test]
fn single_links_on_postgres_outlive_a_sidecar_that_is_killed_again_and_again() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    single_links_outlive_kills(Stack::on(&postgres));
}

fn single_links_outlive_kills(mut stack: Stack) {
    const CLIENTS: usize = 4;
    let kills = kills();
    let ledger = Ledger::default();
    let mut chance = Chance::default();
    let key = stack.sidecar.key.clone();
    let mut visitor = Visitor::new(stack.nginx.public_port);
    let mut api = Visitor::new(stack.sidecar.port);
    thread::scope(|scope| {
        let _over = OverAtEnd(&ledger.is_over);
        for client in 0..CLIENTS {
            // Some through nginx, as the campaign system, some as if there were no nginx.
            let ports = [stack.nginx.internal_port, stack.sidecar.port];
            let (port, key, ledger) = (ports[client % 2], &*key, &ledger);
            scope.spawn(move || make_singles(port, key, client, &[502, 504], ledger));
        }
        for _ in 0..kills {
            ledger.wait_for_more(chance.below(60));
            pass(chance.time_below(Duration::from_millis(10)));
            stack.sidecar.kill();
            // Those before them have outlived a kill already; all are looked at in the end.
            let last = ledger.last(50);
            stack.sidecar.start_again();
            for made in last {
                assert_exists(&mut api, &key, &made);
                assert_leads(&mut visitor, &made);
            }
        }
    });
    let made = ledger.last(usize::MAX);
    let codes: HashSet<&str> = made.iter().map(|made| &*made.code).collect();
    assert_eq!(codes.len(), made.len(), "a code was given twice");
    let all = listed(stack.sidecar.port, &key);
    for Made { code, target } in &made {
        assert_eq!(all.get(code), Some(target), "{code}");
    }
    // A link that was not answered was on its way when the sidecar was killed.
    let most = made.len() + CLIENTS * kills as usize;
    println!(
        "{kills} kills, {} links acknowledged, {} there",
        made.len(),
        all.len()
    );
    assert!(all.len() <= most, "{} of {most}", all.len());
    wait_until_all_are_told(&stack, all.len());
    for made in &made {
        assert_leads(&mut visitor, made);
    }
    stack.redis.command(&["FLUSHALL"]);
    for made in &made {
        assert_leads(&mut visitor, made);
    }
    assert_eq!(
        stack.nginx.complaints(&["upstream", "connect()", "recv()"]),
        [""; 0]
    );
}

#[test]
fn batches_that_are_sent_again_make_each_link_once_however_often_the_sidecar_is_killed() {
    batches_make_each_link_once(Stack::start());
}

#[test]
fn batches_on_postgres_make_each_link_once_however_often_the_sidecar_is_killed() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    batches_make_each_link_once(Stack::on(&postgres));
}

fn batches_make_each_link_once(mut stack: Stack) {
    let kills = kills();
    let mut chance = Chance::default();
    let (port, key) = (stack.sidecar.port, stack.sidecar.key.clone());
    // The code of each target.
    let known = Mutex::new(HashMap::new());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = OverAtEnd(&is_over);
        // Two send the same requests, at times at once.
        for client in ["both", "both", "one"] {
            let (key, known, is_over) = (&*key, &known, &is_over);
            scope.spawn(move || make_batches(port, key, client, known, is_over));
        }
        for _ in 0..kills {
            let before = known.lock().expect("no holder panics").len();
            if chance.below(2) == 0 {
                until("rows are answered", SOON, || {
                    known.lock().expect("no holder panics").len() > before
                });
            }
            pass(chance.time_below(Duration::from_millis(150)));
            stack.sidecar.kill();
            stack.sidecar.start_again();
        }
    });
    let known = known.into_inner().expect("no holder panics");
    let codes: HashSet<&String> = known.values().collect();
    assert_eq!(codes.len(), known.len(), "a code was given twice");
    assert_eq!(known.len() % ROWS, 0, "a request was not answered whole");
    println!("{kills} kills, {} links acknowledged", known.len());
    let all = listed(port, &key);
    for (target, code) in &known {
        assert_eq!(all.get(code), Some(target), "{code}");
    }
    assert_eq!(all.len(), known.len(), "there are links that no client got");
    wait_until_all_are_told(&stack, all.len());
    let mut visitor = Visitor::new(stack.nginx.public_port);
    for (target, code) in known.iter().take(3000) {
        let (code, target) = (code.clone(), target.clone());
        assert_leads(&mut visitor, &Made { code, target });
    }
}

#[test]
fn links_outlive_a_redis_that_is_killed_and_has_lost_its_last_writes() {
    let mut stack = Stack::start();
    let ledger = Ledger::default();
    let mut chance = Chance::default();
    let key = stack.sidecar.key.clone();
    let (internal, public) = (stack.nginx.internal_port, stack.nginx.public_port);
    // Number of links before Redis was last killed.
    let mut before = 0;
    thread::scope(|scope| {
        let _over = OverAtEnd(&ledger.is_over);
        for client in 0..3 {
            let (key, ledger) = (&*key, &ledger);
            scope.spawn(move || make_singles(internal, key, client, &[], ledger));
        }
        scope.spawn(|| {
            let mut visitor = Visitor::new(public);
            let mut chance = Chance::default();
            until("there is a link", SOON, || !ledger.made().is_empty());
            while !ledger.is_over() {
                let made = {
                    let made = ledger.made();
                    made[chance.below(made.len() as u64) as usize].0.clone()
                };
                assert_leads(&mut visitor, &made);
            }
        });
        for _ in 0..3 {
            ledger.wait_for_more(20 + chance.below(60));
            pass(chance.time_below(Duration::from_millis(10)));
            before = ledger.made().len();
            stack.redis.kill_and_lose_last(chance.below(4096));
            // Redis is away for a while, in which links are created all the same.
            until("links are created without Redis", SOON, || {
                ledger.made()[before..]
                    .iter()
                    .any(|(_, published)| !published)
            });
            stack.redis.start_again();
        }
        ledger.wait_for_more(20);
    });
    let made = ledger.made().clone();
    // That needs no visit: they waited in the outbox.
    let waited: Vec<&Made> = made[before..]
        .iter()
        .filter(|(_, is_published)| !is_published)
        .map(|(made, _)| made)
        .collect();
    assert_ne!(waited.len(), 0);
    let mut visitor = Visitor::new(public);
    for (made, _) in &made {
        if !waited.contains(&made) {
            assert_leads(&mut visitor, made);
        }
    }
    until("what waited is in Redis", SOON, || {
        let told = |made: &&Made| stack.redis.record(&made.code).is_some();
        waited.iter().all(told)
    });
    for made in waited {
        assert_leads(&mut visitor, made);
    }
}

#[test]
fn links_that_redis_was_not_told_of_are_told_by_the_next_sidecar() {
    let mut stack = Stack::start();
    stack.redis.kill();
    let singles: Vec<Value> = (0..20)
        .map(|number| stack.create(&json!({ "longUrl": format!("https://example.com/{number}") })))
        .collect();
    assert!(singles.iter().all(|link| link["published"] == false));
    let targets: Vec<String> = (0..ROWS)
        .map(|row| format!("https://example.com/row/{row}"))
        .collect();
    let headers = [("X-Api-Key", &*stack.sidecar.key)];
    let batch = make_batch(stack.sidecar.port, &headers, &targets);
    assert_eq!(batch.made.len(), ROWS);
    // The worker has looked at the outbox by now; whatever it has done there, nothing is lost.
    until("the outbox is overdue", SOON, || {
        let ready = http::get(stack.sidecar.port, "/readyz").json();
        ready["checks"]["outbox"]["waiting"] != 0
    });
    stack.sidecar.kill();
    stack.redis.start_again();
    stack.sidecar.start_again();
    wait_until_all_are_told(&stack, singles.len() + ROWS);
    let mut visitor = Visitor::new(stack.nginx.public_port);
    for (_, made) in batch.made.iter().take(200) {
        assert_leads(&mut visitor, made);
    }
}
