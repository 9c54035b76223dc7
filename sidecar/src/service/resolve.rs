//! Following links for the edge when Redis could not say.
//!
//! Whoever comes here waits with a phone in hand. So nothing is asked that can be known without
//! asking, SQL gets a bounded time, and what SQL has said is written to Redis only after the
//! answer and never waited for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use vocabulary::judge::{Answer, MissReason, judge};
use vocabulary::{CampaignId, Code, CodeRules, ExpandError, RedirectStatus, Verdict};

use crate::clock::Clock;
use crate::core::campaign::Campaign;
use crate::core::link::{Link, since_1970};
use crate::core::ports::{PublishError, Publisher, StoreError};
use crate::store::Store;

/// How long SQL may take to find a link before the visitor is asked to come back.
const LOOKUP_LIMIT: Duration = Duration::from_secs(1);

/// The most writes to Redis under way at once. With more to do, writes are left out: the next
/// visitor's will do.
const MAX_BACKFILLS: usize = 64;

/// What a visitor is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// To go on.
    Redirect(Redirect),
    /// That there was a link and is none any more.
    Gone,
    /// That there is no link, or none yet.
    Unknown,
}

/// Where a visitor goes on to, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The link's target, or its campaign's with the link's values.
    pub target: String,
    /// How it is answered.
    pub status: RedirectStatus,
    /// Whether the visitor's query is appended.
    pub forward_query: bool,
}

/// Why nobody can know what to tell a visitor.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// SQL took too long.
    #[error("the database did not find the link within {limit_ms} ms")]
    Slow {
        /// How long it was given, in milliseconds.
        limit_ms: u128,
    },
    /// SQL has a link of a campaign that it has not.
    #[error("campaign {0} of the link does not exist")]
    NoCampaign(CampaignId),
    /// SQL has a target that may not be served.
    #[error("the link's target is invalid")]
    Unservable,
    /// The campaign's target and the link's values make no target.
    #[error("the link's values do not fit the target of its campaign: {0}")]
    Expand(ExpandError),
}

/// Follows links.
pub struct Resolver {
    store: Arc<Store>,
    publisher: Arc<dyn Publisher>,
    rules: CodeRules,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
}

impl Resolver {
    /// Follows links of `store` and writes what it finds through `publisher`, in `tasks`.
    pub fn new(
        store: Arc<Store>,
        publisher: Arc<dyn Publisher>,
        rules: CodeRules,
        clock: Arc<dyn Clock>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            store,
            publisher,
            rules,
            clock,
            tasks,
            permits: Arc::new(Semaphore::new(MAX_BACKFILLS)),
        }
    }

    /// Says where a code leads.
    ///
    /// # Errors
    /// When SQL fails or is slow. That is never the answer that there is no link.
    pub async fn resolve(&self, code: &[u8]) -> Result<Resolution, ResolveError> {
        let Ok(code) = Code::parse(code) else {
            return Ok(Resolution::Unknown);
        };
        if self.rules.judge(&code) == Verdict::WrongCheck {
            return Ok(Resolution::Unknown);
        }
        let found = tokio::time::timeout(LOOKUP_LIMIT, self.find(&code))
            .await
            .map_err(|_elapsed| ResolveError::Slow {
                limit_ms: LOOKUP_LIMIT.as_millis(),
            })??;
        let Some((link, campaign)) = found else {
            let store = Arc::clone(&self.store);
            self.backfill(move |publisher| async move {
                publisher.note_unknown(&code).await?;
                // A link that was made and published since SQL was asked, and lost by Redis before
                // the note was written, would be answered 404: whoever has noted looks again.
                match store.find_link(&code).await {
                    Ok(Some(link)) => publisher.publish(&[link]).await,
                    Ok(None) | Err(_) => Ok(()),
                }
            });
            return Ok(Resolution::Unknown);
        };
        let (record, of_campaign) = (link.clone(), campaign.clone());
        self.backfill(move |publisher| async move {
            if let Some(campaign) = of_campaign {
                publisher.publish_campaigns(&[campaign]).await?;
            }
            publisher.publish(&[record]).await
        });
        let now = since_1970(self.clock.now());
        let mut room = Vec::new();
        let of_campaign = campaign.as_ref().map(Campaign::record);
        let of_campaign = of_campaign.ok_or(MissReason::Absent);
        match judge(&code, Ok(link.record()), of_campaign, now, &mut room) {
            Answer::Redirect {
                status,
                forwards_query,
                target,
            } => Ok(Resolution::Redirect(Redirect {
                target: String::from_utf8_lossy(target).into_owned(),
                status,
                forward_query: forwards_query,
            })),
            Answer::Gone => Ok(Resolution::Gone),
            Answer::NotYet | Answer::Unknown => Ok(Resolution::Unknown),
            Answer::Miss(MissReason::Unexpandable(error)) => Err(ResolveError::Expand(error)),
            Answer::Miss(_) => Err(match (link.destination.campaign(), campaign) {
                (Some(id), None) => ResolveError::NoCampaign(id),
                _ => ResolveError::Unservable,
            }),
        }
    }

    /// Finds a link, and its campaign if it belongs to one.
    async fn find(&self, code: &Code) -> Result<Option<(Link, Option<Campaign>)>, StoreError> {
        let Some(link) = self.store.find_link(code).await? else {
            return Ok(None);
        };
        let Some(id) = link.destination.campaign() else {
            return Ok(Some((link, None)));
        };
        let campaign = self.store.find_campaign(id).await?;
        Ok(Some((link, campaign)))
    }

    /// Has something written to Redis in the background, or not at all when enough is under way.
    fn backfill<F, W>(&self, write: F)
    where
        F: FnOnce(Arc<dyn Publisher>) -> W,
        W: Future<Output = Result<(), PublishError>> + Send + 'static,
    {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return;
        };
        let write = write(Arc::clone(&self.publisher));
        self.tasks.spawn(async move {
            if let Err(error) = write.await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "Redis was not told of a link that was looked up"
                );
            }
            drop(permit);
        });
    }
}
