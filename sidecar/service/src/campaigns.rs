//! Creates, changes, revokes and finds campaigns.

use std::sync::Arc;

use shortlink_core::audit::{Action, ChangedBy};
use shortlink_core::boxed;
use shortlink_core::campaign::{Campaign, CampaignChange, CampaignEdit};
use shortlink_core::clock::Clock;
use shortlink_core::ports::{CampaignEditor, Delivery, StoreError};
use shortlink_core::revised::{Refusal, Revised};
use shortlink_store::Store;
use vocabulary::CampaignId;

/// A stored campaign, and the state of its publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCampaign {
    /// The campaign.
    pub campaign: Campaign,
    /// Redis has confirmed this revision. Otherwise the outbox delivers it as soon as possible.
    pub published: bool,
}

/// Creates, changes, revokes and finds campaigns.
pub struct Campaigns {
    /// The store of campaigns.
    pub store: Arc<Store>,
    /// Delivers changes to Redis.
    pub delivery: Arc<dyn Delivery>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
}

impl Campaigns {
    /// Stores a new campaign, which gets its id.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn create(&self, mut new: Campaign) -> Result<StoredCampaign, StoreError> {
        new.id = self.store.create_campaign(&new).await?;
        Ok(self.deliver(new).await)
    }

    /// Changes a campaign on behalf of an API key. A change without effect creates no revision.
    ///
    /// # Errors
    /// Fails if the campaign is revoked, would never be valid, its plan would be too long, or the store fails.
    #[boxed]
    pub async fn change(
        &self,
        id: CampaignId,
        change: CampaignChange,
        key_id: &str,
    ) -> Result<Option<StoredCampaign>, CampaignError> {
        let now = self.clock.now();
        let action = match change.paused {
            Some(true) => Action::CampaignPause,
            Some(false) => Action::CampaignResume,
            None => Action::CampaignChange,
        };
        let editor = move |campaign: Campaign| campaign.change(&change, now);
        self.edit(id, key_id, action, Box::new(editor)).await
    }

    /// Ends an A/B test on behalf of an API key: the target of a variant becomes that of the campaign. Without variants,
    /// this has no effect and is no error.
    ///
    /// # Errors
    /// Fails if the campaign is revoked, the variant is none of the test, or the store fails.
    #[boxed]
    pub async fn win(
        &self,
        id: CampaignId,
        variant: String,
        key_id: &str,
    ) -> Result<Option<StoredCampaign>, CampaignError> {
        let now = self.clock.now();
        let editor = move |campaign: Campaign| campaign.win(&variant, now);
        self.edit(id, key_id, Action::CampaignChange, Box::new(editor))
            .await
    }

    /// Revokes a campaign on behalf of an API key. Revoking a revoked campaign has no effect and is
    /// no error.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn revoke(
        &self,
        id: CampaignId,
        key_id: &str,
    ) -> Result<Option<StoredCampaign>, CampaignError> {
        let now = self.clock.now();
        let editor = Box::new(move |campaign: Campaign| campaign.revoke(now));
        self.edit(id, key_id, Action::CampaignRevoke, editor).await
    }

    async fn edit(
        &self,
        id: CampaignId,
        key_id: &str,
        action: Action,
        editor: CampaignEditor,
    ) -> Result<Option<StoredCampaign>, CampaignError> {
        let by = ChangedBy {
            key_id: Some(key_id.to_owned()),
            action,
        };
        match self.store.edit_campaign(id, &by, editor).await? {
            Some(CampaignEdit::Changed(campaign) | CampaignEdit::Unchanged(campaign)) => {
                Ok(Some(self.deliver(campaign).await))
            }
            Some(CampaignEdit::Refused(refusal)) => Err(match refusal {
                Refusal::NeverValid => CampaignError::NeverValid,
                Refusal::PlanTooLong => CampaignError::PlanTooLong,
                Refusal::NoVariant { names } => CampaignError::NoVariant { names },
                _ => CampaignError::Revoked,
            }),
            None => Ok(None),
        }
    }

    async fn deliver(&self, campaign: Campaign) -> StoredCampaign {
        let published = self.delivery.deliver_campaign(&campaign).await;
        StoredCampaign {
            campaign,
            published,
        }
    }
}

/// The reason an operation on a campaign failed.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The campaign is revoked, which is final.
    #[error("the campaign is revoked")]
    Revoked,
    /// It would end before it begins.
    #[error("the campaign would end before it begins")]
    NeverValid,
    /// Its rules and targets would be too long together.
    #[error("the plan of the campaign is too long")]
    PlanTooLong,
    /// The winner of an A/B test is none of its variants.
    #[error("the test has no such variant")]
    NoVariant {
        /// The names of the variants.
        names: Vec<String>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
