//! `/v1/audit`

use axum::Json;
use axum::extract::{RawQuery, State};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use shortlink_core::audit::StoredAuditEntry;
use shortlink_core::ports::AuditListing;

use super::app::SharedApp;
use super::auth::MayAudit;
use super::operation::operations;
use super::operation::parameter::{Parameter, parameters, string};
use super::problem::Problem;
use super::query::{CURSOR, LIMIT};
use super::{cursor, query};

/// An entry of the audit log.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AuditEntry")]
struct EntryBody {
    id: i64,
    at: Timestamp,
    /// Id of the API key that made the change; `null` for the command line and the service itself.
    key_id: Option<String>,
    /// Name of the change, such as `link.revoke`.
    action: String,
    /// Object of the change: `key:…`, `campaign:…` or `link:…`.
    subject: String,
    /// Details of the change; their members depend on the action.
    detail: Map<String, Value>,
}

/// A page of the audit log.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AuditPage")]
struct PageBody {
    /// The entries.
    entries: Vec<EntryBody>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
}

parameters! {
    SUBJECT: query "subject", "Subject",
        "Only changes of this object: key:…, campaign:… or link:….", string;
    BY_KEY: query "keyId", "ByKey", "Only changes that this API key made.", string;
    ACTION: query "action", "Action", "Only changes of this name, such as link.revoke.", string;
}

/// The parameters of the listing.
const QUERY: [Parameter; 5] = [LIMIT, CURSOR, SUBJECT, BY_KEY, ACTION];

operations! {
    get "/v1/audit", "listAudit", "Lists the audit log, the latest entry first", list {
        .text("Changes of API keys, campaigns and links. The creator of a link is its `createdBy`.")
        .query(&QUERY).answers::<PageBody>(200, "A page of entries.")
    }
}

/// `GET /v1/audit`
async fn list(
    State(app): State<SharedApp>,
    _: MayAudit,
    RawQuery(query): RawQuery,
) -> Result<Json<PageBody>, Problem> {
    let mut listing = read_listing(&query.unwrap_or_default())?;
    let limit = listing.limit;
    // One extra entry shows whether there is another page.
    listing.limit += 1;
    let mut entries = app.store.list_audit(&listing).await?;
    let next_cursor =
        query::page(&mut entries, limit).map(|last| cursor::encode(cursor::AUDIT, last.id));
    let entries = entries.into_iter().map(body).collect();
    Ok(Json(PageBody {
        entries,
        next_cursor,
    }))
}

fn body(entry: StoredAuditEntry) -> EntryBody {
    EntryBody {
        id: entry.id,
        at: entry.at,
        key_id: entry.key_id,
        action: entry.action,
        subject: entry.subject,
        detail: entry.detail,
    }
}

fn read_listing(query: &str) -> Result<AuditListing, Problem> {
    let mut listing = AuditListing {
        limit: query::DEFAULT_LIMIT,
        ..AuditListing::default()
    };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => listing.limit = query::limit(&value)?,
            "cursor" => listing.before = Some(cursor::decode(cursor::AUDIT, &value)?),
            "subject" => listing.subject = Some(value.into_owned()),
            "keyId" => listing.key_id = Some(value.into_owned()),
            "action" => listing.action = Some(value.into_owned()),
            _ => return Err(query::only(&QUERY)),
        }
    }
    Ok(listing)
}
