//! Delivers links to Redis, at once or as soon as Redis is reachable.
//!
//! Every change of a link writes a row to the outbox. The request that changed the link publishes
//! it right away. Rows of published links are cleared later, in batches, so that a request waits
//! for one `fsync` instead of two. The worker finds rows whose publication failed, or whose process
//! was killed, and publishes the current state of their links until that succeeds. Publishing is
//! idempotent.
//!
//! A Redis that crashes may lose its last confirmed writes. The fallback finds a new link that was
//! lost, but a lost revocation would revive the link. So changes stay in the outbox for [`LINGER`]
//! after they were applied, and are applied again when the generation of the Redis data set
//! changes.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use shortlink_core::campaign::Campaign;
use shortlink_core::clock::Clock;
use shortlink_core::link::Link;
use shortlink_core::ports::{
    Delivery, MAX_TOGETHER, PublishError, PublishedCampaign, Publisher, Receipt, StoreError,
    Waiting,
};
use shortlink_store::Store;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::drift::InspectError;

/// Time that changes stay in the outbox after they were applied. A Redis that writes its log once a
/// second can lose about the last two seconds; a replica that takes over can lag further behind.
const LINGER: SignedDuration = SignedDuration::from_secs(60);

/// Time that a request has to publish the link that it changed, before the worker publishes it too.
const GRACE: SignedDuration = SignedDuration::from_secs(2);

/// Interval at which the worker clears rows and checks Redis.
const TICK: Duration = Duration::from_millis(500);

/// Pauses of the worker after a failure: the first and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Interval at which rows past [`LINGER`] are deleted.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// The most confirmations that are recorded together.
const BATCH: usize = 256;

/// The most pending confirmations. Further ones are dropped, and the worker publishes those links
/// again.
const MAX_CONFIRMATIONS: usize = 16_384;

/// A confirmation by Redis.
#[derive(Debug)]
enum Confirmed {
    Links(Receipt),
    Campaign(PublishedCampaign),
}

/// Publishes links when they change, and reports the result to the worker.
pub struct Outbox {
    publisher: Arc<dyn Publisher>,
    confirmations: mpsc::Sender<Confirmed>,
    failed: Arc<Notify>,
}

/// Publishes links that could not be published at once.
pub struct Worker {
    store: Arc<Store>,
    publisher: Arc<dyn Publisher>,
    clock: Arc<dyn Clock>,
    confirmations: mpsc::Receiver<Confirmed>,
    failed: Arc<Notify>,
    /// Generation of the Redis data set that confirmed the applied changes; `None` before the first
    /// query.
    incarnation: Option<String>,
}

/// Creates the two ends of the outbox of a store.
pub fn outbox(
    store: Arc<Store>,
    publisher: Arc<dyn Publisher>,
    clock: Arc<dyn Clock>,
) -> (Outbox, Worker) {
    let (sender, receiver) = mpsc::channel(MAX_CONFIRMATIONS);
    let failed = Arc::new(Notify::new());
    let outbox = Outbox {
        publisher: Arc::clone(&publisher),
        confirmations: sender,
        failed: Arc::clone(&failed),
    };
    let worker = Worker {
        store,
        publisher,
        clock,
        confirmations: receiver,
        failed,
        incarnation: None,
    };
    (outbox, worker)
}

/// Returns the time before which a pending change is overdue: the request that made it should have
/// published it.
pub fn overdue(clock: &dyn Clock) -> jiff::Timestamp {
    clock.now() - GRACE
}

#[async_trait]
impl Delivery for Outbox {
    async fn deliver(&self, links: &[Link], receipt: Receipt) -> bool {
        let published = publish(&*self.publisher, links).await;
        self.report(Confirmed::Links(receipt), &published)
    }

    async fn deliver_campaign(&self, campaign: &Campaign) -> bool {
        let campaigns = std::slice::from_ref(campaign);
        let published = self.publisher.publish_campaigns(campaigns).await;
        self.report(Confirmed::Campaign(confirmation(campaign)), &published)
    }
}

impl Outbox {
    /// Reports whether links or a campaign were published, and leaves the rest to the worker.
    fn report(&self, confirmed: Confirmed, published: &Result<(), PublishError>) -> bool {
        match published {
            // When the queue is full, the worker finds the links in the outbox.
            Ok(()) => drop(self.confirmations.try_send(confirmed)),
            Err(error) => {
                let error = error as &dyn Error;
                tracing::debug!(
                    error,
                    ?confirmed,
                    "what was not published waits in the outbox"
                );
                self.failed.notify_one();
            }
        }
        published.is_ok()
    }
}

/// Publishes links, in the cheaper way if all of them are new.
pub(super) async fn publish(publisher: &dyn Publisher, links: &[Link]) -> Result<(), PublishError> {
    if links.iter().all(|link| link.revision == 1) {
        publisher.publish_new(links).await
    } else {
        publisher.publish(links).await
    }
}

/// Returns the published revision of a campaign.
fn confirmation(campaign: &Campaign) -> PublishedCampaign {
    PublishedCampaign {
        id: campaign.id,
        revision: campaign.revision,
    }
}

impl Worker {
    /// Runs until `shutdown`, then records the last confirmations.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        let mut is_failing = false;
        let mut forget_at = Instant::now();
        // Rows that an earlier process left behind belong to no request.
        let mut urgent = true;
        while !shutdown.is_cancelled() {
            let wait = match self.round(urgent, &shutdown).await {
                Ok(published) => {
                    if is_failing {
                        tracing::info!("the outbox can be delivered again");
                        is_failing = false;
                    }
                    if published > 0 {
                        tracing::info!(links = published, "links from the outbox were published");
                    }
                    urgent = false;
                    pause = FIRST_PAUSE;
                    TICK
                }
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(
                            error = &error as &dyn Error,
                            "the outbox can't be delivered; trying again until it can"
                        );
                        is_failing = true;
                    }
                    // Pending changes have waited for Redis, not for a request.
                    urgent = true;
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait
                }
            };
            if !is_failing && Instant::now() >= forget_at {
                self.forget().await;
                forget_at = Instant::now() + FORGET_EVERY;
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.failed.notified(), if !is_failing => {
                    // Other requests are about to fail too: one short wait for all of them.
                    tokio::time::sleep(FIRST_PAUSE).await;
                    urgent = true;
                }
            }
        }
        if let Err(error) = self.note_confirmations().await {
            tracing::warn!(
                error = &error as &dyn Error,
                "what was published last is not noted and will be published again"
            );
        }
    }

    /// Records confirmations, checks the generation of the Redis data set, and publishes pending
    /// links; returns the number of links published. `urgent` publishes without the grace period
    /// for requests.
    async fn round(
        &mut self,
        mut urgent: bool,
        shutdown: &CancellationToken,
    ) -> Result<usize, InspectError> {
        self.note_confirmations().await?;
        let incarnation = self.publisher.incarnation().await?;
        if self.incarnation.as_ref() != Some(&incarnation) {
            let reopened = self.store.reopen_applied().await?;
            tracing::info!(
                links = reopened,
                first = self.incarnation.is_none(),
                "Redis has (re)started; late changes are published again"
            );
            self.incarnation = Some(incarnation);
            // No request publishes earlier changes.
            urgent = true;
        }
        let mut total = 0;
        let since = if urgent {
            self.clock.now()
        } else {
            overdue(&*self.clock)
        };
        // A campaign's change affects all its links.
        let campaigns = self.store.waiting_campaigns(since).await?;
        if !campaigns.is_empty() {
            self.publisher.publish_campaigns(&campaigns).await?;
            let settled = campaigns.iter().map(confirmation).collect();
            self.store
                .settle_campaigns(settled, self.clock.now())
                .await?;
            tracing::info!(
                campaigns = campaigns.len(),
                "campaigns from the outbox were published"
            );
        }
        while !shutdown.is_cancelled() {
            let Waiting { links, receipt } = self.store.waiting(since).await?;
            if receipt.0.is_empty() {
                break;
            }
            for some in links.chunks(MAX_TOGETHER) {
                self.publisher.publish(some).await?;
            }
            total += links.len();
            self.store.settle(vec![receipt], self.clock.now()).await?;
        }
        Ok(total)
    }

    async fn note_confirmations(&mut self) -> Result<(), StoreError> {
        loop {
            let (mut receipts, mut campaigns) = (Vec::new(), Vec::new());
            while receipts.len() + campaigns.len() < BATCH
                && let Ok(confirmed) = self.confirmations.try_recv()
            {
                match confirmed {
                    Confirmed::Links(receipt) => receipts.push(receipt),
                    Confirmed::Campaign(campaign) => campaigns.push(campaign),
                }
            }
            if receipts.is_empty() && campaigns.is_empty() {
                return Ok(());
            }
            let now = self.clock.now();
            if !receipts.is_empty() {
                self.store.settle(receipts, now).await?;
            }
            if !campaigns.is_empty() {
                self.store.settle_campaigns(campaigns, now).await?;
            }
        }
    }

    async fn forget(&self) {
        if let Err(error) = self.store.forget_applied(self.clock.now() - LINGER).await {
            tracing::warn!(
                error = &error as &dyn Error,
                "the outbox was not cleared of what was applied long ago"
            );
        }
    }
}

#[cfg(test)]
mod tests;
