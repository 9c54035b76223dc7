//! Expiry of unvisited links.
//!
//! A link expires after a number of *recorded days* without activity. A recorded day (UTC) has at
//! least one counted visit of any link: days before recording was enabled, or while it was
//! disabled, reveal nothing about any link. Activity is any visit, a change of the link or of its
//! campaign, the start of their validity, and an import by the link's creator. Only links that
//! redirect can expire this way.
//!
//! Nothing expires unless the backlog of visits is known to be nearly empty: it may contain the
//! visit that keeps a link alive.
//!
//! Most links that are old enough are visited, and no index finds the others. So a daily job walks
//! through all of them, from the latest to the oldest, some hundred per step. Its position is
//! stored, and only one of several sidecars runs it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::civil::time;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use shortlink_core::audit::Action;
use shortlink_core::campaign::Campaign;
use shortlink_core::clock::Clock;
use shortlink_core::link::{Change, Destination, Edit, Link, Second, State};
use shortlink_core::ports::{
    Delivery, Listing, Position, PublishError, QueueDepth, StoreError, VisitQueue,
};
use shortlink_core::visit::visitor::day_of;
use shortlink_store::Store;
use vocabulary::{CampaignId, Code};

use crate::jobs::{Job, Next};
use crate::links;

/// The number of links per step.
const BATCH: u32 = 500;

/// The longest backlog of visits at which links expire.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_secs(60);

/// The interval at which walks begin.
const WALK_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// Returns the name of the note with the time of the last import of older links by a creator.
pub(super) fn import_note(maker: &str) -> String {
    format!("imported for {maker}")
}

/// Expires unvisited links.
pub struct Unvisited {
    /// The store of links and counts.
    pub store: Arc<Store>,
    /// The queue of visits that are not counted yet.
    pub queue: Arc<dyn VisitQueue>,
    /// Publishes expired links.
    pub delivery: Arc<dyn Delivery>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The number of recorded days without activity after which a link expires.
    pub days: u32,
    /// The walk in progress, if this process runs it.
    pub walk: Option<Walk>,
    /// The results so far.
    pub done: Expired,
}

/// The progress of a walk. Times are in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    /// The time of its start.
    began: i64,
    /// Links without activity since this time expire.
    before: i64,
    /// The creation time and the code of the last link that was examined.
    after: Option<(i64, String)>,
    /// All links were examined.
    is_over: bool,
    /// Campaigns of the links of this walk, as they were read.
    #[serde(skip)]
    campaigns: HashMap<CampaignId, Option<Campaign>>,
    /// The last imports by creators of the links of this walk.
    #[serde(skip)]
    imports: HashMap<String, Option<Timestamp>>,
}

/// The results of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Links that were examined.
    pub links: u64,
    /// Links that have expired.
    pub expired: u64,
}

/// A reason why links do not expire.
#[derive(Debug, thiserror::Error)]
pub enum UnvisitedError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis does not report the backlog of visits.
    #[error(transparent)]
    Queue(#[from] PublishError),
    /// The backlog of visits is too old.
    #[error("visits have waited to be stored for longer than a minute")]
    Late,
    /// The backlog of visits has an unknown age.
    #[error("visits wait to be stored for an unknown time")]
    Unknown,
}

#[async_trait]
impl Job for Unvisited {
    type Error = UnvisitedError;
    const NAME: &'static str = "unvisited";
    const FAILURE: &'static str = "unvisited links can't be found; trying again until they can";
    const LEASE: Option<Duration> = Some(Duration::from_secs(60));

    async fn begin(&mut self) -> Result<(), UnvisitedError> {
        self.walk = None;
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, UnvisitedError> {
        let walk = match self.walk.take() {
            Some(walk) => walk,
            None => {
                self.done = Expired::default();
                match self.walk().await? {
                    Some(walk) => walk,
                    None => return Ok(Next::Idle),
                }
            }
        };
        let walk = self.go_on(walk).await?;
        if walk.is_over {
            self.log();
            return Ok(Next::Idle);
        }
        self.walk = Some(walk);
        Ok(Next::Rest)
    }

    async fn end(&mut self) -> Result<(), UnvisitedError> {
        if self.walk.is_some() {
            self.log();
        }
        Ok(())
    }
}

impl Unvisited {
    /// Returns the walk in progress, or a new one; `None` while none is due.
    async fn walk(&self) -> Result<Option<Walk>, UnvisitedError> {
        let now = self.clock.now();
        let note = self.store.note(Self::NAME).await?;
        let walk = note.and_then(|text| serde_json::from_str::<Walk>(&text).ok());
        if let Some(walk) = walk {
            let age = now.as_millisecond() - walk.began;
            if !walk.is_over {
                return Ok(Some(walk));
            }
            if age < i64::try_from(WALK_EVERY.as_millis()).unwrap_or(i64::MAX) {
                return Ok(None);
            }
        }
        // Today is not over and does not count.
        let midnight = day_of(now).to_datetime(time(0, 0, 0, 0));
        let today = Offset::UTC.to_timestamp(midnight).unwrap_or(now);
        let before = self.store.recorded_days(today, self.days).await?;
        let Some(before) = before else {
            tracing::debug!(days = self.days, "too few days have recorded visits");
            return Ok(None);
        };
        Ok(Some(Walk {
            began: now.as_millisecond(),
            before: before.as_millisecond(),
            after: None,
            is_over: false,
            campaigns: HashMap::new(),
            imports: HashMap::new(),
        }))
    }

    fn log(&self) {
        if self.done.expired > 0 {
            tracing::info!(
                links = self.done.links,
                expired = self.done.expired,
                "unvisited links have expired"
            );
        }
    }

    /// Examines the next links of a walk; returns its new position.
    async fn go_on(&mut self, mut walk: Walk) -> Result<Walk, UnvisitedError> {
        let before = Timestamp::from_millisecond(walk.before).unwrap_or(Timestamp::MIN);
        self.check_queue().await?;
        let links = self.next(&walk, before).await?;
        self.done.links += links.len() as u64;
        match links.last() {
            Some(last) => {
                let made = last.created_at.as_millisecond();
                walk.after = Some((made, last.code.to_string()));
            }
            None => walk.is_over = true,
        }
        let mut quiet = Vec::with_capacity(links.len());
        for link in links {
            let last_sign = self.last_sign(&link, &mut walk).await?;
            if last_sign.is_some_and(|sign| sign < before) {
                quiet.push(link);
            }
        }
        let codes: Vec<Code> = quiet.iter().map(|link| link.code).collect();
        let visited = self.store.visit_totals(&codes).await?;
        let visited: HashMap<Code, Timestamp> = visited
            .into_iter()
            .map(|total| (total.code, total.last_at))
            .collect();
        quiet.retain(|link| visited.get(&link.code).is_none_or(|last| *last < before));
        for link in quiet {
            self.done.expired += u64::from(self.expire(link).await?);
        }
        let text = serde_json::to_string(&walk).unwrap_or_default();
        self.store.take_note(Self::NAME, Some(text)).await?;
        Ok(walk)
    }

    /// Fails while visits that are not counted yet may be activity of links.
    async fn check_queue(&self) -> Result<(), UnvisitedError> {
        let QueueDepth { batches, oldest } = self.queue.depth().await?;
        match oldest {
            Some(oldest) if self.clock.now().duration_since(oldest) > LONGEST_DELAY => {
                Err(UnvisitedError::Late)
            }
            None if batches > 0 => Err(UnvisitedError::Unknown),
            _ => Ok(()),
        }
    }

    /// Returns the next links that redirect and are old enough, the latest first.
    async fn next(&self, walk: &Walk, before: Timestamp) -> Result<Vec<Link>, StoreError> {
        let after = walk.after.as_ref().and_then(|(made, code)| {
            Some(Position {
                created_at: Timestamp::from_millisecond(*made).ok()?,
                code: code.parse().ok()?,
            })
        });
        // Any code will do: links created at exactly that time do not expire.
        let first = "0".parse().ok().map(|code| Position {
            created_at: before,
            code,
        });
        let listing = Listing {
            state: Some((State::Live, self.clock.now())),
            after: after.or(first),
            limit: BATCH,
            ..Listing::default()
        };
        self.store.list_links(&listing).await
    }

    /// Returns the time of a link's last activity besides visits; `None` if it cannot expire.
    async fn last_sign(
        &self,
        link: &Link,
        walk: &mut Walk,
    ) -> Result<Option<Timestamp>, StoreError> {
        let mut signs = vec![link.created_at, link.updated_at];
        signs.extend(link.valid_since.map(Second::moment));
        if let Destination::Campaign { id, .. } = link.destination {
            let campaign = match walk.campaigns.entry(id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(self.store.find_campaign(id).await?),
            };
            let now = self.clock.now();
            match campaign.as_ref() {
                Some(campaign) if campaign.state(now) == State::Live => {
                    signs.push(campaign.updated_at);
                    let since = campaign.validity.since();
                    let since = since.and_then(|it| i64::try_from(it.get()).ok());
                    signs.extend(since.and_then(|it| Timestamp::from_second(it).ok()));
                }
                _ => return Ok(None),
            }
        }
        let imported = match walk.imports.entry(link.created_by.clone()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let note = self.store.note(&import_note(&link.created_by)).await?;
                *place.insert(note.and_then(|text| text.parse().ok()))
            }
        };
        signs.extend(imported);
        Ok(signs.into_iter().max())
    }

    /// Expires a link unless it has changed since it was read; returns true if it did.
    async fn expire(&self, seen: Link) -> Result<bool, StoreError> {
        let (now, code) = (self.clock.now(), seen.code);
        let editor = Box::new(move |link: Link| {
            if link.revision != seen.revision || link.state(now) != State::Live {
                return Edit::Unchanged(link);
            }
            let change = Change {
                valid_until: Some(Second::at(now)),
                ..Change::default()
            };
            link.change(&change, now)
        });
        let action = Action::LinkExpire;
        links::end(&self.store, &*self.delivery, &code, action, editor).await
    }
}

#[cfg(test)]
mod tests;
