//! Decides which links are found by their words.
//!
//! Words of every link would take more space than the links, and millions of links of a mailing differ in nothing that
//! anyone would search for. So the links of one API key with the same target up to its query, and with the same note,
//! are a kind: a few links of each kind have words, and later ones one at a time. An API key has an allowance of kinds,
//! since targets can differ in their paths. A user who creates links one by one stays far below both.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use shortlink_core::link::Link;
use shortlink_core::search::without_query;
use shortlink_core::target::Target;

/// The most kinds that are remembered; then all are forgotten.
const MOST_KINDS: usize = 100_000;

/// Links that have words, of one kind or one API key.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// The most at once.
    most: u32,
    /// Time after which there is one more; `None` if never.
    every: Option<Duration>,
}

/// The rest of an allowance.
#[derive(Clone, Copy, Debug)]
struct Left {
    links: u32,
    /// The time of the last one that was added.
    since: Instant,
}

impl Allowance {
    fn begin(self, now: Instant) -> Left {
        Left {
            links: self.most,
            since: now,
        }
    }

    /// Adds what time has brought; reports whether anything is left.
    fn refill(self, left: &mut Left, now: Instant) -> bool {
        let every = self.every.filter(|every| !every.is_zero());
        if let Some(every) = every {
            let passed = now.saturating_duration_since(left.since);
            let more = (passed.as_nanos() / every.as_nanos()).min(u128::from(self.most));
            let more = u32::try_from(more).unwrap_or(self.most);
            if more > 0 {
                left.links = (left.links + more).min(self.most);
                left.since = now;
            }
        }
        left.links > 0
    }
}

/// The allowances of a process, or of the walk through older links.
#[derive(Debug)]
pub struct Admission {
    of_kind: Allowance,
    of_key: Allowance,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    hasher: RandomState,
    kinds: HashMap<u64, Left>,
    keys: HashMap<String, Left>,
}

impl Default for Admission {
    /// That of new links.
    fn default() -> Self {
        Self::new(
            Allowance {
                most: 50,
                every: Some(Duration::from_secs(10)),
            },
            Allowance {
                most: 10_000,
                every: Some(Duration::from_secs(1)),
            },
        )
    }
}

impl Admission {
    fn new(of_kind: Allowance, of_key: Allowance) -> Self {
        Self {
            of_kind,
            of_key,
            state: Mutex::default(),
        }
    }

    /// That of a walk through links that are stored already.
    pub fn of_walk() -> Self {
        let never = |most| Allowance { most, every: None };
        Self::new(never(50), never(50_000))
    }

    /// Returns the places of those links that get words; each link is created or changed by an API key.
    pub(crate) fn admit<'a>(
        &self,
        links: impl Iterator<Item = (&'a str, &'a Link)>,
        now: Instant,
    ) -> Vec<usize> {
        let mut state = self.state.lock();
        let State {
            hasher,
            kinds,
            keys,
        } = &mut *state;
        let mut admitted = Vec::new();
        // Links that arrive together are mostly of one kind, and of one key.
        let (mut refused, mut spent) = (None, None);
        for (place, (key, link)) in links.enumerate() {
            let target = link.destination.target().map(Target::as_str);
            if target.is_none() && link.note.is_none() {
                continue;
            }
            let kind = (key, target.map(without_query), &link.note);
            if refused == Some(kind) || spent == Some(key) {
                continue;
            }
            let of_key = match keys.get_mut(key) {
                Some(left) => left,
                None => keys
                    .entry(key.to_owned())
                    .or_insert_with(|| self.of_key.begin(now)),
            };
            if !self.of_key.refill(of_key, now) {
                spent = Some(key);
                continue;
            }
            if kinds.len() >= MOST_KINDS {
                kinds.clear();
            }
            let of_kind = kinds
                .entry(hasher.hash_one(kind))
                .or_insert_with(|| self.of_kind.begin(now));
            if !self.of_kind.refill(of_kind, now) {
                refused = Some(kind);
                continue;
            }
            of_key.links -= 1;
            of_kind.links -= 1;
            admitted.push(place);
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use shortlink_core::link::Destination;
    use shortlink_core::testing::link;

    use super::*;

    fn to(url: &str) -> Link {
        Link {
            destination: Destination::Target(Target::from_stored(url.to_owned())),
            ..link("a")
        }
    }

    fn count(admission: &Admission, key: &str, links: &[Link], now: Instant) -> usize {
        admission
            .admit(links.iter().map(|link| (key, link)), now)
            .len()
    }

    #[test]
    fn a_mailing_has_few_links_with_words_and_a_user_has_all() {
        let admission = Admission::default();
        let now = Instant::now();
        let mailing = vec![to("https://example.com/spring?m=1"); 1000];
        assert_eq!(count(&admission, "batch", &mailing, now), 50);
        assert_eq!(count(&admission, "batch", &mailing, now), 0);
        let later = now + Duration::from_secs(25);
        assert_eq!(count(&admission, "batch", &mailing, later), 2);
        let single: Vec<Link> = (0..300)
            .map(|it| to(&format!("https://example.com/{it}")))
            .collect();
        assert_eq!(count(&admission, "batch", &single, later), 300);
        assert_eq!(count(&admission, "user", &single, later), 300);
        let noted = Link {
            note: Some("for the fair".to_owned()),
            ..mailing[0].clone()
        };
        assert_eq!(count(&admission, "batch", &[noted], later), 1);
    }

    #[test]
    fn targets_that_differ_by_recipient_use_up_the_allowance_of_their_key_only() {
        let admission = Admission::default();
        let now = Instant::now();
        let each: Vec<Link> = (0..12_000)
            .map(|it| to(&format!("https://example.com/{it}")))
            .collect();
        assert_eq!(count(&admission, "batch", &each, now), 10_000);
        let later = now + Duration::from_secs(3);
        assert_eq!(count(&admission, "batch", &each, later), 3);
        assert_eq!(count(&admission, "user", &each[..5], later), 5);
        let walk = Admission::of_walk();
        assert_eq!(count(&walk, "batch", &each, now), 12_000);
        let hour = now + Duration::from_secs(3600);
        assert_eq!(count(&walk, "batch", &vec![each[0].clone(); 100], hour), 49);
    }
}
