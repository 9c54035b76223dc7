//! Repair of Redis, and the report on the space of codes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shortlink_tests::calendar::format_time;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::wait::{SOON, until};

fn with(sidecar: &str) -> Stack {
    Stack::with(&StackOptions {
        sidecar: sidecar.to_owned(),
        ..StackOptions::default()
    })
}

/// Returns the target of a sample link.
fn target(code: &str) -> String {
    format!("https://www.example.com/campaign/spring?recipient={code}&source=sms")
}

fn keys(stack: &Stack) -> u64 {
    stack.redis.keys() as u64
}

fn log(stack: &Stack) -> std::path::PathBuf {
    stack.directory().join("command.log")
}

fn said(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// Follows codes on some connections until `work` is done; every one must redirect to its target,
/// every time. Answers how often they were followed.
fn while_all_redirect(stack: &Stack, codes: &[String], work: impl FnOnce()) -> u64 {
    const CONNECTIONS: usize = 4;
    let (port, is_done, followed) = (
        stack.nginx.public_port,
        AtomicBool::new(false),
        AtomicU64::new(0),
    );
    thread::scope(|scope| {
        let each = codes.chunks(codes.len().div_ceil(CONNECTIONS));
        let followers: Vec<_> = each
            .map(|codes| {
                let (is_done, followed) = (&is_done, &followed);
                scope.spawn(move || {
                    for code in codes.iter().cycle() {
                        if is_done.load(Ordering::SeqCst) {
                            return;
                        }
                        let answer = http::get(port, &format!("/{code}"));
                        let expected = target(code);
                        assert_eq!(
                            (answer.status, answer.location()),
                            (302, Some(&*expected)),
                            "{code} {:?}",
                            answer.header("X-Edge")
                        );
                        followed.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let counted = |least: u64| {
            let before = followed.load(Ordering::SeqCst);
            until("links are followed", SOON, || {
                followed.load(Ordering::SeqCst) >= before + least
                    || followers.iter().any(thread::ScopedJoinHandle::is_finished)
            });
        };
        counted(200);
        work();
        counted(200);
        is_done.store(true, Ordering::SeqCst);
    });
    followed.load(Ordering::SeqCst)
}

#[test]
fn a_redis_that_was_flushed_is_rebuilt_under_load_and_every_link_redirects_all_the_time() {
    let stack = Stack::start();
    let codes = stack.sidecar.sample(20_000, &[]);
    let done = stack.sidecar.run_ok(&["rebuild"]);
    assert!(done.contains("20,000 added"), "{done}");
    assert_eq!(keys(&stack), 20_000);
    while_all_redirect(&stack, &codes, || {
        for _ in 0..3 {
            stack.redis.command(&["FLUSHALL"]);
            let done = stack.sidecar.run_ok(&["rebuild"]);
            assert!(done.starts_with("20,000 links"), "{done}");
            assert_eq!(keys(&stack), 20_000);
        }
    });
    let done = stack.sidecar.run_ok(&["rebuild"]);
    assert!(done.contains("20,000 right already"), "{done}");
    assert_eq!(stack.sidecar.run(&["audit"]).status.code(), Some(0));
}

#[test]
fn a_redis_that_was_flushed_or_replaced_is_filled_by_itself() {
    let mut stack = with("[upkeep]\nreconcile_per_s = 0\nrebuild = true");
    let codes = stack.sidecar.sample(5000, &[]);
    until("links are written that Redis never had", SOON, || {
        keys(&stack) == 5000
    });
    while_all_redirect(&stack, &codes, || {
        stack.redis.command(&["FLUSHALL"]);
        until("all links are there again", SOON, || keys(&stack) == 5000);
    });
    stack.redis.kill_and_forget();
    stack.redis.start_again();
    until("all links are there again", SOON, || keys(&stack) == 5000);
    assert_eq!(stack.sidecar.run(&["audit"]).status.code(), Some(0));
}

#[test]
fn a_rebuild_that_was_killed_or_interrupted_is_gone_on_with() {
    let stack = Stack::start();
    let links = 60_000;
    stack.sidecar.sample(links, &[]);
    let links = links as u64;
    let log = log(&stack);
    let mut killed = stack.sidecar.begin(&["rebuild"], &log);
    until("some links are written", SOON, || keys(&stack) > 1000);
    // It stands still until it is dead.
    stack.redis.hang();
    killed.kill();
    stack.redis.go_on();
    assert!(keys(&stack) < links, "it was too quick to be killed");

    // A claim without renewals ends by itself; until then the next run waits.
    let mut interrupted = stack.sidecar.begin(&["rebuild"], &log);
    let before = keys(&stack);
    // So many that it is done with the first, and will say where the next run goes on.
    until("more links are written", SOON, || {
        keys(&stack) > before + 20_000
    });
    stack.redis.hang();
    interrupted.signal(Signal::SIGINT);
    stack.redis.go_on();
    assert_eq!(interrupted.wait(SOON).code(), Some(1), "{}", said(&log));
    assert!(
        said(&log).contains("the next run continues"),
        "{}",
        said(&log)
    );
    assert!(keys(&stack) < links, "it was too quick to be interrupted");

    let mut last = stack.sidecar.begin(&["rebuild"], &log);
    assert_eq!(last.wait(SOON).code(), Some(0), "{}", said(&log));
    assert!(said(&log).contains("were done before"), "{}", said(&log));
    assert_eq!(keys(&stack), links);
    assert_eq!(stack.sidecar.run(&["audit"]).status.code(), Some(0));

    let anew = stack.sidecar.run_ok(&["rebuild", "--restart"]);
    assert!(anew.contains("60,000 right already"), "{anew}");
}

#[test]
fn a_rebuild_without_redis_fails_and_says_so() {
    let mut stack = Stack::start();
    stack.sidecar.sample(10, &[]);
    stack.redis.kill();
    let log = log(&stack);
    let mut rebuild = stack.sidecar.begin(&["rebuild"], &log);
    // Redis is waited for; it comes back in time for this one.
    stack.redis.start_again();
    assert_eq!(rebuild.wait(SOON).code(), Some(0), "{}", said(&log));
    assert_eq!(keys(&stack), 10);
}

#[test]
fn a_rebuild_never_takes_what_is_newer_away() {
    let stack = Stack::start();
    let codes = stack.sidecar.sample(30_000, &[]);
    let newer = format!("1 302 9 0 {}", target(&codes[7]));
    stack.redis.set_record(&codes[7], &newer);
    let log = log(&stack);
    let mut rebuild = stack.sidecar.begin(&["rebuild"], &log);
    let changed: Vec<&String> = codes.iter().step_by(codes.len() / 100).skip(1).collect();
    for code in &changed {
        let body = json!({ "longUrl": "https://example.com/changed" });
        let answer = stack.api("PATCH", &format!("/v1/links/{code}"), Some(&body));
        assert_eq!(answer.status, 200);
    }
    assert_eq!(rebuild.wait(SOON).code(), Some(0), "{}", said(&log));
    for code in changed {
        until("the change is published", SOON, || {
            stack.redis.record(code).as_deref() == Some("1 302 2 0 https://example.com/changed")
        });
    }
    assert_eq!(stack.redis.record(&codes[7]), Some(newer));
    assert!(said(&log).contains(" newer in Redis"), "{}", said(&log));
    // One after the other too, with everything in place.
    let again = stack.sidecar.run_ok(&["rebuild"]);
    assert!(
        again.contains("0 replaced, 29,999 right already, 1 newer"),
        "{again}"
    );
}

#[test]
fn dead_links_are_rebuilt_too_and_answer_410() {
    let stack = Stack::start();
    let revoked = stack.link("https://example.com/");
    let path = format!("/v1/links/{revoked}");
    assert_eq!(stack.api("DELETE", &path, None).status, 200);
    let expired = stack.sidecar.sample(1, &["--expired-days-ago", "2"]);
    stack.redis.command(&["FLUSHALL"]);
    stack.sidecar.run_ok(&["rebuild"]);
    for (code, record) in [(&revoked, "1 410 2"), (&expired[0], "1 410 1")] {
        assert_eq!(stack.redis.record(code).as_deref(), Some(record));
        // The fallback answers until the sidecar vouches for the new data set.
        until("the edge answers", SOON, || {
            let answer = stack.follow(code);
            assert_eq!(answer.status, 410);
            answer.header("X-Edge") == Some("gone/redis")
        });
    }
}

/// Runs an audit; returns its exit code and its report.
fn audit(stack: &Stack, arguments: &[&str]) -> (Option<i32>, Value) {
    let arguments = [&["audit", "--json"], arguments].concat();
    let output = stack.sidecar.run(&arguments);
    let report = String::from_utf8(output.stdout).expect("text");
    let report = serde_json::from_str(&report);
    (output.status.code(), report.unwrap_or(Value::Null))
}

#[test]
fn an_audit_finds_each_kind_of_drift_and_repairs_it() {
    let mut stack = Stack::start();
    let codes = stack.sidecar.sample(3000, &[]);
    stack.sidecar.run_ok(&["rebuild"]);
    let (code, report) = audit(&stack, &[]);
    assert_eq!(
        (code, &report["links"], &report["keys"]),
        (Some(0), &json!(3000), &json!(3000))
    );

    let path = format!("/v1/links/{}", codes[2]);
    let body = json!({ "redirectStatus": 307 });
    assert_eq!(stack.api("PATCH", &path, Some(&body)).status, 200);
    let key = |place: usize| format!("sl:l:{}", codes[place]);
    let good = |place: usize| format!("1 302 1 0 {}", target(&codes[place]));
    stack.redis.command(&["DEL", &key(0)]);
    stack.redis.set_record(&codes[1], "1 404 0");
    stack.redis.set_record(&codes[2], &good(2));
    stack
        .redis
        .set_record(&codes[3], &good(3).replace(" 1 0 ", " 5 0 "));
    stack
        .redis
        .set_record(&codes[4], "1 302 1 0 https://example.com/elsewhere");
    stack.redis.command(&["DEL", &key(5)]);
    stack.redis.command(&["RPUSH", &key(5), "x"]);
    stack
        .redis
        .set_record("nolinkhere", "1 302 1 0 https://example.com/");
    stack.redis.set_record("notknown", "1 404 0");
    let expected: BTreeMap<&str, Value> = [
        ("missing", json!(codes[0])),
        ("negative", json!(codes[1])),
        ("older", json!(codes[2])),
        ("newer", json!(codes[3])),
        ("different", json!(codes[4])),
        ("wrongType", json!(codes[5])),
        ("orphan", json!("nolinkhere")),
    ]
    .into();
    let found = |report: &Value| -> BTreeMap<String, Value> {
        let examples = report["examples"].as_array().expect("examples");
        let pair = |it: &Value| (text(it, "kind"), it["code"].clone());
        examples.iter().map(pair).collect()
    };
    let expected: BTreeMap<String, Value> = expected
        .into_iter()
        .map(|(kind, code)| (kind.to_owned(), code))
        .collect();
    // A record is noted a moment after its publication; until then it is no drift.
    until("the change is noted", SOON, || {
        audit(&stack, &[]).1["changing"] == 0
    });
    let (code, report) = audit(&stack, &[]);
    assert_eq!((code, found(&report)), (Some(2), expected.clone()));
    for kind in expected.keys() {
        assert_eq!(report["drift"][kind], 1, "{report}");
    }
    let (code, report) = audit(&stack, &["--examples", "2"]);
    assert_eq!(code, Some(2));
    assert_eq!(report["examples"].as_array().map(Vec::len), Some(2));
    let shown = stack.sidecar.run(&["audit"]);
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("1 missing, 1 negative, 1 older"), "{shown}");

    let (code, report) = audit(&stack, &["--repair"]);
    assert_eq!((code, &report["repaired"]), (Some(0), &json!(7)));
    let (code, report) = audit(&stack, &[]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(stack.redis.record(&codes[0]), Some(good(0)));
    assert_eq!(
        stack.redis.record(&codes[3]),
        Some(good(3).replace(" 1 0 ", " 6 0 "))
    );
    assert_eq!(stack.redis.record("nolinkhere"), None);
    assert!(stack.redis.record("notknown").is_some());
    assert_eq!(stack.follow(&codes[5]).status, 302);

    stack.redis.kill();
    let failed = stack.sidecar.run(&["audit"]);
    assert_eq!(failed.status.code(), Some(1));
}

#[test]
fn links_that_are_made_and_changed_meanwhile_are_no_drift() {
    let stack = Stack::start();
    stack.sidecar.sample(5000, &[]);
    stack.sidecar.run_ok(&["rebuild"]);
    let is_done = AtomicBool::new(false);
    let (port, key) = (stack.sidecar.port, &stack.sidecar.key);
    thread::scope(|scope| {
        scope.spawn(|| {
            let headers = [("X-Api-Key", &**key), ("Content-Type", "application/json")];
            let mut connection = Connection::open(port).expect("a sidecar");
            let mut ask = |method: &str, path: &str, body: &Value| {
                let body = body.to_string();
                let request = http::request(method, path, &headers, body.as_bytes());
                connection.send(&request).expect("a connection");
                connection
                    .receive(method)
                    .expect("HTTP")
                    .expect("an answer")
            };
            let mut number = 0;
            while !is_done.load(Ordering::SeqCst) {
                number += 1;
                let url = format!("https://example.com/{number}");
                let made = ask("POST", "/v1/links", &json!({ "longUrl": url })).json();
                let path = format!("/v1/links/{}", text(&made, "shortCode"));
                let status = if number % 2 == 0 { 301 } else { 307 };
                ask("PATCH", &path, &json!({ "redirectStatus": status }));
            }
        });
        let audits: Vec<_> = (0..5).map(|_| audit(&stack, &[])).collect();
        is_done.store(true, Ordering::SeqCst);
        for (code, report) in audits {
            assert_eq!(code, Some(0), "{report}");
        }
    });
}

#[test]
fn what_redis_has_lost_comes_back_by_itself() {
    let stack = with("[upkeep]\nreconcile_per_s = 1000\nrebuild = false");
    let codes = stack.sidecar.sample(500, &[]);
    until("links are written that Redis never had", SOON, || {
        keys(&stack) == 500
    });
    stack.redis.command(&["DEL", &format!("sl:l:{}", codes[3])]);
    stack.redis.set_record(&codes[4], "1 404 0");
    stack.redis.set_record(&codes[5], "no record");
    let newer = format!("1 302 9 0 {}", target(&codes[6]));
    stack.redis.set_record(&codes[6], &newer);
    for code in &codes[3..6] {
        let good = format!("1 302 1 0 {}", target(code));
        until("the record is right", SOON, || {
            stack.redis.record(code).as_ref() == Some(&good)
        });
    }
    // A newer record is left for the operator.
    assert_eq!(stack.redis.record(&codes[6]), Some(newer));
}

#[test]
fn records_of_links_that_have_expired_are_shortened() {
    let stack = with("[upkeep]\nreconcile_per_s = 0\nrebuild = false\nsweep_every_s = 1");
    let kept = stack.link("https://example.com/kept");
    let soon = format_time(stack.redis.now() + 6);
    let body = json!({ "longUrl": "https://example.com/", "validUntil": soon });
    let code = text(&stack.create(&body), "shortCode");
    assert!(stack.redis.record(&code).expect("a record").len() > 20);
    until("the record is short", SOON, || {
        stack.redis.record(&code).as_deref() == Some("1 410 1")
    });
    assert_eq!(stack.follow(&code).status, 410);
    assert_eq!(stack.follow(&kept).status, 302);
    // It can still be changed: it was not revoked.
    let body = json!({ "validUntil": null });
    let answer = stack.api("PATCH", &format!("/v1/links/{code}"), Some(&body));
    assert_eq!(answer.status, 200);
    assert_eq!(stack.follow(&code).status, 302);
}

#[test]
fn dead_links_are_deleted_after_their_quarantine_and_their_codes_may_be_given_again() {
    // Redis has the records of ended links until they are deleted.
    let stack = with(
        "ended_days = 0\n[links]\nquarantine_days = 365\n\
         [upkeep]\nreconcile_per_s = 0\nrebuild = false\nsweep_every_s = 1",
    );
    let old = stack
        .sidecar
        .sample(1, &["--expired-days-ago", "366"])
        .remove(0);
    let young = stack
        .sidecar
        .sample(1, &["--expired-days-ago", "364"])
        .remove(0);
    let path = format!("/v1/links/{old}");
    until("the link is deleted", SOON, || {
        stack.api("GET", &path, None).status == 404
    });
    let body = json!({ "longUrl": "https://example.com/again", "customSlug": old });
    // Redis may still know of the old link, so that its code can't be had yet.
    let early = stack.api("POST", "/v1/links", Some(&body));
    assert_eq!(early.status, 409);
    assert_eq!(stack.follow(&old).status, 410);
    until("the code is free", SOON * 2, || {
        stack.api("POST", "/v1/links", Some(&body)).status == 201
    });
    until("the new link redirects", SOON, || {
        let answer = stack.follow(&old);
        assert_ne!(answer.status, 404);
        answer.location() == Some("https://example.com/again")
    });
    assert_eq!(
        stack.api("GET", &format!("/v1/links/{young}"), None).status,
        200
    );
    assert_eq!(stack.follow(&young).status, 410);
    assert_eq!(stack.sidecar.run(&["audit"]).status.code(), Some(0));
}

#[test]
fn the_space_of_codes_is_told_and_warned_of() {
    let stack = with("[codes]\nbody_length = 2\nlongest_body_length = 3\none_in = 100");
    let of = |length: u64| {
        let answer = stack.api("GET", "/v1/codespace", None);
        assert_eq!(answer.status, 200);
        let body = answer.json();
        let lengths = body["lengths"].as_array().expect("lengths");
        let found = lengths.iter().find(|it| it["length"] == length);
        found.cloned().expect("the length")
    };
    // 62 * 62 codes, of which one in a hundred is given.
    let capacity = 38;
    let log = || stack.sidecar.log();
    for _ in 0..20 {
        stack.link("https://example.com/");
    }
    let usage = of(3);
    assert_eq!(
        (&usage["links"], &usage["capacity"]),
        (&json!(20), &json!(capacity))
    );
    assert_eq!(usage["guess"]["oneIn"], json!(192.0));
    assert_eq!(usage["blindGuess"]["oneIn"], json!(11916.0));
    assert!(usage["fullAt"].is_string(), "{usage}");
    assert!(!log().contains("used"), "{}", log());
    // The sidecar uses a count of the usage for a while: so there may be some more.
    until("the next length is used", SOON * 2, || {
        stack.link("https://example.com/");
        of(4)["links"] != 0
    });
    assert!(of(3)["links"].as_u64() >= Some(capacity));
    assert!(
        log().contains("codes of this length are used now"),
        "{}",
        log()
    );
}
