//! PostgreSQL with automatic failover: the leader of a real cluster is killed, hangs, is cut off and is moved, under load,
//! while lists are read from its standbys.
//!
//! `--nocapture` prints how long each failover took, and how much was tested.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shortlink_tests::chance::Chance;
use shortlink_tests::http::{self, Response};
use shortlink_tests::made::Made;
use shortlink_tests::metrics::Page;
use shortlink_tests::patroni::Patroni;
use shortlink_tests::proxy::Mode;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::visitor::Visitor;
use shortlink_tests::wait::{OverAtEnd, SOON, eventually, pass, until};

/// The limit for another server to be the primary.
const FAILOVER: Duration = Duration::from_secs(40);

/// The limit for a link to be created once another server takes changes.
const BACK: Duration = Duration::from_secs(5);

/// The limit for the age of what is read from a standby.
const MAX_LAG: Duration = Duration::from_secs(10);

/// The number of rows of a batch.
const ROWS: usize = 40;

/// The pause between two requests of a client.
const PAUSE: Duration = Duration::from_millis(15);

/// A client of the API, which may be refused while there is no primary.
struct Client<'a> {
    port: u16,
    key: &'a str,
    refused: &'a AtomicU64,
}

impl Client<'_> {
    /// Sends a request; `None` if it is refused for now.
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Response> {
        let headers = [&[("X-Api-Key", self.key)], headers].concat();
        let request = http::request(method, path, &headers, body.as_bytes());
        let answer = http::try_send(self.port, method, &request);
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let said = String::from_utf8_lossy(&answer.body);
        assert!(
            [200, 201, 503].contains(&answer.status),
            "{method} {path}: {} {said}",
            answer.status
        );
        if answer.status != 503 {
            return Some(answer);
        }
        assert!(answer.header("Retry-After").is_some(), "{said}");
        self.refused.fetch_add(1, Ordering::SeqCst);
        pass(PAUSE);
        None
    }

    fn create(&self, target: &str) -> Option<Made> {
        let body = json!({ "longUrl": target }).to_string();
        let answer = self.send(
            "POST",
            "/v1/links",
            &[("Content-Type", "application/json")],
            &body,
        )?;
        let link = answer.json();
        assert_eq!(text(&link, "longUrl"), target);
        let code = text(&link, "shortCode");
        Some(Made {
            code,
            target: target.to_owned(),
        })
    }
}

/// The acknowledged changes.
#[derive(Default)]
struct Ledger {
    made: Mutex<Vec<Made>>,
    revoked: Mutex<Vec<String>>,
    refused: AtomicU64,
    redirects: AtomicU64,
    batches: AtomicU64,
    is_over: AtomicBool,
}

impl Ledger {
    fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.lock().expect("no holder panics")
    }

    fn revoked(&self) -> MutexGuard<'_, Vec<String>> {
        self.revoked.lock().expect("no holder panics")
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }

    fn wait_for_more(&self) {
        let count = || {
            (
                self.made().len(),
                self.revoked().len(),
                self.batches.load(Ordering::SeqCst),
            )
        };
        let before = count();
        until("all clients are served", SOON, || {
            let now = count();
            now.0 > before.0 + 20 && now.1 > before.1 + 5 && now.2 > before.2 + 1
        });
    }

    fn make_singles(&self, client: &Client<'_>, name: &str) {
        for number in 0.. {
            if !self.goes_on() {
                return;
            }
            self.made()
                .extend(client.create(&format!("https://example.com/{name}/{number}")));
            pass(PAUSE);
        }
    }

    /// Sends batches, each again until every row of it has a link.
    fn make_batches(&self, client: &Client<'_>) {
        for number in 0.. {
            let name = format!("batch-{number}");
            let headers = [
                ("Content-Type", "application/x-ndjson"),
                ("Idempotency-Key", &*name),
            ];
            let target = |row| format!("https://example.com/{name}/{row}");
            let rows: Vec<String> = (0..ROWS)
                .map(|row| json!({ "longUrl": target(row) }).to_string())
                .collect();
            let mut known: HashMap<usize, String> = HashMap::new();
            while known.len() < ROWS {
                if !self.goes_on() {
                    return;
                }
                let answer = client.send("POST", "/v1/links/batch", &headers, &rows.join("\n"));
                let Some(answer) = answer else { continue };
                for line in String::from_utf8(answer.body).expect("text").lines() {
                    let row: Value = serde_json::from_str(line).expect("JSON");
                    if row["status"] == 503 {
                        self.refused.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    assert_eq!(row["status"], 201, "{row}");
                    let index = row["index"].as_u64().expect("an index") as usize;
                    let code = text(&row["link"], "shortCode");
                    let first = known.entry(index).or_insert_with(|| code.clone());
                    assert_eq!(*first, code, "row {index} of {name} has two codes");
                }
                pass(PAUSE);
            }
            let made = known.into_iter().map(|(row, code)| Made {
                code,
                target: target(row),
            });
            self.made().extend(made);
            self.batches.fetch_add(1, Ordering::SeqCst);
            pass(PAUSE * 10);
        }
    }

    /// Creates links and revokes each, again until it is acknowledged.
    fn revoke(&self, client: &Client<'_>) {
        while self.goes_on() {
            let Some(Made { code, .. }) = client.create("https://example.com/revoked") else {
                continue;
            };
            while client
                .send("DELETE", &format!("/v1/links/{code}"), &[], "")
                .is_none()
            {
                if !self.goes_on() {
                    return;
                }
            }
            self.revoked().push(code);
            pass(PAUSE);
        }
    }

    /// Follows links, old and new ones.
    fn follow(&self, port: u16) {
        let mut chance = Chance::default();
        let mut visitor = Visitor::new(port);
        while self.goes_on() {
            let made = {
                let made = self.made();
                let place = chance.below(made.len().max(1) as u64) as usize;
                made.get(place).cloned()
            };
            if let Some(Made { code, target }) = made {
                let answer = visitor.get(&format!("/{code}"), &[]);
                assert_eq!(
                    (answer.status, answer.location()),
                    (302, Some(&*target)),
                    "{code}"
                );
                self.redirects.fetch_add(1, Ordering::SeqCst);
            }
            pass(PAUSE);
        }
    }

    /// Follows links that only the database has. They are found or cannot be looked up, and are never unknown.
    fn follow_unpublished(&self, port: u16, codes: &[String]) {
        let mut visitor = Visitor::new(port);
        for code in codes {
            if !self.goes_on() {
                return;
            }
            let status = visitor.get(&format!("/{code}"), &[]).status;
            assert!([302, 503, 504].contains(&status), "{code}: {status}");
            pass(PAUSE * 16);
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_postgres_fails_over() {
    let directory = directory();
    let began = Instant::now();
    let mut cluster = Patroni::start(directory.path());
    println!("the cluster is complete after {:.1?}", began.elapsed());
    let mut stack = Stack::with(&StackOptions {
        database: Some(cluster.url()),
        ..StackOptions::default()
    });
    // The defaults, in place of the long limits of other tests.
    for (name, value) in [("ACQUIRE", "1000"), ("STATEMENT", "2000"), ("LOCK", "1000")] {
        let variable = format!("SHORTLINK_DATABASE__{name}_TIMEOUT_MS");
        stack.sidecar.environment.push((variable, value.to_owned()));
    }
    let standbys = cluster.url().replace("=read-write", "=standby");
    stack.sidecar.read_from(&standbys, MAX_LAG);
    let unpublished = stack.sidecar.sample(500, &[]);
    let ledger = Ledger::default();
    let client = || Client {
        port: stack.nginx.internal_port,
        key: &stack.sidecar.key,
        refused: &ledger.refused,
    };
    let public = stack.nginx.public_port;
    thread::scope(|scope| {
        let _over = OverAtEnd(&ledger.is_over);
        for name in ["one", "two"] {
            let (client, ledger) = (client(), &ledger);
            scope.spawn(move || ledger.make_singles(&client, name));
        }
        let (batches, revocations, ledger) = (client(), client(), &ledger);
        scope.spawn(move || ledger.make_batches(&batches));
        scope.spawn(move || ledger.revoke(&revocations));
        scope.spawn(move || ledger.follow(public));
        scope.spawn(|| ledger.follow_unpublished(public, &unpublished));

        let port = stack.sidecar.port;
        let reads = || {
            let page = http::get(port, "/metrics");
            let page = Page::read(&String::from_utf8_lossy(&page.body));
            page.sum("shortlink_replica_reads_total")
        };
        let over = |cluster: &Patroni, old, fault: &str, at: Instant| {
            eventually("another server is the primary", FAILOVER, || {
                cluster.primary_except(Some(old))
            });
            let writable = Instant::now();
            let client = client();
            let target = format!("https://example.com/{}", fault.replace(' ', "-"));
            let made = eventually("a link is created", FAILOVER, || client.create(&target));
            println!(
                "{fault}: another primary after {:.1?}, links after another {:.2?}",
                writable - at,
                writable.elapsed()
            );
            assert!(
                writable.elapsed() < BACK,
                "{fault}: {:?}",
                writable.elapsed()
            );
            ledger.made().push(made);
            ledger.wait_for_more();
            let before = reads();
            until("a standby is read again", SOON, || {
                cluster.show_timelines(old);
                client.send("GET", "/v1/links?limit=1", &[], "");
                reads() > before
            });
        };
        let begin = |cluster: &Patroni| {
            cluster.wait_until_complete();
            ledger.wait_for_more();
            (cluster.primary(), Instant::now())
        };

        let (old, at) = begin(&cluster);
        cluster.switch_over();
        over(&cluster, old, "switched over", at);

        let (old, at) = begin(&cluster);
        cluster.kill(old);
        over(&cluster, old, "killed", at);
        cluster.start_again(old);

        // Sessions with the former primary go on, and it takes itself for the primary.
        let (old, at) = begin(&cluster);
        cluster.hang(old);
        over(&cluster, old, "hung", at);
        for code in stack.sidecar.sample(100, &[]) {
            assert_eq!(stack.follow(&code).status, 302, "{code}");
        }
        cluster.go_on(old);

        let (old, at) = begin(&cluster);
        cluster.set_network(old, Mode::Silent);
        over(&cluster, old, "cut off", at);
        cluster.set_network(old, Mode::Open);
        begin(&cluster);
    });

    let (made, revoked) = (ledger.made(), ledger.revoked());
    println!(
        "{} links in {} batches and one by one, {} revocations, {} redirects, {} refusals; {:.0?} in all",
        made.len(),
        ledger.batches.load(Ordering::SeqCst),
        revoked.len(),
        ledger.redirects.load(Ordering::SeqCst),
        ledger.refused.load(Ordering::SeqCst),
        began.elapsed(),
    );
    let codes: HashSet<&String> = made
        .iter()
        .map(|made| &made.code)
        .chain(&*revoked)
        .collect();
    assert_eq!(
        codes.len(),
        made.len() + revoked.len(),
        "a code was given twice"
    );
    let stored = cluster.query("SELECT code, target, revoked_at IS NULL FROM links");
    let stored: HashMap<&str, (&str, &str)> = stored
        .lines()
        .map(|line| {
            let (code, rest) = line.split_once('|').expect("three columns");
            (code, rest.rsplit_once('|').expect("three columns"))
        })
        .collect();
    for Made { code, target } in &*made {
        assert_eq!(stored.get(&**code), Some(&(&**target, "t")), "{code}");
    }
    for Made { code, target } in made.iter().step_by(made.len() / 1000 + 1) {
        assert_eq!(stack.follow(code).location(), Some(&**target));
    }
    for code in &*revoked {
        assert_eq!(stored.get(&**code).map(|link| link.1), Some("f"), "{code}");
        assert_eq!(stack.follow(code).status, 410, "{code}");
    }
    // Each row of an answered batch has one link, however often it was sent.
    let twice = "SELECT count(*) FROM (SELECT 1 FROM links WHERE target LIKE '%/batch-%' \
                 GROUP BY target HAVING count(*) > 1) AS twice";
    assert_eq!(cluster.query(twice), "0");
    until("the outbox is empty", SOON, || {
        cluster.query("SELECT count(*) FROM outbox") == "0"
    });
    let counted = cluster.query("SELECT sum(links) = (SELECT count(*) FROM links) FROM code_usage");
    assert_eq!(counted, "t");
    for code in &unpublished {
        assert_eq!(stack.follow(code).status, 302, "{code}");
    }
}
