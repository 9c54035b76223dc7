//! Campaigns in PostgreSQL.

use std::num::NonZeroU64;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use vocabulary::CampaignId;

use super::PostgresStore;
use super::audit::append_audit;
use super::statements::Statements;
use super::work::Work;
use crate::core::audit::Action;
use crate::core::campaign::{Campaign, CampaignEdit};
use crate::core::ports::{CampaignEditor, CampaignStore, ChangedBy, PublishedCampaign, StoreError};
use crate::store::shared::invalid;
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
impl CampaignStore for PostgresStore {
    async fn create_campaign(&self, campaign: &Campaign) -> Result<CampaignId, StoreError> {
        self.transact(CreateCampaign(campaign)).await
    }

    async fn find_campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        self.run(FindCampaign(id)).await
    }

    async fn edit_campaign(
        &self,
        id: CampaignId,
        by: &ChangedBy,
        editor: CampaignEditor,
    ) -> Result<Option<CampaignEdit>, StoreError> {
        let edit = EditCampaign {
            id,
            by,
            editor: Some(editor),
        };
        self.transact(edit).await
    }

    async fn list_campaigns(
        &self,
        after: Option<CampaignId>,
        limit: u32,
    ) -> Result<Vec<Campaign>, StoreError> {
        self.run(ListCampaigns { after, limit }).await
    }

    async fn count_campaign_links(&self, id: CampaignId, most: u32) -> Result<u32, StoreError> {
        self.run(CountLinks { id, most }).await
    }

    // Whoever has the turn to deliver links: campaigns are few, and all links of one wait for it.
    async fn waiting_campaigns(&self, since: Timestamp) -> Result<Vec<Campaign>, StoreError> {
        self.run(ReadWaiting { since }).await
    }

    async fn settle_campaigns(
        &self,
        published: Vec<PublishedCampaign>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let published = &published;
        self.run(SettleCampaigns { published, now }).await
    }
}

struct ListCampaigns {
    after: Option<CampaignId>,
    limit: u32,
}

#[async_trait]
impl Work for ListCampaigns {
    type Output = Vec<Campaign>;
    const OPERATION: &'static str = "list campaigns";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<Campaign>, sqlx::Error> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM campaigns WHERE id < $1 ORDER BY id DESC LIMIT $2"
        ))
        .bind(self.after.map_or(i64::MAX, number))
        .bind(i64::from(self.limit))
        .fetch_all(connection)
        .await?;
        rows.iter().map(columns::campaign).collect()
    }
}

struct CountLinks {
    id: CampaignId,
    most: u32,
}

#[async_trait]
impl Work for CountLinks {
    type Output = u32;
    const OPERATION: &'static str = "count a campaign's links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<u32, sqlx::Error> {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT 1 FROM links WHERE campaign_id = $1 LIMIT $2) AS found",
        )
        .bind(number(self.id))
        .bind(i64::from(self.most))
        .fetch_one(connection)
        .await?;
        // No more than was asked for.
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

struct ReadWaiting {
    since: Timestamp,
}

#[async_trait]
impl Work for ReadWaiting {
    type Output = Vec<Campaign>;
    const OPERATION: &'static str = "read the outbox";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<Campaign>, sqlx::Error> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM campaign_outbox JOIN campaigns \
             ON campaigns.id = campaign_outbox.campaign_id \
             WHERE enqueued_at <= $1 AND applied_at IS NULL"
        ))
        .bind(self.since.as_millisecond())
        .fetch_all(connection)
        .await?;
        rows.iter().map(columns::campaign).collect()
    }
}

/// A campaign's id as the database has it. An id that is too large for that no campaign has.
fn number(id: CampaignId) -> i64 {
    i64::try_from(id.get()).unwrap_or(i64::MAX)
}

struct FindCampaign(CampaignId);

#[async_trait]
impl Work for FindCampaign {
    type Output = Option<Campaign>;
    const OPERATION: &'static str = "find a campaign";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<Campaign>, sqlx::Error> {
        let statement = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM campaigns WHERE id = $1"
        ));
        find(connection, statement, self.0).await
    }
}

/// Finds a campaign by its id with a statement.
async fn find(
    connection: &mut Statements<'_>,
    statement: Query<'_, Postgres, PgArguments>,
    id: CampaignId,
) -> Result<Option<Campaign>, sqlx::Error> {
    let row = statement
        .bind(number(id))
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(columns::campaign).transpose()
}

/// Has a campaign wait to be published, in the transaction that has stored it.
async fn enqueue(
    connection: &mut Statements<'_>,
    id: CampaignId,
    revision: u64,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO campaign_outbox (campaign_id, revision, enqueued_at) VALUES ($1, $2, $3) \
         ON CONFLICT (campaign_id) DO UPDATE SET \
         revision = greatest(campaign_outbox.revision, excluded.revision), \
         enqueued_at = excluded.enqueued_at, applied_at = NULL",
    )
    .bind(number(id))
    .bind(revision as i64)
    .bind(now.as_millisecond())
    .execute(connection)
    .await?;
    Ok(())
}

fn seconds(second: Option<NonZeroU64>) -> Option<i64> {
    second.map(|second| second.get() as i64)
}

struct CreateCampaign<'a>(&'a Campaign);

#[async_trait]
impl Work for CreateCampaign<'_> {
    type Output = CampaignId;
    const OPERATION: &'static str = "keep a new campaign";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<CampaignId, sqlx::Error> {
        let campaign = self.0;
        let names = serde_json::json!(campaign.target.names()).to_string();
        let id: i64 = sqlx::query_scalar(
            "INSERT INTO campaigns (name, target, parameters, redirect_status, forward_query, \
             revision, valid_since, valid_until, paused_at, revoked_at, created_at, updated_at, \
             created_by, external_id, note, defaults) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) \
             RETURNING id",
        )
        .bind(&campaign.name)
        .bind(campaign.target.template())
        .bind(names)
        .bind(campaign.redirect_status.code() as i32)
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

struct EditCampaign<'a> {
    id: CampaignId,
    by: &'a ChangedBy,
    /// Taken when it is called, which is once.
    editor: Option<CampaignEditor>,
}

#[async_trait]
impl Work for EditCampaign<'_> {
    type Output = Option<CampaignEdit>;
    const OPERATION: &'static str = "change a campaign";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<CampaignEdit>, sqlx::Error> {
        let statement = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM campaigns WHERE id = $1 FOR UPDATE"
        ));
        let Some(campaign) = find(connection, statement, self.id).await? else {
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
                "UPDATE campaigns SET name = $2, target = $3, parameters = $4, \
                 redirect_status = $5, forward_query = $6, revision = $7, valid_since = $8, \
                 valid_until = $9, paused_at = $10, revoked_at = $11, updated_at = $12, \
                 note = $13, defaults = $14 WHERE id = $1",
            )
            .bind(number(self.id))
            .bind(&campaign.name)
            .bind(campaign.target.template())
            .bind(names)
            .bind(campaign.redirect_status.code() as i32)
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

    /// What an editor has decided on may be another campaign when all is done again.
    fn is_repeatable(&self) -> bool {
        self.editor.is_some()
    }
}

struct SettleCampaigns<'a> {
    published: &'a [PublishedCampaign],
    now: Timestamp,
}

#[async_trait]
impl Work for SettleCampaigns<'_> {
    type Output = ();
    const OPERATION: &'static str = "settle the outbox";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<(), sqlx::Error> {
        let published = self.published.iter();
        let columns = published.map(|campaign| (number(campaign.id), campaign.revision as i64));
        let (ids, revisions): (Vec<i64>, Vec<i64>) = columns.collect();
        sqlx::query(
            "UPDATE campaign_outbox SET applied_at = $3 \
             FROM (SELECT id, max(revision) AS revision \
             FROM unnest($1::bigint[], $2::bigint[]) AS done (id, revision) GROUP BY id) AS done \
             WHERE campaign_id = done.id AND campaign_outbox.revision <= done.revision \
             AND applied_at IS NULL",
        )
        .bind(ids)
        .bind(revisions)
        .bind(self.now.as_millisecond())
        .execute(connection)
        .await?;
        Ok(())
    }
}
