//! API keys at the command line, and the settings and keys that narrow where links may lead.

use serde_json::{Value, json};
use shortlink_tests::sidecar::api;
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::wait::{SOON, until};

/// The answer that a key gets to a GET.
fn get(stack: &Stack, key: &str, path: &str) -> (u16, Value) {
    let answer = api(stack.nginx.internal_port, key, "GET", path, None);
    (answer.status, answer.json())
}

/// The id within a key.
fn id(key: &str) -> &str {
    key.split('_').nth(1).expect("an id")
}

#[test]
fn settings_and_keys_narrow_where_links_may_lead() {
    let stack = Stack::with(&StackOptions {
        sidecar: "[links]\nallowed_domains = [\"example.com\", \"b\u{fc}cher.example\"]\n\
                  denied_domains = [\"Bad.Example.com.\"]"
            .to_owned(),
        ..StackOptions::default()
    });
    let create = ["keys", "create", "--name", "x", "--scope", "links:write"];
    let domains = ["--allowed-domain", "shop.example.com"];
    let narrow = stack.sidecar.run_ok(&[&create[..], &domains].concat());
    for (target, of_free, of_narrow) in [
        ("https://example.com/", 201, 422),
        ("https://shop.example.com/", 201, 201),
        ("https://BÜCHER.example/", 201, 422),
        ("https://bad.example.com/", 422, 422),
        ("https://evil.example/", 422, 422),
    ] {
        let body = json!({ "longUrl": target });
        for (key, status) in [(&*stack.sidecar.key, of_free), (narrow.trim(), of_narrow)] {
            let port = stack.nginx.internal_port;
            let answer = api(port, key, "POST", "/v1/links", Some(&body));
            assert_eq!(answer.status, status, "{target}");
        }
    }
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
        "--no-custom-codes",
        "--min-custom-length",
        "4",
        "--max-links",
        "1000",
        "--own-links-only",
    ];
    let key = stack.sidecar.run_ok(&[&create[..], &options].concat());
    let admin = stack.sidecar.make_key(&["admin"]);
    let path = format!("/v1/keys/{}", id(&key));
    let (_, shown) = get(&stack, &admin, &path);
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
                "allowedDomains": ["example.com"], "customCodes": false, "minCustomLength": 4,
                "maxLinks": 1000, "ownLinksOnly": true,
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
        (
            &["--own-links-only", "--scope", "admin"],
            &["ownLinksOnly", "keys:admin"],
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

    let rotate = ["keys", "rotate", id(&key), "--overlap-seconds", "0"];
    let successor = stack.sidecar.run_ok(&rotate);
    assert!(
        !stack.sidecar.run(&rotate).status.success(),
        "it was rotated"
    );
    let (_, shown) = get(&stack, &admin, &path);
    assert_eq!(shown["state"], "expired");
    // The last administrator too, since the command line can make another.
    for key in [&successor, &admin] {
        stack.sidecar.run_ok(&["keys", "revoke", id(key)]);
        until("the key is refused", SOON, || {
            get(&stack, key.trim(), "/v1/audit").0 == 401
        });
    }
    let auditor = stack.sidecar.make_key(&["admin"]);
    let path = format!("/v1/audit?subject=key:{}", id(&successor));
    let (_, log) = get(&stack, &auditor, &path);
    assert_eq!(log["entries"][0]["action"], "key.revoke");
    assert_eq!(log["entries"][0]["keyId"], Value::Null);
    let database = std::fs::read(stack.directory().join("sidecar/links.db")).expect("a database");
    let secret = auditor.rsplit('_').next().expect("a secret").as_bytes();
    let is_stored = database.windows(secret.len()).any(|part| part == secret);
    assert!(!is_stored, "the database holds a secret");
}
