//! What a worker keeps of what Redis has answered, bounded in bytes.
//!
//! - An answer is kept when its code is asked for a second time ([`Cache::was_asked_before`]); a
//!   campaign at once, since what is asked for a second time are its links.
//! - Of a campaign's link its campaign and its parameters are kept, and of the campaign its template:
//!   a link has its target when it is answered.
//! - When there is no room, the oldest goes; one that was read since it came is moved to the front
//!   once more instead. This keeps what is read often, costs nothing when something is read but a
//!   mark, and needs no lists. (Known as second chance, CLOCK, or FIFO with reinsertion.)
//! - While Redis tells of changes, entries are fresh. When it stops, an epoch ends and they are
//!   stale: they may be served for a while where Redis can't be asked, and that is all.

mod doorkeeper;
mod index;
mod ring;

use std::hash::BuildHasher;

use vocabulary::{CampaignId, Code, Parameters, RedirectStatus};

use crate::answer::{Answer, MissReason, Reading, Said};
use crate::edge::Now;
use crate::hash::CodeHashing;
use crate::key::Key;

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

/// An entry, until the cache is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    number: u32,
    kind: u8,
    until: u64,
}

impl Entry {
    /// Whether it is that of a link which leads where its campaign says: [`Cache::answer`] does not
    /// tell where, and [`Cache::campaign_link`] does.
    #[inline]
    pub fn is_campaign_link(self) -> bool {
        self.kind == CAMPAIGN_LINK
    }
}

/// What is kept of a link that leads where its campaign says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CampaignLink<'a> {
    /// The campaign.
    pub campaign: CampaignId,
    /// The second since 1970 from which the link answers 410; 0 for never.
    pub until: u64,
    /// What the campaign's template is filled with.
    pub parameters: Parameters<'a>,
}

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
    moved_body: Vec<u8>,
}

/// Entries of older epochs are not served.
const REMEMBERED_EPOCHS: u32 = 8;

/// The most entries that are moved to the front for the sake of a new one: some 20 microseconds.
const MOST_MOVES: u32 = 256;

/// What is kept, as numbers: a redirect's is its place among those below, and four more when the
/// visitor's query is passed on.
const FORWARDS_QUERY: u8 = 4;
const GONE: u8 = 8;
const UNKNOWN: u8 = 9;
const ABSENT: u8 = 10;
const UNREADABLE: u8 = 11;
const CAMPAIGN_LINK: u8 = 12;
/// Unknown until a time, and of no use from then on.
const EARLY: u8 = 13;
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
            moved_body: Vec::new(),
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

    /// Finds a link's entry that may be served, and whether it may be relied on.
    #[inline]
    pub fn find(&mut self, code: &Code, hash: u64, now: Now) -> Option<(Entry, Freshness)> {
        let number = self.index.find(high(hash), |n| self.ring.is_of(n, code))?;
        self.found(number, now)
    }

    /// Finds a campaign's entry that may be served, and whether it may be relied on.
    pub fn find_campaign(&mut self, id: CampaignId, now: Now) -> Option<(Entry, Freshness)> {
        let hash = high(self.hashing.hash_campaign(id));
        let number = self.index.find(hash, |n| self.ring.is_of_campaign(n, id))?;
        self.found(number, now)
    }

    #[inline]
    fn found(&mut self, number: u32, now: Now) -> Option<(Entry, Freshness)> {
        let facts = self.ring.facts(number)?;
        let freshness = self.freshness(&facts, now)?;
        if facts.kind == EARLY && now.unix >= facts.until {
            return None;
        }
        self.ring.mark(number);
        let entry = Entry {
            number,
            kind: facts.kind,
            until: facts.until,
        };
        Some((entry, freshness))
    }

    /// Finds a link's entry that may be served where Redis can't be asked.
    pub fn find_stale(&mut self, code: &Code, now: Now) -> Option<Entry> {
        let hash = self.hash(code);
        self.find(code, hash, now).map(|(entry, _)| entry)
    }

    /// What an entry says.
    #[inline]
    pub fn answer(&self, entry: Entry, now: Now) -> Answer<'_> {
        match entry.kind {
            GONE => Answer::Gone,
            UNKNOWN | EARLY => Answer::Unknown,
            ABSENT => Answer::Miss(MissReason::Absent),
            UNREADABLE.. => Answer::Miss(MissReason::Unreadable),
            _ if entry.until != 0 && now.unix >= entry.until => Answer::Gone,
            kind => Answer::Redirect {
                status: REDIRECTS[usize::from(kind % FORWARDS_QUERY)],
                forwards_query: kind >= FORWARDS_QUERY,
                target: self.ring.body(entry.number),
            },
        }
    }

    /// What is kept of a campaign's link; `None` when the entry is none of one.
    pub fn campaign_link(&self, entry: Entry) -> Option<CampaignLink<'_>> {
        if !entry.is_campaign_link() {
            return None;
        }
        let (id, parameters) = self.ring.body(entry.number).split_first_chunk()?;
        Some(CampaignLink {
            campaign: CampaignId::new(u64::from_le_bytes(*id))?,
            until: entry.until,
            parameters: Parameters::from_checked(parameters),
        })
    }

    /// Keeps what was read. What is no answer of Redis, or is too large for this cache, is not
    /// kept.
    pub fn insert(&mut self, key: &Key, reading: &Reading<'_>, now: Now) {
        let hash = self.hashing.hash_one(key);
        self.take_out(key, hash);
        let id;
        let (kind, body): (u8, [&[u8]; 2]) = match reading.said {
            Said::CampaignLink {
                campaign,
                parameters,
            } => {
                id = campaign.get().to_le_bytes();
                (CAMPAIGN_LINK, [&id, parameters.as_bytes()])
            }
            Said::Answer(Answer::Redirect {
                status,
                forwards_query,
                target,
            }) => {
                let kind = REDIRECTS.iter().position(|known| *known == status);
                let query = if forwards_query { FORWARDS_QUERY } else { 0 };
                (kind.unwrap_or_default() as u8 + query, [target, &[]])
            }
            Said::Answer(Answer::Gone) => (GONE, [&[]; 2]),
            Said::Answer(Answer::Unknown) if reading.until != 0 => (EARLY, [&[]; 2]),
            Said::Answer(Answer::Unknown) => (UNKNOWN, [&[]; 2]),
            Said::Answer(Answer::Miss(MissReason::Absent)) => (ABSENT, [&[]; 2]),
            Said::Answer(Answer::Miss(MissReason::Unreadable)) => (UNREADABLE, [&[]; 2]),
            Said::Answer(Answer::Miss(_)) => return,
        };
        let size = Ring::size_of(body[0].len() + body[1].len());
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
            until: reading.until,
        };
        let number = self.ring.append(key, facts, body);
        self.index.insert(high(hash), number);
        self.counts.insertions += 1;
    }

    /// Drops what is kept of a link or campaign: it has changed.
    pub fn remove(&mut self, key: &Key) {
        let hash = self.hashing.hash_one(key);
        if self.take_out(key, hash) {
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
    fn take_out(&mut self, key: &Key, hash: u64) -> bool {
        let taken = self.index.remove(high(hash), |n| match key {
            Key::Link(code) => self.ring.is_of(n, code),
            Key::Campaign(id) => self.ring.is_of_campaign(n, *id),
        });
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
        let (Some(key), Some(facts)) = (self.ring.key(number), self.ring.facts(number)) else {
            self.ring.bury(number);
            self.ring.pass();
            return true;
        };
        let hash = high(self.hashing.hash_one(key));
        self.index.remove(hash, |other| other == number);
        let stays =
            *moves > 0 && self.ring.is_marked(number) && self.freshness(&facts, now).is_some();
        self.moved_body.clear();
        if stays {
            self.moved_body.extend_from_slice(self.ring.body(number));
        }
        self.ring.bury(number);
        self.ring.pass();
        // At the end of the memory the room that it has left may not be enough.
        if stays && self.ring.has_room(Ring::size_of(self.moved_body.len())) {
            *moves -= 1;
            let number = self.ring.append(&key, facts, [&self.moved_body, &[]]);
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
