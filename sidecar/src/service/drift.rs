//! Telling drift from links that are just being changed, and repairing it.
//!
//! SQL and Redis are read one after the other, so that a link which is changed in between seems to
//! differ. What counts is a link that SQL has told Redis of (it does not wait in the outbox), that
//! SQL has not changed while Redis was read, and whose record stands otherwise all the same.

mod campaigns;

use std::error::Error;
use std::sync::Arc;

use vocabulary::Code;
use vocabulary::record::MAX_REVISION;

use crate::clock::Clock;
use crate::core::audit::{Action, ChangedBy};
use crate::core::link::{Edit, Link};
use crate::core::ports::{PublishError, RecordIndex, StoreError};
use crate::core::records::{Drift, Records};
use crate::store::Store;

pub use campaigns::{CampaignDrift, ComparedCampaigns};

/// How often a link that keeps changing is looked at before it is left alone.
const MAX_LOOKS: u32 = 5;

/// Looks closely.
pub struct Inspector {
    /// Where links are.
    pub store: Arc<Store>,
    /// Where their records are.
    pub index: Arc<dyn RecordIndex>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// What was found of links that seemed to differ.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// The records of those that do, as they are to stand.
    pub records: Records,
    /// How each of these differs.
    pub drifts: Vec<Drift>,
    /// How many others are just being changed.
    pub changing: u64,
}

impl Inspector {
    /// Looks at links once more that seem to differ.
    ///
    /// # Errors
    /// When SQL or Redis fails.
    pub async fn confirm(&self, mut codes: Vec<Code>) -> Result<Confirmed, InspectError> {
        let mut confirmed = Confirmed {
            records: Records::at(self.clock.now()),
            drifts: Vec::new(),
            changing: 0,
        };
        for _ in 0..MAX_LOOKS {
            if codes.is_empty() {
                break;
            }
            let now = self.clock.now();
            // In this order: what does not wait now has been told to Redis before.
            let before = self.store.records_of(&codes, now).await?;
            let told = (0..before.records.len()).filter(|&place| !before.waiting[place]);
            let told = before.records.some(told);
            confirmed.changing += (before.records.len() - told.len()) as u64;
            let drifted = self.index.compare(&told).await?;
            let suspects = drifted.iter().map(|(place, _)| told.get(*place).code);
            let suspects: Vec<Code> = suspects.collect();
            let mut after = Vec::new();
            if !suspects.is_empty() {
                let kept = self.store.records_of(&suspects, now).await?;
                after.extend(kept.records.iter().map(|it| (it.code, it.revision)));
            }
            after.sort_unstable();
            codes.clear();
            let (mut places, mut drifts) = (Vec::new(), Vec::new());
            for (place, drift) in drifted {
                let wanted = told.get(place);
                if after.binary_search(&(wanted.code, wanted.revision)).is_ok() {
                    places.push(place);
                    drifts.push(drift);
                } else {
                    codes.push(wanted.code);
                }
            }
            confirmed.records.extend(&told.some(places));
            confirmed.drifts.extend(drifts);
        }
        confirmed.changing += codes.len() as u64;
        Ok(confirmed)
    }

    /// Puts right what was confirmed; answers how many links that has helped.
    ///
    /// What is newer in Redis than in SQL, as after a backup of SQL was restored, can't be
    /// replaced as it is: no older revision ever takes the place of a newer one. So the link is
    /// given a revision beyond that, with nothing else changed.
    ///
    /// # Errors
    /// When SQL or Redis fails.
    pub async fn repair(&self, confirmed: &Confirmed) -> Result<u64, InspectError> {
        let mut plain = Vec::new();
        let mut repaired = 0;
        for (place, drift) in confirmed.drifts.iter().enumerate() {
            match drift {
                Drift::Newer(revision) => {
                    let code = confirmed.records.get(place).code;
                    repaired += u64::from(self.overtake(code, *revision).await?);
                }
                _ => plain.push(place),
            }
        }
        let filled = self.index.fill(&confirmed.records.some(plain)).await?;
        Ok(repaired + filled.total() - filled.newer)
    }

    async fn overtake(&self, code: Code, revision: u64) -> Result<bool, InspectError> {
        if revision >= MAX_REVISION {
            return Ok(false);
        }
        let now = self.clock.now();
        let editor = Box::new(move |link: Link| {
            if link.revision > revision {
                return Edit::Unchanged(link);
            }
            Edit::Changed(Link {
                revision: revision + 1,
                updated_at: now.max(link.updated_at),
                ..link
            })
        });
        let by = ChangedBy {
            key_id: None,
            action: Action::LinkChange,
        };
        let Some(edited) = self.store.edit_link(&code, &by, editor).await? else {
            return Ok(false);
        };
        let (Edit::Changed(link) | Edit::Unchanged(link)) = edited.edit else {
            return Ok(false);
        };
        let mut records = Records::at(now);
        records.push(link.code, &link.record());
        let filled = self.index.fill(&records).await?;
        if let Err(error) = self.store.settle(vec![edited.receipt], now).await {
            tracing::debug!(error = &error as &dyn Error, "it is published once more");
        }
        Ok(filled.newer == 0)
    }
}

/// Why links can't be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis failed.
    #[error(transparent)]
    Publish(#[from] PublishError),
}
