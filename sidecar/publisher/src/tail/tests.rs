//! Against a real Redis.

use std::time::Duration;

use super::*;
use crate::tests::{Server, options};

const FIRST: &str = "sl:v:{0}";

fn tail(url: &str) -> RedisTail {
    RedisTail::new(&options(url, Duration::from_secs(5)), 2).expect("a good URL")
}

fn entry(text: &str) -> EntryId {
    EntryId::parse(text).expect("an entry")
}

/// Sends a command in words.
async fn send(redis: &mut redis::aio::MultiplexedConnection, words: &str) {
    let mut command = redis::Cmd::new();
    for word in words.split_whitespace() {
        command.arg(word);
    }
    let done: Result<Value, RedisError> = command.query_async(redis).await;
    done.expect("a working Redis");
}

#[tokio::test]
async fn streams_are_looked_at_and_nothing_is_changed() {
    let server = Server::start();
    let mut redis = server.redis().await;
    // The rights that the sidecar's user needs for this, besides those for publishing.
    let rights =
        "ACL SETUSER default resetkeys ~sl:* -@all +xread +xrange +xinfo +script +client +hello";
    let tail = tail(&server.url());
    assert_eq!(tail.streams(), 2);
    let nothing = [StreamBounds::default(); 2];
    assert_eq!(tail.bounds().await.expect("a working Redis"), nothing);
    let none = tail.read(0, EntryId::default(), 10).await;
    assert_eq!(none.expect("a working Redis"), []);
    for command in ["1-1 b one", "1-2 other field", "2-0 b two"] {
        send(&mut redis, &format!("XADD {FIRST} {command}")).await;
    }
    send(&mut redis, "XADD sl:v:{1} 7-0 b three").await;
    tail.close();
    let read = tail.read(0, EntryId::default(), 2).await;
    let read = read.expect("a working Redis");
    let batch = |stream, id: &str, frames: &str| TailBatch {
        stream,
        entry: entry(id),
        frames: frames.into(),
    };
    assert_eq!(read, [batch(0, "1-1", "one"), batch(0, "1-2", "")]);
    let rest = tail.read(0, entry("1-2"), 10).await;
    assert_eq!(rest.expect("a working Redis"), [batch(0, "2-0", "two")]);
    let other = tail.read(1, entry("6-9"), 10).await;
    assert_eq!(other.expect("a working Redis"), [batch(1, "7-0", "three")]);
    send(&mut redis, &format!("XTRIM {FIRST} MINID 2-0")).await;
    send(&mut redis, "XTRIM sl:v:{1} MAXLEN 0").await;
    send(&mut redis, rights).await;
    let bounds = |first: Option<&str>, last: &str| StreamBounds {
        first: first.map(entry),
        last: entry(last),
    };
    let ends = tail.bounds().await.expect("enough rights");
    assert_eq!(ends, [bounds(Some("2-0"), "2-0"), bounds(None, "7-0")]);
    tail.close();
    let rest = tail.read(0, entry("1-2"), 10).await;
    assert_eq!(rest.expect("enough rights").len(), 1);
}

#[tokio::test]
async fn what_is_no_stream_is_told() {
    let server = Server::start();
    let mut redis = server.redis().await;
    let tail = tail(&server.url());
    send(&mut redis, &format!("SET {FIRST} text")).await;
    assert!(tail.bounds().await.is_err());
    assert!(tail.read(0, EntryId::default(), 10).await.is_err());
    send(&mut redis, &format!("DEL {FIRST}")).await;
    assert!(tail.bounds().await.is_ok());
}
