//! What a worker keeps of what Redis has answered, bounded in bytes.
//!
//! - An answer is kept when its code is asked for a second time ([`Cache::was_asked_before`]).
//! - When there is no room, the oldest goes; one that was read since it came is moved to the front
//!   once more instead. This keeps what is read often, costs nothing when something is read but a
//!   mark, and needs no lists. (Known as second chance, CLOCK, or FIFO with reinsertion.)
//! - While Redis tells of changes, entries are fresh. When it stops, an epoch ends and they are
//!   stale: they may be served for a while where Redis can't be asked, and that is all.

mod doorkeeper;
mod index;
mod ring;

use vocabulary::{Code, RedirectStatus};

use crate::answer::{Answer, MissReason};
use crate::edge::Now;
use crate::hash::CodeHashing;

use doorkeeper::Doorkeeper;
use index::Index;
use ring::{Facts, Oldest, Ring};

/// How much is kept and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The bound, in bytes, at least [`Cache::LEAST_BYTES`]; everything that is needed to find
    /// entries counts.
    pub bytes: usize,
    /// How long an entry may be served after Redis has stopped to tell of changes, in
    /// milliseconds.
    pub stale_for: u64,
    /// How long an entry may be served at all, in milliseconds.
    pub longest_age: u64,
}

/// Whether an entry may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Redis would have told if it had changed.
    Fresh,
    /// It may have changed; it may be served if Redis can't be asked.
    Stale,
}

/// Names an entry until the cache is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u32);

/// What happened, counted since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Answers that were kept.
    pub insertions: u64,
    /// Entries that had to go to make room.
    pub evictions: u64,
    /// Entries that were dropped because Redis told of a change.
    pub invalidations: u64,
    /// How often everything was dropped because Redis told so.
    pub clears: u64,
}

/// A worker's cache.
#[derive(Debug)]
pub struct Cache {
    settings: CacheSettings,
    hashing: CodeHashing,
    index: Index,
    ring: Ring,
    doorkeeper: Doorkeeper,
    epoch: u32,
    /// Whether anything was kept in this epoch.
    is_epoch_used: bool,
    /// When the epochs before this one ended, in milliseconds; the place of each is its number's
    /// remainder.
    ends: [u64; REMEMBERED_EPOCHS as usize],
    counts: CacheCounts,
    /// For an entry that is moved.
    moved_target: Vec<u8>,
}

/// Entries of older epochs are not served.
const REMEMBERED_EPOCHS: u32 = 8;

/// The most entries that are moved to the front for the sake of a new one: some 20 microseconds.
const MOST_MOVES: u32 = 256;

/// The answers that are kept, as numbers.
const GONE: u8 = 4;
const UNKNOWN: u8 = 5;
const ABSENT: u8 = 6;
const UNREADABLE: u8 = 7;
const REDIRECTS: [RedirectStatus; 4] = [
    RedirectStatus::MovedPermanently,
    RedirectStatus::Found,
    RedirectStatus::TemporaryRedirect,
    RedirectStatus::PermanentRedirect,
];

impl Cache {
    /// The least bytes that a cache can have.
    pub const LEAST_BYTES: usize = 64 << 10;

    /// The most bytes that a cache can have.
    pub const MOST_BYTES: usize = 16 << 30;

    /// Makes an empty cache.
    pub fn new(settings: &CacheSettings, hashing: CodeHashing) -> Self {
        let bytes = settings.bytes.clamp(Self::LEAST_BYTES, Self::MOST_BYTES);
        // A link's entry takes about 110 bytes, so that the table will be half full at most.
        let places = bytes / 96;
        let doorkeeper = Doorkeeper::new(bytes / 32);
        let rest = bytes - doorkeeper.bytes() - Index::bytes_for(places);
        Self {
            settings: *settings,
            hashing,
            index: Index::new(places),
            ring: Ring::new(rest),
            doorkeeper,
            epoch: 0,
            is_epoch_used: false,
            ends: [0; REMEMBERED_EPOCHS as usize],
            counts: CacheCounts::default(),
            moved_target: Vec::new(),
        }
    }

    /// The hash of a code, as the other functions want it.
    #[inline]
    pub fn hash(&self, code: &Code) -> u64 {
        self.hashing.hash(code)
    }

    /// Whether a code was asked for lately; it was from now on.
    #[inline]
    pub fn was_asked_before(&mut self, hash: u64) -> bool {
        self.doorkeeper.knows(hash)
    }

    /// Finds an entry that may be served, and whether it may be relied on.
    #[inline]
    pub fn find(&mut self, code: &Code, hash: u64, now: Now) -> Option<(Entry, Freshness)> {
        let number = self.index.find(high(hash), |n| self.ring.is_of(n, code))?;
        let freshness = self.freshness(&self.ring.facts(number)?, now)?;
        self.ring.mark(number);
        Some((Entry(number), freshness))
    }

    /// Finds an entry that may be served where Redis can't be asked.
    pub fn find_stale(&mut self, code: &Code, now: Now) -> Option<Entry> {
        let hash = self.hash(code);
        self.find(code, hash, now).map(|(entry, _)| entry)
    }

    /// What an entry says.
    #[inline]
    pub fn answer(&self, Entry(number): Entry, now: Now) -> Answer<'_> {
        let unreadable = Answer::Miss(MissReason::Unreadable);
        let Some(facts) = self.ring.facts(number) else {
            return unreadable;
        };
        match facts.kind {
            GONE => Answer::Gone,
            UNKNOWN => Answer::Unknown,
            ABSENT => Answer::Miss(MissReason::Absent),
            kind => match REDIRECTS.get(usize::from(kind)) {
                Some(_) if facts.expiry != 0 && now.unix >= facts.expiry => Answer::Gone,
                Some(&status) => Answer::Redirect {
                    status,
                    target: self.ring.target(number),
                },
                None => unreadable,
            },
        }
    }

    /// Keeps an answer. `expiry` is in seconds since 1970, 0 for never. What is no answer of
    /// Redis, or is too large for this cache, is not kept.
    pub fn insert(&mut self, code: &Code, answer: Answer<'_>, expiry: u64, now: Now) {
        let hash = self.hash(code);
        self.take_out(code, hash);
        let (kind, target): (u8, &[u8]) = match answer {
            Answer::Redirect { status, target } => {
                let kind = REDIRECTS.iter().position(|known| *known == status);
                (kind.unwrap_or_default() as u8, target)
            }
            Answer::Gone => (GONE, &[]),
            Answer::Unknown => (UNKNOWN, &[]),
            Answer::Miss(MissReason::Absent) => (ABSENT, &[]),
            Answer::Miss(MissReason::Unreadable) => (UNREADABLE, &[]),
            Answer::Miss(_) => return,
        };
        let size = Ring::size_of(target.len());
        if size > self.ring.bytes() / 4 {
            return;
        }
        let mut moves = MOST_MOVES;
        while self.index.is_full() || !self.ring.has_room(size) {
            if !self.evict(&mut moves, now) {
                return;
            }
        }
        self.is_epoch_used = true;
        let facts = Facts {
            kind,
            epoch: self.epoch,
            born: seconds(now),
            expiry,
        };
        let number = self.ring.append(code, facts, target);
        self.index.insert(high(hash), number);
        self.counts.insertions += 1;
    }

    /// Drops what is kept of a code: it has changed.
    pub fn remove(&mut self, code: &Code) {
        let hash = self.hash(code);
        if self.take_out(code, hash) {
            self.counts.invalidations += 1;
        }
    }

    /// Drops everything: anything may have changed.
    pub fn clear(&mut self) {
        self.index.clear();
        self.ring.clear();
        self.counts.clears += 1;
    }

    /// Says that nobody tells of changes any more of what was kept until now.
    pub fn end_epoch(&mut self, now: Now) {
        // A connection that comes and goes does not use up the epochs that are remembered.
        if !std::mem::take(&mut self.is_epoch_used) {
            return;
        }
        self.ends[(self.epoch % REMEMBERED_EPOCHS) as usize] = now.ms;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// How often an epoch has ended.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Where in memory finding an entry begins, so that it can be fetched before it is needed.
    #[inline]
    pub fn search_address(&self, hash: u64) -> usize {
        self.index.address(high(hash))
    }

    /// Where in memory an entry with this hash seems to lie, so that it can be fetched before it
    /// is needed; `None` when there is none or it does not stand where it would first.
    #[inline]
    pub fn entry_address(&self, hash: u64) -> Option<usize> {
        let number = self.index.first(high(hash))?;
        Some(self.ring.address(number))
    }

    /// Where what a hit reads lies in memory, for whoever can tell the system how it is used:
    /// addresses and lengths in bytes.
    pub fn extents(&self) -> [(usize, usize); 2] {
        [self.index.extent(), self.ring.extent()]
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    /// How many bytes the entries take, never more than [`Cache::capacity`].
    pub fn bytes(&self) -> usize {
        self.ring.live()
    }

    /// How many bytes entries can take.
    pub fn capacity(&self) -> usize {
        self.ring.bytes()
    }

    /// What has happened so far.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    #[inline]
    fn freshness(&self, facts: &Facts, now: Now) -> Option<Freshness> {
        let age = self.epoch.wrapping_sub(facts.epoch);
        if age == 0 {
            let lived = u64::from(seconds(now).wrapping_sub(facts.born)) * 1000;
            return Some(if lived < self.settings.longest_age {
                Freshness::Fresh
            } else {
                Freshness::Stale
            });
        }
        if age > REMEMBERED_EPOCHS {
            return None;
        }
        let ended = self.ends[(facts.epoch % REMEMBERED_EPOCHS) as usize];
        let stale_for = now.ms.saturating_sub(ended);
        (stale_for < self.settings.stale_for).then_some(Freshness::Stale)
    }

    /// Takes an entry out; says whether there was one.
    fn take_out(&mut self, code: &Code, hash: u64) -> bool {
        let taken = self.index.remove(high(hash), |n| self.ring.is_of(n, code));
        if let Some(number) = taken {
            self.ring.bury(number);
        }
        taken.is_some()
    }

    /// Makes room at the tail; `false` when there is nothing left to go.
    fn evict(&mut self, moves: &mut u32, now: Now) -> bool {
        let number = match self.ring.oldest() {
            None => return false,
            Some(Oldest::Nothing) => return true,
            Some(Oldest::Entry(number)) => number,
        };
        let (Some(code), Some(facts)) = (self.ring.code(number), self.ring.facts(number)) else {
            self.ring.bury(number);
            self.ring.pass();
            return true;
        };
        let hash = high(self.hash(&code));
        self.index.remove(hash, |other| other == number);
        let stays =
            *moves > 0 && self.ring.is_marked(number) && self.freshness(&facts, now).is_some();
        self.moved_target.clear();
        if stays {
            self.moved_target
                .extend_from_slice(self.ring.target(number));
        }
        self.ring.bury(number);
        self.ring.pass();
        // At the end of the memory the room that it has left may not be enough.
        if stays && self.ring.has_room(Ring::size_of(self.moved_target.len())) {
            *moves -= 1;
            let number = self.ring.append(&code, facts, &self.moved_target);
            self.index.insert(hash, number);
        } else {
            self.counts.evictions += 1;
        }
        true
    }
}

/// The half of a hash that finds entries; the doorkeeper keeps the other.
#[inline]
fn high(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[inline]
fn seconds(now: Now) -> u32 {
    (now.ms / 1000) as u32
}
