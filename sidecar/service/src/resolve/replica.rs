//! Answers from the replica, while the primary is away.
//!
//! The store refuses a replica that could lack a change of before its bound. Within that bound Redis may know of a change
//! that the replica has not replayed, such as a revocation of the last second: a newer record in Redis decides.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use shortlink_core::link::since_1970;
use shortlink_core::ports::{PublishError, RecordIndex, Stood, StoreError};
use shortlink_core::records::{Drift, drift_of};
use shortlink_store::{ReplicaState, Store};
use vocabulary::judge::{Answer, MissReason, judge};
use vocabulary::{Code, Found, Record};

/// Time limit of the replica.
const REPLICA_LIMIT: Duration = Duration::from_millis(1000);

/// Time limit of Redis.
const REDIS_LIMIT: Duration = Duration::from_millis(250);

/// The replica, and the sources of later changes.
pub struct Replica {
    /// The store on the replica ([`Store::for_visitors`]).
    pub store: Arc<Store>,
    /// Knowledge of the primary and the replica.
    pub state: ReplicaState,
    /// The records in Redis.
    pub index: Arc<dyn RecordIndex>,
}

impl Replica {
    /// Resolves a code; `None` if the replica cannot decide. An unknown code is undecided: its link may be newer than
    /// what the replica has, and nothing else shows new links.
    pub(super) async fn resolve(&self, code: &Code, now: Timestamp) -> Option<Answer<String>> {
        let found = tokio::time::timeout(REPLICA_LIMIT, self.find(code, now)).await;
        let answer = found.unwrap_or_else(|_elapsed| {
            tracing::debug!(%code, "the replica has not answered in time");
            Ok(None)
        });
        answer.unwrap_or_else(|error| {
            tracing::debug!(error = &error as &dyn Error, %code, "the replica has not answered");
            None
        })
    }

    async fn find(
        &self,
        code: &Code,
        now: Timestamp,
    ) -> Result<Option<Answer<String>>, StoreError> {
        let Some(link) = self.store.find_link(code).await? else {
            return Ok(None);
        };
        let second = since_1970(now);
        let stood = within(self.index.read(&[code.as_bytes().to_vec()])).await;
        let record = latest(link.record(), link.revision, second, stood.as_ref());
        let (campaign, stood) = match record {
            Ok(Record::CampaignLink(link)) => (
                self.store.find_campaign(link.campaign).await?,
                within(self.index.read_campaigns(&[link.campaign])).await,
            ),
            _ => (None, None),
        };
        let of_campaign = campaign
            .as_ref()
            .map_or(Err(MissReason::Absent), |campaign| {
                latest(campaign.record(), campaign.revision, second, stood.as_ref())
            });
        let mut room = Vec::new();
        Ok(match judge(code, record, of_campaign, second, &mut room) {
            Answer::Miss(_) | Answer::Unknown => None,
            answer => {
                let answer = answer.map(|target| String::from_utf8_lossy(target).into_owned());
                Some(for_now(answer))
            }
        })
    }
}

/// The record of SQL, or the one in Redis if that is of a later revision.
fn latest<'a>(record: Record<'a>, revision: u64, now: u64, stood: Option<&'a Stood>) -> Found<'a> {
    let standing = stood.map(Stood::standing);
    let newer = standing.filter(|standing| {
        let drift = drift_of(&record.to_vec(), revision, now, *standing);
        matches!(drift, Some(Drift::Newer(_)))
    });
    newer.map_or(Ok(record), |standing| standing.record())
}

/// Waits for the one value of Redis; `None` when it did not answer.
async fn within(ask: impl Future<Output = Result<Vec<Stood>, PublishError>>) -> Option<Stood> {
    tokio::time::timeout(REDIS_LIMIT, ask)
        .await
        .ok()?
        .ok()?
        .pop()
}

/// The answer with a status that browsers do not cache.
fn for_now(answer: Answer<String>) -> Answer<String> {
    match answer {
        Answer::Redirect {
            status,
            forwards_query,
            has_click_id,
            is_plan,
            instead_of,
            target,
        } => Answer::Redirect {
            status: status.temporary(),
            forwards_query,
            has_click_id,
            is_plan,
            instead_of,
            target,
        },
        other => other,
    }
}
