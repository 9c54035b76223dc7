//! Webhooks: their settings, and the progress of their delivery.
//!
//! One process delivers. Its progress is written only with the number `fence` that it has read: each new holder and each
//! replay raises it, so that a holder that has lost its claim moves nothing any more.

mod attempts;
pub(crate) mod events;
pub(crate) mod expiry;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value as Json, json};
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::boxed;
use shortlink_core::ports::StoreError;
use shortlink_core::visit::class::Class;
use shortlink_core::webhook::{
    Attempt, EndpointUrl, MAX_WEBHOOKS, PauseReason, Progress, QUEUES, Reached, Webhook,
    WebhookSettings,
};
use vocabulary::CampaignId;

use super::db::Db;
use super::sql::{FOR_UPDATE, Sql, sql};
use super::value::{Row, Value, args, invalid};
use super::visits::erasure;
use super::{Store, audit};

/// A change of settings. It may be called more than once.
pub type SettingsEditor = Arc<dyn Fn(&mut WebhookSettings) + Send + Sync>;

/// A change of a webhook by a user.
#[derive(Clone)]
pub enum WebhookChange {
    /// Changes its settings.
    Settings(SettingsEditor),
    /// Pauses it.
    Pause,
    /// Ends its pause.
    Resume,
    /// Gives it a new secret; the one before signs until this time.
    Rotate(Timestamp),
    /// Delivers events again that were stored since this time.
    Replay(Timestamp),
    /// Deletes it.
    Delete,
}

impl WebhookChange {
    fn action(&self) -> Action {
        match self {
            Self::Settings(_) => Action::WebhookChange,
            Self::Pause => Action::WebhookPause,
            Self::Resume => Action::WebhookResume,
            Self::Rotate(_) => Action::WebhookRotate,
            Self::Replay(_) => Action::WebhookReplay,
            Self::Delete => Action::WebhookDelete,
        }
    }
}

/// The result of creating or changing a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookChanged {
    /// It is as shown; of one that was deleted, as it was.
    Done(Box<Webhook>),
    /// The service has as many webhooks as it can have.
    TooMany,
    /// First clicks are not known, since visits are in ClickHouse.
    NoFirstClicks,
    /// Events before this time can't be delivered again.
    TooEarly(Timestamp),
}

/// The progress of a delivery since it was last written.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The webhook.
    pub id: String,
    /// The number that it was read with.
    pub fence: i64,
    /// The place up to which events are delivered.
    pub progress: Progress,
    /// The time of the first failed attempt for an event that is undelivered.
    pub failing_since: Option<Timestamp>,
    /// The time of the oldest event that waits.
    pub waiting_since: Option<Timestamp>,
    /// Number of events delivered since then.
    pub events: u64,
    /// Attempts since then.
    pub attempts: Vec<Attempt>,
    /// The reason for which it is to be paused.
    pub pause: Option<PauseReason>,
}

const COLUMNS: &str = "id, settings, secret_version, previous_until, created_at, created_by, updated_at, revision, \
     fence, paused, paused_at, progress, failing_since, waiting_since, delivered";

impl Store {
    /// Lists all webhooks, the first created first.
    #[boxed]
    pub async fn list_webhooks(&self) -> Result<Vec<Webhook>, StoreError> {
        let sql = sql!("SELECT ", COLUMNS, " FROM webhooks ORDER BY created_at, id");
        self.all("list webhooks", sql, &[], read).await
    }

    /// Finds a webhook.
    #[boxed]
    pub async fn find_webhook(&self, id: &str) -> Result<Option<Webhook>, StoreError> {
        if !super::value::is_storable(id) {
            return Ok(None);
        }
        let sql = sql!("SELECT ", COLUMNS, " FROM webhooks WHERE id = $1");
        self.one("find a webhook", sql, args![id], read).await
    }

    /// Stores a new webhook, whose events begin now: each visit that is stored after this returns is one of them. The audit
    /// log notes it.
    #[boxed]
    pub async fn create_webhook(&self, webhook: Webhook) -> Result<WebhookChanged, StoreError> {
        let in_clickhouse = self.sink.is_some();
        let args = (webhook, in_clickhouse);
        self.run_tx("store a webhook", args, |db, (webhook, in_clickhouse)| {
            Box::pin(create(db, webhook, *in_clickhouse))
        })
        .await
    }

    /// Changes a webhook; `None` if there is none. The audit log notes it.
    #[boxed]
    pub async fn change_webhook(
        &self,
        id: &str,
        change: WebhookChange,
        key_id: &str,
        now: Timestamp,
    ) -> Result<Option<WebhookChanged>, StoreError> {
        if !super::value::is_storable(id) {
            return Ok(None);
        }
        let in_clickhouse = self.sink.is_some();
        let args = (id.to_owned(), change, key_id.to_owned(), now, in_clickhouse);
        self.run_tx("change a webhook", args, |db, args| {
            let (id, change, key_id, now, in_clickhouse) = args;
            Box::pin(edit(db, id, change, key_id, *now, *in_clickhouse))
        })
        .await
    }

    /// Takes the delivery of all webhooks over from a former holder of its claim, which can write no progress any more.
    #[boxed]
    pub async fn take_over_webhooks(&self) -> Result<(), StoreError> {
        let sql = sql!("UPDATE webhooks SET fence = fence + 1");
        self.run("take over webhooks", sql, &[]).await?;
        Ok(())
    }

    /// Writes the progress of deliveries with their attempts; returns the webhooks that were deleted, replayed or taken
    /// over by another holder since they were read, whose progress is left out.
    #[boxed]
    pub async fn note_delivered(
        &self,
        delivered: Vec<Delivered>,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let args = (delivered, now);
        self.run_tx(
            "note what webhooks have got",
            args,
            |db, (delivered, now)| {
                Box::pin(async move {
                    let mut lost = Vec::new();
                    for it in delivered {
                        if !note(db, it, *now).await? {
                            lost.push(it.id.clone());
                        }
                    }
                    Ok(lost)
                })
            },
        )
        .await
    }

    /// Reports whether a webhook gets first clicks, which only visits in SQL have.
    pub(crate) async fn has_first_clicks(&self) -> Result<bool, StoreError> {
        let found = self.one("look for first clicks", FIRST_CLICKS, &[], |_row| Ok(()));
        Ok(found.await?.is_some())
    }
}

/// Lets the delivery drop the events that it has in memory, some of which may be of visits that were erased, and read
/// again those that are undelivered. Progress stays valid, so that frequent erasures do not hold it up.
pub(crate) async fn read_again(db: &mut Db<'_>) -> Result<(), sqlx::Error> {
    let sql = sql!("UPDATE webhooks SET revision = revision + 1");
    db.run(sql, &[]).await?;
    Ok(())
}

/// Finds out whether first clicks are events of a webhook.
const FIRST_CLICKS: Sql = sql!("SELECT 1 AS found FROM webhooks WHERE first_clicks LIMIT 1");

/// Reports whether first clicks are events of a webhook. Transactions that store visits ask, after they have locked out
/// the creation of a webhook.
pub(crate) async fn wants_first_clicks(db: &mut Db<'_>) -> Result<bool, sqlx::Error> {
    let found = db.one(FIRST_CLICKS, &[], |_row| Ok(())).await?;
    Ok(found.is_some())
}

async fn create(
    db: &mut Db<'_>,
    webhook: &Webhook,
    in_clickhouse: bool,
) -> Result<WebhookChanged, sqlx::Error> {
    if in_clickhouse && webhook.settings.wants_first_clicks() {
        return Ok(WebhookChanged::NoFirstClicks);
    }
    // Transactions that are under way have not looked for this webhook.
    erasure::wait_for_ingestion(db).await?;
    events::wait_for_reports(db).await?;
    let sql = sql!("SELECT count(*) AS webhooks FROM webhooks");
    let count: u32 = db.get(sql, &[], |row| row.get("webhooks")).await?;
    if count >= MAX_WEBHOOKS {
        return Ok(WebhookChanged::TooMany);
    }
    let reached = events::last(db, in_clickhouse).await?;
    events::mark(db, reached, webhook.created_at).await?;
    expiry::begin(db, &webhook.settings, webhook.created_at).await?;
    let webhook = Webhook {
        progress: Progress::at(reached),
        ..webhook.clone()
    };
    let sql = sql!(
        "INSERT INTO webhooks (id, settings, first_clicks, secret_version, previous_until, created_at, created_by, \
         updated_at, revision, fence, progress, delivered) VALUES ($1, $2, $3, $4, NULL, $5, $6, $5, $7, 0, $8, 0)"
    );
    let settings = to_json(&webhook.settings).to_string();
    let progress = progress_text(&webhook.progress);
    let values = args![
        &webhook.id,
        &settings,
        webhook.settings.wants_first_clicks(),
        webhook.secret_version,
        webhook.created_at,
        &webhook.created_by,
        webhook.revision,
        &progress
    ];
    db.run(sql, values).await?;
    let entry = AuditEntry {
        at: webhook.created_at,
        key_id: Some(webhook.created_by.clone()),
        action: Action::WebhookCreate,
        subject: Subject::Webhook(webhook.id.clone()),
        detail: shown(&webhook.settings),
    };
    audit::append(db, &entry).await?;
    Ok(WebhookChanged::Done(Box::new(webhook)))
}

async fn edit(
    db: &mut Db<'_>,
    id: &str,
    change: &WebhookChange,
    key_id: &str,
    now: Timestamp,
    in_clickhouse: bool,
) -> Result<Option<WebhookChanged>, sqlx::Error> {
    if matches!(change, WebhookChange::Settings(_)) {
        erasure::wait_for_ingestion(db).await?;
        events::wait_for_reports(db).await?;
    }
    let sql = sql!(
        "SELECT ",
        COLUMNS,
        " FROM webhooks WHERE id = $1",
        FOR_UPDATE
    );
    let Some(before) = db.one(sql, args![id], read).await? else {
        return Ok(None);
    };
    let mut webhook = before.clone();
    let mut detail = Map::new();
    match change {
        WebhookChange::Settings(edit) => {
            edit(&mut webhook.settings);
            if in_clickhouse && webhook.settings.wants_first_clicks() {
                return Ok(Some(WebhookChanged::NoFirstClicks));
            }
            let last = events::last(db, in_clickhouse).await?;
            begin(&mut webhook, &before.settings, last);
            expiry::begin(db, &webhook.settings, now).await?;
            let former = shown(&before.settings);
            detail = shown(&webhook.settings);
            detail.retain(|name, value| former.get(name) != Some(value));
        }
        WebhookChange::Pause => {
            let paused = before.paused.unwrap_or((PauseReason::Requested, now));
            webhook.paused = Some(paused);
        }
        WebhookChange::Resume => {
            webhook.paused = None;
            webhook.failing_since = None;
        }
        WebhookChange::Rotate(until) => {
            webhook.secret_version += 1;
            webhook.previous_until = Some(*until);
            detail.insert("previousUntil".to_owned(), json!(until));
        }
        WebhookChange::Replay(since) => {
            match events::reached_at(db, *since).await? {
                Ok(reached) => {
                    // Never ahead of what is delivered.
                    let places = webhook.progress.0.map(|it| Reached {
                        visits: it.visits.min(reached.visits),
                        events: it.events.min(reached.events),
                    });
                    webhook.progress = Progress(places);
                }
                Err(first) => return Ok(Some(WebhookChanged::TooEarly(first))),
            }
            webhook.fence += 1;
            detail.insert("since".to_owned(), json!(since));
        }
        WebhookChange::Delete => {
            let sql = sql!("DELETE FROM webhook_attempts WHERE webhook_id = $1");
            db.run(sql, args![id]).await?;
            db.run(sql!("DELETE FROM webhooks WHERE id = $1"), args![id])
                .await?;
        }
    }
    if webhook == before && !matches!(change, WebhookChange::Delete) {
        return Ok(Some(WebhookChanged::Done(Box::new(webhook))));
    }
    webhook.revision += 1;
    webhook.updated_at = now;
    save(db, &webhook).await?;
    let entry = AuditEntry {
        at: now,
        key_id: Some(key_id.to_owned()),
        action: change.action(),
        subject: Subject::Webhook(id.to_owned()),
        detail,
    };
    audit::append(db, &entry).await?;
    Ok(Some(WebhookChanged::Done(Box::new(webhook))))
}

/// Lets the events of a source that a change of settings has added begin now.
fn begin(webhook: &mut Webhook, before: &WebhookSettings, last: Reached) {
    let (settings, places) = (&webhook.settings, &mut webhook.progress.0);
    let begin_visits = settings.wants_visits() && !before.wants_visits();
    let begin_events = settings.wants_events() && !before.wants_events();
    for place in places {
        if begin_visits {
            place.visits = last.visits;
        }
        if begin_events {
            place.events = last.events;
        }
    }
    webhook.fence += i64::from(begin_visits || begin_events);
}

/// Writes what users change.
async fn save(db: &mut Db<'_>, webhook: &Webhook) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "UPDATE webhooks SET settings = $2, first_clicks = $3, secret_version = $4, previous_until = $5, \
         updated_at = $6, revision = $7, fence = $8, paused = $9, paused_at = $10, progress = $11, failing_since = $12 \
         WHERE id = $1"
    );
    let settings = to_json(&webhook.settings).to_string();
    let progress = progress_text(&webhook.progress);
    let values = args![
        &webhook.id,
        &settings,
        webhook.settings.wants_first_clicks(),
        webhook.secret_version,
        webhook.previous_until,
        webhook.updated_at,
        webhook.revision,
        webhook.fence,
        webhook.paused.map(|(reason, _)| reason.name()),
        webhook.paused.map(|(_, at)| at),
        &progress,
        webhook.failing_since
    ];
    db.run(sql, values).await?;
    Ok(())
}

/// Writes the progress of a delivery; `false` if the webhook is not the one that was read.
async fn note(db: &mut Db<'_>, it: &Delivered, now: Timestamp) -> Result<bool, sqlx::Error> {
    // A pause changes the revision as one by a user does: what was read is not true any more.
    let sql = sql!(
        "UPDATE webhooks SET progress = $3, failing_since = $4, waiting_since = $5, delivered = delivered + $6, \
         paused = coalesce(paused, $7), \
         paused_at = CASE WHEN paused IS NULL AND CAST($7 AS text) IS NOT NULL THEN $8 ELSE paused_at END, \
         revision = CASE WHEN paused IS NULL AND CAST($7 AS text) IS NOT NULL THEN revision + 1 ELSE revision END \
         WHERE id = $1 AND fence = $2"
    );
    let progress = progress_text(&it.progress);
    let values = args![
        &it.id,
        it.fence,
        &progress,
        it.failing_since,
        it.waiting_since,
        it.events,
        it.pause.map(PauseReason::name),
        now
    ];
    if db.run(sql, values).await? == 0 {
        return Ok(false);
    }
    attempts::add(db, &it.id, &it.attempts).await?;
    Ok(true)
}

/// The settings as they are stored.
fn to_json(settings: &WebhookSettings) -> Json {
    let names = |it: &Vec<_>| it.iter().map(|it: &Class| it.name()).collect::<Vec<_>>();
    json!({
        "name": settings.name,
        "url": settings.url.as_str(),
        "events": settings.events,
        "clicks": settings.clicks,
        "campaignIds": settings.campaigns.as_ref().map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "tags": settings.tags,
        "classes": settings.classes.as_ref().map(names),
        "maxBatch": settings.max_batch,
    })
}

/// The settings as the audit log has them: of the URL, which can hold a secret, its origin.
fn shown(settings: &WebhookSettings) -> Map<String, Json> {
    let mut members = match to_json(settings) {
        Json::Object(members) => members,
        _ => Map::new(),
    };
    members.insert("url".to_owned(), json!(settings.url.origin()));
    members
}

/// Reads settings; events and classes that this version does not know are left out.
fn from_json(text: &str) -> Option<WebhookSettings> {
    let json: Json = serde_json::from_str(text).ok()?;
    let list = |name: &str| -> Option<Vec<&str>> {
        json[name].as_array()?.iter().map(Json::as_str).collect()
    };
    let campaigns = list("campaignIds").map(|ids| {
        let ids = ids.into_iter().map(|id| id.parse().ok());
        ids.collect::<Option<Vec<CampaignId>>>()
    });
    let classes = list("classes").map(|names| {
        let names = names.into_iter();
        names.filter_map(Class::by_name).collect()
    });
    Some(WebhookSettings {
        name: json["name"].as_str()?.to_owned(),
        url: EndpointUrl::from_stored(json["url"].as_str()?.to_owned()),
        events: list("events")?
            .into_iter()
            .filter_map(|it| it.parse().ok())
            .collect(),
        clicks: json["clicks"].as_str()?.parse().ok()?,
        campaigns: match campaigns {
            Some(campaigns) => Some(campaigns?),
            None => None,
        },
        tags: list("tags").map(|tags| tags.into_iter().map(str::to_owned).collect()),
        classes,
        max_batch: u32::try_from(json["maxBatch"].as_u64()?).ok()?,
    })
}

fn progress_text(progress: &Progress) -> String {
    let places = progress.0.iter().map(|it| json!([it.visits, it.events]));
    Json::from_iter(places).to_string()
}

/// Reads progress. Another number of queues than before begins with what all of them have delivered.
fn to_progress(text: &str) -> Option<Progress> {
    let places: Vec<(i64, i64)> = serde_json::from_str(text).ok()?;
    let places: Vec<Reached> = places
        .into_iter()
        .map(|(visits, events)| Reached { visits, events })
        .collect();
    if let Ok(places) = <[Reached; QUEUES]>::try_from(places.clone()) {
        return Some(Progress(places));
    }
    Some(Progress::at(Reached {
        visits: places.iter().map(|it| it.visits).min()?,
        events: places.iter().map(|it| it.events).min()?,
    }))
}

fn read(row: &Row) -> Result<Webhook, sqlx::Error> {
    let reason: Option<&str> = row.find("paused")?;
    let reason = reason.map(|name| name.parse().map_err(|_error| invalid("paused")));
    let paused_at: Option<Timestamp> = row.find("paused_at")?;
    Ok(Webhook {
        id: row.get("id")?,
        settings: from_json(row.get("settings")?).ok_or_else(|| invalid("settings"))?,
        secret_version: row.get("secret_version")?,
        previous_until: row.find("previous_until")?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        updated_at: row.get("updated_at")?,
        revision: row.get("revision")?,
        paused: reason.transpose()?.zip(paused_at),
        failing_since: row.find("failing_since")?,
        waiting_since: row.find("waiting_since")?,
        delivered: row.get("delivered")?,
        fence: row.get("fence")?,
        progress: to_progress(row.get("progress")?).ok_or_else(|| invalid("progress"))?,
    })
}

/// The value of a number that may be missing.
fn number(value: Option<i64>) -> Value<'static> {
    value.into()
}
