//! Headers of answers and security schemes, by their names.

use axum::http::HeaderName;
use serde_json::{Map, Value, json};

use crate::core::api_key::Scope;

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
    let string = || json!({ "type": "string" });
    json!({
        "ETag": required(
            "The link's revision; for If-Match.",
            json!({ "type": "string", "pattern": "^\"[0-9]+\"$", "examples": ["\"1\""] }),
        ),
        "Location": required(
            "Where what was made is; of a redirect, where the link leads.",
            json!({ "type": "string", "format": "uri-reference" }),
        ),
        "Retry-After": required(
            "How many seconds to wait.",
            json!({ "type": "integer", "minimum": 1 }),
        ),
        "WWW-Authenticate": required("How a key is sent.", string()),
        "Cache-Control": required("Forbids that the response is stored.", string()),
        "Allow": required("The methods that are allowed.", string()),
        "Content-Security-Policy": required("That nothing is loaded from elsewhere.", string()),
        "X-Request-Id": required(
            "The id that the request came with; nginx gives one to each. Otherwise that of its trace.",
            request_id(),
        ),
    })
}

fn request_id() -> Value {
    json!({ "type": "string", "pattern": "^[-0-9A-Za-z_.:]{1,128}$" })
}

/// The ways to send a key.
pub(super) fn security() -> Value {
    let scopes = "The names that operations list with it are scopes that the key must have:";
    let text = format!("{scopes} {}. `admin` has all of them.", Scope::NAMES);
    json!({
        "apiKey": {
            "type": "apiKey", "in": "header", "name": "X-Api-Key", "description": text,
        },
        "bearer": { "type": "http", "scheme": "bearer", "description": text },
    })
}
