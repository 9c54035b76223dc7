//! Visitors who follow links over connections that they keep, as correct clients: what was closed
//! while it was idle is opened again, and what was surely not handled is asked for again.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use shortlink_tests::chance::Chance;
use shortlink_tests::http::{Connection, request};
use shortlink_tests::wait::pass;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::scene::{Question, Scene, Tallies, Tally};

/// Number of connections of each kind.
pub(super) const EACH: usize = 25;

/// The most requests that an HTTP/2 connection has under way at once.
const STREAMS: u64 = 3;

/// A visitor rests for less than this between two requests.
const REST: Duration = Duration::from_millis(40);

/// Each so many HTTP/1.1 visitors rest in the middle of sending a request.
const SLOW: usize = 3;

/// The longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The visitors of an nginx: so many over HTTP/1.1, the others over HTTP/2.
pub(super) struct Crowd {
    scene: Arc<Scene>,
    threads: Vec<JoinHandle<Tallies>>,
}

impl Crowd {
    pub(super) fn start(scene: &Arc<Scene>) -> Self {
        let spawn = |work: fn(usize, &Arc<Scene>) -> Tallies, visitor| {
            let scene = Arc::clone(scene);
            thread::spawn(move || work(visitor, &scene))
        };
        let mut threads: Vec<_> = (0..EACH)
            .map(|visitor| spawn(|visitor, scene| vec![over_http1(visitor, scene)], visitor))
            .collect();
        threads.push(spawn(all_over_http2, EACH));
        Self {
            scene: Arc::clone(scene),
            threads,
        }
    }

    /// Ends all and returns what each has seen.
    pub(super) fn end(mut self) -> Tallies {
        self.scene.is_over.store(true, Ordering::Relaxed);
        let threads = self.threads.drain(..);
        let tallies = threads.map(|thread| thread.join().expect("no visitor panics"));
        tallies.flatten().collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.scene.is_over.store(true, Ordering::Relaxed);
    }
}

/// The name that a visitor sends.
pub(super) fn name(visitor: usize) -> String {
    format!("visitor-{visitor}")
}

fn over_http1(visitor: usize, scene: &Arc<Scene>) -> (usize, Tally) {
    let name = name(visitor);
    let mut chance = Chance::default();
    let mut tally = Tally::default();
    let is_slow = visitor.is_multiple_of(SLOW);
    let mut kept: Option<Connection> = None;
    while !scene.is_over() {
        // A connection that was closed during the rest is noticed before anything is sent.
        let usable = kept.take().filter(|kept| !kept.is_closed().unwrap_or(true));
        let was_kept = usable.is_some();
        let opened = match usable {
            Some(connection) => Ok(connection),
            None => Connection::open(scene.http1_port),
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                scene.fault(format!("no connection: {error}"));
                continue;
            }
        };
        let question = scene.question(&mut chance);
        let headers = [("Host", &*question.host), ("User-Agent", &*name)];
        let bytes = request("GET", &format!("/{}", question.link.code), &headers, b"");
        let halves = bytes.split_at(if is_slow { bytes.len() / 2 } else { 0 });
        let mut sent = connection.send(halves.0);
        if is_slow {
            pass(chance.time_below(REST));
        }
        sent = sent.and_then(|()| connection.send(halves.1));
        match sent.and_then(|()| connection.receive("GET")) {
            Ok(Some(answer)) => {
                let told = (answer.status, answer.location());
                scene.answered(&question, told, &mut tally);
                if answer.header("Connection") != Some("close") {
                    kept = Some(connection);
                }
            }
            Ok(None) if was_kept => scene.closed(&question, &mut tally),
            Err(error) if was_kept && is_closed(&error) => scene.closed(&question, &mut tally),
            other => scene.fault(format!("{question:?} over HTTP/1.1: {other:?}")),
        }
        pass(chance.time_below(REST));
    }
    (visitor, tally)
}

/// Returns whether an error means to a sender that the connection was closed.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

fn all_over_http2(first: usize, scene: &Arc<Scene>) -> Tallies {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut visitors = tokio::task::JoinSet::new();
        for visitor in first..first + EACH {
            let scene = Arc::clone(scene);
            visitors.spawn(async move { (visitor, over_http2(visitor, &scene).await) });
        }
        visitors.join_all().await
    })
}

async fn over_http2(visitor: usize, scene: &Scene) -> Tally {
    let name = name(visitor);
    let mut chance = Chance::default();
    let mut tally = Tally::default();
    let mut kept: Option<SendRequest<Bytes>> = None;
    while !scene.is_over() {
        let opened = match kept.take() {
            Some(connection) => Ok(connection),
            None => open(scene.http2_port).await,
        };
        let connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                scene.fault(format!("no connection: {error}"));
                continue;
            }
        };
        let mut asked = Vec::new();
        for _ in 0..=chance.below(STREAMS) {
            // A client that knows of the connection's end opens another one.
            let Ok(mut ready) = connection.clone().ready().await else {
                break;
            };
            let question = scene.question(&mut chance);
            match send(&mut ready, &question, &name) {
                Ok(answer) => asked.push((question, answer)),
                Err(_) => break,
            }
        }
        let mut is_usable = !asked.is_empty();
        for (question, answer) in asked {
            match timeout(PATIENCE, receive(answer)).await {
                Ok(Ok((status, location))) => {
                    scene.answered(&question, (status, location.as_deref()), &mut tally);
                }
                Ok(Err(error)) if is_unhandled(&error) => {
                    scene.closed(&question, &mut tally);
                    scene.closed_over_http2.fetch_add(1, Ordering::SeqCst);
                    is_usable = false;
                }
                Ok(Err(error)) => {
                    scene.fault(format!("{question:?} over HTTP/2: {error}"));
                    is_usable = false;
                }
                Err(_) => {
                    scene.fault(format!("{question:?} over HTTP/2 is not answered"));
                    is_usable = false;
                }
            }
        }
        if is_usable {
            kept = Some(connection);
        }
        // As between two requests over HTTP/1.1; the end of the connection is noticed meanwhile.
        sleep(chance.time_below(REST)).await;
    }
    tally
}

async fn open(port: u16) -> Result<SendRequest<Bytes>, String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await;
    let stream = stream.map_err(|error| error.to_string())?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let shaken = h2::client::handshake(stream).await;
    let (requests, connection) = shaken.map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        // How it ends is seen by the requests.
        let _ = connection.await;
    });
    Ok(requests)
}

fn send(
    requests: &mut SendRequest<Bytes>,
    question: &Question,
    name: &str,
) -> Result<ResponseFuture, h2::Error> {
    let request = Request::get(format!("http://{}/{}", question.host, question.link.code))
        .header("User-Agent", name)
        .body(())
        .expect("a request");
    requests
        .send_request(request, true)
        .map(|(answer, _)| answer)
}

/// Receives an answer's status and location; no test needs the body.
async fn receive(answer: ResponseFuture) -> Result<(u16, Option<String>), h2::Error> {
    let answer = answer.await?;
    let location = answer.headers().get("Location");
    let location = location.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned());
    Ok((answer.status().as_u16(), location))
}

/// Returns whether the end of the connection ended a stream before any of its answer came.
fn is_unhandled(error: &h2::Error) -> bool {
    error.is_io()
        || (error.is_go_away() && error.reason() == Some(Reason::NO_ERROR))
        || error.reason() == Some(Reason::REFUSED_STREAM)
}
