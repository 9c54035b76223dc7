//! `/resolve`: answers to visitors.

use axum::body::Body;
use axum::http::Request;
use jiff::SignedDuration;
use serde_json::json;
use shortlink_core::testing::eventually;

use tower::ServiceExt;

use super::Service;

#[tokio::test]
async fn visitors_are_sent_on_or_told_why_not() {
    let service = Service::new().await;
    for (slug, extra) in [
        ("live", json!({})),
        ("kept", json!({"redirectStatus": 301})),
        ("brief", json!({"validUntil": "2026-06-01T00:00:30Z"})),
        ("gone", json!({})),
        ("early", json!({"validSince": "2026-07-01T00:00:00Z"})),
    ] {
        let mut body = json!({"longUrl": "https://example.com/a#b", "customSlug": slug});
        for (name, value) in extra.as_object().expect("an object") {
            body[name] = value.clone();
        }
        assert_eq!(service.create(body).await.status, 201);
    }
    service
        .call(&service.writer, "DELETE", "/v1/links/gone", None)
        .await;
    service.clock.advance(SignedDuration::from_secs(30));
    service.redis.restart();
    let target = Some("https://example.com/a#b");
    for (method, path, status, location, cache, record) in [
        ("GET", "live", 302, target, Some("no-store"), Some("live")),
        ("HEAD", "live", 302, target, Some("no-store"), None),
        (
            "GET",
            "live/and/more?x=y",
            302,
            target,
            Some("no-store"),
            None,
        ),
        ("GET", "kept", 301, target, None, Some("kept")),
        ("GET", "brief", 410, None, Some("no-store"), Some("brief")),
        ("GET", "gone", 410, None, Some("no-store"), Some("gone")),
        ("GET", "early", 404, None, Some("no-store"), Some("early")),
        ("GET", "nobody", 404, None, Some("no-store"), Some("nobody")),
        ("GET", "Ab3xK9qZ", 404, None, Some("no-store"), None),
        ("GET", "a-b", 404, None, Some("no-store"), None),
        ("GET", "liv%65", 404, None, Some("no-store"), None),
        ("POST", "live", 405, None, Some("no-store"), None),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(format!("/resolve/{path}"))
            .body(Body::empty());
        let answer = service.send(request.expect("a good request")).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("location"), location, "{method} {path}");
        assert_eq!(answer.header("cache-control"), cache, "{method} {path}");
        let is_unknown = (status == 404 && path != "early").then_some("1");
        assert_eq!(answer.header("x-shortlink-unknown"), is_unknown, "{path}");
        assert_ne!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        if status < 400 {
            assert!(answer.body.is_empty());
        }
        if let Some(code) = record {
            let is_told = || async { service.redis.record(code).is_some() };
            eventually("the record is in Redis", is_told).await;
        }
    }
    for (code, record) in [("nobody", "1 404 0"), ("gone", "1 410 2")] {
        assert_eq!(service.redis.record(code).as_deref(), Some(record));
    }
    // Text that cannot be a code is not cached.
    assert_eq!(service.redis.record("Ab3xK9qZ"), None);
}

#[tokio::test]
async fn without_the_database_nobody_is_told_that_there_is_no_link() {
    let service = Service::new().await;
    service.kept.store.close().await;
    for (path, status) in [
        ("/resolve/live", 503),
        ("/resolve/Ab3xK9qZ", 404),
        ("/v1/links", 503),
        ("/readyz", 503),
        ("/healthz", 200),
    ] {
        let answer = service.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        let asks_to_wait = answer.header("retry-after").is_some();
        assert_eq!(asks_to_wait, status == 503 && path != "/readyz", "{path}");
    }
}

#[tokio::test]
async fn a_visitor_among_requests_of_the_api_is_answered_and_gets_another_connection() {
    let service = Service::new().await;
    let link = json!({"longUrl": "https://example.com/a", "customSlug": "live"});
    assert_eq!(service.create(link).await.status, 201);
    for (router, path, status, closes) in [
        (&service.api_router, "/resolve/live", 302, true),
        (&service.api_router, "/v1/version", 404, false),
        (&service.router, "/resolve/live", 302, false),
        (&service.router, "/v1/version", 404, false),
    ] {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await;
        let response = response.expect("the router answers everything");
        assert_eq!(response.status(), status, "{path}");
        let connection = response.headers().get("connection");
        assert_eq!(
            connection.map(|it| it.as_bytes()),
            closes.then_some(&b"close"[..]),
            "{path}"
        );
    }
}
