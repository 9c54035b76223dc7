//! Domains are swapped in one file.

use serde_json::json;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::stack::{Stack, text};

fn follow(stack: &Stack, host: &str, code: &str) -> Option<u16> {
    let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
    let headers = [("Host", host)];
    connection
        .send(&http::request("GET", &format!("/{code}"), &headers, b""))
        .expect("sent");
    connection
        .receive("GET")
        .expect("read")
        .map(|answer| answer.status)
}

fn set_domains(stack: &Stack, table: &str) {
    let text = format!("shortlink_domains {{\n{table}\n}}\n");
    std::fs::write(stack.nginx.file("domains.conf"), text).expect("domains.conf");
    let tested = stack.nginx.test_configuration();
    assert!(
        tested.status.success(),
        "{}",
        String::from_utf8_lossy(&tested.stderr)
    );
    stack.nginx.reload();
}

#[test]
fn a_swap_is_an_edit_and_a_reload() {
    let stack = Stack::start();
    set_domains(&stack, "a.example.com active;");
    let first = stack.create(&json!({ "longUrl": "https://target.example/" }));
    let code = text(&first, "shortCode");
    assert_eq!(
        text(&first, "shortUrl"),
        format!("https://a.example.com/{code}")
    );
    assert_eq!(follow(&stack, "a.example.com", &code), Some(302));
    assert_eq!(follow(&stack, "b.example.com", &code), None);

    // Blocked: b takes over, a still serves.
    set_domains(
        &stack,
        "a.example.com serving;\nb.example.com active scheme=http port=8443;",
    );
    let second = stack.create(&json!({ "longUrl": "https://target.example/" }));
    let second_code = text(&second, "shortCode");
    assert_eq!(
        text(&second, "shortUrl"),
        format!("http://b.example.com:8443/{second_code}")
    );
    // The same link, asked for again, is on the active domain too.
    let read = stack.api("GET", &format!("/v1/links/{code}"), None).json();
    assert_eq!(
        text(&read, "shortUrl"),
        format!("http://b.example.com:8443/{code}")
    );
    for host in ["a.example.com", "b.example.com"] {
        for code in [&code, &second_code] {
            assert_eq!(follow(&stack, host, code), Some(302), "{host}");
        }
    }

    // Given up: a answers 410 for everything, and no link may lead to it even now.
    set_domains(&stack, "a.example.com retired;\nb.example.com active;");
    assert_eq!(follow(&stack, "a.example.com", &code), Some(410));
    assert_eq!(follow(&stack, "a.example.com", "nosuchone"), Some(410));
    assert_eq!(follow(&stack, "b.example.com", &code), Some(302));
    let own = json!({ "longUrl": "https://a.example.com/x" });
    assert_eq!(stack.api("POST", "/v1/links", Some(&own)).status, 422);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn without_nginx_the_sidecar_knows_no_domain() {
    let stack = Stack::start();
    let body = json!({ "longUrl": "https://target.example/" });
    let port = stack.sidecar.port;
    let made =
        shortlink_tests::sidecar::api(port, &stack.sidecar.key, "POST", "/v1/links", Some(&body));
    assert_eq!(made.status, 201);
    assert!(made.json()["shortUrl"].is_null());
    // A client of the API can't pass a domain of its own through nginx.
    let headers = [
        ("X-Api-Key", &*stack.sidecar.key),
        ("Content-Type", "application/json"),
        ("X-Shortlink-Base", "https://evil.example"),
        ("X-Shortlink-Domains", ""),
    ];
    let request = http::request("POST", "/v1/links", &headers, body.to_string().as_bytes());
    let made = http::try_send(stack.nginx.internal_port, "POST", &request).expect("an answer");
    assert!(text(&made.json(), "shortUrl").starts_with("http://localhost:"));
}
