//! The live feed of visits finds the streams wherever they are.

use shortlink_tests::cluster::{Cluster, MASTER, Sentinels};
use shortlink_tests::feed::Feed;
use shortlink_tests::http;
use shortlink_tests::stack::{Stack, directory};
use shortlink_tests::visits::put;
use shortlink_tests::wait::{SOON, until};
use vocabulary::visit::VisitId;

use crate::whole::stack_on;

const TARGET: &str = "https://example.com/target";

fn tap(stack: &Stack, code: &str, user_agent: &str) {
    let headers = [("User-Agent", user_agent)];
    let path = format!("/{code}");
    let answer = http::send(stack.nginx.public_port, "GET", &path, &headers);
    assert_eq!(answer.status, 302);
}

fn feed(stack: &Stack) -> Feed {
    let (port, key) = (stack.nginx.internal_port, &stack.sidecar.key);
    Feed::open(port, key, "", None)
}

/// Waits for the visit with a user agent.
fn wait_for(feed: &mut Feed, user_agent: &str) {
    while feed.named("visit").data["userAgent"] != user_agent {}
}

#[test]
fn streams_on_several_nodes_of_a_cluster_are_all_told_of() {
    let directory = directory();
    let mut cluster = Cluster::start(directory.path());
    let port = |cluster: &Cluster, node: usize| cluster.nodes[node].port;
    let stack = stack_on(
        format!("cluster 127.0.0.1:{};", port(&cluster, 0)),
        &format!(
            "url = \"redis://127.0.0.1:{}\"\ntopology = \"cluster\"\nnodes = [\"127.0.0.1:{}\"]\n\
             [visits]\nstreams = 8",
            port(&cluster, 1),
            port(&cluster, 2)
        ),
    );
    let code = stack.link(TARGET);
    let mut feed = feed(&stack);
    tap(&stack, &code, "one/1");
    wait_for(&mut feed, "one/1");
    // Streams that the edge does not use now, wherever they are.
    for stream in 0..8 {
        let key = format!("sl:v:{{{stream}}}");
        let (owner, _) = cluster.owner_and_other(&key);
        let name = VisitId {
            origin: 5,
            sequence: stream,
        };
        put(owner.port, &key, [name], "other/1");
    }
    for _ in 0..8 {
        wait_for(&mut feed, "other/1");
    }
    // A node is killed and comes back.
    let (owner, _) = cluster.owner_and_other("sl:v:{0}");
    let port = owner.port;
    let index = cluster.nodes.iter().position(|node| node.port == port);
    let index = index.expect("the owner");
    cluster.nodes[index].kill();
    assert_eq!(feed.named("interrupted").id, "");
    cluster.nodes[index].start_again();
    feed.named("resumed");
    tap(&stack, &code, "two/2");
    wait_for(&mut feed, "two/2");
}

#[test]
fn the_feed_follows_the_master_that_sentinels_name() {
    let directory = directory();
    let (mut first, second, sentinels) = Sentinels::start_with_servers(directory.path());
    let nodes = sentinels.addresses();
    let stack = stack_on(
        format!("sentinel {MASTER} {};", nodes.join(" ")),
        &format!("url = \"redis://{MASTER}/0\"\ntopology = \"sentinel\"\nnodes = {nodes:?}"),
    );
    let code = stack.link(TARGET);
    let mut feed = feed(&stack);
    tap(&stack, &code, "one/1");
    wait_for(&mut feed, "one/1");
    until("the link is copied", SOON, || {
        second.record(&code).is_some()
    });
    first.kill();
    feed.named("interrupted");
    tap(&stack, &code, "two/2");
    until("another is master", 3 * SOON, || {
        sentinels.master() == second.port
    });
    feed.named("resumed");
    tap(&stack, &code, "three/3");
    wait_for(&mut feed, "three/3");
}
