//! Visits find the server that their stream is on, wherever it goes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use shortlink_tests::cluster::{Cluster, MASTER, Sentinels};
use shortlink_tests::http::{self, Connection};
use shortlink_tests::nginx::{Nginx, NginxOptions};
use shortlink_tests::ports;
use shortlink_tests::redis::{Redis, try_command};
use shortlink_tests::stack::directory;
use shortlink_tests::visits::{Account, batches, names};
use shortlink_tests::wait::{OverAtEnd, SOON, until};

const STREAM: &str = "sl:v:{0}";
const RECORD: &str = "1 302 1 0 https://example.com/target";

/// Only nginx, with one worker that caches links for as long as a test takes.
fn nginx(directory: &Path, redis: &str, visits: &str) -> Nginx {
    let options = NginxOptions {
        replace: vec![
            ("worker_processes 2", "worker_processes 1".to_owned()),
            (
                "shortlink_cache 32m stale=60s;",
                "shortlink_cache 1m stale=10m;".to_owned(),
            ),
            (
                "shortlink_visits on batch=100 interval=200ms buffer=8m;",
                format!("shortlink_visits on {visits};"),
            ),
        ],
        redis: Some(redis.to_owned()),
        ..NginxOptions::default()
    };
    let ports = (ports::free(), ports::free());
    Nginx::start(&directory.join("nginx"), ports, 0, ports::free(), &options)
}

fn account(nginx: &Nginx) -> Account {
    let page = http::get(nginx.internal_port, "/edge/metrics");
    Account::of(&String::from_utf8(page.body).expect("text"))
}

/// Follows a code until `done`, whatever the answers.
fn visit(port: u16, done: &AtomicBool, answered: &AtomicU64) {
    let request = http::request("GET", "/one", &[], b"");
    while !done.load(Ordering::Relaxed) {
        let mut connection = Connection::open(port).expect("a connection");
        for _ in 0..900 {
            if done.load(Ordering::Relaxed) {
                return;
            }
            connection.send(&request).expect("sent");
            let answer = connection.receive("GET").expect("an answer").expect("one");
            assert!(matches!(answer.status, 302 | 503), "{answer:?}");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Does something while a visitor repeats requests; `wait` waits for more answers.
fn while_visited(nginx: &Nginx, work: impl FnOnce(&dyn Fn(u64))) {
    let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _over = OverAtEnd(&done);
        scope.spawn(|| visit(nginx.public_port, &done, &answered));
        work(&|more| {
            let enough = answered.load(Ordering::Relaxed) + more;
            until("more are answered", SOON, || {
                answered.load(Ordering::Relaxed) >= enough
            });
        });
    });
}

fn wait_until_all_are_confirmed(nginx: &Nginx) -> usize {
    until("all visits are confirmed", 2 * SOON, || {
        account(nginx).held == 0
    });
    let told = account(nginx);
    assert_eq!((told.stored, told.dropped), (told.total, 0), "{told:?}");
    usize::try_from(told.total).expect("a number")
}

#[test]
fn a_stream_s_slot_moves_through_the_cluster_and_no_visit_is_lost() {
    let directory = directory();
    let cluster = Cluster::start(directory.path());
    cluster.command(&["SET", "sl:l:one", RECORD]);
    // It learns of the move only by its own commands.
    let lines = format!(
        "cluster 127.0.0.1:{};\nheartbeat 60s;",
        cluster.nodes[0].port
    );
    let nginx = nginx(directory.path(), &lines, "batch=20 interval=20ms");
    let slot = cluster.slot(STREAM);
    while_visited(&nginx, |wait| {
        wait(500);
        let (from, to) = cluster.owner_and_other(STREAM);
        let (from_id, to_id) = (Cluster::id(from), Cluster::id(to));
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        wait(300);
        let port = to.port.to_string();
        from.command(&["MIGRATE", "127.0.0.1", &port, STREAM, "0", "5000"]);
        // On its way: the old node says ASK.
        wait(500);
        for node in [to, from] {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        wait(500);
    });
    let total = wait_until_all_are_confirmed(&nginx);
    let (owner, _) = cluster.owner_and_other(STREAM);
    assert_eq!(names(owner.port, STREAM).len(), total);
    // Nothing was lost with a connection, so nothing came twice.
    let all: usize = batches(owner.port, STREAM).iter().map(Vec::len).sum();
    assert_eq!(all, total);
    let metrics = http::get(nginx.internal_port, "/edge/metrics").body;
    let metrics = String::from_utf8(metrics).expect("text");
    for kind in ["moved", "ask"] {
        let none = format!("shortlink_redis_redirections_total{{kind=\"{kind}\"}} 0\n");
        assert!(!metrics.contains(&none), "{metrics}");
    }
    assert_eq!(nginx.complaints(&[]), [""; 0]);
}

#[test]
fn a_node_of_a_cluster_is_away_and_its_visits_wait() {
    let directory = directory();
    let mut cluster = Cluster::start(directory.path());
    cluster.command(&["SET", "sl:l:one", RECORD]);
    let (owner, _) = cluster.owner_and_other(STREAM);
    let (port, seed) = (owner.port, cluster.nodes[0].port);
    let lines = format!("cluster 127.0.0.1:{seed};\nheartbeat 100ms;");
    let nginx = nginx(directory.path(), &lines, "batch=20 interval=20ms");
    while_visited(&nginx, |wait| wait(200));
    wait_until_all_are_confirmed(&nginx);
    let index = cluster.nodes.iter().position(|node| node.port == port);
    let index = index.expect("the owner");
    cluster.nodes[index].kill();
    while_visited(&nginx, |wait| wait(200));
    assert!(account(&nginx).held > 0);
    cluster.nodes[index].start_again();
    let total = wait_until_all_are_confirmed(&nginx);
    assert_eq!(names(port, STREAM).len(), total);
}

#[test]
fn visits_follow_the_master_that_sentinels_name() {
    let directory = directory();
    let path = directory.path();
    let (mut first, second, sentinels) = Sentinels::start_with_servers(path);
    first.set_record("one", RECORD);
    until("it is copied", SOON, || second.record("one").is_some());
    // A replica nearer by is read from, but never written to.
    let lines = format!(
        "sentinel {MASTER} 127.0.0.1:{};\nreplica 127.0.0.1:{};\nheartbeat 100ms;",
        sentinels.ports[0], second.port
    );
    // The buffer holds all that come until another is master, which takes some seconds.
    let nginx = nginx(path, &lines, "batch=20 interval=20ms buffer=256m");
    while_visited(&nginx, |wait| wait(200));
    let before = wait_until_all_are_confirmed(&nginx);
    assert_eq!(names(first.port, STREAM).len(), before);
    until("they are copied", SOON, || {
        names(second.port, STREAM).len() == before
    });

    first.kill();
    while_visited(&nginx, |wait| {
        until("another is master", 3 * SOON, || {
            sentinels.master() == second.port
        });
        wait(200);
    });
    let total = wait_until_all_are_confirmed(&nginx);
    assert_eq!(names(second.port, STREAM).len(), total);
}

#[test]
fn a_server_that_becomes_a_replica_refuses_visits_and_they_wait() {
    let directory = directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    let other = Redis::start(&directory.path().join("other"), ports::free());
    for redis in [&redis, &other] {
        redis.set_record("one", RECORD);
    }
    let lines = format!("server 127.0.0.1:{};", redis.port);
    let nginx = nginx(directory.path(), &lines, "batch=20 interval=20ms");
    while_visited(&nginx, |wait| wait(100));
    wait_until_all_are_confirmed(&nginx);
    let port = other.port.to_string();
    redis.command(&["REPLICAOF", "127.0.0.1", &port]);
    while_visited(&nginx, |wait| wait(200));
    until("it is logged", SOON, || {
        nginx.error_log().contains("takes no visits (READONLY")
    });
    let held = account(&nginx).held;
    assert!(held >= 200, "{held}");
    until("it is a master again", SOON, || {
        try_command(redis.port, &["REPLICAOF", "NO", "ONE"]).is_ok()
    });
    wait_until_all_are_confirmed(&nginx);
    assert!(names(redis.port, STREAM).len() as u64 >= held);
}
