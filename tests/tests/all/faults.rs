//! Any part is lost, hangs, and comes back.

use std::time::{Duration, Instant};

use serde_json::json;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::metrics::Page;
use shortlink_tests::nginx::{NginxOptions, REAL_BUDGET};
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::wait::{SOON, until};

const TARGET: &str = "https://example.com/target";

fn assert_follows(stack: &Stack, code: &str, edge: &str) {
    let answer = stack.follow(code);
    assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));
    assert_eq!(answer.header("X-Edge"), Some(edge));
}

fn wait_for_edge(stack: &Stack, code: &str, edge: &str) {
    until(&format!("{code} is answered {edge}"), SOON, || {
        let answer = stack.follow(code);
        assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));
        answer.header("X-Edge") == Some(edge)
    });
}

#[test]
fn redis_is_killed_and_comes_back() {
    let mut stack = Stack::start();
    let code = stack.link(TARGET);
    let doomed = stack.link(TARGET);
    stack.redis.kill();

    assert_follows(&stack, &code, "unavailable/fallback");
    let made = stack.create(&json!({ "longUrl": TARGET }));
    assert_eq!(made["published"], false);
    let made = text(&made, "shortCode");
    assert_follows(&stack, &made, "unavailable/fallback");
    let revoked = stack
        .api("DELETE", &format!("/v1/links/{doomed}"), None)
        .json();
    assert_eq!(revoked["published"], false);
    assert_eq!(stack.follow(&doomed).status, 410);
    assert_eq!(stack.follow("nosuchone").status, 404);
    let ready = http::get(stack.sidecar.port, "/readyz");
    assert_eq!(
        (ready.status, text(&ready.json(), "status")),
        (200, "degraded".to_owned())
    );

    stack.redis.start_again();
    until("the outbox is delivered", SOON, || {
        stack.redis.record(&made).is_some()
            && stack.redis.record(&doomed).as_deref() == Some("1 410 2")
    });
    // Said once by each worker, not for every request or attempt.
    until("both workers say that Redis is back", SOON, || {
        wait_for_edge(&stack, &code, "redirect/redis");
        let log = stack.nginx.error_log();
        log.lines().filter(|line| line.ends_with("is back")).count() == 2
    });
    wait_for_edge(&stack, &made, "redirect/redis");
    until("Redis is proved current", SOON, || {
        let answer = stack.follow(&doomed);
        assert_eq!(answer.status, 410);
        answer.header("X-Edge") == Some("gone/redis")
    });
    assert_eq!(stack.nginx.error_log().matches("lost Redis").count(), 2);
    assert_eq!(stack.nginx.complaints(&["lost Redis"]), [""; 0]);
}

#[test]
fn redis_loses_everything() {
    let mut stack = Stack::start();
    let code = stack.link(TARGET);
    let revoked = stack.link(TARGET);
    stack.api("DELETE", &format!("/v1/links/{revoked}"), None);
    stack.redis.command(&["FLUSHALL"]);
    assert_follows(&stack, &code, "miss/fallback");
    assert_eq!(stack.follow(&revoked).status, 410);
    wait_for_edge(&stack, &code, "redirect/redis");
    until("the revoked record is back", SOON, || {
        stack.redis.record(&revoked).as_deref() == Some("1 410 2")
    });

    // A crash that loses the last writes: the revocation is published once more without a visit.
    stack.redis.kill_and_forget();
    stack.redis.start_again();
    until("the revocation is published once more", SOON, || {
        stack.redis.record(&revoked).as_deref() == Some("1 410 2")
    });
    wait_for_edge(&stack, &code, "redirect/redis");
}

#[test]
fn redis_hangs_and_goes_on() {
    let stack = Stack::with(&StackOptions {
        nginx: NginxOptions {
            budget: REAL_BUDGET,
            ..NginxOptions::default()
        },
        sidecar: "timeout_ms = 250".to_owned(),
        ..StackOptions::default()
    });
    // One that every worker may have kept when Redis hangs, and one that none has.
    let [kept, code] = [0, 1].map(|_| stack.link(TARGET));
    wait_for_edge(&stack, &kept, "redirect/redis");
    stack.redis.hang();
    let whole_budgets = || {
        let page = http::get(stack.nginx.internal_port, "/edge/metrics").body;
        let page = Page::read(&String::from_utf8(page).expect("text"));
        page.sum("shortlink_redis_timeouts_total")
    };
    let before = whole_budgets();
    let mut waits = Vec::new();
    for _ in 0..200 {
        let begin = Instant::now();
        assert_follows(&stack, &code, "unavailable/fallback");
        waits.push(begin.elapsed());
    }
    // After the first few no request waits the whole budget any more.
    let waited = whole_budgets() - before;
    assert!((1.0..=40.0).contains(&waited), "{waited} of 200 visitors");
    // One may have come when the machine stalled.
    waits.sort_unstable();
    let slow = waits[waits.len() - 2];
    assert!(
        slow < Duration::from_secs(1),
        "two visitors waited {slow:?}"
    );
    // A create waits for Redis for a bounded time too.
    let before = Instant::now();
    let made = stack.create(&json!({ "longUrl": TARGET }));
    assert_eq!(made["published"], false);
    let waited = before.elapsed();
    assert!(waited < Duration::from_secs(10), "{waited:?}");

    stack.redis.go_on();
    wait_for_edge(&stack, &code, "redirect/redis");
    wait_for_edge(&stack, &text(&made, "shortCode"), "redirect/redis");
    assert_eq!(stack.nginx.complaints(&["lost Redis"]), [""; 0]);
}

#[test]
fn the_sidecar_is_killed() {
    let mut stack = Stack::start();
    let code = stack.link(TARGET);
    let missing = stack.link(TARGET);
    stack.redis.command(&["DEL", &format!("sl:l:{missing}")]);
    stack.sidecar.kill();
    assert_follows(&stack, &code, "redirect/redis");
    for unknown in [&*missing, "nosuchone"] {
        let answer = stack.follow(unknown);
        assert_eq!(answer.status, 503, "{unknown}");
        assert!(answer.header("Retry-After").is_some());
        assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    }
    assert_eq!(stack.api("GET", "/v1/links", None).status, 502);
    stack.sidecar.start_again();
    // Through the fallback, or from Redis if the outbox was faster.
    assert_eq!(stack.follow(&missing).location(), Some(TARGET));
    wait_for_edge(&stack, &missing, "redirect/redis");
}

#[test]
fn redis_and_the_sidecar_are_both_lost() {
    let mut stack = Stack::start();
    let code = stack.link(TARGET);
    stack.sidecar.kill();
    stack.redis.kill();
    for _ in 0..5 {
        let answer = stack.follow(&code);
        assert_eq!(answer.status, 503);
        assert!(answer.header("Retry-After").is_some());
    }
    // A path that can't be a code is still known to be none.
    assert_eq!(stack.follow("~").status, 404);
    stack.redis.start_again();
    wait_until_redis_answers(&stack, &code);
}

fn wait_until_redis_answers(stack: &Stack, code: &str) {
    until("Redis answers again", SOON, || {
        let answer = stack.follow(code);
        assert_ne!(answer.status, 404);
        answer.status == 302 && answer.header("X-Edge") == Some("redirect/redis")
    });
}

#[test]
fn an_acknowledged_link_survives_a_crash_of_everything() {
    let mut stack = Stack::start();
    for round in 0..5 {
        let code = stack.link(TARGET);
        stack.sidecar.kill();
        stack.redis.kill_and_forget();
        stack.redis.start_again();
        stack.sidecar.start_again();
        let answer = stack.follow(&code);
        assert_eq!(
            (answer.status, answer.location()),
            (302, Some(TARGET)),
            "round {round}"
        );
    }
}

#[test]
fn a_sidecar_that_ends_finishes_what_it_has_begun() {
    let mut stack = Stack::start();
    let port = stack.sidecar.port;
    let key = stack.sidecar.key.clone();
    let body = json!({ "longUrl": TARGET });
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut codes = Vec::new();
                    let body = body.to_string();
                    let headers = [("X-Api-Key", &*key), ("Content-Type", "application/json")];
                    let request = http::request("POST", "/v1/links", &headers, body.as_bytes());
                    // Until it is gone; an answer that was begun must be whole.
                    while let Ok(answer) = http::try_send(port, "POST", &request) {
                        assert_eq!(answer.status, 201);
                        assert_eq!(answer.json()["published"], true);
                        codes.push(text(&answer.json(), "shortCode"));
                    }
                    codes
                })
            })
            .collect();
        until("links are created", SOON, || stack.redis.calls("set") > 20);
        assert_eq!(stack.sidecar.stop(), Some(0));
        makers
            .into_iter()
            .flat_map(|maker| maker.join().expect("a maker"))
            .collect()
    });
    assert!(!acknowledged.is_empty());
    // Each is in Redis already, as its answer said.
    for code in &acknowledged {
        assert_follows(&stack, code, "redirect/redis");
    }
    stack.redis.command(&["FLUSHALL"]);
    stack.sidecar.start_again();
    for code in &acknowledged {
        assert_follows(&stack, code, "miss/fallback");
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_disturbs_nobody() {
    let stack = Stack::start();
    let code = stack.link(TARGET);
    let workers = stack.nginx.all_workers(2);
    stack.redis.hang();
    let request = http::request("GET", &format!("/{code}"), &[], b"");
    let mut waiting = Vec::new();
    until("a client's leaving is noticed", SOON, || {
        // Each client leaves one look after it has asked.
        waiting.clear();
        let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
        connection.send(&request).expect("sent");
        waiting.push(connection);
        stack.nginx.access_log().matches("\" 499 ").count() >= 5
    });
    stack.redis.go_on();
    wait_for_edge(&stack, &code, "redirect/redis");
    assert_eq!(stack.nginx.workers(), workers, "a worker was replaced");
    assert_eq!(stack.nginx.complaints(&["lost Redis"]), [""; 0]);
}
