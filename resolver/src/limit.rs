//! The miss limit: an address that asks for too many codes which do not exist is limited.
//!
//! Only misses are charged, so that visitors of live links are never limited by their own
//! requests, and the module may go on serving what it knows to those behind a limited address.
//!
//! The limit is the generic cell rate algorithm (ITU-T I.371): an address has a theoretical
//! arrival time, every miss moves it on by one interval from there or from now, and the address is
//! limited while that time is further ahead than the burst allows. It is the arithmetic of nginx'
//! own `limit_req`.
//!
//! The times lie in memory that all worker processes share, one word for each address: its tag
//! in the upper 24 bits, its time in the lower 40, in milliseconds. A word is only ever replaced
//! as a whole, by compare-and-swap, so a worker may be killed between any two instructions and
//! the others find a table that is right. There is nothing to lock and nothing to clean up: a
//! time that has passed is a free place.
//!
//! **Collisions.** Two addresses are taken for each other when they fall into the same bucket
//! (of 8 words) with the same tag. An address that never missed is thus limited by mistake with a
//! probability of at most 8 / 2²⁴ = 4.8e-7, when every bucket is full of limited addresses; in a
//! table of 1 MiB (16384 buckets) with 10000 limited addresses it is 3.6e-8. Bucket and tag come
//! from SipHash under a key that is only in the shared memory, so no client can target another.
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

/// The greatest debt of an address beyond the burst, in milliseconds. Requests that are on their
/// way when the limit is reached are still charged, so that a flood of requests gains nothing; 10
/// minutes bound the time for which an address pays for it.
const LONGEST_DEBT: u64 = 600_000;

/// The greatest difference between the clocks of workers before a time is invalid, in milliseconds:
/// a worker reads its clock once per turn of its event loop, and a turn may be slow.
const CLOCK_SLACK: u64 = 60_000;

/// The most attempts at a charge while other workers change the same word.
const MOST_TRIES: usize = 8;

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
}

/// A rate and a burst: what an address may miss.
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

/// Key of a client's address: all of an IPv4 address, the first 64 bits of an IPv6 one, because a
/// subscriber gets a whole /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey(u64);

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
                Some(Self(u32::from_be_bytes([a, b, c, d]).into()))
            }
            [a, b, c, d, e, f, g, h, _, _, _, _, _, _, _, _] => {
                Some(Self(u64::from_be_bytes([a, b, c, d, e, f, g, h])))
            }
            _ => None,
        }
    }
}

/// The misses of addresses, in shared memory.
///
/// All times that are passed in are milliseconds of one clock that all workers of the host share.
/// The best is one that never goes back, as nginx' `ngx_current_msec`; wall clock time will do.
/// If the clock jumps back, an address that missed a short while ago may be limited for as long as
/// the jump, but not beyond the furthest that a limit reaches (burst and 10 minutes): times further
/// ahead than that count as passed. An address that never missed is never affected. If the clock
/// jumps on, misses are forgotten.
///
/// All users of one table should have the same limit. When it changes with a reload, the times
/// stay; those further ahead than the new limit can reach count as passed.
#[derive(Clone, Copy, Debug)]
pub struct MissTable<'a> {
    buckets: &'a [[AtomicU64; BUCKET_WORDS]],
    seed: [u8; 16],
    limit: MissLimit,
}

impl<'a> MissTable<'a> {
    /// Returns a view of the table in `words`, which were 0 when the first process began; words
    /// that fill no bucket of 8 are left over. `seed` is random, secret and the same in all
    /// processes. A table without a bucket limits no address.
    pub fn new(words: &'a [AtomicU64], seed: [u8; 16], limit: MissLimit) -> Self {
        let (buckets, _) = words.as_chunks();
        Self {
            buckets,
            seed,
            limit,
        }
    }

    /// Reports whether an address has missed too often; reads only.
    #[inline]
    pub fn is_limited(&self, key: AddressKey, now: u64) -> bool {
        let Some((bucket, tag)) = self.place(key) else {
            return false;
        };
        bucket.iter().any(|word| {
            let word = word.load(Ordering::Relaxed);
            word >> TIME_BITS == tag && self.ahead(word, now) > self.limit.tolerance
        })
    }

    /// Charges an address for a miss. A request that was refused because its address is limited
    /// should not be charged, or who keeps asking stays limited for ever.
    ///
    /// The result says whether the miss was noted: exactly once when `true`. It is not when the
    /// table has no bucket, or when 8 times in a row another worker changed the same place at the
    /// same moment, which only costs that one miss.
    pub fn charge(&self, key: AddressKey, now: u64) -> bool {
        let Some((bucket, tag)) = self.place(key) else {
            return false;
        };
        (0..MOST_TRIES).any(|_| {
            let (place, old) = self.find(bucket, tag, now);
            let before = if old >> TIME_BITS == tag {
                self.ahead(old, now)
            } else {
                0
            };
            let ahead = (before + self.limit.interval).min(self.limit.longest);
            let new = tag << TIME_BITS | now.wrapping_add(ahead) & TIME_MASK;
            // `Ordering::Relaxed`: a word is complete by itself, and publishes no other memory.
            place
                .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        })
    }

    /// The bucket and the tag of an address.
    #[inline]
    fn place(&self, key: AddressKey) -> Option<(&'a [AtomicU64; BUCKET_WORDS], u64)> {
        let hash = siphash24(&self.seed, &key.0.to_le_bytes());
        // The upper bits choose the bucket, the lower ones are the tag; no table has so many
        // buckets that they would meet.
        let index = (u128::from(hash) * self.buckets.len() as u128) >> u64::BITS;
        // 0 is the tag of a word that was never used.
        let tag = (hash & (u64::MAX >> TIME_BITS)).max(1);
        Some((self.buckets.get(index as usize)?, tag))
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
        let mut least = self.ahead(content, now);
        if content >> TIME_BITS == tag {
            return (best, content);
        }
        for word in &bucket[1..] {
            let found = word.load(Ordering::Relaxed);
            if found >> TIME_BITS == tag {
                return (word, found);
            }
            let ahead = self.ahead(found, now);
            if ahead < least {
                (best, content, least) = (word, found, ahead);
            }
        }
        (best, content)
    }

    /// Returns the milliseconds by which a word's time is ahead of now; 0 if it has passed, was
    /// never set or is further ahead than the limit can have put it.
    #[inline]
    fn ahead(&self, word: u64, now: u64) -> u64 {
        // The difference is right also when the time's 40 bits have run over.
        let ahead = word.wrapping_sub(now) & TIME_MASK;
        if word == 0 || ahead > self.limit.longest + CLOCK_SLACK {
            return 0;
        }
        ahead.min(self.limit.longest)
    }
}
