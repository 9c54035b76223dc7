//! `/v1/messages`: texts with short links, and what is refused.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use shortlink_core::ports::MAX_TOGETHER;

use super::batch::{NDJSON, lines};
use super::{Answer, Service};

const BASE: &str = "https://s.example.com";

async fn send(
    service: &Service,
    query: &str,
    media_type: &str,
    idempotency: Option<&str>,
    body: &str,
) -> Answer {
    let mut request = Request::builder()
        .method("POST")
        .uri(format!("/v1/messages{query}"))
        .header("x-api-key", &service.writer)
        .header("x-shortlink-base", BASE)
        .header("content-type", media_type);
    if let Some(key) = idempotency {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(Body::from(body.to_owned()));
    service.send(request.expect("a request")).await
}

async fn results(service: &Service, rows: Value) -> Vec<Value> {
    let answer = send(service, "", "application/json", None, &rows.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json().as_array().expect("an array").clone()
}

fn code(result: &Value, at: usize) -> &str {
    result["message"]["codes"][at].as_str().expect("a code")
}

async fn campaign(service: &Service, target: &str) -> String {
    let campaign = json!({ "name": "Spring", "longUrl": target });
    let made = service
        .call(&service.campaigner, "POST", "/v1/campaigns", Some(campaign))
        .await;
    assert_eq!(made.status, 201);
    made.json()["id"].as_str().expect("an id").to_owned()
}

/// The problem of a result: its pointers and the first detail.
fn refused(result: &Value) -> (Vec<&str>, &str) {
    assert!(result.get("message").is_none(), "{result}");
    assert_eq!(result["status"], 422, "{result}");
    let errors = result["problem"]["errors"].as_array().expect("errors");
    let pointers = errors
        .iter()
        .map(|error| error["pointer"].as_str().expect("text"));
    (
        pointers.collect(),
        errors[0]["detail"].as_str().expect("text"),
    )
}

#[tokio::test]
async fn urls_become_short_links_with_segments_before_and_after() {
    let service = Service::new().await;
    let long = format!("https://example.com/{}?m={{m}}", "x".repeat(140));
    let text = format!("Hi {{name}} ({long}), or http://example.com/b.");
    let rows = json!([
        { "text": text, "parameters": { "name": "Zoë", "m": "a&b" }, "externalId": "m-1", "tags": ["t"] },
        { "text": "No URL, 5 €", "campaignId": null },
        { "text": "http://example.com/c", "campaignId": null, "longUrl": null },
    ]);
    let results = results(&service, rows).await;
    let [first, plain, alone] = &results[..] else {
        panic!("{results:?}")
    };
    assert_eq!(
        (&first["status"], &first["externalId"]),
        (&json!(201), &json!("m-1"))
    );
    let (one, two) = (code(first, 0), code(first, 1));
    let short = format!("Hi Zoë ({BASE}/{one}), or {BASE}/{two}.");
    assert_eq!(first["message"]["text"], short);
    // `ë` is not in the alphabet of GSM-7.
    let length = |text: &str| text.encode_utf16().count();
    let before = text.replace("{name}", "Zoë").replace("{m}", "a%26b");
    assert_eq!(
        first["message"]["before"],
        json!({ "encoding": "UCS-2", "length": length(&before), "segments": length(&before).div_ceil(67) }),
    );
    assert_eq!(first["message"]["after"]["length"], json!(length(&short)));
    let link = service.get(&format!("/v1/links/{one}")).await.json();
    let target = long.replace("{m}", "a%26b");
    assert_eq!(
        (&link["longUrl"], &link["tags"]),
        (&json!(target), &json!(["t"]))
    );
    let link = service.get(&format!("/v1/links/{two}")).await.json();
    assert_eq!(link["longUrl"], "http://example.com/b");
    let size = json!({ "encoding": "GSM-7", "length": 12, "segments": 1 });
    let unchanged = json!({ "text": "No URL, 5 €", "codes": [], "before": size, "after": size });
    assert_eq!(
        (&plain["status"], &plain["message"]),
        (&json!(200), &unchanged)
    );
    assert_eq!(
        alone["message"]["text"],
        format!("{BASE}/{}", code(alone, 0))
    );
}

#[tokio::test]
async fn refused_messages_have_pointers_and_no_links() {
    let service = Service::with(|app| app.body_limit_bytes = 8192).await;
    let many = "https://example.com/ ".repeat(11);
    let rows = json!([
        { "text": "Hi {name}, https://example.com/{member}", "parameters": { "name": "A" } },
        { "text": "a".repeat(600) + " https://example.com/ " + &"b".repeat(920) },
        { "text": "https://example.com/ and https://denied.example/" },
        { "text": "a", "longUrl": "https://example.com/" },
        {},
        { "text": many },
        { "text": "https://example.com/", "campaignId": "77" },
        { "text": "{a}", "parameters": { "a": 1 } },
        { "text": "https://example.com/ https://example.com/", "customSlug": "one" },
        { "text": "https://example.com/{d}", "parameters": { "d": ".." } },
    ]);
    let results = results(&service, rows).await;
    let told: Vec<_> = results.iter().map(refused).collect();
    for ((pointers, detail), (pointer, part)) in told.iter().zip([
        ("/parameters/member", "needs a value"),
        ("/text", "at most 10"),
        ("/text", "has the URL https://denied.example/, which"),
        ("/longUrl", "is not for messages"),
        ("/text", ""),
        ("/text", "has 11 URLs"),
        ("/campaignId", ""),
        ("/parameters/a", "must be a string"),
        ("/customSlug", "one URL"),
        ("/parameters/d", ""),
    ]) {
        assert_eq!(pointers, &[pointer], "{detail}");
        assert!(detail.contains(part), "{detail}");
    }
    assert_eq!(service.get("/v1/links").await.json()["links"], json!([]));
}

#[tokio::test]
async fn a_campaign_gets_the_links_of_its_target_and_no_others() {
    let service = Service::new().await;
    let id = campaign(&service, "https://example.com/s?m={member}").await;
    let csv = "text,parameters.member,parameters.name\n\
               \"Hi {name}, https://example.com/s?m={member}!\",a b,Ann\n\
               \"Hi {name}, https://example.com/other\",2,Bob\n\
               https://example.com/s?m=3,,\n";
    let query = format!("?campaignId={id}&summary=true");
    let answer = send(&service, &query, "text/csv", None, csv).await;
    let results = lines(&answer);
    let code = code(&results[0], 0);
    assert_eq!(
        results[0]["message"]["text"],
        format!("Hi Ann, {BASE}/{code}!")
    );
    assert_eq!(service.redis.record(code), Some(format!("c{id} a%20b")));
    let (pointers, detail) = refused(&results[1]);
    assert_eq!(pointers, ["/text"]);
    assert!(detail.contains("not the target of campaign"), "{detail}");
    assert_eq!(refused(&results[2]).0, ["/parameters/member"]);
    let summary = &results[3]["summary"];
    assert_eq!(
        (&summary["created"], &summary["refused"]),
        (&json!(1), &json!(2))
    );
}

#[tokio::test]
async fn a_repeated_request_has_the_same_texts_and_no_further_links() {
    let service = Service::new().await;
    // More links than are stored together.
    let row = |number: usize| {
        let text = format!("a https://example.com/{number} b https://example.com/b{number}");
        json!({ "text": text }).to_string() + "\n"
    };
    let mut rows: String = (0..MAX_TOGETHER - 100).map(row).collect();
    rows += "{\"text\":\"https://denied.example/ and https://example.com/\"}\n";
    rows += "{\"text\":\"https://example.com/last\"}\n";
    let first = send(&service, "", NDJSON, Some("k"), &rows).await;
    let results = lines(&first);
    assert_eq!(results.len(), MAX_TOGETHER - 98);
    let statuses: Vec<_> = results.iter().map(|it| it["status"].as_u64()).collect();
    assert_eq!(
        statuses.iter().filter(|it| **it == Some(201)).count(),
        MAX_TOGETHER - 99
    );
    let again = send(&service, "", NDJSON, Some("k"), &rows).await;
    assert_eq!(lines(&again), results);
    let links = service.get("/v1/links?limit=1000").await.json();
    assert!(links["nextCursor"].is_string());
    let other = send(
        &service,
        "",
        NDJSON,
        Some("k"),
        &rows.replace("last", "Last"),
    )
    .await;
    assert_eq!(lines(&other)[0]["status"], 422);
}

#[tokio::test]
async fn without_a_short_domain_no_message_is_taken() {
    let service = Service::new().await;
    let request = Request::builder()
        .method("POST")
        .uri("/v1/messages")
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from("{\"text\":\"https://example.com/\"}"));
    let answer = service.send(request.expect("a request")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(service.get("/v1/links").await.json()["links"], json!([]));
}
