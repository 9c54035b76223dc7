//! Deduplicated and idempotent creation of links.

use serde_json::json;

use super::Service;
use super::options::URL;

#[tokio::test]
async fn the_same_request_finds_its_link_as_long_as_that_is_the_same() {
    let service = Service::new().await;
    let body = json!({"longUrl": URL, "dedupe": true, "tags": ["a", "b"], "codeLength": 6});
    let made = service.create(body.clone()).await;
    assert_eq!(made.status, 201);
    let code = made.json()["shortCode"].clone();
    let path = made.header("location").expect("a path").to_owned();
    let mut reordered = body.clone();
    reordered["tags"] = json!(["b", "a", "a"]);
    reordered["redirectStatus"] = json!(302);
    for body in [&body, &reordered] {
        let found = service.create(body.clone()).await;
        assert_eq!((found.status, &found.json()["shortCode"]), (200, &code));
        assert_eq!(found.header("location"), None);
        assert_eq!(found.json()["published"], json!(true));
    }
    for (member, value) in [
        ("longUrl", json!("https://example.com/b")),
        ("redirectStatus", json!(301)),
        ("forwardQuery", json!(true)),
        ("validSince", json!("2026-01-01T00:00:00Z")),
        ("validUntil", json!("2027-01-01T00:00:00Z")),
        ("maxVisits", json!(5)),
        ("tags", json!(["ab"])),
        ("domain", json!("s.example.com")),
        ("externalId", json!("a")),
        ("note", json!("a")),
        ("strategy", json!("hash")),
        ("codeLength", json!({"min": 6, "max": 7})),
        ("dedupe", json!(false)),
    ] {
        let mut other = body.clone();
        other[member] = value;
        let answer = service.create(other).await;
        assert_eq!(answer.status, 201, "{member}");
        assert_ne!(answer.json()["shortCode"], code, "{member}");
    }
    // A changed link is not reused; the next one is, as long as it is unchanged.
    service.patch(&path, json!({"note": "changed"})).await;
    let second = service.create(body.clone()).await;
    assert_eq!(second.status, 201);
    let path = second.header("location").expect("a path").to_owned();
    service.post(&format!("{path}/pause")).await;
    let third = service.create(body.clone()).await;
    assert_eq!(third.status, 201);
    let path = third.header("location").expect("a path").to_owned();
    service.call(&service.writer, "DELETE", &path, None).await;
    assert_eq!(service.create(body.clone()).await.status, 201);
    assert_eq!(service.create(body).await.status, 200);
}

#[tokio::test]
async fn a_window_of_identical_requests_slides() {
    let service = Service::new().await;
    let body = json!({"longUrl": URL, "dedupe": {"within": "1h"}});
    let made = service.create(body.clone()).await;
    assert_eq!(made.status, 201);
    let code = made.json()["shortCode"].clone();
    // Another way to write the window is the same; another window, or none, is another request.
    let minutes = json!({"longUrl": URL, "dedupe": {"within": "60m"}});
    for (minutes_later, body, status) in [
        (59, body.clone(), 200),
        (59, minutes.clone(), 200),
        (0, json!({"longUrl": URL, "dedupe": true}), 201),
        (0, json!({"longUrl": URL, "dedupe": {"within": "2h"}}), 201),
        (60, body.clone(), 200),
        (61, minutes, 201),
        (1, body.clone(), 200),
    ] {
        service
            .clock
            .advance(jiff::SignedDuration::from_mins(minutes_later));
        let answer = service.create(body.clone()).await;
        assert_eq!(answer.status, status, "{body}");
        let is_first = answer.json()["shortCode"] == code;
        let is_last = minutes_later == 1;
        assert_eq!(is_first, status == 200 && !is_last, "{body}");
    }
    // A link that is not live is not returned, however recent the request.
    let found = service.create(body.clone()).await;
    let path = format!(
        "/v1/links/{}",
        found.json()["shortCode"].as_str().expect("a code")
    );
    service.post(&format!("{path}/pause")).await;
    assert_eq!(service.create(body).await.status, 201);
}

#[tokio::test]
async fn a_request_with_a_key_of_its_own_has_one_effect() {
    let service = Service::new().await;
    let send = async |api_key: &str, key: &str, body: serde_json::Value| {
        let request = axum::http::Request::builder()
            .method("POST")
            .uri("/v1/links")
            .header("x-api-key", api_key)
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.to_string()));
        service.send(request.expect("a request")).await
    };
    let body = json!({"longUrl": URL, "validUntil": "2026-06-01T00:01:00Z", "note": "x"});
    let first = send(&service.writer, "one", body.clone()).await;
    assert_eq!(first.status, 201);
    let location = first.header("location").expect("a path").to_owned();
    // A replay succeeds even when a new link would be invalid.
    service.clock.advance(jiff::SignedDuration::from_mins(2));
    let reordered = json!({"note": "x", "validUntil": "2026-06-01T00:01:00Z", "longUrl": URL});
    for body in [body, reordered] {
        let again = send(&service.writer, "one", body).await;
        assert_eq!(
            (again.status, again.header("location")),
            (201, Some(&*location))
        );
        assert_eq!(again.json()["shortCode"], first.json()["shortCode"]);
    }
    let other = send(&service.writer, "one", json!({"longUrl": URL})).await;
    assert_eq!(other.status, 422);
    assert_eq!(
        other.json()["type"],
        "urn:shortlink:problem:idempotency-key-reused"
    );
    // An invalid request can be corrected, and a used key stays used.
    let wrong = send(&service.writer, "two", json!({"longUrl": "nonsense"})).await;
    assert_eq!(
        (wrong.status, wrong.pointers()),
        (422, vec!["/longUrl".to_owned()])
    );
    let slug = json!({"longUrl": URL, "customSlug": "mine"});
    assert_eq!(send(&service.writer, "two", slug.clone()).await.status, 201);
    for _ in 0..2 {
        let taken = send(&service.writer, "three", slug.clone()).await;
        assert_eq!(taken.status, 409);
        let media_type = taken.header("content-type");
        assert_eq!(media_type, Some("application/problem+json"));
    }
    // Another caller's key of the same name is another one.
    let (_, second) = service
        .key(
            8,
            shortlink_service::testing::new_key(&[shortlink_core::api_key::Scope::LinksWrite]),
        )
        .await;
    let theirs = send(&second, "one", json!({"longUrl": URL})).await;
    assert_eq!(theirs.status, 201);
    assert_ne!(theirs.json()["shortCode"], first.json()["shortCode"]);
    for dedupe in [json!(true), json!({"within": "1h"})] {
        let both = json!({"longUrl": URL, "dedupe": dedupe});
        let both = send(&service.writer, "four", both).await;
        assert_eq!(
            (both.status, both.pointers()),
            (422, vec!["/dedupe".to_owned()])
        );
    }
    assert_eq!(
        send(&service.writer, "", json!({"longUrl": URL}))
            .await
            .status,
        400
    );
}
