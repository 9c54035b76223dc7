//! Redis holds, or sends, what it should not. The module's Redis is a relay in this file, so that
//! every byte on the way to nginx can be chosen.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;
use shortlink_tests::http;
use shortlink_tests::nginx::{NginxOptions, REAL_BUDGET};
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::wait::{SOON, pass, until};
use vocabulary::record::MAX_RECORD_LENGTH;

const TARGET: &str = "https://example.com/target";

#[test]
fn what_may_not_be_served_is_never_served() {
    let stack = Stack::start();
    let code = stack.link(TARGET);
    let key = format!("sl:l:{code}");
    let long = format!(
        "1 302 1 0 https://example.com/{}",
        "a".repeat(MAX_RECORD_LENGTH)
    );
    let ten_megabytes = "x".repeat(10 << 20);
    for value in [
        "1 302 1 0 https://evil.example/\r\nSet-Cookie: a=b",
        "1 302 1 0 https://evil.example/\nX: y",
        "1 302 1 0 javascript:alert(1)",
        "1 302 1 0 //evil.example/",
        "1 302 1 0 /evil",
        "1 302 1 0 ftp://evil.example/",
        "1 302 1 0 https://",
        "1 302 1 0 https://evil.example/ x",
        "1 302 1 0 ",
        "1 302 1 0",
        "2 302 1 0 https://evil.example/",
        "1 C 1 0 7 m=1",
        "1 303 1 0 https://evil.example/",
        "https://evil.example/",
        "",
        "\0",
        &long,
        &ten_megabytes,
    ] {
        stack.redis.command(&["SET", &key, value]);
        let answer = stack.follow(&code);
        let shown = &value[..value.len().min(60)];
        assert_eq!(
            (answer.status, answer.location()),
            (302, Some(TARGET)),
            "{shown}"
        );
        assert_eq!(answer.header("X-Edge"), Some("miss/fallback"), "{shown}");
        assert_eq!(answer.header("Set-Cookie"), None);
        // And the fallback has mended it: nothing here is newer than what SQL says.
        until("the record is mended", SOON, || {
            stack.redis.record(&code) == Some(format!("1 302 1 0 {TARGET}"))
        });
    }
    for command in [["HSET", &key, "a", "b"], ["LPUSH", &key, "a", "b"]] {
        stack.redis.command(&["DEL", &key]);
        stack.redis.command(&command);
        assert_eq!(stack.follow(&code).location(), Some(TARGET));
        // By the next visit if not by this one: the last record kept Redis busy for longer than the
        // sidecar may wait.
        until("the record is mended", SOON, || {
            stack.follow(&code).location() == Some(TARGET)
                && stack.redis.command(&["TYPE", &key]) == "string"
        });
        let answer = stack.follow(&code);
        let edge = answer.header("X-Edge").expect("what the edge did");
        assert!(
            ["redirect/redis", "redirect/cache"].contains(&edge),
            "{edge}"
        );
    }
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

/// The relay's treatment of Redis' answers.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Mood {
    Honest,
    /// One byte at a time.
    Sliced,
    /// Something that is no Redis.
    Garbage,
    /// Half of an answer, then the end.
    Cut,
    /// An endless line.
    Endless,
    /// An unsolicited reply before each answer.
    Extra,
    /// Closes at once.
    Closed,
    /// An error for every command.
    Refused,
    /// An error instead of each record.
    Loading,
    /// Right, but later than the budget.
    Late,
}

/// A relay between nginx and Redis.
struct Relay {
    port: u16,
    mood: Arc<AtomicU8>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn start(redis_port: Arc<Mutex<u16>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let mood = Arc::new(AtomicU8::new(Mood::Honest as u8));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (mood_of_all, connections_of_all) = (Arc::clone(&mood), Arc::clone(&connections));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let redis_port = *redis_port.lock().expect("no panic");
                let Ok(server) = TcpStream::connect(("127.0.0.1", redis_port)) else {
                    continue;
                };
                let mut kept = connections_of_all.lock().expect("no panic");
                kept.push(client.try_clone().expect("a socket"));
                kept.push(server.try_clone().expect("a socket"));
                let mood = Arc::clone(&mood_of_all);
                let (mut from_client, mut to_server) = (
                    client.try_clone().expect("a socket"),
                    server.try_clone().expect("a socket"),
                );
                thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
                thread::spawn(move || relay_answers(server, client, &mood));
            }
        });
        Self {
            port,
            mood,
            connections,
        }
    }

    /// Changes the mood; connections of the old one are closed.
    fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::Relaxed);
        for connection in self.connections.lock().expect("no panic").drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn relay_answers(mut server: TcpStream, mut client: TcpStream, mood: &AtomicU8) {
    let _ = client.set_nodelay(true);
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        let answer = &bytes[..count];
        let mood = mood.load(Ordering::Relaxed);
        let is = |other: Mood| mood == other as u8;
        let sent = if is(Mood::Sliced) {
            answer.chunks(1).try_for_each(|byte| client.write_all(byte))
        } else if is(Mood::Garbage) {
            client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        } else if is(Mood::Cut) {
            let _ = client.write_all(&answer[..count / 2]);
            Err(std::io::ErrorKind::Other.into())
        } else if is(Mood::Endless) {
            client.write_all(&b"+".repeat(100_000))
        } else if is(Mood::Extra) {
            client
                .write_all(b"+HELLO\r\n")
                .and_then(|()| client.write_all(answer))
        } else if is(Mood::Closed) {
            Err(std::io::ErrorKind::Other.into())
        } else if is(Mood::Refused) {
            client.write_all(b"-LOADING Redis is loading the dataset in memory\r\n")
        } else if is(Mood::Loading) && answer[0] == b'$' {
            let replies = answer.split(|&byte| byte == b'$').count() - 1;
            client.write_all(&b"-LOADING Redis is loading the dataset\r\n".repeat(replies))
        } else if is(Mood::Late) {
            // Two in a row must not look like a server that hangs.
            pass(Duration::from_millis(90));
            client.write_all(answer)
        } else {
            client.write_all(answer)
        };
        if sent.is_err() {
            break;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = server.shutdown(std::net::Shutdown::Both);
}

#[test]
fn whatever_redis_sends_every_visitor_arrives() {
    let redis_port = Arc::new(Mutex::new(0));
    let relay = Relay::start(Arc::clone(&redis_port));
    let stack = Stack::with(&StackOptions {
        redis_port_of_nginx: Some(relay.port),
        ..StackOptions::default()
    });
    *redis_port.lock().expect("no panic") = stack.redis.port;
    let code = stack.link(TARGET);
    let back_to_honest = || {
        relay.set(Mood::Honest);
        until("Redis is used again", SOON, || {
            let answer = stack.follow(&code);
            assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));
            answer.header("X-Edge") == Some("redirect/redis")
        });
    };
    back_to_honest();

    // Slow, but right: no reason to use the fallback.
    relay.set(Mood::Sliced);
    until("Redis is asked in slices", SOON, || {
        stack.follow(&code).header("X-Edge") == Some("redirect/redis")
    });

    for mood in [
        Mood::Garbage,
        Mood::Cut,
        Mood::Endless,
        Mood::Extra,
        Mood::Closed,
        Mood::Refused,
    ] {
        back_to_honest();
        relay.set(mood);
        for _ in 0..50 {
            let answer = stack.follow(&code);
            assert_eq!(
                (answer.status, answer.location()),
                (302, Some(TARGET)),
                "{mood:?}"
            );
            pass(Duration::from_millis(5));
        }
    }
    back_to_honest();
    let known = ["lost Redis", "takes no visits"];
    assert_eq!(stack.nginx.complaints(&known), [""; 0]);
    assert_eq!(stack.api("GET", "/v1/links?limit=1", None).status, 200);
    assert_eq!(
        stack.create(&json!({ "longUrl": TARGET }))["published"],
        true
    );
}

#[test]
fn a_redis_that_is_late_or_answers_with_errors_is_left_alone_for_a_while() {
    let redis_port = Arc::new(Mutex::new(0));
    let relay = Relay::start(Arc::clone(&redis_port));
    let stack = Stack::with(&StackOptions {
        redis_port_of_nginx: Some(relay.port),
        nginx: NginxOptions {
            replace: vec![
                ("worker_processes 2", "worker_processes 1".to_owned()),
                (
                    "shortlink_cache 32m stale=60s;",
                    "shortlink_cache off;".to_owned(),
                ),
            ],
            budget: REAL_BUDGET,
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    *redis_port.lock().expect("no panic") = stack.redis.port;
    let code = stack.link(TARGET);
    let metric = |name: &str| {
        let metrics = http::get(stack.nginx.internal_port, "/edge/metrics").body;
        let metrics = String::from_utf8(metrics).expect("text");
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        let count: u64 = line.expect("a metric").trim().parse().expect("a number");
        count
    };
    let opened = || metric("shortlink_breaker_opened_total ");
    // The sidecar asks the same Redis, so what nginx was answered counts.
    let answered = || metric("shortlink_redis_round_trip_seconds_count ");
    let edge = || {
        let answer = stack.follow(&code);
        assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));
        answer.header("X-Edge").unwrap_or_default().to_owned()
    };
    for (mood, said) in [
        (Mood::Loading, "answers with errors (LOADING"),
        (Mood::Late, "answers too late"),
    ] {
        relay.set(Mood::Honest);
        until("Redis is asked", SOON, || edge() == "redirect/redis");
        let before = opened();
        // The connection stays: only what comes on it changes.
        relay.mood.store(mood as u8, Ordering::Relaxed);
        until("Redis gets no requests", SOON, || {
            // A request that joins a late look-up may get its answer in time.
            edge();
            opened() > before
        });
        until(said, SOON, || stack.nginx.error_log().contains(said));
        // Earlier commands are answered first. Then no request waits for it, for longer each time.
        pass(Duration::from_millis(130));
        until(
            "no request waits, and there is one try at most",
            SOON,
            || {
                let before = answered();
                let alone = (0..20).all(|_| edge() == "unavailable/fallback");
                alone && answered() - before <= 1
            },
        );
        relay.mood.store(Mood::Honest as u8, Ordering::Relaxed);
        until("Redis is used again", SOON, || edge() == "redirect/redis");
    }
    assert_eq!(
        stack.nginx.complaints(&["lost Redis", "gets no requests"]),
        [""; 0]
    );
}
