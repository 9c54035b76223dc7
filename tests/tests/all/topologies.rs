//! Redis as it is run: with users, TLS, replicas, sentinels, and as a cluster.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shortlink_tests::cluster::{Cluster, MASTER, Sentinels};
use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::nginx::{Nginx, NginxOptions, REAL_BUDGET};
use shortlink_tests::ports;
use shortlink_tests::redis::{Redis, make_certificates, secured};
use shortlink_tests::stack::directory;
use shortlink_tests::wait::{SOON, pass, until};

const TARGET: &str = "https://example.com/target";

fn record(version: u32) -> String {
    format!("1 302 {version} 0 {TARGET}")
}

/// Only nginx: a request that Redis can't answer gets 503, as there is no sidecar.
fn nginx(directory: &Path, redis: &str, cache: &str, budget: &'static str) -> Nginx {
    let options = NginxOptions {
        replace: vec![
            (
                "shortlink_check luhn body=7 alphabet=base62;",
                "shortlink_check none;".to_owned(),
            ),
            (
                "shortlink_cache 32m stale=60s;",
                format!("shortlink_cache {cache};"),
            ),
        ],
        redis: Some(redis.to_owned()),
        budget,
    };
    let ports = (ports::free(), ports::free());
    Nginx::start(&directory.join("nginx"), ports, 0, ports::free(), &options)
}

fn follow(nginx: &Nginx, code: &str) -> Response {
    http::get(nginx.public_port, &format!("/{code}"))
}

fn assert_follows(nginx: &Nginx, code: &str) {
    let answer = follow(nginx, code);
    assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));
}

/// Follows codes again and again until `done`; counts the answers that are not redirects.
struct Load {
    done: AtomicBool,
    answers: AtomicU64,
    failures: AtomicU64,
}

impl Load {
    fn new() -> Self {
        Self {
            done: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    fn run(&self, nginx: &Nginx, codes: &[String]) {
        let open = || Connection::open(nginx.public_port).expect("a connection");
        let mut connection = open();
        for (count, code) in codes.iter().cycle().enumerate() {
            if self.done.load(Ordering::Relaxed) {
                return;
            }
            if count % 900 == 899 {
                connection = open();
            }
            let request = http::request("GET", &format!("/{code}"), &[], b"");
            connection.send(&request).expect("sent");
            let answer = connection.receive("GET").expect("an answer").expect("one");
            self.answers.fetch_add(1, Ordering::Relaxed);
            if answer.status != 302 {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Waits until so many more were answered.
    fn wait_for(&self, more: u64) {
        let enough = self.answers() + more;
        until("more are answered", SOON, || self.answers() >= enough);
    }
}

#[test]
fn a_user_with_a_password_and_only_the_rights_that_are_documented() {
    let directory = directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    let rights = "on >secret ~sl:* resetchannels +get +hello +client|setname +client|tracking \
                  +client|caching +ping +select +role +xadd";
    let mut command = vec!["ACL", "SETUSER", "edge"];
    command.extend(rights.split_whitespace());
    redis.command(&command);
    redis.set_record("one", &record(1));
    redis.command(&["ACL", "SETUSER", "default", "off"]);
    let file = directory.path().join("password");
    std::fs::write(&file, "secret\n").expect("a file");
    let lines = format!(
        "server 127.0.0.1:{};\nuser edge;\npassword_file {};\nheartbeat 50ms;",
        redis.port,
        file.display()
    );
    let nginx = nginx(directory.path(), &lines, "1m", "2s");
    assert_follows(&nginx, "one");
    until("it is cached", SOON, || {
        follow(&nginx, "one").header("X-Edge") == Some("redirect/cache")
    });
    // Heartbeats are allowed too.
    pass(Duration::from_millis(300));
    assert_eq!(nginx.error_log().matches("lost Redis").count(), 0);
}

#[test]
fn a_wrong_password_is_said_once_and_not_tried_in_a_loop() {
    let directory = directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    redis.command(&[
        "ACL", "SETUSER", "edge", "on", ">secret", "allkeys", "+@all",
    ]);
    let lines = format!(
        "server 127.0.0.1:{};\nuser edge;\npassword wrong;",
        redis.port
    );
    let nginx = nginx(directory.path(), &lines, "1m", "2s");
    until("it is logged", SOON, || {
        nginx.error_log().contains("WRONGPASS")
    });
    let tries = redis.calls("hello");
    pass(Duration::from_secs(2));
    let more = redis.calls("hello") - tries;
    assert!(more <= 8, "{more} tries of two workers in two seconds");
    assert_eq!(nginx.error_log().matches("lost Redis").count(), 2);
    assert_eq!(follow(&nginx, "one").status, 503);
}

#[test]
fn connections_are_secured() {
    let directory = directory();
    let path = directory.path();
    make_certificates(path);
    let file = |name: &str| path.join(name).display().to_string();
    let tls_port = ports::free();
    let arguments = secured(path, tls_port);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let redis = Redis::start_with(&path.join("redis"), ports::free(), &arguments);
    redis.set_record("one", &record(1));
    let _beats = redis.beats();
    let lines = |name: &str, more: &str| {
        format!(
            "server 127.0.0.1:{tls_port};\ntls on;\ntls_name {name};\n\
             tls_trusted_certificate {};\n{more}",
            file("ca.crt")
        )
    };
    // Redis asks for a certificate of the client's too.
    let own = format!(
        "tls_certificate {};\ntls_certificate_key {};",
        file("redis.crt"),
        file("redis.key")
    );
    {
        let nginx = nginx(path, &lines("redis.test", &own), "1m", "2s");
        for _ in 0..5 {
            assert_follows(&nginx, "one");
        }
        until("it is cached", SOON, || {
            follow(&nginx, "one").header("X-Edge") == Some("redirect/cache")
        });
        redis.set_record("one", "1 410 2");
        until("the revocation is notified", SOON, || {
            follow(&nginx, "one").status == 410
        });
        nginx.reload();
        // Until Redis is proved current, nginx asks the sidecar about a revoked link; it is not there.
        assert_eq!(nginx.complaints(&["connect()"]), [""; 0]);
    }
    for (lines, said) in [
        (lines("other.test", &own), "not for other.test"),
        (lines("redis.test", ""), "lost Redis"),
    ] {
        let nginx = nginx(path, &lines, "1m", "2s");
        until(said, SOON, || nginx.error_log().contains(said));
        assert_eq!(follow(&nginx, "one").status, 503);
    }
}

#[test]
fn a_replica_is_read_first_while_it_is_up_to_date() {
    let directory = directory();
    let mut master = Redis::start(&directory.path().join("master"), ports::free());
    let master_port = master.port.to_string();
    let mut replica = Redis::start_with(
        &directory.path().join("replica"),
        ports::free(),
        &["--replicaof", "127.0.0.1", &master_port],
    );
    master.set_record("one", &record(1));
    let _beats = master.beats();
    until("it is copied", SOON, || replica.record("one").is_some());
    let lines = format!(
        "server 127.0.0.1:{};\nreplica 127.0.0.1:{};\nheartbeat 50ms;",
        master.port, replica.port
    );
    let nginx = nginx(directory.path(), &lines, "off", "2s");
    let asked = |redis: &Redis| redis.reads();
    until("the replica is asked", SOON, || {
        let before = asked(&replica);
        assert_follows(&nginx, "one");
        asked(&replica) > before
    });
    replica.kill();
    until("the master is asked", SOON, || {
        let before = asked(&master);
        let answer = follow(&nginx, "one");
        asked(&master) > before && answer.status == 302
    });
    replica.start_again();
    until("the replica is used again", SOON, || {
        let before = asked(&replica);
        assert_follows(&nginx, "one");
        asked(&replica) > before
    });
    // A replica that has lost its master does not know what changes.
    master.kill();
    until("it is noticed", SOON, || {
        nginx
            .error_log()
            .contains("a replica that has lost its master")
    });
    master.start_again();
    until("all is well again", SOON, || {
        let before = asked(&replica);
        let answer = follow(&nginx, "one");
        asked(&replica) > before && answer.status == 302
    });
}

#[test]
fn sentinels_move_the_master() {
    let directory = directory();
    let path = directory.path();
    let (mut first, second, mut sentinels) = Sentinels::start_with_servers(path);
    first.set_record("one", &record(1));
    until("it is copied", SOON, || second.record("one").is_some());
    // One of the sentinels, from which the others are learnt.
    let lines = format!(
        "sentinel {MASTER} 127.0.0.1:{};\nheartbeat 100ms;",
        sentinels.ports[0]
    );
    let nginx = nginx(path, &lines, "1m stale=0", REAL_BUDGET);
    until("the master is asked", SOON, || {
        follow(&nginx, "one").status == 302
    });
    until("its link is cached", SOON, || {
        follow(&nginx, "one").header("X-Edge") == Some("redirect/cache")
    });

    // A sentinel less: another is asked.
    pass(Duration::from_millis(300));
    sentinels.kill_first();
    first.kill();
    // Sentinels that were kept from running wait for half a minute before they do anything.
    until("another is master", 3 * SOON, || {
        sentinels.master() == second.port
    });
    until("the new master is asked", SOON, || {
        follow(&nginx, "one").status == 302
    });
    until("its record is cached", SOON, || {
        follow(&nginx, "one").header("X-Edge") == Some("redirect/cache")
    });
    // The new master notifies of changes.
    second.set_record("one", "1 410 2");
    until("the revocation is seen", SOON, || {
        follow(&nginx, "one").status == 410
    });

    // The old master comes back as a replica, as sentinels make it one in their own time; nginx
    // does not read from it.
    first.start_again();
    let port = second.port.to_string();
    first.command(&["REPLICAOF", "127.0.0.1", &port]);
    second.set_record("one", &record(3));
    until("the change is seen", SOON, || {
        follow(&nginx, "one").status == 302
    });

    // Moved back on purpose: the servers stay up, and only the sentinels report it.
    let mut ask_at = Instant::now();
    until("the first is master again", 5 * SOON, || {
        if sentinels.master() == first.port {
            return true;
        }
        // Sentinels give up a failover that takes too long, on a slow machine.
        if Instant::now() >= ask_at {
            ask_at = Instant::now() + SOON;
            let command = ["SENTINEL", "FAILOVER", MASTER];
            let _refused = shortlink_tests::redis::try_command(sentinels.ports[0], &command);
        }
        false
    });
    until("and takes writes", SOON, || {
        shortlink_tests::redis::try_command(first.port, &["SET", "sl:l:one", "1 410 4"]).is_ok()
    });
    until("what it says is seen", SOON, || {
        follow(&nginx, "one").status == 410
    });
    let expected = [
        "lost Redis",
        "connect() failed",
        "no live upstreams",
        "upstream",
        "the fallback failed",
    ];
    assert_eq!(nginx.complaints(&expected), [""; 0]);
}

#[test]
fn a_cluster_is_read_and_a_slot_moves_under_load() {
    let directory = directory();
    let path = directory.path();
    let cluster = Cluster::start(path);
    let codes: Vec<String> = (0..200).map(|number| format!("code{number}")).collect();
    for code in &codes {
        cluster.command(&["SET", &format!("sl:l:{code}"), &record(1)]);
    }
    // One of the nodes, from which the others are learnt.
    let lines = format!(
        "cluster 127.0.0.1:{};\nheartbeat 100ms;",
        cluster.nodes[0].port
    );
    let nginx = nginx(path, &lines, "1m", "5s");
    let _beats = cluster.beats();
    for code in &codes {
        assert_follows(&nginx, code);
    }
    for node in &cluster.nodes {
        assert!(node.calls("get") > 20, "each node is asked for its own");
    }

    let moving = "sl:l:code7";
    let slot = cluster.slot(moving);
    let load = Load::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| load.run(&nginx, &codes));
        }
        load.wait_for(500);
        let (from, to) = cluster.owner_and_other(moving);
        let (from_id, to_id) = (Cluster::id(from), Cluster::id(to));
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        load.wait_for(500);
        let port = to.port.to_string();
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        for key in keys.lines() {
            from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        // On its way: the old node says ASK.
        load.wait_for(500);
        for node in [to, from] {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        load.wait_for(1000);
        load.done.store(true, Ordering::Relaxed);
    });
    assert_eq!(load.failures(), 0, "of {}", load.answers());
    // It has moved, and its new node notifies of changes.
    until("it is cached", SOON, || {
        follow(&nginx, "code7").header("X-Edge") == Some("redirect/cache")
    });
    cluster.command(&["SET", moving, "1 410 2"]);
    until("the revocation is seen", SOON, || {
        follow(&nginx, "code7").status == 410
    });
    // Until the new node is proved current, nginx asks the sidecar about the revocation; there is none.
    let asked = "while connecting to upstream";
    assert_eq!(nginx.complaints(&[asked]), [""; 0]);
}

#[test]
fn a_code_unknown_to_one_node_is_found_where_its_slot_went() {
    let directory = directory();
    let cluster = Cluster::start(directory.path());
    let lines = format!(
        "cluster 127.0.0.1:{};\nheartbeat 100ms;",
        cluster.nodes[1].port
    );
    let nginx = nginx(directory.path(), &lines, "1m", "5s");
    let _beats = cluster.beats();
    let key = "sl:l:later";
    cluster.command(&["SET", key, "1 404 1"]);
    until("404 is cached", SOON, || {
        follow(&nginx, "later").header("X-Edge") == Some("unknown/cache")
    });
    // Nothing is read of the slot while it moves, so that only the map shows it.
    let slot = cluster.slot(key);
    let (from, to) = cluster.owner_and_other(key);
    let (from_id, to_id) = (Cluster::id(from), Cluster::id(to));
    to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    let port = to.port.to_string();
    from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    for node in [to, from] {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
    cluster.command(&["SET", key, &record(1)]);
    until("the link is found", SOON, || {
        follow(&nginx, "later").status == 302
    });
}
