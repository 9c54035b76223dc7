//! Parameters, headers and security that operations share, by their names.

use axum::http::HeaderName;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::words;
use crate::core::api_key::Scope;
use crate::http::batch::said_of_all::DELIMITERS;
use crate::http::campaign_size::{DEFAULT_MOST, MOST};
use crate::http::idempotency::LONGEST_KEY;
use crate::http::problem::{FieldError, Problem};
use crate::http::query::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::http::stats::{
    DEFAULT_MINUTES, MAX_INTERVALS_OF_VALUES, MAX_MINUTES, MAX_VALUES_OVER_TIME,
};

/// What a body is answered with that is JSON but not what is asked for.
pub(super) fn invalid() -> Problem {
    Problem::validation(vec![FieldError {
        pointer: "/longUrl".to_owned(),
        detail: "is required".to_owned(),
    }])
}

/// References to headers.
pub(super) fn headers(names: impl IntoIterator<Item = &'static str>) -> Value {
    let names = names.into_iter();
    let headers: Map<String, Value> = names
        .map(|name| {
            let reference = format!("#/components/headers/{name}");
            (name.to_owned(), json!({ "$ref": reference }))
        })
        .collect();
    Value::Object(headers)
}

/// The name under which a header of a problem is among [`all_headers`].
pub(super) fn header_name(name: &HeaderName) -> &'static str {
    match name.as_str() {
        "retry-after" => "Retry-After",
        _ => "WWW-Authenticate",
    }
}

/// The headers of answers.
pub(super) fn all_headers() -> Value {
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
        "Cache-Control": required("That nobody keeps the answer.", string()),
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

/// The parameters of requests.
pub(super) fn parameters(generator: &mut SchemaGenerator) -> Value {
    let mut all = Map::new();
    let mut add = |key: &str, place: &str, name: &str, text: &str, schema: Value| {
        let mut parameter =
            json!({ "name": name, "in": place, "description": text, "schema": schema });
        if place == "path" {
            parameter["required"] = json!(true);
        }
        if schema["type"] == "array" {
            parameter["explode"] = json!(false);
        }
        all.insert(key.to_owned(), parameter);
    };
    let mut word = |of: Of| of(generator);
    let string = || json!({ "type": "string" });
    let moment = || json!({ "type": "string", "format": "date-time" });
    let number = |least: i64, most: i64, default: i64| json!({ "type": "integer", "minimum": least, "maximum": most, "default": default });
    let (code, campaign) = (word(of::<words::Code>), word(of::<words::CampaignId>));
    let class = word(of::<words::VisitClass>);
    add("Code", "path", "code", "The code of a link.", code.clone());
    add(
        "CampaignId",
        "path",
        "id",
        "The id of a campaign.",
        campaign.clone(),
    );
    add("KeyId", "path", "id", "The id of an API key.", string());
    let text = "A code, with whatever follows it behind a slash.";
    add("Path", "path", "path", text, string());

    let text = "How many items a page has.";
    let limit = number(1, MAX_LIMIT.into(), DEFAULT_LIMIT.into());
    add("Limit", "query", "limit", text, limit);
    let text = "Where the listing goes on: the nextCursor of an earlier answer.";
    let cursor = json!({ "type": "string", "pattern": "^[-0-9A-Za-z_]+$" });
    add("Cursor", "query", "cursor", text, cursor);
    add(
        "LinkState",
        "query",
        "state",
        "Only links in this state.",
        word(of::<words::LinkState>),
    );
    add("Tag", "query", "tag", "Only links with this tag.", string());
    add(
        "ExternalId",
        "query",
        "externalId",
        "Only links that you call so.",
        string(),
    );
    let text = "Only links of this campaign.";
    add("OfCampaign", "query", "campaignId", text, campaign.clone());
    let text = "The campaign of rows that name none.";
    add("CampaignOfRows", "query", "campaignId", text, campaign);
    let most = number(1, MOST.into(), DEFAULT_MOST.into());
    add("Most", "query", "most", "How far it is counted.", most);
    let text = "For CSV: the names of the columns in place of those in the first line, parted by commas. A column \
                without a name is left out.";
    add("Columns", "query", "columns", text, string());
    let names = DELIMITERS.map(|(name, _)| name);
    add(
        "Delimiter",
        "query",
        "delimiter",
        "For CSV: what parts values.",
        json!({ "type": "string", "enum": names, "default": "comma" }),
    );
    add(
        "CreatedBy",
        "query",
        "createdBy",
        "Only links that this API key has made.",
        string(),
    );
    let text = "Only what was done to this: key:…, campaign:… or link:….";
    add("Subject", "query", "subject", text, string());
    add(
        "ByKey",
        "query",
        "keyId",
        "Only what was done with this API key.",
        string(),
    );
    add(
        "Action",
        "query",
        "action",
        "Only this, such as link.revoke.",
        string(),
    );
    let text = "Not before this moment. Statistics begin seven days before their end unless it is \
                said, and 800 days at most.";
    add("Since", "query", "since", text, moment());
    let text = "Before this moment: now, unless it is said.";
    add("Until", "query", "until", text, moment());
    let text = "How long the intervals are: an hour up to three days, else a day.";
    add(
        "Interval",
        "query",
        "interval",
        text,
        word(of::<words::Interval>),
    );
    let dimension = word(of::<words::Dimension>);
    let by = json!({ "type": "array", "items": dimension, "minItems": 1 });
    add(
        "By",
        "query",
        "by",
        "What to count by, parted by commas.",
        by,
    );
    let text = "How many values of each dimension are answered.";
    let limit = number(1, MAX_LIMIT.into(), DEFAULT_LIMIT.into());
    add("Values", "query", "limit", text, limit);
    let text = format!(
        "Whether each value has intervals of its own, of at most {MAX_INTERVALS_OF_VALUES}: the \
         {MAX_VALUES_OVER_TIME} values with the most visits."
    );
    let flag = json!({ "type": "boolean", "default": false });
    add("ValueIntervals", "query", "valueIntervals", &text, flag);
    let minutes = number(1, MAX_MINUTES, DEFAULT_MINUTES);
    add("Minutes", "query", "minutes", "How far back.", minutes);
    add(
        "Class",
        "query",
        "class",
        "Only visits of this class.",
        class,
    );
    add("OfCode", "query", "code", "Only visits of this link.", code);
    let host = json!({ "type": "string", "minLength": 1 });
    add(
        "Domain",
        "query",
        "domain",
        "Only visits of this short domain.",
        host,
    );

    let text = "Makes it safe to send the request again for 24 hours: it has one effect.";
    let key = json!({ "type": "string", "pattern": format!("^[!-~]{{1,{LONGEST_KEY}}}$") });
    add("IdempotencyKey", "header", "Idempotency-Key", text, key);
    let text = "The ETag of what you have seen; a change is made only to that. Several parted by \
                commas, or *.";
    let tags = r#"^(\*|(W/)?"[0-9]*"(, ?(W/)?"[0-9]*")*)$"#;
    let tags = json!({ "type": "string", "pattern": tags });
    add("IfMatch", "header", "If-Match", text, tags);
    let text = "The id of the last event that was seen: what came since follows first.";
    add("LastEventId", "header", "Last-Event-ID", text, string());
    let text = "An id for the log and the answer. nginx sets it; one of another form is ignored.";
    add("RequestId", "header", "X-Request-Id", text, string());
    let text = "The trace that the request belongs to (W3C Trace Context). One that is sampled is \
                found in the log of PostgreSQL. One of another form is ignored.";
    add("Traceparent", "header", "traceparent", text, string());
    let text = "What short URLs begin with. nginx sets it, from `shortlink_domains`.";
    add("Base", "header", "X-Shortlink-Base", text, string());
    let text = "The short domains, where links may not lead to. nginx sets it.";
    add("Domains", "header", "X-Shortlink-Domains", text, string());
    let text = "A letter for the state of each short domain. nginx sets it.";
    add("States", "header", "X-Shortlink-States", text, string());
    let text = "Which nginx it is: the name of its machine. nginx sets it.";
    add("Node", "header", "X-Shortlink-Node", text, string());
    let text = "The visitor's query, as it came. nginx sets it.";
    add(
        "VisitorQuery",
        "header",
        "X-Shortlink-Query",
        text,
        string(),
    );
    Value::Object(all)
}

type Of = fn(&mut SchemaGenerator) -> Value;

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}
