//! Ten thousand real URLs are issued and followed.

use serde_json::{Value, json};
use shortlink_tests::http::{self, Connection};
use shortlink_tests::stack::{Stack, text};

const URLS: &str = include_str!("../../data/real-urls.txt");

/// Issues every URL; returns each code with the target that the API said is stored.
fn issue(stack: &Stack) -> Vec<(String, String)> {
    let urls: Vec<&str> = URLS.lines().collect();
    assert_eq!(urls.len(), 10_000);
    let mut made = Vec::with_capacity(urls.len());
    for urls in urls.chunks(1000) {
        let rows: Vec<Value> = urls.iter().map(|url| json!({ "longUrl": url })).collect();
        let answer = stack.api("POST", "/v1/links/batch", Some(&json!(rows)));
        assert_eq!(answer.status, 200);
        for result in answer.json().as_array().expect("results") {
            assert_eq!(result["status"], 201, "{result}");
            let link = &result["link"];
            made.push((text(link, "shortCode"), text(link, "longUrl")));
        }
    }
    made
}

#[test]
fn ten_thousand_real_urls_come_back_byte_for_byte() {
    let stack = Stack::start();
    let links = issue(&stack);
    for (url, (_, stored)) in URLS.lines().zip(&links) {
        // The sidecar stores the URL itself but for its normal form.
        let host = |url: &str| url.split('/').nth(2).map(str::to_ascii_lowercase);
        assert_eq!(host(url), host(stored));
    }
    let mut codes: Vec<&str> = links.iter().map(|(code, _)| &**code).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), links.len());

    let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
    for (code, stored) in &links {
        let request = http::request("GET", &format!("/{code}"), &[], b"");
        connection.send(&request).expect("sent");
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!(answer.location(), Some(&**stored));
        assert_eq!(answer.header("X-Edge"), Some("redirect/redis"));
        if answer.header("Connection") == Some("close") {
            connection = Connection::open(stack.nginx.public_port).expect("a connection");
        }
    }

    stack.redis.command(&["FLUSHALL"]);
    for (code, stored) in links.iter().step_by(50) {
        let answer = stack.follow(code);
        assert_eq!(answer.location(), Some(&**stored));
        assert_eq!(answer.header("X-Edge"), Some("miss/fallback"));
    }
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}
