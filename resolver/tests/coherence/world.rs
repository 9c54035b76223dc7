//! The edge, the wire, and a Redis that tracks the keys that its client has cached.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shortlink_resolver::vocabulary::Code;
use shortlink_resolver::{
    Address, Answer, CacheSettings, ConnectionError, Edge, EdgeSettings, LookUp, MissReason,
    NodeId, NodeSettings, Now, Source, Tick, TopologySettings, Tracking,
};

pub(crate) const STALE_FOR: u64 = 5_000;
pub(crate) const LONGEST_AGE: u64 = 60_000;
pub(crate) const CODES: usize = 6;
/// The keys of campaigns come behind those of links.
pub(crate) const KEYS: usize = CODES + 2;
pub(crate) const UNIX: u64 = 1_000;
/// Time after the last beat in which bad news is passed on.
pub(crate) const LONGEST_DOUBT: u64 = 4_000;

pub(crate) type Versions = [u64; KEYS];

/// The campaign of a link, as the number of its key; `None` for a link that is of none in this
/// version.
pub(crate) fn campaign_of(number: usize, version: u64) -> Option<usize> {
    let is_of_campaign = match number {
        0 | 1 => false,
        2 => version % 2 == 1,
        _ => true,
    };
    is_of_campaign.then_some(CODES + number % 2)
}

/// The content of a campaign in a version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Campaign {
    Live,
    Paused,
    Absent,
}

pub(crate) fn campaign_in(version: u64) -> Campaign {
    match version % 6 {
        3 => Campaign::Paused,
        5 => Campaign::Absent,
        _ => Campaign::Live,
    }
}

/// Reports whether a code is unknown in a version.
pub(crate) fn is_unknown(number: usize, version: u64) -> bool {
    number == 1 && version % 3 == 2
}

/// The record of a key in a version, written to a data set of a generation; `None` where there is
/// none.
pub(crate) fn record(number: usize, version: u64, generation: u64) -> Option<String> {
    if is_unknown(number, version) {
        return Some(format!("1 404 {generation}"));
    }
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

pub(crate) fn key(number: usize) -> String {
    if number < CODES {
        format!("sl:l:c{number}")
    } else {
        format!("sl:c:{number}")
    }
}

pub(crate) fn number_of(key: &str) -> usize {
    (0..KEYS)
        .find(|&number| self::key(number) == key)
        .expect("a key")
}

pub(crate) fn code(number: usize) -> Code {
    format!("c{number}").parse().expect("a code")
}

pub(crate) fn node() -> NodeId {
    NodeId::new(0)
}

/// Redis: its data, the notifications that it owes each client, and the bytes on the wire.
pub(crate) struct Redis {
    /// Number of changes of each key; the version is the target's.
    pub(crate) versions: Versions,
    /// Generation of the data set when each key was last changed.
    pub(crate) written_in: Versions,
    /// Generation of the data set, and since when it has it.
    pub(crate) generation: u64,
    pub(crate) generation_since: u64,
    /// Number of beats, and the time of the last one.
    pub(crate) beat: u64,
    pub(crate) beaten_at: Option<u64>,
    /// Records that are others than those of their versions.
    pub(crate) others: BTreeMap<usize, String>,
    /// The requested keys.
    pub(crate) gets: Vec<usize>,
    pub(crate) tracking: Tracking,
    /// Keys that its client keeps.
    pub(crate) tracked: BTreeSet<usize>,
    /// True if the reply to the next `GET` will be cached.
    pub(crate) caching: bool,
    pub(crate) input: Vec<u8>,
    /// The pieces on their way to the client, and the versions when each was written.
    pub(crate) wire: VecDeque<(Vec<u8>, Versions)>,
}

impl Redis {
    pub(crate) fn write(&mut self, bytes: impl Into<Vec<u8>>) {
        self.wire.push_back((bytes.into(), self.versions));
    }

    pub(crate) fn beat(&mut self, ms: u64) {
        self.beat += 1;
        self.beaten_at = Some(ms);
    }

    /// Begins a generation: the sidecar has found another data set than it wrote to.
    pub(crate) fn begin_generation(&mut self, ms: u64) {
        self.generation += 1;
        self.generation_since = ms;
        self.beat = 0;
    }

    pub(crate) fn change(&mut self, number: usize) {
        self.versions[number] += 1;
        self.written_in[number] = self.generation;
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

    pub(crate) fn flush_all(&mut self) {
        for version in &mut self.versions {
            *version += 1;
        }
        self.written_in = [self.generation; KEYS];
        self.tracked.clear();
        self.write(">2\r\n$10\r\ninvalidate\r\n_\r\n");
    }

    /// Runs so many of the commands that have arrived.
    pub(crate) fn run(&mut self, count: usize) {
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
                ["GET", "sl:gen"] => {
                    let value = format!("{} 0 {}", self.generation, self.beat);
                    self.write(format!("${}\r\n{value}\r\n", value.len()));
                }
                ["GET", key] => {
                    let number = number_of(key);
                    self.gets.push(number);
                    if std::mem::take(&mut self.caching) {
                        self.tracked.insert(number);
                    }
                    let other = self.others.get(&number).cloned();
                    match other
                        .or_else(|| record(number, self.versions[number], self.written_in[number]))
                    {
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

    pub(crate) fn hang_up(&mut self) {
        self.tracked.clear();
        self.caching = false;
        self.input.clear();
        self.wire.clear();
    }
}

/// Reads a command and returns it with its length in bytes.
pub(crate) fn command(input: &[u8]) -> Option<(Vec<String>, usize)> {
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

/// The edge, the wire and the versions that the edge knows of.
pub(crate) struct World {
    pub(crate) edge: Edge<usize>,
    pub(crate) redis: Redis,
    pub(crate) ms: u64,
    pub(crate) unix: u64,
    pub(crate) connected: bool,
    /// The versions that the edge was notified of, all earlier ones included.
    pub(crate) told: Versions,
    /// Time at which the connection was last lost.
    pub(crate) lost_at: Option<u64>,
    /// The key of each request, and the versions that the edge knew of then.
    pub(crate) asked: Vec<(usize, Versions)>,
    pub(crate) answered: BTreeMap<usize, u32>,
    pub(crate) from_cache: usize,
    pub(crate) last: Option<(Seen, Source)>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The target of a link in a version.
    Link(u64),
    /// That which a link in a version has from its campaign in a version.
    OfCampaign(u64, u64),
    /// The answer of a campaign that is not live.
    Campaign(&'static Campaign),
    Unknown,
    /// Bad news of a source that is not authoritative.
    Doubtful,
    Nothing,
}

impl Seen {
    pub(crate) fn of(answer: Answer<'_>) -> Self {
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
            Answer::NotYet | Answer::Unknown => Self::Unknown,
            Answer::Miss(MissReason::Unreadable | MissReason::Unexpandable(_)) => {
                Self::Campaign(&Campaign::Absent)
            }
            Answer::Miss(MissReason::Doubtful(_)) => Self::Doubtful,
            Answer::Miss(MissReason::Unavailable | MissReason::TimedOut) => Self::Nothing,
            other => panic!("{other:?}"),
        }
    }
}

impl World {
    pub(crate) fn new(tracking: Tracking, bytes: usize) -> Self {
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
                written_in: [1; KEYS],
                generation: 1,
                generation_since: 0,
                beat: 0,
                beaten_at: None,
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

    pub(crate) fn now(&self) -> Now {
        Now {
            ms: self.ms,
            unix: self.unix,
        }
    }

    pub(crate) fn ask(&mut self, number: usize) {
        let request = self.asked.len();
        self.asked.push((number, self.told));
        let looked_up = self.edge.look_up(&code(number), request, self.now());
        if let LookUp::Answered(answer, source) = looked_up {
            let seen = Seen::of(answer);
            self.check(request, seen, source);
        }
    }

    /// An answer must be of the versions that the edge knew of at the request, or later ones.
    pub(crate) fn check(&mut self, request: usize, seen: Seen, source: Source) {
        *self.answered.entry(request).or_default() += 1;
        self.last = Some((seen, source));
        match seen {
            Seen::Campaign(Campaign::Paused) => self.check_authority(source, None),
            Seen::Unknown if !self.redis.others.is_empty() => self.check_authority(source, None),
            Seen::Unknown => self.check_authority(source, Some(self.asked[request].0)),
            _ => {}
        }
        if !self.redis.others.is_empty() {
            return;
        }
        let (number, told) = self.asked[request];
        // Not for ever after a connection was lost; over a connection, Redis reports every change.
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
            (Source::Cache | Source::Redis | Source::Stale, Seen::Doubtful) => {}
            (Source::Cache | Source::Redis, Seen::Unknown) => {
                assert!(versions(number).any(|version| is_unknown(number, version)));
            }
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

    /// Makes the first connection, and proves the data set.
    pub(crate) fn greet(&mut self) {
        self.drive();
        self.redis.run(3);
        self.deliver(3, 0);
        self.prove();
    }

    /// Proves the data set: a second passes, and there is a beat.
    pub(crate) fn prove(&mut self) {
        for _ in 0..2 {
            self.drive();
            self.redis.run(8);
            self.deliver(8, 0);
            self.redis.beat(self.ms);
            self.ms += 1000;
        }
        self.drive();
        self.redis.run(8);
        self.deliver(8, 0);
    }

    /// Bad news needs a beat of the last seconds, and none is passed on without Redis; an unknown
    /// code, that its negative record is of the data set's generation.
    fn check_authority(&self, source: Source, record: Option<usize>) {
        let beaten_at = self.redis.beaten_at.expect("a beat");
        assert!(
            self.ms < beaten_at + LONGEST_DOUBT,
            "no beat since {beaten_at}"
        );
        assert!(matches!(source, Source::Cache | Source::Redis));
        if let Some(number) = record {
            let is_of_now = self.redis.written_in[number] == self.redis.generation;
            assert!(is_of_now || self.ms < self.redis.generation_since + LONGEST_DOUBT);
        }
    }

    /// Lets the edge do what it wants to.
    pub(crate) fn drive(&mut self) {
        let now = self.now();
        loop {
            match self.edge.tick(now) {
                Tick::Idle => break,
                Tick::Connect(id) => {
                    self.edge.connecting(id, now);
                    self.edge.connected(id, now);
                    self.connected = true;
                    // From here on only this connection notifies.
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

    pub(crate) fn complete(&mut self) {
        let now = self.now();
        while let Some(done) = self.edge.next_completion(node(), now).expect("RESP") {
            let (token, seen, source) = (done.token, Seen::of(done.answer), done.source);
            self.check(token, seen, source);
        }
    }

    /// Delivers what is on the wire: so many pieces, each in two parts.
    pub(crate) fn deliver(&mut self, count: usize, cut: usize) {
        for _ in 0..count {
            let Some((bytes, versions)) = self.redis.wire.pop_front() else {
                return;
            };
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            for part in [first, second] {
                self.edge.input_space(node())[..part.len()].copy_from_slice(part);
                self.edge.received(node(), part.len(), 0);
                self.complete();
            }
            self.told = versions;
        }
    }

    pub(crate) fn disconnect(&mut self) {
        if self.connected {
            self.connected = false;
            self.redis.hang_up();
            self.edge
                .disconnected(node(), &ConnectionError::Lost, self.now());
            self.lost_at = Some(self.ms);
            self.complete();
        }
    }
}

/// Asks and lets everything happen that follows.
pub(crate) fn settle(world: &mut World, number: usize) {
    world.ask(number);
    world.drive();
    for _ in 0..4 {
        world.redis.run(8);
        world.deliver(16, 0);
        world.drive();
    }
}
