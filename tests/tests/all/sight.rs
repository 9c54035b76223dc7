//! The edge's counters.

use shortlink_tests::http;
use shortlink_tests::stack::Stack;
use shortlink_tests::wait::{SOON, until};

const TARGET: &str = "https://example.com/target";

pub(crate) fn metrics(stack: &Stack) -> String {
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
pub(crate) fn metric(text: &str, name: &str) -> u64 {
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
    for path in ["/.x", "/!", "/nosuchone", "/Ab3xK9q0"] {
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
    until("both new workers are counted", SOON, || {
        metric(&metrics(&stack), "shortlink_workers") == 2
    });
    let head = http::send(stack.nginx.internal_port, "HEAD", "/edge/metrics", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    let post = http::send(stack.nginx.internal_port, "POST", "/edge/metrics", &[]);
    assert_eq!(post.status, 405);
}
