//! Making, changing, revoking and finding campaigns.

use std::sync::Arc;

use vocabulary::{CampaignId, RedirectStatus, Validity};

use crate::clock::Clock;
use crate::core::audit::{Action, ChangedBy};
use crate::core::campaign::{
    Campaign, CampaignChange, CampaignDefaults, CampaignEdit, CampaignTarget,
};
use crate::core::ports::{CampaignEditor, Delivery, StoreError};
use crate::store::Store;

/// What a new campaign is to be.
#[derive(Clone, Debug)]
pub struct NewCampaign {
    /// What people call it.
    pub name: String,
    /// Where its links lead.
    pub target: CampaignTarget,
    /// How they redirect.
    pub redirect_status: RedirectStatus,
    /// Whether the visitor's query is passed on.
    pub forward_query: bool,
    /// When its links redirect.
    pub validity: Validity,
    /// The id of the API key that asks for it.
    pub created_by: String,
    /// What the caller calls it.
    pub external_id: Option<String>,
    /// What people want to remember of it.
    pub note: Option<String>,
    /// What its new links are like.
    pub defaults: CampaignDefaults,
}

/// A campaign that is stored, and whether Redis knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCampaign {
    /// The campaign.
    pub campaign: Campaign,
    /// Whether Redis has confirmed this revision. If not, it is told as soon as it can be.
    pub published: bool,
}

/// Makes, changes, revokes and finds campaigns.
pub struct Campaigns {
    /// Where campaigns are kept.
    pub store: Arc<Store>,
    /// How Redis is told.
    pub delivery: Arc<dyn Delivery>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl Campaigns {
    /// Makes a campaign.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn create(&self, new: NewCampaign) -> Result<StoredCampaign, StoreError> {
        let now = self.clock.now();
        let mut campaign = Campaign {
            // The store chooses another.
            id: CampaignId::FIRST,
            name: new.name,
            target: new.target,
            redirect_status: new.redirect_status,
            forward_query: new.forward_query,
            revision: 1,
            validity: new.validity,
            paused_at: None,
            revoked_at: None,
            created_at: now,
            updated_at: now,
            created_by: new.created_by,
            external_id: new.external_id,
            note: new.note,
            defaults: new.defaults,
        };
        campaign.id = self.store.create_campaign(&campaign).await?;
        Ok(self.deliver(campaign).await)
    }

    /// Finds a campaign.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        self.store.find_campaign(id).await
    }

    /// Lists campaigns, the latest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(
        &self,
        after: Option<CampaignId>,
        limit: u32,
    ) -> Result<Vec<Campaign>, StoreError> {
        self.store.list_campaigns(after, limit).await
    }

    /// Counts a campaign's links, but no more than `most`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn count_links(&self, id: CampaignId, most: u32) -> Result<u32, StoreError> {
        self.store.count_campaign_links(id, most).await
    }

    /// Changes a campaign with the key of an id. A change to what it is already makes no revision.
    ///
    /// # Errors
    /// When the campaign is revoked or the store fails.
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

    /// Revokes a campaign with the key of an id. A revoked one stays as it is, which is no error.
    ///
    /// # Errors
    /// When the store fails.
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
            Some(CampaignEdit::Refused) => Err(CampaignError::Revoked),
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

/// Why something could not be done with a campaign.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The campaign is revoked, which is final.
    #[error("the campaign is revoked")]
    Revoked,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
