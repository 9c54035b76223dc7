//! Against a real Redis.

use super::*;
use crate::tests::{Server, options};

const SECOND: Duration = Duration::from_secs(1);

fn reader(server: &Server, name: &str) -> RedisVisits {
    let options = options(&server.url(), 5 * SECOND);
    RedisVisits::new(&options, 1, name.to_owned()).expect("a good URL")
}

async fn put(server: &Server, count: usize) {
    let mut redis = server.redis().await;
    let mut together = redis::pipe();
    for _ in 0..count {
        let key = KeyPrefix::default().visit_stream_key(0);
        let mut command = redis::cmd("XADD");
        command.arg(key).arg("*").arg(BATCH_FIELD).arg("x");
        together.add_command(command).ignore();
    }
    let done: Result<(), _> = together.query_async(&mut redis).await;
    done.expect("room");
}

async fn names(server: &Server) -> Vec<String> {
    let mut redis = server.redis().await;
    let mut command = redis::cmd("XINFO");
    let key = KeyPrefix::default().visit_stream_key(0);
    command.arg("CONSUMERS").arg(key).arg(GROUP);
    let readers: redis::streams::StreamInfoConsumersReply =
        command.query_async(&mut redis).await.expect("a group");
    readers.consumers.into_iter().map(|it| it.name).collect()
}

/// Makes it look as if a reader had taken batches a minute ago.
async fn age(server: &Server, reader: &str, batches: &[QueuedId]) {
    let mut redis = server.redis().await;
    let mut command = redis::cmd("XCLAIM");
    command.arg(KeyPrefix::default().visit_stream_key(0));
    command.arg(GROUP).arg(reader).arg(0);
    command.arg(batches.iter().map(|id| &*id.entry).collect::<Vec<_>>());
    command.arg("IDLE").arg(60_000).arg("JUSTID");
    let claimed: Vec<String> = command.query_async(&mut redis).await.expect("entries");
    assert_eq!(claimed.len(), batches.len());
}

#[tokio::test]
async fn what_is_abandoned_is_found_behind_all_that_others_work_on() {
    let server = Server::start();
    put(&server, 2000).await;
    let busy = reader(&server, "busy");
    assert_eq!(busy.take(1990).await.expect("Redis").len(), 1990);
    let dead = reader(&server, "dead");
    let left: Vec<QueuedId> = dead
        .take(10)
        .await
        .expect("Redis")
        .into_iter()
        .map(|batch| batch.id)
        .collect();
    assert_eq!(left.len(), 10);
    age(&server, "dead", &left).await;
    let other = reader(&server, "other");
    let taken = |most| other.take_over(30 * SECOND, most);
    let first = taken(6).await.expect("Redis");
    let rest = taken(6).await.expect("Redis");
    assert_eq!((first.len(), rest.len()), (6, 4));
    let ids: Vec<QueuedId> = first.into_iter().chain(rest).map(|it| it.id).collect();
    assert_eq!(ids, left);
}

#[tokio::test]
async fn what_its_reader_renews_is_not_taken_over() {
    let server = Server::start();
    put(&server, 3).await;
    let (slow, other) = (reader(&server, "slow"), reader(&server, "other"));
    let held = slow.take(3).await.expect("Redis");
    let held: Vec<QueuedId> = held.into_iter().map(|it| it.id).collect();
    age(&server, "slow", &held).await;
    slow.settle(&held[..1]).await.expect("Redis");
    // Settled batches stay settled.
    slow.renew(&held[..2]).await.expect("Redis");
    let taken = other.take_over(30 * SECOND, 9).await.expect("Redis");
    let taken: Vec<QueuedId> = taken.into_iter().map(|it| it.id).collect();
    assert_eq!(taken, held[2..]);
    other.settle(&taken).await.expect("Redis");
    let left = other.take_over(Duration::ZERO, 9).await.expect("Redis");
    let left: Vec<QueuedId> = left.into_iter().map(|it| it.id).collect();
    assert_eq!(left, held[1..2]);
}

#[tokio::test]
async fn readers_that_are_gone_are_forgotten_unless_they_hold_something() {
    let server = Server::start();
    let holder = reader(&server, "holder");
    // As on the first day: no stream, and then no group.
    server.redis().await;
    holder.forget_readers(SECOND).await.expect("Redis");
    put(&server, 2).await;
    holder.forget_readers(SECOND).await.expect("Redis");
    assert_eq!(holder.take(1).await.expect("Redis").len(), 1);
    let idle = reader(&server, "idle");
    let taken = idle.take(1).await.expect("Redis").remove(0);
    idle.settle(&[taken.id]).await.expect("Redis");
    assert_eq!(names(&server).await, ["holder", "idle"]);
    idle.forget_readers(60 * SECOND).await.expect("Redis");
    assert_eq!(names(&server).await.len(), 2);
    tokio::time::sleep(Duration::from_millis(5)).await;
    idle.forget_readers(Duration::ZERO).await.expect("Redis");
    assert_eq!(names(&server).await, ["holder"]);
    let batches = holder.depth().await.expect("Redis").batches;
    assert_eq!(batches, 2);
}
