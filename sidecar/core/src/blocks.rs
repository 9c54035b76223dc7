//! Suspected blocks of short domains: which of them are new, and which last.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The time after which a suspicion that has ended can be reported again: visits rise above the threshold and fall below
/// it during one block.
const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// The age at which an evaluation says nothing about the present any more.
const STALE: SignedDuration = SignedDuration::from_mins(5);

/// A suspected block of a short domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The short domain.
    pub domain: String,
    /// The network that blocks it; `None` if its visits from all of them have collapsed.
    pub network: Option<String>,
    /// Start of the first minute with few visits.
    pub at: Timestamp,
    /// Visits per minute before.
    pub before: f64,
    /// Visits per minute since.
    pub since: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    #[serde(flatten)]
    block: Block,
    /// The time of the last evaluation that has found it.
    last: Timestamp,
}

/// The suspected blocks of the last evaluations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blocks {
    /// The time of the last evaluation.
    at: Timestamp,
    seen: Vec<Seen>,
}

impl Blocks {
    /// Takes the blocks of an evaluation; returns those that are new. One that was found within the last hour is not.
    pub fn update(&mut self, found: Vec<Block>, now: Timestamp) -> Vec<Block> {
        self.at = now;
        let mut new = Vec::new();
        for block in found {
            let is_same = |it: &Block| it.domain == block.domain && it.network == block.network;
            match self.seen.iter_mut().find(|it| is_same(&it.block)) {
                Some(known) => known.last = now,
                None => {
                    self.seen.push(Seen {
                        block: block.clone(),
                        last: now,
                    });
                    new.push(block);
                }
            }
        }
        self.seen
            .retain(|it| now.duration_since(it.last) < FORGET_AFTER);
        new
    }

    /// The blocks that last; none if the last evaluation is older than five minutes.
    pub fn lasting(&self, now: Timestamp) -> impl Iterator<Item = &Block> {
        let is_fresh = now.duration_since(self.at) < STALE;
        let lasting = self.seen.iter();
        let lasting = lasting.filter(move |it| is_fresh && it.last == self.at);
        lasting.map(|it| &it.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::moment;

    fn block(domain: &str, network: Option<&str>) -> Block {
        Block {
            domain: domain.to_owned(),
            network: network.map(str::to_owned),
            at: moment("2026-06-01T11:50:00Z"),
            before: 100.0,
            since: 1.5,
        }
    }

    #[test]
    fn a_block_is_new_once_until_it_has_been_over_for_an_hour() {
        let minute = |n| moment("2026-06-01T12:00:00Z") + SignedDuration::from_mins(n);
        let (whole, part) = (block("a", None), block("a", Some("Example Mobile")));
        let mut blocks = Blocks::default();
        assert_eq!(
            blocks.update(vec![part.clone()], minute(0)),
            std::slice::from_ref(&part)
        );
        // It goes on from a later minute, with other visits; and another one begins.
        let later = Block {
            at: minute(1),
            since: 2.0,
            ..part.clone()
        };
        let found = vec![later.clone(), whole.clone()];
        assert_eq!(
            blocks.update(found, minute(1)),
            std::slice::from_ref(&whole)
        );
        let text = serde_json::to_string(&blocks).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Blocks>(&text).ok(),
            Some(blocks.clone())
        );
        let lasting: Vec<&Block> = blocks.lasting(minute(5)).collect();
        assert_eq!(lasting, [&part, &whole]);
        assert_eq!(blocks.lasting(minute(6)).count(), 0);
        // An interruption of less than an hour, and a longer one.
        assert_eq!(blocks.update(vec![whole.clone()], minute(30)), []);
        assert_eq!(blocks.lasting(minute(30)).collect::<Vec<_>>(), [&whole]);
        assert_eq!(blocks.update(vec![later.clone()], minute(60)), []);
        assert_eq!(blocks.update(Vec::new(), minute(120)), []);
        assert_eq!(blocks.update(vec![later.clone()], minute(121)), [later]);
    }
}
