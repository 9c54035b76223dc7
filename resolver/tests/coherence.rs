//! The edge with a cache against a Redis that tracks what its client keeps, as Redis does.
//!
//! Every change makes a key's version greater. Whatever happens in whatever order, an answer is
//! never older than what had been told on the wire when it was given.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use shortlink_resolver::vocabulary::Code;
use shortlink_resolver::{
    Address, Answer, CacheSettings, Edge, EdgeSettings, LinkError, LookUp, MissReason, NodeId,
    NodeSettings, Now, Source, Tick, TopologySettings, Tracking,
};

const STALE_FOR: u64 = 5_000;
const LONGEST_AGE: u64 = 60_000;
const CODES: usize = 6;

fn code(number: usize) -> Code {
    format!("c{number}").parse().expect("a code")
}

fn node() -> NodeId {
    NodeId::new(0)
}

/// Redis: what it holds, whom it has told what, and what is on the wire.
struct Redis {
    /// How often each key was changed; the version is the target's.
    versions: [u64; CODES],
    tracking: Tracking,
    /// Keys that its client keeps.
    tracked: BTreeSet<usize>,
    /// Whether the next `GET` is of one that will be kept.
    caching: bool,
    input: Vec<u8>,
    /// What is on its way to the client, and the versions when each piece was written.
    wire: VecDeque<(Vec<u8>, [u64; CODES])>,
}

impl Redis {
    fn write(&mut self, bytes: impl Into<Vec<u8>>) {
        self.wire.push_back((bytes.into(), self.versions));
    }

    fn change(&mut self, number: usize) {
        self.versions[number] += 1;
        let told = match self.tracking {
            Tracking::OptIn => self.tracked.remove(&number),
            Tracking::Broadcast => true,
        };
        if told {
            let key = format!("sl:l:c{number}");
            self.write(format!(
                ">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n",
                key.len()
            ));
        }
    }

    fn flush_all(&mut self) {
        for version in &mut self.versions {
            *version += 1;
        }
        self.tracked.clear();
        self.write(">2\r\n$10\r\ninvalidate\r\n_\r\n");
    }

    /// Runs so many of the commands that have arrived.
    fn run(&mut self, count: usize) {
        for _ in 0..count {
            let Some((words, used)) = command(&self.input) else {
                return;
            };
            self.input.drain(..used);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["HELLO", ..] => self.write("%0\r\n"),
                ["CLIENT", "TRACKING", "ON", "OPTIN"] => {
                    assert_eq!(self.tracking, Tracking::OptIn);
                    self.write("+OK\r\n");
                }
                ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "sl:l:"] => {
                    assert_eq!(self.tracking, Tracking::Broadcast);
                    self.write("+OK\r\n");
                }
                ["CLIENT", "CACHING", "YES"] => {
                    self.caching = true;
                    self.write("+OK\r\n");
                }
                ["PING"] => self.write("+PONG\r\n"),
                ["GET", key] => {
                    let number = key.strip_prefix("sl:l:c").expect("a link's key");
                    let number: usize = number.parse().expect("a number");
                    if std::mem::take(&mut self.caching) {
                        self.tracked.insert(number);
                    }
                    let record = format!("1 302 1 0 https://e/{}", self.versions[number]);
                    self.write(format!("${}\r\n{record}\r\n", record.len()));
                }
                ref other => panic!("{other:?}"),
            }
        }
    }

    fn hang_up(&mut self) {
        self.tracked.clear();
        self.caching = false;
        self.input.clear();
        self.wire.clear();
    }
}

/// Reads a command and tells how many bytes it takes.
fn command(input: &[u8]) -> Option<(Vec<String>, usize)> {
    let text = std::str::from_utf8(input).expect("text");
    let mut lines = text.split_inclusive("\r\n");
    let head = lines.next()?.strip_suffix("\r\n")?;
    let count: usize = head.strip_prefix('*')?.parse().expect("a number");
    let mut used = head.len() + 2;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = lines.next()?;
        let word = lines.next()?;
        used += length.len() + word.len();
        words.push(word.strip_suffix("\r\n")?.to_owned());
    }
    Some((words, used))
}

/// The edge, the wire and what the edge has been told.
struct World {
    edge: Edge<usize>,
    redis: Redis,
    ms: u64,
    connected: bool,
    /// The versions that the edge has been told of, all that was before included.
    told: [u64; CODES],
    /// When the connection was lost last.
    lost_at: Option<u64>,
    /// What each request asked for, and what had been told then.
    asked: Vec<(usize, [u64; CODES])>,
    answered: BTreeMap<usize, u32>,
    from_cache: usize,
}

impl World {
    fn new(tracking: Tracking, bytes: usize) -> Self {
        let settings = EdgeSettings {
            nodes: NodeSettings {
                tracking: Some(tracking),
                ..NodeSettings::default()
            },
            topology: TopologySettings::Server(Address::Unix("/redis".to_owned())),
            replica: None,
            cache: Some(CacheSettings {
                bytes,
                stale_for: STALE_FOR,
                longest_age: LONGEST_AGE,
            }),
        };
        Self {
            edge: Edge::new(settings, 0, 7),
            redis: Redis {
                versions: [0; CODES],
                tracking,
                tracked: BTreeSet::new(),
                caching: false,
                input: Vec::new(),
                wire: VecDeque::new(),
            },
            ms: 0,
            connected: false,
            told: [0; CODES],
            lost_at: None,
            asked: Vec::new(),
            answered: BTreeMap::new(),
            from_cache: 0,
        }
    }

    fn now(&self) -> Now {
        Now {
            ms: self.ms,
            unix: 1_000,
        }
    }

    fn ask(&mut self, number: usize) {
        let request = self.asked.len();
        self.asked.push((number, self.told));
        let looked_up = self.edge.look_up(&code(number), request, self.now());
        if let LookUp::Answered(answer, source) = looked_up {
            let version = version(answer);
            self.check(request, version, source);
        }
    }

    /// An answer must be of the version that was told when it was asked for, or a later one.
    fn check(&mut self, request: usize, version: Option<u64>, source: Source) {
        *self.answered.entry(request).or_default() += 1;
        let (number, told) = self.asked[request];
        let least = told[number];
        match (source, version) {
            (Source::Cache | Source::Redis, Some(version)) => {
                assert!(version >= least, "{version} is older than {least}");
                assert!(version <= self.redis.versions[number]);
                self.from_cache += usize::from(source == Source::Cache);
            }
            (Source::Stale, Some(version)) => {
                assert!(version <= self.redis.versions[number]);
                // Not for ever after the connection was lost; while it is there, what is kept is
                // told of.
                let for_too_long = self
                    .lost_at
                    .is_some_and(|lost_at| self.ms >= lost_at + STALE_FOR);
                assert!(!for_too_long || version >= least);
            }
            (Source::None, None) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Lets the edge do what it wants to.
    fn drive(&mut self) {
        let now = self.now();
        loop {
            match self.edge.tick(now) {
                Tick::Idle => break,
                Tick::Connect(id) => {
                    self.edge.connecting(id, now);
                    self.edge.connected(id, now);
                    self.connected = true;
                    // From here on only this connection tells.
                    self.told = self.redis.versions;
                }
                Tick::Disconnect(..) => self.disconnect(),
            }
        }
        let output = self.edge.output(node()).to_vec();
        self.edge.wrote(node(), output.len(), 0);
        self.redis.input.extend(output);
        while let Some(done) = self.edge.next_expired(now) {
            let (token, version, source) = (done.token, version(done.answer), done.source);
            self.check(token, version, source);
        }
        self.complete();
    }

    fn complete(&mut self) {
        let now = self.now();
        while let Some(done) = self.edge.next_completion(node(), now).expect("RESP") {
            let (token, version, source) = (done.token, version(done.answer), done.source);
            self.check(token, version, source);
        }
    }

    /// Delivers what is on the wire: so many pieces, each in two parts.
    fn deliver(&mut self, count: usize, cut: usize) {
        for _ in 0..count {
            let Some((bytes, versions)) = self.redis.wire.pop_front() else {
                return;
            };
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            for part in [first, second] {
                self.edge.input_space(node())[..part.len()].copy_from_slice(part);
                self.edge.received(node(), part.len(), self.now(), 0);
                self.complete();
            }
            self.told = versions;
        }
    }

    fn disconnect(&mut self) {
        if self.connected {
            self.connected = false;
            self.redis.hang_up();
            self.edge.disconnected(node(), &LinkError::Lost, self.now());
            self.lost_at = Some(self.ms);
            self.complete();
        }
    }
}

fn version(answer: Answer<'_>) -> Option<u64> {
    match answer {
        Answer::Redirect { target, .. } => {
            let text = std::str::from_utf8(target).expect("text");
            let version = text.strip_prefix("https://e/").expect("a target");
            Some(version.parse().expect("a number"))
        }
        Answer::Miss(MissReason::Unavailable | MissReason::TimedOut) => None,
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize),
    Change(usize),
    FlushAll,
    Run(usize),
    Deliver(usize, usize),
    Pass(u64),
    Disconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (0..CODES).prop_map(Step::Ask),
        3 => (0..CODES).prop_map(Step::Change),
        1 => Just(Step::FlushAll),
        8 => (1..4usize).prop_map(Step::Run),
        8 => ((1..4usize), (0..40usize)).prop_map(|(count, cut)| Step::Deliver(count, cut)),
        3 => (1..30u64).prop_map(Step::Pass),
        1 => (1000..8000u64).prop_map(Step::Pass),
        1 => Just(Step::Disconnect),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_answer_is_older_than_what_was_told(
        steps in steps(),
        broadcast in any::<bool>(),
    ) {
        let tracking = if broadcast { Tracking::Broadcast } else { Tracking::OptIn };
        let mut world = World::new(tracking, 1 << 16);
        for step in steps {
            match step {
                Step::Ask(number) => world.ask(number),
                Step::Change(number) => world.redis.change(number),
                Step::FlushAll => world.redis.flush_all(),
                Step::Run(count) if world.connected => world.redis.run(count),
                Step::Deliver(count, cut) if world.connected => world.deliver(count, cut),
                Step::Pass(ms) => world.ms += ms,
                Step::Disconnect => world.disconnect(),
                _ => {}
            }
            world.drive();
        }
        world.disconnect();
        for request in 0..world.asked.len() {
            prop_assert_eq!(world.answered.get(&request), Some(&1), "request {}", request);
        }
    }
}

/// Asks and lets everything happen that follows.
fn settle(world: &mut World, number: usize) {
    world.ask(number);
    world.drive();
    for _ in 0..4 {
        world.redis.run(8);
        world.deliver(16, 0);
        world.drive();
    }
}

#[test]
fn a_code_is_kept_from_its_second_time_on_and_dropped_when_it_changes() {
    for tracking in [Tracking::OptIn, Tracking::Broadcast] {
        let mut world = World::new(tracking, 1 << 16);
        world.drive();
        settle(&mut world, 0);
        settle(&mut world, 0);
        assert_eq!(world.from_cache, 0);
        settle(&mut world, 0);
        assert_eq!(world.from_cache, 1);
        world.redis.change(0);
        world.deliver(1, 0);
        settle(&mut world, 0);
        assert_eq!(world.from_cache, 1, "it was dropped");
        settle(&mut world, 0);
        assert_eq!(world.from_cache, 2, "and is kept again");
        world.redis.flush_all();
        world.deliver(1, 0);
        assert_eq!(world.edge.cache().map(|cache| cache.len()), Some(0));
    }
}

#[test]
fn those_who_ask_at_once_share_one_look_up() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.drive();
    world.redis.run(2);
    world.deliver(2, 0);
    for _ in 0..100 {
        world.ask(3);
    }
    let asked = String::from_utf8(world.edge.output(node()).to_vec()).expect("text");
    assert_eq!(asked.matches("GET").count(), 1);
    world.drive();
    world.redis.run(1);
    world.deliver(1, 5);
    assert_eq!(world.answered.len(), 100);
}

#[test]
fn what_is_kept_is_served_for_a_while_without_redis_and_read_anew_with_it() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.drive();
    settle(&mut world, 0);
    settle(&mut world, 0);
    world.ms += 2_000;
    world.drive();
    // The heartbeat is not answered: Redis is given up.
    world.ms += 250;
    world.drive();
    assert!(world.lost_at.is_some());
    let lost_at = world.ms;
    world.redis.change(0);
    let source = |world: &mut World| {
        let now = world.now();
        match world.edge.look_up(&code(0), usize::MAX, now) {
            LookUp::Answered(_, source) => source,
            LookUp::Waiting(_) => Source::Redis,
        }
    };
    assert_eq!(source(&mut world), Source::Stale);
    world.ms = lost_at + STALE_FOR - 1;
    assert_eq!(source(&mut world), Source::Stale);
    world.ms = lost_at + STALE_FOR;
    assert_eq!(source(&mut world), Source::None);
}

#[test]
fn nothing_is_kept_for_longer_than_its_age() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.drive();
    settle(&mut world, 0);
    settle(&mut world, 0);
    for _ in 0..58 {
        world.ms += 1_000;
        world.drive();
        world.redis.run(8);
        world.deliver(8, 0);
    }
    settle(&mut world, 0);
    assert_eq!(world.from_cache, 1);
    for _ in 0..3 {
        world.ms += 1_000;
        world.drive();
        world.redis.run(8);
        world.deliver(8, 0);
    }
    settle(&mut world, 0);
    assert_eq!(world.from_cache, 1, "it is asked for again");
}
