//! Delivers links to Redis, at once or as soon as Redis is reachable.
//!
//! Every new link writes a row to the outbox, every change one to the log of changes. The request that made the
//! change publishes it right away. Published changes are settled later, in batches, so that a request waits for
//! one `fsync` instead of two. The [worker] finds what was not published, because Redis was away or the process
//! was killed, and publishes the current state of these links until that succeeds. Publishing is idempotent.
//!
//! A Redis may lose writes that it has confirmed: it crashes, a replica that lags takes over, a snapshot is
//! restored. So its data set carries a generation and a watermark, the place of the last change that it has
//! together with all before it. A data set that is not the one of before begins a new generation, and gets all
//! changes behind its watermark again. While it lacks any, and while anything is overdue, it gets no beats: then
//! nginx asks the fallback before it turns a visitor away.
//!
//! [worker]: worker

mod worker;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use shortlink_core::boxed;
use shortlink_core::campaign::Campaign;
use shortlink_core::clock::Clock;
use shortlink_core::link::Link;
use shortlink_core::ports::{
    Delivery, Overdue, PublishError, Published, PublishedCampaign, Publisher, Receipt, Session,
    StoreError,
};
use shortlink_store::Store;
use tokio::sync::{Notify, mpsc};

use crate::drift::InspectError;
use crate::overtake;

pub use worker::Worker;

/// Time that a request has to publish what it stored, before the worker publishes it too.
pub const GRACE: Duration = Duration::from_secs(2);

/// The most pending confirmations. Further ones are dropped, and the worker publishes those links
/// again.
const MAX_CONFIRMATIONS: usize = 16_384;

/// The most attempts to get ahead of a record in Redis that is newer than SQL's.
const MAX_OVERTAKES: u32 = 3;

/// The number up to which overdue rows are counted.
const MAX_OVERDUE: u32 = 100_000;

/// A confirmation by Redis, and the connection that it came over.
#[derive(Debug)]
struct Confirmed {
    session: Session,
    what: What,
}

#[derive(Debug)]
enum What {
    Links(Receipt),
    Campaign(PublishedCampaign),
}

/// Publishes links when they change, and reports the result to the worker.
pub struct Outbox {
    parts: Arc<Parts>,
    confirmations: mpsc::Sender<Confirmed>,
}

/// Parts that both ends of the outbox use.
struct Parts {
    store: Arc<Store>,
    publisher: Arc<dyn Publisher>,
    clock: Arc<dyn Clock>,
    /// Something was not published.
    failed: Notify,
}

/// Creates the two ends of the outbox of a store.
pub fn outbox(
    store: Arc<Store>,
    publisher: Arc<dyn Publisher>,
    clock: Arc<dyn Clock>,
) -> (Outbox, Worker) {
    let (sender, receiver) = mpsc::channel(MAX_CONFIRMATIONS);
    let parts = Arc::new(Parts {
        store,
        publisher,
        clock,
        failed: Notify::new(),
    });
    let outbox = Outbox {
        parts: Arc::clone(&parts),
        confirmations: sender,
    };
    (outbox, Worker::new(parts, receiver))
}

/// Counts what is overdue for Redis, up to 100,000 rows.
#[boxed]
pub async fn overdue(store: &Store, clock: &dyn Clock) -> Result<Overdue, StoreError> {
    let (since, until) = recent(clock);
    store.overdue(since, until, MAX_OVERDUE).await
}

/// Returns the span of time whose rows are not overdue: their requests may be about to publish them. Rows from
/// the future are overdue as well, since clocks differ and are set back.
fn recent(clock: &dyn Clock) -> (Timestamp, Timestamp) {
    let (now, grace) = (
        clock.now(),
        SignedDuration::try_from(GRACE).unwrap_or_default(),
    );
    (now - grace, now + grace)
}

#[async_trait]
impl Delivery for Outbox {
    async fn deliver(&self, links: &[Link], receipt: Receipt) -> bool {
        let published = self.parts.publish_links(links).await;
        self.report(What::Links(receipt), published)
    }

    async fn deliver_campaign(&self, campaign: &Campaign) -> bool {
        let campaigns = std::slice::from_ref(campaign);
        let published = self.parts.publish_campaigns(campaigns).await;
        self.report(What::Campaign(confirmation(campaign)), published)
    }
}

impl Outbox {
    /// Reports whether links or a campaign were published, and leaves the rest to the worker.
    fn report(&self, what: What, sent: Result<Sent, InspectError>) -> bool {
        match sent {
            // When the queue is full, the worker finds the links in the outbox.
            Ok(sent) if !sent.is_withdrawn => {
                let session = sent.session;
                drop(self.confirmations.try_send(Confirmed { session, what }));
                true
            }
            Ok(_) => {
                self.parts.failed.notify_one();
                false
            }
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::debug!(error, ?what, "unpublished changes wait for Redis");
                self.parts.failed.notify_one();
                false
            }
        }
    }
}

impl Parts {
    /// Publishes links. SQL wins over newer records in Redis.
    async fn publish_links(&self, links: &[Link]) -> Result<Sent, InspectError> {
        let published = publish(&*self.publisher, links).await?;
        win(published, &|place, standing| {
            let code = links[place].code;
            Box::pin(async move {
                let ahead = overtake::link(&self.store, &*self.clock, code, standing).await?;
                match ahead {
                    Some(ahead) => Ok(Some(self.publisher.publish(&[ahead]).await?)),
                    None => Ok(None),
                }
            })
        })
        .await
    }

    /// As [`Self::publish_links`] for campaigns.
    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<Sent, InspectError> {
        let published = self.publisher.publish_campaigns(campaigns).await?;
        win(published, &|place, standing| {
            let id = campaigns[place].id;
            Box::pin(async move {
                let ahead = overtake::campaign(&self.store, &*self.clock, id, standing).await?;
                match ahead {
                    Some(ahead) => Ok(Some(self.publisher.publish_campaigns(&[ahead]).await?)),
                    None => Ok(None),
                }
            })
        })
        .await
    }
}

/// Gives what has a place among what was published a revision beyond the one that stands in Redis, and publishes it.
/// `None` if it was deleted.
type GetAhead<'a> = dyn Fn(usize, u64) -> Ahead<'a> + Sync + 'a;
type Ahead<'a> = BoxFuture<'a, Result<Option<Published>, InspectError>>;

/// Replaces records in Redis that are newer than what was published.
async fn win(published: Published, get_ahead: &GetAhead<'_>) -> Result<Sent, InspectError> {
    let mut sent = Sent::from(&published);
    for (place, mut standing) in published.newer {
        let mut overtakes = 0;
        while let Some(published) = get_ahead(place, standing).await? {
            sent = sent.and(&published);
            let Some((_, newer)) = published.newer.first() else {
                break;
            };
            standing = *newer;
            overtakes += 1;
            if overtakes == MAX_OVERTAKES {
                let refused = PublishError::Refused {
                    operation: "replace a record",
                    source: "another program writes newer ones".into(),
                };
                return Err(refused.into());
            }
        }
    }
    Ok(sent)
}

/// The result of a publication.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The connection that it was written over; none if there were two.
    session: Session,
    /// Redis was full: records were deleted instead.
    is_withdrawn: bool,
}

impl From<&Published> for Sent {
    fn from(published: &Published) -> Self {
        Self {
            session: published.session,
            is_withdrawn: published.is_withdrawn,
        }
    }
}

impl Sent {
    fn and(self, published: &Published) -> Self {
        let is_same = self.session == published.session;
        Self {
            session: if is_same {
                self.session
            } else {
                Session::default()
            },
            is_withdrawn: self.is_withdrawn || published.is_withdrawn,
        }
    }
}

/// Publishes links, in the cheaper way if all of them are new.
pub(super) async fn publish(
    publisher: &dyn Publisher,
    links: &[Link],
) -> Result<Published, PublishError> {
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

#[cfg(test)]
mod tests;
