//! Connections, each on the runtime of its first request.
//!
//! A runtime that serves visitors must not wait for the API, and a request that is answered on another runtime than
//! that of its connection pays for two changes of threads (`bench/against`). Most connections carry requests of one
//! kind. So the first bytes of a connection decide which runtime reads it, and a request of the other kind is answered
//! apart.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request};
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::Service;

use super::stalls::Unstalled;

/// The longest silence of a client: until the headers of a request are there, from the beginning of the connection or the
/// end of the request before, and while it takes nothing of an answer. It is longer than nginx holds idle connections
/// to the sidecar (`keepalive_timeout` of an upstream, 60 seconds), because a request must not meet a connection that
/// is about to be closed, and than nginx waits for its own client (`send_timeout`, 60 seconds).
pub(super) const SILENCE: Duration = Duration::from_secs(75);

/// The time limit for the first byte. Clients connect when they have a request.
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(15);

/// The time for which idle connections stay open after the end of the listener, for requests that are on their way. The
/// answer to each shows its client that the connection is not used again. It is longer than a packet takes. At most half
/// of `http.shutdown_grace_ms`.
const LAST_REQUESTS_WITHIN: Duration = Duration::from_millis(500);

/// The time for handshakes that have begun, before the listener is closed: longer than those of one machine or its network
/// take. A client that begins meanwhile tries again after a second, so it is short.
const HANDSHAKES_WITHIN: Duration = Duration::from_millis(2);

/// The attempts to accept a connection that clients have ended meanwhile.
const ATTEMPTS: usize = 4096;

/// A filter of a TCP socket that drops the packets with which connections begin, and no others. It sees a packet from
/// its TCP header on: the flags are byte 13, `SYN` is bit 1. The codes are those of Linux' classic BPF: load a byte,
/// jump if a bit is set, return how many bytes stay.
const NO_MORE_CONNECTIONS: [SockFilter; 4] = [
    SockFilter::new(0x30, 0, 0, 13),
    SockFilter::new(0x45, 0, 1, 0b10),
    SockFilter::new(0x06, 0, 0, 0),
    SockFilter::new(0x06, 0, 0, u32::MAX),
];

/// The bytes of a connection that decide about it: a method, and the beginning of a path.
const FIRST_BYTES: usize = 32;

/// A runtime and what it serves.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) runtime: Handle,
    /// Answers all requests, also those of the other kind.
    pub(super) router: Router,
}

/// The homes of both kinds of requests.
#[derive(Clone, Debug)]
pub(super) struct Homes {
    pub(super) visitors: Home,
    pub(super) api: Home,
    /// The beginning of visitors' paths.
    pub(super) path: &'static str,
}

impl Homes {
    /// The home of a connection that begins with these bytes: that of visitors, unless they show another path.
    fn of(&self, bytes: &[u8]) -> &Home {
        let path = bytes.splitn(2, |byte| *byte == b' ').nth(1);
        let path = path.unwrap_or_default().iter();
        let mut both = path.zip(self.path.as_bytes());
        if both.all(|(byte, of_visitor)| byte == of_visitor) {
            &self.visitors
        } else {
            &self.api
        }
    }
}

/// Serves connections until `shutdown`. Then the listener is closed, and each connection gets the answers to the
/// requests that it has begun, the last one with `Connection: close`; one that is idle is closed after
/// [`LAST_REQUESTS_WITHIN`]. Returns when all have ended.
///
/// A connection that sends nothing for [`FIRST_BYTE_WITHIN`], or is silent later for as long as `silence`, is closed.
/// When this is dropped, all connections are cut off; that happens when `grace` has passed after `shutdown`.
pub(super) async fn serve(
    mut listener: TcpListener,
    homes: Homes,
    silence: Duration,
    shutdown: CancellationToken,
    grace: Duration,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(silence);
    let cut_off = CancellationToken::new();
    let server = Arc::new(Server {
        http,
        homes,
        silence,
        is_stopping: AtomicBool::new(false),
        idle_end: cut_off.child_token(),
        cut_off: cut_off.clone(),
        open: TaskTracker::new(),
    });
    let _on_drop = cut_off.drop_guard();
    loop {
        let (stream, _address) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = Listener::accept(&mut listener) => accepted,
        };
        server.begin(stream);
    }
    server.is_stopping.store(true, Ordering::Relaxed);
    if let Err(error) = SockRef::from(&listener).attach_filter(&NO_MORE_CONNECTIONS) {
        tracing::debug!(%error, "connections that are opened now may be reset");
    }
    tokio::time::sleep(HANDSHAKES_WITHIN).await;
    for stream in close(listener) {
        server.begin(stream);
    }
    server.open.close();
    // Requests that are on their way arrive, and are answered.
    let within = LAST_REQUESTS_WITHIN.min(grace / 2);
    let ended = tokio::time::timeout(within, server.open.wait()).await;
    if ended.is_err() {
        server.idle_end.cancel();
        server.open.wait().await;
    }
}

/// Closes a listener; returns the connections that clients have opened and that were not accepted yet. The kernel would
/// reset them.
fn close(listener: TcpListener) -> Vec<TcpStream> {
    let accepted = listener.into_std().map(|listener| {
        let accepted = std::iter::from_fn(|| {
            let accepted = std::iter::repeat_with(|| listener.accept());
            let is_next = |accepted: &io::Result<_>| match accepted {
                Ok(_) => true,
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            };
            // Others have ended already, by themselves.
            let (stream, _address) = accepted.take(ATTEMPTS).find(is_next)?.ok()?;
            Some(stream)
        });
        let streams = accepted.map(|stream| {
            stream.set_nonblocking(true)?;
            TcpStream::from_std(stream)
        });
        streams.filter_map(Result::ok).collect()
    });
    accepted.unwrap_or_default()
}

/// Waits for the first bytes of a connection, and leaves them to be read.
async fn first_bytes(stream: &TcpStream) -> io::Result<Vec<u8>> {
    // Small answers must not wait for the acknowledgement of earlier packets.
    stream.set_nodelay(true)?;
    let mut bytes = vec![0; FIRST_BYTES];
    let count = stream.peek(&mut bytes).await?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The state that all connections share.
struct Server {
    http: http1::Builder,
    homes: Homes,
    silence: Duration,
    /// No connection waits for another request.
    is_stopping: AtomicBool,
    /// Ends idle connections.
    idle_end: CancellationToken,
    /// Ends all connections.
    cut_off: CancellationToken,
    /// The connections.
    open: TaskTracker,
}

impl Server {
    /// Serves a connection at its home, once its first bytes show where that is.
    fn begin(self: &Arc<Self>, stream: TcpStream) {
        let server = Arc::clone(self);
        let open = self.open.token();
        tokio::spawn(async move {
            let first = first_bytes(&stream);
            let within = server.silence.min(FIRST_BYTE_WITHIN);
            let first = tokio::select! {
                biased;
                first = tokio::time::timeout(within, first) => first,
                () = server.idle_end.cancelled() => return,
            };
            let served = match first {
                Ok(Ok(bytes)) => server.serve_at(server.homes.of(&bytes), stream, open),
                Ok(Err(error)) => Err(error),
                // It has sent nothing.
                Err(_elapsed) => Ok(()),
            };
            if let Err(error) = served {
                tracing::trace!(%error, "a connection is not served");
            }
        });
    }

    /// Serves the stream on the runtime of its home, which gets to know the socket.
    fn serve_at(
        self: &Arc<Self>,
        home: &Home,
        stream: TcpStream,
        open: TaskTrackerToken,
    ) -> io::Result<()> {
        let stream = stream.into_std()?;
        let (server, router) = (Arc::clone(self), home.router.clone());
        home.runtime.spawn(async move {
            let _open = open;
            match TcpStream::from_std(stream) {
                Ok(stream) => server.serve(stream, router).await,
                Err(error) => tracing::warn!(%error, "a connection is not served"),
            }
        });
        Ok(())
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, router: Router) {
        let has_begun = AtomicBool::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            has_begun.store(true, Ordering::Relaxed);
            let answer = router.clone().call(request);
            let server = &self;
            async move {
                let mut response = answer.await?;
                if server.is_stopping.load(Ordering::Relaxed) {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let stream = TokioIo::new(Unstalled::new(stream, self.silence));
        let connection = self.http.serve_connection(stream, service);
        let mut connection = pin!(connection);
        let idle_end = async {
            self.idle_end.cancelled().await;
            // Another runtime has ended it. When a timer of this one ends, requests that were there before are read.
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let until_idle_end = tokio::select! {
            biased;
            served = connection.as_mut() => Some(served),
            () = idle_end => None,
        };
        let served = match until_idle_end {
            Some(served) => served,
            None => {
                // The first request is on its way: its answer ends the connection.
                if has_begun.load(Ordering::Relaxed) {
                    connection.as_mut().graceful_shutdown();
                }
                tokio::select! {
                    served = connection => served,
                    () = self.cut_off.cancelled() => return,
                }
            }
        };
        if let Err(error) = served {
            let error = &error as &dyn std::error::Error;
            tracing::trace!(error, "a connection has ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use axum::body::Body;
    use axum::routing::get;
    use futures_util::stream;
    use shortlink_core::testing::eventually;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::runtime::Runtime;
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    use super::*;

    /// Short, so that the test does not wait; requests are sent at once.
    const LIMIT: Duration = Duration::from_millis(300);

    /// The longest wait for what must happen.
    const SOON: Duration = Duration::from_secs(20);

    struct Running {
        address: SocketAddr,
        /// `/slow` has begun, or `/endless` has ended; `/slow` may answer.
        slow: Arc<[Notify; 2]>,
        shutdown: CancellationToken,
        task: JoinHandle<()>,
        homes: Homes,
        /// That of the API, until it is shut down.
        runtime: Option<Runtime>,
    }

    struct DropGuard(Arc<[Notify; 2]>);

    impl Drop for DropGuard {
        fn drop(&mut self) {
            self.0[0].notify_one();
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            if let Some(runtime) = self.runtime.take() {
                runtime.shutdown_background();
            }
        }
    }

    impl Running {
        async fn start() -> Self {
            Self::start_with(LIMIT).await
        }

        async fn start_with(silence: Duration) -> Self {
            let slow: Arc<[Notify; 2]> = Arc::default();
            let of_handler = Arc::clone(&slow);
            let handler = move || {
                let slow = Arc::clone(&of_handler);
                async move {
                    slow[0].notify_one();
                    slow[1].notified().await;
                    "slow"
                }
            };
            let of_handler = Arc::clone(&slow);
            let endless = async move || {
                // Reports its end.
                let slow = Arc::clone(&of_handler);
                let end = DropGuard(slow);
                let parts = stream::repeat_with(move || {
                    let _end = &end;
                    Ok::<_, Infallible>(vec![b'a'; 1 << 16])
                });
                Body::from_stream(parts)
            };
            let thread = || async { std::thread::current().name().unwrap_or_default().to_owned() };
            let router = Router::new()
                .route("/", get(|| async { "here" }))
                .route("/resolve/{code}", get(thread))
                .route("/v1/links", get(thread))
                .route("/endless", get(endless))
                .route("/slow", get(handler));
            let builder = tokio::runtime::Builder::new_multi_thread()
                .thread_name("api")
                .enable_all()
                .build();
            let runtime = builder.expect("threads");
            let homes = Homes {
                visitors: Home {
                    runtime: Handle::current(),
                    router: router.clone(),
                },
                api: Home {
                    runtime: runtime.handle().clone(),
                    router,
                },
                path: "/resolve/",
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let shutdown = CancellationToken::new();
            let serving = serve(listener, homes.clone(), silence, shutdown.clone(), SOON);
            let task = tokio::spawn(serving);
            Self {
                address,
                slow,
                shutdown,
                task,
                homes,
                runtime: Some(runtime),
            }
        }

        /// Waits until no more connections are accepted.
        async fn refuses(&self) {
            eventually("no more connections are accepted", || async {
                // The beginning of a connection that is dropped is repeated after a second.
                let connected = TcpStream::connect(self.address);
                let connected = tokio::time::timeout(Duration::from_millis(50), connected).await;
                !matches!(connected, Ok(Ok(_)))
            })
            .await;
        }

        async fn send(&self, bytes: &[u8]) -> TcpStream {
            let connected = TcpStream::connect(self.address).await;
            let mut stream = connected.expect("a listener");
            stream.write_all(bytes).await.expect("a connection");
            stream
        }
    }

    /// All that comes until the connection is closed.
    async fn read(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        let done = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await;
        done.expect("the connection is closed")
            .expect("a connection");
        String::from_utf8(bytes).expect("text")
    }

    const LAST: &str = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    #[tokio::test]
    async fn a_connection_that_sends_no_headers_is_closed_and_no_other_one() {
        let server = Running::start().await;
        let slow = server.send(format!("GET /slow {LAST}").as_bytes()).await;
        for silent in ["", "GET / HTTP/1.1\r\nHost: a\r\n"] {
            let silent = server.send(silent.as_bytes()).await;
            let good = server.send(format!("GET / {LAST}").as_bytes()).await;
            assert!(read(good).await.ends_with("here"));
            let answer = read(silent).await;
            assert!(!answer.contains("200 OK"), "{answer}");
        }
        let idle = server.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(read(idle).await.ends_with("here"));
        // This request has waited for its answer all the time.
        server.slow[1].notify_one();
        assert!(read(slow).await.ends_with("slow"));
    }

    #[tokio::test]
    async fn an_answer_ends_that_its_client_does_not_take() {
        let server = Running::start().await;
        let mut stream = server.send(format!("GET /endless {LAST}").as_bytes()).await;
        let ended = tokio::time::timeout(SOON, server.slow[0].notified());
        ended.await.expect("the answer ends");
        // It has broken off.
        let mut bytes = Vec::new();
        let _reset = stream.read_to_end(&mut bytes).await;
        assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(!bytes.ends_with(b"\r\n0\r\n\r\n"));
    }

    #[tokio::test]
    async fn a_request_in_progress_is_answered_before_the_end() {
        let mut server = Running::start().await;
        let slow = server.send(format!("GET /slow {LAST}").as_bytes()).await;
        let begun = tokio::time::timeout(SOON, server.slow[0].notified());
        begun.await.expect("the request begins");
        server.shutdown.cancel();
        server.refuses().await;
        assert!(!server.task.is_finished());
        server.slow[1].notify_one();
        assert!(read(slow).await.ends_with("slow"));
        let ended = tokio::time::timeout(SOON, &mut server.task).await;
        ended.expect("the server ends").expect("no panic");
    }

    /// Opens a connection without a chance for the server to accept them.
    fn connect_at_once(address: SocketAddr) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(address).expect("a listener");
        stream.set_nonblocking(true).expect("a socket");
        stream
    }

    #[tokio::test]
    async fn requests_of_connections_that_were_open_at_the_end_are_answered() {
        let mut server = Running::start_with(SOON).await;
        let kept = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut idle = server.send(kept.as_bytes()).await;
        let mut begin = [0; 4];
        let answered = tokio::time::timeout(SOON, idle.read_exact(&mut begin)).await;
        answered.expect("an answer").expect("a connection");
        let accepted = server.send(b"").await;
        // It is in the queue of the listener.
        let queued = connect_at_once(server.address);
        server.shutdown.cancel();
        server.refuses().await;
        let queued = TcpStream::from_std(queued).expect("a socket");
        for mut stream in [idle, accepted, queued] {
            stream
                .write_all(kept.as_bytes())
                .await
                .expect("a connection");
            let answer = read(stream).await;
            assert!(answer.ends_with("here"), "{answer}");
            assert!(answer.contains("connection: close\r\n"), "{answer}");
        }
        let ended = tokio::time::timeout(SOON, &mut server.task).await;
        ended.expect("the server ends").expect("no panic");
    }

    #[tokio::test]
    async fn a_connection_without_a_request_does_not_hold_up_the_end() {
        let mut server = Running::start_with(SOON).await;
        let silent = server.send(b"").await;
        let idle = server.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        server.shutdown.cancel();
        let ended = tokio::time::timeout(SOON, &mut server.task).await;
        ended.expect("the server ends").expect("no panic");
        assert_eq!(read(silent).await, "");
        assert!(read(idle).await.ends_with("here"));
    }

    #[tokio::test]
    async fn a_connection_stays_on_the_runtime_of_its_first_request() {
        let server = Running::start().await;
        let visitor = "GET /resolve/code";
        for (first, second, is_api) in [
            ("GET /v1/links", visitor, true),
            ("OPTIONS /v1/links?limit=1", "GET /v1/links", true),
            (visitor, "GET /v1/links", false),
        ] {
            let requests = format!("{first} HTTP/1.1\r\nHost: a\r\n\r\n{second} {LAST}");
            let answers = read(server.send(requests.as_bytes()).await).await;
            assert_eq!(answers.ends_with("api"), is_api, "{answers}");
        }
        // As far as it has come, the path decides.
        for (bytes, is_api) in [
            ("", false),
            ("GET", false),
            ("GET ", false),
            ("GET /", false),
            ("GET /v", true),
            ("GET / HTTP/1.1", true),
            ("GET /resolve/", false),
            ("POST /resolve/x", false),
            ("PROPFIND", false),
        ] {
            let homes = server.homes.of(bytes.as_bytes());
            assert_eq!(
                homes.runtime.id() == server.homes.api.runtime.id(),
                is_api,
                "{bytes:?}"
            );
        }
    }

    #[tokio::test]
    async fn all_connections_are_cut_off_with_the_server() {
        let server = Running::start().await;
        let slow = server.send(format!("GET /slow {LAST}").as_bytes()).await;
        let begun = tokio::time::timeout(SOON, server.slow[0].notified());
        begun.await.expect("the request begins");
        server.task.abort();
        assert_eq!(read(slow).await, "");
    }
}
