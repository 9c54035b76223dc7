//! Against a real Redis: what matters here is what its script does.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shortlink_core::testing::link;

use super::*;

/// A server on a socket in a directory of its own; it ends with the value.
pub(super) struct Server {
    process: Child,
    directory: tempfile::TempDir,
}

/// The options for one server.
pub(super) fn options(url: &str, timeout: Duration) -> RedisOptions {
    RedisOptions {
        url: url.to_owned().into(),
        topology: Topology::Server,
        prefix: KeyPrefix::default(),
        timeout,
    }
}

impl Server {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self {
            process: spawn(&directory),
            directory,
        }
    }

    /// Kills the server and starts another, which has nothing of what was in it.
    fn replace(&mut self) {
        self.kill();
        self.process = spawn(&self.directory);
    }

    fn kill(&mut self) {
        self.process.kill().expect("a running server");
        self.process.wait().expect("its end");
    }

    /// Stops or continues the server as a whole.
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.process.id().to_string()])
            .status()
            .expect("a kill command");
        assert!(sent.success());
    }

    pub(super) fn url(&self) -> String {
        let socket = self.directory.path().join("redis.sock");
        format!("redis+unix://{}", socket.display())
    }

    fn publisher(&self, timeout: Duration) -> RedisPublisher {
        RedisPublisher::new(&options(&self.url(), timeout), 30).expect("a good URL")
    }

    pub(super) async fn redis(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("a good URL");
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => return connection,
                Err(error) if Instant::now() > deadline => panic!("no Redis: {error}"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing works on a stopped process too; one that has ended can't be killed again.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(directory: &tempfile::TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .args(["--unixsocket", "redis.sock"])
        .current_dir(directory)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed")
}

/// Publishes until it works.
async fn publish(publisher: &RedisPublisher, link: &Link) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = publisher.publish(std::slice::from_ref(link)).await {
        assert!(Instant::now() < deadline, "{error:?}");
        tokio::task::yield_now().await;
    }
}

fn revision(revision: u64) -> Link {
    Link {
        revision,
        ..link("abc")
    }
}

#[tokio::test]
async fn a_record_is_replaced_unless_it_is_newer() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let publisher = server.publisher(Duration::from_secs(5));
    let new = String::from_utf8(revision(7).record().to_vec()).expect("a readable record");
    for (present, is_replaced) in [
        ("1 302 6 0 https://example.com/", true),
        ("1 302 7 0 https://example.com/other", true),
        ("1 302 8 0 https://example.com/", false),
        ("1 302 10 0 https://example.com/", false),
        ("1 302 6 5-9 https://example.com/", true),
        ("1 302q 6 0 https://example.com/", true),
        ("1 302q 8 5- https://example.com/", false),
        ("1 C4f 6 0 a&b", true),
        ("1 C4f 7 0 ", true),
        ("1 C4f 8 0 ", false),
        ("1 C4f 8 5-9 a&b", false),
        ("c4f a&b", true),
        // A number at the end is a parameter here, no revision.
        ("c4f 8", true),
        ("1 410 6", true),
        ("1 410 8", false),
        // Of versions and kinds to come.
        ("2 302 8 whatever", false),
        ("2 X 8", false),
        ("1 C 6 0 a b", true),
        // Negative records are never newer.
        ("1 404 0", true),
        ("1 404 9", true),
        ("2 404 9 x", true),
        // Not records.
        ("", true),
        ("garbage", true),
        ("1 302", true),
        ("1 302 ", true),
        ("1 302 x 0 https://example.com/", true),
        ("1 302 -8 0 https://example.com/", true),
        ("1 302 8x 0 https://example.com/", true),
        ("1 302 8.5 0 https://example.com/", true),
        ("1  302 8 0", true),
        ("1 302 99999999999999999999 0 https://example.com/", true),
    ] {
        let key = "sl:l:abc";
        let () = redis::cmd("SET")
            .arg(key)
            .arg(present)
            .query_async(&mut redis)
            .await
            .expect("a working Redis");
        publish(&publisher, &revision(7)).await;
        let stands: String = redis::cmd("GET")
            .arg(key)
            .query_async(&mut redis)
            .await
            .expect("a working Redis");
        let expected = if is_replaced { &*new } else { present };
        assert_eq!(stands, expected, "after {present:?}");
    }
}

#[tokio::test]
async fn a_compact_record_is_of_the_first_revision() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let publisher = server.publisher(Duration::from_secs(5));
    for (brought, is_replaced) in [(0, false), (1, true), (2, true)] {
        let key = "sl:l:abc";
        let () = redis::cmd("SET")
            .arg(key)
            .arg("c4f 9")
            .query_async(&mut redis)
            .await
            .expect("a working Redis");
        publish(&publisher, &revision(brought)).await;
        let stands: Vec<u8> = redis::cmd("GET")
            .arg(key)
            .query_async(&mut redis)
            .await
            .expect("a working Redis");
        let is_new = stands == revision(brought).record().to_vec();
        assert_eq!(is_new, is_replaced, "revision {brought}");
    }
}

#[tokio::test]
async fn publishing_outlives_flushed_scripts_other_types_and_an_empty_redis() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let publisher = server.publisher(Duration::from_secs(5));
    let key = "sl:l:abc";
    for command in [
        &["FLUSHALL"][..],
        &["SCRIPT", "FLUSH"],
        &["RPUSH", key, "1"],
        &["SET", key, "1 404 0", "EX", "30"],
    ] {
        let () = redis::cmd("DEL")
            .arg(key)
            .query_async(&mut redis)
            .await
            .expect("DEL");
        let mut prepare = redis::cmd(command[0]);
        prepare.arg(&command[1..]);
        let _: redis::Value = prepare
            .query_async(&mut redis)
            .await
            .expect("a good command");
        publish(&publisher, &revision(1)).await;
        let (stands, ttl): (String, i64) = redis::pipe()
            .get(key)
            .ttl(key)
            .query_async(&mut redis)
            .await
            .expect("a working Redis");
        assert_eq!(
            stands.as_bytes(),
            revision(1).record().to_vec(),
            "{command:?}"
        );
        assert_eq!(ttl, -1, "{command:?}");
    }
}

#[tokio::test]
async fn a_negative_record_takes_only_an_empty_place_and_goes_by_itself() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let publisher = server.publisher(Duration::from_secs(5));
    publish(&publisher, &revision(1)).await;
    for (code, record, expires) in [
        ("abc", revision(1).record().to_vec(), false),
        ("unknown", b"1 404 0".to_vec(), true),
    ] {
        let code: Code = code.parse().expect("a code");
        publisher
            .note_unknown(&code)
            .await
            .expect("a working Redis");
        let key = format!("sl:l:{code}");
        let (stands, ttl): (Vec<u8>, i64) = redis::pipe()
            .get(&key)
            .ttl(&key)
            .query_async(&mut redis)
            .await
            .expect("a working Redis");
        assert_eq!(stands, record, "{code}");
        assert_eq!((1..=30).contains(&ttl), expires, "{code}");
    }
}

#[tokio::test]
async fn a_stopped_redis_costs_no_more_than_the_limit_and_is_found_again() {
    const LIMIT: Duration = Duration::from_millis(100);
    let server = Server::start();
    drop(server.redis().await);
    let publisher = server.publisher(LIMIT);
    publish(&publisher, &revision(1)).await;
    server.signal("-STOP");
    let mut waits = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        assert!(publisher.publish(&[revision(2)]).await.is_err());
        waits.push(begun.elapsed());
    }
    // The margin allows for a machine that is busy with other tests, and one stall.
    waits.sort_unstable();
    assert!(waits[18] < LIMIT * 10, "{waits:?}");
    server.signal("-CONT");
    publish(&publisher, &revision(2)).await;
}

#[tokio::test]
async fn another_server_is_another_incarnation() {
    let mut server = Server::start();
    drop(server.redis().await);
    let publisher = server.publisher(Duration::from_secs(5));
    let first = publisher.incarnation().await.expect("a working Redis");
    assert_eq!(
        publisher.incarnation().await.expect("a working Redis"),
        first
    );
    server.replace();
    let mut redis = server.redis().await;
    publish(&publisher, &revision(1)).await;
    assert_ne!(
        publisher.incarnation().await.expect("a working Redis"),
        first
    );
    let exists: bool = redis::cmd("EXISTS")
        .arg("sl:l:abc")
        .query_async(&mut redis)
        .await
        .expect("a working Redis");
    assert!(exists);
    server.kill();
    assert!(publisher.incarnation().await.is_err());
}
