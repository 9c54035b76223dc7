//! HTTP/2, in the clear and over TLS.

use std::fs::File;
use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use h2::Reason;
use h2::client::{ResponseFuture, SendRequest};
use http::{Request, Response};
use shortlink_tests::site::{ONE, Site, SiteOptions, TWO};
use shortlink_tests::stack;
use shortlink_tests::wait::{SOON, until};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The locations of these tests.
const LOCATIONS: &str = "location / { shortlink; shortlink_fallback @fallback; }
                         location @fallback { return 200 \"[$shortlink_code]\"; }";

/// Number of streams that are open at once: nginx allows 128.
const STREAMS: usize = 100;

fn start(listen: &str) -> Site {
    Site::with(&SiteOptions {
        http: &format!(
            "server {{
                 listen 127.0.0.1:INTERNAL_PORT {listen};
                 {LOCATIONS}
             }}"
        ),
        server: LOCATIONS,
        ..SiteOptions::default()
    })
}

/// Runs a client within the time that anything may take.
pub(super) fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let limited = tokio::time::timeout(SOON, client);
        limited.await.expect("an end")
    })
}

/// A connection on which requests can be sent.
struct Client {
    requests: SendRequest<Bytes>,
    pings: h2::PingPong,
    driver: tokio::task::JoinHandle<()>,
}

impl Client {
    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let shaken = h2::client::handshake(stream).await;
        let (requests, mut connection) = shaken.expect("a connection");
        let pings = connection.ping_pong().expect("the only one");
        let driver = tokio::spawn(async move {
            // How it ends is seen by the requests.
            let _ = connection.await;
        });
        Self {
            requests,
            pings,
            driver,
        }
    }

    async fn open(site: &Site) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", site.nginx.internal_port)).await;
        Self::over(stream.expect("a connection")).await
    }

    /// Begins a request; more follows if it has a body.
    async fn begin(
        &mut self,
        method: &str,
        path: &str,
        has_body: bool,
    ) -> (ResponseFuture, h2::SendStream<Bytes>) {
        let uri = format!("http://localhost{path}");
        let request = Request::builder().method(method).uri(uri).body(());
        let ready = self.requests.clone().ready().await;
        let mut ready = ready.expect("a free stream");
        let sent = ready.send_request(request.expect("a request"), !has_body);
        sent.expect("sent")
    }

    async fn get(&mut self, path: &str) -> Answer {
        let (response, _stream) = self.begin("GET", path, false).await;
        Answer::of(response.await.expect("an answer")).await
    }

    /// Waits until the server has read everything that was sent.
    async fn wait_until_read(&mut self) {
        let pong = self.pings.ping(h2::Ping::opaque()).await;
        pong.expect("a pong");
    }

    /// Leaves without a word.
    async fn vanish(self) {
        self.driver.abort();
        let _ = self.driver.await;
    }
}

#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    target: Option<String>,
    body: String,
}

impl Answer {
    async fn of(response: Response<h2::RecvStream>) -> Self {
        let (head, mut stream) = response.into_parts();
        let mut body = Vec::new();
        while let Some(data) = stream.data().await {
            let data = data.expect("a body");
            let _ = stream.flow_control().release_capacity(data.len());
            body.extend_from_slice(&data);
        }
        let target = head.headers.get("location");
        Self {
            status: head.status.as_u16(),
            target: target.map(|target| target.to_str().expect("text").to_owned()),
            body: String::from_utf8(body).expect("text"),
        }
    }
}

fn redirect(status: u16, target: &str) -> Answer {
    Answer {
        status,
        target: Some(target.to_owned()),
        body: String::new(),
    }
}

/// Opens many streams before the first answer is read, and checks each.
async fn assert_many(client: &mut Client) {
    let mut begun = Vec::new();
    for number in 0..STREAMS {
        let missing = format!("/nosuchone{number}");
        let (method, path) = match number % 6 {
            0 => ("GET", "/one"),
            1 => ("HEAD", "/two"),
            2 => ("GET", &*missing),
            3 => ("HEAD", "/gone"),
            4 => ("HEAD", "/~"),
            _ => ("POST", "/one"),
        };
        begun.push(client.begin(method, path, false).await);
    }
    for (number, (response, _stream)) in begun.into_iter().enumerate() {
        let response = response.await.expect("an answer");
        let answer = Answer::of(response).await;
        match number % 6 {
            0 => assert_eq!(answer, redirect(302, ONE)),
            1 => assert_eq!(answer, redirect(301, TWO)),
            2 => assert_eq!(
                (answer.status, answer.body),
                (200, format!("[nosuchone{number}]"))
            ),
            3 => assert_eq!((answer.status, &*answer.body), (410, "")),
            4 => assert_eq!((answer.status, &*answer.body), (404, "")),
            _ => assert_eq!(answer.status, 405),
        }
    }
}

#[test]
fn many_streams_share_a_connection() {
    let site = start("http2");
    run(async {
        let mut client = Client::open(&site).await;
        for _ in 0..5 {
            assert_many(&mut client).await;
        }
        // All wait for Redis together.
        site.redis.hang();
        let mut waiting = Vec::new();
        for _ in 0..STREAMS {
            waiting.push(client.begin("GET", "/one", false).await);
        }
        client.wait_until_read().await;
        // One that does not need Redis overtakes them.
        assert_eq!(client.get("/~").await.status, 404);
        site.redis.go_on();
        for (response, _stream) in waiting {
            let answer = Answer::of(response.await.expect("an answer")).await;
            assert_eq!(answer, redirect(302, ONE));
        }
    });
    site.assert_ends_sound(&["lost Redis"]);
}

/// Makes a certificate in a directory; returns the end of a `listen` with TLS and HTTP/2, and the directives
/// behind it.
pub(super) fn listen_tls(directory: &Path) -> String {
    let file = |name: &str| directory.join(name).display().to_string();
    let (key, certificate) = (file("key"), file("certificate"));
    let made = Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(' '))
        .args([
            "-subj",
            "/CN=localhost",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    format!("ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key}")
}

#[test]
fn streams_share_a_connection_over_tls() {
    let directory = stack::directory();
    let site = start(&listen_tls(directory.path()));
    run(async {
        let mut tunnel = tokio::process::Command::new("openssl")
            .args(["s_client", "-quiet", "-alpn", "h2", "-connect"])
            .arg(format!("127.0.0.1:{}", site.nginx.internal_port))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("openssl");
        let from = tunnel.stdout.take().expect("its output");
        let to = tunnel.stdin.take().expect("its input");
        let mut client = Client::over(tokio::io::join(from, to)).await;
        for _ in 0..3 {
            assert_many(&mut client).await;
        }
        // The client is killed while it waits for Redis.
        site.redis.hang();
        let _waiting = client.begin("GET", "/one", false).await;
        client.wait_until_read().await;
        tunnel.kill().await.expect("killed");
    });
    until("its leaving is noticed", SOON, || {
        site.nginx.access_log().contains("\" 499 ")
    });
    site.redis.go_on();
    assert_eq!(site.get("/one").location(), Some(ONE));
    site.assert_ends_sound(&["lost Redis"]);
}

#[test]
fn a_body_that_nobody_needs_stops_no_stream() {
    let site = start("http2");
    run(async {
        let mut client = Client::open(&site).await;
        for path in ["/one", "/nosuchone"] {
            let (response, mut stream) = client.begin("GET", path, true).await;
            stream.send_data("abc".into(), false).expect("sent");
            stream.send_data("def".into(), true).expect("sent");
            let answer = Answer::of(response.await.expect("an answer")).await;
            let status = if path == "/one" { 302 } else { 200 };
            assert_eq!(answer.status, status);
        }
        // It never ends.
        let (response, _stream) = client.begin("GET", "/two", true).await;
        let response = response.await.expect("an answer");
        assert_eq!(response.headers()["location"], TWO);
        assert_eq!(client.get("/one").await, redirect(302, ONE));
    });
    site.assert_ends_sound(&[]);
}

#[test]
fn streams_may_be_reset_while_redis_hangs() {
    const LEFT: usize = 20;
    let site = start("http2");
    let left = |count: usize| {
        until("the leaving is noticed", SOON, || {
            site.nginx.access_log().matches("\" 499 ").count() == count
        });
    };
    run(async {
        let mut client = Client::open(&site).await;
        assert_eq!(client.get("/one").await, redirect(302, ONE));
        site.redis.hang();
        let mut resets = Vec::new();
        let mut patient = Vec::new();
        for _ in 0..LEFT {
            resets.push(client.begin("GET", "/one", false).await);
            patient.push(client.begin("GET", "/two", false).await);
        }
        client.wait_until_read().await;
        for (_response, stream) in &mut resets {
            stream.send_reset(Reason::CANCEL);
        }
        client.wait_until_read().await;
        left(LEFT);
        // A whole connection goes, too, and one that is in the middle of opening streams.
        let mut other = Client::open(&site).await;
        let mut lost = Vec::new();
        for _ in 0..LEFT {
            lost.push(other.begin("GET", "/one", false).await);
        }
        other.wait_until_read().await;
        other.vanish().await;
        drop(lost);
        left(2 * LEFT);

        site.redis.go_on();
        for (response, _stream) in patient {
            let answer = Answer::of(response.await.expect("an answer")).await;
            assert_eq!(answer, redirect(301, TWO));
        }
        assert_eq!(client.get("/one").await, redirect(302, ONE));
        // Begun and reset in one breath, many more than may be open at once.
        for _ in 0..10 {
            let mut resets = Vec::new();
            for _ in 0..LEFT {
                resets.push(client.begin("GET", "/one", false).await);
            }
            for (_response, stream) in &mut resets {
                stream.send_reset(Reason::CANCEL);
            }
        }
        assert_eq!(client.get("/two").await, redirect(301, TWO));
    });
    assert_eq!(site.get("/one").location(), Some(ONE));
    site.assert_ends_sound(&["lost Redis"]);
}

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload");
    let length = &length.to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request for `/large` on a connection whose client accepts any number of bytes and reads none.
fn unread_request() -> Vec<u8> {
    let windows = [
        // SETTINGS_INITIAL_WINDOW_SIZE, and the same for the connection.
        frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
        frame(8, 0, 0, &[0x7f, 0xff, 0, 0]),
    ];
    let headers = [
        &[0x82, 0x86, 0x04, 6][..],
        b"/large",
        &[0x01, 9],
        b"localhost",
    ]
    .concat();
    // The end of the headers and of the stream.
    let request = frame(1, 0x04 | 0x01, 1, &headers);
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &*windows.concat(),
        &request,
    ]
    .concat()
}

#[test]
fn a_mirror_that_waits_ends_with_its_request() {
    // More than the system keeps for a client that reads nothing.
    const LARGE: u64 = 256 << 20;
    // Takes connections and never answers.
    let slow = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let slow_port = slow.local_addr().expect("an address").port();
    let site = Site::with(&SiteOptions {
        http: &format!(
            "server {{
                 listen 127.0.0.1:INTERNAL_PORT http2;
                 location / {{ root html; mirror /mirrored; }}
                 location = /mirrored {{
                     internal;
                     set $shortlink_code nosuchone;
                     shortlink;
                     shortlink_fallback @slow;
                 }}
                 location @slow {{ proxy_pass http://127.0.0.1:{slow_port}; }}
             }}"
        ),
        server: LOCATIONS,
        ..SiteOptions::default()
    });
    let large = File::create(site.nginx.file("html/large")).expect("a file");
    large.set_len(LARGE).expect("a length");
    // The worker handles its events in the order in which they come.
    let is_caught_up = || assert_eq!(site.get("/~").status, 404);
    site.redis.hang();
    let mut clients = Vec::new();
    for _ in 0..5 {
        let address = ("127.0.0.1", site.nginx.internal_port);
        let mut client = std::net::TcpStream::connect(address).expect("a connection");
        client.write_all(&unread_request()).expect("sent");
        until("the answer has begun", SOON, || {
            let mut bytes = [0; 32 << 10];
            client.peek(&mut bytes).expect("bytes") == bytes.len()
        });
        is_caught_up();
        // The stream's last frame is still to be sent when it is reset, so nginx keeps its requests for a while.
        client
            .write_all(&frame(3, 0, 1, &8_u32.to_be_bytes()))
            .expect("sent");
        is_caught_up();
        clients.push(client);
    }
    site.redis.go_on();
    until("Redis is used again", SOON, || {
        site.get("/one").location() == Some(ONE)
    });
    // nginx frees what is left of the requests.
    drop(clients);
    site.assert_ends_sound(&["lost Redis"]);
}
