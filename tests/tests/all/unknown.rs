//! Visitors of unknown codes are redirected where `domains.conf` says so.

use serde_json::json;
use shortlink_tests::calendar::format_time;
use shortlink_tests::http::{self, Response};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::wait::{SOON, until};

const HOME: &str = "https://www.example.com/?from=a";
const TABLE: &str = "localhost active scheme=http port=8080;\n\
                     a.example.com serving unknown=https://www.example.com/?from=a;\n\
                     *.w.example.com serving unknown=https://w.example.com/;\n\
                     old.example.com retired unknown=https://www.example.com/;";
const SHIPPED: &str = "shortlink_miss_limit rate=60r/m burst=100 network_rate=20r/s \
                       network_burst=2000 exempt=$shortlink_exempt;";

fn set_domains(stack: &Stack, table: &str) -> String {
    let text = format!("shortlink_domains {{\n{table}\n}}\n");
    std::fs::write(stack.nginx.file("domains.conf"), text).expect("domains.conf");
    let tested = stack.nginx.test_configuration();
    if tested.status.success() {
        stack.nginx.reload();
    }
    String::from_utf8(tested.stderr).expect("UTF-8")
}

fn ask(stack: &Stack, method: &str, host: &str, path: &str) -> Response {
    http::send(stack.nginx.public_port, method, path, &[("Host", host)])
}

/// A code without a link, which nothing has asked for before.
fn unknown(number: &mut u32) -> String {
    *number += 1;
    format!("/unknown{number:02}")
}

#[test]
fn an_unknown_code_leads_where_its_domain_says_and_nothing_else_does() {
    let mut stack = Stack::start();
    let code = stack.link("https://example.com/");
    let start = format_time(stack.redis.now() + 3600);
    let early = json!({ "longUrl": "https://example.com/", "validSince": start });
    let early = format!("/{}", text(&stack.create(&early), "shortCode"));
    set_domains(&stack, TABLE);
    let mut number = 0;
    // From the fallback, which SQL answers, then from Redis, then from the cache.
    let asked = unknown(&mut number);
    for round in 0..3 {
        for method in ["GET", "HEAD"] {
            let answer = ask(&stack, method, "a.example.com", &asked);
            assert_eq!(answer.status, 302, "round {round}");
            assert_eq!(answer.location(), Some(HOME));
            assert_eq!(answer.header("Cache-Control"), Some("no-store"));
            assert_eq!(answer.header("X-Shortlink-Unknown"), None);
        }
    }
    let wild = ask(&stack, "GET", "b.w.example.com", &unknown(&mut number));
    assert_eq!(
        (wild.status, wild.location()),
        (302, Some("https://w.example.com/"))
    );
    for (host, path, status) in [
        // No code, and a wrong check character.
        ("a.example.com", "/%20", 302),
        ("a.example.com", "/zzzzzzzz", 302),
        ("localhost", &asked, 404),
        ("old.example.com", &asked, 410),
        ("a.example.com", &early, 404),
        ("a.example.com", &format!("/{code}"), 302),
        ("a.example.com", "/.well-known/assetlinks.json", 404),
    ] {
        for round in 0..2 {
            let answer = ask(&stack, "GET", host, path);
            assert_eq!(answer.status, status, "{host}{path} {round}");
            assert_eq!(answer.header("X-Shortlink-Unknown"), None);
        }
    }
    // The fallback does not take a link that begins later for unknown.
    stack
        .redis
        .command(&["DEL", &format!("sl:l:{}", &early[1..])]);
    assert_eq!(ask(&stack, "GET", "a.example.com", &early).status, 404);
    let target = ask(&stack, "GET", "a.example.com", &format!("/{code}"));
    assert_eq!(target.location(), Some("https://example.com/"));
    // None of them was a visit of a link; the last two were.
    let visits = || stack.api("GET", "/v1/stats", None).json()["visits"]["total"].clone();
    until("the visits are stored", SOON, || visits() == 3);

    // Without a sidecar or Redis nothing is known of a code: the answer is never the redirect.
    stack.redis.kill();
    let answer = ask(&stack, "GET", "a.example.com", &unknown(&mut number));
    assert_eq!(
        (answer.status, answer.location()),
        (302, Some(HOME)),
        "by SQL"
    );
    stack.sidecar.kill();
    let answer = ask(&stack, "GET", "a.example.com", &unknown(&mut number));
    assert_eq!((answer.status, answer.location()), (503, None));
    stack.redis.start_again();
    until("Redis is back", SOON, || {
        ask(&stack, "GET", "a.example.com", &format!("/{code}")).status == 302
    });
    let answer = ask(&stack, "GET", "a.example.com", &unknown(&mut number));
    assert_eq!((answer.status, answer.location()), (503, None));
}

#[test]
fn a_scanner_is_limited_all_the_same() {
    let limit = "shortlink_miss_limit rate=1r/m burst=5;";
    let stack = Stack::with(&StackOptions {
        nginx: NginxOptions {
            replace: vec![(SHIPPED, limit.to_owned())],
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    set_domains(&stack, TABLE);
    let mut number = 0;
    let statuses = (0..12).map(|_| {
        let path = unknown(&mut number);
        ask(&stack, "GET", "a.example.com", &path).status
    });
    let statuses: Vec<u16> = statuses.collect();
    assert_eq!(statuses[0], 302, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
}

#[test]
fn the_target_is_checked_and_a_reload_changes_it() {
    let stack = Stack::start();
    for (parameters, fault) in [
        ("unknown=", "\"unknown=\" is not a valid parameter"),
        ("unknown=www.example.com", "unknown=<URL>"),
        ("unknown=javascript:alert(1)", "unknown=<URL>"),
        ("unknown=https:///a", "unknown=<URL>"),
        (
            "unknown=https://a.example/ unknown=https://b.example/",
            "is one parameter too many",
        ),
    ] {
        let table = format!("localhost active scheme=http port=8080 {parameters};");
        let said = set_domains(&stack, &table);
        assert!(said.contains(fault), "{parameters}: {said}");
        assert!(said.contains("domains.conf:2"), "{parameters}: {said}");
    }
    let mut number = 0;
    for (target, status) in [
        ("", 404),
        (" unknown=https://a.example/", 302),
        (" unknown=https://b.example/", 302),
        ("", 404),
    ] {
        let said = set_domains(
            &stack,
            &format!("localhost active scheme=http port=8080{target};"),
        );
        assert!(said.contains("successful"), "{said}");
        let answer = ask(&stack, "GET", "localhost", &unknown(&mut number));
        assert_eq!(answer.status, status, "{target}");
        let expected = target.strip_prefix(" unknown=");
        assert_eq!(answer.location(), expected);
    }
}
