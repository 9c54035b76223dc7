//! nginx and the sidecar on a Redis that is more than one server.

use serde_json::json;
use shortlink_tests::cluster::{Cluster, MASTER, Sentinels};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{SOON, until};

const TARGET: &str = "https://example.com/target";

/// Everything, with nginx and the sidecar on other servers than the stack's own Redis.
pub(crate) fn stack_on(nginx: String, sidecar: &str) -> Stack {
    let mut stack = Stack::with(&StackOptions {
        nginx: NginxOptions {
            redis: Some(nginx),
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    assert_eq!(stack.sidecar.stop(), Some(0));
    let own = format!("url = \"redis://127.0.0.1:{}/0\"", stack.redis.port);
    stack.sidecar.edit_config(&own, sidecar);
    stack.sidecar.start_again();
    stack.redis.kill();
    stack.wait_until_redis_is_current();
    stack
}

fn make_and_follow(stack: &Stack, count: usize) -> Vec<String> {
    let codes: Vec<String> = (0..count)
        .map(|_| {
            let made = stack.create(&json!({ "longUrl": TARGET }));
            assert_eq!(made["published"], true);
            text(&made, "shortCode")
        })
        .collect();
    for code in &codes {
        let answer = stack.follow(code);
        assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));
        assert_eq!(answer.header("X-Edge"), Some("redirect/redis"));
    }
    codes
}

fn revoke_and_see(stack: &Stack, code: &str) {
    let revoked = stack.api("DELETE", &format!("/v1/links/{code}"), None);
    assert_eq!(revoked.json()["published"], true);
    until("nginx itself answers 410", SOON, || {
        let answer = stack.follow(code);
        let edge = answer.header("X-Edge").unwrap_or_default();
        answer.status == 410 && edge.starts_with("gone/")
    });
}

#[test]
fn links_are_made_in_a_cluster_and_followed_there() {
    let directory = directory();
    let cluster = Cluster::start(directory.path());
    let port = |node: usize| cluster.nodes[node].port;
    let stack = stack_on(
        format!("cluster 127.0.0.1:{};", port(0)),
        &format!(
            "url = \"redis://127.0.0.1:{}\"\ntopology = \"cluster\"\nnodes = [\"127.0.0.1:{}\"]",
            port(1),
            port(2)
        ),
    );
    let codes = make_and_follow(&stack, 40);
    for node in &cluster.nodes {
        assert!(node.calls("set") > 2, "each node has its own links");
    }
    revoke_and_see(&stack, &codes[0]);
    // A node that has forgotten its scripts, and all nodes their data.
    for node in &cluster.nodes {
        node.command(&["SCRIPT", "FLUSH"]);
    }
    revoke_and_see(&stack, &codes[1]);
    for node in &cluster.nodes {
        node.command(&["FLUSHALL"]);
    }
    for code in &codes[2..] {
        assert_eq!(stack.follow(code).location(), Some(TARGET));
        until("it is filled again", SOON, || {
            stack.follow(code).header("X-Edge") != Some("miss/fallback")
        });
    }
}

#[test]
fn links_are_made_on_whichever_server_is_the_master() {
    let directory = directory();
    let path = directory.path();
    let (mut first, second, sentinels) = Sentinels::start_with_servers(path);
    let nodes = sentinels.addresses();
    let stack = stack_on(
        format!("sentinel {MASTER} {};", nodes.join(" ")),
        &format!("url = \"redis://{MASTER}/0\"\ntopology = \"sentinel\"\nnodes = {nodes:?}"),
    );
    let codes = make_and_follow(&stack, 5);
    revoke_and_see(&stack, &codes[0]);
    until("it is copied", SOON, || {
        codes[1..].iter().all(|code| second.record(code).is_some())
    });

    first.kill();
    // Changed while there is no master: the sidecar publishes it when there is one again.
    let revoked = stack.api("DELETE", &format!("/v1/links/{}", codes[1]), None);
    assert_eq!(revoked.json()["published"], false);
    until("another is master", 3 * SOON, || {
        sentinels.master() == second.port
    });
    until("the revocation has reached it", SOON, || {
        second.record(&codes[1]).as_deref() == Some("1 410 2")
    });
    until("and nginx", SOON, || {
        let answer = stack.follow(&codes[1]);
        answer.status == 410
            && answer
                .header("X-Edge")
                .is_some_and(|e| e.starts_with("gone/"))
    });
    until("links are published again", SOON, || {
        stack.create(&json!({ "longUrl": TARGET }))["published"] == true
    });
    make_and_follow(&stack, 5);
    revoke_and_see(&stack, &codes[2]);
}
