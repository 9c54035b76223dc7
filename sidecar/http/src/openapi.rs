//! `/openapi.json`: the description of the API in OpenAPI 3.1, and the list of operations, from which
//! the router is built as well.
//!
//! Schemas of answers derive from the types that are serialized, problems from those that handlers
//! return, and limits from the constants in the code. Tests compare the service with the description.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::operation::{Components, Operation, operations};
use super::words::Description;
use super::{
    audit, batch, bulk, campaigns, clicks, codespace, conversions, docs, domains, explain, health,
    keys, links, live, metrics, people, qr, reports, resolve, search, stats, utm_templates,
    variants, visits, webhooks,
};

/// The description as it is sent: always the same.
static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// The description of the whole API.
const ABOUT: &str = "\
Creates, changes and revokes short links and campaigns, and reports their visits.

Errors are problem details (RFC 9457, `application/problem+json`): `type` identifies the problem,
`detail` describes this occurrence, and `errors` lists the faults of the body by JSON pointers.
Unknown members and query parameters are rejected. An unknown path answers 404 (`not-found`), and a
method that a path does not have 405 (`method-not-allowed`) with `Allow`. `HEAD` is allowed wherever
`GET` is.

Send an API key in `X-Api-Key` or as `Authorization: Bearer`. Each request takes one unit of the key's
rate limit; requests above the limit answer 429 with `Retry-After`.";

async fn show() -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, TEXT.as_str())
}

/// The description as formatted text, for comparisons.
#[cfg(test)]
pub(super) fn text() -> String {
    let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
    text.push('\n');
    text
}

/// Describes all operations.
fn document() -> Value {
    let mut operations = all_operations();
    operations.push(resolve::operation().tagged("service"));
    let mut components = Components::new(&operations);
    let mut paths = json!({});
    for operation in operations {
        operation.describe(&mut components, &mut paths);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ngx-shortlink",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": [
            { "name": "links", "description": "Single links, and batches of any number of links." },
            { "name": "campaigns", "description": "Links with a common target and common settings." },
            { "name": "visits", "description": "Visits of links and their statistics." },
            { "name": "webhooks", "description": "Endpoints that events are sent to." },
            { "name": "keys", "description": "API keys, their scopes, and the audit log." },
            { "name": "service", "description": "State and description of the service. No API key is needed." },
        ],
        "paths": paths,
        "components": components.into_value(),
    })
}

operations! {
    get "/openapi.json", "getDescription", "Describes the API", show {
        .answers::<Description>(200, "The description.").with(["Cache-Control"])
    }
}

/// Lists every operation but that of visitors ([`resolve::operation`]), which the router treats
/// otherwise. Names of shared responses depend on the order.
pub(super) fn all_operations() -> Vec<Operation> {
    let tables = [
        ("links", codespace::operations()),
        ("links", batch::operations()),
        ("links", links::operations()),
        ("links", search::operations()),
        ("links", explain::operations()),
        ("links", qr::operations()),
        ("links", bulk::operations()),
        ("links", variants::operations()),
        ("links", utm_templates::operations()),
        ("campaigns", campaigns::operations()),
        ("campaigns", clicks::operations()),
        ("visits", conversions::operations()),
        ("visits", stats::operations()),
        ("visits", reports::operations()),
        ("visits", domains::operations()),
        ("visits", visits::operations()),
        ("visits", live::operations()),
        ("webhooks", webhooks::operations()),
        ("keys", keys::operations()),
        ("keys", people::operations()),
        ("keys", audit::operations()),
        ("service", health::operations()),
        ("service", metrics::operations()),
        ("service", docs::operations()),
        ("service", operations()),
    ];
    let tables = tables.into_iter();
    let tagged = tables.flat_map(|(tag, table)| {
        let table = table.into_iter();
        table.map(move |it| it.tagged(tag).without_other_query())
    });
    tagged.collect()
}
