//! HTTP/1.0 and HTTP/1.1 as they are on the wire; HTTP/2 has a module of its own.

use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::site::{ONE, Site, SiteOptions, TWO};
use shortlink_tests::wait::{SOON, until};

/// The locations of these tests.
const SERVER: &str = "location / { shortlink; shortlink_fallback @fallback; }
                      location @fallback { return 200 \"[$shortlink_code]\"; }";

fn open(site: &Site) -> Connection {
    Connection::open(site.nginx.public_port).expect("a connection")
}

fn send(connection: &mut Connection, text: &str) {
    connection.send(text.as_bytes()).expect("sent");
}

fn receive(connection: &mut Connection, method: &str) -> Response {
    let answer = connection.receive(method).expect("read");
    answer.expect("an answer")
}

/// Returns whether the server has closed the connection without sending more.
fn is_closed(connection: &mut Connection) -> bool {
    matches!(connection.receive_all().as_deref(), Ok(b""))
}

#[test]
fn http_1_0_closes_unless_asked_to_keep_the_connection() {
    let site = Site::start(SERVER);
    for method in ["GET", "HEAD"] {
        let mut connection = open(&site);
        send(&mut connection, &format!("{method} /one HTTP/1.0\r\n\r\n"));
        let answer = receive(&mut connection, method);
        assert_eq!((answer.status, answer.location()), (302, Some(ONE)));
        assert_eq!(answer.header("Connection"), Some("close"));
        assert!(is_closed(&mut connection));

        let mut connection = open(&site);
        for _ in 0..3 {
            let request = format!("{method} /two HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
            send(&mut connection, &request);
            let answer = receive(&mut connection, method);
            assert_eq!((answer.status, answer.location()), (301, Some(TWO)));
            assert_eq!(answer.header("Connection"), Some("keep-alive"));
            assert_eq!(answer.header("Content-Length"), Some("0"));
            assert_eq!(answer.header("Transfer-Encoding"), None);
        }
        send(&mut connection, &format!("{method} /gone HTTP/1.0\r\n\r\n"));
        assert_eq!(receive(&mut connection, method).status, 410);
        assert!(is_closed(&mut connection));
    }
    // Older still: there is nothing but a body.
    let mut connection = open(&site);
    send(&mut connection, "GET /one\r\n");
    assert!(is_closed(&mut connection));
    let mut connection = open(&site);
    send(&mut connection, "GET /nosuchone\r\n");
    assert_eq!(connection.receive_all().expect("read"), b"[nosuchone]");
    site.assert_ends_sound(&[]);
}

#[test]
fn http_1_1_keeps_the_connection_unless_asked_to_close_it() {
    let site = Site::start(&format!("lingering_timeout 50ms;\n{SERVER}"));
    let mut connection = open(&site);
    for (path, status) in [("/one", 302), ("/gone", 410), ("/nosuchone", 200)] {
        for method in ["GET", "HEAD"] {
            let request = http::request(method, path, &[], b"");
            connection.send(&request).expect("sent");
            let answer = receive(&mut connection, method);
            assert_eq!(answer.status, status, "{method} {path}");
            assert_eq!(answer.header("Connection"), Some("keep-alive"));
        }
    }
    let close = http::request("GET", "/one", &[("Connection", "close")], b"");
    connection.send(&close).expect("sent");
    let answer = receive(&mut connection, "GET");
    assert_eq!((answer.status, answer.location()), (302, Some(ONE)));
    assert_eq!(answer.header("Connection"), Some("close"));
    assert!(is_closed(&mut connection));
    // A request after a request to close is not answered.
    let mut connection = open(&site);
    connection
        .send(&[&close[..], &close[..]].concat())
        .expect("sent");
    assert_eq!(receive(&mut connection, "GET").status, 302);
    // Unread data makes the kernel reset the connection, which may hide the end.
    assert_eq!(connection.receive_all().unwrap_or_default(), b"");
    site.assert_ends_sound(&[]);
}

/// The expected answer to a request: method, status and target.
type Expected = (&'static str, u16, Option<String>);

/// Requests by turns of each kind, with the method and what is expected of the answer.
fn mixed(count: usize) -> (Vec<u8>, Vec<Expected>) {
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    for number in 0..count {
        let (method, path, status, target) = match number % 7 {
            0 => ("GET", "/one".to_owned(), 302, Some(ONE.to_owned())),
            1 => ("HEAD", "/two".to_owned(), 301, Some(TWO.to_owned())),
            2 => (
                "GET",
                format!("/code{number}"),
                307,
                Some(own_target(number)),
            ),
            3 => ("GET", format!("/nosuchone{number}"), 200, None),
            4 => ("HEAD", "/gone".to_owned(), 410, None),
            5 => ("GET", "/~".to_owned(), 404, None),
            _ => ("POST", "/one".to_owned(), 405, None),
        };
        bytes.extend(http::request(method, &path, &[], b""));
        expected.push((method, status, target));
    }
    (bytes, expected)
}

fn own_target(number: usize) -> String {
    format!("https://example.com/code{number}")
}

fn assert_mixed(connection: &mut Connection, expected: &[Expected]) {
    for (number, (method, status, target)) in expected.iter().enumerate() {
        let answer = receive(connection, method);
        assert_eq!(
            (answer.status, answer.location()),
            (*status, target.as_deref()),
            "answer {number}"
        );
        if *status == 200 {
            let body = format!("[nosuchone{number}]");
            assert_eq!(answer.body, body.as_bytes());
        }
    }
}

fn set_own_records(site: &Site, count: usize) {
    for number in 0..count {
        let record = format!("1 307 1 0 {}", own_target(number));
        site.redis.set_record(&format!("code{number}"), &record);
    }
}

#[test]
fn fifty_requests_in_one_write_are_answered_in_order() {
    let site = Site::start(SERVER);
    set_own_records(&site, 50);
    let (bytes, expected) = mixed(50);
    let mut connection = open(&site);
    for _ in 0..3 {
        connection.send(&bytes).expect("sent");
        assert_mixed(&mut connection, &expected);
    }
    // The same in pieces that end anywhere.
    for piece in bytes.chunks(37) {
        connection.send(piece).expect("sent");
    }
    assert_mixed(&mut connection, &expected);
    site.assert_ends_sound(&[]);
}

#[test]
fn kept_and_slow_codes_are_answered_in_order() {
    let site = Site::with(&SiteOptions {
        server: SERVER,
        cache: "1m",
        ..SiteOptions::default()
    });
    set_own_records(&site, 50);
    for path in ["/one", "/two"] {
        until("it is cached", SOON, || {
            site.get(path).header("X-Edge") == Some("redirect/cache")
        });
    }
    let (bytes, expected) = mixed(50);
    site.redis.hang();
    let mut connection = open(&site);
    connection.send(&bytes).expect("sent");
    // The cached ones at the beginning do not wait.
    assert_mixed(&mut connection, &expected[..2]);
    site.redis.go_on();
    assert_eq!(expected[2].2, Some(own_target(2)));
    for (number, (method, status, target)) in expected.iter().enumerate().skip(2) {
        let answer = receive(&mut connection, method);
        assert_eq!(
            (answer.status, answer.location()),
            (*status, target.as_deref()),
            "answer {number}"
        );
    }
    site.assert_ends_sound(&["lost Redis"]);
}

#[test]
fn a_body_that_nobody_needs_is_read_away() {
    let site = Site::start(SERVER);
    let mut connection = open(&site);
    let head = "GET /one HTTP/1.1\r\nHost: localhost\r\n";
    let next = "GET /two HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let assert_one = |connection: &mut Connection| {
        let answer = receive(connection, "GET");
        assert_eq!((answer.status, answer.location()), (302, Some(ONE)));
    };
    let assert_next = |connection: &mut Connection| {
        let answer = receive(connection, "GET");
        assert_eq!((answer.status, answer.location()), (301, Some(TWO)));
    };
    // At once, with the next request behind it; then behind the answer.
    for body in [
        "Content-Length: 5\r\n\r\nabcde",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n",
    ] {
        send(&mut connection, &format!("{head}{body}{next}"));
        assert_one(&mut connection);
        assert_next(&mut connection);
        let (first, rest) = body.split_at(body.len() - 4);
        send(&mut connection, &format!("{head}{first}"));
        if body.starts_with('C') {
            assert_one(&mut connection);
            send(&mut connection, rest);
        } else {
            send(&mut connection, rest);
            assert_one(&mut connection);
        }
        send(&mut connection, next);
        assert_next(&mut connection);
    }
    // A client that asks first may continue.
    let expecting = format!("{head}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    for path in ["/one", "/nosuchone"] {
        send(&mut connection, &expecting.replace("/one", path));
        assert_eq!(receive(&mut connection, "GET").status, 100);
        send(&mut connection, "abcde");
        let status = if path == "/one" { 302 } else { 200 };
        assert_eq!(receive(&mut connection, "GET").status, status);
        send(&mut connection, next);
        assert_next(&mut connection);
    }
    site.assert_ends_sound(&[]);
}

#[test]
fn a_body_may_come_while_redis_is_waited_for() {
    let site = Site::start(SERVER);
    let next = http::request("GET", "/two", &[], b"");
    site.redis.hang();
    let mut whole = open(&site);
    let mut partial = open(&site);
    let mut leaver = open(&site);
    let head = "GET /one HTTP/1.1\r\nHost: localhost\r\n";
    for connection in [&mut whole, &mut partial, &mut leaver] {
        send(connection, &format!("{head}Content-Length: 6\r\n\r\nab"));
    }
    // The worker has come so far that it answers another request.
    assert_eq!(site.get("/~").status, 404);
    send(&mut whole, "cdef");
    whole.send(&next).expect("sent");
    send(&mut partial, "cd");
    drop(leaver);
    assert_eq!(site.get("/~").status, 404);
    site.redis.go_on();
    for connection in [&mut whole, &mut partial] {
        let answer = receive(connection, "GET");
        assert_eq!((answer.status, answer.location()), (302, Some(ONE)));
    }
    assert_eq!(receive(&mut whole, "GET").location(), Some(TWO));
    send(&mut partial, "ef");
    partial.send(&next).expect("sent");
    assert_eq!(receive(&mut partial, "GET").location(), Some(TWO));
    drop((whole, partial));
    site.assert_ends_sound(&["lost Redis"]);
}

#[test]
fn a_head_that_comes_slowly_holds_nobody_up() {
    // The whole of a head may take a minute, but for one server.
    let impatient = "server { listen 127.0.0.1:INTERNAL_PORT; client_header_timeout 500ms; }";
    let site = Site::with(&SiteOptions {
        http: impatient,
        server: SERVER,
        ..SiteOptions::default()
    });
    let mut slow = open(&site);
    let request = http::request("GET", "/one", &[], b"");
    for byte in &request {
        slow.send(&[*byte]).expect("sent");
        assert_eq!(site.get("/two").location(), Some(TWO));
    }
    assert_eq!(receive(&mut slow, "GET").location(), Some(ONE));
    // Too slow is the end of it, without a word.
    let mut late = Connection::open(site.nginx.internal_port).expect("a connection");
    send(&mut late, "GET /one HTTP/1.1\r\nHost: loc");
    assert_eq!(late.receive_all().expect("read"), b"");
    site.assert_ends_sound(&[]);
}
