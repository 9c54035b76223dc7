use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::webhook::{EndpointUrl, Secret, sign};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::*;

/// An endpoint that answers each request with the same text.
struct Endpoint {
    port: u16,
    connections: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<String>>>,
}

impl Endpoint {
    async fn start(answer: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let endpoint = Self {
            port,
            connections: Arc::default(),
            received: Arc::default(),
        };
        let (connections, received) = (
            Arc::clone(&endpoint.connections),
            Arc::clone(&endpoint.received),
        );
        let answer: String = answer.into();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                connections.fetch_add(1, Ordering::Relaxed);
                let mut bytes = vec![0; 4096];
                let length = stream.read(&mut bytes).await.expect("a request");
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                received.lock().await.push(text);
                if !answer.is_empty() {
                    stream.write_all(answer.as_bytes()).await.expect("a reader");
                } else {
                    // An endpoint that never answers.
                    std::future::pending::<()>().await;
                }
            }
        });
        endpoint
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn local() -> EndpointPolicy {
    EndpointPolicy {
        plain_http: true,
        networks: vec!["127.0.0.0/8".parse().expect("a network")],
    }
}

fn secret() -> Secret {
    Secret::derive(&CodeKey::new([1; 32]), "id", 1)
}

fn message(url: &str) -> Message {
    let url = EndpointUrl::from_stored(url.to_owned());
    let at = Timestamp::from_second(1_780_000_000).expect("a time");
    Message::new(url, "click_1".to_owned(), at, "{}".to_owned(), &[secret()])
}

fn sender(policy: EndpointPolicy, timeout: Duration) -> HttpSender {
    HttpSender::new(policy, timeout)
}

const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_message_arrives_with_its_id_time_and_signature() {
    let endpoint = Endpoint::start(OK).await;
    let sender = sender(local(), LONG);
    let url = format!("http://127.0.0.1:{}/a?b=c", endpoint.port);
    let sent = message(&url);
    let at = sent.at;
    let answer = sender.send(sent).await.expect("an answer");
    assert_eq!((answer.status, answer.is_accepted()), (204, true));
    let received = endpoint.received.lock().await.concat();
    assert!(
        received.starts_with("POST /a?b=c HTTP/1.1\r\n"),
        "{received}"
    );
    let signature = sign(&secret(), "click_1", at, "{}");
    for line in [
        "webhook-id: click_1",
        "webhook-timestamp: 1780000000",
        &format!("webhook-signature: {signature}"),
        "content-type: application/json",
    ] {
        assert!(received.contains(line), "{line} is missing: {received}");
    }
    assert!(received.ends_with("\r\n\r\n{}"), "{received}");
}

#[tokio::test]
async fn no_connection_is_made_to_an_address_that_is_not_admitted() {
    let endpoint = Endpoint::start(OK).await;
    let policy = EndpointPolicy {
        plain_http: true,
        networks: Vec::new(),
    };
    // By its address, and by a name that resolves to it: as another answer of a name server would.
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{}/", endpoint.port);
        let sender = sender(policy.clone(), LONG);
        let error = sender.send(message(&url)).await.expect_err("no answer");
        assert!(error.0.contains(resolver::REFUSED), "{host}: {error}");
    }
    assert_eq!(endpoint.connections(), 0);
}

#[tokio::test]
async fn nothing_is_sent_without_tls_once_that_is_not_allowed_any_more() {
    let endpoint = Endpoint::start(OK).await;
    let policy = EndpointPolicy {
        plain_http: false,
        ..local()
    };
    let url = format!("http://127.0.0.1:{}/", endpoint.port);
    let sent = sender(policy, LONG).send(message(&url)).await;
    let error = sent.expect_err("no answer");
    assert!(error.0.contains("webhooks.plain_http"), "{error}");
    assert_eq!(endpoint.connections(), 0);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let other = Endpoint::start(OK).await;
    let location = format!("http://127.0.0.1:{}/", other.port);
    let redirect =
        format!("HTTP/1.1 307 Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
    let endpoint = Endpoint::start(redirect).await;
    let url = format!("http://127.0.0.1:{}/", endpoint.port);
    let answer = sender(local(), LONG).send(message(&url)).await;
    let answer = answer.expect("an answer");
    assert_eq!((answer.status, answer.is_accepted()), (307, false));
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn an_endpoint_has_its_time_and_may_ask_for_more() {
    let silent = Endpoint::start("").await;
    let url = format!("http://127.0.0.1:{}/", silent.port);
    let timeout = Duration::from_millis(200);
    let error = sender(local(), timeout).send(message(&url)).await;
    assert!(error.expect_err("no answer").0.contains("no answer within"));
    let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
    let busy = Endpoint::start(busy).await;
    let url = format!("http://127.0.0.1:{}/", busy.port);
    let answer = sender(local(), LONG).send(message(&url)).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.retry_after, Some(Duration::from_secs(7)));
    assert!(!answer.is_accepted());
}
