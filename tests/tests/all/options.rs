//! Options of links: paused, valid later, created once, marked, with the visitor's query.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::calendar::format_time;
use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::sidecar::api;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

/// The longest time until every worker knows of a change.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Follows a code with bytes behind it.
fn follow_raw(stack: &Stack, code: &str, behind: &[u8]) -> Response {
    let begin = format!("GET /{code}");
    let end = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let request = [begin.as_bytes(), behind, end.as_bytes()].concat();
    http::try_send(stack.nginx.public_port, "GET", &request).expect("an answer")
}

#[test]
fn a_paused_link_is_gone_at_once_and_back_at_once() {
    let mut stack = Stack::start();
    let code = stack.link("https://example.com/");
    let path = format!("/v1/links/{code}");
    let follow = |stack: &Stack, status| {
        until(&format!("nginx answers {status}"), AT_ONCE, || {
            stack.follow(&code).status == status
        });
    };
    // Often enough for each worker to cache it.
    for _ in 0..10 {
        follow(&stack, 302);
    }
    for (step, state, status) in [("pause", "paused", 410), ("resume", "live", 302)] {
        // Once more changes nothing.
        for _ in 0..2 {
            let answer = stack.api("POST", &format!("{path}/{step}"), None);
            assert_eq!(answer.status, 200);
            let link = answer.json();
            assert_eq!(
                (&link["state"], &link["published"]),
                (&json!(state), &json!(true))
            );
        }
        for _ in 0..10 {
            follow(&stack, status);
        }
        let edge = stack.follow(&code);
        let edge = edge.header("X-Edge").unwrap_or_default();
        assert!(
            ["redis", "cache"].iter().any(|it| edge.ends_with(it)),
            "{edge}"
        );
    }
    let paused = stack.api("POST", &format!("{path}/pause"), None);
    assert_eq!(paused.json()["revision"], 4);
    follow(&stack, 410);
    let listed = stack.api("GET", "/v1/links?state=paused", None).json();
    assert_eq!(text(&listed["links"][0], "shortCode"), code);
    // Without Redis the fallback says the same.
    stack.redis.kill();
    follow(&stack, 410);
}

#[test]
fn a_link_begins_when_it_was_meant_to() {
    let stack = Stack::shared();
    let start = stack.redis.now() + 4;
    let body = json!({ "longUrl": "https://example.com/", "validSince": format_time(start) });
    let link = stack.create(&body);
    let code = text(&link, "shortCode");
    assert!(text(&link, "state") == "scheduled" || stack.redis.now() >= start);
    let early = stack.follow(&code).status;
    assert!(early == 404 || stack.redis.now() >= start, "{early}");
    until("the link has begun", SOON, || {
        let status = stack.follow(&code).status;
        // A clock read after the answer is not before the one that the answer was given by.
        assert!(
            status == 404 || (status == 302 && stack.redis.now() >= start),
            "{status}"
        );
        status == 302
    });
    let found = stack.api("GET", &format!("/v1/links/{code}"), None).json();
    assert_eq!(text(&found, "state"), "live");
}

#[test]
fn fifty_requests_at_once_for_the_same_make_one_link() {
    let stack = Stack::shared();
    let body = json!({ "longUrl": "https://example.com/", "dedupe": true, "tags": ["fifty"] });
    let answers: Vec<Response> = thread::scope(|scope| {
        let callers: Vec<_> = (0..50)
            .map(|_| {
                let (port, key) = (stack.nginx.internal_port, &stack.sidecar.key);
                let body = &body;
                scope.spawn(move || api(port, key, "POST", "/v1/links", Some(body)))
            })
            .collect();
        let callers = callers.into_iter();
        callers.map(|it| it.join().expect("a caller")).collect()
    });
    let codes: HashSet<String> = answers
        .iter()
        .map(|answer| text(&answer.json(), "shortCode"))
        .collect();
    assert_eq!(codes.len(), 1);
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let found = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((made, found), (1, 49));
    let page = stack.api("GET", "/v1/links?tag=fifty", None).json();
    assert_eq!(page["links"].as_array().map(Vec::len), Some(1));
    let code = codes.into_iter().next().expect("a code");
    assert_eq!(stack.follow(&code).status, 302);
    // A revoked link is no answer.
    stack.api("DELETE", &format!("/v1/links/{code}"), None);
    assert_eq!(stack.api("POST", "/v1/links", Some(&body)).status, 201);
}

#[test]
fn changes_are_remembered_and_made_to_what_was_seen() {
    let stack = Stack::shared();
    let (port, key) = (stack.nginx.internal_port, &*stack.sidecar.key);
    let code = stack.link("https://example.com/1");
    let path = format!("/v1/links/{code}");
    let change = |if_match: &str, body: &Value| {
        let body = body.to_string();
        let headers = [
            ("X-Api-Key", key),
            ("Content-Type", "application/json"),
            ("If-Match", if_match),
        ];
        let request = http::request("PATCH", &path, &headers, body.as_bytes());
        http::try_send(port, "PATCH", &request).expect("an answer")
    };
    let seen = stack.api("GET", &path, None);
    assert_eq!(seen.header("ETag"), Some("\"1\""));
    let (second, third) = (
        json!({ "longUrl": "https://example.com/2" }),
        json!({ "longUrl": "https://example.com/3" }),
    );
    let changed = change("\"1\"", &second);
    assert_eq!(
        (changed.status, changed.header("ETag")),
        (200, Some("\"2\""))
    );
    // A client that has seen the first revision does not undo the second.
    assert_eq!(change("\"1\"", &third).status, 412);
    assert_eq!(
        stack.follow(&code).location(),
        Some("https://example.com/2")
    );
    assert_eq!(change("\"2\"", &third).status, 200);
    let first = stack
        .api("GET", &format!("{path}/history?limit=1"), None)
        .json();
    let cursor = text(&first, "nextCursor");
    let second = stack
        .api(
            "GET",
            &format!("{path}/history?limit=1&cursor={cursor}"),
            None,
        )
        .json();
    assert_eq!(second["nextCursor"], Value::Null);
    for (page, url) in [
        (&first, "https://example.com/2"),
        (&second, "https://example.com/1"),
    ] {
        let change = &page["history"][0];
        assert_eq!(text(&change["before"], "longUrl"), url);
        assert_eq!(change["changedBy"], json!(key.split('_').nth(1)));
    }
}

#[test]
fn marks_and_queries_are_appended_whatever_stands_there() {
    let stack = Stack::shared();
    let utm = json!({ "source": "SMS & more", "campaign": "Fr\u{fc}hling+1", "content": "#1" });
    for (url, expected) in [
        ("https://example.com", "https://example.com/?"),
        ("https://example.com/?", "https://example.com/?"),
        (
            "https://example.com/a?b=+%2b;%20",
            "https://example.com/a?b=+%2b;%20&",
        ),
        (
            "https://example.com/?UTM_SOURCE=a",
            "https://example.com/?UTM_SOURCE=a&",
        ),
        (
            "https://example.com/?utm_source=a&b&utm%5Fcontent",
            "https://example.com/?b&",
        ),
        (
            "https://example.com/\u{fc}?\u{fc}",
            "https://example.com/%C3%BC?%C3%BC&",
        ),
    ] {
        for fragment in ["", "#", "#a?utm_source=b&c=#d"] {
            let body = json!({ "longUrl": format!("{url}{fragment}"), "utm": utm });
            let code = text(&stack.create(&body), "shortCode");
            let expected = format!(
                "{expected}utm_source=SMS%20%26%20more&utm_campaign=Fr%C3%BChling%2B1\
                 &utm_content=%231{fragment}"
            );
            assert_eq!(stack.follow(&code).location(), Some(&*expected), "{url}");
        }
    }
    let with_query = |url: &str| {
        let body = json!({ "longUrl": url, "forwardQuery": true });
        text(&stack.create(&body), "shortCode")
    };
    let plain = with_query("https://example.com/a");
    let full = with_query("https://example.com/a?b=1#c?d");
    for (behind, query) in [
        (&b""[..], ""),
        (b"?", ""),
        (b"?x=1&y=%2B+%20%zz", "x=1&y=%2B+%20%zz"),
        // Glued text, and a query behind it.
        (b"/more?x", "x"),
        (b"\xe3\x80\x82?x", "x"),
        (b"??x=?/", "?x=?/"),
        (b"?x=1#fragment", "x=1"),
        (
            b"?next=https://evil.example/&%0d%0aSet-Cookie:a=b",
            "next=https://evil.example/&%0d%0aSet-Cookie:a=b",
        ),
        (b"?\xc3\xbc=\xff", "%C3%BC=%FF"),
        (b"?a=\"<b>\"", "a=%22%3Cb%3E%22"),
    ] {
        for (code, head, tail) in [
            (&plain, "https://example.com/a", ""),
            (&full, "https://example.com/a?b=1", "#c?d"),
        ] {
            let parted = match (query.is_empty(), head.contains('?')) {
                (true, _) => String::new(),
                (false, true) => format!("&{query}"),
                (false, false) => format!("?{query}"),
            };
            let answer = follow_raw(stack, code, behind);
            let expected = format!("{head}{parted}{tail}");
            let said = String::from_utf8_lossy(behind);
            assert_eq!(answer.status, 302, "{said}");
            assert_eq!(answer.location(), Some(&*expected), "{said}");
        }
    }
    // Links without the option get none, and no header brings one.
    let alone = stack.link("https://example.com/a");
    let header = [("X-Shortlink-Query", "x=1")];
    let port = stack.nginx.public_port;
    let answers = [
        follow_raw(stack, &alone, b"?x=1"),
        http::send(port, "GET", &format!("/{plain}"), &header),
    ];
    for answer in answers {
        assert_eq!(answer.location(), Some("https://example.com/a"));
    }
}

#[test]
fn a_long_query_reaches_its_page_or_is_left_away() {
    let stack = Stack::shared();
    let body = json!({ "longUrl": "https://example.com/a", "forwardQuery": true });
    let code = text(&stack.create(&body), "shortCode");
    let query = "x".repeat(7000);
    let answer = follow_raw(stack, &code, format!("?{query}").as_bytes());
    let expected = format!("https://example.com/a?{query}");
    assert_eq!(answer.status, 302);
    assert!(answer.location() == Some(&*expected));
    // If a target has no space left for the query, the visitor gets the page at least.
    let target = format!("https://example.com/{}", "a".repeat(6000));
    let body = json!({ "longUrl": target, "forwardQuery": true });
    let code = text(&stack.create(&body), "shortCode");
    let answer = follow_raw(stack, &code, format!("?{query}").as_bytes());
    assert_eq!(answer.status, 302);
    assert!(answer.location() == Some(&*target));
    // The connection goes on.
    let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
    for _ in 0..2 {
        let request = http::request("GET", &format!("/{code}?{query}"), &[], b"");
        connection.send(&request).expect("sent");
        let answer = connection.receive("GET").expect("read");
        assert_eq!(answer.expect("an answer").status, 302);
    }
}
