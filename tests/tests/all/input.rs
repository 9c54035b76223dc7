//! Bad input gets a clear answer, and nothing is stored.

use serde_json::{Value, json};
use shortlink_tests::http::{self, Response};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::stack::{Stack, StackOptions};
use vocabulary::{CodeRules, Verdict};

/// Checks that an answer is a problem, and returns it.
fn problem(answer: &Response, status: u16, what: &str) -> Value {
    let shown = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{what}: {shown}");
    assert_eq!(
        answer.header("Content-Type"),
        Some("application/problem+json"),
        "{what}"
    );
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{what}: {shown}");
    for member in ["type", "title", "detail"] {
        assert!(
            problem[member].is_string(),
            "{what}: no {member} in {shown}"
        );
    }
    problem
}

#[test]
fn targets_that_may_not_be_are_refused_with_their_pointer() {
    let stack = Stack::with(&StackOptions {
        nginx: NginxOptions {
            replace: vec![(
                "127.0.0.1   serving;",
                "127.0.0.1 serving; s.example.com serving; xn--bcher-kva.example retired;"
                    .to_owned(),
            )],
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    let long = format!("https://example.com/{}", "a".repeat(8192));
    for target in [
        "",
        " ",
        "example.com",
        "/path",
        "//example.com/",
        "https://",
        "http:///x",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://user@example.com/",
        "https://user:password@example.com/",
        "https://example.com/\r\nSet-Cookie: a=b",
        "https://example.com/\u{0}",
        "https://example.com/\u{7f}",
        "https://example.com\\@evil.example/",
        " https://example.com/",
        "https://example.com/ ",
        "https://exa mple.com/",
        "https://[::1",
        "https://example.com:99999/",
        "http://localhost/",
        "http://a.localhost/",
        "http://127.0.0.1/",
        "http://127.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.64.0.1/",
        "http://[::1]/",
        "http://[::]/",
        "http://[fe80::1]/",
        "http://[fc00::1]/",
        "http://[::ffff:127.0.0.1]/",
        // The own short domains, however they are written.
        "https://s.example.com/x",
        "https://S.EXAMPLE.COM./x",
        "https://s.example.com:8443/x",
        "https://bücher.example/x",
        &long,
    ] {
        let answer = stack.api("POST", "/v1/links", Some(&json!({ "longUrl": target })));
        let problem = problem(&answer, 422, target);
        assert_eq!(
            problem["errors"][0]["pointer"], "/longUrl",
            "{target}: {problem}"
        );
        assert!(
            problem["errors"][0]["detail"].is_string(),
            "{target}: {problem}"
        );
    }
    let listed = stack.api("GET", "/v1/links", None).json();
    assert_eq!(listed["links"], json!([]));
    assert_eq!(stack.redis.keys(), 0);

    // The longest that may be is made, followed from Redis, and comes back byte for byte.
    let longest = format!("https://example.com/{}", "a".repeat(8192 - 20));
    let code = stack.link(&longest);
    let answer = stack.follow(&code);
    assert_eq!(
        (answer.location(), answer.header("X-Edge")),
        (Some(&*longest), Some("redirect/redis"))
    );
}

#[test]
fn targets_are_stored_as_the_url_standard_writes_them() {
    let stack = Stack::start();
    for (given, stored) in [
        ("HTTPS://EXAMPLE.com", "https://example.com/"),
        ("https://example.com:443/a/../b", "https://example.com/b"),
        (
            "https://bücher.example/ä?ö#ü",
            "https://xn--bcher-kva.example/%C3%A4?%C3%B6#%C3%BC",
        ),
        ("https://example.com/a b", "https://example.com/a%20b"),
    ] {
        let answer = stack.api("POST", "/v1/links", Some(&json!({ "longUrl": given })));
        if given.contains(' ') {
            problem(&answer, 422, given);
            continue;
        }
        assert_eq!(
            (answer.status, &answer.json()["longUrl"]),
            (201, &json!(stored)),
            "{given}"
        );
    }
}

#[test]
fn bodies_and_members_are_checked_and_all_faults_are_told_together() {
    let stack = Stack::start();
    let wrong_check = (b'a'..=b'z')
        .map(|last| format!("Ab3xK9q{}", char::from(last)))
        .find(|code| {
            CodeRules::default().judge(&code.parse().expect("a code")) == Verdict::WrongCheck
        })
        .expect("a wrong check character");
    let good = "https://example.com/";
    for (body, pointers) in [
        (json!({}), vec!["/longUrl"]),
        (json!({ "longUrl": 1 }), vec!["/longUrl"]),
        (json!({ "longUrl": null }), vec!["/longUrl"]),
        (
            json!({ "longUrl": good, "customSlug": "" }),
            vec!["/customSlug"],
        ),
        (
            json!({ "longUrl": good, "customSlug": "a-b" }),
            vec!["/customSlug"],
        ),
        (
            json!({ "longUrl": good, "customSlug": "abcdefghijklmnopq" }),
            vec!["/customSlug"],
        ),
        (
            json!({ "longUrl": good, "customSlug": "Admin" }),
            vec!["/customSlug"],
        ),
        (
            json!({ "longUrl": good, "customSlug": wrong_check }),
            vec!["/customSlug"],
        ),
        (
            json!({ "longUrl": good, "redirectStatus": 200 }),
            vec!["/redirectStatus"],
        ),
        (
            json!({ "longUrl": good, "redirectStatus": "302" }),
            vec!["/redirectStatus"],
        ),
        (
            json!({ "longUrl": good, "validUntil": "tomorrow" }),
            vec!["/validUntil"],
        ),
        (
            json!({ "longUrl": good, "validUntil": "2020-01-01T00:00:00Z" }),
            vec!["/validUntil"],
        ),
        (
            json!({ "longUrl": good, "longURL": good }),
            vec!["/longURL"],
        ),
        (
            json!({ "longUrl": "x", "customSlug": "-", "redirectStatus": 1, "validUntil": 1 }),
            vec!["/customSlug", "/longUrl", "/redirectStatus", "/validUntil"],
        ),
    ] {
        let answer = stack.api("POST", "/v1/links", Some(&body));
        let problem = problem(&answer, 422, &body.to_string());
        let mut told: Vec<&str> = problem["errors"]
            .as_array()
            .expect("errors")
            .iter()
            .filter_map(|error| error["pointer"].as_str())
            .collect();
        told.sort_unstable();
        assert_eq!(told, pointers, "{body}: {problem}");
    }
    assert_eq!(
        stack.api("GET", "/v1/links", None).json()["links"],
        json!([])
    );
}

#[test]
fn every_other_mistake_has_its_status() {
    let stack = Stack::start();
    let port = stack.nginx.internal_port;
    let key = stack.sidecar.key.clone();
    let send = |method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let mut all = vec![("X-Api-Key", &*key)];
        all.extend(headers);
        let request = http::request(method, path, &all, body);
        http::try_send(port, method, &request).expect("an answer")
    };
    let json_type = [("Content-Type", "application/json")];
    for body in ["{", "", "[]x", "{\"longUrl\":}", "\u{0}"] {
        problem(
            &send("POST", "/v1/links", &json_type, body.as_bytes()),
            400,
            body,
        );
    }
    let plain = [("Content-Type", "text/plain")];
    problem(&send("POST", "/v1/links", &plain, b"{}"), 415, "text/plain");
    problem(&send("POST", "/v1/links", &[], b"{}"), 415, "no type");
    let large = format!("{{\"longUrl\":\"https://e.com/{}\"}}", "a".repeat(70_000));
    problem(
        &send("POST", "/v1/links", &json_type, large.as_bytes()),
        413,
        "a large body",
    );
    problem(
        &send("GET", "/v1/links/nosuchone", &[], b""),
        404,
        "an unknown code",
    );
    problem(&send("GET", "/v1/links/no-code", &[], b""), 404, "no code");
    problem(
        &send("DELETE", "/v1/links/nosuchone", &[], b""),
        404,
        "an unknown code",
    );
    problem(
        &send("GET", "/nosuchpage", &[], b""),
        404,
        "an unknown page",
    );
    let answer = send("PUT", "/v1/links", &json_type, b"{}");
    problem(&answer, 405, "PUT");
    assert!(
        answer
            .header("Allow")
            .is_some_and(|allow| allow.contains("POST"))
    );
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "cursor=!!!",
        "state=none",
        "nosuch=1",
    ] {
        let answer = send("GET", &format!("/v1/links?{query}"), &[], b"");
        problem(&answer, 400, query);
    }
    let without = http::request("GET", "/v1/links", &[], b"");
    problem(
        &http::try_send(port, "GET", &without).expect("an answer"),
        401,
        "no key",
    );
}
