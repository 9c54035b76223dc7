//! Links through both servers of nginx, and batches through them.

use std::fs;
use std::process::Command;

use serde_json::json;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::sidecar::api;
use shortlink_tests::stack::Stack;
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
fn codes_are_case_sensitive() {
    let stack = Stack::shared();
    let target = "https://example.com/case";
    stack.create(&json!({ "longUrl": target, "customSlug": "caseSensitive" }));
    assert_eq!(stack.follow("caseSensitive").location(), Some(target));
    assert_eq!(stack.follow("CaseSensitive").status, 404);
}

#[test]
fn the_public_server_has_no_api_and_the_internal_one_no_links() {
    let stack = Stack::shared();
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
    let stack = Stack::shared();
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
    let stack = Stack::shared();
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

#[test]
fn the_link_in_the_text_of_a_message_redirects_to_its_target() {
    let stack = Stack::shared();
    let target = "https://example.com/spring?m=4711";
    let rows = json!([{ "text": "Hi (https://example.com/spring?m={m}).", "parameters": { "m": "4711" } }]);
    let answer = api(
        stack.nginx.internal_port,
        &stack.sidecar.key,
        "POST",
        "/v1/messages",
        Some(&rows),
    );
    assert_eq!(answer.status, 200);
    let message = answer.json()[0]["message"].clone();
    let text = message["text"].as_str().expect("a text");
    let url = text
        .strip_prefix("Hi (")
        .and_then(|text| text.strip_suffix(")."));
    let code = url
        .and_then(|url| url.rsplit('/').next())
        .expect("a short URL");
    assert_eq!(message["codes"], json!([code]));
    let followed = stack.follow(code);
    assert_eq!((followed.status, followed.location()), (302, Some(target)));
}
