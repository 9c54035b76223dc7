//! Links that are made once for the same request.

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
    // A link that is not as it was is not given again, and is again once it is.
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
