//! Two nodes, each an nginx with domains of its own and a sidecar, on one Redis and one PostgreSQL.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::made::make_batch;
use shortlink_tests::nginx::{Nginx, NginxOptions};
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::{Sidecar, api};
use shortlink_tests::stack::{directory, text};
use shortlink_tests::wait::{SOON, until};
use tempfile::TempDir;

const TARGET: &str = "https://target.example/";

/// The limit until all visits are counted: another sidecar takes over those of a killed one after
/// half a minute.
const TAKEN_OVER: Duration = Duration::from_secs(90);

/// One of those that share.
struct Node {
    nginx: Nginx,
    sidecar: Sidecar,
    /// The names that it redirects on, the active one first.
    names: Vec<&'static str>,
}

impl Node {
    fn start(
        directory: &Path,
        redis: &Redis,
        database: &str,
        table: &str,
        names: &[&'static str],
    ) -> Self {
        let sidecar = Sidecar::start_on(
            database,
            &directory.join("sidecar"),
            ports::free(),
            redis.port,
            "",
        );
        let mut nginx = Nginx::prepare(
            &directory.join("nginx"),
            (ports::free(), ports::free()),
            redis.port,
            sidecar.port,
            &NginxOptions::default(),
        );
        write_table(&nginx, table);
        nginx.start_again();
        Self {
            nginx,
            sidecar,
            names: names.to_vec(),
        }
    }

    fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        api(
            self.nginx.internal_port,
            &self.sidecar.key,
            method,
            path,
            body,
        )
    }

    /// Creates a link; returns its code. Its short URL is on the active domain.
    fn link(&self) -> String {
        let made = self.api("POST", "/v1/links", Some(&json!({ "longUrl": TARGET })));
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        let code = text(&made.json(), "shortCode");
        assert_eq!(text(&made.json(), "shortUrl"), self.short_url(&code));
        code
    }

    fn short_url(&self, code: &str) -> String {
        format!("https://{}/{code}", self.names[0])
    }

    /// Follows a code on a host; `None` when there is no answer.
    fn follow_on(&self, host: &str, code: &str) -> Option<Response> {
        let mut connection = Connection::open(self.nginx.public_port).expect("a connection");
        let request = http::request("GET", &format!("/{code}"), &[("Host", host)], b"");
        connection.send(&request).expect("sent");
        connection.receive("GET").expect("read")
    }

    /// Follows a code on the active domain.
    fn follow(&self, code: &str) -> Response {
        let answer = self.follow_on(self.names[0], code);
        answer.expect("an answer")
    }

    fn edge(&self, code: &str) -> String {
        let answer = self.follow(code);
        answer.header("X-Edge").unwrap_or_default().to_owned()
    }

    /// Has all workers keep what a code says.
    fn keep(&self, code: &str) {
        let what = format!("{code} is cached");
        until(&what, SOON, || {
            (0..20).all(|_| self.edge(code) == "redirect/cache")
        });
    }

    /// Waits until no worker redirects a code any more.
    fn wait_until_gone(&self, code: &str) {
        until(&format!("{code} is gone"), SOON, || {
            (0..20).all(|_| self.follow(code).status == 410)
        });
    }
}

fn write_table(nginx: &Nginx, table: &str) {
    let text = format!("shortlink_domains {{\n{table}\n}}\n");
    fs::write(nginx.file("domains.conf"), text).expect("domains.conf");
}

/// Two nodes and what they share. They are ended in the order of the fields.
struct Nodes {
    a: Node,
    b: Node,
    redis: Redis,
    _postgres: Postgres,
    _directory: TempDir,
}

impl Nodes {
    fn start() -> Self {
        let directory = directory();
        let path = directory.path();
        let postgres = Postgres::start(&path.join("postgres"));
        let redis = Redis::start(&path.join("redis"), ports::free());
        let start = |name: &str, table, names: &[&'static str]| {
            Node::start(&path.join(name), &redis, &postgres.url(), table, names)
        };
        fs::create_dir(path.join("a")).expect("a directory");
        fs::create_dir(path.join("b")).expect("a directory");
        let a = start(
            "a",
            "a.example.net active;\na-old.example.net serving;",
            &["a.example.net", "a-old.example.net"],
        );
        let b = start(
            "b",
            "b.example.net active;\nb-old.example.net serving;\nb-gone.example.net retired;",
            &["b.example.net", "b-old.example.net"],
        );
        Self {
            a,
            b,
            redis,
            _postgres: postgres,
            _directory: directory,
        }
    }

    fn both(&self) -> [&Node; 2] {
        [&self.a, &self.b]
    }

    /// Checks that a code redirects on all domains of both nodes; returns how often it did.
    fn assert_redirects(&self, code: &str) -> u64 {
        let mut count = 0;
        for node in self.both() {
            for host in &node.names {
                let answer = node.follow_on(host, code).expect("an answer");
                let found = (answer.status, answer.location());
                assert_eq!(found, (302, Some(TARGET)), "{host}/{code}");
                count += 1;
            }
        }
        count
    }
}

#[test]
fn each_node_has_its_domains_and_all_codes() {
    const SINGLE: usize = 60;
    const BATCH: usize = 400;
    let mut nodes = Nodes::start();
    // Both create links at the same time, one by one and in bulk.
    let codes: Vec<String> = thread::scope(|scope| {
        let makers = nodes.both().map(|node| {
            let singles = scope.spawn(move || {
                let made = (0..SINGLE).map(|_| node.link());
                made.collect::<Vec<_>>()
            });
            let batch = scope.spawn(move || {
                let headers = [("X-Api-Key", &*node.sidecar.key)];
                let targets = vec![TARGET.to_owned(); BATCH];
                let made = make_batch(node.nginx.internal_port, &headers, &targets).made;
                made.into_iter().map(|(_, made)| made.code).collect()
            });
            [singles, batch]
        });
        let makers = makers.into_iter().flatten();
        let codes: Vec<Vec<String>> = makers.map(|maker| maker.join().expect("codes")).collect();
        codes.concat()
    });
    assert_eq!(codes.len(), 2 * (SINGLE + BATCH));
    let different: HashSet<&String> = codes.iter().collect();
    assert_eq!(different.len(), codes.len(), "a code was given out twice");
    for code in codes.iter().step_by(37) {
        nodes.assert_redirects(code);
        // Each node returns the link on its own domain.
        for node in nodes.both() {
            let link = node.api("GET", &format!("/v1/links/{code}"), None).json();
            assert_eq!(text(&link, "shortUrl"), node.short_url(code));
        }
    }
    // A node does not answer for a domain that it does not list, whatever the other does.
    let code = &codes[0];
    assert!(nodes.a.follow_on("b.example.net", code).is_none());
    assert!(nodes.b.follow_on("a.example.net", code).is_none());
    let gone = nodes.b.follow_on("b-gone.example.net", code);
    assert_eq!(gone.expect("an answer").status, 410);

    // Only what a node lists itself is known to lead back.
    let to = |node: &Node, host: &str| {
        let body = json!({ "longUrl": format!("https://{host}/x") });
        node.api("POST", "/v1/links", Some(&body)).status
    };
    assert_eq!(to(&nodes.a, "a.example.net"), 422);
    assert_eq!(to(&nodes.a, "b.example.net"), 201);

    // A swap on one of them, which from now on knows a name of the other, too.
    write_table(
        &nodes.a.nginx,
        "new.example.net active;\na.example.net serving;\na-old.example.net retired;\n\
         b.example.net serving;",
    );
    let workers = nodes.b.nginx.workers();
    nodes.a.nginx.reload();
    nodes.a.names = vec!["new.example.net", "a.example.net", "b.example.net"];
    assert_eq!(to(&nodes.a, "b.example.net"), 422);
    let after = [nodes.a.link(), nodes.b.link()];
    for code in codes.iter().step_by(211).chain(&after) {
        nodes.assert_redirects(code);
    }
    let gone = nodes.a.follow_on("a-old.example.net", code);
    assert_eq!(gone.expect("an answer").status, 410);
    assert_eq!(
        nodes.b.nginx.workers(),
        workers,
        "the other goes on as it was"
    );
    for node in nodes.both() {
        assert_eq!(node.nginx.complaints(&[]), [""; 0]);
    }
}

#[test]
fn what_one_node_changes_the_other_no_longer_keeps() {
    let nodes = Nodes::start();
    let pairs = [(&nodes.a, &nodes.b), (&nodes.b, &nodes.a)];
    for (one, other) in pairs {
        let (revoked, moved, paused) = (one.link(), other.link(), one.link());
        for code in [&revoked, &moved, &paused] {
            one.keep(code);
            other.keep(code);
        }
        let answer = one.api("DELETE", &format!("/v1/links/{revoked}"), None);
        assert_eq!(answer.status, 200);
        other.wait_until_gone(&revoked);
        one.wait_until_gone(&revoked);

        let new = "https://target.example/new";
        let change = json!({ "longUrl": new });
        let answer = one.api("PATCH", &format!("/v1/links/{moved}"), Some(&change));
        assert_eq!(answer.status, 200);
        until("the new target is seen", SOON, || {
            (0..20).all(|_| other.follow(&moved).location() == Some(new))
        });

        let pause = |node: &Node, verb: &str| {
            let answer = node.api("POST", &format!("/v1/links/{paused}/{verb}"), None);
            assert_eq!(answer.status, 200, "{verb}");
        };
        pause(one, "pause");
        other.wait_until_gone(&paused);
        // The other takes back what the one has done.
        pause(other, "resume");
        one.keep(&paused);
    }
}

/// Returns the number of all visits.
fn total(node: &Node) -> u64 {
    let stats = node.api("GET", "/v1/stats", None).json();
    stats["visits"]["total"].as_u64().expect("a number")
}

#[test]
fn a_node_without_its_sidecar_redirects_and_the_other_does_the_rest() {
    let mut nodes = Nodes::start();
    let before: Vec<String> = (0..20)
        .map(|number| nodes.both()[number % 2].link())
        .collect();
    let mut visits = 0;
    for code in &before[..10] {
        visits += nodes.assert_redirects(code);
    }
    until("the visits of both are counted", SOON, || {
        total(&nodes.a) == visits
    });
    assert_eq!(total(&nodes.b), visits);

    nodes.b.sidecar.kill();
    // Links of this time too, and those that had no visit there yet.
    let made: Vec<String> = (0..10).map(|_| nodes.a.link()).collect();
    for code in before.iter().chain(&made) {
        visits += nodes.assert_redirects(code);
    }
    let body = json!({ "longUrl": TARGET });
    let refused = nodes.b.api("POST", "/v1/links", Some(&body)).status;
    assert_eq!(refused, 502);
    // The other finds a link that Redis has lost in SQL, and here it is not reported as unknown.
    let (lost, revoked) = (&made[0], &made[1]);
    nodes.b.keep(revoked);
    nodes.redis.command(&["DEL", &format!("sl:l:{lost}")]);
    until("it is not cached any more", SOON, || {
        (0..20).all(|_| nodes.b.follow(lost).status == 503)
    });
    assert_eq!(nodes.a.follow(lost).location(), Some(TARGET));
    // That has put it back.
    until("Redis has it again", SOON, || {
        nodes.b.follow(lost).location() == Some(TARGET)
    });
    let answer = nodes.a.api("DELETE", &format!("/v1/links/{revoked}"), None);
    assert_eq!(answer.status, 200);
    nodes.b.wait_until_gone(revoked);
    // nginx reloads without its sidecar: new workers keep nothing, and read Redis.
    nodes.b.nginx.reload();
    for code in &before {
        visits += nodes.assert_redirects(code);
    }

    // Each visit is counted once, whichever of the two had taken it.
    let told = |node: &Node| {
        let page = http::get(node.nginx.internal_port, "/edge/metrics").body;
        let page = String::from_utf8(page).expect("text");
        shortlink_tests::visits::Account::of(&page)
    };
    until("Redis has all visits", SOON, || {
        nodes.both().iter().all(|node| told(node).held == 0)
    });
    let all: u64 = nodes.both().iter().map(|node| told(node).total).sum();
    assert!(all >= visits, "{all} visits, {visits} at least");
    until("all visits are counted", TAKEN_OVER, || {
        total(&nodes.a) == all
    });
    let by_domain = nodes.a.api("GET", "/v1/stats?by=domain", None).json();
    for host in ["a.example.net", "a-old.example.net", "b-old.example.net"] {
        let domains = by_domain["by"]["domain"].as_array().expect("domains");
        let found = domains.iter().find(|domain| domain["value"] == host);
        // Only the active domain of the second was visited besides.
        let found = found.unwrap_or_else(|| panic!("no {host} in {by_domain}"))["total"].clone();
        let expected = if host == "a.example.net" {
            visits / 4 + 1
        } else {
            visits / 4
        };
        assert_eq!(found, expected, "{host}");
    }

    nodes.b.sidecar.start_again();
    let code = nodes.b.link();
    visits = total(&nodes.b) + nodes.assert_redirects(&code);
    until("both report the same", SOON, || {
        nodes.both().iter().all(|node| total(node) == visits)
    });
}
