//! Issues codes, and stores and publishes their links.
//!
//! Links are created in batches: codes are drawn for all of them, and all are stored in one
//! transaction and published together. Links whose codes are taken get new draws. Concurrent
//! requests for single links are gathered ([`Issuer::create`]) to share a transaction; a lone
//! request does not wait.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::codes::blocklist::Blocklist;
use shortlink_core::codes::reserved::ReservedWords;
use shortlink_core::codes::strategy::{CodePolicy, StrategyName};
use shortlink_core::link::Link;
use shortlink_core::ports::{
    Created, Delivery, FoundOrCreated, Identical, Identity, MAX_TOGETHER, QuotaOwner, Receipt,
    StoreError, UsedUp,
};
use shortlink_core::trace::Origin;
use shortlink_store::Store;
use tokio::sync::{mpsc, oneshot};
use vocabulary::{BodyLengths, Code};

use super::codes::lengths::{Lengths, Reservation};
use super::codes::strategy::{DrawRequest, Strategies};
use super::new_link::{LinkError, NewLink, NoCode, Stored};

/// The most draws for a link. With half of all codes taken, one link in four billion would need
/// more.
const MAX_DRAWS: u32 = 32;

/// The most single links that share a transaction.
const MAX_GATHERED: usize = 256;

/// The most single links in the queue. Further callers wait until there is space.
const MAX_QUEUE: usize = 1024;

/// Dependencies of an issuer.
pub struct Parts {
    /// Store of the links.
    pub store: Arc<Store>,
    /// Delivers changes to Redis.
    pub delivery: Arc<dyn Delivery>,
    /// Strategies that generate codes.
    pub strategies: Strategies,
    /// Chooses the lengths of codes.
    pub lengths: Arc<Lengths>,
    /// Reserved words.
    pub reserved: ReservedWords,
    /// Words that issued codes do not contain.
    pub blocklist: Blocklist,
    /// Clock.
    pub clock: Arc<dyn Clock>,
}

/// Issues links.
pub struct Issuer {
    parts: Arc<Parts>,
    gatherer: mpsc::Sender<Waiter>,
}

/// A single link in the queue, and the channel for its result.
struct Waiter {
    new: NewLink,
    reply: oneshot::Sender<Result<Stored, LinkError>>,
    origin: Origin,
}

/// Links with codes, which are not stored yet.
pub(super) struct Drawn {
    /// The links, with their places among the requests.
    pub(super) links: Vec<(usize, Link)>,
    /// The others, by their places.
    pub(super) failed: HashMap<usize, LinkError>,
    /// The capacity that their codes take, until they are stored.
    pub(super) reserved: Vec<Reservation>,
}

/// A link to create, and its result.
struct Row {
    new: NewLink,
    identity: Option<Identity>,
    /// The stored link, which is not yet published; `None` before there is a result.
    outcome: Option<Result<Stored, LinkError>>,
}

impl Row {
    fn keep(&mut self, link: Link, is_new: bool) {
        self.outcome = Some(Ok(Stored {
            link,
            published: false,
            is_new,
        }));
    }
}

impl Issuer {
    /// Starts the task that gathers single links.
    pub fn start(parts: Parts) -> Self {
        let parts = Arc::new(parts);
        let (gatherer, waiters) = mpsc::channel(MAX_QUEUE);
        tokio::spawn(gather(Arc::clone(&parts), waiters));
        Self { parts, gatherer }
    }

    /// Creates a link.
    ///
    /// # Errors
    /// Fails if its custom code is taken, no code can be drawn, or the store fails.
    #[boxed]
    pub async fn create(&self, new: NewLink) -> Result<Stored, LinkError> {
        let (reply, answer) = oneshot::channel();
        let origin = Origin::current();
        let waiter = Waiter { new, reply, origin };
        self.gatherer
            .send(waiter)
            .await
            .map_err(|_closed| LinkError::Stopped)?;
        answer.await.map_err(|_closed| LinkError::Stopped)?
    }

    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Creates links; returns the results in the same order.
    #[boxed]
    pub async fn create_all(&self, new: Vec<NewLink>) -> Vec<Result<Stored, LinkError>> {
        let (rows, receipt) = self.parts.keep(new).await;
        self.parts.announce(rows, receipt).await
    }
}

/// Creates gathered single links. A batch is stored while the one before is published.
async fn gather(parts: Arc<Parts>, mut waiters: mpsc::Receiver<Waiter>) {
    let mut gathered = Vec::with_capacity(MAX_GATHERED);
    while waiters.recv_many(&mut gathered, MAX_GATHERED).await > 0 {
        // The work for all of them belongs to the trace of one: a sampled one, if any.
        let origins = gathered.iter().map(|waiter| &waiter.origin);
        let origin = origins.max_by_key(|origin| origin.is_sampled()).cloned();
        let origin = origin.unwrap_or_else(Origin::current);
        let (new, replies): (Vec<_>, Vec<_>) = gathered
            .drain(..)
            .map(|waiter| (waiter.new, waiter.reply))
            .unzip();
        let (rows, receipt) = origin.clone().run(parts.keep(new)).await;
        let parts = Arc::clone(&parts);
        tokio::spawn(origin.run(async move {
            let outcomes = parts.announce(rows, receipt).await;
            for (reply, outcome) in replies.into_iter().zip(outcomes) {
                // The caller may have gone.
                let _ = reply.send(outcome);
            }
        }));
    }
}

impl Parts {
    /// Stores links.
    async fn keep(&self, new: Vec<NewLink>) -> (Vec<Row>, Receipt) {
        let rows = new.into_iter().map(|new| Row {
            identity: new.identity(),
            new,
            outcome: None,
        });
        let mut rows: Vec<Row> = rows.collect();
        let mut receipt = Receipt::default();
        self.find_some(&mut rows).await;
        self.refuse_some(&mut rows).await;
        for attempt in 0..MAX_DRAWS {
            let missing = rows.iter().enumerate();
            let missing = missing.filter(|(_, row)| row.outcome.is_none());
            let missing: Vec<_> = missing.map(|(place, row)| (place, &row.new)).collect();
            if missing.is_empty() {
                break;
            }
            let Drawn {
                links,
                failed,
                reserved,
            } = self.draw_for(&missing, attempt).await;
            for (place, error) in failed {
                rows[place].outcome = Some(Err(error));
            }
            // Deduplicated links are few, if any; the others do not pay for them.
            let is_plain = |(place, _): &(usize, Link)| rows[*place].identity.is_none();
            let (plain, others): (Vec<_>, Vec<_>) = links.into_iter().partition(is_plain);
            for some in plain
                .chunks(MAX_TOGETHER)
                .chain(others.chunks(MAX_TOGETHER))
            {
                self.store_some(some, &mut rows, &mut receipt).await;
            }
            drop(reserved);
        }
        (rows, receipt)
    }

    /// Finds links that earlier, equal requests created, to avoid useless draws. The decision is
    /// made when the other links are stored.
    async fn find_some(&self, rows: &mut [Row]) {
        // Links whose windows are to be renewed, by the places of their rows.
        let mut found = Vec::new();
        for (place, row) in rows.iter_mut().enumerate() {
            let Some(identity) = &row.identity else {
                continue;
            };
            let now = self.clock.now();
            match self.store.find_by_digest(&identity.digest).await {
                Ok(Some(Identical { link, used_at })) => {
                    if !identity.is_recent(used_at, now)
                        || !link.stands_for(&row.new.link(link.code, now), now)
                    {
                        continue;
                    }
                    match identity.within {
                        Some(_) => found.push((place, (identity.digest, link))),
                        None => row.keep(link, false),
                    }
                }
                Ok(None) => {}
                Err(error) => row.outcome = Some(Err(error.into())),
            }
        }
        if found.is_empty() {
            return;
        }
        let (places, links): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let renewed = self.store.renew_digests(links.clone(), self.clock.now());
        match renewed.await {
            Ok(renewed) => {
                for (place, (digest, link)) in places.into_iter().zip(links) {
                    // Otherwise another request has just got a new link.
                    if renewed.contains(&digest) {
                        rows[place].keep(link, false);
                    }
                }
            }
            Err(error) => {
                for place in places {
                    rows[place].outcome = Some(Err(error.clone().into()));
                }
            }
        }
    }

    /// Refuses links whose quota is used up, for which codes would be drawn in vain. The decision about the others is
    /// made when they are stored.
    async fn refuse_some(&self, rows: &mut [Row]) {
        let pending = rows.iter().filter(|row| row.outcome.is_none());
        match self.used_up(pending.map(|row| &row.new)).await {
            Ok(used_up) => {
                for row in rows.iter_mut().filter(|row| row.outcome.is_none()) {
                    let over = row.new.quota_owners().find_map(|owner| used_up.get(&owner));
                    row.outcome = over.map(|over| Err(LinkError::OverQuota(over.clone())));
                }
            }
            // The creation fails as well, or decides.
            Err(error) => tracing::debug!(
                error = &error as &dyn std::error::Error,
                "quotas were not checked before codes are drawn"
            ),
        }
    }

    /// The quotas of some links that are used up, by their owners.
    pub(super) async fn used_up(
        &self,
        new: impl Iterator<Item = &NewLink>,
    ) -> Result<HashMap<QuotaOwner, UsedUp>, StoreError> {
        let owners: BTreeSet<QuotaOwner> = new.flat_map(NewLink::quota_owners).collect();
        if owners.is_empty() {
            return Ok(HashMap::new());
        }
        let used_up = self.store.used_up_quotas(owners).await?.into_iter();
        Ok(used_up.map(|it| (it.owner.clone(), it)).collect())
    }

    /// Draws codes for new links and builds the links in the same order; reports errors by index. A code that is a
    /// reserved word or contains one of the blocklist is replaced at once: of a thousand codes one or two do, and they
    /// are not worth a transaction of their own. A link that gets no code this time is in neither result.
    pub(super) async fn draw_for(&self, new: &[(usize, &NewLink)], attempt: u32) -> Drawn {
        let now = self.clock.now();
        let mut links = Vec::with_capacity(new.len());
        let (mut failed, mut reserved) = (HashMap::new(), Vec::new());
        let mut by_policy: HashMap<CodePolicy, Vec<(usize, &NewLink)>> = HashMap::new();
        for &(place, new) in new {
            match new.slug {
                Some(code) => links.push((place, new.link(code, now))),
                None => by_policy.entry(new.policy).or_default().push((place, new)),
            }
        }
        for (policy, mut pending) in by_policy {
            for (replacement, attempt) in (attempt..MAX_DRAWS).enumerate() {
                let codes = match self.draw(&pending, policy, attempt, &mut reserved).await {
                    Ok(codes) => codes,
                    // Capacity for codes that were replaced is free once the others are stored.
                    Err(_) if replacement > 0 => break,
                    Err(error) => {
                        let error = Arc::new(error);
                        failed.extend(
                            pending
                                .into_iter()
                                .map(|(place, _)| (place, LinkError::NoCode(Arc::clone(&error)))),
                        );
                        break;
                    }
                };
                let mut unusable = Vec::new();
                let mut replaced = Vec::new();
                for ((place, new), code) in pending.into_iter().zip(codes) {
                    if self.reserved.contain(&code) || self.blocklist.blocks(&code) {
                        unusable.push(code);
                        replaced.push((place, new));
                    } else {
                        links.push((place, new.link(code, now)));
                    }
                }
                if policy.strategy == StrategyName::Pool {
                    // A code without a link would return to the pool.
                    self.void(unusable).await;
                }
                if replaced.is_empty() {
                    break;
                }
                pending = replaced;
            }
        }
        // In the order of the requests, which is also the order of the codes.
        links.sort_by_key(|(place, _)| *place);
        Drawn {
            links,
            failed,
            reserved,
        }
    }

    /// Draws codes of one policy, of the shortest length that has enough of them.
    async fn draw(
        &self,
        new: &[(usize, &NewLink)],
        policy: CodePolicy,
        attempt: u32,
        reserved: &mut Vec<Reservation>,
    ) -> Result<Vec<Code>, NoCode> {
        let (mut shortest, longest) = policy.lengths;
        let texts: Vec<_> = new.iter().map(|(_, new)| new.destination.text()).collect();
        let targets: Vec<&str> = texts.iter().map(|text| &**text).collect();
        let strategy = self.strategies.get(policy.strategy);
        let mut codes = Vec::with_capacity(targets.len());
        while codes.len() < targets.len() {
            let wanted = (targets.len() - codes.len()) as u64;
            let found = match BodyLengths::new(shortest, longest) {
                Some(bounds) => self.lengths.reserve(bounds, wanted).await?,
                None => None,
            };
            let Some(found) = found else {
                // Links that get a code must not fail because of the others.
                return if codes.is_empty() {
                    Err(NoCode::Full { policy })
                } else {
                    Ok(codes)
                };
            };
            let request = DrawRequest {
                length: found.length,
                targets: &targets[codes.len()..][..found.codes as usize],
                attempt,
            };
            codes.extend(strategy.draw(&request).await?);
            // This length has no more codes.
            shortest = found.length as u8 + 1;
            reserved.push(found);
        }
        Ok(codes)
    }

    /// Stores links in one transaction and records the result of each. Either all links have an
    /// identity, or none has.
    async fn store_some(&self, links: &[(usize, Link)], rows: &mut [Row], receipt: &mut Receipt) {
        let stored = match self.stored(links, rows).await {
            Ok(stored) => stored,
            Err(error) => {
                for (place, _) in links {
                    rows[*place].outcome = Some(Err(error.clone().into()));
                }
                return;
            }
        };
        receipt.0.extend(stored.receipt.0);
        let mut taken = stored.taken.iter().peekable();
        let mut over = stored.over.into_iter().peekable();
        // A code that is taken leaves the place that it took in a quota to another link.
        let is_over = stored.taken.is_empty();
        let mut found = stored.found.into_iter().peekable();
        let mut void = Vec::new();
        for (index, (place, link)) in links.iter().enumerate() {
            let row = &mut rows[*place];
            if let Some((_, link)) = found.next_if(|&(found, _)| found == index) {
                row.keep(link, false);
            } else if let Some((_, used_up)) = over.next_if(|&(over, _)| over == index) {
                row.outcome = is_over.then_some(Err(LinkError::OverQuota(used_up)));
            } else if taken.next_if(|&&taken| taken == index).is_none() {
                row.keep(link.clone(), true);
            } else if row.new.slug.is_some() {
                row.outcome = Some(Err(LinkError::Taken { code: link.code }));
            } else if row.new.policy.strategy == StrategyName::Pool {
                void.push(link.code);
            }
        }
        self.void(void).await;
    }

    /// Notes that pooled codes get no links.
    async fn void(&self, codes: Vec<Code>) {
        if !codes.is_empty()
            && let Err(error) = self.store.void_pooled(codes).await
        {
            // The pool draws them again later.
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "pooled codes that are taken or blocked were not noted as void"
            );
        }
    }

    /// Stores links. Either all have an identity, or none has.
    async fn stored(
        &self,
        links: &[(usize, Link)],
        rows: &[Row],
    ) -> Result<FoundOrCreated, StoreError> {
        let identified = links.iter();
        let identified = identified.map(|(at, link)| Some((link.clone(), rows[*at].identity?)));
        if let Some(links) = identified.collect() {
            return self.store.find_or_create_links(links).await;
        }
        let links = links.iter().map(|(_, link)| link.clone()).collect();
        let Created {
            taken,
            over,
            receipt,
        } = self.store.create_links(links).await?;
        Ok(FoundOrCreated {
            taken,
            over,
            receipt,
            found: Vec::new(),
        })
    }

    /// Publishes links and returns the result of each.
    async fn announce(&self, rows: Vec<Row>, receipt: Receipt) -> Vec<Result<Stored, LinkError>> {
        let links = rows.iter().filter_map(|row| match &row.outcome {
            Some(Ok(stored)) => Some(stored.link.clone()),
            _ => None,
        });
        let links: Vec<Link> = links.collect();
        let published = links.is_empty() || self.delivery.deliver(&links, receipt).await;
        let outcomes = rows.into_iter().map(|row| {
            let stored = row.outcome.unwrap_or_else(|| {
                Err(LinkError::Exhausted {
                    draws: MAX_DRAWS,
                    policy: row.new.policy,
                })
            })?;
            Ok(Stored {
                published,
                ..stored
            })
        });
        outcomes.collect()
    }
}
