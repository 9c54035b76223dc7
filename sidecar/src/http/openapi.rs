//! `/openapi.json`: what the API takes and answers, as OpenAPI 3.1.
//!
//! Schemas of answers are made of the types that are sent, problems of the problems that are
//! answered, limits of the constants that are compared with. What is written by hand (which
//! operation does what, and the schemas of what is read member by member) is held by tests: each
//! route of the router is here, and the service is asked whether it does as it is described.

mod administration;
mod campaigns;
mod links;
mod operation;
mod parts;
mod service;
mod visits;
pub(super) mod words;

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use operation::{Operation, Refusals};

/// The description as it is sent: always the same.
static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// What is said of the whole.
const ABOUT: &str = "\
Makes, changes and revokes short links and campaigns, and tells of their visits.

Errors are problems (RFC 9457, `application/problem+json`): `type` says which one, `detail` what is
wrong this time, and `errors` names each member of a body that is wrong by its JSON pointer.
Members and query parameters that there is no such thing as are refused. A path that is not here is
answered 404 (`not-found`), a method that is not here 405 (`method-not-allowed`) with `Allow`; `HEAD`
is allowed where `GET` is.

An API key goes into `X-Api-Key` or `Authorization: Bearer`. Each request takes a unit of its rate
limit; what is too much is answered 429 with `Retry-After`.";

/// `GET /openapi.json`
pub(super) async fn show() -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, TEXT.as_str())
}

/// The description as a text that people can read and compare.
#[cfg(test)]
pub(super) fn text() -> String {
    let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
    text.push('\n');
    text
}

/// The description.
fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = SchemaGenerator::new(settings);
    let mut refusals = Refusals::default();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        let method = operation.method;
        path[method] = operation.describe(&mut generator, &mut refusals);
    }
    let parameters = parts::parameters(&mut generator);
    let schemas = generator.take_definitions(true);
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
            { "name": "links", "description": "One link at a time, or any number of them." },
            { "name": "campaigns", "description": "What links have in common." },
            { "name": "visits", "description": "Who has followed links, and how many." },
            { "name": "keys", "description": "Who may do what." },
            { "name": "service", "description": "The service itself. Needs no key." },
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": parameters,
            "responses": refusals.into_value(),
            "headers": parts::all_headers(),
            "securitySchemes": parts::security(),
        },
    })
}

/// Every operation.
fn operations() -> Vec<Operation> {
    let mut operations = links::operations();
    operations.extend(campaigns::operations());
    operations.extend(visits::operations());
    operations.extend(administration::operations());
    operations.extend(service::operations());
    operations
}
