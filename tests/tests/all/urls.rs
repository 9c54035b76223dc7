//! Ten thousand real URLs are issued and followed.

use std::thread;

use serde_json::json;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::stack::{Stack, text};

const URLS: &str = include_str!("../../data/real-urls.txt");
const WORKERS: usize = 8;

/// Issues every URL; returns each code with the target that the API said is stored.
fn issue(stack: &Stack) -> Vec<(String, String)> {
    let urls: Vec<&str> = URLS.lines().collect();
    assert_eq!(urls.len(), 10_000);
    let key = &*stack.sidecar.key;
    let port = stack.nginx.internal_port;
    thread::scope(|scope| {
        let workers: Vec<_> = urls
            .chunks(urls.len().div_ceil(WORKERS))
            .map(|urls| {
                scope.spawn(move || {
                    let mut connection = Connection::open(port).expect("a connection");
                    let headers = [("X-Api-Key", key), ("Content-Type", "application/json")];
                    let mut made = Vec::with_capacity(urls.len());
                    for url in urls {
                        let body = json!({ "longUrl": url }).to_string();
                        let request = http::request("POST", "/v1/links", &headers, body.as_bytes());
                        connection.send(&request).expect("sent");
                        let answer = match connection.receive("POST").expect("read") {
                            Some(answer) => answer,
                            // nginx closes a connection after so many requests.
                            None => {
                                connection = Connection::open(port).expect("a connection");
                                connection.send(&request).expect("sent");
                                connection
                                    .receive("POST")
                                    .expect("read")
                                    .expect("an answer")
                            }
                        };
                        assert_eq!(answer.status, 201, "{url}");
                        let closes = answer.header("Connection") == Some("close");
                        let link = answer.json();
                        made.push((text(&link, "shortCode"), text(&link, "longUrl")));
                        if closes {
                            connection = Connection::open(port).expect("a connection");
                        }
                    }
                    made
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker"))
            .collect()
    })
}

#[test]
fn ten_thousand_real_urls_come_back_byte_for_byte() {
    let stack = Stack::start();
    let links = issue(&stack);
    for (url, (_, stored)) in URLS.lines().zip(&links) {
        // What is stored is the URL itself but for its normal form.
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
