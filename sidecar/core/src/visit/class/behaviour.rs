//! Classification by what a client does: the second judgement, some minutes after a visit.
//!
//! A program that pretends to be a browser shows by its speed: it follows the links of many
//! recipients. Many phones share an address and a user agent behind a carrier's, so the limits are
//! above what these reach together, and lower only for clients that no carrier has.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

use vocabulary::address::{parsed, truncated};

use super::Class;
use crate::visit::visitor::VisitorId;

/// The longest window of the rules in milliseconds. Visits that are this far apart have no part in the same verdict.
pub const WINDOW_MS: i64 = 60_000;

/// The class of all these verdicts, except on refused visits.
pub const CLASS: Class = Class::Scanner;

/// A client follows many links within seconds.
const SWEEP: Rule = Rule {
    reason: "sweep",
    window_ms: 10_000,
    desktop: 20,
    others: 80,
};

/// The same for a client that lacks what its browser sends: a quarter of the links.
const PRETENDED_SWEEP: Rule = Rule {
    desktop: SWEEP.desktop / 4,
    others: SWEEP.others / 4,
    ..SWEEP
};

/// A client follows several links within seconds of their creation.
const BURST: Rule = Rule {
    reason: "burst",
    window_ms: WINDOW_MS,
    desktop: 5,
    others: 20,
};

/// A network of servers follows several links within a minute.
const SERVERS: Rule = Rule {
    reason: "hosting",
    window_ms: WINDOW_MS,
    desktop: 4,
    others: 4,
};

/// The time after the creation of a link in which a recipient hardly has it yet.
const FRESH_MS: i64 = 5000;

/// A rule: a client that follows so many different links within a window is a scanner.
#[derive(Debug)]
struct Rule {
    reason: &'static str,
    window_ms: i64,
    /// The number of links for the browser of a computer.
    desktop: usize,
    /// The number of links for all others.
    others: usize,
}

/// A stored visit by a client that was taken for a person when it was stored, also one that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The visit's number.
    pub number: i64,
    /// The time of the answer, in milliseconds since 1970.
    pub at_ms: i64,
    /// The link's code, as it was requested.
    pub code: Box<str>,
    /// The time at which the link was created, in milliseconds since 1970, if it is known.
    pub created_ms: Option<i64>,
    /// Id of the visitor: an address with a user agent.
    pub visitor: Option<VisitorId>,
    /// The edge truncated the address: a visitor is a network with a user agent.
    pub is_truncated: bool,
    /// The stored part of the client's address.
    pub client: Option<Box<str>>,
    /// Number of the user agent.
    pub agent: i64,
    /// The browser runs on a computer.
    pub is_desktop: bool,
    /// The client's network is one of servers ([`Network::is_hosting`](super::networks::Network::is_hosting)).
    pub is_hosting: bool,
    /// The client lacks what its browser sends ([`is_pretended`](super::pretence::is_pretended)).
    pub is_pretended: bool,
    /// The visit has a verdict of these rules already.
    pub is_judged: bool,
}

/// The client of a visit, as well as it is known.
#[derive(PartialEq, Eq, Hash)]
enum Client<'v> {
    Visitor(VisitorId),
    Address(&'v str, i64),
    Network(IpAddr),
}

/// Judges visits that follow each other; returns the numbers of those that no person made, which
/// have no verdict yet, each with the reason.
pub fn judge(visits: &[Watched]) -> Vec<(i64, &'static str)> {
    let mut found = HashMap::new();
    apply(&SWEEP, visits, client, &mut found);
    // By themselves: telephones behind the same address lack nothing.
    let pretended = visits.iter().filter(|visit| visit.is_pretended);
    apply(&PRETENDED_SWEEP, pretended, client, &mut found);
    let is_fresh = |visit: &&Watched| {
        let age = visit.created_ms.map(|created| visit.at_ms - created);
        age.is_some_and(|age| (0..=FRESH_MS).contains(&age))
    };
    apply(&BURST, visits.iter().filter(is_fresh), client, &mut found);
    let servers = visits.iter().filter(|visit| visit.is_hosting);
    apply(&SERVERS, servers, network, &mut found);
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable();
    found
}

/// The visitor, or the whole address with the user agent when there is none. The clients of a network
/// cannot be distinguished.
fn client(visit: &Watched) -> Option<Client<'_>> {
    if visit.is_truncated {
        return None;
    }
    let whole = visit.client.as_deref().filter(|client| is_whole(client));
    let address = || Some(Client::Address(whole?, visit.agent));
    visit.visitor.map(Client::Visitor).or_else(address)
}

/// Reports whether a stored address is a whole one, and not a network. A few whole ones look like
/// networks.
fn is_whole(client: &str) -> bool {
    parsed(client.as_bytes()).is_some_and(|address| truncated(address) != address)
}

/// The network, also where the whole address is stored.
fn network(visit: &Watched) -> Option<Client<'_>> {
    let address = parsed(visit.client.as_deref().unwrap_or_default().as_bytes());
    let network = address.map(|address| Client::Network(truncated(address)));
    network.or_else(|| visit.visitor.map(Client::Visitor))
}

/// Adds the visits that a rule fits, unless another one has.
fn apply<'v>(
    rule: &Rule,
    visits: impl IntoIterator<Item = &'v Watched>,
    client: impl Fn(&'v Watched) -> Option<Client<'v>>,
    found: &mut HashMap<i64, &'static str>,
) {
    let mut clients: HashMap<Client<'v>, Vec<&Watched>> = HashMap::new();
    for visit in visits {
        if let Some(client) = client(visit) {
            clients.entry(client).or_default().push(visit);
        }
    }
    for mut visits in clients.into_values() {
        // Most clients have a visit or two.
        if visits.len() < rule.desktop.min(rule.others) {
            continue;
        }
        let is_desktop = visits.iter().all(|visit| visit.is_desktop);
        let most = if is_desktop {
            rule.desktop
        } else {
            rule.others
        };
        visits.sort_unstable_by_key(|visit| (visit.at_ms, visit.number));
        for visit in crowded(&visits, rule.window_ms, most) {
            if !visit.is_judged {
                found.entry(visit.number).or_insert(rule.reason);
            }
        }
    }
}

/// The visits, in the order of time, that are within a window of `length_ms` with `most` different links.
fn crowded<'v>(visits: &[&'v Watched], length_ms: i64, most: usize) -> Vec<&'v Watched> {
    let mut crowded = Vec::new();
    let mut codes: HashMap<&str, usize> = HashMap::new();
    let (mut first, mut taken) = (0, 0);
    for (last, visit) in visits.iter().enumerate() {
        *codes.entry(&visit.code).or_default() += 1;
        while visit.at_ms - visits[first].at_ms >= length_ms {
            let code = &*visits[first].code;
            if let Some(count) = codes.get_mut(code) {
                *count -= 1;
                if *count == 0 {
                    codes.remove(code);
                }
            }
            first += 1;
        }
        if codes.len() >= most {
            taken = taken.max(first);
            crowded.extend_from_slice(&visits[taken..=last]);
            taken = last + 1;
        }
    }
    crowded
}

/// The codes whose time of creation [`judge`] needs: those of clients that follow several links.
pub fn codes_in_question(visits: &[Watched]) -> HashSet<&str> {
    let mut clients: HashMap<Client<'_>, HashSet<&str>> = HashMap::new();
    for visit in visits {
        if let Some(client) = client(visit) {
            clients.entry(client).or_default().insert(&visit.code);
        }
    }
    let busy = clients.into_values();
    let busy = busy.filter(|codes| codes.len() >= BURST.desktop.min(BURST.others));
    busy.flatten().collect()
}

/// The reason of one of these rules that was stored.
pub fn reason(stored: &str) -> Option<&'static str> {
    let rules = [SWEEP.reason, BURST.reason, SERVERS.reason];
    rules.into_iter().find(|reason| *reason == stored)
}

#[cfg(test)]
mod tests;
