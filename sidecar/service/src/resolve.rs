//! Resolves codes for the edge when Redis has no answer.
//!
//! A visitor waits for the answer. So nothing is queried that is known already, SQL has a timeout,
//! and its answer is written to Redis in the background.

mod replica;

use std::sync::Arc;
use std::time::Duration;

use shortlink_core::campaign::Campaign;
use shortlink_core::clock::Clock;
use shortlink_core::link::{Link, since_1970};
use shortlink_core::ports::{PublishError, Publisher, StoreError};
use shortlink_store::Store;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use vocabulary::judge::{Answer, MissReason, judge};
use vocabulary::plan::{Choice, Visitor};
use vocabulary::{CampaignId, Code, CodeRules, ExpandError, Plan, Verdict};

pub use replica::Replica;

/// Timeout of SQL. After it, the visitor gets an answer that asks to retry.
const LOOKUP_LIMIT: Duration = Duration::from_secs(1);

/// The most concurrent writes to Redis. Writes beyond that are skipped: the next visit repeats
/// them.
const MAX_BACKFILLS: usize = 64;

/// The reason a code cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// SQL took too long.
    #[error("the database did not find the link within {limit_ms} ms")]
    Slow {
        /// The timeout in milliseconds.
        limit_ms: u128,
    },
    /// The link's campaign is not in SQL.
    #[error("campaign {0} of the link does not exist")]
    NoCampaign(CampaignId),
    /// The target in SQL may not be served.
    #[error("the link's target is invalid")]
    Unservable,
    /// The campaign's target and the link's values yield no target.
    #[error("the link's values do not fit the target of its campaign: {0}")]
    Expand(ExpandError),
}

/// The result of resolving a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The answer, which is not a miss and has no plan.
    pub answer: Answer<String>,
    /// The code of the link, unless it is the text that was asked for.
    pub followed: Option<Code>,
    /// The name of the rule that chose the target.
    pub variant: Option<String>,
    /// The preview, for a visitor that is a preview agent, as [`Preview::parse`] reads it.
    pub preview: Option<Vec<u8>>,
}

/// Resolves codes.
pub struct Resolver {
    store: Arc<Store>,
    publisher: Arc<dyn Publisher>,
    rules: CodeRules,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
    replica: Option<Replica>,
}

impl Resolver {
    /// Returns a resolver of the links of `store`, which writes its results through `publisher` on
    /// `tasks`.
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
            replica: None,
        }
    }

    /// The same resolver with a replica for the time in which the primary is away.
    pub fn with_replica(self, replica: Option<Replica>) -> Self {
        Self { replica, ..self }
    }

    /// Resolves the text that a path names, for a visitor.
    ///
    /// # Errors
    /// Fails if SQL fails or is slow. An error never means that the link does not exist.
    pub async fn resolve(
        &self,
        text: &[u8],
        visitor: &impl Visitor,
    ) -> Result<Resolved, ResolveError> {
        let unknown = Resolved {
            answer: Answer::Unknown,
            followed: None,
            variant: None,
            preview: None,
        };
        let Ok(code) = Code::parse(text) else {
            return Ok(unknown);
        };
        if self.rules.judge(&code) == Verdict::WrongCheck {
            return Ok(unknown);
        }
        let mut spellings = Spellings::new(&self.rules, &code);
        while let Some(spelling) = self.in_time(spellings.next(&self.store)).await? {
            let answer = self.resolve_code(spelling).await?;
            if answer == Answer::Unknown {
                continue;
            }
            let now = since_1970(self.clock.now());
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let mut room = String::new();
            let answer = answer.map(|target| room = target).with(room.as_bytes());
            let (answer, choice) = chosen(answer, &spelling, visitor, now);
            return Ok(Resolved {
                answer: answer.map(text),
                followed: Some(spelling).filter(|it| *it != code),
                variant: choice.and_then(|it| it.variant).map(text),
                preview: choice.and_then(|it| it.preview).map(|preview| {
                    let mut written = Vec::new();
                    preview.write(&mut written);
                    written
                }),
            });
        }
        Ok(unknown)
    }

    /// Resolves one code.
    async fn resolve_code(&self, code: Code) -> Result<Answer<String>, ResolveError> {
        let replica = self.replica.as_ref();
        let is_away = replica.is_some_and(|it| it.state.primary_is_away());
        if let Some(replica) = replica.filter(|_| is_away)
            && let Some(answer) = replica.resolve(&code, self.clock.now()).await
        {
            return Ok(answer);
        }
        let found = match self.in_time(find(&self.store, &code)).await {
            Ok(found) => found,
            Err(error) => {
                // Nothing of the replica is written to Redis: it would stay there longer than its bound.
                let Some(replica) = replica.filter(|_| !is_away) else {
                    return Err(error);
                };
                let answer = replica.resolve(&code, self.clock.now()).await;
                return answer.ok_or(error);
            }
        };
        let Some((link, campaign)) = found else {
            let store = Arc::clone(&self.store);
            self.backfill(move |publisher| async move {
                publisher.note_unknown(&code).await?;
                // A link that was created and published since the query, and then lost by Redis
                // before the note, would be answered with 404. So the store is queried once more
                // after the note.
                match store.find_link(&code).await {
                    Ok(Some(link)) => publisher.publish(&[link]).await.map(drop),
                    Ok(None) | Err(_) => Ok(()),
                }
            });
            return Ok(Answer::Unknown);
        };
        let is_whole = link.destination.campaign().is_none() || campaign.is_some();
        // With an old record of its campaign in Redis, the record of a link would redirect although
        // SQL has no such campaign.
        if is_whole {
            let (record, of_campaign) = (link.clone(), campaign.clone());
            self.backfill(move |publisher| async move {
                if let Some(campaign) = of_campaign {
                    publisher.publish_campaigns(&[campaign]).await?;
                }
                publisher.publish(&[record]).await.map(drop)
            });
        }
        let now = since_1970(self.clock.now());
        let mut room = Vec::new();
        let of_campaign = campaign.as_ref().map(Campaign::record);
        let of_campaign = of_campaign.ok_or(MissReason::Absent);
        match judge(&code, Ok(link.record()), of_campaign, now, &mut room) {
            Answer::Miss(MissReason::Unexpandable(error)) => Err(ResolveError::Expand(error)),
            Answer::Miss(_) => Err(match (link.destination.campaign(), campaign) {
                (Some(id), None) => ResolveError::NoCampaign(id),
                _ => ResolveError::Unservable,
            }),
            answer => Ok(answer.map(|target| String::from_utf8_lossy(target).into_owned())),
        }
    }

    /// Finds something in time.
    async fn in_time<T>(
        &self,
        find: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, ResolveError> {
        let found = tokio::time::timeout(LOOKUP_LIMIT, find).await;
        let slow = |_elapsed| ResolveError::Slow {
            limit_ms: LOOKUP_LIMIT.as_millis(),
        };
        Ok(found.map_err(slow)??)
    }

    /// Writes to Redis in the background; skips the write when too many are in progress.
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
                    "a link that was looked up in SQL was not written to Redis"
                );
            }
            drop(permit);
        });
    }
}

/// Chooses the target for a visitor if the answer has a plan; also returns the choice.
pub(super) fn chosen<'a>(
    answer: Answer<&'a [u8]>,
    code: &Code,
    visitor: &impl Visitor,
    now: u64,
) -> (Answer<&'a [u8]>, Option<Choice<'a>>) {
    let Answer::Redirect {
        status,
        forwards_query,
        has_click_id,
        is_plan: true,
        instead_of,
        target,
    } = answer
    else {
        return (answer, None);
    };
    let Some(choice) = Plan::from_checked(target).choose(code, visitor, now) else {
        return (Answer::Miss(MissReason::Unreadable), None);
    };
    let answer = Answer::Redirect {
        status,
        forwards_query,
        has_click_id,
        is_plan: false,
        instead_of,
        target: choice.target,
    };
    (answer, Some(choice))
}

/// The codes that the text of a path can stand for, in the order in which their links count.
pub(super) struct Spellings<'a, C> {
    rules: &'a CodeRules,
    candidates: C,
    /// The candidate that was returned last.
    last: Option<Code>,
}

impl<'a> Spellings<'a, ()> {
    /// The spellings of a text.
    pub(super) fn new(
        rules: &'a CodeRules,
        text: &'a Code,
    ) -> Spellings<'a, impl Iterator<Item = Code>> {
        Spellings {
            rules,
            candidates: rules.candidates(text),
            last: None,
        }
    }
}

impl<C: Iterator<Item = Code>> Spellings<'_, C> {
    /// The next one: behind each candidate, the custom code that it is in lower case, if the rules ignore case.
    pub(super) async fn next(&mut self, store: &Store) -> Result<Option<Code>, StoreError> {
        // A candidate in another case is followed by that in lower case.
        if let Some(last) = self.last.take()
            && self.rules.ignores_case
            && last.to_lower_case() == last
            && let Some(own) = store.find_spelling(&last).await?
            && own != last
        {
            return Ok(Some(own));
        }
        self.last = self.candidates.next();
        Ok(self.last)
    }
}

/// Finds a link, and its campaign if it belongs to one.
pub(super) async fn find(
    store: &Store,
    code: &Code,
) -> Result<Option<(Link, Option<Campaign>)>, StoreError> {
    let Some(link) = store.find_link(code).await? else {
        return Ok(None);
    };
    let campaign = match link.destination.campaign() {
        Some(id) => store.find_campaign(id).await?,
        None => None,
    };
    Ok(Some((link, campaign)))
}

#[cfg(test)]
pub(crate) mod tests;
