//! Separates drift from changes in progress, and repairs it.
//!
//! SQL and Redis are read one after the other, so a link that changes in between seems to differ. A
//! link has drifted if its change was delivered to Redis (it is not in the outbox), SQL has not
//! changed it while Redis was read, and its record differs all the same.

mod campaigns;

use std::sync::Arc;

use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::ports::{PublishError, RecordIndex, StoreError};
use shortlink_core::records::{Drift, Records};
use shortlink_store::Store;
use vocabulary::Code;

use crate::overtake;

pub use campaigns::{CampaignDrift, ComparedCampaigns};

/// The most comparisons of a link that keeps changing.
const MAX_LOOKS: u32 = 5;

/// Confirms and repairs drift.
pub struct Inspector {
    /// Store of the links.
    pub store: Arc<Store>,
    /// Index of their records.
    pub index: Arc<dyn RecordIndex>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
}

/// The result of comparing suspected links.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// The records of drifted links as they should be.
    pub records: Records,
    /// The drift of each of these.
    pub drifts: Vec<Drift>,
    /// Number of other links whose changes are in progress.
    pub changing: u64,
}

impl Inspector {
    /// Compares suspected links again.
    ///
    /// # Errors
    /// Fails if SQL or Redis fails.
    #[boxed]
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
            // The order matters: a link without a pending change was delivered to Redis before the
            // comparison.
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

    /// Repairs confirmed drift; returns the number of repaired links. A link whose record is newer gets a
    /// revision beyond it.
    ///
    /// # Errors
    /// Fails if SQL or Redis fails.
    #[boxed]
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
        let ahead = overtake::link(&self.store, &*self.clock, code, revision).await?;
        let Some(link) = ahead else {
            return Ok(false);
        };
        let mut records = Records::at(self.clock.now());
        records.push(&link);
        let filled = self.index.fill(&records).await?;
        Ok(filled.newer == 0)
    }
}

/// The reason an inspection failed.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// SQL failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis failed.
    #[error(transparent)]
    Publish(#[from] PublishError),
}
