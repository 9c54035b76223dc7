//! Who may do what: keys with scopes, expiry, limits and policies, and the log of what was done
//! with them.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shortlink_tests::http::Response;
use shortlink_tests::sidecar::api;
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::wait::{SOON, until};

const SCOPES: [&str; 7] = [
    "links:read",
    "links:write",
    "campaigns:read",
    "campaigns:write",
    "stats:read",
    "keys:admin",
    "admin",
];

/// Sends a request with a key to the API, through nginx.
fn ask(stack: &Stack, key: &str, method: &str, path: &str, body: Option<&Value>) -> Response {
    api(stack.nginx.internal_port, key, method, path, body)
}

/// What a key gets for looking at links.
fn status(stack: &Stack, key: &str) -> u16 {
    ask(stack, key, "GET", "/v1/links", None).status
}

/// Makes a key over REST and returns the answer.
fn create(stack: &Stack, admin: &str, body: &Value) -> Value {
    let answer = ask(stack, admin, "POST", "/v1/keys", Some(body));
    let shown = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 201, "{body}: {shown}");
    answer.json()
}

/// The id within a key.
fn id(key: &str) -> &str {
    key.split('_').nth(1).expect("an id")
}

/// A moment from now on, as the API writes it.
fn in_seconds(seconds: u32) -> String {
    let when = format!("+{seconds} seconds");
    let output = Command::new("date")
        .args(["--utc", "--date", &when, "+%Y-%m-%dT%H:%M:%S.%3NZ"])
        .output()
        .expect("date can be run");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

#[test]
fn a_key_opens_just_what_its_scopes_name() {
    let stack = Stack::start();
    let link = json!({ "longUrl": "https://example.com/" });
    let key = json!({ "name": "x", "scopes": ["links:read"] });
    let rotation = json!({ "overlapSeconds": 0 });
    let nothing = json!({});
    let routes = [
        ("GET", "/v1/links", None, "links:read"),
        ("GET", "/v1/links/nosuch", None, "links:read"),
        ("POST", "/v1/links", Some(&link), "links:write"),
        ("PATCH", "/v1/links/nosuch", Some(&nothing), "links:write"),
        ("DELETE", "/v1/links/nosuch", None, "links:write"),
        ("GET", "/v1/keys", None, "keys:admin"),
        ("GET", "/v1/keys/nosuch", None, "keys:admin"),
        ("PATCH", "/v1/keys/nosuch", Some(&nothing), "keys:admin"),
        ("DELETE", "/v1/keys/nosuch", None, "keys:admin"),
        (
            "POST",
            "/v1/keys/nosuch/rotate",
            Some(&rotation),
            "keys:admin",
        ),
        ("GET", "/v1/audit", None, "admin"),
    ];
    for scope in SCOPES {
        let holder = stack.sidecar.make_key(&[scope]);
        for (method, path, body, needed) in routes {
            let answer = ask(&stack, &holder, method, path, body);
            let is_open = scope == needed || scope == "admin";
            let what = format!("{scope}: {method} {path}: {}", answer.status);
            assert_eq!(answer.status != 403, is_open, "{what}");
            assert_ne!(answer.status, 401, "{what}");
        }
        // Nobody grants what they lack.
        let answer = ask(&stack, &holder, "POST", "/v1/keys", Some(&key));
        let expected = if scope == "admin" { 201 } else { 403 };
        assert_eq!(answer.status, expected, "{scope} grants links:read");
    }
}

#[test]
fn a_key_ends_when_it_expires() {
    let stack = Stack::start();
    let admin = stack.sidecar.make_key(&["admin"]);
    // Long enough for a slow machine to see the key work before.
    let expiry_of_rest = in_seconds(5);
    let body = json!({ "name": "x", "scopes": ["links:read"], "expiresAt": expiry_of_rest });
    let of_rest = text(&create(&stack, &admin, &body), "secret");
    let expiry = in_seconds(5);
    let of_cli = ["keys", "create", "--name", "x", "--scope", "links:read"];
    let of_cli = [&of_cli[..], &["--expires-at", &expiry]].concat();
    let of_cli = stack.sidecar.run_ok(&of_cli);
    let kept = stack.sidecar.make_key(&["links:read"]);
    let keys = [&of_rest, of_cli.trim()];
    for (key, expiry) in keys.into_iter().zip([expiry_of_rest, expiry]) {
        let status = status(&stack, key);
        assert!(status == 200 || in_seconds(0) >= expiry, "{status}");
    }
    for key in keys {
        until("the key expires", SOON, || status(&stack, key) == 401);
        let path = format!("/v1/keys/{}", id(key));
        let shown = ask(&stack, &admin, "GET", &path, None).json();
        assert_eq!(shown["state"], "expired");
    }
    assert_eq!(status(&stack, &kept), 200);
    for past in [in_seconds(0), "2020-01-01T00:00:00Z".to_owned()] {
        let body = json!({ "name": "x", "scopes": ["links:read"], "expiresAt": past });
        let answer = ask(&stack, &admin, "POST", "/v1/keys", Some(&body));
        assert_eq!(answer.status, 422);
        assert_eq!(answer.json()["errors"][0]["pointer"], "/expiresAt");
    }
}

#[test]
fn a_rotated_key_and_its_successor_overlap() {
    let stack = Stack::start();
    let admin = stack.sidecar.make_key(&["admin"]);
    let body = json!({
        "name": "shop", "scopes": ["links:read"],
        "rateLimit": { "requestsPerSecond": 1000, "burst": 2000 },
    });
    let made = create(&stack, &admin, &body);
    let old = text(&made, "secret");
    let path = format!("/v1/keys/{}/rotate", id(&old));
    let begin = Instant::now();
    let rotated = ask(
        &stack,
        &admin,
        "POST",
        &path,
        Some(&json!({ "overlapSeconds": 3 })),
    );
    assert_eq!(rotated.status, 201);
    assert_eq!(rotated.header("Cache-Control"), Some("no-store"));
    let rotated = rotated.json();
    let new = text(&rotated, "secret");
    for member in ["name", "scopes", "rateLimit", "policy", "expiresAt"] {
        assert_eq!(rotated[member], made[member], "{member}");
    }
    assert_eq!(status(&stack, &new), 200);
    let status_of_old = status(&stack, &old);
    let is_over = begin.elapsed() >= Duration::from_secs(3);
    assert!(status_of_old == 200 || is_over, "{status_of_old}");
    until("the old key ends", SOON, || status(&stack, &old) == 401);
    assert_eq!(status(&stack, &new), 200);

    // The same at the command line, without an overlap.
    let rotate = ["keys", "rotate", id(&new), "--overlap-seconds", "0"];
    let newest = stack.sidecar.run_ok(&rotate);
    assert_eq!(status(&stack, newest.trim()), 200);
    until("the old key ends", SOON, || status(&stack, &new) == 401);
    let again = stack.sidecar.run(&rotate);
    assert!(!again.status.success());
}

#[test]
fn a_limit_is_kept_and_told_and_passes() {
    let stack = Stack::start();
    let create = ["keys", "create", "--name", "x", "--scope", "links:read"];
    let limit = ["--rate-limit", "1", "--burst", "3"];
    let limited = stack.sidecar.run_ok(&[&create[..], &limit].concat());
    let limited = limited.trim();
    for _ in 0..3 {
        assert_eq!(status(&stack, limited), 200);
    }
    // However slow this machine is, it asks more often than once a second.
    let mut refused = None;
    until("the limit is reached", SOON, || {
        let answer = ask(&stack, limited, "GET", "/v1/links", None);
        refused = (answer.status == 429).then_some(answer);
        refused.is_some()
    });
    let refused = refused.expect("an answer");
    let media_type = refused.header("Content-Type");
    assert_eq!(media_type, Some("application/problem+json"));
    assert_eq!(refused.json()["type"], "urn:shortlink:problem:rate-limited");
    assert_eq!(refused.header("Retry-After"), Some("1"));
    // Others are not concerned.
    assert_eq!(
        status(&stack, &stack.sidecar.make_key(&["links:read"])),
        200
    );
    until("the limit passes", SOON, || status(&stack, limited) == 200);
}

#[test]
fn links_lead_only_to_domains_that_are_allowed() {
    let stack = Stack::with(&StackOptions {
        sidecar: "[links]\nallowed_domains = [\"example.com\", \"b\u{fc}cher.example\", \
                  \"8.8.8.8\"]\ndenied_domains = [\"Bad.Example.com.\", \"=just.example.com\"]"
            .to_owned(),
        ..StackOptions::default()
    });
    let narrow = stack.sidecar.run_ok(&[
        "keys",
        "create",
        "--name",
        "narrow",
        "--scope",
        "links:write",
        "--allowed-domain",
        "shop.example.com",
        "--allowed-domain",
        "=xn--bcher-kva.example",
    ]);
    for (target, is_allowed, is_allowed_to_narrow) in [
        ("https://example.com/", true, false),
        ("https://shop.example.com/", true, true),
        ("https://a.shop.example.com./", true, true),
        ("https://notshop.example.com/", true, false),
        ("https://notexample.com/", false, false),
        ("https://example.com.evil.example/", false, false),
        ("https://evil.example/?example.com", false, false),
        ("https://bad.example.com/", false, false),
        ("https://BAD.example.com./", false, false),
        ("https://very.b%61d.example.com/", false, false),
        ("https://just.example.com/", false, false),
        ("https://not.just.example.com/", true, false),
        ("https://BÜCHER.example/", true, true),
        ("https://www.xn--bcher-kva.example/", true, false),
        ("https://bucher.example/", false, false),
        ("https://8.8.8.8/", true, false),
        ("https://0x8080808/", true, false),
        ("https://8.8.8.80/", false, false),
    ] {
        let body = json!({ "longUrl": target });
        for (key, is_allowed) in [
            (&*stack.sidecar.key, is_allowed),
            (narrow.trim(), is_allowed_to_narrow),
        ] {
            let answer = ask(&stack, key, "POST", "/v1/links", Some(&body));
            let expected = if is_allowed { 201 } else { 422 };
            assert_eq!(answer.status, expected, "{target}");
            if !is_allowed {
                let error = &answer.json()["errors"][0];
                assert_eq!(error["pointer"], "/longUrl", "{target}");
                assert!(text(error, "detail").contains("domain"), "{error}");
            }
        }
    }
}

#[test]
fn the_audit_log_tells_what_was_done_with_keys_and_outlives_the_process() {
    let mut stack = Stack::start();
    let admin = stack.sidecar.make_key(&["admin"]);
    let body = json!({ "name": "shop", "scopes": ["links:read"] });
    let made = create(&stack, &admin, &body);
    let (key, secret) = (text(&made, "id"), text(&made, "secret"));
    let path = format!("/v1/keys/{key}");
    let change = json!({ "name": "other" });
    let answer = ask(&stack, &admin, "PATCH", &path, Some(&change));
    assert_eq!(answer.status, 200);
    stack.sidecar.run_ok(&["keys", "revoke", &key]);
    assert_eq!(stack.sidecar.stop(), Some(0));
    stack.sidecar.start_again();

    let read = |query: &str| {
        let path = format!("/v1/audit?{query}");
        let answer = ask(&stack, &admin, "GET", &path, None);
        assert_eq!(answer.status, 200);
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        let secret = secret.rsplit('_').next().expect("a secret");
        assert!(!body.contains(secret), "a secret is in the log");
        answer.json()
    };
    let log = read(&format!("subject=key:{key}"));
    let told: Vec<(&Value, &Value, &Value)> = log["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| (&entry["action"], &entry["keyId"], &entry["detail"]["name"]))
        .collect();
    let (by_admin, by_cli) = (json!(id(&admin)), Value::Null);
    let (create, change, revoke) = (
        json!("key.create"),
        json!("key.change"),
        json!("key.revoke"),
    );
    assert_eq!(
        told,
        [
            (&revoke, &by_cli, &Value::Null),
            (&change, &by_admin, &json!("other")),
            (&create, &by_admin, &json!("shop")),
        ]
    );
    // The key of the stack, the administrator and the one above.
    let mut path = "action=key.create&limit=2".to_owned();
    let mut pages = Vec::new();
    loop {
        let page = read(&path);
        pages.push(page["entries"].as_array().map(Vec::len));
        let Value::String(cursor) = &page["nextCursor"] else {
            break;
        };
        path = format!("action=key.create&limit=2&cursor={cursor}");
    }
    assert_eq!(pages, [Some(2), Some(1)]);
}

#[test]
fn a_change_over_rest_counts_at_once_and_the_last_administrator_stays() {
    let stack = Stack::start();
    let admin = stack.sidecar.make_key(&["admin"]);
    let made = create(
        &stack,
        &admin,
        &json!({ "name": "x", "scopes": ["links:read"] }),
    );
    let secret = text(&made, "secret");
    assert_eq!(status(&stack, &secret), 200);
    let path = format!("/v1/keys/{}", text(&made, "id"));
    assert_eq!(ask(&stack, &admin, "DELETE", &path, None).status, 200);
    assert_eq!(status(&stack, &secret), 401);

    let own = format!("/v1/keys/{}", id(&admin));
    let answer = ask(&stack, &admin, "DELETE", &own, None);
    assert_eq!(answer.status, 409);
    let media_type = answer.header("Content-Type");
    assert_eq!(media_type, Some("application/problem+json"));
    let other = stack.sidecar.make_key(&["admin"]);
    assert_eq!(ask(&stack, &admin, "DELETE", &own, None).status, 200);
    assert_eq!(ask(&stack, &admin, "GET", &own, None).status, 401);
    // Whoever has the command line can make another.
    stack.sidecar.run_ok(&["keys", "revoke", id(&other)]);
    until("the key is refused", SOON, || {
        ask(&stack, &other, "GET", "/v1/keys", None).status == 401
    });
}

#[test]
fn the_command_line_makes_lists_and_refuses_keys() {
    let stack = Stack::start();
    let create = ["keys", "create", "--name", "shop", "--scope", "links:write"];
    let options = [
        "--scope",
        "stats:read",
        "--expires-at",
        "2999-01-01T00:00:00Z",
        "--rate-limit",
        "50",
        "--burst",
        "100",
        "--strategy",
        "pool",
        "--strategy",
        "permuted",
        "--min-body-length",
        "6",
        "--max-body-length",
        "9",
        "--allowed-domain",
        "Example.com",
    ];
    let key = stack.sidecar.run_ok(&[&create[..], &options].concat());
    let admin = stack.sidecar.make_key(&["admin"]);
    let path = format!("/v1/keys/{}", id(&key));
    let shown = ask(&stack, &admin, "GET", &path, None).json();
    for (member, value) in [
        ("name", json!("shop")),
        ("scopes", json!(["links:write", "stats:read"])),
        ("state", json!("live")),
        ("expiresAt", json!("2999-01-01T00:00:00Z")),
        (
            "rateLimit",
            json!({ "requestsPerSecond": 50, "burst": 100 }),
        ),
        (
            "policy",
            json!({
                "strategies": ["pool", "permuted"], "minBodyLength": 6, "maxBodyLength": 9,
                "allowedDomains": ["example.com"],
            }),
        ),
    ] {
        assert_eq!(shown[member], value, "{member}");
    }
    let listed = stack.sidecar.run_ok(&["keys", "list"]);
    assert!(!listed.contains(key.trim()), "a key is shown");
    let line = listed.lines().find(|line| line.starts_with(id(&key)));
    let line = line.unwrap_or_else(|| panic!("no line for the key in {listed}"));
    for word in ["links:write,stats:read", "live", "2999-01-01", "50/s,100"] {
        assert!(line.contains(word), "no {word} in {line}");
    }
    for (options, words) in [
        (&["--scope", "root"][..], &["root", "links:read"][..]),
        (&["--burst", "5"], &["--rate-limit"]),
        (&["--rate-limit", "0"], &["1..=1000000"]),
        (&["--expires-at", "soon"], &["--expires-at"]),
        (&["--expires-at", "2020-01-01T00:00:00Z"], &["future"]),
        (&["--strategy", "luck"], &["luck", "permuted, pool"]),
        (
            &["--min-body-length", "9", "--max-body-length", "8"],
            &["body length"],
        ),
        (
            &["--allowed-domain", "*.example.com"],
            &["*.example.com", "=example.com"],
        ),
        (&["--name", "a\nb"], &["name"]),
    ] {
        let output = stack.sidecar.run(&[&create[..], options].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{options:?}");
        for word in words {
            assert!(said.contains(word), "{options:?}: no {word:?} in {said}");
        }
    }
    for command in [
        &["keys", "revoke", "nosuchkey0"][..],
        &["keys", "rotate", "nosuchkey0", "--overlap-seconds", "1"],
    ] {
        let output = stack.sidecar.run(command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{command:?}");
        assert!(said.contains("there is no key"), "{command:?}: {said}");
    }
    for seconds in ["-1", "7776001", "x"] {
        let rotate = ["keys", "rotate", id(&key), "--overlap-seconds", seconds];
        assert!(!stack.sidecar.run(&rotate).status.success(), "{seconds}");
    }
}
