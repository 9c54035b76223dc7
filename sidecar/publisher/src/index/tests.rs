//! Against a real Redis.

use std::collections::BTreeSet;

use shortlink_core::link::Link;
use shortlink_core::testing::{link, moment};

use super::super::tests::{Server, options};
use super::*;

fn index(url: &str, prefix: &[u8]) -> RedisIndex {
    let options = RedisOptions {
        prefix: KeyPrefix::new(prefix).expect("a good prefix"),
        ..options(url, Duration::from_secs(5))
    };
    RedisIndex::new(&options).expect("a good URL")
}

/// Records of revision 3.
fn records(codes: &[&str]) -> Records {
    let mut records = Records::at(moment("2026-06-01T00:00:00Z"));
    for code in codes {
        let link = Link {
            revision: 3,
            ..link(code)
        };
        records.push(&link);
    }
    records
}

async fn ask<T: redis::FromRedisValue>(
    redis: &mut redis::aio::MultiplexedConnection,
    words: &[&str],
) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(redis).await.expect("a working Redis")
}

const RECORD: &str = "1 302 3 0 https://example.com/a";

#[tokio::test]
async fn records_are_filled_in_unless_newer_ones_stand_there() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let index = index(&server.url(), b"sl:");
    let all = records(&["a1", "a2", "a3", "a4", "a5", "a6", "a7"]);
    for (code, text) in [
        ("a1", "1 404 0"),
        ("a2", "1 302 2 0 https://example.com/b"),
        ("a3", "1 302 4 0 https://example.com/b"),
        ("a4", RECORD),
        ("a5", "1 302 3 0 https://example.com/b"),
    ] {
        ask::<()>(&mut redis, &["SET", &format!("sl:l:{code}"), text]).await;
    }
    ask::<()>(&mut redis, &["RPUSH", "sl:l:a6", "x"]).await;
    let drifts = [
        (0, Drift::Negative),
        (1, Drift::Older),
        (2, Drift::Newer(4)),
        (4, Drift::Different),
        (5, Drift::OtherType),
        (6, Drift::Missing),
    ];
    assert_eq!(index.compare(&all).await.expect("a working Redis"), drifts);
    let filled = Filled {
        added: 1,
        replaced: 4,
        same: 1,
        newer: 1,
    };
    assert_eq!(index.fill(&all).await.expect("a working Redis"), filled);
    // Now that most stands there it is read first.
    let filled = Filled {
        added: 0,
        replaced: 0,
        same: 6,
        newer: 1,
    };
    assert_eq!(index.fill(&all).await.expect("a working Redis"), filled);
    assert!(index.is_full.load(Ordering::Relaxed));
    ask::<()>(&mut redis, &["FLUSHALL"]).await;
    ask::<()>(&mut redis, &["SCRIPT", "FLUSH"]).await;
    ask::<()>(
        &mut redis,
        &["SET", "sl:l:a1", "1 302 2 0 https://example.com/b"],
    )
    .await;
    let filled = Filled {
        added: 6,
        replaced: 1,
        same: 0,
        newer: 0,
    };
    assert_eq!(index.fill(&all).await.expect("a working Redis"), filled);
    for wanted in all.iter() {
        let key = format!("sl:l:{}", wanted.code);
        assert_eq!(ask::<String>(&mut redis, &["GET", &key]).await, RECORD);
    }
    assert_eq!(index.count().await.expect("a working Redis"), 7);
}

#[tokio::test]
async fn records_of_ended_links_are_filled_in_for_their_time() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let index = index(&server.url(), b"sl:");
    let mut all = records(&["a1"]);
    let codes = ["a2", "a3", "a4", "a5", "a6"];
    for (code, day) in codes.iter().zip(["31", "01", "01", "01", "01"]) {
        let revoked_at = Some(moment(&format!("2026-05-{day}T00:00:00Z")));
        all.push(&Link {
            revision: 3,
            revoked_at,
            ..link(code)
        });
    }
    assert_eq!(all.count_over(index.ended_days()), 4);
    // Of those that need none, one has nothing, one its own record, one an earlier and one a later one.
    for (code, text) in [("a4", "1 410 3"), ("a5", RECORD), ("a6", "1 410 4")] {
        let text = text.replace("302 3", "302 2");
        ask::<()>(&mut redis, &["SET", &format!("sl:l:{code}"), &text]).await;
    }
    let drifts = [
        (0, Drift::Missing),
        (1, Drift::Missing),
        (3, Drift::Needless),
        (4, Drift::Older),
        (5, Drift::Newer(4)),
    ];
    assert_eq!(index.compare(&all).await.expect("a working Redis"), drifts);
    let filled = Filled {
        added: 2,
        replaced: 2,
        same: 1,
        newer: 1,
    };
    assert_eq!(index.fill(&all).await.expect("a working Redis"), filled);
    const DAY: i64 = 86_400;
    for (code, lives) in [
        ("a1", -1..=-1),
        ("a2", 6 * DAY - 60..=6 * DAY),
        ("a3", -2..=-2),
        ("a4", 240..=300),
        ("a5", 240..=300),
        ("a6", -1..=-1),
    ] {
        let life: i64 = ask(&mut redis, &["TTL", &format!("sl:l:{code}")]).await;
        assert!(lives.contains(&life), "{code}: {life} s");
    }
}

#[tokio::test]
async fn all_keys_are_listed_and_those_removed_that_are_as_they_were() {
    let server = Server::start();
    let mut redis = server.redis().await;
    // Nothing of a prefix is a pattern.
    let index = index(&server.url(), b"s[l]*:");
    let codes: Vec<String> = (0..5000).map(|place| format!("a{place}")).collect();
    let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
    index.fill(&records(&codes)).await.expect("a working Redis");
    ask::<()>(&mut redis, &["SET", "sl:l:other", "x"]).await;
    ask::<()>(&mut redis, &["SET", "s[l]*:n:counter", "1"]).await;
    ask::<()>(&mut redis, &["SET", "s[l]*:l:no code", "x"]).await;
    let (sender, mut pages) = mpsc::channel(1);
    let collect = async {
        let mut names = BTreeSet::new();
        while let Some(page) = pages.recv().await {
            names.extend(page);
        }
        names
    };
    let (scanned, names) = tokio::join!(index.scan(sender), collect);
    scanned.expect("a working Redis");
    assert_eq!(names.len(), 5001);
    assert!(names.contains(b"no code".as_slice()) && names.contains(b"a4999".as_slice()));

    ask::<()>(&mut redis, &["RPUSH", "s[l]*:l:list", "x"]).await;
    let names = ["a1", "a2", "list", "none"].map(|name| name.as_bytes().to_vec());
    let stood = index.read(&names).await.expect("a working Redis");
    let text = Stood::Text(RECORD.into());
    assert_eq!(
        stood,
        [text.clone(), text, Stood::OtherType, Stood::Nothing]
    );
    ask::<()>(&mut redis, &["SET", "s[l]*:l:a2", "changed"]).await;
    let read: Vec<_> = names.into_iter().zip(stood).collect();
    assert_eq!(index.remove(&read).await.expect("a working Redis"), 2);
    for (key, exists) in [("a1", false), ("a2", true), ("list", false)] {
        let key = format!("s[l]*:l:{key}");
        assert_eq!(
            ask::<bool>(&mut redis, &["EXISTS", &key]).await,
            exists,
            "{key}"
        );
    }
}

#[tokio::test]
async fn the_password_and_the_database_are_those_of_the_url() {
    let server = Server::start();
    let mut redis = server.redis().await;
    ask::<()>(&mut redis, &["CONFIG", "SET", "requirepass", "secret"]).await;
    let one = records(&["abc"]);
    let url = format!("{}?db=3&pass=secret", server.url());
    index(&url, b"sl:")
        .fill(&one)
        .await
        .expect("a working Redis");
    ask::<()>(&mut redis, &["SELECT", "3"]).await;
    assert_eq!(
        ask::<String>(&mut redis, &["GET", "sl:l:abc"]).await,
        RECORD
    );
    let url = format!("{}?db=3&pass=wrong", server.url());
    index(&url, b"sl:")
        .fill(&one)
        .await
        .expect_err("a wrong password");
}

#[tokio::test]
async fn a_redis_that_refuses_to_write_is_an_error_and_no_success() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let index = index(&server.url(), b"sl:");
    ask::<()>(&mut redis, &["CONFIG", "SET", "maxmemory", "1"]).await;
    index
        .fill(&records(&["abc"]))
        .await
        .expect_err("out of memory");
    ask::<()>(&mut redis, &["CONFIG", "SET", "maxmemory", "0"]).await;
    let filled = index.fill(&records(&["abc"])).await.expect("memory");
    assert_eq!(filled.added, 1);
}
