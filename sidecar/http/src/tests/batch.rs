//! `/v1/links/batch`: answers, invalid rows, and retries.

use std::collections::HashSet;

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::stream;
use serde_json::{Value, json};
use shortlink_core::ports::MAX_TOGETHER;

use super::{Answer, Service};

pub(super) const NDJSON: &str = "application/x-ndjson";

pub(super) async fn send(
    service: &Service,
    media_type: &str,
    idempotency: Option<&str>,
    body: Body,
) -> Answer {
    let mut request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch")
        .header("x-api-key", &service.writer)
        .header("x-shortlink-base", "https://s.example.com")
        .header("content-type", media_type);
    if let Some(key) = idempotency {
        request = request.header("idempotency-key", key);
    }
    service.send(request.body(body).expect("a request")).await
}

/// The results of an answer in lines.
pub(super) fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some(NDJSON));
    let text = std::str::from_utf8(&answer.body).expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

pub(super) fn codes(results: &[Value]) -> Vec<String> {
    results
        .iter()
        .filter_map(|result| Some(result["link"]["shortCode"].as_str()?.to_owned()))
        .collect()
}

/// A body with `count` rows.
pub(super) fn ndjson(count: usize) -> String {
    let row = |number| format!("{{\"longUrl\":\"https://example.com/{number}\"}}\n");
    (0..count).map(row).collect()
}

#[tokio::test]
async fn a_wrong_row_is_told_by_its_index_and_harms_no_other() {
    let service = Service::new().await;
    let rows = json!([
        {"longUrl": "https://example.com/0"},
        {"longUrl": "ftp://example.com/1", "redirectStatus": 299, "externalId": "one"},
        "nonsense",
        {"longUrl": "https://example.com/3", "customSlug": "three"},
        {"longUrl": "https://example.com/4", "customSlug": "three"},
        {"longUrl": "https://example.com/5", "customSlug": "api"},
        {"longUrl": "https://example.com/6"},
    ]);
    let body = Body::from(rows.to_string());
    let answer = send(&service, "application/json", None, body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let results = answer.json();
    let results = results.as_array().expect("an array");
    let told: Vec<(u64, u64)> = results
        .iter()
        .map(|result| {
            let number = |name| result[name].as_u64().expect("a number");
            (number("index"), number("status"))
        })
        .collect();
    let statuses = [201, 422, 422, 201, 409, 422, 201];
    let expected: Vec<(u64, u64)> = (0..).zip(statuses).collect();
    assert_eq!(told, expected, "{results:?}");
    assert_eq!(results[1]["externalId"], "one");
    let pointers = &results[1]["problem"]["errors"];
    assert_eq!(pointers[0]["pointer"], "/longUrl");
    assert_eq!(pointers[1]["pointer"], "/redirectStatus");
    assert_eq!(
        results[3]["link"]["shortUrl"],
        "https://s.example.com/three"
    );
    assert_eq!(results[3]["link"]["published"], true);
    assert_eq!(
        service.redis.record("three").as_deref(),
        Some("1 302 1 0 https://example.com/3")
    );
}

#[tokio::test]
async fn a_thousand_recipients_of_one_target_get_a_code_each() {
    let service = Service::new().await;
    let row = "{\"longUrl\":\"https://example.com/\",\"strategy\":\"hash\"}\n";
    let answer = send(&service, NDJSON, None, Body::from(row.repeat(1000))).await;
    let codes: HashSet<String> = codes(&lines(&answer)).into_iter().collect();
    assert_eq!(codes.len(), 1000);
}

#[tokio::test]
async fn a_batch_ends_with_a_summary_if_it_is_asked_for() {
    let service = Service::new().await;
    let ask = async |query: &str, media_type: &str, body: &str| {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/v1/links/batch?{query}"))
            .header("x-api-key", &service.writer)
            .header("idempotency-key", format!("summed {}", body.len()))
            .header("content-type", media_type)
            .body(Body::from(body.to_owned()));
        service.send(request.expect("a request")).await
    };
    let rows = ndjson(2500) + "nonsense\n\n\n";
    let csv = "longUrl,note\nhttps://example.com/a,b\nhttps://example.com/c,\"d\n";
    for (media_type, body, sums) in [
        (
            NDJSON,
            &*rows,
            json!({"rows": 2501, "created": 2500, "existing": 0, "refused": 1}),
        ),
        (
            "text/csv",
            csv,
            json!({"rows": 2, "created": 1, "existing": 0, "refused": 1}),
        ),
    ] {
        let mut sums = json!({ "summary": sums });
        sums["summary"]["bytes"] = json!(body.len());
        // A repetition without it is the same request.
        let plain = ask("", media_type, body).await;
        sums["summary"]["uploadId"] = json!(plain.header("upload-id"));
        let plain = lines(&plain);
        let mut summed = lines(&ask("summary=true", media_type, body).await);
        assert_eq!(summed.pop(), Some(sums), "{media_type}");
        assert_eq!(codes(&summed), codes(&plain));
        assert_eq!(summed.len(), plain.len());
        let without = lines(&ask("summary=false", media_type, body).await);
        assert_eq!(without.len(), plain.len());
    }
    let dedupe = "{\"longUrl\":\"https://example.com/once\",\"dedupe\":true}\n".repeat(3);
    let request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch?summary=true")
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from(dedupe));
    let results = lines(&service.send(request.expect("a request")).await);
    assert_eq!(results[3]["summary"]["existing"], 2, "{results:?}");
    let array = ask("summary=true", "application/json", "[{}]").await;
    assert_eq!(array.status, 400);
}

#[tokio::test]
async fn a_batch_of_refused_rows_ends() {
    let service = Service::new().await;
    let rows = |count: usize| "x\n".repeat(count);
    let body = rows(9_000) + &ndjson(1) + &rows(60_000);
    let request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch?summary=true")
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from(body));
    let results = lines(&service.send(request.expect("a request")).await);
    let [.., last, summary] = &results[..] else {
        panic!("{} lines", results.len());
    };
    assert_eq!(
        last["problem"]["type"], "urn:shortlink:problem:rows-refused",
        "{last}"
    );
    assert_eq!(last.get("index"), None);
    let summary = &summary["summary"];
    let read = summary["rows"].as_u64().expect("a number");
    // Rows in progress when the last allowed one was refused have results as well.
    assert!((19_001..40_000).contains(&read), "{read}");
    assert_eq!(summary["created"], 1);
    assert_eq!(results.len() as u64, read + 2);
    let detail = last["problem"]["detail"].to_string();
    assert!(
        detail.contains(&format!("from index {read} on")),
        "{detail}"
    );
}

#[tokio::test]
async fn other_column_names_are_another_request() {
    let service = Service::new().await;
    for (name, status) in [("note", 201), ("note", 201), ("externalId", 422)] {
        let body = Body::from(format!("longUrl,{name}\nhttps://example.com/,a\n"));
        let results = lines(&send(&service, "text/csv", Some("names"), body).await);
        assert_eq!(results[0]["status"], status, "{name}: {results:?}");
    }
}

#[tokio::test]
async fn many_rows_are_answered_in_their_order() {
    let service = Service::new().await;
    let count = 3 * MAX_TOGETHER + 17;
    let answer = send(&service, NDJSON, None, Body::from(ndjson(count))).await;
    let results = lines(&answer);
    assert_eq!(results.len(), count);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index);
        assert_eq!(
            result["link"]["longUrl"],
            format!("https://example.com/{index}")
        );
    }
    let distinct: HashSet<String> = codes(&results).into_iter().collect();
    assert_eq!(distinct.len(), count);
}

#[tokio::test]
async fn what_has_arrived_is_answered_while_the_rest_is_awaited() {
    let service = Service::new().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(4);
    let body = stream::unfold(receiver, |mut receiver| async {
        let part = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(part), receiver))
    });
    let request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch")
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from_stream(body))
        .expect("a request");
    let response = tower::ServiceExt::oneshot(service.router.clone(), request).await;
    let mut answer = response.expect("an answer").into_body().into_data_stream();
    for number in 0..3 {
        let row = format!("{{\"longUrl\":\"https://example.com/{number}\"}}\n");
        sender.send(row.into()).await.expect("a reader");
        let part = futures_util::StreamExt::next(&mut answer).await;
        let part = part.expect("a result").expect("no error");
        let result: Value = serde_json::from_slice(&part).expect("JSON");
        assert_eq!(result["index"], number);
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_has_no_other_effect() {
    let service = Service::new().await;
    let count = 2 * MAX_TOGETHER + 5;
    let mut body = ndjson(count);
    body.push_str("{\"longUrl\":\"https://example.com/s\",\"customSlug\":\"mine\"}\nnonsense\n");
    let first = lines(&send(&service, NDJSON, Some("k"), Body::from(body.clone())).await);
    assert_eq!(codes(&first).len(), count + 1);
    // The answer was lost, and Redis with it.
    service.redis.restart();
    let again = lines(&send(&service, NDJSON, Some("k"), Body::from(body.clone())).await);
    assert_eq!(again, first);
    assert!(service.redis.record("mine").is_some());

    // Another key creates other links, and its custom code is taken now.
    let other = lines(&send(&service, NDJSON, Some("other"), Body::from(body.clone())).await);
    let distinct: HashSet<String> = codes(&first).into_iter().chain(codes(&other)).collect();
    assert_eq!(distinct.len(), 2 * count + 1);
    assert_eq!(other[count]["status"], 409);
    // A problem is replayed too, even if its cause no longer exists.
    let again = lines(&send(&service, NDJSON, Some("other"), Body::from(body.clone())).await);
    assert_eq!(again, other);

    // The key belongs to that request.
    let changed = body.replace("/7\"", "/seven\"");
    let refused = lines(&send(&service, NDJSON, Some("k"), Body::from(changed)).await);
    let problem = &refused[0]["problem"]["type"];
    assert_eq!(problem, "urn:shortlink:problem:idempotency-key-reused");
    assert_eq!(refused[MAX_TOGETHER]["status"], 201);
}

/// Simulates a client that times out and retries at once.
#[tokio::test]
async fn the_same_request_at_the_same_time_makes_its_links_once() {
    let service = Service::new().await;
    let body = ndjson(300);
    let (one, other) = tokio::join!(
        send(&service, NDJSON, Some("k"), Body::from(body.clone())),
        send(&service, NDJSON, Some("k"), Body::from(body.clone())),
    );
    assert_eq!(codes(&lines(&one)), codes(&lines(&other)));
    let listed = service.get("/v1/links?limit=1000").await.json();
    assert_eq!(listed["links"].as_array().map(Vec::len), Some(300));
}

#[tokio::test]
async fn the_links_of_a_batch_are_found_by_its_upload() {
    let service = Service::new().await;
    let list = async |id: &str| {
        let answer = service.get(&format!("/v1/links?uploadId={id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
        let links = answer.json()["links"].as_array().cloned().expect("links");
        let codes = links.iter().map(|link| {
            assert_eq!(link["uploadId"], id);
            link["shortCode"].as_str().expect("a code").to_owned()
        });
        codes.collect::<HashSet<String>>()
    };
    // With a key, a repetition belongs to the same upload.
    let first = send(&service, NDJSON, Some("spring"), Body::from(ndjson(5))).await;
    let upload = first.header("upload-id").expect("an id").to_owned();
    let again = send(&service, NDJSON, Some("spring"), Body::from(ndjson(5))).await;
    assert_eq!(again.header("upload-id"), Some(&*upload));
    let mut expected: HashSet<String> = codes(&lines(&first)).into_iter().collect();
    assert_eq!(list(&upload).await, expected);
    // Without one, each batch has its own.
    let plain = send(&service, NDJSON, None, Body::from(ndjson(2))).await;
    let other = plain.header("upload-id").expect("an id").to_owned();
    assert_ne!(other, upload);
    assert_eq!(list(&other).await.len(), 2);
    // Another part of the file, with a link of a campaign's settings and one that exists.
    let dedupe = json!({"longUrl": "https://example.com/old", "dedupe": true});
    let old = service.create(dedupe.clone()).await.json();
    assert!(old.get("uploadId").is_none(), "{old}");
    let body = format!(
        "{{\"longUrl\":\"https://example.com/new\",\"note\":\"full\",\"maxVisits\":3}}\n{dedupe}\n"
    );
    let request = Request::builder()
        .method("POST")
        .uri(format!("/v1/links/batch?summary=true&uploadId={upload}"))
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from(body));
    let part = lines(&service.send(request.expect("a request")).await);
    assert_eq!(part[0]["link"]["uploadId"], *upload);
    assert_eq!(part[1]["status"], 200);
    assert!(part[1]["link"].get("uploadId").is_none(), "{part:?}");
    assert_eq!(part[2]["summary"]["uploadId"], *upload);
    expected.extend(codes(&part[..1]));
    assert_eq!(list(&upload).await, expected);
    // A change keeps it, as the history does.
    let code = codes(&part[..1]).remove(0);
    let path = format!("/v1/links/{code}");
    let changed = service
        .call(&service.writer, "PATCH", &path, Some(json!({"note": null})))
        .await;
    assert_eq!(changed.json()["uploadId"], *upload);
    for id in ["", "1", "8000000000000000", "3F0C9D24A6B1E857"] {
        let answer = service.get(&format!("/v1/links?uploadId={id}")).await;
        assert_eq!(answer.status, 400, "{id}");
    }
}

#[tokio::test]
async fn rules_are_json_in_a_cell() {
    let service = Service::new().await;
    let quoted = |rules: &Value| format!("\"{}\"", rules.to_string().replace('"', "\"\""));
    let rules = json!([
        {"device": ["ios"], "longUrl": "https://e.example/ios"},
        {"percent": 12.5, "variant": "b", "longUrl": "https://e.example/b"},
    ]);
    let wrong = json!([{"device": ["ios", "fridge"], "longUrl": "https://e.example/ios"}]);
    let csv = format!(
        "longUrl,rules,expiredTarget,pausedTarget,notYetTarget\n\
         https://e.example/,{},https://e.example/over,https://e.example/paused,https://e.example/early\n\
         https://e.example/,{},,,\n\
         https://e.example/,[{{,,,\n\
         https://e.example/,,ftp://e.example/,,\n\
         https://e.example/,,,,\n",
        quoted(&rules),
        quoted(&wrong),
    );
    let results = lines(&send(&service, "text/csv", None, csv.into()).await);
    let result = |row: u64| {
        let mut results = results.iter();
        results.find(|it| it["index"] == row).expect("a result")
    };
    let link = &result(0)["link"];
    assert_eq!(link["rules"], rules);
    for (name, place) in [
        ("expiredTarget", "over"),
        ("pausedTarget", "paused"),
        ("notYetTarget", "early"),
    ] {
        assert_eq!(link[name], format!("https://e.example/{place}"));
    }
    for (row, pointer) in [
        (1, "/rules/0/device/1"),
        (2, "/rules"),
        (3, "/expiredTarget"),
    ] {
        let error = &result(row)["problem"];
        assert_eq!(error["status"], 422, "{error}");
        assert_eq!(error["errors"][0]["pointer"], pointer, "{error}");
    }
    assert!(result(4)["link"].get("rules").is_none());
    let variants = json!([{"name": "b", "weight": 3, "longUrl": "https://e.example/b"}]);
    let csv = format!(
        "longUrl,variants\nhttps://e.example/,{}\n",
        quoted(&variants)
    );
    let results = lines(&send(&service, "text/csv", None, csv.into()).await);
    let shares = json!([{"percent": 100.0, "variant": "b", "longUrl": "https://e.example/b"}]);
    assert_eq!(results[0]["link"]["rules"], shares);
}
