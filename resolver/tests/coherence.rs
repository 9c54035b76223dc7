//! The edge with a cache against a Redis that tracks what its client keeps, as Redis does.
//!
//! Every change makes a key's version greater. Whatever happens in whatever order, an answer is
//! never older than what had been told on the wire when it was asked for; one that is made of a
//! link's record and its campaign's, of neither.

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
/// The keys of campaigns come behind those of links.
const KEYS: usize = CODES + 2;
const UNIX: u64 = 1_000;

type Versions = [u64; KEYS];

/// The campaign of a link, as the number of its key; `None` for a link that is of none in this
/// version.
fn campaign_of(number: usize, version: u64) -> Option<usize> {
    let is_of_campaign = match number {
        0 | 1 => false,
        2 => version % 2 == 1,
        _ => true,
    };
    is_of_campaign.then_some(CODES + number % 2)
}

/// What a campaign says in a version.
#[derive(Debug, PartialEq, Eq)]
enum Campaign {
    Live,
    Paused,
    Absent,
}

fn campaign_in(version: u64) -> Campaign {
    match version % 6 {
        3 => Campaign::Paused,
        5 => Campaign::Absent,
        _ => Campaign::Live,
    }
}

/// The record of a key in a version; `None` where there is none.
fn record(number: usize, version: u64) -> Option<String> {
    if number >= CODES {
        return match campaign_in(version) {
            Campaign::Live => Some(format!("1 302 1 0 https://e/{{0}}/{version}")),
            Campaign::Paused => Some(format!("1 410 {version}")),
            Campaign::Absent => None,
        };
    }
    Some(match campaign_of(number, version) {
        Some(campaign) => format!("c{campaign} {version}"),
        None => format!("1 302 1 0 https://e/{version}"),
    })
}

fn key(number: usize) -> String {
    if number < CODES {
        format!("sl:l:c{number}")
    } else {
        format!("sl:c:{number}")
    }
}

fn number_of(key: &str) -> usize {
    (0..KEYS)
        .find(|&number| self::key(number) == key)
        .expect("a key")
}

fn code(number: usize) -> Code {
    format!("c{number}").parse().expect("a code")
}

fn node() -> NodeId {
    NodeId::new(0)
}

/// Redis: what it holds, whom it has told what, and what is on the wire.
struct Redis {
    /// How often each key was changed; the version is the target's.
    versions: Versions,
    /// Records that are others than those of their versions.
    others: BTreeMap<usize, String>,
    /// What was asked for.
    gets: Vec<usize>,
    tracking: Tracking,
    /// Keys that its client keeps.
    tracked: BTreeSet<usize>,
    /// Whether the next `GET` is of one that will be kept.
    caching: bool,
    input: Vec<u8>,
    /// What is on its way to the client, and the versions when each piece was written.
    wire: VecDeque<(Vec<u8>, Versions)>,
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
            let key = key(number);
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
                [
                    "CLIENT",
                    "TRACKING",
                    "ON",
                    "BCAST",
                    "PREFIX",
                    "sl:l:",
                    "PREFIX",
                    "sl:c:",
                ] => {
                    assert_eq!(self.tracking, Tracking::Broadcast);
                    self.write("+OK\r\n");
                }
                ["CLIENT", "CACHING", "YES"] => {
                    self.caching = true;
                    self.write("+OK\r\n");
                }
                ["PING"] => self.write("+PONG\r\n"),
                ["GET", key] => {
                    let number = number_of(key);
                    self.gets.push(number);
                    if std::mem::take(&mut self.caching) {
                        self.tracked.insert(number);
                    }
                    let other = self.others.get(&number).cloned();
                    match other.or_else(|| record(number, self.versions[number])) {
                        Some(record) => {
                            self.write(format!("${}\r\n{record}\r\n", record.len()));
                        }
                        None => self.write("_\r\n"),
                    }
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
    unix: u64,
    connected: bool,
    /// The versions that the edge has been told of, all that was before included.
    told: Versions,
    /// When the connection was lost last.
    lost_at: Option<u64>,
    /// What each request asked for, and what had been told then.
    asked: Vec<(usize, Versions)>,
    answered: BTreeMap<usize, u32>,
    from_cache: usize,
    last: Option<(Seen, Source)>,
}

/// What a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// The target of a link in a version.
    Link(u64),
    /// That which a link in a version has from its campaign in a version.
    OfCampaign(u64, u64),
    /// What a campaign says that is not live.
    Campaign(&'static Campaign),
    Unknown,
    Nothing,
}

impl Seen {
    fn of(answer: Answer<'_>) -> Self {
        match answer {
            Answer::Redirect { target, .. } => {
                let text = std::str::from_utf8(target).expect("text");
                let versions = text.strip_prefix("https://e/").expect("a target");
                let number = |text: &str| text.parse().expect("a number");
                match versions.split_once('/') {
                    Some((link, campaign)) => Self::OfCampaign(number(link), number(campaign)),
                    None => Self::Link(number(versions)),
                }
            }
            Answer::Gone => Self::Campaign(&Campaign::Paused),
            Answer::Unknown => Self::Unknown,
            Answer::Miss(MissReason::Unreadable) => Self::Campaign(&Campaign::Absent),
            Answer::Miss(MissReason::Unavailable | MissReason::TimedOut) => Self::Nothing,
            other => panic!("{other:?}"),
        }
    }
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
                versions: [0; KEYS],
                others: BTreeMap::new(),
                gets: Vec::new(),
                tracking,
                tracked: BTreeSet::new(),
                caching: false,
                input: Vec::new(),
                wire: VecDeque::new(),
            },
            ms: 0,
            unix: UNIX,
            connected: false,
            told: [0; KEYS],
            lost_at: None,
            asked: Vec::new(),
            answered: BTreeMap::new(),
            from_cache: 0,
            last: None,
        }
    }

    fn now(&self) -> Now {
        Now {
            ms: self.ms,
            unix: self.unix,
        }
    }

    fn ask(&mut self, number: usize) {
        let request = self.asked.len();
        self.asked.push((number, self.told));
        let looked_up = self.edge.look_up(&code(number), request, self.now());
        if let LookUp::Answered(answer, source) = looked_up {
            let seen = Seen::of(answer);
            self.check(request, seen, source);
        }
    }

    /// An answer must be of the versions that were told when it was asked for, or later ones.
    fn check(&mut self, request: usize, seen: Seen, source: Source) {
        *self.answered.entry(request).or_default() += 1;
        self.last = Some((seen.clone(), source));
        if !self.redis.others.is_empty() {
            return;
        }
        let (number, told) = self.asked[request];
        // Not for ever after the connection was lost; while it is there, what is kept is told of.
        let for_too_long = self
            .lost_at
            .is_some_and(|lost_at| self.ms >= lost_at + STALE_FOR);
        let least = match source {
            Source::Stale if !for_too_long => [0; KEYS],
            _ => told,
        };
        let most = self.redis.versions;
        let versions = |key: usize| least[key]..=most[key];
        self.from_cache += usize::from(source == Source::Cache);
        match (source, &seen) {
            (Source::None, Seen::Nothing) => {}
            (Source::Cache | Source::Redis | Source::Stale, Seen::Link(version)) => {
                assert!(versions(number).contains(version), "{seen:?}, {least:?}");
                assert_eq!(campaign_of(number, *version), None);
            }
            (Source::Cache | Source::Redis | Source::Stale, Seen::OfCampaign(version, other)) => {
                let campaign = campaign_of(number, *version).expect("a campaign's link");
                assert!(versions(number).contains(version), "{seen:?}, {least:?}");
                assert!(versions(campaign).contains(other), "{seen:?}, {least:?}");
            }
            (Source::Cache | Source::Redis | Source::Stale, Seen::Campaign(says)) => {
                let campaign = versions(number).find_map(|version| campaign_of(number, version));
                let campaign = campaign.expect("a campaign's link");
                let said = versions(campaign).any(|version| campaign_in(version) == **says);
                assert!(said, "{seen:?}, {least:?} to {most:?}");
            }
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
            let (token, seen, source) = (done.token, Seen::of(done.answer), done.source);
            self.check(token, seen, source);
        }
        self.complete();
    }

    fn complete(&mut self) {
        let now = self.now();
        while let Some(done) = self.edge.next_completion(node(), now).expect("RESP") {
            let (token, seen, source) = (done.token, Seen::of(done.answer), done.source);
            self.check(token, seen, source);
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
        4 => (0..KEYS).prop_map(Step::Change),
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
        world.ask(0);
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

/// A link of a campaign that is kept, and the campaign.
fn kept_link(tracking: Tracking) -> World {
    let mut world = World::new(tracking, 1 << 16);
    world.drive();
    settle(&mut world, 3);
    settle(&mut world, 3);
    settle(&mut world, 3);
    assert_eq!(world.last, Some((Seen::OfCampaign(0, 0), Source::Cache)));
    // The link was not kept the first time; the campaign was.
    assert_eq!(world.redis.gets, [3, 7, 3]);
    world.redis.gets.clear();
    world
}

#[test]
fn a_change_of_a_campaign_is_seen_by_its_cached_links_which_are_not_read_again() {
    for tracking in [Tracking::OptIn, Tracking::Broadcast] {
        let mut world = kept_link(tracking);
        for version in 1..=6 {
            world.redis.change(7);
            world.deliver(1, 0);
            settle(&mut world, 3);
            let seen = match campaign_in(version) {
                Campaign::Live => Seen::OfCampaign(0, version),
                Campaign::Paused => Seen::Campaign(&Campaign::Paused),
                Campaign::Absent => Seen::Campaign(&Campaign::Absent),
            };
            assert_eq!(world.last, Some((seen.clone(), Source::Redis)));
            assert_eq!(world.redis.gets, [7]);
            settle(&mut world, 3);
            assert_eq!(world.last, Some((seen, Source::Cache)));
            assert_eq!(world.redis.gets, [7]);
            world.redis.gets.clear();
        }
        world.redis.change(3);
        world.deliver(1, 0);
        settle(&mut world, 3);
        assert_eq!(world.last, Some((Seen::OfCampaign(1, 6), Source::Redis)));
        assert_eq!(world.redis.gets, [3]);
    }
}

#[test]
fn however_many_links_wait_for_a_campaign_it_is_asked_for_once() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.drive();
    world.redis.run(2);
    world.deliver(2, 0);
    for _ in 0..50 {
        world.ask(3);
        world.ask(5);
    }
    world.drive();
    world.redis.run(2);
    world.deliver(2, 7);
    world.drive();
    // The links are known now; who comes asks for them again, and for the campaign with them.
    world.ask(3);
    world.drive();
    assert!(world.answered.is_empty());
    world.redis.run(8);
    world.deliver(8, 3);
    world.drive();
    assert_eq!(world.answered.len(), 101);
    assert_eq!(world.redis.gets, [3, 5, 7, 3]);
}

#[test]
fn the_budget_covers_the_link_and_its_campaign() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.drive();
    world.redis.run(2);
    world.deliver(2, 0);
    world.ask(3);
    world.drive();
    world.ms += 40;
    world.redis.run(1);
    world.deliver(1, 0);
    world.drive();
    assert_eq!(world.edge.next_deadline(), world.ms + 10);
    world.ms += 10;
    world.drive();
    assert_eq!(world.last, Some((Seen::Nothing, Source::None)));
    // What comes later is kept for others.
    world.redis.run(4);
    world.deliver(4, 0);
    settle(&mut world, 3);
    assert_eq!(world.redis.gets, [3, 7, 3]);
}

#[test]
fn a_link_and_its_campaign_are_served_for_a_while_without_redis() {
    let mut world = kept_link(Tracking::OptIn);
    world.disconnect();
    let lost_at = world.ms;
    // As after an attempt that has failed.
    let now = world.now();
    world.edge.connecting(node(), now);
    world.edge.disconnected(node(), &LinkError::Lost, now);
    for (ms, expected) in [
        (0, (Seen::OfCampaign(0, 0), Source::Stale)),
        (STALE_FOR - 1, (Seen::OfCampaign(0, 0), Source::Stale)),
        (STALE_FOR, (Seen::Nothing, Source::None)),
    ] {
        world.ms = lost_at + ms;
        world.ask(3);
        assert_eq!(world.last, Some(expected));
    }
}

#[test]
fn a_campaign_that_is_late_is_served_as_it_was() {
    let mut world = kept_link(Tracking::OptIn);
    // Another link of the campaign, which is not kept, after coherence was lost.
    world.disconnect();
    world.ms += 60;
    world.drive();
    world.redis.run(2);
    world.deliver(2, 0);
    world.ask(5);
    world.drive();
    world.redis.run(1);
    world.deliver(1, 0);
    world.drive();
    world.ms += 50;
    world.drive();
    assert_eq!(world.last, Some((Seen::OfCampaign(0, 0), Source::Stale)));
}

#[test]
fn what_is_early_becomes_live_by_the_clock_alone_and_is_over_in_time() {
    for early in [3, 7, 0] {
        let mut world = World::new(Tracking::OptIn, 1 << 16);
        world.drive();
        let (record, number) = match early {
            3 => ("1 C7 1 1010-1020 5", 3),
            7 => ("1 302 1 1010-1020 https://e/{0}/6", 3),
            _ => ("1 302 1 1010-1020 https://e/5", 0),
        };
        world.redis.others.insert(early, record.to_owned());
        for _ in 0..4 {
            settle(&mut world, number);
            assert_eq!(world.last.take().map(|(seen, _)| seen), Some(Seen::Unknown));
        }
        assert!(world.redis.gets.len() <= 3, "it is kept");
        world.unix = 1009;
        settle(&mut world, number);
        assert_eq!(world.last, Some((Seen::Unknown, Source::Cache)));
        world.unix = 1010;
        let live = match early {
            3 => Seen::OfCampaign(5, 0),
            7 => Seen::OfCampaign(0, 6),
            _ => Seen::Link(5),
        };
        for source in [Source::Redis, Source::Cache] {
            settle(&mut world, number);
            assert_eq!(world.last, Some((live.clone(), source)));
        }
        world.unix = 1019;
        settle(&mut world, number);
        assert_eq!(world.last, Some((live, Source::Cache)));
        world.unix = 1020;
        settle(&mut world, number);
        let gone = Seen::Campaign(&Campaign::Paused);
        assert_eq!(world.last, Some((gone, Source::Cache)));
    }
}

#[test]
fn a_parameter_that_the_link_has_not_makes_a_miss() {
    let mut world = kept_link(Tracking::OptIn);
    world
        .redis
        .others
        .insert(7, "1 302 1 0 https://e/{1}/1".to_owned());
    world.redis.change(7);
    world.deliver(1, 0);
    for source in [Source::Redis, Source::Cache] {
        settle(&mut world, 3);
        let missed = Seen::Campaign(&Campaign::Absent);
        assert_eq!(world.last, Some((missed, source)));
    }
}
