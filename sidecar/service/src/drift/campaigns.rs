//! Drift of campaigns. They are few, so all are compared at once.

use std::collections::HashSet;

use shortlink_core::boxed;
use shortlink_core::campaign::Campaign;
use shortlink_core::records::Drift;
use vocabulary::CampaignId;

use super::{InspectError, Inspector};
use crate::overtake;

/// Campaigns per comparison.
const TOGETHER: u32 = 1000;

/// A campaign whose record has drifted.
#[derive(Clone, Debug)]
pub struct CampaignDrift {
    /// The campaign.
    pub campaign: Campaign,
    /// The drift of its record.
    pub drift: Drift,
}

/// The result of comparing campaigns.
#[derive(Clone, Debug, Default)]
pub struct ComparedCampaigns {
    /// Campaigns whose records have drifted.
    pub drifts: Vec<CampaignDrift>,
    /// Number of other campaigns whose changes are in progress.
    pub changing: u64,
}

impl Inspector {
    /// Compares the records of all campaigns.
    ///
    /// # Errors
    /// Fails if SQL or Redis fails.
    #[boxed]
    pub async fn compare_campaigns(&self) -> Result<ComparedCampaigns, InspectError> {
        let mut compared = ComparedCampaigns::default();
        let mut after = None;
        loop {
            // The order matters: a campaign without a pending change was delivered to Redis before
            // the comparison.
            let waiting = self.store.waiting_campaigns().await?;
            let waiting: HashSet<CampaignId> = waiting.into_iter().collect();
            let campaigns = self.store.list_campaigns(after, TOGETHER, None).await?;
            let Some(last) = campaigns.last() else {
                return Ok(compared);
            };
            after = Some(last.id);
            for (place, drift) in self.index.compare_campaigns(&campaigns).await? {
                let campaign = &campaigns[place];
                let present = self.store.find_campaign(campaign.id).await?;
                let is_same = present.is_some_and(|it| it.revision == campaign.revision);
                if waiting.contains(&campaign.id) || !is_same {
                    compared.changing += 1;
                } else {
                    compared.drifts.push(CampaignDrift {
                        campaign: campaign.clone(),
                        drift,
                    });
                }
            }
        }
    }

    /// Repairs drift; returns the number of repaired campaigns. A campaign whose record is newer
    /// gets a revision beyond it, as a link does.
    ///
    /// # Errors
    /// Fails if SQL or Redis fails.
    #[boxed]
    pub async fn repair_campaigns(&self, drifts: Vec<CampaignDrift>) -> Result<u64, InspectError> {
        let mut campaigns = Vec::with_capacity(drifts.len());
        for CampaignDrift { campaign, drift } in drifts {
            match drift {
                Drift::Newer(revision) => {
                    let (store, clock) = (&self.store, &*self.clock);
                    campaigns
                        .extend(overtake::campaign(store, clock, campaign.id, revision).await?);
                }
                _ => campaigns.push(campaign),
            }
        }
        let newer = self.index.fill_campaigns(&campaigns).await?;
        Ok((campaigns.len() - newer.len()) as u64)
    }
}
