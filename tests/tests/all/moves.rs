//! The whole moves from one Redis to others, only by configuration and while it serves, as the runbook
//! says.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use shortlink_tests::cluster::{Cluster, MASTER, Sentinels};
use shortlink_tests::http;
use shortlink_tests::metrics::Page;
use shortlink_tests::stack::{Stack, directory};
use shortlink_tests::wait::{OverAtEnd, SOON, until};

const LINKS: usize = 40;

fn target(number: usize) -> String {
    format!("https://example.com/{number}")
}

/// Returns a metric of the sidecar, if it has it.
fn told(stack: &Stack, name: &str) -> Option<f64> {
    let page = http::get(stack.sidecar.port, "/metrics");
    let page = Page::read(&String::from_utf8(page.body).ok()?);
    page.names().contains(name).then(|| page.sum(name))
}

/// Moves a stack from its own Redis to where these lines of the two configurations say.
fn move_to(nginx: &str, sidecar: &str) {
    let mut stack = Stack::start();
    let codes: Vec<String> = (0..LINKS)
        .map(|number| stack.link(&target(number)))
        .collect();
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let port = stack.nginx.public_port;
    thread::scope(|scope| {
        let _over = OverAtEnd(&is_over);
        for client in 0..2 {
            let (codes, is_over, answered) = (&codes, &is_over, &answered);
            scope.spawn(move || {
                for number in (client..LINKS - 1).cycle() {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let answer = http::get(port, &format!("/{}", codes[number]));
                    assert_eq!(answer.location(), Some(&*target(number)));
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // 1. The new Redis is filled while the old one serves.
        let old = format!("url = \"redis://127.0.0.1:{}/0\"", stack.redis.port);
        let config = stack.directory().join("sidecar/shortlink.toml");
        let text = fs::read_to_string(&config).expect("a configuration");
        let new = stack.directory().join("sidecar/new.toml");
        fs::write(&new, text.replace(&old, sidecar)).expect("a configuration");
        let new = new.display().to_string();
        stack.sidecar.run_ok(&["--config", &new, "rebuild"]);
        // 2. nginx reads from it, and sends visits there.
        let line = format!("server   127.0.0.1:{};", stack.redis.port);
        stack.nginx.edit("shortlink.conf", &line, nginx);
        stack.nginx.reload();
        // Changes now go only to the old one at first.
        let revoked = codes.last().expect("a link");
        let answer = stack.api("DELETE", &format!("/v1/links/{revoked}"), None);
        assert_eq!(answer.status, 200);
        let late = stack.link(&target(LINKS));
        // 3. The old one has no visits left, and the sidecar follows.
        until("the old stream is stored", SOON, || {
            told(&stack, "shortlink_visit_queue_batches") == Some(0.0)
        });
        assert_eq!(stack.sidecar.stop(), Some(0));
        stack.sidecar.edit_config(&old, sidecar);
        stack.sidecar.start_again();
        stack.redis.kill();
        until("what was revoked meanwhile is gone", SOON, || {
            stack.follow(revoked).status == 410
        });
        // 4. An audit repairs the changes that only the old one has.
        let audited = stack.sidecar.run(&["audit", "--repair"]);
        let said = String::from_utf8_lossy(&audited.stdout).into_owned();
        assert!(audited.status.success(), "{said}");
        until("Redis answers for what was made meanwhile", SOON, || {
            let answer = stack.follow(&late);
            assert_eq!(answer.location(), Some(&*target(LINKS)));
            answer
                .header("X-Edge")
                .is_some_and(|edge| edge.starts_with("redirect/"))
        });
        let before = answered.load(Ordering::SeqCst);
        until("links are followed", SOON, || {
            answered.load(Ordering::SeqCst) > before + 100
        });
    });
    let made = stack.link(&target(LINKS + 1));
    assert_eq!(stack.follow(&made).header("X-Edge"), Some("redirect/redis"));
    let answered = answered.load(Ordering::SeqCst);
    until("every visit is stored", SOON, || {
        let stats = stack.api("GET", "/v1/stats", None);
        stats.json()["visits"]["total"].as_u64() >= Some(answered)
    });
}

#[test]
fn from_one_redis_to_sentinels_without_a_failed_redirect_or_a_lost_visit() {
    let directory = directory();
    let (_first, _second, sentinels) = Sentinels::start_with_servers(directory.path());
    let nodes = sentinels.addresses();
    move_to(
        &format!("sentinel {MASTER} {};", nodes.join(" ")),
        &format!("url = \"redis://{MASTER}/0\"\ntopology = \"sentinel\"\nnodes = {nodes:?}"),
    );
}

#[test]
fn from_one_redis_to_a_cluster_without_a_failed_redirect_or_a_lost_visit() {
    let directory = directory();
    let cluster = Cluster::start(directory.path());
    let port = |node: usize| cluster.nodes[node].port;
    move_to(
        &format!("cluster 127.0.0.1:{};", port(0)),
        &format!(
            "url = \"redis://127.0.0.1:{}\"\ntopology = \"cluster\"\nnodes = [\"127.0.0.1:{}\"]",
            port(1),
            port(2)
        ),
    );
}
