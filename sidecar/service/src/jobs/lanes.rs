//! Lanes: parts of a job that several processes do at the same time, each with a claim of its own.
//!
//! Every process knows which others live by their claims to be members, and lane n belongs to the member of rank n modulo
//! their number. Two processes that disagree for a moment do no harm: the claim of a lane decides who works on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use shortlink_core::ports::{Slice, StoreError};
use tokio::time::Instant;

use super::{Claims, Job, Next};

/// The interval at which a process renews its claim to be a member, and looks for others.
pub const EVERY: Duration = Duration::from_secs(5);

/// The time after which a member whose claim stays the same is dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// The time after which the claim of a dead member is deleted.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// The beginning of the names of members' claims.
const PREFIX: &str = "member:";

/// A lane of a job; by default the only one, which any process may claim.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// The part of the work.
    pub slice: Slice,
    ranks: Option<Arc<Ranks>>,
}

/// The rank of this process among the living ones, and their number.
#[derive(Debug)]
struct Ranks {
    rank: AtomicU32,
    members: AtomicU32,
}

impl Lane {
    /// A lane that this process does, whatever others do.
    pub fn new(slice: Slice) -> Self {
        Self { slice, ranks: None }
    }

    /// Returns whether this process should do the lane.
    pub fn is_ours(&self) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| {
            let members = ranks.members.load(Ordering::Relaxed).max(1);
            self.slice.number % members == ranks.rank.load(Ordering::Relaxed)
        })
    }

    /// The name of the claim and of the notes of a job's lane. The first lane has the name of the job, also while there are
    /// several: a process without lanes then holds the first one.
    pub fn task(&self, job: &str) -> String {
        match self.slice.number {
            0 => job.to_owned(),
            number => format!("{job}.{number}"),
        }
    }
}

/// The processes that share lanes.
pub struct Members {
    claims: Claims,
    ranks: Arc<Ranks>,
    /// The stamp of each member's claim, and the time at which it was new.
    seen: HashMap<String, (i64, Instant)>,
}

impl Members {
    /// Becomes a member once the job runs. Until then this process is the only one that it knows.
    pub fn new(claims: Claims) -> Self {
        let ranks = Arc::new(Ranks {
            rank: AtomicU32::new(0),
            members: AtomicU32::new(1),
        });
        Self {
            claims,
            ranks,
            seen: HashMap::new(),
        }
    }

    /// The lanes of a job, so many.
    pub fn lanes(&self, of: u32) -> impl Iterator<Item = Lane> + use<> {
        let ranks = (of > 1).then(|| Arc::clone(&self.ranks));
        (0..of.max(1)).map(move |number| Lane {
            slice: Slice { number, of },
            ranks: ranks.clone(),
        })
    }

    fn task(&self) -> String {
        format!("{PREFIX}{}", self.claims.holder)
    }
}

#[async_trait]
impl Job for Members {
    type Error = StoreError;
    const NAME: &'static str = "members";
    const FAILURE: &'static str =
        "the processes that share lanes are unknown; the last known ones are assumed";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let Claims {
            store,
            clock,
            holder,
        } = &self.claims;
        let stamp = clock.now().as_millisecond();
        store.claim(&self.task(), holder, stamp, None).await?;
        let claims = store.claims_of(PREFIX).await?;
        let now = Instant::now();
        let before = std::mem::take(&mut self.seen);
        for (member, stamp) in claims {
            let known = before.get(&member).filter(|(known, _)| *known == stamp);
            let since = known.map_or(now, |(_, since)| *since);
            if now.duration_since(since) >= FORGOTTEN_AFTER {
                store.release(&format!("{PREFIX}{member}"), &member).await?;
            } else {
                self.seen.insert(member, (stamp, since));
            }
        }
        let lives = |member: &str, since: Instant| {
            member == holder || now.duration_since(since) < DEAD_AFTER
        };
        let living = self
            .seen
            .iter()
            .filter(|(member, (_, since))| lives(member, *since));
        let (mut rank, mut members) = (0, 0);
        for (member, _) in living {
            members += 1;
            rank += u32::from(member < holder);
        }
        self.ranks.members.store(members, Ordering::Relaxed);
        self.ranks.rank.store(rank, Ordering::Relaxed);
        Ok(Next::Idle)
    }

    async fn end(&mut self) -> Result<(), StoreError> {
        self.claims
            .store
            .release(&self.task(), &self.claims.holder)
            .await
    }
}

#[cfg(test)]
mod tests {
    use shortlink_core::clock::SystemClock;
    use shortlink_store::testing::TemporaryStore;

    use super::*;
    use crate::testing::claims;

    fn member(kept: &TemporaryStore, holder: &str) -> Members {
        Members::new(claims(&kept.store, &Arc::new(SystemClock), holder))
    }

    async fn look(member: &mut Members) {
        assert_eq!(member.step().await.expect("a store"), Next::Idle);
    }

    /// The numbers of a member's lanes.
    fn own(member: &Members, of: u32) -> Vec<u32> {
        let own = member.lanes(of).filter(Lane::is_ours);
        own.map(|lane| lane.slice.number).collect()
    }

    #[tokio::test]
    async fn living_members_share_lanes() {
        let kept = TemporaryStore::new().await;
        let mut members = ["one", "three", "two"].map(|holder| member(&kept, holder));
        assert_eq!(own(&members[1], 4), [0, 1, 2, 3]);
        for _ in 0..2 {
            for member in &mut members {
                look(member).await;
            }
        }
        assert_eq!(own(&members[0], 4), [0, 3]);
        assert_eq!(own(&members[1], 4), [1]);
        assert_eq!(own(&members[2], 4), [2]);
        // A single lane is for all.
        assert_eq!(own(&members[2], 1), [0]);

        // One ends, and another dies.
        let [mut one, mut three, _two] = members;
        one.end().await.expect("a store");
        look(&mut three).await;
        assert_eq!(own(&three, 4), [0, 2]);
        let long_ago = Instant::now().checked_sub(DEAD_AFTER).expect("a time");
        three.seen.get_mut("two").expect("known").1 = long_ago;
        look(&mut three).await;
        assert_eq!(own(&three, 4), [0, 1, 2, 3]);
        let longer_ago = Instant::now().checked_sub(FORGOTTEN_AFTER).expect("a time");
        three.seen.get_mut("two").expect("known").1 = longer_ago;
        look(&mut three).await;
        let claims = kept.store.claims_of(PREFIX).await.expect("a store");
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].0, "three");
    }

    #[test]
    fn each_lane_has_a_claim_of_its_own() {
        let lane = |number| Lane::new(Slice { number, of: 3 });
        let names = [0, 1, 2].map(|number| lane(number).task("sweep"));
        assert_eq!(names, ["sweep", "sweep.1", "sweep.2"]);
    }
}
