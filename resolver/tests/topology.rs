//! Sentinels and clusters, byte by byte: the servers that get requests, and the cache entries
//! that survive a change of them.

use shortlink_resolver::vocabulary::Code;
use shortlink_resolver::{
    Address, Answer, CacheSettings, ConnectionError, Edge, EdgeSettings, Endpoint, LookUp, NodeId,
    NodeSettings, Now, Source, Tick, TopologySettings,
};

const HELLO: &str = "%0\r\n";
const OK: &str = "+OK\r\n";

fn code() -> Code {
    "Ab3xK9q2".parse().expect("a code")
}

fn address(port: u16) -> Address {
    Address::Tcp(Endpoint::new(b"10.0.0.1", port).expect("an endpoint"))
}

fn now(ms: u64) -> Now {
    Now { ms, unix: 1_000 }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn record(target: &str) -> String {
    bulk(&format!("1 302 1 0 https://e/{target}"))
}

/// The map of a cluster in which one node has every slot.
fn map(port: u16) -> String {
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$8\r\n10.0.0.1\r\n:{port}\r\n$2\r\nid\r\n")
}

fn shown(answer: Answer<'_>) -> String {
    match answer {
        Answer::Redirect { target, .. } => String::from_utf8_lossy(target).into_owned(),
        other => format!("{other:?}"),
    }
}

struct World {
    edge: Edge<usize>,
    ms: u64,
    answers: Vec<(usize, String, Source)>,
}

impl World {
    fn new(topology: TopologySettings) -> Self {
        Self::with(topology, None)
    }

    fn with(topology: TopologySettings, replica: Option<Address>) -> Self {
        let settings = EdgeSettings {
            nodes: NodeSettings::default(),
            topology,
            replica,
            cache: Some(CacheSettings {
                bytes: 1 << 16,
                stale_for: 0,
                longest_age: 60_000,
            }),
        };
        Self {
            edge: Edge::new(settings, 0, 7),
            ms: 0,
            answers: Vec::new(),
        }
    }

    fn cluster() -> Self {
        Self::new(TopologySettings::Cluster {
            seeds: vec![address(1)],
        })
    }

    /// Opens and closes connections as the edge requests; returns those that it opened.
    fn drive(&mut self) -> Vec<String> {
        let mut opened = Vec::new();
        loop {
            match self.edge.tick(now(self.ms)) {
                Tick::Idle => return opened,
                Tick::Connect(id) => {
                    opened.push(self.edge.address(id).expect("an address").to_string());
                    self.edge.connecting(id, now(self.ms));
                    self.edge.connected(id, now(self.ms));
                }
                Tick::Disconnect(id, error) => {
                    self.edge.disconnected(id, &error, now(self.ms));
                    self.complete(id).expect("lost");
                }
            }
        }
    }

    /// The node that listens at an address: the last, as those before it may be going.
    fn node(&self, port: u16, is_watch: bool) -> NodeId {
        let wanted = address(port);
        let purpose = if is_watch {
            shortlink_resolver::Purpose::Watch
        } else {
            shortlink_resolver::Purpose::Data
        };
        let found = self.edge.nodes().filter(|id| {
            self.edge.address(*id) == Some(&wanted) && self.edge.purpose(*id) == Some(purpose)
        });
        found.last().expect("a node")
    }

    fn sent(&mut self, node: NodeId) -> String {
        let sent = String::from_utf8(self.edge.output(node).to_vec()).expect("text");
        self.edge.wrote(node, sent.len(), 0);
        sent
    }

    fn reply(&mut self, node: NodeId, bytes: &str) -> Result<(), ConnectionError> {
        self.edge.input_space(node)[..bytes.len()].copy_from_slice(bytes.as_bytes());
        self.edge.received(node, bytes.len(), 0);
        self.complete(node)
    }

    fn complete(&mut self, node: NodeId) -> Result<(), ConnectionError> {
        while let Some(done) = self.edge.next_completion(node, now(self.ms))? {
            self.answers
                .push((done.token, shown(done.answer), done.source));
        }
        Ok(())
    }

    fn ask(&mut self, token: usize) {
        if let LookUp::Answered(answer, source) = self.edge.look_up(&code(), token, now(self.ms)) {
            self.answers.push((token, shown(answer), source));
        }
    }

    fn last(&self) -> (&str, Source) {
        let (_, answer, source) = self.answers.last().expect("an answer");
        (answer, *source)
    }

    /// Answers the handshake of a node that records are read from.
    fn greet(&mut self, port: u16) -> NodeId {
        let node = self.node(port, false);
        self.reply(node, &[HELLO, OK].concat())
            .expect("a handshake");
        assert!(self.sent(node).ends_with("sl:gen{0}\r\n"));
        self.reply(node, "_\r\n").expect("no generation");
        node
    }
}

/// A cluster of one node, on port 2, whose map is known.
fn settled_cluster() -> (World, NodeId, NodeId) {
    let mut world = World::cluster();
    assert_eq!(world.drive(), ["10.0.0.1:1"]);
    let watch = world.node(1, true);
    world.reply(watch, HELLO).expect("a handshake");
    assert!(
        world
            .sent(watch)
            .ends_with("*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n")
    );
    world.reply(watch, &map(2)).expect("a map");
    assert_eq!(world.drive(), ["10.0.0.1:2"]);
    let data = world.greet(2);
    (world, watch, data)
}

#[test]
fn who_comes_before_the_map_is_known_waits_for_it() {
    let mut world = World::cluster();
    world.ask(1);
    world.drive();
    let watch = world.node(1, true);
    world.reply(watch, HELLO).expect("a handshake");
    world.ask(2);
    world.reply(watch, &map(2)).expect("a map");
    world.drive();
    let data = world.node(2, false);
    assert_eq!(world.sent(data).matches("GET").count(), 1);
    let replies = [HELLO, OK, &record("a")].concat();
    world.reply(data, &replies).expect("replies");
    assert_eq!(world.answers.len(), 2);
    assert_eq!(world.last(), ("https://e/a", Source::Redis));
}

#[test]
fn who_waits_for_a_map_that_does_not_come_is_told() {
    let mut world = World::cluster();
    world.ask(1);
    world.drive();
    let watch = world.node(1, true);
    let error = "-ERR This instance has cluster support disabled\r\n";
    let refused = world
        .reply(watch, &[HELLO, error].concat())
        .expect_err("refused");
    assert!(matches!(refused, ConnectionError::Role(_)), "{refused:?}");
    world.edge.disconnected(watch, &refused, now(0));
    world.complete(watch).expect("lost");
    assert_eq!(world.last(), ("Miss(Unavailable)", Source::None));
}

#[test]
fn a_node_that_has_not_got_it_sends_on_and_the_map_is_asked_for() {
    let (mut world, watch, data) = settled_cluster();
    world.sent(watch);
    world.ask(1);
    world.sent(data);
    world
        .reply(data, "-MOVED 1234 10.0.0.1:3\r\n")
        .expect("sent on");
    assert!(world.answers.is_empty());
    assert!(world.sent(watch).contains("SLOTS"));
    assert_eq!(world.drive(), ["10.0.0.1:3"]);
    let other = world.node(3, false);
    assert_eq!(world.sent(other).matches("GET").count(), 1);
    let replies = [HELLO, OK, &record("b")].concat();
    world.reply(other, &replies).expect("replies");
    assert_eq!(world.last(), ("https://e/b", Source::Redis));
}

#[test]
fn nobody_is_sent_on_for_ever() {
    let (mut world, _, data) = settled_cluster();
    world.ask(1);
    for _ in 0..5 {
        assert!(world.sent(data).contains("GET"));
        world
            .reply(data, "-MOVED 1234 10.0.0.1:2\r\n")
            .expect("sent on");
        assert!(world.answers.is_empty());
    }
    world
        .reply(data, "-MOVED 1234 10.0.0.1:2\r\n")
        .expect("enough");
    assert_eq!(world.last(), ("Miss(Error)", Source::Redis));
}

#[test]
fn a_slot_on_its_way_is_asked_for_with_asking_and_not_kept() {
    let (mut world, _, data) = settled_cluster();
    for token in 1..4 {
        world.ask(token);
        // From the second time on it would be kept.
        let kept = if world.sent(data).contains("CACHING") {
            OK
        } else {
            ""
        };
        assert_eq!(kept.is_empty(), token == 1);
        let sent_on = [kept, "-ASK 1234 10.0.0.1:3\r\n"].concat();
        world.reply(data, &sent_on).expect("sent on");
        if token == 1 {
            world.drive();
            let other = world.node(3, false);
            assert!(
                world
                    .sent(other)
                    .contains("*1\r\n$6\r\nASKING\r\n*2\r\n$3\r\nGET")
            );
            let replies = [HELLO, OK, OK, &record("b")].concat();
            world.reply(other, &replies).expect("replies");
        } else {
            let other = world.node(3, false);
            assert!(!world.sent(other).contains("CACHING"));
            world
                .reply(other, &[OK, &record("b")].concat())
                .expect("replies");
        }
        assert_eq!(world.last(), ("https://e/b", Source::Redis), "{token}");
    }
    assert_eq!(world.edge.cache().map(|cache| cache.len()), Some(0));
}

#[test]
fn what_was_asked_for_before_codes_moved_is_not_kept_after() {
    let (mut world, watch, data) = settled_cluster();
    world.ask(1);
    world.sent(data);
    world.reply(data, &record("a")).expect("a reply");
    // Heartbeats: the map is asked for again.
    world.ms += 1_000;
    world.drive();
    assert!(world.sent(watch).contains("SLOTS"));
    assert!(world.sent(data).contains("sl:gen{0}"));
    // The second time is the one that would be kept.
    world.ask(2);
    assert!(world.sent(data).contains("CACHING"));
    world.reply(watch, &map(3)).expect("a map");
    // The old node's answer, asked for when it was still the right one.
    let late = ["_\r\n", OK, &record("a")].concat();
    world.reply(data, &late).expect("a reply");
    assert_eq!(world.last(), ("https://e/a", Source::Redis));
    assert_eq!(world.edge.cache().map(|cache| cache.len()), Some(0));
}

#[test]
fn a_master_is_read_from_only_if_it_says_that_it_is_one() {
    let mut world = World::new(TopologySettings::Sentinel {
        master: "links".to_owned(),
        sentinels: vec![address(1), address(9)],
    });
    world.ask(1);
    assert_eq!(world.drive(), ["10.0.0.1:1"]);
    let watch = world.node(1, true);
    world
        .reply(watch, &[HELLO, "+PONG\r\n"].concat())
        .expect("a handshake");
    let master = |port: u16| format!("*2\r\n$8\r\n10.0.0.1\r\n{}", bulk(&port.to_string()));
    world
        .reply(watch, &[&master(2), "*0\r\n"].concat())
        .expect("a master");
    assert_eq!(world.drive(), ["10.0.0.1:2"]);
    let data = world.node(2, false);
    assert!(world.sent(data).contains("ROLE"));
    let replica = "*5\r\n$5\r\nslave\r\n$8\r\n10.0.0.1\r\n:3\r\n$9\r\nconnected\r\n:1\r\n";
    let refused = world
        .reply(data, &[HELLO, replica].concat())
        .expect_err("a replica");
    assert_eq!(refused, ConnectionError::Role("it is a replica".to_owned()));
    world.edge.disconnected(data, &refused, now(0));
    world.complete(data).expect("lost");
    assert_eq!(world.last(), ("Miss(Unavailable)", Source::None));

    // The sentinel reports another one by itself.
    let push = ">3\r\n+message\r\n+switch-master\r\n";
    let switched = format!("{push}{}", bulk("links 10.0.0.1 2 10.0.0.1 3"));
    // Its channel's name begins with a plus sign too.
    let switched = switched.replace("+switch-master\r\n", &bulk("+switch-master"));
    world.reply(watch, &switched).expect("a push");
    assert!(world.drive().contains(&"10.0.0.1:3".to_owned()));
    let data = world.node(3, false);
    world.ask(2);
    let replies = [
        HELLO,
        "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
        OK,
        &record("c"),
    ]
    .concat();
    world.reply(data, &replies).expect("replies");
    assert_eq!(world.last(), ("https://e/c", Source::Redis));

    // A sentinel that does not know the master is left for another.
    world.ms += 1_000;
    world.drive();
    let refused = world.reply(watch, "_\r\n").expect_err("unknown");
    world.edge.disconnected(watch, &refused, now(world.ms));
    world.ms += 5_000;
    assert!(world.drive().contains(&"10.0.0.1:9".to_owned()));
}

/// A server on port 1 with a replica on port 2, both connected.
fn with_replica() -> (World, NodeId, NodeId) {
    let mut world = World::with(TopologySettings::Server(address(1)), Some(address(2)));
    assert_eq!(world.drive(), ["10.0.0.1:1", "10.0.0.1:2"]);
    let (master, replica) = (world.node(1, false), world.node(2, false));
    world.sent(master);
    world.sent(replica);
    world
        .reply(master, &[HELLO, OK, &bulk("1 0 1")].concat())
        .expect("a handshake");
    world
        .reply(replica, &[HELLO, ROLE, OK, &bulk("1 0 1")].concat())
        .expect("a handshake");
    (world, master, replica)
}

const ROLE: &str = "*5\r\n$5\r\nslave\r\n$8\r\n10.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:1\r\n";

/// Lets a second pass, after which each server reports so many beats.
fn beats(world: &mut World, master: (NodeId, u64), replica: (NodeId, u64)) {
    world.ms += 1_000;
    world.drive();
    for (node, beat) in [master, replica] {
        let sent = world.sent(node);
        assert!(sent.contains("sl:gen"), "{node:?} {sent} {}", world.ms);
        let role = if node == replica.0 { ROLE } else { "" };
        let value = bulk(&format!("1 0 {beat}"));
        world
            .reply(node, &[&value, role].concat())
            .expect("replies");
    }
    world.drive();
}

/// Asks for a link that is not cached; returns the server that was asked.
fn asked(world: &mut World, token: usize, master: NodeId, replica: NodeId) -> NodeId {
    world.ask(token);
    let sent = [master, replica].map(|node| world.sent(node));
    let node = if sent[0].contains("sl:l:") {
        master
    } else {
        replica
    };
    let caching = if sent.concat().contains("CACHING") {
        OK
    } else {
        ""
    };
    world
        .reply(node, &[caching, &record("a")].concat())
        .expect("a record");
    node
}

#[test]
fn a_replica_is_asked_only_while_it_is_proved_current() {
    let (mut world, master, replica) = with_replica();
    let asked = |world: &mut World, token| asked(world, token, master, replica);
    assert_eq!(asked(&mut world, 1), master, "not proved yet");
    beats(&mut world, (master, 3), (replica, 3));
    assert_eq!(asked(&mut world, 2), replica);
    let is_cached = |world: &mut World, token: usize| {
        world.ask(token);
        world.answers.last() == Some(&(token, "https://e/a".to_owned(), Source::Cache))
    };
    assert!(is_cached(&mut world, 3));
    // Nothing more arrives there, though its role says that it is connected.
    for beat in [5, 7, 8] {
        beats(&mut world, (master, beat), (replica, 3));
    }
    assert!(is_cached(&mut world, 4));
    beats(&mut world, (master, 9), (replica, 3));
    assert_eq!(
        asked(&mut world, 5),
        master,
        "the entry is stale, and the master is asked"
    );
    // An entry from the master is as good as before when the replica is back.
    beats(&mut world, (master, 13), (replica, 12));
    assert!(is_cached(&mut world, 6));
}

#[test]
fn a_replica_that_is_late_without_a_break_is_not_asked() {
    let (mut world, master, replica) = with_replica();
    // Two beats a second: one second late is within the bound, six are not.
    for second in 1..10 {
        let beat = second * 2;
        beats(
            &mut world,
            (master, beat),
            (replica, beat.saturating_sub(2)),
        );
    }
    assert_eq!(asked(&mut world, 1, master, replica), replica);
    for second in 10..30 {
        let beat = second * 2;
        beats(&mut world, (master, beat), (replica, (beat - 12).max(16)));
    }
    assert_eq!(asked(&mut world, 2, master, replica), master);
}

#[test]
fn each_master_of_a_cluster_has_a_generation_of_its_own() {
    let mut world = World::cluster();
    world.drive();
    let watch = world.node(1, true);
    world.reply(watch, HELLO).expect("a handshake");
    // The slot 0 is that of no tag.
    let map = "*3\r\n\
        *3\r\n:1\r\n:13000\r\n*3\r\n$8\r\n10.0.0.1\r\n:2\r\n$2\r\nid\r\n\
        *3\r\n:0\r\n:0\r\n*3\r\n$8\r\n10.0.0.1\r\n:3\r\n$2\r\nid\r\n\
        *3\r\n:13001\r\n:16383\r\n*3\r\n$8\r\n10.0.0.1\r\n:4\r\n$2\r\nid\r\n";
    world.reply(watch, map).expect("a map");
    world.drive();
    let mut keys = Vec::new();
    for port in 2..5 {
        let node = world.node(port, false);
        world.sent(node);
        world
            .reply(node, &[HELLO, OK].concat())
            .expect("a handshake");
        let sent = world.sent(node);
        keys.push(
            sent.lines()
                .find(|line| line.starts_with("sl:"))
                .map(str::to_owned),
        );
    }
    let key = |key: &str| Some(key.to_owned());
    assert_eq!(keys, [key("sl:gen{1}"), None, key("sl:gen{0}")]);
    // The one without a tag is asked whether it is there.
    world.ms += 1_000;
    world.drive();
    let node = world.node(3, false);
    assert!(world.sent(node).contains("PING"));
}
