//! Import of links with custom codes, millions at a time.
//!
//! Codes that were not issued by counting have random places in the store (see
//! [`numbering`](shortlink_core::codes::numbering)): a thousand links in the order of a file would
//! touch a thousand places. So many more links are read, sorted by their place in the store, and
//! stored a thousand at a time: each transaction is short and touches one range.
//!
//! This process publishes the stored links as after any other change; a receipt is settled together
//! with the next links. Links whose publication fails, or is interrupted by a kill, stay in the
//! outbox for a running sidecar. An existing link never changes, so an import is idempotent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::link::Link;
use shortlink_core::ports::{Created, MAX_TOGETHER, Publisher, Receipt, StoreError};
use shortlink_store::Store;
use tokio::time::Instant;
use vocabulary::Code;

use super::unvisited::import_note;
use super::{outbox, patience};

/// Pauses before retries of a failed write.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];

/// Multiple of a thousand links per transaction when no other process needs the database.
const AT_FULL_SPEED: usize = 16;

/// The longest pause between two transactions.
const LONGEST_REST: Duration = Duration::from_millis(250);

/// The result for an imported link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Created, or to be created in a dry run.
    Created,
    /// A link with this code and target exists.
    Same,
    /// The code belongs to a link with another target.
    Conflict,
}

/// Options of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Writes nothing.
    pub dry_run: bool,
    /// Stops when a code belongs to another link.
    pub stop_at_conflict: bool,
    /// Leaves no time for writes of other processes.
    pub full_speed: bool,
}

/// Imports links.
pub struct Importer {
    /// Store of the links.
    pub store: Arc<Store>,
    /// Publishes to Redis.
    pub publisher: Arc<dyn Publisher>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Start of the import. Links without a time of change in their file have this one, and get the
    /// time at which they are stored instead: a running sidecar publishes rows that have been in
    /// the outbox for longer than a moment.
    pub began: Timestamp,
    /// Options.
    pub options: ImportOptions,
}

/// The reason an import stopped.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A code belongs to another link, and the import stops at conflicts.
    #[error("the code is taken by a link to another target")]
    Conflict {
        /// Index of the link.
        place: usize,
    },
    /// The store still fails after all retries.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The results of an import, and its backlog for Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Results in the order of the links.
    pub outcomes: Vec<Outcome>,
    /// Number of stored links that are pending in the outbox.
    pub waiting: u64,
}

/// The place of a link, and that of the first link with its code.
type Pair = (usize, usize);

/// Links that are stored and not yet published or settled.
#[derive(Default)]
struct Behind {
    unpublished: Option<(Vec<Link>, Receipt)>,
    unsettled: Vec<Receipt>,
    waiting: u64,
}

impl Importer {
    /// Imports any number of links; of two links with the same code the first wins. Reports
    /// progress to `advance` every few links.
    ///
    /// # Errors
    /// Fails if the import has to stop; links stored until then remain.
    #[boxed]
    pub async fn import(
        &self,
        links: &[Link],
        advance: &(dyn Fn(usize) + Sync),
    ) -> Result<Imported, ImportError> {
        let (firsts, repeats) = self.order(links);
        let mut outcomes = vec![Outcome::Created; links.len()];
        let mut behind = Behind::default();
        let mut done = Ok(());
        self.note_times(links).await?;
        let together = match self.options.full_speed {
            true => AT_FULL_SPEED * MAX_TOGETHER,
            false => MAX_TOGETHER,
        };
        for places in firsts.chunks(together).chain(repeats.chunks(together)) {
            done = self
                .import_some(links, places, &mut outcomes, &mut behind)
                .await;
            if done.is_err() {
                break;
            }
            advance(places.len());
        }
        self.publish(&mut behind).await;
        if let Err(error) = self.settle(&mut behind).await {
            // The links are published again.
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "published links are not marked as published"
            );
        }
        done?;
        Ok(Imported {
            outcomes,
            waiting: behind.waiting,
        })
    }

    /// Returns the places of links, sorted by their place in the store: those of the first link of
    /// each code, and those of duplicates.
    fn order(&self, links: &[Link]) -> (Vec<Pair>, Vec<Pair>) {
        let numbering = self.store.numbering();
        let mut keys: Vec<_> = links
            .iter()
            .enumerate()
            .map(|(place, link)| (numbering.number(&link.code), link.code, place))
            .collect();
        keys.sort_unstable();
        let mut firsts = Vec::with_capacity(keys.len());
        let mut repeats = Vec::new();
        let mut last: Option<(Code, usize)> = None;
        for (_, code, place) in keys {
            match last {
                Some((of, first)) if of == code => repeats.push((place, first)),
                _ => {
                    last = Some((code, place));
                    firsts.push((place, place));
                }
            }
        }
        (firsts, repeats)
    }

    /// Imports the links at some places. Their codes differ, or exist already.
    async fn import_some(
        &self,
        links: &[Link],
        places: &[Pair],
        outcomes: &mut [Outcome],
        behind: &mut Behind,
    ) -> Result<(), ImportError> {
        let mut fresh = Vec::new();
        let found = self.find(links, places.iter().map(|(place, _)| *place));
        let found = found.await?;
        for &(place, first) in places {
            let link = &links[place];
            let standing = match found.get(&link.code) {
                Some(standing) => standing,
                // In a dry run, the link that would have been created first.
                None if first != place => &links[first],
                None => {
                    fresh.push(place);
                    continue;
                }
            };
            self.compare(link, standing, place, outcomes)?;
        }
        if self.options.dry_run || fresh.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let new: Vec<Link> = fresh
            .iter()
            .map(|&place| self.stamped(&links[place]))
            .collect();
        // The previous links are published while these are stored, and settled with them.
        let mut published = Behind {
            unpublished: behind.unpublished.take(),
            ..Behind::default()
        };
        let (created, settled, ()) = tokio::join!(
            self.create(&new),
            self.settle(behind),
            self.publish(&mut published)
        );
        let created = created?;
        settled?;
        behind.unsettled.append(&mut published.unsettled);
        behind.waiting += published.waiting;
        if !self.options.full_speed {
            // Other writers poll for the database: leave them time.
            let rest = started.elapsed().min(LONGEST_REST);
            tokio::time::sleep(rest).await;
        }
        // Another process took these codes a moment ago, or an attempt succeeded despite its error.
        let taken = || created.taken.iter().copied();
        let found = self.find(&new, taken()).await?;
        for index in taken() {
            let (link, place) = (&new[index], fresh[index]);
            match found.get(&link.code) {
                Some(standing) if standing == link => {}
                Some(standing) => self.compare(link, standing, place, outcomes)?,
                None => outcomes[place] = Outcome::Conflict,
            }
        }
        let mut taken = created.taken.iter().peekable();
        let kept = new.into_iter().enumerate();
        let kept = kept.filter(|(index, _)| taken.next_if(|&&it| it == *index).is_none());
        let kept: Vec<Link> = kept.map(|(_, link)| link).collect();
        if !kept.is_empty() {
            behind.unpublished = Some((kept, created.receipt));
        }
        Ok(())
    }

    /// Returns a link with the time at which it is stored.
    fn stamped(&self, link: &Link) -> Link {
        let mut link = link.clone();
        if link.updated_at == self.began {
            link.updated_at = self.clock.now();
        }
        link
    }

    /// Sets the result for a link whose code exists.
    fn compare(
        &self,
        link: &Link,
        standing: &Link,
        place: usize,
        outcomes: &mut [Outcome],
    ) -> Result<(), ImportError> {
        if standing.destination == link.destination {
            outcomes[place] = Outcome::Same;
            return Ok(());
        }
        outcomes[place] = Outcome::Conflict;
        if self.options.stop_at_conflict {
            return Err(ImportError::Conflict { place });
        }
        Ok(())
    }

    async fn find(
        &self,
        links: &[Link],
        places: impl Iterator<Item = usize>,
    ) -> Result<HashMap<Code, Link>, StoreError> {
        let codes: Vec<Code> = places.map(|place| links[place].code).collect();
        let mut found = HashMap::with_capacity(codes.len());
        if codes.is_empty() {
            return Ok(found);
        }
        for codes in codes.chunks(MAX_TOGETHER) {
            let standing = again("look for links", || self.store.find_links(codes)).await?;
            found.extend(standing.into_iter().map(|link| (link.code, link)));
        }
        Ok(found)
    }

    /// Stores links; concurrent writes may share a transaction.
    async fn create(&self, links: &[Link]) -> Result<Created, StoreError> {
        let each = links
            .chunks(MAX_TOGETHER)
            .map(|links| again("store links", || self.store.import_links(links.to_vec())));
        let mut all = Created::default();
        for (chunk, created) in try_join_all(each).await?.into_iter().enumerate() {
            let before = chunk * MAX_TOGETHER;
            let taken = created.taken.into_iter().map(|place| before + place);
            all.taken.extend(taken);
            all.receipt.0.extend(created.receipt.0);
        }
        Ok(all)
    }

    /// Publishes the links that were stored last.
    async fn publish(&self, behind: &mut Behind) {
        let Some((links, receipt)) = behind.unpublished.take() else {
            return;
        };
        let all = links.len();
        for links in links.chunks(MAX_TOGETHER) {
            let published = outbox::publish(&*self.publisher, links).await;
            if published.as_ref().is_ok_and(|it| !it.newer.is_empty()) {
                // The worker gets ahead of the records that stand there.
                behind.waiting += all as u64;
                return;
            }
            if let Err(error) = published {
                // Some of them may have been published, but the receipt is for all.
                behind.waiting += all as u64;
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    links = links.len(),
                    "imported links were not published and wait in the outbox"
                );
                return;
            }
        }
        behind.unsettled.push(receipt);
    }

    /// Settles the receipts of published links.
    async fn settle(&self, behind: &mut Behind) -> Result<(), StoreError> {
        let receipts = std::mem::take(&mut behind.unsettled);
        if receipts.is_empty() {
            return Ok(());
        }
        again("settle the outbox", || {
            self.store.settle_new(receipts.clone())
        })
        .await
    }

    /// Records the time of import for the creators of links that are older than the import: the
    /// absence of visits here does not yet show that these links are unvisited.
    async fn note_times(&self, links: &[Link]) -> Result<(), StoreError> {
        let old = links.iter().filter(|link| link.updated_at < self.began);
        let makers: BTreeSet<&str> = old.map(|link| link.created_by.as_str()).collect();
        for maker in makers.into_iter().filter(|_| !self.options.dry_run) {
            let (name, now) = (import_note(maker), self.clock.now());
            again("note when it was", || {
                self.store.take_note(&name, Some(now.to_string()))
            })
            .await?;
        }
        Ok(())
    }
}

/// Runs an operation with retries: a restart of the database must not end an import of hours.
async fn again<T, F>(what: &str, attempt: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let failure = format!("the import could not {what}");
    patience::again(&PAUSES, &failure, attempt).await
}

#[cfg(test)]
mod tests;
