//! `/v1/webhooks`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use shortlink_api::fields::Fields;
use shortlink_api::members::{Members, Usage};
use shortlink_api::webhook::{
    AttemptBody, NewWebhook, Replay, ReplayMembers, SecretRotation, SecretRotationMembers,
    WebhookBody, WebhookPatch, WebhookSettings as WebhookMembers,
};
use shortlink_core::ports::ExportedVisit;
use shortlink_core::webhook::{
    Clicks, EndpointUrl, EventType, MAX_FILTERS, MAX_WEBHOOKS, Webhook, WebhookSettings,
};
use shortlink_service::access::Caller;
use shortlink_store::{WebhookChange, WebhookChanged};

use super::app::{App, SharedApp};
use super::auth::MayManageWebhooks;
use super::cursor;
use super::extract::{JsonObject, in_path};
use super::feed::FeedVisitBody;
use super::operation::parameter::{parameters, string};
use super::operation::{Operation, operations};
use super::problem::Problem;
use super::query::{Asked, PageQuery, cut, one_more};

in_path! {
    /// The id in the path.
    IdInPath(String): ID, no_such_webhook
}

/// 404: the webhook in the path is unknown.
fn no_such_webhook() -> Problem {
    Problem::not_found("There is no webhook with this id.")
}

parameters! {
    ID: path "id", "WebhookId", "Id of the webhook.", string;
}

operations! {
    get "/v1/webhooks", "listWebhooks", "Lists all webhooks, the first created first", list {
        .answers::<ListBody>(200, "The webhooks.")
    }
    post "/v1/webhooks", "createWebhook", "Creates a webhook", create {
        .text(
            "Its events begin with this answer. Messages are those of the Standard Webhooks specification: signed \
             with the secret, and sent at least once.",
        )
        .takes_json::<NewWebhook, 1>([("clicks", json!({
            "name": "CRM",
            "url": "https://hooks.example.com/clicks",
            "clicks": "first",
            "campaignIds": ["1"],
            "maxBatch": 100,
        }))])
        .answers::<SecretBody>(201, "The webhook with its secret.")
        .with(["Location"]).leads_to("id", ID)
        .problems([Problem::too_many_webhooks(), Problem::first_clicks_not_known()])
    }
    get "/v1/webhooks/{id}", "getWebhook", "Shows a webhook", find {
        .answers::<WebhookBody>(200, "The webhook.")
    }
    patch "/v1/webhooks/{id}", "changeWebhook", "Changes a webhook", change {
        .also(changes)
        .text("Messages that are under way keep the previous settings.")
        .takes_json::<WebhookPatch, 1>([("batches", json!({ "maxBatch": 1000 }))])
        .problems([Problem::first_clicks_not_known()])
    }
    delete "/v1/webhooks/{id}", "deleteWebhook", "Deletes a webhook", delete {
        .text("Events that wait are no longer delivered.")
        .answers::<WebhookBody>(200, "The webhook as it was.")
    }
    post "/v1/webhooks/{id}/pause", "pauseWebhook", "Pauses a webhook", pause {
        .also(changes).text("Its events wait until it is resumed, as long as they are stored. Idempotent.")
    }
    post "/v1/webhooks/{id}/resume", "resumeWebhook", "Resumes a webhook", resume {
        .also(changes).text("Continues with the events that wait, for another three days if they fail. Idempotent.")
    }
    post "/v1/webhooks/{id}/rotate", "rotateWebhook", "Gives a webhook a new secret", rotate {
        .text("For `overlapSeconds` each message has two signatures, one by each secret.")
        .takes_json::<SecretRotation, 1>([("day", json!({ "overlapSeconds": 86_400 }))])
        .answers::<SecretBody>(200, "The webhook with its new secret.")
    }
    post "/v1/webhooks/{id}/replay", "replayWebhook", "Delivers events of a webhook again", replay {
        .also(changes)
        .text(
            "Delivers all events again that were stored since a time and still are, with their \
             original ids. The time of storing is that of the service's clock.",
        )
        .takes_json::<Replay, 1>([("since", json!({ "since": "2030-12-31T23:59:59Z" }))])
    }
    post "/v1/webhooks/{id}/test", "testWebhook", "Sends a test message to the endpoint of a webhook", test {
        .text("Sends a message of the type `webhook.test` once, also while the webhook is paused.")
        .answers::<AttemptBody>(200, "The attempt.")
    }
    get "/v1/webhooks/{id}/attempts", "listWebhookAttempts",
        "Lists the latest attempts to deliver messages of a webhook, the latest first", attempts {
        .text(
            "Lists the last 1000. If there are more than 100 in a quarter of a second, those that were delivered are omitted.",
        )
        .answers::<AttemptsBody>(200, "A page of attempts.")
    }
}

/// Describes what changes of a webhook share.
fn changes(operation: Operation) -> Operation {
    operation.answers::<WebhookBody>(200, "The webhook after the change.")
}

/// All webhooks.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Webhooks")]
struct ListBody {
    /// The webhooks.
    webhooks: Vec<WebhookBody>,
}

/// A webhook with its secret.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WebhookWithSecret")]
struct SecretBody {
    #[serde(flatten)]
    webhook: WebhookBody,
    /// Secret that the endpoint checks signatures with: `whsec_` and base64.
    secret: String,
}

/// A page of attempts.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WebhookAttempts")]
struct AttemptsBody {
    /// The attempts.
    attempts: Vec<AttemptBody>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
}

/// Describes a visit as the feed does.
pub fn describe_visit(visit: ExportedVisit) -> Option<Box<RawValue>> {
    to_raw_value(&FeedVisitBody::from(visit)).ok()
}

/// The checked members of a request.
struct Given {
    name: Option<String>,
    url: Option<EndpointUrl>,
    events: Option<Vec<EventType>>,
    clicks: Option<Clicks>,
    campaigns: Option<Option<Vec<vocabulary::CampaignId>>>,
    tags: Option<Option<Vec<String>>>,
    classes: Option<Option<Vec<shortlink_core::visit::class::Class>>>,
    max_batch: Option<u32>,
}

impl Given {
    fn read(app: &App, fields: &mut Fields, usage: Usage) -> Self {
        let given = WebhookMembers::read(fields, usage);
        let url = given.url.and_then(|text| {
            let checked = EndpointUrl::parse(&text, &app.webhooks.policy);
            fields.checked("url", checked)
        });
        for (name, length) in [
            ("events", given.events.as_ref().map(Vec::len)),
            (
                "campaignIds",
                given
                    .campaign_ids
                    .as_ref()
                    .and_then(|it| Some(it.as_ref()?.len())),
            ),
            (
                "tags",
                given.tags.as_ref().and_then(|it| Some(it.as_ref()?.len())),
            ),
            (
                "classes",
                given
                    .classes
                    .as_ref()
                    .and_then(|it| Some(it.as_ref()?.len())),
            ),
        ] {
            if length == Some(0) {
                fields.refuse(name, "must not be empty");
            }
            if length.is_some_and(|length| length > MAX_FILTERS) {
                fields.refuse(name, format!("must have at most {MAX_FILTERS} items"));
            }
        }
        Self {
            name: given.name,
            url,
            events: given.events,
            clicks: given.clicks,
            campaigns: given.campaign_ids,
            tags: given.tags,
            classes: given.classes,
            max_batch: given.max_batch,
        }
    }

    /// Changes settings.
    fn apply(&self, settings: &mut WebhookSettings) {
        fn set<T: Clone>(member: &mut T, given: &Option<T>) {
            if let Some(given) = given {
                member.clone_from(given);
            }
        }
        set(&mut settings.name, &self.name);
        set(&mut settings.url, &self.url);
        set(&mut settings.events, &self.events);
        set(&mut settings.clicks, &self.clicks);
        set(&mut settings.campaigns, &self.campaigns);
        set(&mut settings.tags, &self.tags);
        set(&mut settings.classes, &self.classes);
        set(&mut settings.max_batch, &self.max_batch);
    }
}

/// The webhook after a change, or the problem.
fn done(changed: WebhookChanged) -> Result<Box<Webhook>, Problem> {
    match changed {
        WebhookChanged::Done(webhook) => Ok(webhook),
        WebhookChanged::TooMany => Err(Problem::too_many_webhooks()),
        WebhookChanged::NoFirstClicks => Err(Problem::first_clicks_not_known()),
        WebhookChanged::TooEarly(first) => Err(Problem::invalid(
            "/since",
            format!("must not be before {first}, since when places of events are known"),
        )),
    }
}

/// `POST /v1/webhooks`
async fn create(
    State(app): State<SharedApp>,
    MayManageWebhooks(caller): MayManageWebhooks,
    JsonObject(members): JsonObject,
) -> Result<impl IntoResponse, Problem> {
    let mut fields = Fields::new(members);
    let mut given = Given::read(&app, &mut fields, Usage::New);
    let name = fields.required("name", given.name.take());
    let url = fields.required("url", given.url.take());
    fields.finish()?;
    let settings = WebhookSettings {
        name: name.ok_or_else(Problem::internal)?,
        url: url.ok_or_else(Problem::internal)?,
        events: given.events.unwrap_or_else(|| EventType::ALL.to_vec()),
        clicks: given.clicks.unwrap_or(Clicks::First),
        campaigns: given.campaigns.flatten(),
        tags: given.tags.flatten(),
        classes: given.classes.flatten(),
        max_batch: given.max_batch.unwrap_or(1),
    };
    let created = app.webhooks.create(settings, &caller.key().id).await?;
    let webhook = done(created)?;
    let location = format!("/v1/webhooks/{}", webhook.id);
    let body = with_secret(&app, &webhook);
    Ok((StatusCode::CREATED, [(LOCATION, location)], body))
}

fn with_secret(app: &App, webhook: &Webhook) -> Json<SecretBody> {
    Json(SecretBody {
        webhook: WebhookBody::new(webhook, app.clock.now()),
        secret: app.webhooks.secret(webhook).to_text(),
    })
}

/// `GET /v1/webhooks`
async fn list(
    State(app): State<SharedApp>,
    _: MayManageWebhooks,
) -> Result<Json<ListBody>, Problem> {
    let webhooks = app.store.list_webhooks().await?;
    let now = app.clock.now();
    let webhooks = webhooks.iter().map(|it| WebhookBody::new(it, now));
    Ok(Json(ListBody {
        webhooks: webhooks.collect(),
    }))
}

/// `GET /v1/webhooks/{id}`
async fn find(
    State(app): State<SharedApp>,
    _: MayManageWebhooks,
    IdInPath(id): IdInPath,
) -> Result<Json<WebhookBody>, Problem> {
    let webhook = existing(&app, &id).await?;
    Ok(Json(WebhookBody::new(&webhook, app.clock.now())))
}

async fn existing(app: &App, id: &str) -> Result<Webhook, Problem> {
    let webhook = app.store.find_webhook(id).await?;
    webhook.ok_or_else(no_such_webhook)
}

/// Changes a webhook, and answers with it.
async fn changed(
    app: &App,
    caller: &Caller,
    id: &str,
    change: WebhookChange,
) -> Result<Json<WebhookBody>, Problem> {
    let changed = app.webhooks.change(id, change, &caller.key().id).await?;
    let webhook = done(changed.ok_or_else(no_such_webhook)?)?;
    Ok(Json(WebhookBody::new(&webhook, app.clock.now())))
}

/// `PATCH /v1/webhooks/{id}`
async fn change(
    State(app): State<SharedApp>,
    MayManageWebhooks(caller): MayManageWebhooks,
    IdInPath(id): IdInPath,
    JsonObject(members): JsonObject,
) -> Result<Json<WebhookBody>, Problem> {
    let mut fields = Fields::new(members);
    let given = Given::read(&app, &mut fields, Usage::Patch);
    fields.finish()?;
    let editor = Arc::new(move |settings: &mut WebhookSettings| given.apply(settings));
    changed(&app, &caller, &id, WebhookChange::Settings(editor)).await
}

/// `DELETE /v1/webhooks/{id}`
async fn delete(
    State(app): State<SharedApp>,
    MayManageWebhooks(caller): MayManageWebhooks,
    IdInPath(id): IdInPath,
) -> Result<Json<WebhookBody>, Problem> {
    changed(&app, &caller, &id, WebhookChange::Delete).await
}

/// `POST /v1/webhooks/{id}/pause`
async fn pause(
    State(app): State<SharedApp>,
    MayManageWebhooks(caller): MayManageWebhooks,
    IdInPath(id): IdInPath,
) -> Result<Json<WebhookBody>, Problem> {
    changed(&app, &caller, &id, WebhookChange::Pause).await
}

/// `POST /v1/webhooks/{id}/resume`
async fn resume(
    State(app): State<SharedApp>,
    MayManageWebhooks(caller): MayManageWebhooks,
    IdInPath(id): IdInPath,
) -> Result<Json<WebhookBody>, Problem> {
    changed(&app, &caller, &id, WebhookChange::Resume).await
}

/// `POST /v1/webhooks/{id}/rotate`
async fn rotate(
    State(app): State<SharedApp>,
    MayManageWebhooks(caller): MayManageWebhooks,
    IdInPath(id): IdInPath,
    JsonObject(members): JsonObject,
) -> Result<Json<SecretBody>, Problem> {
    let mut fields = Fields::new(members);
    let overlap = SecretRotationMembers::read(&mut fields, Usage::New).overlap_seconds;
    let overlap = fields.required("overlapSeconds", overlap);
    fields.finish()?;
    let overlap = SignedDuration::from_secs(overlap.ok_or_else(Problem::internal)?.into());
    let rotated = app.webhooks.rotate(&id, overlap, &caller.key().id).await?;
    let webhook = done(rotated.ok_or_else(no_such_webhook)?)?;
    Ok(with_secret(&app, &webhook))
}

/// `POST /v1/webhooks/{id}/replay`
async fn replay(
    State(app): State<SharedApp>,
    MayManageWebhooks(caller): MayManageWebhooks,
    IdInPath(id): IdInPath,
    JsonObject(members): JsonObject,
) -> Result<Json<WebhookBody>, Problem> {
    let mut fields = Fields::new(members);
    let since = ReplayMembers::read(&mut fields, Usage::New).since;
    let since: Option<Timestamp> = fields.required("since", since);
    fields.finish()?;
    let since = since.ok_or_else(Problem::internal)?;
    changed(&app, &caller, &id, WebhookChange::Replay(since)).await
}

/// `POST /v1/webhooks/{id}/test`
async fn test(
    State(app): State<SharedApp>,
    _: MayManageWebhooks,
    IdInPath(id): IdInPath,
) -> Result<Json<AttemptBody>, Problem> {
    let webhook = existing(&app, &id).await?;
    Ok(Json(app.webhooks.test(&webhook).await?.into()))
}

/// `GET /v1/webhooks/{id}/attempts`
async fn attempts(
    State(app): State<SharedApp>,
    _: MayManageWebhooks,
    IdInPath(id): IdInPath,
    Asked(asked): Asked<PageQuery>,
) -> Result<Json<AttemptsBody>, Problem> {
    let before = cursor::decode(cursor::ATTEMPTS, asked.cursor)?;
    existing(&app, &id).await?;
    let limit = one_more(asked.limit);
    let attempts = app.store.webhook_attempts(&id, before, limit).await?;
    let (attempts, next_cursor) = cut(attempts, limit, |(number, _)| {
        cursor::encode(cursor::ATTEMPTS, number)
    });
    let attempts = attempts.into_iter().map(|(_, attempt)| attempt.into());
    Ok(Json(AttemptsBody {
        attempts: attempts.collect(),
        next_cursor,
    }))
}

/// 409: the service has as many webhooks as it can have.
pub(super) fn too_many() -> String {
    format!("There are {MAX_WEBHOOKS} webhooks already, the maximum. Delete one first.")
}
