//! Campaigns in SQLite.

use std::num::NonZeroU64;

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use sqlx::Sqlite;
use sqlx::sqlite::SqliteConnection;
use vocabulary::CampaignId;

use super::audit::append_audit;
use super::writer::Write;
use super::{SqliteStore, invalid};
use crate::core::audit::Action;
use crate::core::campaign::{Campaign, CampaignEdit};
use crate::core::ports::{CampaignEditor, CampaignStore, ChangedBy, PublishedCampaign, StoreError};
use crate::store::shared::Operation;
use crate::store::{columns, defaults};

/// What [`columns::campaign`] reads, as a macro since statements are literals.
macro_rules! columns {
    () => {
        "campaigns.id, name, target, parameters, redirect_status, forward_query, \
         campaigns.revision, valid_since, valid_until, paused_at, revoked_at, created_at, \
         updated_at, created_by, external_id, note, defaults"
    };
}

#[async_trait]
impl CampaignStore for SqliteStore {
    async fn create_campaign(&self, campaign: &Campaign) -> Result<CampaignId, StoreError> {
        self.writer.write(CreateCampaign(campaign.clone())).await
    }

    async fn find_campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        find(&self.readers, id).operation("find a campaign").await
    }

    async fn edit_campaign(
        &self,
        id: CampaignId,
        by: &ChangedBy,
        editor: CampaignEditor,
    ) -> Result<Option<CampaignEdit>, StoreError> {
        let edit = EditCampaign {
            id,
            by: by.clone(),
            editor: Some(editor),
        };
        self.writer.write(edit).await
    }

    async fn list_campaigns(
        &self,
        after: Option<CampaignId>,
        limit: u32,
    ) -> Result<Vec<Campaign>, StoreError> {
        sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM campaigns WHERE id < ?1 ORDER BY id DESC LIMIT ?2"
        ))
        .bind(after.map_or(i64::MAX, |id| id.get() as i64))
        .bind(limit)
        .fetch_all(&self.readers)
        .map(|rows| rows.and_then(|rows| rows.iter().map(columns::campaign).collect()))
        .operation("list campaigns")
        .await
    }

    async fn count_campaign_links(&self, id: CampaignId, most: u32) -> Result<u32, StoreError> {
        sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT 1 FROM links INDEXED BY links_by_campaign \
             WHERE campaign_id = ?1 LIMIT ?2)",
        )
        .bind(id.get() as i64)
        .bind(most)
        .fetch_one(&self.readers)
        .operation("count a campaign's links")
        .await
    }

    async fn waiting_campaigns(&self, since: Timestamp) -> Result<Vec<Campaign>, StoreError> {
        sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM campaign_outbox CROSS JOIN campaigns \
             ON campaigns.id = campaign_outbox.campaign_id \
             WHERE enqueued_at <= ?1 AND applied_at IS NULL"
        ))
        .bind(since.as_millisecond())
        .fetch_all(&self.readers)
        .map(|rows| rows.and_then(|rows| rows.iter().map(columns::campaign).collect()))
        .operation("read the outbox")
        .await
    }

    async fn settle_campaigns(
        &self,
        published: Vec<PublishedCampaign>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer.write(SettleCampaigns { published, now }).await
    }
}

async fn find<'e>(
    executor: impl sqlx::Executor<'e, Database = Sqlite>,
    id: CampaignId,
) -> Result<Option<Campaign>, sqlx::Error> {
    sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM campaigns WHERE id = ?1"
    ))
    .bind(id.get() as i64)
    .fetch_optional(executor)
    .await?
    .as_ref()
    .map(columns::campaign)
    .transpose()
}

/// Has a campaign wait to be published, in the transaction that has stored it.
async fn enqueue(
    connection: &mut SqliteConnection,
    id: CampaignId,
    revision: u64,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO campaign_outbox (campaign_id, revision, enqueued_at) VALUES (?1, ?2, ?3) \
         ON CONFLICT (campaign_id) DO UPDATE SET revision = max(revision, excluded.revision), \
         enqueued_at = excluded.enqueued_at, applied_at = NULL",
    )
    .bind(id.get() as i64)
    .bind(revision as i64)
    .bind(now.as_millisecond())
    .execute(connection)
    .await?;
    Ok(())
}

fn seconds(second: Option<NonZeroU64>) -> Option<i64> {
    second.map(|second| second.get() as i64)
}

struct CreateCampaign(Campaign);

#[async_trait]
impl Write for CreateCampaign {
    type Output = CampaignId;
    const OPERATION: &'static str = "keep a new campaign";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<CampaignId, sqlx::Error> {
        let campaign = &self.0;
        let names = serde_json::json!(campaign.target.names()).to_string();
        let id: i64 = sqlx::query_scalar(
            "INSERT INTO campaigns (name, target, parameters, redirect_status, forward_query, \
             revision, valid_since, valid_until, paused_at, revoked_at, created_at, updated_at, \
             created_by, external_id, note, defaults) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) \
             RETURNING id",
        )
        .bind(&campaign.name)
        .bind(campaign.target.template())
        .bind(names)
        .bind(campaign.redirect_status.code())
        .bind(campaign.forward_query)
        .bind(campaign.revision as i64)
        .bind(seconds(campaign.validity.since()))
        .bind(seconds(campaign.validity.until()))
        .bind(campaign.paused_at.map(Timestamp::as_millisecond))
        .bind(campaign.revoked_at.map(Timestamp::as_millisecond))
        .bind(campaign.created_at.as_millisecond())
        .bind(campaign.updated_at.as_millisecond())
        .bind(&campaign.created_by)
        .bind(&campaign.external_id)
        .bind(&campaign.note)
        .bind(defaults::to_json(&campaign.defaults))
        .fetch_one(&mut *connection)
        .await?;
        let id = CampaignId::new(id.unsigned_abs()).ok_or_else(|| invalid("campaigns", "id"))?;
        enqueue(connection, id, campaign.revision, campaign.created_at).await?;
        let by = ChangedBy {
            key_id: Some(campaign.created_by.clone()),
            action: Action::CampaignCreate,
        };
        let created = Campaign {
            id,
            ..campaign.clone()
        };
        append_audit(connection, &by.of_campaign(&created, None)).await?;
        Ok(id)
    }
}

struct EditCampaign {
    id: CampaignId,
    by: ChangedBy,
    /// Taken when it is called, which is once.
    editor: Option<CampaignEditor>,
}

#[async_trait]
impl Write for EditCampaign {
    type Output = Option<CampaignEdit>;
    const OPERATION: &'static str = "change a campaign";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<Option<CampaignEdit>, sqlx::Error> {
        let Some(campaign) = find(&mut *connection, self.id).await? else {
            return Ok(None);
        };
        let Some(editor) = self.editor.take() else {
            return Ok(None);
        };
        let before = campaign.clone();
        let edit = editor(campaign);
        if let CampaignEdit::Changed(campaign) = &edit {
            append_audit(connection, &self.by.of_campaign(campaign, Some(&before))).await?;
            let names = serde_json::json!(campaign.target.names()).to_string();
            sqlx::query(
                "UPDATE campaigns SET name = ?2, target = ?3, parameters = ?4, \
                 redirect_status = ?5, forward_query = ?6, revision = ?7, valid_since = ?8, \
                 valid_until = ?9, paused_at = ?10, revoked_at = ?11, updated_at = ?12, \
                 note = ?13, defaults = ?14 WHERE id = ?1",
            )
            .bind(self.id.get() as i64)
            .bind(&campaign.name)
            .bind(campaign.target.template())
            .bind(names)
            .bind(campaign.redirect_status.code())
            .bind(campaign.forward_query)
            .bind(campaign.revision as i64)
            .bind(seconds(campaign.validity.since()))
            .bind(seconds(campaign.validity.until()))
            .bind(campaign.paused_at.map(Timestamp::as_millisecond))
            .bind(campaign.revoked_at.map(Timestamp::as_millisecond))
            .bind(campaign.updated_at.as_millisecond())
            .bind(&campaign.note)
            .bind(defaults::to_json(&campaign.defaults))
            .execute(&mut *connection)
            .await?;
        }
        if let CampaignEdit::Changed(campaign) | CampaignEdit::Unchanged(campaign) = &edit {
            enqueue(connection, self.id, campaign.revision, campaign.updated_at).await?;
        }
        Ok(Some(edit))
    }
}

struct SettleCampaigns {
    published: Vec<PublishedCampaign>,
    now: Timestamp,
}

#[async_trait]
impl Write for SettleCampaigns {
    type Output = ();
    const OPERATION: &'static str = "settle the outbox";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for PublishedCampaign { id, revision } in &self.published {
            sqlx::query(
                "UPDATE campaign_outbox SET applied_at = ?3 WHERE campaign_id = ?1 \
                 AND revision <= ?2 AND applied_at IS NULL",
            )
            .bind(id.get() as i64)
            .bind(*revision as i64)
            .bind(self.now.as_millisecond())
            .execute(&mut *connection)
            .await?;
        }
        Ok(())
    }
}
