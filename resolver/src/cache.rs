//! A worker's cache of Redis' answers, bounded in bytes.
//!
//! - An answer is cached at the second request for its code ([`Cache::was_asked_before`]); a
//!   campaign at the first, since the second requests are for its links.
//! - For a campaign's link the cache has the campaign and the parameters, and for the campaign its
//!   template: every answer builds the target anew.
//! - A full cache evicts the oldest entry, unless it was read since it was inserted: then it moves
//!   to the front once more. Frequently read entries stay, a hit only sets a mark, and no lists are
//!   needed. (Known as second chance, CLOCK, or FIFO with reinsertion.)
//! - While Redis reports changes, entries are fresh. When it stops, an epoch ends and they are
//!   stale: they may only be served for a while, when Redis can't be asked.

mod doorkeeper;
mod index;
mod ring;

use std::hash::BuildHasher;

use vocabulary::judge::{instead, is_over, redirect_instead};
use vocabulary::{BadNews, CampaignId, Code, Parameters, Phase, Plan, RedirectStatus};

use crate::answer::{Answer, Judgement, MissReason, Ruling};
use crate::hash::CodeHashing;
use crate::key::Key;
use crate::now::Now;

use doorkeeper::Doorkeeper;
use index::Index;
use ring::{Facts, Oldest, Ring};

/// Limits of the cache in size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The bound, in bytes, at least [`Cache::LEAST_BYTES`]; everything that is needed to find
    /// entries counts.
    pub bytes: usize,
    /// Time for which an entry may be served after Redis has stopped reporting changes, in
    /// milliseconds.
    pub stale_for: u64,
    /// Greatest age of an entry that may be served, in milliseconds.
    pub longest_age: u64,
}

/// Freshness of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Redis would have reported a change.
    Fresh,
    /// It may have changed; it may be served if Redis can't be asked.
    Stale,
}

/// Server that an entry was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The server that is written to.
    Master,
    /// The replica that is asked first.
    Replica,
}

/// An entry, until the cache is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    number: u32,
    kind: u8,
    until: u64,
    freshness: Freshness,
    read_from: ReadFrom,
}

impl Entry {
    /// Reports whether it is a campaign's link. [`Cache::answer`] can't give its target;
    /// [`Cache::campaign_link`] has the parts.
    #[inline]
    pub fn is_campaign_link(self) -> bool {
        (CAMPAIGN_LINK..=LAST_CAMPAIGN_LINK).contains(&self.kind)
    }

    /// Returns its freshness.
    #[inline]
    pub fn freshness(self) -> Freshness {
        self.freshness
    }

    /// Reports whether Redis would have reported a change.
    #[inline]
    pub fn is_fresh(self) -> bool {
        self.freshness == Freshness::Fresh
    }

    /// Returns the server that it was read from.
    #[inline]
    pub fn read_from(self) -> ReadFrom {
        self.read_from
    }
}

/// A cached link of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CampaignLink<'a> {
    /// The campaign.
    pub campaign: CampaignId,
    /// The phase of the link when it was read.
    pub phase: Phase,
    /// The second since 1970 from which it is in another one; 0 for never.
    pub until: u64,
    /// Parameters of the campaign's template.
    pub parameters: Parameters<'a>,
}

impl CampaignLink<'_> {
    /// The phase of the link now. One that has begun meanwhile is taken for live, whether it has ended or not: its record
    /// is read again.
    #[inline]
    pub fn phase(&self, now: Now) -> Phase {
        match self.phase {
            Phase::Live if is_over(self.until, now.unix) => Phase::Over,
            Phase::Early if is_over(self.until, now.unix) => Phase::Live,
            phase => phase,
        }
    }
}

/// Counts of events since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Answers that were kept.
    pub insertions: u64,
    /// Entries evicted for want of memory.
    pub evictions: u64,
    /// Entries that were dropped because Redis reported a change.
    pub invalidations: u64,
    /// Times that everything was dropped at Redis' request.
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
    /// Set when an entry was cached in this epoch.
    is_epoch_used: bool,
    /// Ends of the epochs before this one, in milliseconds; the place of each is its number's
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

/// Numbers of the kinds of entries: a redirect's is its place among those below, plus four when the
/// visitor's query is passed on.
const FORWARDS_QUERY: u8 = 4;
const GONE: u8 = 8;
const UNKNOWN: u8 = 9;
const ABSENT: u8 = 10;
const UNREADABLE: u8 = 11;
/// Not valid before a time, and of no use from then on.
const EARLY: u8 = 12;
/// Live when it was read. The next two are those of links that were not.
const CAMPAIGN_LINK: u8 = 13;
const EARLY_CAMPAIGN_LINK: u8 = 14;
const LAST_CAMPAIGN_LINK: u8 = 15;
/// Added to the kind of a redirect whose target gets the id of a click.
const CLICK_ID: u8 = 16;
/// Added to the kind of a redirect whose target is a plan.
const PLAN: u8 = 32;
/// Added to the kind of bad news that have a target instead.
const INSTEAD: u8 = 64;
/// Added to the kind of what was read from the replica.
const OF_REPLICA: u8 = 0x80;
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

    /// Reports whether a code was requested lately, and records this request.
    #[inline]
    pub fn was_asked_before(&mut self, hash: u64) -> bool {
        self.doorkeeper.knows(hash)
    }

    /// Finds a link's entry that may be served, with its freshness.
    #[inline]
    pub fn find(&mut self, code: &Code, hash: u64, now: Now) -> Option<Entry> {
        let number = self.index.find(high(hash), |n| self.ring.is_of(n, code))?;
        self.found(number, now)
    }

    /// Finds a campaign's entry that may be served, with its freshness.
    pub fn find_campaign(&mut self, id: CampaignId, now: Now) -> Option<Entry> {
        let hash = high(self.hashing.hash_campaign(id));
        let number = self.index.find(hash, |n| self.ring.is_of_campaign(n, id))?;
        self.found(number, now)
    }

    #[inline]
    fn found(&mut self, number: u32, now: Now) -> Option<Entry> {
        let facts = self.ring.facts(number)?;
        let freshness = self.freshness(&facts, now)?;
        let kind = facts.kind & !OF_REPLICA;
        let is_early = matches!(kind & !INSTEAD, EARLY | EARLY_CAMPAIGN_LINK);
        if is_early && is_over(facts.until, now.unix) {
            return None;
        }
        self.ring.mark(number);
        Some(Entry {
            number,
            kind,
            until: facts.until,
            freshness,
            read_from: if kind == facts.kind {
                ReadFrom::Master
            } else {
                ReadFrom::Replica
            },
        })
    }

    /// Returns an entry's answer.
    #[inline]
    pub fn answer(&self, entry: Entry, now: Now) -> Answer<'_> {
        match entry.kind {
            GONE => Answer::Gone,
            UNKNOWN => Answer::Unknown,
            EARLY => Answer::NotYet,
            INSTEAD.. => {
                let news = match entry.kind - INSTEAD {
                    EARLY => BadNews::NotYet,
                    _ => BadNews::Gone,
                };
                redirect_instead(news, self.ring.body(entry.number))
            }
            _ if is_over(entry.until, now.unix) => self.over(entry),
            ABSENT => Answer::Miss(MissReason::Absent),
            UNREADABLE..CLICK_ID => Answer::Miss(MissReason::Unreadable),
            kind => Answer::Redirect {
                status: REDIRECTS[usize::from(kind % FORWARDS_QUERY)],
                forwards_query: kind & FORWARDS_QUERY != 0,
                has_click_id: kind & CLICK_ID != 0,
                is_plan: kind & PLAN != 0,
                instead_of: None,
                target: self.ring.body(entry.number),
            },
        }
    }

    /// The answer of a link that has expired since it was read.
    #[cold]
    fn over(&self, entry: Entry) -> Answer<'_> {
        if entry.kind & PLAN == 0 {
            return Answer::Gone;
        }
        let plan = Plan::from_checked(self.ring.body(entry.number));
        instead(plan, BadNews::Gone)
    }

    /// Returns the parts of a campaign's link; `None` for any other entry.
    pub fn campaign_link(&self, entry: Entry) -> Option<CampaignLink<'_>> {
        if !entry.is_campaign_link() {
            return None;
        }
        let (id, parameters) = self.ring.body(entry.number).split_first_chunk()?;
        Some(CampaignLink {
            campaign: CampaignId::new(u64::from_le_bytes(*id))?,
            phase: match entry.kind {
                CAMPAIGN_LINK => Phase::Live,
                EARLY_CAMPAIGN_LINK => Phase::Early,
                _ => Phase::Over,
            },
            until: entry.until,
            parameters: Parameters::from_checked(parameters),
        })
    }

    /// Caches a judgement, unless it is no answer of Redis or is too large for this cache.
    pub fn insert(
        &mut self,
        key: &Key,
        judgement: &Judgement<Ruling<'_>>,
        read_from: ReadFrom,
        now: Now,
    ) {
        let hash = self.hashing.hash_one(key);
        self.take_out(key, hash);
        let id;
        let (kind, body): (u8, [&[u8]; 2]) = match judgement.ruling {
            Ruling::Campaign {
                campaign,
                parameters,
                phase,
            } => {
                id = campaign.get().to_le_bytes();
                let kind = match phase {
                    Phase::Live => CAMPAIGN_LINK,
                    Phase::Early => EARLY_CAMPAIGN_LINK,
                    Phase::Over => LAST_CAMPAIGN_LINK,
                };
                (kind, [&id, parameters.as_bytes()])
            }
            Ruling::Answer(Answer::Redirect {
                instead_of: Some(news),
                target,
                ..
            }) => {
                let kind = match news {
                    BadNews::NotYet => EARLY,
                    BadNews::Gone | BadNews::Unknown => GONE,
                };
                (kind + INSTEAD, [target, &[]])
            }
            Ruling::Answer(Answer::Redirect {
                status,
                forwards_query,
                has_click_id,
                is_plan,
                instead_of: None,
                target,
            }) => {
                let kind = REDIRECTS.iter().position(|known| *known == status);
                let kind = kind.unwrap_or_default() as u8;
                let query = if forwards_query { FORWARDS_QUERY } else { 0 };
                let click = if has_click_id { CLICK_ID } else { 0 };
                let plan = if is_plan { PLAN } else { 0 };
                (kind + query + click + plan, [target, &[]])
            }
            Ruling::Answer(Answer::Gone) => (GONE, [&[]; 2]),
            Ruling::Answer(Answer::NotYet) => (EARLY, [&[]; 2]),
            Ruling::Answer(Answer::Unknown) => (UNKNOWN, [&[]; 2]),
            Ruling::Answer(Answer::Miss(MissReason::Absent)) => (ABSENT, [&[]; 2]),
            Ruling::Answer(Answer::Miss(MissReason::Unreadable)) => (UNREADABLE, [&[]; 2]),
            Ruling::Answer(Answer::Miss(_)) => return,
        };
        let size = Ring::size_of(key, body[0].len() + body[1].len());
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
            kind: match read_from {
                ReadFrom::Master => kind,
                ReadFrom::Replica => kind | OF_REPLICA,
            },
            epoch: self.epoch,
            born: seconds(now),
            until: judgement.until,
        };
        let number = self.ring.append(key, facts, body);
        self.index.insert(high(hash), number);
        self.counts.insertions += 1;
    }

    /// Drops the entry of a link or campaign, which has changed.
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

    /// Ends the epoch: changes of the entries cached so far are not reported any more.
    pub fn end_epoch(&mut self, now: Now) {
        // A connection that comes and goes does not use up the epochs that are remembered.
        if !std::mem::take(&mut self.is_epoch_used) {
            return;
        }
        self.ends[(self.epoch % REMEMBERED_EPOCHS) as usize] = now.ms;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns the number of epochs that have ended.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the memory address at which the search for an entry begins, for prefetching.
    #[inline]
    pub fn search_address(&self, hash: u64) -> usize {
        self.index.address(high(hash))
    }

    /// Returns the memory address of the entry that probably has this hash, for prefetching; `None`
    /// if there is none or it is not in its first place.
    #[inline]
    pub fn entry_address(&self, hash: u64) -> Option<usize> {
        let number = self.index.first(high(hash))?;
        Some(self.ring.address(number))
    }

    /// Returns the memory that hits read, as addresses and lengths in bytes, so that the owner can
    /// advise the system of its use.
    pub fn extents(&self) -> [(usize, usize); 2] {
        [self.index.extent(), self.ring.extent()]
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Reports whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    /// Returns the bytes that the entries take, never more than [`Cache::capacity`].
    pub fn bytes(&self) -> usize {
        self.ring.live()
    }

    /// Returns the bytes that entries can take.
    pub fn capacity(&self) -> usize {
        self.ring.bytes()
    }

    /// Returns the counts of events so far.
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

    /// Frees memory at the tail; `false` if no entry is left to evict.
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
        // At the end of the memory the free space may be too small.
        if stays
            && self
                .ring
                .has_room(Ring::size_of(&key, self.moved_body.len()))
        {
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
