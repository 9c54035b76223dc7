//! A sidecar that is asked to stop answers what it was asked before it ends.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shortlink_tests::http::{Connection, Response, request};
use shortlink_tests::stack::Stack;
use shortlink_tests::wait::{SOON, until};

/// Clients that open a connection for each request, and as many that keep theirs.
const CLIENTS: usize = 6;

/// Answers before each stop.
const ANSWERS: u64 = 400;

/// A sidecar that stops leaves connections open for so long (`LAST_REQUESTS_WITHIN`). A client that the machine holds up
/// for longer may find its connection closed.
const OPEN_FOR: Duration = Duration::from_millis(500);

struct Load {
    port: u16,
    /// Of a visitor, of a reader, and of one who creates links.
    requests: [Vec<u8>; 3],
    answered: AtomicU64,
}

impl Load {
    /// Sends a request, which must be answered, unless the connection was idle for too long: nothing was sent since
    /// `idle`.
    fn ask(&self, connection: &mut Connection, number: usize, idle: Instant) -> Option<Response> {
        let bytes = &self.requests[number % self.requests.len()];
        let sent = connection.send(bytes);
        let idle = idle.elapsed();
        let answer = match sent.and_then(|()| connection.receive("GET")) {
            Ok(Some(answer)) => answer,
            _ if idle >= OPEN_FOR => return None,
            cut => panic!("{cut:?} after {idle:?}"),
        };
        assert!(matches!(answer.status, 200 | 201 | 404), "{answer:?}");
        self.answered.fetch_add(1, Ordering::Relaxed);
        Some(answer)
    }

    /// Opens connections and uses each until an answer ends it, or for one request; ends when the sidecar listens no
    /// more.
    fn run(&self, is_kept: bool) {
        for first in 0.. {
            let mut idle = Instant::now();
            let mut connection = match Connection::open(self.port) {
                Ok(connection) => connection,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
                    return;
                }
            };
            for number in first.. {
                let sent = Instant::now();
                let Some(answer) = self.ask(&mut connection, number, idle) else {
                    break;
                };
                if !is_kept || answer.header("Connection") == Some("close") {
                    break;
                }
                idle = sent;
            }
        }
    }
}

#[test]
fn a_sidecar_that_stops_under_load_cuts_no_request() {
    let mut stack = Stack::start();
    let port = stack.sidecar.port;
    let key = [("X-Api-Key", &*stack.sidecar.key.clone())];
    let made = [key[0], ("Content-Type", "application/json")];
    let target = br#"{"longUrl": "https://example.com/"}"#;
    for _ in 0..3 {
        let load = Load {
            port,
            requests: [
                request("GET", "/resolve/unknown", &[], b""),
                request("GET", "/v1/links?limit=1", &key, b""),
                request("POST", "/v1/links", &made, target),
            ],
            answered: AtomicU64::new(0),
        };
        thread::scope(|scope| {
            for number in 0..2 * CLIENTS {
                let load = &load;
                scope.spawn(move || load.run(number < CLIENTS));
            }
            let is_busy = || load.answered.load(Ordering::Relaxed) >= ANSWERS;
            until("requests are answered", SOON, is_busy);
            assert_eq!(stack.sidecar.stop(), Some(0));
        });
        stack.sidecar.start_again();
    }
    let log = stack.sidecar.log();
    assert!(!log.contains("cut off"), "{log}");
}
