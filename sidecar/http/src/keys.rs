//! `/v1/keys`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_api::fields::Fields;
use shortlink_api::key::{
    KeyBody, KeyPatch, KeySettings, NewKey as NewKeyBody, Rotation, RotationMembers,
};
use shortlink_api::kinds::link::IN_THE_FUTURE;
use shortlink_api::members::{Members, Usage};
use shortlink_core::api_key::{ApiKey, Scope};
use shortlink_core::ports::{KeyListing, KeyPosition, KeyRefusal, QuotaOwner};
use shortlink_service::keys::{Actor, KeyChange, NewKey};

use super::app::SharedApp;
use super::auth::MayManageKeys;
use super::cursor;
use super::extract::{JsonObject, in_path};
use super::operation::operations;
use super::operation::parameter::{parameters, string};
use super::problem::Problem;
use super::query::{Asked, PageQuery, cut, one_more};

in_path! {
    /// The id in the path.
    IdInPath(String): ID, no_such_key
}

/// 404: the key in the path is unknown.
fn no_such_key() -> Problem {
    Problem::not_found("There is no API key with this id.")
}

parameters! {
    ID: path "id", "KeyId", "Id of the API key.", string;
}

operations! {
    get "/v1/keys", "listKeys", "Lists API keys, the latest first", list {
        .answers::<PageBody>(200, "A page of keys.")
    }
    post "/v1/keys", "createKey", "Creates an API key", create {
        .takes_json::<NewKeyBody, 1>([("key", json!({
            "name": "shop",
            "scopes": ["links:write", "links:read"],
            "rateLimit": { "requestsPerSecond": 50, "burst": 200 },
            "policy": { "strategies": ["pool"], "allowedDomains": ["example.com"] },
        }))])
        .answers::<SecretBody>(201, "The key with its secret, which no other answer contains.")
        .with(["Location", "Cache-Control"]).leads_to("id", ID)
        .problems([KeyRefusal::Scope(Scope::Admin).into()])
    }
    get "/v1/keys/{id}", "getKey", "Shows an API key", find {
        .answers::<KeyBody>(200, "The key.")
    }
    patch "/v1/keys/{id}", "changeKey", "Changes an API key", change {
        .text("Each given member is replaced as a whole.")
        .takes_json::<KeyPatch, 1>([
            ("expiry", json!({ "expiresAt": "2030-12-31T23:59:59Z" })),
        ])
        .answers::<KeyBody>(200, "The key after the change.")
        .problems([
            KeyRefusal::Scope(Scope::Admin).into(),
            KeyRefusal::Revoked.into(),
            KeyRefusal::LastAdmin.into(),
        ])
    }
    delete "/v1/keys/{id}", "revokeKey", "Revokes an API key permanently", revoke {
        .answers::<KeyBody>(200, "The key after the change.")
        .problems([KeyRefusal::Scope(Scope::Admin).into(), KeyRefusal::LastAdmin.into()])
    }
    post "/v1/keys/{id}/rotate", "rotateKey", "Rotates an API key: creates a successor", rotate {
        .text("The successor has the same rights. The old key remains valid for `overlapSeconds`.")
        .takes_json::<Rotation, 1>([("day", json!({ "overlapSeconds": 86_400 }))])
        .answers::<SecretBody>(201, "The successor with its secret, which no other answer contains.")
        .with(["Location", "Cache-Control"])
        .problems([
            KeyRefusal::Scope(Scope::Admin).into(),
            KeyRefusal::Revoked.into(),
            KeyRefusal::Expired.into(),
            KeyRefusal::Rotated.into(),
        ])
    }
}

/// `POST /v1/keys`
async fn create(
    State(app): State<SharedApp>,
    MayManageKeys(caller): MayManageKeys,
    JsonObject(members): JsonObject,
) -> Result<impl IntoResponse, Problem> {
    let now = app.clock.now();
    let mut fields = Fields::new(members);
    let given = KeySettings::read(&mut fields, Usage::New);
    let name = fields.required("name", given.name);
    let scopes = fields.required("scopes", given.scopes);
    check_expiry(&mut fields, given.expires_at, now);
    fields.finish()?;
    let new = NewKey {
        name: name.ok_or_else(Problem::internal)?,
        scopes: scopes.ok_or_else(Problem::internal)?,
        expires_at: given.expires_at.flatten(),
        rate_limit: given.rate_limit.flatten(),
        policy: given.policy.unwrap_or_default(),
    };
    let (key, secret) = app.keys.create(&Actor::Key(caller), new).await?;
    Ok(created(&key, secret, None, now))
}

/// `GET /v1/keys/{id}`
async fn find(
    State(app): State<SharedApp>,
    _: MayManageKeys,
    IdInPath(id): IdInPath,
) -> Result<Json<KeyBody>, Problem> {
    let key = app.keys.find(&id).await?.ok_or_else(no_such_key)?;
    let bodies = counted(&app, std::slice::from_ref(&key)).await?;
    let body = bodies.into_iter().next();
    body.map(Json).ok_or_else(Problem::internal)
}

/// Describes keys with the numbers of links that they have created.
async fn counted(app: &SharedApp, keys: &[ApiKey]) -> Result<Vec<KeyBody>, Problem> {
    let owner = |key: &ApiKey| QuotaOwner::Key(key.first_id.clone());
    let owners: Vec<QuotaOwner> = keys.iter().map(owner).collect();
    let created = app.store.created_links(&owners).await?;
    let now = app.clock.now();
    let bodies = keys.iter().map(|key| {
        let mut body = KeyBody::new(key, now);
        body.links_created = Some(created.get(&owner(key)).copied().unwrap_or_default());
        body
    });
    Ok(bodies.collect())
}

/// `GET /v1/keys`
async fn list(
    State(app): State<SharedApp>,
    _: MayManageKeys,
    Asked(asked): Asked<PageQuery>,
) -> Result<Json<PageBody>, Problem> {
    let after = cursor::decode(cursor::KEYS, asked.cursor)?;
    let listing = KeyListing {
        people: false,
        after: after.map(|cursor::Dated(created_at, id)| KeyPosition { created_at, id }),
        limit: one_more(asked.limit),
    };
    let keys = app.store.list_keys(&listing).await?;
    let (keys, next_cursor) = cut(keys, listing.limit, |last| {
        cursor::encode(cursor::KEYS, cursor::Dated(last.created_at, &last.id))
    });
    let keys = counted(&app, &keys).await?;
    Ok(Json(PageBody { keys, next_cursor }))
}

/// `PATCH /v1/keys/{id}`
async fn change(
    State(app): State<SharedApp>,
    MayManageKeys(caller): MayManageKeys,
    IdInPath(id): IdInPath,
    JsonObject(members): JsonObject,
) -> Result<Json<KeyBody>, Problem> {
    let mut fields = Fields::new(members);
    let given = KeySettings::read(&mut fields, Usage::Patch);
    check_expiry(&mut fields, given.expires_at, app.clock.now());
    let change = KeyChange {
        name: given.name,
        scopes: given.scopes,
        expires_at: given.expires_at,
        rate_limit: given.rate_limit,
        policy: given.policy,
    };
    fields.finish()?;
    let key = app.keys.change(&Actor::Key(caller), &id, change).await?;
    let key = key.ok_or_else(no_such_key)?;
    Ok(Json(KeyBody::new(&key, app.clock.now())))
}

/// `POST /v1/keys/{id}/rotate`
async fn rotate(
    State(app): State<SharedApp>,
    MayManageKeys(caller): MayManageKeys,
    IdInPath(id): IdInPath,
    JsonObject(members): JsonObject,
) -> Result<impl IntoResponse, Problem> {
    let mut fields = Fields::new(members);
    let overlap = RotationMembers::read(&mut fields, Usage::New).overlap_seconds;
    let overlap = fields.required("overlapSeconds", overlap);
    fields.finish()?;
    let overlap = SignedDuration::from_secs(overlap.ok_or_else(Problem::internal)?.into());
    let rotation = app.keys.rotate(&Actor::Key(caller), &id, overlap).await?;
    let rotation = rotation.ok_or_else(no_such_key)?;
    let predecessor = Some(&rotation.predecessor);
    let now = app.clock.now();
    Ok(created(
        &rotation.successor,
        rotation.secret,
        predecessor,
        now,
    ))
}

/// `DELETE /v1/keys/{id}`
async fn revoke(
    State(app): State<SharedApp>,
    MayManageKeys(caller): MayManageKeys,
    IdInPath(id): IdInPath,
) -> Result<Json<KeyBody>, Problem> {
    let key = app.keys.revoke(&Actor::Key(caller), &id).await?;
    let key = key.ok_or_else(no_such_key)?;
    Ok(Json(KeyBody::new(&key, app.clock.now())))
}

/// Answers with a new key and its secret, and the key that it replaces by a rotation.
fn created(
    key: &ApiKey,
    secret: String,
    predecessor: Option<&ApiKey>,
    now: Timestamp,
) -> impl IntoResponse + use<> {
    let location = format!("/v1/keys/{}", key.id);
    let body = SecretBody {
        key: KeyBody::new(key, now),
        secret,
        predecessor: predecessor.map(|key| KeyBody::new(key, now)),
    };
    (StatusCode::CREATED, [(LOCATION, location)], Json(body))
}

/// Checks that a key does not expire before it is created.
fn check_expiry(fields: &mut Fields, given: Option<Option<Timestamp>>, now: Timestamp) {
    if given.flatten().is_some_and(|expiry| expiry <= now) {
        fields.refuse("expiresAt", IN_THE_FUTURE);
    }
}

/// A new key with its secret.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyWithSecret")]
pub(crate) struct SecretBody {
    #[serde(flatten)]
    key: KeyBody,
    /// Secret of the key, to be sent with requests. No other answer contains it.
    secret: String,
    /// The key that it replaces by a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "KeyBody")]
    predecessor: Option<KeyBody>,
}

/// A page of the listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyPage")]
pub(crate) struct PageBody {
    /// The keys.
    pub(super) keys: Vec<KeyBody>,
    /// Cursor of the next page; `null` on the last page.
    pub(super) next_cursor: Option<String>,
}
