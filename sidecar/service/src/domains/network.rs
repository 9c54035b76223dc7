//! Detection of networks that are suspected of blocking a domain: the domain's visits from one network collapse, while
//! others go on.
//!
//! The rule: the human visits of a domain from a network collapse as those of a [blocked domain](super::fall), from one
//! minute to the next, to at most 8%: the last three minutes before had at least 70% of the mean of the ten, and the first
//! minutes since would have had 150 visits. Since then the domain's visits from all other networks have been at least half
//! of what they were, and so have the visits of the other domains from that network. Each of these two comparisons needs
//! enough visits; the first one is required. So neither the end of a campaign, nor a night, nor a network without Internet
//! access matches.

use super::fall::{BEFORE, ENOUGH, FIRST, Fall, LEAST, find_at};

/// The most visits since, as a part of the earlier rate.
const LEFT: f64 = 0.08;

/// The least number of visits expected in the first minutes.
const EXPECTED: f64 = 150.0;

/// The number of last minutes before, and their least part of the earlier rate: visits that fade had fewer at the end.
const LAST: usize = 3;
const LAST_PART: f64 = 0.7;

/// The least part of their earlier rate that the others have.
const GOES_ON: f64 = 0.5;

/// Finds the first collapse that still lasts: of the visits of a domain from a network in consecutive whole minutes, beside
/// those of the domain from all other networks, and those of all other domains from this network.
pub fn find(own: &[u64], other_networks: &[u64], other_domains: &[u64]) -> Option<Fall> {
    let last = own.len().checked_sub(LEAST)?;
    (BEFORE..=last).find_map(|at| find_beside(own, other_networks, other_domains, at))
}

/// As [`find`], at one minute.
fn find_beside(
    own: &[u64],
    other_networks: &[u64],
    other_domains: &[u64],
    at: usize,
) -> Option<Fall> {
    let fall = find_at(own, at)?;
    let (earlier, later) = own.split_at(at);
    let is_cliff = fall.since <= fall.before * LEFT
        && fall.before * later.len().min(FIRST) as f64 >= EXPECTED
        && mean(&earlier[at - LAST..]) >= fall.before * LAST_PART;
    if !is_cliff {
        return None;
    }
    let go_on = part_left(other_networks, at)? >= GOES_ON;
    let domains_go_on = part_left(other_domains, at).is_none_or(|part| part >= GOES_ON);
    (go_on && domains_go_on).then_some(fall)
}

/// The rate of visits since a minute by that of the minutes before; `None` if these are too few.
fn part_left(minutes: &[u64], at: usize) -> Option<f64> {
    let (earlier, later) = minutes.split_at(at);
    let before = mean(&earlier[at - BEFORE..]);
    (before * later.len() as f64 >= ENOUGH).then(|| mean(later) / before)
}

fn mean(minutes: &[u64]) -> f64 {
    minutes.iter().sum::<u64>() as f64 / minutes.len() as f64
}

#[cfg(test)]
mod tests;
