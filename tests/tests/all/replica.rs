//! A replica of the database: listings are read from it, and visitors are answered from it while the primary is away.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shortlink_tests::http;
use shortlink_tests::metrics::Page;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, directory, text};
use shortlink_tests::wait::{SOON, eventually, pass, until};
use tempfile::TempDir;

const TARGET: &str = "https://example.com/target";

/// `database.replica_max_lag_s`.
const MAX_LAG: Duration = Duration::from_secs(4);

/// Everything, on a primary with a replica.
struct Replicated {
    stack: Stack,
    primary: Postgres,
    replica: Postgres,
    _directory: TempDir,
}

impl Replicated {
    fn start() -> Self {
        let directory = directory();
        let primary = Postgres::start(&directory.path().join("primary"));
        let mut stack = Stack::on(&primary);
        let replica = primary.replica(&directory.path().join("replica"));
        let url = format!("{}?target_session_attrs=standby", replica.url());
        stack.sidecar.read_from(&url, MAX_LAG);
        let replicated = Self {
            stack,
            primary,
            replica,
            _directory: directory,
        };
        replicated.wait_until_current();
        replicated
    }

    fn metric(&self, name: &str) -> f64 {
        let page = http::get(self.stack.sidecar.port, "/metrics");
        Page::read(&String::from_utf8_lossy(&page.body)).sum(name)
    }

    /// Waits until the replica responds and has replayed what was written a moment ago.
    fn wait_until_current(&self) {
        until("the replica is current", SOON, || {
            self.metric("shortlink_replica_up") == 1.0
                && self.metric("shortlink_replica_lag_seconds") < 2.0
        });
    }

    /// Halts the replica before the next change.
    fn pause(&self) {
        self.wait_until_current();
        self.replica.query("SELECT pg_wal_replay_pause()");
        until("the replica replays nothing", SOON, || {
            self.replica.query("SELECT pg_get_wal_replay_pause_state()") == "paused"
        });
    }

    fn resume(&self) {
        self.replica.query("SELECT pg_wal_replay_resume()");
    }

    fn listed(&self) -> Vec<String> {
        let listed = self.stack.api("GET", "/v1/links", None).json();
        let links = listed["links"].as_array().expect("links");
        links.iter().map(|link| text(link, "shortCode")).collect()
    }

    fn revoke(&self, code: &str) {
        let revoked = self.stack.api("DELETE", &format!("/v1/links/{code}"), None);
        assert_eq!(revoked.status, 200);
    }

    /// Takes a record out of Redis, so that the fallback is asked.
    fn drop_record(&self, code: &str) {
        self.stack.redis.command(&["DEL", &format!("sl:l:{code}")]);
    }

    /// Follows a code until it is answered with a status, and never with another one than 503 before.
    fn follow_to(&self, code: &str, status: u16) -> http::Response {
        eventually("the answer", SOON, || {
            let answer = self.stack.follow(code);
            assert!([status, 503].contains(&answer.status), "{}", answer.status);
            (answer.status == status).then_some(answer)
        })
    }

    /// Follows a code for a while, which must never redirect.
    fn never_redirects(&self, code: &str) {
        assert!(self.stops_redirecting(code));
    }

    /// Follows a code for a while; returns false as soon as it redirects.
    fn stops_redirecting(&self, code: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            let answer = self.stack.follow(code);
            if answer.status == 302 {
                return false;
            }
            assert!([410, 503].contains(&answer.status), "{}", answer.status);
        }
        true
    }

    /// Kills the primary, and waits until only the watermark of Redis proves what the replica has.
    fn lose_primary(&mut self) {
        self.primary.kill();
        pass(MAX_LAG + Duration::from_secs(1));
    }
}

#[test]
fn listings_and_statistics_are_read_from_the_replica_while_it_is_current() {
    let mut it = Replicated::start();
    let old = it.stack.link(TARGET);
    until("the replica has the link", SOON, || it.listed() == [&*old]);
    let reads = || it.metric("shortlink_replica_reads_total");
    let before = reads();
    let stats = it.stack.api("GET", &format!("/v1/links/{old}/stats"), None);
    assert_eq!(stats.status, 200);
    until("statistics are read there", SOON, || reads() > before);

    // A new link is not in a listing yet, but is found by its code.
    it.pause();
    let new = it.stack.link(TARGET);
    assert_eq!(it.listed(), [&*old]);
    let found = it.stack.api("GET", &format!("/v1/links/{new}"), None);
    assert_eq!(found.status, 200);
    // Beyond the bound, the primary answers.
    until("the primary answers", SOON, || {
        it.listed() == [&*new, &*old]
    });
    assert!(it.metric("shortlink_replica_lag_seconds") > MAX_LAG.as_secs_f64());
    it.resume();
    it.wait_until_current();
    let before = it.metric("shortlink_replica_reads_total");
    until("the replica answers again", SOON, || {
        assert_eq!(it.listed(), [&*new, &*old]);
        it.metric("shortlink_replica_reads_total") > before
    });

    it.replica.kill();
    assert_eq!(it.listed(), [&*new, &*old]);
    until("the loss shows", SOON, || {
        it.metric("shortlink_replica_up") == 0.0
    });
    it.replica.start_again();
    it.wait_until_current();
    let doctor = it
        .stack
        .sidecar
        .run(&["doctor", "--without-nginx", "--json"]);
    let findings: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let findings = findings["checks"].as_array().expect("checks");
    let finding = findings.iter().find(|it| it["check"] == "database-replica");
    assert_eq!(finding.expect("a check")["state"], "ok", "{findings:?}");
}

#[test]
fn visitors_are_answered_by_the_replica_while_the_primary_is_away() {
    let mut it = Replicated::start();
    let live = it.stack.link(TARGET);
    let permanent = json!({ "longUrl": TARGET, "redirectStatus": 301 });
    let permanent = text(&it.stack.create(&permanent), "shortCode");
    let revoked = it.stack.link(TARGET);
    it.revoke(&revoked);
    until("the replica has all", SOON, || {
        let statement = "SELECT count(*) FROM links WHERE revoked_at IS NOT NULL";
        it.replica.query(statement) == "1"
    });
    it.wait_until_current();
    it.lose_primary();
    it.stack.redis.command(&["FLUSHALL"]);
    let answer = it.follow_to(&live, 302);
    assert_eq!(answer.location(), Some(TARGET));
    it.follow_to(&revoked, 410);
    // Browsers would cache the answer for good.
    let answer = it.follow_to(&permanent, 302);
    assert_eq!(answer.location(), Some(TARGET));
    // A link that the replica does not have may be new.
    assert_eq!(it.stack.follow("abcdefg").status, 503);
    // In Redis, an old answer would outlive its bound.
    assert_eq!(it.stack.redis.record(&live), None);
    assert!(it.metric("shortlink_replica_reads_total") > 0.0);

    it.primary.start_again();
    until("the primary answers", SOON, || {
        it.stack.follow("abcdefg").status == 404
    });
    until("its answers are in Redis", SOON, || {
        it.stack.follow(&live).status == 302 && it.stack.redis.record(&live).is_some()
    });
}

#[test]
fn a_replica_that_lacks_a_revocation_revives_no_link() {
    let mut it = Replicated::start();
    let codes: Vec<String> = (0..3).map(|_| it.stack.link(TARGET)).collect();
    let [late, recent, live] = &codes[..] else {
        panic!("three codes")
    };
    until("the replica has the links", SOON, || it.listed().len() == 3);

    // The replica was beyond its bound when the primary went away.
    it.pause();
    it.revoke(late);
    // The last sample may be older than the answer by an interval.
    until("the replica is late", SOON, || {
        it.metric("shortlink_replica_lag_seconds") > MAX_LAG.as_secs_f64() + 2.0
    });
    it.lose_primary();
    it.drop_record(late);
    it.never_redirects(late);
    it.primary.start_again();
    it.resume();
    it.follow_to(late, 410);

    // It was within its bound: Redis knows of the revocation.
    it.pause();
    it.revoke(recent);
    it.lose_primary();
    it.drop_record(live);
    it.follow_to(live, 302);
    it.never_redirects(recent);
    it.follow_to(recent, 410);

    // Another sidecar reaches the primary: changes go on, which the watermark shows.
    let key = "sl:gen";
    let standing = it.stack.redis.command(&["GET", key]);
    let mut fields: Vec<u64> = standing
        .split(' ')
        .map(|it| it.parse().expect("a number"))
        .collect();
    fields[1] += 1;
    let raised = fields
        .iter()
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    it.stack.redis.command(&["SET", key, &raised]);
    // A look that was under way may still show the watermark before, even after a 503 for want of any.
    until("the watermark is noticed", SOON, || {
        it.stops_redirecting(live)
    });
    it.stack.redis.command(&["SET", key, &standing]);
    it.follow_to(live, 302);
}
