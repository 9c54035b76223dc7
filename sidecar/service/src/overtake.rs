//! Gets a link or campaign ahead of a record in Redis with a later revision than SQL's.
//!
//! Such a record was written before SQL was restored from a backup, or by another program. An older revision never
//! replaces a newer one, so SQL's gets a revision beyond it, without any other change.

use shortlink_core::audit::{Action, ChangedBy};
use shortlink_core::campaign::{Campaign, CampaignEdit};
use shortlink_core::clock::Clock;
use shortlink_core::link::{Edit, Link};
use shortlink_core::ports::StoreError;
use shortlink_core::revised::Revised;
use shortlink_store::Store;
use vocabulary::{CampaignId, Code};

/// Gives a link a revision beyond a `standing` one, unless it has got one meanwhile, and returns it. `None` if it was
/// deleted.
pub(crate) async fn link(
    store: &Store,
    clock: &dyn Clock,
    code: Code,
    standing: u64,
) -> Result<Option<Link>, StoreError> {
    let now = clock.now();
    let editor = Box::new(move |link: Link| {
        if link.revision >= standing {
            return Edit::Unchanged(link);
        }
        link.overtake(standing, now)
    });
    let by = ChangedBy {
        key_id: None,
        action: Action::LinkChange,
    };
    let edited = store.edit_link(&code, &by, editor).await?;
    Ok(match edited.map(|it| it.edit) {
        Some(Edit::Changed(ahead)) => {
            tracing::warn!(%code, standing, "Redis had a newer record than the database; it is replaced");
            Some(ahead)
        }
        Some(Edit::Unchanged(ahead)) => Some(ahead),
        Some(Edit::Refused(_)) | None => None,
    })
}

/// As [`link`], for a campaign.
pub(crate) async fn campaign(
    store: &Store,
    clock: &dyn Clock,
    id: CampaignId,
    standing: u64,
) -> Result<Option<Campaign>, StoreError> {
    let now = clock.now();
    let editor = Box::new(move |campaign: Campaign| {
        if campaign.revision >= standing {
            return CampaignEdit::Unchanged(campaign);
        }
        campaign.overtake(standing, now)
    });
    let by = ChangedBy {
        key_id: None,
        action: Action::CampaignChange,
    };
    Ok(match store.edit_campaign(id, &by, editor).await? {
        Some(CampaignEdit::Changed(ahead)) => {
            tracing::warn!(%id, standing, "Redis had a newer record of a campaign than the database; it is replaced");
            Some(ahead)
        }
        Some(CampaignEdit::Unchanged(ahead)) => Some(ahead),
        Some(CampaignEdit::Refused(_)) | None => None,
    })
}
