//! Campaigns. Every operation that changes one also appends to the log of changes, in the same transaction.
//!
//! Only this file names the columns of a campaign.

use jiff::Timestamp;
use shortlink_core::audit::{Action, AuditEntry, ChangedBy};
use shortlink_core::boxed;
use shortlink_core::campaign::{Campaign, CampaignEdit, CampaignTarget, ClickParameter};
use shortlink_core::plan::Plan;
use shortlink_core::ports::{CampaignEditor, StoreError};
use shortlink_core::webhook::EventType;
use vocabulary::{CampaignId, Validity};

use super::db::Db;
use super::sql::{FOR_UPDATE, IN_NUMBERS, IN_TEXTS, Sql, sql};
use super::value::{Row, Value, args, invalid};
use super::webhooks::events::{self, NewEvent};
use super::{Store, audit, defaults, search};

/// The columns that a change may change, whose values [`values`] gives.
const CHANGEABLE: &str = "name, target, parameters, redirect_status, forward_query, revision, \
     valid_since, valid_until, paused_at, revoked_at, updated_at, note, defaults, max_links, click_id, plan";

/// The parameters that hold them.
const PARAMETERS: &str = "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16";

/// The other columns.
const FIXED: &str = "created_at, created_by, external_id";

const SELECT: &[&str] = &["SELECT id, ", CHANGEABLE, ", ", FIXED, " FROM "];
const FIND: Sql = sql!(SELECT; "campaigns WHERE id = $1");

impl Store {
    /// Stores a new campaign under an id that the store chooses, which is returned. The audit log
    /// notes it.
    #[boxed]
    pub async fn create_campaign(&self, campaign: &Campaign) -> Result<CampaignId, StoreError> {
        self.run_tx("store a new campaign", campaign.clone(), |db, campaign| {
            Box::pin(create(db, campaign))
        })
        .await
    }

    /// Finds a campaign, whatever its state.
    #[boxed]
    pub async fn find_campaign(&self, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        self.one("find a campaign", FIND, args![id], read).await
    }

    /// Has `editor` decide the change to a campaign and stores that; no other change to the campaign
    /// happens meanwhile. One that is left unchanged goes into the log of changes too; the audit log notes a
    /// change.
    #[boxed]
    pub async fn edit_campaign(
        &self,
        id: CampaignId,
        by: &ChangedBy,
        editor: CampaignEditor,
    ) -> Result<Option<CampaignEdit>, StoreError> {
        let args = (id, by.clone(), editor);
        self.run_tx("change a campaign", args, |db, (id, by, editor)| {
            Box::pin(edit(db, *id, by, editor))
        })
        .await
    }

    /// Lists campaigns, the latest first, those behind `after`; only those that were created with some API keys, if
    /// any are given.
    #[boxed]
    pub async fn list_campaigns(
        &self,
        after: Option<CampaignId>,
        limit: u32,
        created_by: Option<&[String]>,
    ) -> Result<Vec<Campaign>, StoreError> {
        let sql = sql!(SELECT; "campaigns WHERE id < $1 ORDER BY id DESC LIMIT $2");
        let after = after.map_or(Value::from(i64::MAX), Value::from);
        if let Some(keys) = created_by {
            let sql = sql!(
                SELECT;
                "campaigns WHERE created_by",
                IN_TEXTS,
                " AND id < $2 ORDER BY id DESC LIMIT $3"
            );
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let values = [keys.into(), after, limit.into()];
            return self.all("list campaigns", sql, &values, read).await;
        }
        self.all("list campaigns", sql, &[after, limit.into()], read)
            .await
    }

    /// Counts a campaign's links, but no more than `most`.
    #[boxed]
    pub async fn count_campaign_links(&self, id: CampaignId, most: u32) -> Result<u32, StoreError> {
        let sql = sql!(
            "SELECT count(*) AS links FROM (SELECT 1 FROM links {INDEXED BY links_by_campaign} \
             WHERE campaign_id = $1 LIMIT $2) AS found"
        );
        let read = |row: &Row| row.get("links");
        let values = args![id, most];
        let count = self.one("count a campaign's links", sql, values, read);
        Ok(count.await?.unwrap_or_default())
    }
}

async fn create(db: &mut Db<'_>, campaign: &Campaign) -> Result<CampaignId, sqlx::Error> {
    let sql = sql!(
        "INSERT INTO campaigns (",
        CHANGEABLE,
        ", ",
        FIXED,
        ") VALUES (",
        PARAMETERS,
        ", $17, $18, $19) RETURNING id"
    );
    let Campaign {
        created_at,
        created_by,
        external_id,
        ..
    } = campaign;
    let fixed = args![*created_at, created_by, external_id];
    let values = [&values(campaign)[..], fixed].concat();
    let id = db.one(sql, &values, |row| row.get("id")).await?;
    let id = id.ok_or(sqlx::Error::RowNotFound)?;
    let created = Campaign {
        id,
        ..campaign.clone()
    };
    search::replace_campaign(db, &created).await?;
    enqueue(db, &created, created.created_at).await?;
    let by = ChangedBy {
        key_id: Some(created_by.clone()),
        action: Action::CampaignCreate,
    };
    let entry = by.of_campaign(&created, None);
    audit::append(db, &entry).await?;
    report(db, entry, &created).await?;
    Ok(id)
}

async fn edit(
    db: &mut Db<'_>,
    id: CampaignId,
    by: &ChangedBy,
    editor: &CampaignEditor,
) -> Result<Option<CampaignEdit>, sqlx::Error> {
    let find = sql!(SELECT; "campaigns WHERE id = $1", FOR_UPDATE);
    let Some(before) = db.one(find, args![id], read).await? else {
        return Ok(None);
    };
    let edit = editor(before.clone());
    let mut entry = None;
    if let CampaignEdit::Changed(campaign) = &edit {
        let changed = by.of_campaign(campaign, Some(&before));
        audit::append(db, &changed).await?;
        entry = Some((changed, campaign.clone()));
        let sql = sql!(
            "UPDATE campaigns SET (",
            CHANGEABLE,
            ") = (",
            PARAMETERS,
            ") WHERE id = $17"
        );
        let values = [&values(campaign)[..], args![id]].concat();
        db.run(sql, &values).await?;
        search::replace_campaign(db, campaign).await?;
    }
    if let CampaignEdit::Changed(campaign) | CampaignEdit::Unchanged(campaign) = &edit {
        enqueue(db, campaign, campaign.updated_at).await?;
    }
    if let Some((entry, campaign)) = entry {
        report(db, entry, &campaign).await?;
    }
    Ok(Some(edit))
}

/// Reports a new or changed campaign to webhooks. The transaction locks nothing after this.
async fn report(
    db: &mut Db<'_>,
    entry: AuditEntry,
    campaign: &Campaign,
) -> Result<(), sqlx::Error> {
    let event = match entry.action {
        Action::CampaignCreate => EventType::CampaignCreated,
        Action::CampaignChange => EventType::CampaignChanged,
        Action::CampaignPause => EventType::CampaignPaused,
        Action::CampaignResume => EventType::CampaignResumed,
        Action::CampaignRevoke => EventType::CampaignRevoked,
        _ => return Ok(()),
    };
    let mut changed = entry.detail;
    changed.remove("revision");
    let data = serde_json::json!({
        "campaignId": campaign.id.to_string(),
        "name": campaign.name,
        "externalId": campaign.external_id,
        "revision": campaign.revision,
        "changed": changed,
    });
    let event = NewEvent {
        event,
        campaign: Some(campaign.id.get().cast_signed()),
        subject: format!("campaign:{}", campaign.id),
        visit: None,
        data: Some(data.to_string()),
    };
    events::report(db, &[event], entry.at).await
}

/// Has a campaign wait to be published, in the transaction that has stored it.
async fn enqueue(db: &mut Db<'_>, campaign: &Campaign, now: Timestamp) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO changes (campaign_id, revision, restricts, enqueued_at) \
         VALUES ($1, $2, $3, $4)"
    );
    let restricts = campaign.paused_at.is_some()
        || campaign.revoked_at.is_some()
        || campaign.validity.until().is_some();
    db.run(sql, args![campaign.id, campaign.revision, restricts, now])
        .await?;
    Ok(())
}

/// Finds campaigns.
pub(super) async fn find_campaigns(
    db: &mut Db<'_>,
    ids: &[CampaignId],
) -> Result<Vec<Campaign>, sqlx::Error> {
    let ids: Vec<i64> = ids.iter().map(|id| id.get().cast_signed()).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    db.all(
        sql!(SELECT; "campaigns WHERE id", IN_NUMBERS),
        args![ids],
        read,
    )
    .await
}

/// Finds the latest of some campaigns; only those that were created with some API keys, if any are given.
pub(super) async fn find_latest(
    db: &mut Db<'_>,
    ids: Vec<i64>,
    created_by: Option<&[String]>,
    limit: u32,
) -> Result<Vec<Campaign>, sqlx::Error> {
    let sql = sql!(
        SELECT;
        "campaigns WHERE id",
        IN_NUMBERS,
        " AND (CAST($2 AS bigint) = 1 OR created_by {IN (SELECT value FROM json_each($3))|= ANY($3::text[])}) \
         ORDER BY id DESC LIMIT $4"
    );
    let is_of_all = i64::from(created_by.is_none());
    let keys = created_by.unwrap_or_default().iter();
    let keys: Vec<&str> = keys.map(String::as_str).collect();
    db.all(sql, args![ids, is_of_all, keys, limit], read).await
}

/// Reads and locks the campaigns behind an id, in the order of their ids.
pub(super) async fn lock_some(
    db: &mut Db<'_>,
    after: i64,
    limit: u32,
) -> Result<Vec<Campaign>, sqlx::Error> {
    let sql = sql!(SELECT; "campaigns WHERE id > $1 ORDER BY id LIMIT $2", FOR_UPDATE);
    db.all(sql, args![after, limit], read).await
}

/// The values of the [`CHANGEABLE`] columns.
fn values(campaign: &Campaign) -> [Value<'_>; 16] {
    let number = |number: Option<std::num::NonZeroU64>| number.map(std::num::NonZeroU64::get);
    [
        (&campaign.name).into(),
        campaign.target.template().into(),
        serde_json::json!(campaign.target.names())
            .to_string()
            .into(),
        campaign.redirect_status.code().into(),
        campaign.forward_query.into(),
        campaign.revision.into(),
        number(campaign.validity.since()).into(),
        number(campaign.validity.until()).into(),
        campaign.paused_at.into(),
        campaign.revoked_at.into(),
        campaign.updated_at.into(),
        (&campaign.note).into(),
        defaults::to_json(&campaign.defaults).into(),
        number(campaign.max_links).into(),
        campaign.click_id.as_ref().map(ClickParameter::name).into(),
        campaign.plan.as_ref().map(|plan| plan.text()).into(),
    ]
}

/// Reads a campaign.
fn read(row: &Row) -> Result<Campaign, sqlx::Error> {
    let names = serde_json::from_str(row.get("parameters")?);
    let names = names.map_err(|_error| invalid("parameters"))?;
    let validity = Validity::new(row.find("valid_since")?, row.find("valid_until")?);
    let target = CampaignTarget::from_stored(row.get("target")?, names);
    let click_id: Option<String> = row.find("click_id")?;
    let click_id = click_id.map(|name| ClickParameter::new(name, &target));
    let plan: Option<String> = row.find("plan")?;
    let plan = plan.and_then(|text| Plan::of_campaign(text, &target, click_id.as_ref()));
    Ok(Campaign {
        plan,
        click_id,
        target,
        id: row.get("id")?,
        name: row.get("name")?,
        redirect_status: row.get("redirect_status")?,
        forward_query: row.get("forward_query")?,
        revision: row.get("revision")?,
        validity: validity.ok_or_else(|| invalid("valid_until"))?,
        paused_at: row.find("paused_at")?,
        revoked_at: row.find("revoked_at")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        created_by: row.get("created_by")?,
        external_id: row.find("external_id")?,
        note: row.find("note")?,
        defaults: defaults::from_json(row.get("defaults")?).ok_or_else(|| invalid("defaults"))?,
        max_links: row.find("max_links")?,
    })
}
