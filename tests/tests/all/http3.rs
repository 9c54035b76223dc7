//! HTTP/3, with a client of its own. These tests need an nginx with HTTP/3 and fail on any other: `make test` runs on
//! Debian's nginx, which has none, and leaves them to the run on a newer one.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustls::version::{TLS12, TLS13};
use shortlink_tests::http as http1;
use shortlink_tests::nginx::require_http3;
use shortlink_tests::site::{ONE, Site, SiteOptions, TWO};
use shortlink_tests::stack::{self, Stack};
use shortlink_tests::tls;
use shortlink_tests::wait::{SOON, until};
use tokio::task::JoinHandle;
use vocabulary::visit::VisitMethod;
use vocabulary::visit::evidence::Protocol;

use super::domains_tls::{make_certificate, set_domains, turn_on_tls};
use super::http2::run;
use super::visits::{stored, wait_for_names};

/// Number of streams that are open at once: nginx allows 128.
const STREAMS: usize = 100;

/// A client that trusts one certificate, keeps its sessions, and would send early data.
fn config(trusted: &Path) -> ClientConfig {
    let mut config = tls::config(&[trusted], &TLS13);
    config.alpn_protocols = vec![b"h3".to_vec()];
    config.enable_early_data = true;
    let config = QuicClientConfig::try_from(config).expect("a configuration for QUIC");
    ClientConfig::new(Arc::new(config))
}

/// A port that the system chooses, at one of the addresses of loopback.
fn local(last: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 0, last), 0).into()
}

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// A connection on which requests can be sent.
struct Client {
    endpoint: Endpoint,
    connection: quinn::Connection,
    requests: SendRequest<OpenStreams, Bytes>,
    driver: JoinHandle<()>,
    host: String,
}

#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("text"))
    }

    fn redirect(&self) -> (u16, Option<&str>) {
        (self.status.as_u16(), self.header("location"))
    }
}

impl Client {
    async fn open(config: &ClientConfig, port: u16, host: &str) -> Self {
        let endpoint = Endpoint::client(local(1)).expect("a socket");
        let server = (Ipv4Addr::LOCALHOST, port).into();
        let connecting = endpoint.connect_with(config.clone(), server, host);
        // With a session that allows early data, quinn would not wait for the handshake.
        let connecting = match connecting.expect("a configuration").into_0rtt() {
            Ok(_early) => panic!("the session allows early data"),
            Err(connecting) => connecting,
        };
        let connection = connecting.await.expect("a connection");
        let opened = h3::client::new(h3_quinn::Connection::new(connection.clone())).await;
        let (mut driver, requests) = opened.expect("HTTP/3");
        Self {
            endpoint,
            connection,
            requests,
            driver: tokio::spawn(async move {
                // How it ends is seen by the requests.
                let _ = poll_fn(|context| driver.poll_close(context)).await;
            }),
            host: host.to_owned(),
        }
    }

    /// Sends a request without a body.
    async fn begin(&mut self, method: &str, path: &str) -> Stream {
        let uri = format!("https://{}{path}", self.host);
        let request = Request::builder().method(method).uri(uri).body(());
        let sent = self.requests.send_request(request.expect("a request"));
        let mut stream = sent.await.expect("sent");
        stream.finish().await.expect("sent");
        stream
    }

    async fn send(&mut self, method: &str, path: &str) -> Answer {
        let stream = self.begin(method, path).await;
        receive(stream).await
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path).await
    }

    /// Closes the connection.
    async fn close(self) {
        self.connection.close(0u8.into(), b"");
        self.endpoint.wait_idle().await;
        self.driver.abort();
    }
}

async fn receive(mut stream: Stream) -> Answer {
    let response = stream.recv_response().await.expect("an answer");
    let (head, ()) = response.into_parts();
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await.expect("a body") {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Answer {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(body).expect("text"),
    }
}

/// nginx with HTTP/3 on the internal port, and the client's configuration.
fn site(options: &SiteOptions<'_>) -> (Site, ClientConfig) {
    require_http3();
    let directory = stack::directory();
    make_certificate(directory.path(), &["localhost"], 2);
    let files = directory.path().join("localhost");
    let certificate = files.join("fullchain.pem");
    let site = Site::with(&SiteOptions {
        http: &format!(
            "server {{
                 listen 127.0.0.1:INTERNAL_PORT quic reuseport;
                 ssl_certificate {};
                 ssl_certificate_key {};
                 location / {{
                     shortlink;
                     shortlink_fallback @fallback;
                     add_header X-Client $remote_addr always;
                 }}
                 location @fallback {{ return 200 \"[$shortlink_code]\"; }}
             }}",
            certificate.display(),
            files.join("privkey.pem").display()
        ),
        ..*options
    });
    (site, config(&certificate))
}

#[test]
fn shipped_files_serve_http3_and_offer_it() {
    require_http3();
    let stack = Stack::start();
    let nginx = &stack.nginx;
    let live = nginx.file("live");
    for name in ["a.example", "b.example"] {
        make_certificate(&live, &[name], 90);
    }
    set_domains(nginx, "a.example active;\nb.example serving;");
    turn_on_tls(nginx);
    nginx.edit("tls.conf", "# include http3.conf;", "include http3.conf;");
    nginx.edit("tls.conf", "NumTickets 0", "NumTickets 1");
    // Old and new workers read the same socket, and one may take and drop a packet that ends a connection of the other.
    // Only its idle timeout ends such a connection: nginx cuts none over QUIC off at `worker_shutdown_timeout`.
    nginx.edit(
        "nginx.conf",
        "keepalive_timeout 30s;",
        "keepalive_timeout 5s;",
    );
    let header = "add_header Alt-Svc $shortlink_alt_svc;";
    nginx.edit(
        "public.conf",
        header,
        &format!("{header}\nadd_header X-Resumed $ssl_session_reused always;"),
    );
    nginx.reload();
    let code = stack.link("https://target.example/");
    let path = format!("/{code}");

    // Redirects over TLS offer HTTP/3, those in the clear do not.
    let file = |name: &str| live.join(name).join("fullchain.pem");
    let offer = format!("alt-svc: h3=\":{}\"; ma=86400\r\n", nginx.tls_port);
    for version in [&TLS12, &TLS13] {
        let client = tls::Client::new(&[&file("a.example")], version);
        let head = client.get(nginx.tls_port, "a.example", &path).head;
        assert!(head.starts_with("http/1.1 302 "), "{head}");
        assert!(head.contains(&offer), "{head}");
    }
    let headers = [("Host", "a.example")];
    let plain = http1::send(nginx.public_port, "GET", &path, &headers);
    assert_eq!((plain.status, plain.header("Alt-Svc")), (302, None));

    run(async {
        // Each domain has its own certificate here too.
        for host in ["a.example", "b.example"] {
            let config = config(&file(host));
            let mut client = Client::open(&config, nginx.tls_port, host).await;
            let found = Some("https://target.example/");
            // All streams of a connection come to the same worker, which caches a code at its second request.
            let mut edges = Vec::new();
            for _ in 0..4 {
                let answer = client.get(&path).await;
                assert_eq!(answer.redirect(), (302, found));
                assert_eq!(answer.body, "");
                assert!(answer.header("alt-svc").is_some());
                edges.push(answer.header("x-edge").unwrap_or_default().to_owned());
            }
            assert!(edges.contains(&"redirect/cache".to_owned()), "{edges:?}");
            let unknown = client.get("/nosuchcode").await;
            assert_eq!(unknown.status, 404);
            assert!(unknown.body.contains("<html"), "{}", unknown.body);
            client.close().await;

            // The next visit resumes the session, but can send no early data: `open` would panic.
            let mut client = Client::open(&config, nginx.tls_port, host).await;
            let answer = client.get(&path).await;
            assert_eq!(answer.header("x-resumed"), Some("r"), "{answer:?}");
            client.close().await;
        }

        let revoked = stack.api("DELETE", &format!("/v1/links/{code}"), None);
        assert_eq!(revoked.status, 200);
        let config = config(&file("a.example"));
        let mut client = Client::open(&config, nginx.tls_port, "a.example").await;
        assert_eq!(client.get(&path).await.status, 410);

        // A reload closes no port: a new connection has its answer while old workers end. One that an old worker has taken
        // just before is closed without an answer.
        let code = stack.link("https://other.example/");
        let mut before = Client::open(&config, nginx.tls_port, "a.example").await;
        let found = (302, Some("https://other.example/"));
        assert_eq!(before.get(&format!("/{code}")).await.redirect(), found);
        // Closing takes longer than it does to acknowledge that answer, without which an old worker stays.
        client.close().await;
        let old = nginx.begin_reload();
        nginx.wait_for_ending_of(&old);
        let mut after = Client::open(&config, nginx.tls_port, "a.example").await;
        assert_eq!(after.get(&format!("/{code}")).await.redirect(), found);
        after.close().await;
        before.close().await;
        nginx.wait_for_end_of(&old);
    });
    assert_eq!(nginx.complaints(&[]), [""; 0]);
}

#[test]
fn visits_over_http3_have_their_protocol_and_the_address_that_moved() {
    let (site, config) = site(&SiteOptions {
        visits: "on interval=10ms",
        ..SiteOptions::default()
    });
    run(async {
        let port = site.nginx.internal_port;
        let mut client = Client::open(&config, port, "localhost").await;
        let answer = client.get("/one").await;
        assert_eq!(answer.redirect(), (302, Some(ONE)));
        assert_eq!(answer.header("x-client"), Some("127.0.0.1"));
        assert_eq!(
            client.send("HEAD", "/two").await.redirect(),
            (301, Some(TWO))
        );
        wait_for_names(&site, 2);

        // The client leaves its network for another. nginx knows the new address from the first packet on, but takes
        // the stream that is in it for one of the old address.
        let socket = UdpSocket::bind(local(2)).expect("another socket");
        client.endpoint.rebind(socket).expect("another address");
        let is_known = |answer: &Answer| answer.header("x-client") == Some("127.0.0.2");
        let mut count = 3;
        while !is_known(&client.get("/gone").await) {
            count += 1;
        }
        assert_eq!(client.get("/one").await.redirect(), (302, Some(ONE)));
        wait_for_names(&site, count + 1);
        client.close().await;
    });
    let visits = stored(&site);
    for visit in &visits {
        assert_eq!(visit.evidence.protocol(), Protocol::Http3);
        assert!(visit.evidence.is_tls());
    }
    let told = |place: usize| (visits[place].code(), visits[place].client());
    assert_eq!(told(0), ("one".to_owned(), "127.0.0.1".to_owned()));
    assert_eq!(visits[1].method, VisitMethod::Head);
    let last = visits.len() - 1;
    assert_eq!(told(last), ("one".to_owned(), "127.0.0.2".to_owned()));
    site.assert_sound(&[]);
}

#[test]
fn many_streams_share_a_connection_that_may_be_closed_meanwhile() {
    let (site, config) = site(&SiteOptions::default());
    run(async {
        let port = site.nginx.internal_port;
        let mut client = Client::open(&config, port, "localhost").await;
        for _ in 0..3 {
            // All wait for Redis together.
            site.redis.hang();
            let mut begun = Vec::new();
            for number in 0..STREAMS {
                let missing = format!("/nosuchone{number}");
                let (method, path) = match number % 5 {
                    0 => ("GET", "/one"),
                    1 => ("HEAD", "/two"),
                    2 => ("GET", &*missing),
                    3 => ("HEAD", "/gone"),
                    _ => ("POST", "/one"),
                };
                begun.push(client.begin(method, path).await);
            }
            // One that does not need Redis overtakes them.
            assert_eq!(client.get("/~").await.status, 404);
            site.redis.go_on();
            for (number, stream) in begun.into_iter().enumerate() {
                let answer = receive(stream).await;
                match number % 5 {
                    0 => assert_eq!(answer.redirect(), (302, Some(ONE))),
                    1 => assert_eq!(answer.redirect(), (301, Some(TWO))),
                    2 => {
                        assert_eq!(answer.status, 200);
                        assert_eq!(answer.body, format!("[nosuchone{number}]"));
                    }
                    3 => assert_eq!(answer.status, 410),
                    _ => assert_eq!(answer.status, 405),
                }
            }
        }
        // The client closes the connection while it waits for Redis.
        site.redis.hang();
        let _waiting = client.begin("GET", "/one").await;
        assert_eq!(client.get("/~").await.status, 404);
        client.close().await;
        // nginx terminates the request of a connection that is closed, without a status.
        until("its leaving is noticed", SOON, || {
            site.nginx.access_log().contains("outcome=waiting")
        });
        site.redis.go_on();
        let mut client = Client::open(&config, port, "localhost").await;
        assert_eq!(client.get("/one").await.redirect(), (302, Some(ONE)));
        client.close().await;
    });
    site.assert_ends_sound(&["lost Redis"]);
}
