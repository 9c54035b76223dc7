//! Requests of scanners and attackers to the public side.

use shortlink_tests::http::Connection;
use shortlink_tests::stack::Stack;

#[test]
fn hostile_requests_get_no_5xx_and_leave_no_error_in_the_log() {
    let stack = Stack::start();
    let code = stack.link("https://example.com/");
    let workers = stack.nginx.all_workers(2);
    let long = "a".repeat(4000);
    let longer = "a".repeat(7000);
    let host = "Host: localhost\r\n";
    let requests: Vec<Vec<u8>> = [
        "GET /%00 HTTP/1.1\r\n",
        "GET /a%00b HTTP/1.1\r\n",
        "GET /%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\n",
        "GET /a%0d%0aLocation:%20https://evil.example HTTP/1.1\r\n",
        "GET /../../etc/passwd HTTP/1.1\r\n",
        "GET /..%2f..%2fetc/passwd HTTP/1.1\r\n",
        "GET /%2e%2e/%2e%2e/ HTTP/1.1\r\n",
        "GET //evil.example/ HTTP/1.1\r\n",
        "GET //evil.example/%2e%2e HTTP/1.1\r\n",
        "GET /\\evil.example HTTP/1.1\r\n",
        "GET /@evil HTTP/1.1\r\n",
        "GET /resolve/x HTTP/1.1\r\n",
        "GET /v1/links HTTP/1.1\r\n",
        "GET /.env HTTP/1.1\r\n",
        "GET /.git/config HTTP/1.1\r\n",
        "GET /wp-login.php HTTP/1.1\r\n",
        "GET /?x=<script> HTTP/1.1\r\n",
        "GET /a%ff%fe HTTP/1.1\r\n",
        "GET /%ff HTTP/1.1\r\n",
        "GET /%c0%af HTTP/1.1\r\n",
        "GET /%zz HTTP/1.1\r\n",
        "GET /% HTTP/1.1\r\n",
        "GET /a b HTTP/1.1\r\n",
        "GET / HTTP/9.9\r\n",
        "GET http://localhost/x HTTP/1.1\r\n",
        "GET * HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\n",
        "TRACE / HTTP/1.1\r\n",
        "PRI * HTTP/2.0\r\n",
        "get / HTTP/1.1\r\n",
        &format!("GET /{code} HTTP/1.1\r\nContent-Length: 5\r\n"),
        &format!("GET /{code} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"),
        &format!("GET /{code} HTTP/1.1\r\nContent-Length: 99999999\r\n"),
        &format!("GET /{code} HTTP/1.1\r\nContent-Length: -1\r\n"),
        &format!("GET /{code} HTTP/1.1\r\nRange: bytes=0-1\r\nIf-None-Match: *\r\n"),
        &format!("GET /{long} HTTP/1.1\r\n"),
        &format!("GET /{longer} HTTP/1.1\r\n"),
        &format!("GET /{code}?{longer} HTTP/1.1\r\n"),
        &format!("GET /{code} HTTP/1.1\r\nX-Long: {longer}\r\n"),
        &format!("GET /{code} HTTP/1.1\r\nCookie: {longer}\r\nX-Longer: {longer}\r\n"),
    ]
    .iter()
    .map(|request| [request.as_bytes(), host.as_bytes(), b"\r\n"].concat())
    .chain([
        b"\r\n\r\n\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"\0\0\0\0\0\0\0\0\r\n\r\n".to_vec(),
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: local\0host\r\n\r\n".to_vec(),
    ])
    .collect();

    for request in requests {
        let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
        let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
        connection.send(&request).expect("sent");
        // A request that is not whole is not answered; one that asks for it is not closed.
        let closing = b"GET /. HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let _ = connection.send(closing);
        let all = connection.receive_all().unwrap_or_default();
        let all = String::from_utf8_lossy(&all);
        // nginx' own answer to an unknown version of HTTP.
        let all = all.replace("HTTP/1.1 505 HTTP Version Not Supported", "");
        assert!(!all.contains("HTTP/1.1 5"), "{shown}: {all}");
        assert!(!all.contains("Set-Cookie"), "{shown}: {all}");
        assert!(!all.contains("evil.example"), "{shown}: {all}");
    }
    assert_eq!(stack.follow(&code).status, 302);
    assert_eq!(stack.nginx.workers(), workers, "a worker was replaced");
    // nginx' own lines about the two requests with wrong bodies; no path gets a line.
    let of_bodies = [
        "sent invalid chunked body",
        "intended to send too large body",
    ];
    assert_eq!(stack.nginx.complaints(&of_bodies), [""; 0]);
}

#[test]
fn hosts_that_nobody_listed_get_nothing() {
    let stack = Stack::shared();
    let code = stack.link("https://example.com/");
    for host in [
        "evil.example",
        "localhost.evil.example",
        "localhos",
        "1.2.3.4",
    ] {
        let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
        let request = format!("GET /{code} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        connection.send(request.as_bytes()).expect("sent");
        assert_eq!(connection.receive_all().expect("read"), b"", "{host}");
    }
    for host in [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "localhost:1234",
        "127.0.0.1",
    ] {
        let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
        let request = format!("GET /{code} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        connection.send(request.as_bytes()).expect("sent");
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!(answer.status, 302, "{host}");
    }
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}
