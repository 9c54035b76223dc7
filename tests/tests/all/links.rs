//! Links are made, changed, revoked and listed.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use shortlink_tests::http::{self, Connection};
use shortlink_tests::sidecar::api;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

#[test]
fn a_revoked_link_answers_410_from_nginx_itself() {
    let mut stack = Stack::start();
    let code = stack.link("https://example.com/");
    assert_eq!(stack.follow(&code).status, 302);
    let revoked = stack.api("DELETE", &format!("/v1/links/{code}"), None);
    assert_eq!(revoked.status, 200);
    let revoked = revoked.json();
    assert_eq!(
        (&revoked["state"], &revoked["published"]),
        (&json!("revoked"), &json!(true))
    );
    assert_eq!(revoked["revision"], 2);
    // Only nginx and Redis are left to answer.
    stack.sidecar.kill();
    until("nginx answers 410", SOON, || {
        stack.follow(&code).status == 410
    });
    let answer = stack.follow(&code);
    let edge = answer.header("X-Edge").unwrap_or_default();
    assert!(["gone/redis", "gone/cache"].contains(&edge), "{edge}");
    assert_eq!(answer.location(), None);
}

#[test]
fn revoking_is_final_and_may_be_repeated() {
    let stack = Stack::start();
    let code = stack.link("https://example.com/");
    let path = format!("/v1/links/{code}");
    assert_eq!(stack.api("DELETE", &path, None).status, 200);
    let again = stack.api("DELETE", &path, None);
    assert_eq!((again.status, &again.json()["revision"]), (200, &json!(2)));
    let change = json!({ "longUrl": "https://example.com/new" });
    assert_eq!(stack.api("PATCH", &path, Some(&change)).status, 409);
    let slug = json!({ "longUrl": "https://example.com/", "customSlug": code });
    assert_eq!(stack.api("POST", "/v1/links", Some(&slug)).status, 409);
    assert_eq!(
        text(&stack.api("GET", &path, None).json(), "state"),
        "revoked"
    );
}

#[test]
fn a_changed_link_leads_to_its_new_target() {
    let stack = Stack::start();
    let code = stack.link("https://example.com/old");
    let path = format!("/v1/links/{code}");
    let change = json!({ "longUrl": "https://example.com/new", "redirectStatus": 307 });
    let changed = stack.api("PATCH", &path, Some(&change));
    assert_eq!(changed.status, 200);
    assert_eq!(
        (&changed.json()["revision"], &changed.json()["published"]),
        (&json!(2), &json!(true))
    );
    let answer = stack.follow(&code);
    assert_eq!(
        (answer.status, answer.location()),
        (307, Some("https://example.com/new"))
    );
    // Once more: nothing changes, and that is said.
    assert_eq!(
        stack.api("PATCH", &path, Some(&change)).json()["revision"],
        2
    );
    let read = stack.api("GET", &path, None).json();
    assert_eq!(text(&read, "longUrl"), "https://example.com/new");
    assert_eq!(
        stack
            .api("PATCH", "/v1/links/nosuchone", Some(&change))
            .status,
        404
    );
}

#[test]
fn a_custom_code_is_taken_once() {
    let stack = Stack::start();
    let body = json!({ "longUrl": "https://example.com/", "customSlug": "sale" });
    assert_eq!(text(&stack.create(&body), "shortCode"), "sale");
    assert_eq!(stack.follow("sale").status, 302);
    let taken = stack.api("POST", "/v1/links", Some(&body));
    assert_eq!(taken.status, 409);
    assert_eq!(
        taken.header("Content-Type"),
        Some("application/problem+json")
    );
    assert_eq!(taken.json()["errors"][0]["pointer"], "/customSlug");
    // Codes tell upper from lower case.
    let other = json!({ "longUrl": "https://example.com/other", "customSlug": "Sale" });
    stack.create(&other);
    assert_eq!(
        stack.follow("sale").location(),
        Some("https://example.com/")
    );
    assert_eq!(
        stack.follow("Sale").location(),
        Some("https://example.com/other")
    );
}

#[test]
fn all_links_are_listed_once_whatever_is_made_meanwhile() {
    let stack = Stack::start();
    let made: HashSet<String> = (0..25)
        .map(|number| stack.link(&format!("https://example.com/{number}")))
        .collect();
    let mut listed = Vec::new();
    let mut path = "/v1/links?limit=10".to_owned();
    loop {
        let page = stack.api("GET", &path, None);
        assert_eq!(page.status, 200);
        let page = page.json();
        let links = page["links"].as_array().expect("links");
        assert!(links.len() <= 10);
        listed.extend(links.iter().map(|link| text(link, "shortCode")));
        stack.link("https://example.com/meanwhile");
        match &page["nextCursor"] {
            Value::String(cursor) => path = format!("/v1/links?limit=10&cursor={cursor}"),
            _ => break,
        }
    }
    assert_eq!(listed.len(), made.len());
    assert_eq!(listed.into_iter().collect::<HashSet<_>>(), made);
    let revoked = made.iter().next().expect("a code");
    stack.api("DELETE", &format!("/v1/links/{revoked}"), None);
    let page = stack.api("GET", "/v1/links?state=revoked", None).json();
    assert_eq!(text(&page["links"][0], "shortCode"), *revoked);
    assert_eq!(page["links"].as_array().map(Vec::len), Some(1));
}

#[test]
fn keys_open_what_their_scopes_name_until_they_are_revoked() {
    let stack = Stack::start();
    let port = stack.nginx.internal_port;
    let body = json!({ "longUrl": "https://example.com/" });
    let reader = stack.sidecar.make_key(&["links:read"]);
    let writer = stack.sidecar.make_key(&["links:write"]);
    assert_eq!(api(port, &reader, "GET", "/v1/links", None).status, 200);
    assert_eq!(
        api(port, &reader, "POST", "/v1/links", Some(&body)).status,
        403
    );
    assert_eq!(
        api(port, &writer, "POST", "/v1/links", Some(&body)).status,
        201
    );
    assert_eq!(api(port, &writer, "GET", "/v1/links", None).status, 403);
    for wrong in [
        "",
        "x",
        "slk_x_y",
        &reader[..reader.len() - 1],
        &format!("{reader}x"),
    ] {
        let refused = api(port, wrong, "GET", "/v1/links", None);
        assert_eq!(refused.status, 401, "{wrong}");
        assert!(refused.header("WWW-Authenticate").is_some());
    }
    let bearer = format!("Bearer {reader}");
    let headers = [("Authorization", &*bearer)];
    assert_eq!(
        shortlink_tests::http::send(port, "GET", "/v1/links", &headers).status,
        200
    );

    let listed = stack.sidecar.run_ok(&["keys", "list"]);
    assert!(!listed.contains(&reader), "a key is shown");
    let id = reader.split('_').nth(1).expect("an id");
    assert!(listed.contains(id), "{listed}");
    stack.sidecar.run_ok(&["keys", "revoke", id]);
    until("the key is refused", SOON, || {
        api(port, &reader, "GET", "/v1/links", None).status == 401
    });
    let database = std::fs::read(stack.directory().join("sidecar/links.db")).expect("a database");
    let secret = writer.rsplit('_').next().expect("a secret").as_bytes();
    let kept = database
        .windows(secret.len())
        .any(|window| window == secret);
    assert!(!kept, "the secret is kept");
}

#[test]
fn the_public_server_has_no_api_and_the_internal_one_no_links() {
    let stack = Stack::start();
    let code = stack.link("https://example.com/");
    let public = stack.nginx.public_port;
    for path in [
        "/v1/links",
        "/readyz",
        "/healthz",
        &format!("/resolve/{code}"),
    ] {
        assert_eq!(
            api(public, &stack.sidecar.key, "GET", path, None).status,
            404,
            "{path}"
        );
    }
    for path in [format!("/resolve/{code}"), format!("/{code}")] {
        let internal = stack.nginx.internal_port;
        assert_eq!(
            api(internal, &stack.sidecar.key, "GET", &path, None).status,
            404,
            "{path}"
        );
    }
}

#[test]
fn who_announces_the_rows_of_a_batch_is_told_to_go_on() {
    let stack = Stack::start();
    let rows = b"{\"longUrl\":\"https://example.com/\"}\n";
    let head = http::request(
        "POST",
        "/v1/links/batch",
        &[
            ("X-Api-Key", &stack.sidecar.key),
            ("Content-Type", "application/x-ndjson"),
            ("Expect", "100-continue"),
            ("Content-Length", &rows.len().to_string()),
        ],
        b"",
    );
    let mut client = Connection::open(stack.sidecar.port).expect("a connection");
    client.send(&head).expect("sent");
    let interim = client.receive("POST").expect("HTTP").expect("an answer");
    assert_eq!(interim.status, 100);
    client.send(rows).expect("sent");
    let answer = client.receive("POST").expect("HTTP").expect("an answer");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["status"], 201);
}

#[test]
fn a_batch_that_is_sent_faster_than_it_is_made_gets_through_nginx() {
    const ROWS: usize = 15_000;
    let stack = Stack::start();
    // More than what stands between client and sidecar can hold.
    let long = "x".repeat(2_000);
    let rows =
        (0..ROWS).map(|row| json!({ "longUrl": format!("https://{row}.example.com/{long}") }));
    let file = stack.directory().join("rows.ndjson");
    fs::write(
        &file,
        rows.map(|row| format!("{row}\n")).collect::<String>(),
    )
    .expect("a file");
    let port = stack.nginx.internal_port;
    let sent = Command::new("curl")
        .args(["-sS", "--max-time", "120", "-X", "POST", "-T"])
        .arg(&file)
        .args(["-H", &format!("X-Api-Key: {}", stack.sidecar.key)])
        .args(["-H", "Content-Type: application/x-ndjson"])
        .arg(format!("http://127.0.0.1:{port}/v1/links/batch"))
        .output()
        .expect("curl");
    assert!(
        sent.status.success(),
        "{}",
        String::from_utf8_lossy(&sent.stderr)
    );
    let results = String::from_utf8(sent.stdout).expect("text");
    assert_eq!(results.matches("\"status\":201").count(), ROWS);
}
