//! The miss limit against a plain one, with many addresses, and with many threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;
use shortlink_resolver::limit::{AddressKey, MissLimit, MissTable, Rate};

const SEED: [u8; 16] = *b"sixteen bytes ok";
const NOW: u64 = 1_767_225_600_000;
/// A table of 1 MiB, in words.
const MIB: usize = 1 << 17;
/// The longest debt beyond the burst, in milliseconds.
const DEBT: u64 = 600_000;

fn memory(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

fn limit(rate: &str, burst: u32) -> MissLimit {
    let rate = Rate::parse(rate.as_bytes()).expect("a rate");
    MissLimit::new(rate, burst).expect("a limit")
}

fn v4(number: u32) -> AddressKey {
    AddressKey::of(&number.to_be_bytes()).expect("an address")
}

/// Charges an address until it is limited; says how often.
fn exhaust(table: &MissTable<'_>, key: AddressKey, now: u64) -> u32 {
    let mut charges = 0;
    while !table.is_limited(key, now) {
        assert!(table.charge(key, now));
        charges += 1;
    }
    charges
}

#[test]
fn rates_are_read_as_nginx_reads_them() {
    for (text, same) in [("1r/s", "60r/m"), ("2r/s", "120r/m"), ("100r/s", "6000r/m")] {
        assert!(Rate::parse(text.as_bytes()).is_some(), "{text}");
        assert_eq!(
            Rate::parse(text.as_bytes()),
            Rate::parse(same.as_bytes()),
            "{text}"
        );
    }
    for text in [
        "",
        "r/s",
        "1",
        "1r",
        "1r/",
        "1r/h",
        "0r/s",
        "0r/m",
        "-1r/s",
        "+1r/s",
        "01r/s",
        "1.5r/s",
        " 1r/s",
        "1 r/s",
        "1r/s ",
        "1R/s",
        "101r/s",
        "6001r/m",
        "99999999999999999999r/s",
    ] {
        assert_eq!(Rate::parse(text.as_bytes()), None, "{text}");
    }
    let slow = Rate::parse(b"1r/m").expect("a rate");
    assert!(MissLimit::new(slow, 1440).is_some());
    assert_eq!(MissLimit::new(slow, 1441), None);
    assert_eq!(MissLimit::new(slow, u32::MAX), None);
}

#[test]
fn addresses_that_belong_together_have_one_key() {
    let v6 = |text: &str| {
        let address: std::net::Ipv6Addr = text.parse().expect("an address");
        AddressKey::of(&address.octets()).expect("a key")
    };
    let dotted = AddressKey::of(&[192, 0, 2, 1]).expect("a key");
    assert_eq!(v6("::ffff:192.0.2.1"), dotted);
    assert_eq!(v6("64:ff9b::192.0.2.1"), dotted);
    assert_ne!(v6("64:ff9b:1::192.0.2.1"), dotted);
    assert_ne!(v6("::ffff:192.0.2.2"), dotted);
    assert_eq!(v6("2001:db8:1:2::1"), v6("2001:db8:1:2:ffff::"));
    assert_ne!(v6("2001:db8:1:2::1"), v6("2001:db8:1:3::1"));
    for length in (0..32).filter(|length| ![4, 16].contains(length)) {
        assert_eq!(AddressKey::of(&vec![0; length]), None, "{length}");
    }
}

#[test]
fn an_address_is_limited_after_its_burst_and_free_again_at_the_rate() {
    let words = memory(8);
    let table = MissTable::new(&words, SEED, limit("2r/s", 3));
    let key = v4(1);
    assert!(!table.is_limited(key, NOW));
    assert_eq!(exhaust(&table, key, NOW), 4);
    assert!(table.is_limited(key, NOW + 499));
    assert_eq!(exhaust(&table, key, NOW + 500), 1);
    // Everything is forgotten after the burst's time.
    assert_eq!(exhaust(&table, key, NOW + 500 + 2000), 4);
    assert!(!table.is_limited(v4(2), NOW), "another address");
}

#[test]
fn misses_that_were_on_their_way_are_a_debt_that_ends() {
    let words = memory(8);
    let table = MissTable::new(&words, SEED, limit("1r/s", 0));
    let key = v4(1);
    for _ in 0..30 {
        assert!(table.charge(key, NOW));
    }
    assert!(table.is_limited(key, NOW + 29_999));
    assert!(!table.is_limited(key, NOW + 30_000));
    for _ in 0..100_000 {
        assert!(table.charge(key, NOW));
    }
    assert!(table.is_limited(key, NOW + DEBT + 999));
    assert!(!table.is_limited(key, NOW + DEBT + 1000));
}

#[test]
fn a_worker_whose_clock_is_behind_does_not_forgive() {
    let words = memory(8);
    let table = MissTable::new(&words, SEED, limit("1r/s", 0));
    for _ in 0..2000 {
        assert!(table.charge(v4(1), NOW));
    }
    assert!(table.is_limited(v4(1), NOW - 30_000));
    assert!(table.charge(v4(1), NOW - 30_000));
    assert!(table.is_limited(v4(1), NOW));
}

#[test]
fn when_the_clock_jumps_nobody_is_limited_for_long() {
    let words = memory(8);
    let table = MissTable::new(&words, SEED, limit("1r/s", 5));
    assert_eq!(exhaust(&table, v4(1), NOW), 6);
    // On: forgotten. A day back: forgotten too. A little back: for as long as the jump.
    assert!(!table.is_limited(v4(1), NOW + 86_400_000));
    assert!(!table.is_limited(v4(1), NOW - 86_400_000));
    assert!(table.is_limited(v4(1), NOW - 300_000));
    assert!(!table.is_limited(v4(1), NOW + 1000));
    assert_eq!(exhaust(&table, v4(1), NOW - 86_400_000), 6);
}

#[test]
fn the_end_of_the_times_bits_is_no_end() {
    let words = memory(8);
    let table = MissTable::new(&words, SEED, limit("1r/s", 5));
    let end = (1 << 40) * 2;
    for (number, now) in (0..).zip([end - 3000, end - 1, end, 0, 1]) {
        let key = v4(number);
        assert_eq!(exhaust(&table, key, now), 6, "{now}");
        assert!(table.is_limited(key, now + 999), "{now}");
        assert!(!table.is_limited(key, now + 1000), "{now}");
    }
}

#[test]
fn a_table_without_room_limits_nobody() {
    for length in [0, 7] {
        let words = memory(length);
        let table = MissTable::new(&words, SEED, limit("1r/m", 0));
        assert!(!table.charge(v4(1), NOW));
        assert!(!table.is_limited(v4(1), NOW));
    }
}

#[test]
fn a_full_bucket_gives_up_the_least_limited_and_forgets_what_has_passed() {
    let words = memory(8);
    let table = MissTable::new(&words, SEED, limit("1r/s", 2));
    for number in 0..8 {
        for _ in 0..(10 - number) {
            assert!(table.charge(v4(number), NOW));
        }
    }
    // Numbers 0 to 7 have 10 to 3 misses; all are limited, and number 7 has to go.
    assert_eq!(exhaust(&table, v4(100), NOW), 3);
    for number in 0..7 {
        assert!(table.is_limited(v4(number), NOW), "{number}");
    }
    assert!(!table.is_limited(v4(7), NOW));
    // After 4 s number 6 (4 misses) and the new one have passed: two places are free.
    for number in [200, 201] {
        assert_eq!(exhaust(&table, v4(number), NOW + 4000), 3);
    }
    for number in 0..4 {
        assert!(table.is_limited(v4(number), NOW + 4000), "{number}");
    }
}

/// Two million addresses that never missed, at a table in which every bucket is full of limited
/// ones: 0.95 are expected to be limited by mistake. With 10000 limited addresses: 0.07.
#[test]
fn addresses_that_never_missed_are_not_limited() {
    for (limited, most) in [(10_000, 1), (400_000, 5)] {
        let words = memory(MIB);
        let table = MissTable::new(&words, SEED, limit("1r/m", 0));
        for number in 0..limited {
            assert!(table.charge(v4(number), NOW));
        }
        let used = words
            .iter()
            .filter(|word| word.load(Ordering::Relaxed) != 0)
            .count();
        if limited == 10_000 {
            assert_eq!(used, 10_000, "none was pushed out");
        } else {
            assert!(used > MIB * 99 / 100, "{used}");
        }
        let mistakes = (0..2_000_000)
            .filter(|number| table.is_limited(v4(1 << 31 | number), NOW))
            .count();
        println!("{mistakes} of 2000000 limited by mistake with {used} places used");
        assert!(mistakes <= most, "{mistakes} with {limited} limited");
    }
}

#[test]
fn the_seed_decides_who_are_neighbours() {
    let place = |number: u32, seed: [u8; 16]| {
        let words = memory(MIB);
        assert!(MissTable::new(&words, seed, limit("1r/s", 0)).charge(v4(number), NOW));
        words
            .iter()
            .position(|word| word.load(Ordering::Relaxed) != 0)
    };
    let other = *b"another 16 bytes";
    let moved = (0..20).filter(|&number| place(number, SEED) != place(number, other));
    assert_eq!(moved.count(), 20);
}

/// Many threads charge one address: its time is exactly as far ahead as charges were noted.
#[test]
fn charges_of_many_threads_are_not_lost() {
    const THREADS: u64 = 8;
    const EACH: u64 = 100_000;
    let words = memory(64);
    // An interval of 10 ms and a burst that all charges fit into.
    let table = MissTable::new(&words, SEED, limit("100r/s", 1_000_000));
    let charge = || (0..EACH).filter(|_| table.charge(v4(1), NOW)).count() as u64;
    let noted: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(charge)).collect();
        let counts = threads.into_iter().map(|thread| thread.join());
        counts.map(|count| count.expect("a count")).sum()
    });
    let times: Vec<u64> = words
        .iter()
        .map(|word| word.load(Ordering::Relaxed))
        .filter(|&word| word != 0)
        .map(|word| word.wrapping_sub(NOW) & ((1 << 40) - 1))
        .collect();
    assert_eq!(times, [noted * 10]);
    let given_up = THREADS * EACH - noted;
    println!("{given_up} of {} charges given up", THREADS * EACH);
    // A charge fails only because another one succeeds, which each does at most 7 times to others,
    // and is given up after 8 failures.
    assert!(given_up * 8 <= noted * 7, "{given_up}");
}

/// Threads fight for one bucket with more addresses than it holds, each with its own idea of the
/// time: whatever happens, the table stays one that works.
#[test]
fn a_fight_for_one_bucket_ends_well() {
    let words = memory(8);
    let table = MissTable::new(&words, SEED, limit("10r/s", 3));
    thread::scope(|scope| {
        for thread in 0..8 {
            let table = &table;
            scope.spawn(move || {
                for step in 0..50_000u64 {
                    let key = v4((step * 7 + thread) as u32 % 12);
                    let now = NOW + step / 50 + thread * 3;
                    if !table.is_limited(key, now) {
                        table.charge(key, now);
                    }
                }
            });
        }
    });
    let later = NOW + 86_400_000;
    for number in 0..8 {
        assert_eq!(exhaust(&table, v4(number), later), 4, "{number}");
    }
}

/// The limit as the books have it, for one address.
struct Plain {
    interval: u64,
    burst: u64,
    time: u64,
}

impl Plain {
    fn is_limited(&self, now: u64) -> bool {
        self.time.saturating_sub(now) > self.burst * self.interval
    }

    fn charge(&mut self, now: u64) {
        let longest = now + (self.burst + 1) * self.interval + DEBT;
        self.time = (self.time.max(now) + self.interval).min(longest);
    }
}

proptest! {
    #[test]
    fn one_address_is_limited_as_the_books_have_it(
        per_minute in 1u64..=6000,
        burst in 0u64..200,
        steps in prop::collection::vec((0u64..20_000, 0u32..8, any::<bool>()), 1..200),
    ) {
        let words = memory(1 << 10);
        let limit = limit(&format!("{per_minute}r/m"), burst as u32);
        let table = MissTable::new(&words, SEED, limit);
        let mut plain = Plain {
            interval: (60_000 + per_minute / 2) / per_minute,
            burst,
            time: 0,
        };
        let mut now = NOW;
        for (wait, charges, other) in steps {
            now += wait;
            for _ in 0..charges {
                prop_assert_eq!(table.is_limited(v4(1), now), plain.is_limited(now));
                prop_assert!(table.charge(v4(1), now));
                plain.charge(now);
            }
            if other {
                prop_assert!(table.charge(v4(2), now));
            }
            prop_assert_eq!(table.is_limited(v4(1), now), plain.is_limited(now));
            prop_assert!(!table.is_limited(v4(3), now));
        }
    }
}
