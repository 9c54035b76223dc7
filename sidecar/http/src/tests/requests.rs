//! Properties of every request: keys, problems, panics, and readiness.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use jiff::SignedDuration;
use serde_json::json;
use shortlink_core::api_key::Scope;
use shortlink_core::clock::Clock;
use shortlink_core::testing::eventually;
use shortlink_store::testing::lock;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;

use super::{BODY_LIMIT, Service, new_key};
use crate::{problem, resolve};

#[tokio::test]
async fn whoever_asks_needs_a_key_that_allows_it() {
    let service = Service::new().await;
    let body = json!({"longUrl": "https://example.com/"}).to_string();
    let request = |header: Option<(&str, String)>, method: &str| {
        let mut request = Request::builder()
            .method(method)
            .uri("/v1/links")
            .header("content-type", "application/json");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        request
            .body(Body::from(body.clone()))
            .expect("a good request")
    };
    let (_, writer) = service.key(1, new_key(&[Scope::LinksWrite])).await;
    let reader = &service.reader;
    let stranger = format!("slk_{}_{}", "x".repeat(10), "y".repeat(43));
    let mistyped = format!("{}{}", &writer[..writer.len() - 1], '_');
    for (header, post, get) in [
        (None, 401, 401),
        (Some(("x-api-key", String::new())), 401, 401),
        (Some(("x-api-key", stranger)), 401, 401),
        (Some(("x-api-key", mistyped)), 401, 401),
        (Some(("authorization", format!("Basic {writer}"))), 401, 401),
        (
            Some(("authorization", format!("Bearer {writer}"))),
            201,
            403,
        ),
        (
            Some(("authorization", format!("bearer {reader}"))),
            403,
            200,
        ),
        (Some(("x-api-key", reader.clone())), 403, 200),
    ] {
        for (method, status) in [("POST", post), ("GET", get)] {
            let answer = service.send(request(header.clone(), method)).await;
            assert_eq!(answer.status, status, "{method} {header:?}");
            assert_eq!(answer.header("www-authenticate").is_some(), status == 401);
        }
    }
}

#[tokio::test]
async fn requests_that_miss_are_told_so_as_problems() {
    let service = Service::new().await;
    let url = "{\"longUrl\": \"https://example.com/\"}";
    let long = format!(
        "{{\"longUrl\": \"https://example.com/{}\"}}",
        "a".repeat(BODY_LIMIT)
    );
    for (method, path, content_type, body, status) in [
        ("POST", "/v1/links", Some("application/json"), "{", 400),
        ("POST", "/v1/links", Some("application/json"), "", 400),
        ("POST", "/v1/links", Some("application/json"), &*long, 413),
        ("POST", "/v1/links", None, url, 415),
        ("POST", "/v1/links", Some("text/plain"), url, 415),
        (
            "POST",
            "/v1/links",
            Some("application/x-www-form-urlencoded"),
            url,
            415,
        ),
        (
            "POST",
            "/v1/links",
            Some("Application/JSON; charset=utf-8"),
            url,
            201,
        ),
        (
            "POST",
            "/v1/links",
            Some("application/json; charset=iso-8859-1"),
            url,
            415,
        ),
        (
            "POST",
            "/v1/links",
            Some("application/merge-patch+json"),
            url,
            201,
        ),
        ("PUT", "/v1/links", None, "", 405),
        ("POST", "/v1/links/abc", None, "", 405),
        ("POST", "/healthz", None, "", 405),
        (
            "PATCH",
            "/v1/links/abc",
            Some("application/json"),
            "{}",
            404,
        ),
        ("DELETE", "/v1/links/abc", None, "", 404),
        ("DELETE", "/v1/links/a-b", None, "", 404),
        ("DELETE", "/v1/links/%ff", None, "", 404),
        ("GET", "/nothing", None, "", 404),
        ("GET", "/v1", None, "", 404),
        ("GET", "/v1/links/", None, "", 404),
        ("GET", "/v1/links/abc/def", None, "", 404),
    ] {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-api-key", &service.writer)
            .header("x-request-id", "id-1");
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let request = request.body(Body::from(body.to_owned()));
        let answer = service.send(request.expect("a good request")).await;
        assert_eq!(answer.status, status, "{method} {path} {content_type:?}");
        assert_eq!(answer.header("x-request-id"), Some("id-1"));
        assert_eq!(answer.header("allow").is_some(), status == 405);
        if status != 201 {
            let content_type = answer.header("content-type");
            assert_eq!(
                content_type,
                Some("application/problem+json"),
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn what_no_operation_knows_is_refused_and_never_ignored() {
    let service = Service::new().await;
    let request = |method: &str, path: &str, body: &str| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(
                "x-api-key",
                if method == "GET" {
                    &service.reader
                } else {
                    &service.writer
                },
            )
            .header("content-type", "application/json");
        service.send(
            request
                .body(Body::from(body.to_owned()))
                .expect("a request"),
        )
    };
    let link = r#"{"longUrl": "https://example.com/", "customSlug": "abc"}"#;
    assert_eq!(request("POST", "/v1/links", link).await.status, 201);
    for (method, path, body) in [
        ("POST", "/v1/links?x=1", link),
        ("GET", "/v1/links?x=1", ""),
        ("GET", "/v1/links/abc?x=1", ""),
        ("GET", "/v1/links/abc/explain?x=1", ""),
        ("GET", "/v1/links/abc/qr?format=png&size=300", ""),
        ("GET", "/v1/codespace?x=1", ""),
        ("DELETE", "/v1/links/abc?force", ""),
        ("POST", "/v1/links/abc/pause?x=1", ""),
        (
            "POST",
            "/v1/links",
            r#"{"longUrl": "https://a.example/", "longUrl": "https://b.example/"}"#,
        ),
        ("PATCH", "/v1/links/abc", r#"{"note": "a", "note": "b"}"#),
    ] {
        let answer = request(method, path, body).await;
        assert_eq!(answer.status, 400, "{method} {path} {body}");
    }
    assert_eq!(request("GET", "/v1/links/abc?", "").await.status, 200);
    assert_eq!(
        request("GET", "/healthz?from=a-probe", "").await.status,
        200
    );
}

#[tokio::test]
async fn readiness_tells_what_is_missing() {
    let service = Service::new().await;
    let body = json!({"longUrl": "https://example.com/"});
    let ready = service.get("/readyz").await;
    assert_eq!(
        (ready.status, &ready.json()["status"]),
        (200, &json!("ready"))
    );
    service.redis.set_away(true);
    service.create(body).await;
    let since = service.clock.now().to_string();
    service.clock.advance(SignedDuration::from_secs(10));
    for (is_away, redis) in [(true, "down"), (false, "up")] {
        service.redis.set_away(is_away);
        let answer = service.get("/readyz").await;
        let expected = json!({
            "status": "degraded",
            "checks": {
                "database": "up",
                "redis": redis,
                "outbox": {"waiting": 1, "since": since, "behind": 0, "comparing": false},
                "codes": answer.json()["checks"]["codes"],
            },
        });
        assert_eq!((answer.status, answer.json()), (200, expected));
    }
}

#[tokio::test]
async fn readiness_and_metrics_tell_that_the_database_takes_no_changes() {
    let service = Service::new().await;
    let lock = lock(&service.kept.url).await;
    let answer = service.get("/readyz").await;
    let expected = json!({
        "status": "degraded",
        "checks": {
            "database": "read-only",
            "redis": "up",
            "outbox": {"waiting": 0, "behind": 0, "comparing": false},
            "codes": {"all": 0, "used": 0, "leased": 0, "returned": 0, "burnt": 0},
        },
    });
    assert_eq!((answer.status, answer.json()), (200, expected));
    let shown = service.get("/metrics").await.body;
    let shown = String::from_utf8(shown).expect("text");
    for line in [
        "\nshortlink_database_up 1\n",
        "\nshortlink_database_writable 0\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    // Visitors are answered.
    assert_eq!(service.get("/resolve/nosuchone").await.status, 404);
    drop(lock);
    eventually("the database takes changes", async || {
        service.get("/readyz").await.json()["status"] == "ready"
    })
    .await;
}

#[tokio::test]
async fn panics_are_answered() {
    async fn handler() -> StatusCode {
        panic!("as if")
    }
    for (layer, status) in [(true, 500), (false, 503)] {
        let router: Router = Router::new().route("/", get(handler));
        let router = if layer {
            router.layer(CatchPanicLayer::custom(problem::of_panic))
        } else {
            router.layer(CatchPanicLayer::custom(resolve::panicked))
        };
        let request = Request::builder().uri("/").body(Body::empty());
        let response = router.oneshot(request.expect("a good request")).await;
        let status = StatusCode::from_u16(status).expect("a status");
        assert_eq!(response.expect("an answer").status(), status);
    }
}
