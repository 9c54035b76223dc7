//! A sidecar that writes to a cluster: every master gets its links in pipelines, and no fault of one loses any.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use shortlink_tests::cluster::Cluster;
use shortlink_tests::made::{Made, Results, make_batch};
use shortlink_tests::ports;
use shortlink_tests::sidecar::{Sidecar, api};
use shortlink_tests::stack::directory;
use shortlink_tests::wait::{OverAtEnd, SOON, until};

/// The links of a batch.
const LINKS: usize = 6_000;

fn start(directory: &Path, cluster: &Cluster) -> Sidecar {
    let seed = cluster.nodes[0].port;
    let extra = "topology = \"cluster\"\nnodes = []";
    Sidecar::start(&directory.join("sidecar"), ports::free(), seed, extra)
}

fn batch(sidecar: &Sidecar, name: &str) -> Results {
    let headers = [("X-Api-Key", &*sidecar.key)];
    let targets = (0..LINKS).map(|number| format!("https://example.com/{name}/{number}"));
    make_batch(sidecar.port, &headers, &targets.collect::<Vec<_>>())
}

/// The number of keys of links on each master.
fn shares(cluster: &Cluster) -> Vec<usize> {
    let keys = cluster.nodes.iter().map(|node| {
        let keys = node.command(&["KEYS", "sl:l:*"]);
        keys.lines().filter(|line| !line.is_empty()).count()
    });
    keys.collect()
}

fn assert_all_stand(cluster: &Cluster, made: &[Made]) {
    until("every link stands in the cluster", SOON, || {
        shares(cluster).iter().sum::<usize>() == made.len()
    });
}

#[test]
fn a_batch_is_published_by_all_masters_and_a_cluster_that_was_emptied_is_filled_again() {
    let directory = directory();
    let cluster = Cluster::start(directory.path());
    let sidecar = start(directory.path(), &cluster);
    let results = batch(&sidecar, "a");
    assert_eq!((results.made.len(), results.late), (LINKS, 0));
    let shares = shares(&cluster);
    assert_eq!(shares.iter().sum::<usize>(), LINKS);
    assert!(shares.iter().all(|share| *share > LINKS / 4), "{shares:?}");
    for node in &cluster.nodes {
        node.command(&["FLUSHALL"]);
    }
    sidecar.run_ok(&["rebuild"]);
    let made: Vec<Made> = results.made.into_iter().map(|(_, made)| made).collect();
    assert_all_stand(&cluster, &made);
    sidecar.run_ok(&["audit"]);
}

#[test]
fn records_of_ended_links_expire_on_every_master() {
    let directory = directory();
    let cluster = Cluster::start(directory.path());
    let sidecar = start(directory.path(), &cluster);
    let made = batch(&sidecar, "a").made;
    let codes: Vec<String> = made.into_iter().map(|(_, made)| made.code).collect();
    let ended = &codes[..30];
    for code in ended {
        let path = format!("/v1/links/{code}");
        let answer = api(sidecar.port, &sidecar.key, "DELETE", &path, None);
        assert_eq!(answer.json()["published"], true, "{code}");
    }
    let week = 7 * 86_400;
    let all_expire = || {
        for (place, code) in codes.iter().enumerate().take(60) {
            let key = format!("sl:l:{code}");
            let life = cluster.command(&["TTL", &key]);
            let life: i64 = life.parse().expect("seconds");
            match place < ended.len() {
                true => assert!((week - 120..=week).contains(&life), "{code}: {life} s"),
                false => assert_eq!(life, -1, "{code}"),
            }
        }
    };
    all_expire();
    for node in &cluster.nodes {
        node.command(&["FLUSHALL"]);
    }
    sidecar.run_ok(&["rebuild"]);
    all_expire();
    sidecar.run_ok(&["audit"]);
}

#[test]
fn slots_move_while_links_are_written_and_none_is_lost() {
    let directory = directory();
    let cluster = Cluster::start(directory.path());
    let sidecar = start(directory.path(), &cluster);
    let mut made = Vec::new();
    let has_moved = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = OverAtEnd(&has_moved);
        scope.spawn(|| {
            for slot in 0..600 {
                cluster.move_slot(slot, 0, 1);
            }
            has_moved.store(true, Ordering::SeqCst);
        });
        while !has_moved.load(Ordering::SeqCst) {
            let results = batch(&sidecar, &made.len().to_string());
            assert_eq!(results.refused, [""; 0]);
            made.extend(results.made.into_iter().map(|(_, made)| made));
        }
    });
    let results = batch(&sidecar, "then");
    assert_eq!((results.made.len(), results.late), (LINKS, 0));
    made.extend(results.made.into_iter().map(|(_, made)| made));
    assert_all_stand(&cluster, &made);
}

#[test]
fn a_master_dies_while_links_are_written_and_gets_its_links_when_it_is_back() {
    let directory = directory();
    let mut cluster = Cluster::start(directory.path());
    let sidecar = start(directory.path(), &cluster);
    let mut made: Vec<Made> = Vec::new();
    let before = batch(&sidecar, "before");
    cluster.nodes[2].kill();
    let without = batch(&sidecar, "without");
    assert!(without.late > 0, "none was of the master that is away");
    cluster.nodes[2].start_again();
    for results in [before, without] {
        assert_eq!(results.made.len(), LINKS, "{:?}", results.refused.first());
        made.extend(results.made.into_iter().map(|(_, made)| made));
    }
    assert_all_stand(&cluster, &made);
    until("new links are published at once", SOON, || {
        let results = batch(&sidecar, "after");
        made.extend(results.made.into_iter().map(|(_, made)| made));
        results.late == 0
    });
    assert_all_stand(&cluster, &made);
}

#[test]
fn a_replica_takes_the_place_of_a_silent_master_and_is_written_to() {
    let directory = directory();
    let mut cluster = Cluster::start(directory.path());
    let replica = cluster.add_replica(directory.path(), 2);
    let sidecar = start(directory.path(), &cluster);
    let mut made: Vec<Made> = Vec::new();
    let results = batch(&sidecar, "before");
    assert_eq!(results.late, 0);
    made.extend(results.made.into_iter().map(|(_, made)| made));
    cluster.nodes[2].hang();
    cluster.nodes[replica].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    until("new links are published at once", SOON, || {
        let results = batch(&sidecar, "after");
        made.extend(results.made.into_iter().map(|(_, made)| made));
        results.late == 0
    });
    // The new master is marked, so that nginx passes on what it says.
    let node = &cluster.nodes[replica];
    let mark = || {
        let keys = node.command(&["KEYS", "sl:gen*"]);
        let mark = |key: &str| node.command(&["GET", key]);
        keys.lines().next().map(mark)
    };
    let before = mark();
    until("its beats go on", SOON, || mark() > before);
    let old = cluster.nodes.remove(2);
    old.go_on();
    drop(old);
    assert_all_stand(&cluster, &made);
}
