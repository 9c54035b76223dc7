//! Against a real Redis: what matters here is what its script does.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use shortlink_core::testing::{ManualClock, link, moment};

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
        certificates: Certificates::default(),
        sentinel_login: None,
        prefix: KeyPrefix::default(),
        timeout,
        ended_days: EndedDays(7),
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
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        RedisPublisher::new(&options(&self.url(), timeout), 30, clock).expect("a good URL")
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
    // As the tests from outside.
    let program = std::env::var_os("SHORTLINK_REDIS_SERVER");
    Command::new(program.unwrap_or_else(|| "redis-server".into()))
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .args(["--unixsocket", "redis.sock"])
        .current_dir(directory)
        .stdout(Stdio::null())
        .spawn()
        .expect("a server is installed")
}

/// Publishes until it works.
async fn publish(publisher: &RedisPublisher, link: &Link) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = publisher.publish(std::slice::from_ref(link)).await {
        assert!(Instant::now() < deadline, "{error:?}");
        tokio::task::yield_now().await;
    }
}

async fn incarnation(publisher: &RedisPublisher) -> Result<String, PublishError> {
    let (_, seen) = publisher.inspect().await?;
    Ok(seen.incarnation)
}

fn revision(revision: u64) -> Link {
    Link {
        revision,
        ..link("abc")
    }
}

/// The seconds until Redis deletes a link's record; -1 for never.
async fn life(redis: &mut redis::aio::MultiplexedConnection, code: &str) -> i64 {
    let life = redis.ttl(format!("sl:l:{code}")).await;
    life.expect("a working Redis")
}

#[tokio::test]
async fn the_record_of_an_ended_link_expires_unless_the_link_goes_on() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let publisher = server.publisher(Duration::from_secs(5));
    let day = |day: &str| moment(&format!("2026-05-{day}T00:00:00Z"));
    let until = |at: &str| shortlink_core::link::Second::at(day(at));
    let revoked = Link {
        revoked_at: Some(day("31")),
        ..revision(2)
    };
    let expired = Link {
        valid_until: until("01"),
        ..revision(3)
    };
    let paused = Link {
        paused_at: Some(day("01")),
        ..revision(4)
    };
    const DAY: i64 = 86_400;
    for (link, record, lives) in [
        (&revision(1), "1 302 1 0 https://example.com/a", -1..=-1),
        (&revoked, "1 410 2", 6 * DAY - 60..=6 * DAY),
        (&expired, "1 410 3", 240..=300),
        (&paused, "1 410 4", -1..=-1),
    ] {
        // A new key, then one that has a record: another writer's, which may have an expiry.
        for is_new in [true, false] {
            let present = record.replace(|it: char| it.is_ascii_digit(), "0");
            if is_new {
                redis.del::<_, ()>("sl:l:abc").await.expect("a deletion");
            } else {
                let set = redis.set_ex::<_, _, ()>("sl:l:abc", present, 50);
                set.await.expect("a record");
            }
            let links = std::slice::from_ref(link);
            let published = publisher.publish_new(links).await;
            assert_eq!(published.expect("a working Redis").newer, []);
            let stands: String = redis.get("sl:l:abc").await.expect("a record");
            assert_eq!(stands, record, "new: {is_new}");
            let life = life(&mut redis, "abc").await;
            assert!(lives.contains(&life), "{record}: {life} s, new: {is_new}");
        }
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
    // Of which data set it would be is not known yet.
    let code = "early".parse().expect("a code");
    publisher
        .note_unknown(&code)
        .await
        .expect("a working Redis");
    let early: Option<String> = redis.get("sl:l:early").await.expect("a working Redis");
    assert_eq!(early, None);
    let seen = publisher.inspect().await.expect("a working Redis");
    let marked = publisher.mark(&mark(&seen, 7, 0, false)).await;
    assert!(marked.expect("a working Redis"));
    for (code, record, expires) in [
        ("abc", revision(1).record().to_vec(), false),
        ("unknown", b"1 404 7".to_vec(), true),
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

fn mark((session, seen): &(Session, DataSet), generation: u64, watermark: u64, beat: bool) -> Mark {
    Mark {
        session: *session,
        incarnation: seen.incarnation.clone(),
        generation,
        stands: None,
        watermark,
        beat,
    }
}

#[tokio::test]
async fn a_mark_rises_and_is_set_only_over_the_connection_that_was_inspected() {
    let mut server = Server::start();
    let mut redis = server.redis().await;
    let publisher = server.publisher(Duration::from_secs(5));
    let first = publisher.inspect().await.expect("a working Redis");
    assert_eq!((first.1.standing, first.1.is_whole), (None, false));
    const NEXT: u64 = 1 << 20;
    for (generation, watermark, beat, is_set, stands) in [
        (5, 3, false, true, "5 3 0"),
        (5, 2, true, true, "5 3 1"),
        (5, 9, true, true, "5 9 2"),
        // A data set that fell behind.
        (6, 4, false, true, "6 4 2"),
        (5, 9, true, false, "6 4 2"),
        // Another database's generations do not count.
        (NEXT + 1, 0, false, true, "1048577 0 2"),
        (3, 1, true, true, "3 1 3"),
    ] {
        let marked = publisher
            .mark(&mark(&first, generation, watermark, beat))
            .await;
        assert_eq!(marked.expect("a working Redis"), is_set, "{stands}");
        let text: String = redis.get("sl:gen").await.expect("a working Redis");
        assert_eq!(text, stands);
    }
    let (again, seen) = publisher.inspect().await.expect("a working Redis");
    assert_eq!(
        (again, seen.standing, seen.is_whole),
        (first.0, Some((3, 1)), true)
    );
    // It is emptied or goes back after it was inspected, or another process has marked it since.
    for (present, stood, is_set) in [
        (None, (3, 1), false),
        (Some("3 0 9"), (3, 1), false),
        (Some("2 8 9"), (3, 1), false),
        (Some("3 1 9"), (3, 1), true),
        (Some("3 4 9"), (2, 8), true),
    ] {
        let _: () = redis.del("sl:gen").await.expect("a working Redis");
        if let Some(text) = present {
            let _: () = redis.set("sl:gen", text).await.expect("a working Redis");
        }
        let mut mark = mark(&first, 3, 1, true);
        mark.stands = Some(stood);
        let marked = publisher.mark(&mark).await.expect("a working Redis");
        assert_eq!(marked, is_set, "{present:?}");
    }
    // A replica that has taken over since has another name.
    let mut promoted = mark(&first, 3, 2, true);
    promoted.incarnation = "ab12".repeat(10);
    assert!(!publisher.mark(&promoted).await.expect("a working Redis"));
    server.replace();
    drop(server.redis().await);
    let deadline = Instant::now() + Duration::from_secs(10);
    while incarnation(&publisher).await.is_err() {
        assert!(Instant::now() < deadline, "it is not found again");
    }
    assert!(publisher.mark(&mark(&first, 3, 2, true)).await.is_err());
}

#[tokio::test]
async fn a_full_redis_loses_the_record_of_a_link_that_has_changed() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let publisher = server.publisher(Duration::from_secs(5));
    publish(&publisher, &revision(1)).await;
    let set = async |redis: &mut redis::aio::MultiplexedConnection, bytes: &str| {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("maxmemory").arg(bytes);
        command.exec_async(redis).await.expect("a working Redis");
    };
    set(&mut redis, "1").await;
    let published = publisher.publish(&[revision(2)]).await;
    assert!(published.expect("a deletion").is_withdrawn);
    let stands: Option<String> = redis.get("sl:l:abc").await.expect("a working Redis");
    assert_eq!(stands, None);
    // A connection that is new to it marks it, or nothing would be published to it.
    let other = server.publisher(Duration::from_secs(5));
    let seen = other.inspect().await.expect("a working Redis");
    for watermark in [1, 2] {
        let marked = other.mark(&mark(&seen, 7, watermark, true)).await;
        assert!(marked.expect("a mark"));
    }
    set(&mut redis, "0").await;
    publish(&publisher, &revision(2)).await;
}

#[tokio::test]
async fn a_newer_record_is_reported_with_its_revision() {
    let server = Server::start();
    drop(server.redis().await);
    let publisher = server.publisher(Duration::from_secs(5));
    publish(&publisher, &revision(7)).await;
    let published = publisher.publish(&[revision(3), revision(8)]).await;
    assert_eq!(published.expect("a working Redis").newer, [(0, 7)]);
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
    let first = incarnation(&publisher).await.expect("a working Redis");
    assert_eq!(
        incarnation(&publisher).await.expect("a working Redis"),
        first
    );
    server.replace();
    let mut redis = server.redis().await;
    publish(&publisher, &revision(1)).await;
    assert_ne!(
        incarnation(&publisher).await.expect("a working Redis"),
        first
    );
    let exists: bool = redis::cmd("EXISTS")
        .arg("sl:l:abc")
        .query_async(&mut redis)
        .await
        .expect("a working Redis");
    assert!(exists);
    server.kill();
    assert!(incarnation(&publisher).await.is_err());
}
