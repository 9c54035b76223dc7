//! Blocks by a network in simulated traffic, and months of ordinary traffic.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const HOUR: usize = 60;
const DAY: usize = 24 * HOUR;
const MONTH: usize = 30 * DAY;

/// The recipients of each network, as parts of all.
const NETWORKS: [f64; 5] = [0.3, 0.25, 0.2, 0.15, 0.1];

/// The visits of each domain, as parts of all.
const DOMAINS: [f64; 2] = [0.7, 0.3];

/// A number of visits whose mean is `rate`.
fn poisson(random: &mut StdRng, rate: f64) -> u64 {
    if rate > 30.0 {
        let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        return (rate + normal * rate.sqrt()).round().max(0.0) as u64;
    }
    let (least, mut product, mut visits) = ((-rate).exp(), random.random::<f64>(), 0);
    while product > least {
        product *= random.random::<f64>();
        visits += 1;
    }
    visits
}

/// Visits in each minute, by domain and network.
struct Traffic(Vec<Vec<Vec<u64>>>);

impl Traffic {
    /// Visits by chance around rates, which are given by domain, network and minute.
    fn by_chance(
        random: &mut StdRng,
        minutes: usize,
        rate: impl Fn(usize, usize, usize) -> f64,
    ) -> Self {
        let domains = (0..DOMAINS.len()).map(|domain| {
            let networks = (0..NETWORKS.len()).map(|network| {
                let rates = (0..minutes).map(|minute| rate(domain, network, minute));
                rates.map(|rate| poisson(random, rate)).collect()
            });
            networks.collect()
        });
        Self(domains.collect())
    }

    /// The sums of the visits of some domains and networks.
    fn sum(&self, of: impl Fn(usize, usize) -> bool) -> Vec<u64> {
        let mut sums = vec![0; self.0[0][0].len()];
        for (domain, networks) in self.0.iter().enumerate() {
            for (network, minutes) in networks.iter().enumerate() {
                if of(domain, network) {
                    let pairs = sums.iter_mut().zip(minutes);
                    pairs.for_each(|(sum, visits)| *sum += visits);
                }
            }
        }
        sums
    }

    /// Counts alarms: collapses that are found in the hour before any minute, each once.
    fn alarms(&self) -> usize {
        let mut alarms = 0;
        for (domain, networks) in self.0.iter().enumerate() {
            for (network, own) in networks.iter().enumerate() {
                let other_networks = self.sum(|d, n| d == domain && n != network);
                let other_domains = self.sum(|d, n| d != domain && n == network);
                let mut last = 0;
                for now in HOUR..own.len() {
                    let hour = now - HOUR..now;
                    let hours = [own, &other_networks, &other_domains].map(|it| &it[hour.clone()]);
                    // Without visits to lose, or with visits now, nothing can have collapsed.
                    let most = hours[0].iter().max().copied().unwrap_or_default();
                    let recent: u64 = hours[0][HOUR - LEAST..].iter().sum();
                    let may_be = most >= 10 && recent as f64 <= LEAST as f64 * most as f64 * 0.15;
                    let found = may_be && find(hours[0], hours[1], hours[2]).is_some();
                    if found {
                        alarms += usize::from(now > last + HOUR);
                        last = now;
                    }
                }
            }
        }
        alarms
    }
}

/// The part of visits by the time of the day: few at night, most in the evening, and fewer in an hour from 21 o'clock.
fn by_day(minute: usize) -> f64 {
    let hour = (minute % DAY) as f64 / HOUR as f64;
    match hour {
        0.0..6.0 => 0.03,
        6.0..9.0 => 0.03 + (hour - 6.0) * 0.2,
        9.0..21.0 => 0.63 + (hour - 9.0) * 0.03,
        _ => 0.03 + 0.96 * 0.5_f64.powf((hour - 21.0) * 4.0),
    }
}

/// Days and nights, on which each network has its own habits.
fn days(random: &mut StdRng) -> Traffic {
    let habits: Vec<f64> = NETWORKS
        .iter()
        .map(|_| random.random_range(0.0..6.3))
        .collect();
    Traffic::by_chance(random, MONTH, |domain, network, minute| {
        let wave = (minute as f64 / DAY as f64 * 6.3 * 3.0 + habits[network]).sin();
        500.0 * DOMAINS[domain] * NETWORKS[network] * by_day(minute) * (1.0 + 0.4 * wave)
    })
}

/// Campaigns at any time, whose messages are sent in some minutes, often to one network after the other; a recipient clicks
/// some minutes after the message, or hours.
fn campaigns(random: &mut StdRng) -> Traffic {
    let mut rates = vec![vec![vec![0.0; MONTH]; NETWORKS.len()]; DOMAINS.len()];
    for _ in 0..150 {
        let domain = random.random_range(0..DOMAINS.len());
        let start = random.random_range(0..MONTH);
        let lasts = random.random_range(2..90);
        let clicks = random.random_range(50.0..3000.0);
        let (soon, late) = (
            random.random_range(3.0..10.0),
            random.random_range(60.0..240.0),
        );
        let one_by_one = random.random_bool(0.5);
        for (network, part) in NETWORKS.iter().enumerate() {
            let start = start + if one_by_one { network * lasts } else { 0 };
            let (mut waiting_soon, mut waiting_late) = (0.0, 0.0);
            let rates = &mut rates[domain][network];
            for (minute, rate) in rates.iter_mut().enumerate().skip(start).take(2 * DAY) {
                if minute < start + lasts {
                    waiting_soon += 0.7 * clicks * part;
                    waiting_late += 0.3 * clicks * part;
                }
                *rate += waiting_soon / soon + waiting_late / late;
                waiting_soon -= waiting_soon / soon;
                waiting_late -= waiting_late / late;
            }
        }
    }
    Traffic::by_chance(random, MONTH, |domain, network, minute| {
        rates[domain][network][minute]
    })
}

/// Days whose rates jump up and down by the minute, for each network on its own.
fn restless(random: &mut StdRng) -> Traffic {
    let mut noise = StdRng::seed_from_u64(random.random());
    let factors: Vec<f64> = (0..MONTH * NETWORKS.len())
        .map(|_| (0..3).map(|_| noise.random_range(0.4..1.6)).product())
        .collect();
    Traffic::by_chance(random, MONTH, |domain, network, minute| {
        let factor = factors[minute * NETWORKS.len() + network];
        500.0 * DOMAINS[domain] * NETWORKS[network] * by_day(minute) * factor
    })
}

/// A network that has no Internet access for an hour on each day.
fn outages(random: &mut StdRng) -> Traffic {
    let begins: Vec<usize> = (0..30)
        .map(|_| random.random_range(0..DAY - HOUR))
        .collect();
    Traffic::by_chance(random, MONTH, |domain, network, minute| {
        let (day, at) = (minute / DAY, minute % DAY);
        let is_out =
            network == day % NETWORKS.len() && (begins[day]..begins[day] + HOUR).contains(&at);
        let rate = 1500.0 * DOMAINS[domain] * NETWORKS[network];
        if is_out { rate * 0.02 } else { rate }
    })
}

#[test]
fn months_of_ordinary_traffic_have_less_than_an_alarm_each() {
    type Shape = fn(&mut StdRng) -> Traffic;
    let shapes: [(&str, Shape); 4] = [
        ("days", days),
        ("campaigns", campaigns),
        ("restless", restless),
        ("outages", outages),
    ];
    for (name, shape) in shapes {
        let traffic = shape(&mut StdRng::seed_from_u64(9002));
        assert_eq!(traffic.alarms(), 0, "{name}");
    }
}

/// Minutes from a block until it is found in the whole minutes before, as an operator who looks at any time would see.
fn minutes_until_found(random: &mut StdRng, per_minute: f64, part: f64, left: f64) -> Option<f64> {
    let begin = random.random_range(30..50);
    let within: f64 = random.random();
    let mut own = Vec::new();
    let mut others = Vec::new();
    for minute in 0..HOUR {
        let rate = per_minute * part;
        let blocked = match minute.cmp(&begin) {
            std::cmp::Ordering::Less => rate,
            std::cmp::Ordering::Equal => rate * (within + (1.0 - within) * left),
            std::cmp::Ordering::Greater => rate * left,
        };
        own.push(poisson(random, blocked));
        others.push(poisson(random, per_minute * (1.0 - part)));
    }
    let found = (begin + 1..=HOUR)
        .find(|&now| find(&own[..now], &others[..now], &vec![0; now]).is_some())?;
    Some(found as f64 - begin as f64 - within)
}

#[test]
fn a_block_by_a_network_with_a_third_of_the_recipients_is_found_within_five_minutes() {
    // Of 500 blocks. One that lets some visits through is found later once in a while.
    for (left, most_late) in [(0.0, 0), (0.05, 5)] {
        let found = (9001..9501).map(|seed| {
            let random = &mut StdRng::seed_from_u64(seed);
            minutes_until_found(random, 500.0, 0.3, left)
        });
        let late: Vec<Option<f64>> = found
            .filter(|minutes| minutes.is_none_or(|it| it >= 5.0))
            .collect();
        assert!(late.len() <= most_late, "{left}: {late:?}");
    }
}

#[test]
fn a_network_or_a_domain_that_collapses_as_a_whole_is_no_block_by_a_network() {
    let blocked: Vec<u64> = (0..60).map(|n| if n < 50 { 100 } else { 2 }).collect();
    let goes_on = vec![200; 60];
    assert!(find(&blocked, &goes_on, &[0; 60]).is_some());
    assert!(find(&blocked, &goes_on, &goes_on).is_some());
    // The network has no visits on other domains either, or the domain none from other networks.
    assert_eq!(find(&blocked, &goes_on, &blocked), None);
    assert_eq!(find(&blocked, &blocked, &goes_on), None);
    // Nothing to compare with.
    assert_eq!(find(&blocked, &[0; 60], &goes_on), None);
}
