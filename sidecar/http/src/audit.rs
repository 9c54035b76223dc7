//! `/v1/audit`

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use shortlink_core::audit::StoredAuditEntry;
use shortlink_core::ports::{AuditListing, Listed};

use super::app::SharedApp;
use super::auth::MayAudit;
use super::cursor;
use super::extract::header;
use super::operation::operations;
use super::operation::parameter::{parameters, string};
use super::problem::Problem;
use super::query::{Asked, CURSOR, LIMIT, Limit, cut, one_more, query};

/// The most characters of an address or a request id in an entry.
const MAX_CIRCUMSTANCE: usize = 128;

/// The client's address and the request id, as nginx reports them, for the details of an entry.
pub(super) fn circumstances(headers: &HeaderMap) -> Map<String, Value> {
    let members = [("address", "x-real-ip"), ("requestId", "x-request-id")];
    let members = members.into_iter().filter_map(|(member, name)| {
        let value = header(headers, name)?.chars().take(MAX_CIRCUMSTANCE);
        Some((member.to_owned(), Value::from(value.collect::<String>())))
    });
    members.collect()
}

/// An entry of the audit log.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", remote = "StoredAuditEntry")]
#[schemars(rename = "AuditEntry")]
struct EntryMembers {
    id: i64,
    at: Timestamp,
    /// Id of the API key or person that made the change; `null` for the command line and the service itself.
    key_id: Option<String>,
    /// Name of the change, such as `link.revoke`.
    action: String,
    /// Object of the change: `key:…`, `person:…`, `campaign:…`, `utm-template:…` or `link:…`.
    subject: String,
    /// Details of the change; their members depend on the action.
    detail: Map<String, Value>,
}

// An entry in an answer. Not a doc comment: the description is that of the members.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct EntryBody {
    #[serde(flatten, with = "EntryMembers")]
    entry: StoredAuditEntry,
    /// Current name of the API key or person of `keyId`.
    key_name: Option<String>,
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
        "Only changes of this object: key:…, person:…, campaign:…, link:…, utm-template:… or job:….", string;
    BY_KEY: query "keyId", "ByKey", "Only changes that this API key or person made.", string;
    ACTION: query "action", "Action", "Only changes of this name, such as link.revoke.", string;
}

query! {
    /// The filter of the listing.
    AuditQuery {
        limit: Limit = LIMIT,
        cursor: String = CURSOR,
        subject: String = SUBJECT,
        key_id: String = BY_KEY,
        action: String = ACTION,
    }
}

operations! {
    get "/v1/audit", "listAudit", "Lists the audit log, the latest entry first", list {
        .text("Changes of API keys, campaigns and links. The creator of a link is its `createdBy`.")
        .answers::<PageBody>(200, "A page of entries.")
    }
}

/// `GET /v1/audit`
async fn list(
    State(app): State<SharedApp>,
    _: MayAudit,
    Asked(asked): Asked<AuditQuery>,
) -> Result<Json<PageBody>, Problem> {
    let listing = AuditListing {
        subject: asked.subject,
        key_id: asked.key_id,
        action: asked.action,
        before: cursor::decode(cursor::AUDIT, asked.cursor)?,
        limit: one_more(asked.limit),
    };
    let Listed { items, read_to } = app.listings.list_audit(&listing).await?;
    let (entries, next) = cut(items, listing.limit, |last| last.id);
    let next = next.or(read_to);
    let ids: Vec<&str> = entries
        .iter()
        .filter_map(|it| it.key_id.as_deref())
        .collect();
    let names = app.listings.key_names(&ids).await?;
    let entries = entries.into_iter().map(|entry| EntryBody {
        key_name: entry.key_id.as_ref().and_then(|id| names.get(id).cloned()),
        entry,
    });
    Ok(Json(PageBody {
        entries: entries.collect(),
        next_cursor: next.map(|id| cursor::encode(cursor::AUDIT, id)),
    }))
}
