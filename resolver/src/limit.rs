//! The miss limit: a limit for addresses and networks that request unknown codes.
//!
//! Only misses are charged, so that visitors of live links are never limited by their own
//! requests. Over its limit an address learns nothing: no code is looked up for it that is not in
//! the worker's cache, live or not.
//!
//! A miss is charged to the client's address and to its network, a wider prefix with a higher limit: a client with a
//! whole network of addresses gets the network's limit, not one for each address.
//!
//! The limit is the generic cell rate algorithm (ITU-T I.371): an address has a theoretical
//! arrival time, every miss moves it on by one interval from there or from now, and the address is
//! limited while that time is further ahead than the burst allows. It is the arithmetic of nginx'
//! own `limit_req`. So a limited address gets one look-up per interval: the first request after it,
//! whichever client behind the address sends it, and further ones until one of them is a miss.
//!
//! The times lie in memory that all worker processes share, one word for each address: its tag
//! in the upper 24 bits, its time in the lower 40, in milliseconds. A word is only ever replaced
//! as a whole, by compare-and-swap, so a worker may be killed between any two instructions and
//! the others find a table that is right. There is nothing to lock and nothing to clean up: a
//! time that has passed is a free place.
//!
//! **The alarm** is one more word, the time until which an address may be limited. While none is,
//! it is all that a request reads.
//!
//! **Collisions.** Two addresses are taken for each other when they fall into the same bucket
//! (of 8 words) with the same tag. An address that never missed is thus limited by mistake with a
//! probability of at most 8 / 2²⁴ = 4.8e-7 for itself, and as much for its network, when every
//! bucket is full of limited addresses; in a table of 1 MiB (16384 buckets) with 10000 limited
//! addresses it is 3.6e-8. Bucket and tag come from SipHash under a key that is only in the shared
//! memory, so no client can target another.
//!
//! **A full bucket** evicts the address that is the least limited. To be forgotten, a client needs
//! misses from about as many addresses as the table has words.

use std::sync::atomic::{AtomicU64, Ordering};

use vocabulary::number::parse_decimal;
use vocabulary::siphash::siphash24;

/// The number of addresses in a bucket: 64 bytes, one cache line if the memory is aligned to one.
const BUCKET_WORDS: usize = 8;

/// The number of bits of a word that hold the time. It wraps after 34.8 years.
const TIME_BITS: u32 = 40;

/// The bits of a word that hold the time.
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The greatest debt of an address beyond the burst, in milliseconds. Workers that charge at the
/// same moment, and a strict limit, which charges refused requests as well, take an address beyond
/// its burst; a minute bounds the time for which all clients behind the address pay for it.
const LONGEST_DEBT: u64 = 60_000;

/// The greatest difference between the clocks of workers before a time is invalid, in milliseconds:
/// a worker reads its clock once per turn of its event loop, and a turn may be slow.
const CLOCK_SLACK: u64 = 60_000;

/// The most attempts at a charge while other workers change the same word.
const MOST_TRIES: usize = 8;

/// The requests of a limited address that the cache may answer: 1000 per second, and as many at
/// once. Without this, an address could guess at the cached links as fast as nginx answers.
const FLOOD: MissLimit = MissLimit {
    interval: 1,
    tolerance: 1000,
    longest: 1001,
};

/// Rate of misses that are free of consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time that one miss stands for, in milliseconds.
    interval: u64,
}

impl Rate {
    /// The most misses per second that a rate may allow. The interval is a whole number of
    /// milliseconds, rounded to the nearest; up to here that is off by at most 5 %.
    pub const MOST_PER_SECOND: u64 = 100;

    /// Reads a rate as nginx' `limit_req` does: `1r/s`, `30r/m`. `None` for anything else, for 0
    /// and for more than [`Rate::MOST_PER_SECOND`].
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (number, period) = match text.strip_suffix(b"r/s") {
            Some(number) => (number, 1000),
            None => (text.strip_suffix(b"r/m")?, 60_000),
        };
        let number = parse_decimal(number)?;
        let most = Self::MOST_PER_SECOND * period / 1000;
        (1..=most).contains(&number).then(|| Self {
            interval: (period + number / 2) / number,
        })
    }

    /// The rate that is so many times as high, up to the highest.
    #[must_use]
    pub fn times(self, factor: u64) -> Self {
        let least = 1000 / Self::MOST_PER_SECOND;
        Self {
            interval: (self.interval / factor.max(1)).max(least),
        }
    }

    /// The time that one miss stands for, in milliseconds.
    pub fn interval(self) -> u64 {
        self.interval
    }

    /// The greatest burst at this rate.
    pub fn most_burst(self) -> u32 {
        u32::try_from(MissLimit::LONGEST_WINDOW / self.interval).unwrap_or(u32::MAX)
    }
}

/// A rate and a burst: the misses of an address or a network without consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissLimit {
    /// The time that one miss stands for.
    interval: u64,
    /// The furthest that the time of an address may be ahead without it being limited.
    tolerance: u64,
    /// The furthest that the time of an address gets ahead.
    longest: u64,
}

impl MissLimit {
    /// The longest that a burst may take to be forgotten, in milliseconds: one day.
    pub const LONGEST_WINDOW: u64 = 86_400_000;

    /// An address may miss `burst` times at once and one time more, and then at `rate`. `None`
    /// when the burst takes longer than [`MissLimit::LONGEST_WINDOW`] to be forgotten.
    pub fn new(rate: Rate, burst: u32) -> Option<Self> {
        let tolerance = rate.interval.checked_mul(u64::from(burst))?;
        (tolerance <= Self::LONGEST_WINDOW).then(|| Self {
            interval: rate.interval,
            tolerance,
            longest: tolerance + rate.interval + LONGEST_DEBT,
        })
    }
}

/// The limits of an address and of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit of each address.
    pub address: MissLimit,
    /// The limit of all addresses of a network together.
    pub network: MissLimit,
}

impl Limits {
    /// Returns whether a network has at least the burst and the rate of one of its addresses;
    /// otherwise the limit of the address would never be reached.
    pub fn are_ordered(&self) -> bool {
        let (address, network) = (self.address, self.network);
        network.interval <= address.interval
            && network.tolerance / network.interval >= address.tolerance / address.interval
    }
}

/// The meaning of a word of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The misses of an address.
    Address,
    /// The misses of a network.
    Network,
    /// The requests of a limited address.
    FloodOfAddress,
    /// The requests of a limited network.
    FloodOfNetwork,
}

/// Key of a client's address: all of an IPv4 address and its /24 network; of an IPv6 address its
/// first 64 bits, because a subscriber gets a whole /64, and its /48 network, which a site gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey {
    address: u64,
    network: u64,
}

impl AddressKey {
    /// The key of an address in network order: 4 bytes are IPv4, 16 are IPv6. An IPv4 address
    /// that is mapped into IPv6 (`::ffff:0:0/96`) or translated (`64:ff9b::/96`, RFC 6052) counts
    /// as itself. `None` for anything else; a Unix socket has no address.
    pub fn of(address: &[u8]) -> Option<Self> {
        // IPv4 fills the numbers below 2³²; as /64 those are `::/32`, which is unassigned.
        match *address {
            [a, b, c, d]
            | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
            | [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => {
                let address = u64::from(u32::from_be_bytes([a, b, c, d]));
                Some(Self::within(address, 8))
            }
            [a, b, c, d, e, f, g, h, _, _, _, _, _, _, _, _] => {
                let address = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                Some(Self::within(address, 16))
            }
            _ => None,
        }
    }

    /// An address, and the network without the last bits of it.
    fn within(address: u64, bits: u32) -> Self {
        Self {
            address,
            network: address >> bits << bits,
        }
    }

    fn number(self, scope: Scope) -> u64 {
        match scope {
            Scope::Address | Scope::FloodOfAddress => self.address,
            Scope::Network | Scope::FloodOfNetwork => self.network,
        }
    }
}

/// Result of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// The address reached its limit by this miss.
    pub address: bool,
    /// The network reached its limit by this miss.
    pub network: bool,
}

/// The misses of addresses, in shared memory.
///
/// All times that are passed in are milliseconds of one clock that all workers of the host share.
/// The best is one that never goes back, as nginx' `ngx_current_msec`; wall clock time will do.
/// If the clock jumps back, an address that missed a short while ago may be limited for as long as
/// the jump, but not beyond the furthest that a limit reaches (burst and a minute): times further
/// ahead than that count as passed. An address that never missed is never affected. If the clock
/// jumps on, misses are forgotten.
///
/// All users of one table should have the same limits. When they change with a reload, the times
/// stay; those further ahead than the new limits can reach count as passed.
#[derive(Clone, Copy, Debug)]
pub struct MissTable<'a> {
    buckets: &'a [[AtomicU64; BUCKET_WORDS]],
    alarm: &'a AtomicU64,
    seed: [u8; 16],
    limits: Limits,
    /// The furthest that any time of the table gets ahead, whatever it stands for.
    longest: u64,
}

impl<'a> MissTable<'a> {
    /// Returns a view of the table in `words`, which were 0 when the first process began, as
    /// `alarm` was; words that fill no bucket of 8 are left over. `seed` is random, secret and the
    /// same in all processes. A table without a bucket limits no address.
    pub fn new(
        words: &'a [AtomicU64],
        alarm: &'a AtomicU64,
        seed: [u8; 16],
        limits: Limits,
    ) -> Self {
        let (buckets, _) = words.as_chunks();
        Self {
            buckets,
            alarm,
            seed,
            limits,
            longest: limits.address.longest.max(limits.network.longest),
        }
    }

    /// Returns whether any address may be limited, from the alarm only.
    #[inline]
    pub fn is_anyone_limited(alarm: &AtomicU64, now: u64) -> bool {
        alarm.load(Ordering::Relaxed) > now
    }

    /// Returns whether an address or its network has missed too often, and which; reads only.
    #[inline]
    pub fn limited(&self, key: AddressKey, now: u64) -> Option<Scope> {
        if !Self::is_anyone_limited(self.alarm, now) {
            return None;
        }
        let over = |scope| {
            let limit = self.limit(scope);
            self.find_ahead(key, scope, now) > limit.tolerance
        };
        [Scope::Address, Scope::Network]
            .into_iter()
            .find(|&scope| over(scope))
    }

    /// Charges an address and its network for a miss.
    ///
    /// A charge is lost when the table has no bucket, or when 8 times in a row another worker
    /// changed the same place at the same moment, which only costs that one miss.
    pub fn charge(&self, key: AddressKey, now: u64) -> Charged {
        Charged {
            address: self.move_on(key, Scope::Address, now) == Some(true),
            network: self.move_on(key, Scope::Network, now) == Some(true),
        }
    }

    /// Takes a charge back: what was asked for exists after all.
    pub fn refund(&self, key: AddressKey, now: u64) {
        for scope in [Scope::Address, Scope::Network] {
            let interval = self.limit(scope).interval;
            self.change(key, scope, now, |before| before.saturating_sub(interval));
        }
    }

    /// Counts a request of a limited address, `limited` for the scope that is: returns whether the
    /// cache may answer it. Requests beyond the rate are not counted, so that they leave as many
    /// answers to the others behind the address.
    pub fn admits(&self, key: AddressKey, limited: Scope, now: u64) -> bool {
        let flood = match limited {
            Scope::Network | Scope::FloodOfNetwork => Scope::FloodOfNetwork,
            Scope::Address | Scope::FloodOfAddress => Scope::FloodOfAddress,
        };
        if self.find_ahead(key, flood, now) > FLOOD.tolerance {
            return false;
        }
        self.move_on(key, flood, now);
        true
    }

    fn limit(&self, scope: Scope) -> MissLimit {
        match scope {
            Scope::Address => self.limits.address,
            Scope::Network => self.limits.network,
            Scope::FloodOfAddress | Scope::FloodOfNetwork => FLOOD,
        }
    }

    /// Moves a time on by one interval: returns whether it went over its limit by this, `None` if
    /// the charge was lost.
    fn move_on(&self, key: AddressKey, scope: Scope, now: u64) -> Option<bool> {
        let limit = self.limit(scope);
        let (before, after) = self.change(key, scope, now, |before| {
            (before + limit.interval).min(limit.longest)
        })?;
        let is_over = after > limit.tolerance;
        if is_over && matches!(scope, Scope::Address | Scope::Network) {
            let until = now.saturating_add(after - limit.tolerance);
            self.alarm.fetch_max(until, Ordering::Relaxed);
        }
        Some(is_over && before <= limit.tolerance)
    }

    /// Changes the time of a key: `next` gets by how many milliseconds it is ahead. Returns by how
    /// many it was and is ahead; `None` if the change was lost.
    fn change(
        &self,
        key: AddressKey,
        scope: Scope,
        now: u64,
        next: impl Fn(u64) -> u64,
    ) -> Option<(u64, u64)> {
        let (bucket, tag) = self.place(key, scope)?;
        let longest = self.limit(scope).longest;
        (0..MOST_TRIES).find_map(|_| {
            let (place, old) = self.find(bucket, tag, now);
            let before = if old >> TIME_BITS == tag {
                Self::ahead(old, now, longest)
            } else {
                0
            };
            let after = next(before);
            if after == before {
                return Some((before, after));
            }
            let new = tag << TIME_BITS | now.wrapping_add(after) & TIME_MASK;
            // `Ordering::Relaxed`: a word is complete by itself, and publishes no other memory.
            place
                .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
                .ok()
                .map(|_| (before, after))
        })
    }

    /// The bucket and the tag of a key.
    #[inline]
    fn place(&self, key: AddressKey, scope: Scope) -> Option<(&'a [AtomicU64; BUCKET_WORDS], u64)> {
        let mut input = [scope as u8; 9];
        input[..8].copy_from_slice(&key.number(scope).to_le_bytes());
        let hash = siphash24(&self.seed, &input);
        // The upper bits choose the bucket, the lower ones are the tag; no table has so many
        // buckets that they would meet.
        let index = (u128::from(hash) * self.buckets.len() as u128) >> u64::BITS;
        // 0 is the tag of a word that was never used.
        let tag = (hash & (u64::MAX >> TIME_BITS)).max(1);
        Some((self.buckets.get(index as usize)?, tag))
    }

    /// The milliseconds by which the time of a key is ahead of now.
    #[inline]
    fn find_ahead(&self, key: AddressKey, scope: Scope, now: u64) -> u64 {
        let Some((bucket, tag)) = self.place(key, scope) else {
            return 0;
        };
        let longest = self.limit(scope).longest;
        let words = bucket.iter().map(|word| word.load(Ordering::Relaxed));
        words
            .filter(|word| word >> TIME_BITS == tag)
            .map(|word| Self::ahead(word, now, longest))
            .max()
            .unwrap_or(0)
    }

    /// Finds the word to charge, and its content: that with the tag, or a free one, or that of the
    /// address that is the least limited.
    ///
    /// If two workers look for a free word at once, one of them may find that of an address whose
    /// time has passed only for its own clock, so that an address gets two words. Each is charged
    /// less than it should be until one of them is free again; that is harmless.
    fn find(
        &self,
        bucket: &'a [AtomicU64; BUCKET_WORDS],
        tag: u64,
        now: u64,
    ) -> (&'a AtomicU64, u64) {
        let mut best = &bucket[0];
        let mut content = best.load(Ordering::Relaxed);
        let mut least = Self::ahead(content, now, self.longest);
        if content >> TIME_BITS == tag {
            return (best, content);
        }
        for word in &bucket[1..] {
            let found = word.load(Ordering::Relaxed);
            if found >> TIME_BITS == tag {
                return (word, found);
            }
            let ahead = Self::ahead(found, now, self.longest);
            if ahead < least {
                (best, content, least) = (word, found, ahead);
            }
        }
        (best, content)
    }

    /// Returns the milliseconds by which a word's time is ahead of now; 0 if it has passed, was
    /// never set or is further ahead than the `longest` of its limit.
    #[inline]
    fn ahead(word: u64, now: u64, longest: u64) -> u64 {
        // The difference is right also when the time's 40 bits have run over.
        let ahead = word.wrapping_sub(now) & TIME_MASK;
        if word == 0 || ahead > longest + CLOCK_SLACK {
            return 0;
        }
        ahead.min(longest)
    }
}
