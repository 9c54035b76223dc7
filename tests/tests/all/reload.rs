//! nginx reloads, ends and starts under load.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::process::signal;
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::visits::Account;
use shortlink_tests::wait::{SOON, pass, until};

const CLIENTS: usize = 8;

/// The answers that the clients have seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) answered: AtomicU64,
    /// Connections that were closed while they were idle, which HTTP allows and a client repeats.
    closed_idle: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// Follows codes until `stop`, half of the clients over connections that stay open.
/// Any failed request is a panic, but for a connection refused where `may_refuse`.
fn follow_codes(
    port: u16,
    client: usize,
    codes: &[String],
    stop: &AtomicBool,
    seen: &Seen,
    may_refuse: bool,
) {
    let keep_alive = client.is_multiple_of(2);
    let mut open: Option<Connection> = None;
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let code = &codes[(round + client) % codes.len()];
        let was_open = open.is_some();
        let mut connection = match open.take() {
            Some(connection) => connection,
            None => match Connection::open(port) {
                Ok(connection) => connection,
                Err(error) => {
                    assert!(may_refuse, "no connection: {error}");
                    seen.refused.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                    continue;
                }
            },
        };
        let request = http::request("GET", &format!("/{code}"), &[], b"");
        let answer = connection
            .send(&request)
            .and_then(|()| connection.receive("GET"));
        match answer {
            Ok(Some(answer)) => {
                assert_eq!(answer.status, 302, "{code}");
                assert_eq!(
                    answer.location(),
                    Some(&*format!("https://example.com/{code}"))
                );
                seen.answered.fetch_add(1, Ordering::Relaxed);
                if keep_alive && answer.header("Connection") != Some("close") {
                    open = Some(connection);
                }
            }
            // Closed before the first byte of an answer, on a connection that was idle.
            _ if was_open => {
                seen.closed_idle.fetch_add(1, Ordering::Relaxed);
            }
            // While nginx ends, the kernel may have taken a connection that no worker accepts.
            _ if may_refuse => {
                seen.refused.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("{code} was not answered: {other:?}"),
        }
    }
}

/// Custom codes whose targets name them, in Redis and SQL.
fn codes(stack: &Stack) -> Vec<String> {
    let codes: Vec<String> = (0..50).map(|number| format!("code{number}")).collect();
    for code in &codes {
        let target = format!("https://example.com/{code}");
        stack.create(&serde_json::json!({ "longUrl": target, "customSlug": code }));
    }
    codes
}

/// Runs `work` while clients follow codes.
pub(crate) fn under_load(
    stack: &mut Stack,
    may_refuse: bool,
    work: impl FnOnce(&mut Stack, &Seen),
) -> Seen {
    let codes = codes(stack);
    let port = stack.nginx.public_port;
    let stop = AtomicBool::new(false);
    let seen = Seen::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (codes, stop, seen) = (&codes, &stop, &seen);
                scope.spawn(move || follow_codes(port, client, codes, stop, seen, may_refuse))
            })
            .collect();
        // The clients must stop even when the work panics.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("clients are served", SOON, || {
                seen.answered.load(Ordering::Relaxed) > 200
            });
            work(stack, &seen);
        }));
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            if let Err(panic) = client.join() {
                std::panic::resume_unwind(panic);
            }
        }
        if let Err(panic) = worked {
            std::panic::resume_unwind(panic);
        }
    });
    seen
}

/// Waits until clients were answered again, so that each change happens under load.
pub(crate) fn wait_for_answers(seen: &Seen, count: u64) {
    let before = seen.answered.load(Ordering::Relaxed);
    until("clients are served", SOON, || {
        seen.answered.load(Ordering::Relaxed) > before + count
    });
}

#[test]
fn no_request_fails_when_nginx_reloads() {
    let mut stack = Stack::start();
    let seen = under_load(&mut stack, false, |stack, seen| {
        for _ in 0..20 {
            stack.nginx.reload();
            wait_for_answers(seen, 100);
        }
    });
    assert_eq!(stack.nginx.workers().len(), 2);
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
    assert!(
        !stack.nginx.error_log().contains("open socket"),
        "{}",
        stack.nginx.error_log()
    );
}

#[test]
fn no_request_fails_when_nginx_ends_and_starts_again() {
    let mut stack = Stack::start();
    let seen = under_load(&mut stack, true, |stack, seen| {
        for _ in 0..5 {
            stack.nginx.quit();
            stack.nginx.start_again();
            wait_for_answers(seen, 100);
        }
    });
    assert!(seen.answered.load(Ordering::Relaxed) > 500);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
    assert!(
        !stack.nginx.error_log().contains("open socket"),
        "{}",
        stack.nginx.error_log()
    );
}

#[test]
fn a_configuration_that_is_refused_changes_nothing_for_workers_to_come() {
    let stack = Stack::start();
    let code = stack.link("https://example.com/");
    let policy = || {
        stack
            .follow(&code)
            .header("Referrer-Policy")
            .map(str::to_owned)
    };
    assert_eq!(policy().as_deref(), Some("no-referrer"));
    let (there, missing) = ("shortlink_fallback @sidecar", "shortlink_fallback @nowhere");
    stack.nginx.edit("public.conf", there, missing);
    signal(stack.nginx.master(), Signal::SIGHUP);
    until("the configuration is refused", SOON, || {
        stack
            .nginx
            .error_log()
            .contains("names a location that its server does not have")
    });
    stack.nginx.kill_workers(&stack.nginx.workers());
    assert_eq!(policy().as_deref(), Some("no-referrer"));
}

#[test]
fn no_request_fails_when_a_worker_is_killed_and_replaced() {
    let mut stack = Stack::start();
    let seen = under_load(&mut stack, true, |stack, seen| {
        for _ in 0..3 {
            let workers = stack.nginx.workers();
            stack.nginx.kill_workers(&workers[..1]);
            wait_for_answers(seen, 100);
        }
    });
    assert!(seen.answered.load(Ordering::Relaxed) > 300);
    // nginx itself logs the kill.
    assert_eq!(stack.nginx.complaints(&["exited on signal 9"]), [""; 0]);
}

/// With replacements, and an nginx that lets old workers take longer than any test waits: they end
/// by themselves.
fn patient(replace: &[(&'static str, String)]) -> StackOptions {
    let timeout = "worker_shutdown_timeout 60s".to_owned();
    let patience = [("worker_shutdown_timeout 5s", timeout)];
    StackOptions {
        nginx: NginxOptions {
            replace: [&patience, replace].concat(),
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    }
}

#[test]
fn an_old_worker_ends_while_redis_hangs_and_its_requests_are_answered() {
    let stack = Stack::with(&patient(&[]));
    let code = stack.link("https://example.com/");
    stack.redis.hang();
    let mut waiting: Vec<Connection> = (0..10)
        .map(|_| {
            let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
            let request = http::request("GET", &format!("/{code}"), &[], b"");
            connection.send(&request).expect("sent");
            connection
        })
        .collect();
    let old = stack.nginx.begin_reload();
    for connection in &mut waiting {
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!(
            (answer.status, answer.location()),
            (302, Some("https://example.com/"))
        );
    }
    drop(waiting);
    until("the old workers are gone", SOON, || {
        stack.nginx.workers().iter().all(|pid| !old.contains(pid))
    });
    stack.redis.go_on();
    until("Redis is used again", SOON, || {
        stack.follow(&code).header("X-Edge") == Some("redirect/redis")
    });
    // Visits that Redis has not confirmed have nowhere to go here.
    let expected = ["lost Redis", "visits are dropped"];
    assert_eq!(stack.nginx.complaints(&expected), [""; 0]);
}

/// Returns whether everything was read that clients have sent to a port of loopback.
fn has_read_all(port: u16) -> bool {
    let sockets = fs::read_to_string("/proc/net/tcp").expect("the sockets");
    let local = format!(":{port:04X}");
    let mut unread = sockets.lines().skip(1).filter(|socket| {
        let fields: Vec<&str> = socket.split_whitespace().collect();
        fields[1].ends_with(&local) && !fields[4].ends_with(":00000000")
    });
    unread.next().is_none()
}

#[test]
fn an_old_worker_asks_redis_for_the_request_that_it_still_gets() {
    let visits = "batch=100 interval=200ms";
    let mut stack = Stack::with(&patient(&[(visits, visits.replace("100", "1"))]));
    let codes: Vec<String> = (0..20)
        .map(|number| stack.link(&format!("https://example.com/{number}")))
        .collect();
    // The requests of phones that are slow: old workers have read half of each.
    let mut begun: Vec<Connection> = codes
        .iter()
        .map(|code| {
            let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
            let half = format!("GET /{code} HTTP/1.1\r\nHost: localhost\r\n");
            connection.send(half.as_bytes()).expect("sent");
            connection
        })
        .collect();
    let port = stack.nginx.public_port;
    until("half of each is read", SOON, || has_read_all(port));
    let old = stack.nginx.begin_reload();
    stack.nginx.wait_for_ending_of(&old);
    // Longer than a worker that ends waits for what it has recorded up to then.
    pass(Duration::from_millis(1200));
    // No other server knows the links.
    stack.sidecar.kill();
    for (number, connection) in begun.iter_mut().enumerate() {
        if number == codes.len() / 2 {
            // A connection that a worker loses then is made again, too.
            stack.redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            until("all workers are connected again", SOON, || {
                let clients = stack.redis.command(&["CLIENT", "LIST"]);
                let page = http::get(stack.nginx.internal_port, "/edge/metrics").body;
                clients.matches("name=shortlink-edge").count() == 4
                    && String::from_utf8_lossy(&page).contains("\nshortlink_redis_connected 4\n")
            });
        }
        connection.send(b"\r\n").expect("sent");
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!(
            (answer.status, answer.header("X-Edge")),
            (302, Some("redirect/redis")),
            "{number}"
        );
    }
    drop(begun);
    stack.nginx.wait_for_end_of(&old);
    // The last visit was waited for, too.
    let page = http::get(stack.nginx.internal_port, "/edge/metrics").body;
    let told = Account::of(&String::from_utf8(page).expect("text"));
    assert_eq!((told.total, told.stored), (20, 20));
    assert_eq!(stack.nginx.complaints(&["lost Redis"]), [""; 0]);
}

#[test]
fn an_old_worker_ends_while_redis_is_away() {
    let mut stack = Stack::with(&patient(&[]));
    let code = stack.link("https://example.com/");
    stack.redis.kill();
    assert_eq!(stack.follow(&code).status, 302);
    // Before worker_shutdown_timeout: trying to reconnect keeps no old worker alive.
    let old = stack.nginx.begin_reload();
    until("the old workers are gone", SOON, || {
        stack.nginx.workers().iter().all(|pid| !old.contains(pid))
    });
    assert_eq!(stack.follow(&code).status, 302);
}

#[test]
fn an_idle_worker_keeps_one_connection_and_leaves_none_behind() {
    let stack = Stack::start();
    let code = stack.link("https://example.com/");
    // Every worker has connected by itself, before any request.
    let edges = || {
        let clients = stack.redis.command(&["CLIENT", "LIST"]);
        clients
            .lines()
            .filter(|line| line.contains("name=shortlink-edge"))
            .count()
    };
    until("each worker has its connection", SOON, || edges() == 2);
    for _ in 0..50 {
        assert_eq!(stack.follow(&code).status, 302);
    }
    assert_eq!(edges(), 2);
    stack.nginx.reload();
    until("the old connections are gone", SOON, || edges() == 2);
    for pid in stack.nginx.workers() {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("a worker")
            .count();
        assert!(
            descriptors < 40,
            "worker {pid} has {descriptors} descriptors open"
        );
    }
}
