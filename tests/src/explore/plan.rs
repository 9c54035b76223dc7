//! A schedule: the world of a seed, its faults and their moments.

use std::fmt;
use std::time::Duration;

use crate::chance::Chance;
use crate::proxy::Mode;

/// The world and the faults of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed, also of what clients do.
    pub seed: u64,
    /// The parts.
    pub world: Layout,
    /// The faults, of which at most two happen at the same time.
    pub faults: Vec<Timed>,
    /// The time during which faults begin and clients change links.
    pub length: Duration,
}

/// The parts of a world.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Number of nginx workers.
    pub workers: usize,
    /// `stale=` of the cache.
    pub stale: Duration,
    /// The database.
    pub store: Store,
    /// The Redis servers.
    pub redis: Servers,
    /// Set when workers have files for visits that Redis does not take.
    pub spool: bool,
    /// Number of links besides those of the clients.
    pub links: usize,
}

/// The database of a world, which decides the number of sidecars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// SQLite, one sidecar.
    File,
    /// PostgreSQL, one sidecar.
    Server,
    /// PostgreSQL, two sidecars.
    Shared,
}

/// The Redis servers of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One.
    Single,
    /// A master and its replica behind one address.
    Pair,
    /// A master and a replica that workers read from first.
    Near,
}

/// A connection between two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// From nginx to Redis.
    EdgeRedis,
    /// From the sidecars to Redis.
    SidecarRedis,
    /// From nginx to a sidecar.
    EdgeSidecar(usize),
    /// From the sidecars to PostgreSQL.
    SidecarSql,
    /// From the replica to the master.
    Replication,
    /// From nginx to the replica.
    EdgeReplica,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Redis is killed, and starts again with its data.
    KillRedis,
    /// Redis is stopped, and goes on.
    HangRedis,
    /// Redis loses every key at once.
    Flush,
    /// Redis refuses commands that need memory.
    FillRedis,
    /// Redis is killed at the end, and starts again with the data of the beginning.
    Rewind,
    /// Changes no longer reach the replica, which takes over at the end.
    Failover,
    /// A sidecar is killed, and starts again.
    KillSidecar(usize),
    /// A sidecar is stopped, and goes on.
    HangSidecar(usize),
    /// The clock of the first sidecar is wrong by so many seconds.
    Clock(i64),
    /// Another client of the database holds a lock on all links.
    LockSql,
    /// The database can only be read.
    ReadOnlySql,
    /// The disk of the database is full.
    FullDisk,
    /// PostgreSQL is killed, and starts again.
    KillSql,
    /// nginx reloads its configuration at once.
    Reload,
    /// A worker of nginx is killed at once.
    KillWorker,
    /// A worker of nginx is stopped, and goes on.
    HangWorker,
    /// A connection between two parts passes bytes on in another way.
    Connection(Link, Mode),
}

impl Fault {
    /// The part that only one fault at a time can be about.
    fn part(self) -> &'static str {
        match self {
            Self::KillRedis
            | Self::HangRedis
            | Self::Flush
            | Self::FillRedis
            | Self::Rewind
            | Self::Failover => "redis",
            Self::KillSidecar(0) | Self::HangSidecar(0) | Self::FullDisk => "sidecar",
            Self::KillSidecar(_) | Self::HangSidecar(_) => "other-sidecar",
            Self::Clock(_) => "clock",
            Self::LockSql | Self::ReadOnlySql | Self::KillSql => "sql",
            Self::Reload | Self::KillWorker | Self::HangWorker => "nginx",
            Self::Connection(link, _) => match link {
                Link::EdgeRedis => "edge-redis",
                Link::SidecarRedis => "sidecar-redis",
                Link::EdgeSidecar(0) => "edge-sidecar",
                Link::EdgeSidecar(_) => "edge-other-sidecar",
                Link::SidecarSql => "sql",
                Link::Replication => "redis",
                Link::EdgeReplica => "edge-replica",
            },
        }
    }

    /// The faults that can happen in a world, the frequent ones several times.
    fn all(world: &Layout, chance: &mut Chance) -> Vec<Self> {
        let mut faults = vec![
            Self::KillRedis,
            Self::KillRedis,
            Self::HangRedis,
            Self::Flush,
            Self::FillRedis,
            Self::Rewind,
            Self::KillSidecar(0),
            Self::HangSidecar(0),
            Self::Clock(3600),
            Self::Clock(-3600),
            Self::Clock(300),
            Self::LockSql,
            Self::Reload,
            Self::KillWorker,
            Self::HangWorker,
        ];
        let mut links = vec![Link::EdgeRedis, Link::SidecarRedis, Link::EdgeSidecar(0)];
        if world.store != Store::File {
            faults.extend([Self::KillSql, Self::ReadOnlySql]);
            links.push(Link::SidecarSql);
        }
        match world.store {
            Store::File => faults.push(Self::FullDisk),
            Store::Server => {}
            Store::Shared => {
                faults.extend([Self::KillSidecar(1), Self::HangSidecar(1)]);
                links.push(Link::EdgeSidecar(1));
            }
        }
        match world.redis {
            Servers::Single => {}
            Servers::Pair => faults.extend([Self::Failover; 4]),
            Servers::Near => links.extend([Link::Replication, Link::EdgeReplica]),
        }
        for link in links {
            let slow = Duration::from_millis(20 + chance.below(300));
            let slices = 1 + chance.below(7) as usize;
            faults.extend(
                [
                    Mode::Cut,
                    Mode::Silent,
                    Mode::Slow(slow),
                    Mode::Slices(slices),
                ]
                .map(|mode| Self::Connection(link, mode)),
            );
        }
        faults
    }
}

/// A fault with its moments since the beginning of the schedule.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// The fault.
    pub fault: Fault,
    /// Its beginning.
    pub begin: Duration,
    /// Its end.
    pub end: Duration,
}

/// A pause between two faults of the same part.
const APART: Duration = Duration::from_secs(1);

/// The age of old data that Redis may begin with: changes are not only published, but long forgotten
/// by the outbox.
const AGE: Duration = Duration::from_secs(68);

/// The number of links in Redis when old data come back: too many to be compared within a bound.
const MANY: usize = 20_000;

/// The shortest time in which clients change links, and the time for it after the last fault.
const SHORTEST: Duration = Duration::from_secs(11);
const AFTER: Duration = Duration::from_secs(2);

/// Faults begin after a time in which links are created and cached.
const FIRST: Duration = Duration::from_millis(1500);

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::of(seed);
        // Neighbouring seeds begin alike without this.
        let mut chance = Chance::of(chance.below(u64::MAX));
        let mut world = Layout {
            workers: 1 + chance.below(2) as usize,
            stale: Duration::from_secs(*chance.choose(&[2, 30])),
            store: *chance.choose(&[Store::File, Store::File, Store::Server, Store::Shared]),
            redis: *chance.choose(&[
                Servers::Single,
                Servers::Single,
                Servers::Pair,
                Servers::Near,
            ]),
            spool: chance.below(2) == 0,
            links: 0,
        };
        let all = Fault::all(&world, &mut chance);
        let wanted = 1 + chance.below(4) as usize;
        let mut faults: Vec<Timed> = Vec::new();
        // Some draws do not fit beside the others.
        for _ in 0..40 {
            if faults.len() == wanted {
                break;
            }
            let fault = *chance.choose(&all);
            let begin = FIRST + chance.time_below(Duration::from_millis(6500));
            let is_old = matches!(fault, Fault::Rewind | Fault::Failover) && chance.below(6) == 0;
            let lasts = match chance.below(3) {
                _ if is_old => AGE,
                0 => chance.time_below(Duration::from_millis(1500)),
                1 => chance.time_below(Duration::from_secs(4)),
                // Longer than the longest bound.
                _ => Duration::from_millis(6500) + chance.time_below(Duration::from_secs(2)),
            };
            // A pair fails over once.
            let again = fault == Fault::Failover && faults.iter().any(|it| it.fault == fault);
            let timed = Timed {
                fault,
                begin,
                end: begin + lasts,
            };
            if !again && timed.fits(&faults) {
                faults.push(timed);
            }
        }
        faults.sort_by_key(|timed| timed.begin);
        let last = faults.iter().map(|timed| timed.end).max();
        let length = last.unwrap_or_default().max(SHORTEST) + AFTER;
        if length > AGE {
            world.links = MANY;
        }
        Self {
            seed,
            world,
            faults,
            length,
        }
    }

    /// The plan without one of its faults.
    #[must_use]
    pub fn without(&self, place: usize) -> Self {
        let mut plan = self.clone();
        plan.faults.remove(place);
        plan
    }
}

impl Timed {
    fn overlaps(&self, other: &Self) -> bool {
        self.begin <= other.end && other.begin <= self.end
    }

    fn fits(&self, others: &[Self]) -> bool {
        let is_apart = |other: &Self| {
            self.fault.part() != other.fault.part()
                || self.begin > other.end + APART
                || other.begin > self.end + APART
        };
        let beside: Vec<&Self> = others.iter().filter(|other| self.overlaps(other)).collect();
        let crowded = beside.len() > 1
            && beside
                .iter()
                .enumerate()
                .any(|(place, one)| beside[place + 1..].iter().any(|other| one.overlaps(other)));
        others.iter().all(is_apart) && !crowded
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout {
            workers,
            stale,
            store,
            redis,
            spool,
            links,
        } = self.world;
        writeln!(
            out,
            "seed {}: {workers} workers, stale={}s, {store:?}, {redis:?}, spool: {spool}, {links} links",
            self.seed,
            stale.as_secs()
        )?;
        for Timed { fault, begin, end } in &self.faults {
            let (begin, end) = (begin.as_secs_f64(), end.as_secs_f64());
            writeln!(out, "  {begin:6.2} s to {end:6.2} s  {fault:?}")?;
        }
        Ok(())
    }
}
