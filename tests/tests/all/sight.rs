//! The edge's counters, and its defence against guessing.

use shortlink_tests::http::{self, Response};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::wait::{SOON, until};

const TARGET: &str = "https://example.com/target";

fn metrics(stack: &Stack) -> String {
    let answer = http::get(stack.nginx.internal_port, "/edge/metrics");
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .header("Content-Type")
            .is_some_and(|t| t.starts_with("text/plain; version=0.0.4"))
    );
    String::from_utf8(answer.body).expect("text")
}

/// The value of one number.
fn metric(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.parse().expect("a whole number")
}

#[test]
fn everything_is_counted_once_whichever_worker_did_it() {
    let stack = Stack::start();
    let code = stack.link(TARGET);
    for _ in 0..20 {
        assert_eq!(stack.follow(&code).status, 302);
    }
    for path in ["/.x", "/-", "/nosuchone", "/Ab3xK9q0"] {
        http::get(stack.nginx.public_port, path);
    }
    http::send(stack.nginx.public_port, "POST", "/x", &[]);
    http::get(stack.nginx.public_port, &format!("/{code}."));
    let text = metrics(&stack);
    let requests = |labels: &str| metric(&text, &format!("shortlink_requests_total{{{labels}}}"));
    let redirects = |source: &str| requests(&format!(r#"outcome="redirect",source="{source}""#));
    assert_eq!(redirects("redis") + redirects("cache"), 21);
    // Each worker reads it twice before it keeps it.
    assert!((2..=4).contains(&redirects("redis")), "{text}");
    assert_eq!(requests(r#"outcome="malformed",source="none""#), 2);
    assert_eq!(requests(r#"outcome="miss",source="fallback""#), 1);
    assert_eq!(requests(r#"outcome="method",source="none""#), 1);
    assert_eq!(metric(&text, "shortlink_trimmed_total"), 1);
    assert_eq!(metric(&text, "shortlink_workers"), 2);
    assert_eq!(metric(&text, "shortlink_redis_connected"), 2);
    let replies = metric(&text, r#"shortlink_redis_replies_total{kind="record"}"#)
        + metric(&text, r#"shortlink_redis_replies_total{kind="absent"}"#);
    assert_eq!(
        metric(&text, "shortlink_redis_round_trip_seconds_count"),
        replies
    );
    until("entries are counted", SOON, || {
        metric(&metrics(&stack), "shortlink_cache_entries") >= 1
    });

    // Totals outlive workers.
    stack.nginx.reload();
    let after = metrics(&stack);
    let name = r#"shortlink_requests_total{outcome="redirect",source="cache"}"#;
    assert_eq!(metric(&after, name), metric(&text, name));
    assert_eq!(metric(&after, "shortlink_workers"), 2);
    let head = http::send(stack.nginx.internal_port, "HEAD", "/edge/metrics", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    let post = http::send(stack.nginx.internal_port, "POST", "/edge/metrics", &[]);
    assert_eq!(post.status, 405);
}

/// A stack in which the address of a visitor is what a header says.
fn limited(parameters: &str) -> Stack {
    Stack::with(&StackOptions {
        nginx: NginxOptions {
            replace: vec![(
                "# shortlink_miss_limit rate=60r/m burst=60;",
                format!(
                    "shortlink_miss_limit {parameters};\n\
                     set_real_ip_from 127.0.0.1;\nreal_ip_header X-Visitor;"
                ),
            )],
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    })
}

fn follow_from(stack: &Stack, visitor: &str, code: &str) -> Response {
    let path = format!("/{code}");
    http::send(
        stack.nginx.public_port,
        "GET",
        &path,
        &[("X-Visitor", visitor)],
    )
}

/// A miss is charged when its answer is on its way already.
fn wait_for_limit(stack: &Stack, visitor: &str) {
    until("the address is limited", SOON, || {
        follow_from(stack, visitor, "nosuchone").status == 429
    });
}

#[test]
fn who_misses_too_often_is_limited_and_live_links_go_on_working() {
    let stack = limited("rate=1r/m burst=9");
    let live = stack.link(TARGET);
    for number in 0..10 {
        let code = format!("nosuch{number}");
        assert_eq!(follow_from(&stack, "192.0.2.7", &code).status, 404);
    }
    wait_for_limit(&stack, "192.0.2.7");
    let refused = follow_from(&stack, "192.0.2.7", "nosuchone");
    assert_eq!(refused.header("X-Edge"), Some("limited/none"));
    assert!(refused.header("Retry-After").is_some());
    // A code that can't be is looked up nowhere: not even in this worker's cache.
    let wrong = follow_from(&stack, "192.0.2.7", "Ab3xK9q0");
    assert!(matches!(wrong.status, 429), "{wrong:?}");
    // Live links, also one without a visit, and revoked ones.
    assert_eq!(follow_from(&stack, "192.0.2.7", &live).status, 302);
    let fresh = stack.link(TARGET);
    assert_eq!(follow_from(&stack, "192.0.2.7", &fresh).status, 302);
    stack.api("DELETE", &format!("/v1/links/{fresh}"), None);
    until("it is revoked", SOON, || {
        follow_from(&stack, "192.0.2.7", &fresh).status == 410
    });
    // Others are not affected; but who shares the /64 is.
    assert_eq!(follow_from(&stack, "192.0.2.8", "nosuchone").status, 404);
    for number in 0..10 {
        let visitor = format!("2001:db8:1:2::{number}");
        assert_eq!(
            follow_from(&stack, &visitor, &format!("other{number}")).status,
            404
        );
    }
    wait_for_limit(&stack, "2001:db8:1:2:ffff::1");
    assert_eq!(
        follow_from(&stack, "2001:db8:1:3::1", "nosuchone").status,
        404
    );
    // It survives a reload.
    stack.nginx.reload();
    assert_eq!(follow_from(&stack, "192.0.2.7", "nosuchtwo").status, 429);
    assert_eq!(follow_from(&stack, "192.0.2.7", &live).status, 302);
    let text = metrics(&stack);
    let name = r#"shortlink_requests_total{outcome="limited",source="none"}"#;
    assert!(metric(&text, name) >= 5, "{text}");
}

#[test]
fn a_strict_limit_asks_nobody() {
    let stack = limited("rate=1r/m burst=4 strict");
    let live = stack.link(TARGET);
    until("both workers keep it", SOON, || {
        (0..40).all(|_| {
            follow_from(&stack, "192.0.2.9", &live).header("X-Edge") == Some("redirect/cache")
        })
    });
    for number in 0..5 {
        assert_eq!(
            follow_from(&stack, "192.0.2.7", &format!("nosuch{number}")).status,
            404
        );
    }
    wait_for_limit(&stack, "192.0.2.7");
    let gets = stack.redis.calls("get");
    for number in 0..10 {
        assert_eq!(
            follow_from(&stack, "192.0.2.7", &format!("more{number}")).status,
            429
        );
    }
    assert_eq!(stack.redis.calls("get"), gets);
    assert_eq!(follow_from(&stack, "192.0.2.7", &live).status, 302);
}
