//! Headers of answers and security schemes, by their names.

use axum::http::HeaderName;
use serde_json::{Map, Value, json};
use shortlink_core::api_key::Scope;

/// References to headers.
pub(super) fn references(names: impl IntoIterator<Item = &'static str>) -> Value {
    let names = names.into_iter();
    let headers: Map<String, Value> = names
        .map(|name| {
            let reference = format!("#/components/headers/{name}");
            (name.to_owned(), json!({ "$ref": reference }))
        })
        .collect();
    Value::Object(headers)
}

/// The name under which a header of a problem is among [`headers`].
pub(super) fn header_name(name: &HeaderName) -> &'static str {
    match name.as_str() {
        "retry-after" => "Retry-After",
        _ => "WWW-Authenticate",
    }
}

/// The headers of answers.
pub(super) fn headers() -> Value {
    let required = |text: &str, schema: Value| json!({ "description": text, "required": true, "schema": schema });
    let optional = |text: &str, schema: Value| json!({ "description": text, "schema": schema });
    let string = || json!({ "type": "string" });
    json!({
        "ETag": required(
            "Revision of the link, for If-Match.",
            json!({ "type": "string", "pattern": "^\"[0-9]+\"$", "examples": ["\"1\""] }),
        ),
        "Location": required(
            "Path of what was created; of a redirect, the target of the link.",
            json!({ "type": "string", "format": "uri-reference" }),
        ),
        "Retry-After": required(
            "Seconds to wait before the next attempt.",
            json!({ "type": "integer", "minimum": 1 }),
        ),
        "WWW-Authenticate": required("Scheme for sending an API key.", string()),
        "Cache-Control": required("Forbids caches to store the response.", string()),
        "Allow": required("Methods that the path allows.", string()),
        "Content-Security-Policy": required("Forbids the page to load anything from other hosts.", string()),
        "Upload-Id": required(
            "Id of the upload that all new links of the batch belong to.",
            json!({ "type": "string", "pattern": "^[0-7][0-9a-f]{15}$" }),
        ),
        "RateLimit-Policy": optional(
            "Units that the API key can use at once (`q`) and the seconds in which they come back (`w`), in the form of \
             draft-ietf-httpapi-ratelimit-headers; only for keys with a rate limit.",
            json!({ "type": "string", "examples": ["\"key\";q=200;w=2"] }),
        ),
        "RateLimit": optional(
            "Units that remain (`r`) after this request, and the seconds until all are back (`t`); only for keys with a \
             rate limit.",
            json!({ "type": "string", "examples": ["\"key\";r=199;t=1"] }),
        ),
        "X-Request-Id": required(
            "Id of the request, which nginx generates; without nginx, the id of its trace.",
            request_id(),
        ),
    })
}

fn request_id() -> Value {
    json!({ "type": "string", "pattern": "^[-0-9A-Za-z_.:]{1,128}$" })
}

/// The headers that show the rate limit of the API key.
pub(super) const RATE: [&str; 2] = ["RateLimit-Policy", "RateLimit"];

/// The ways to send a key.
pub(super) fn security() -> Value {
    let scopes = "An operation lists the scope that the API key must have:";
    let text = format!("{scopes} {}. `admin` includes all others.", Scope::NAMES);
    json!({
        "apiKey": {
            "type": "apiKey", "in": "header", "name": "X-Api-Key", "description": text,
        },
        "bearer": { "type": "http", "scheme": "bearer", "description": text },
    })
}
