//! Connections, each on the runtime of its first request.
//!
//! A runtime that serves visitors must not wait for the API, and a request that is answered on another runtime than that
//! of its connection pays for two changes of threads (`bench/against`). Most connections carry requests of one kind. So the
//! first bytes of a connection decide which runtime reads it, and a request of the other kind is answered apart.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// The time limit for the headers of a request, from the begin of the connection or the end of the request before. It is
/// longer than nginx holds idle connections to the sidecar (`keepalive_timeout` of an upstream, 60 seconds), because a
/// request must not meet a connection that is about to be closed.
pub(super) const HEADERS_WITHIN: Duration = Duration::from_secs(75);

/// The time limit for the first byte. Clients connect when they have a request.
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(15);

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

/// Serves connections until `shutdown`; then accepts no more of them, and returns when the requests in progress are
/// answered. A connection that sends nothing for [`FIRST_BYTE_WITHIN`], or then no headers for as long as `headers_within`,
/// is closed. When this is dropped, all
/// connections are cut off.
pub(super) async fn serve(
    mut listener: TcpListener,
    homes: Homes,
    headers_within: Duration,
    shutdown: CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(headers_within);
    let connections = GracefulShutdown::new();
    let cut_off = CancellationToken::new();
    let _on_drop = cut_off.clone().drop_guard();
    loop {
        let (stream, _address) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = Listener::accept(&mut listener) => accepted,
        };
        let connection = Connection {
            http: http.clone(),
            watcher: connections.watcher(),
        };
        let (homes, shutdown) = (homes.clone(), shutdown.clone());
        let cut_off = cut_off.clone();
        tokio::spawn(async move {
            let first = first_bytes(&stream);
            let first = tokio::select! {
                biased;
                first = tokio::time::timeout(headers_within.min(FIRST_BYTE_WITHIN), first) => first,
                () = shutdown.cancelled() => return,
            };
            let served = match first {
                Ok(Ok(bytes)) => connection.serve_at(homes.of(&bytes), stream, cut_off),
                Ok(Err(error)) => Err(error),
                // It has sent nothing.
                Err(_elapsed) => Ok(()),
            };
            if let Err(error) = served {
                tracing::trace!(%error, "a connection is not served");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
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

/// A connection that has a stream, but no home yet.
struct Connection {
    http: http1::Builder,
    watcher: Watcher,
}

impl Connection {
    /// Serves the stream on the runtime of its home, which gets to know the socket.
    fn serve_at(
        self,
        home: &Home,
        stream: TcpStream,
        cut_off: CancellationToken,
    ) -> io::Result<()> {
        let stream = stream.into_std()?;
        let service = TowerToHyperService::new(home.router.clone());
        home.runtime.spawn(async move {
            let stream = match TcpStream::from_std(stream) {
                Ok(stream) => stream,
                Err(error) => return tracing::warn!(%error, "a connection is not served"),
            };
            let connection = self.http.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                () = cut_off.cancelled() => {}
                served = self.watcher.watch(connection) => if let Err(error) = served {
                    let error = &error as &dyn std::error::Error;
                    tracing::trace!(error, "a connection has ended");
                },
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use axum::routing::get;
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

    struct Server {
        address: SocketAddr,
        /// `/slow` has begun, and may answer.
        slow: Arc<[Notify; 2]>,
        shutdown: CancellationToken,
        task: JoinHandle<()>,
        homes: Homes,
        /// That of the API, until it is shut down.
        runtime: Option<Runtime>,
    }

    impl Drop for Server {
        fn drop(&mut self) {
            if let Some(runtime) = self.runtime.take() {
                runtime.shutdown_background();
            }
        }
    }

    impl Server {
        async fn start() -> Self {
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
            let thread = || async { std::thread::current().name().unwrap_or_default().to_owned() };
            let router = Router::new()
                .route("/", get(|| async { "here" }))
                .route("/resolve/{code}", get(thread))
                .route("/v1/links", get(thread))
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
            let task = tokio::spawn(serve(listener, homes.clone(), LIMIT, shutdown.clone()));
            Self {
                address,
                slow,
                shutdown,
                task,
                homes,
                runtime: Some(runtime),
            }
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
        let server = Server::start().await;
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
    async fn a_request_in_progress_is_answered_before_the_end() {
        let mut server = Server::start().await;
        let slow = server.send(format!("GET /slow {LAST}").as_bytes()).await;
        let begun = tokio::time::timeout(SOON, server.slow[0].notified());
        begun.await.expect("the request begins");
        server.shutdown.cancel();
        eventually("no more connections are accepted", || async {
            TcpStream::connect(server.address).await.is_err()
        })
        .await;
        assert!(!server.task.is_finished());
        server.slow[1].notify_one();
        assert!(read(slow).await.ends_with("slow"));
        let ended = tokio::time::timeout(SOON, &mut server.task).await;
        ended.expect("the server ends").expect("no panic");
    }

    #[tokio::test]
    async fn a_connection_stays_on_the_runtime_of_its_first_request() {
        let server = Server::start().await;
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
        let server = Server::start().await;
        let slow = server.send(format!("GET /slow {LAST}").as_bytes()).await;
        let begun = tokio::time::timeout(SOON, server.slow[0].notified());
        begun.await.expect("the request begins");
        server.task.abort();
        assert_eq!(read(slow).await, "");
    }
}
