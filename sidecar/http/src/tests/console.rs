//! The console's files, and signing in and out.

use std::io::Read;

use axum::body::Body;
use axum::http::Request;
use flate2::read::GzDecoder;
use jiff::SignedDuration;
use serde_json::json;
use shortlink_core::api_key::Scope;
use shortlink_service::keys::Actor;

use super::{Answer, NewKey, Service, new_key};

/// The header that the console sends with all requests.
const MARK: (&str, &str) = ("x-shortlink-console", "1");

async fn send(
    service: &Service,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<serde_json::Value>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let request = request.header("content-type", "application/json");
    service.send(request.body(body).expect("a request")).await
}

async fn sign_in(service: &Service, key: &str, headers: &[(&str, &str)]) -> Answer {
    let body = Some(json!({"apiKey": key}));
    send(service, "POST", "/console/session", headers, body).await
}

/// Signs in and returns the cookie as a browser sends it.
async fn session(service: &Service, key: &str) -> String {
    let answer = sign_in(service, key, &[MARK]).await;
    assert_eq!(answer.status, 201);
    let cookie = answer.header("set-cookie").expect("a cookie");
    cookie.split(';').next().expect("a pair").to_owned()
}

#[tokio::test]
async fn the_page_and_its_files_are_answered_compressed_and_kept() {
    let service = Service::new().await;
    for path in ["/console", "/console/", "/console/links/abc/change"] {
        let answer = send(&service, "GET", path, &[], None).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'self'"), "{policy}");
        assert!(
            !policy.contains("-inline") && !policy.contains("-eval"),
            "{policy}"
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    // The root of the server redirects to the console.
    let root = send(&service, "GET", "/", &[], None).await;
    assert_eq!(
        (root.status, root.header("location")),
        (307, Some("/console"))
    );
    let page = send(&service, "GET", "/console", &[], None).await;
    let page = String::from_utf8(page.body).expect("text");
    let (_, rest) = page.split_once("src=\"").expect("a script");
    let script = rest.split('"').next().expect("a path").to_owned();

    let plain = send(&service, "GET", &script, &[], None).await;
    assert_eq!(plain.status, 200);
    assert_eq!(plain.header("content-encoding"), None);
    let caching = plain.header("cache-control").expect("a policy");
    assert!(caching.contains("immutable"), "{caching}");
    let encoding = ("accept-encoding", "br, gzip");
    let packed = send(&service, "GET", &script, &[encoding], None).await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    let mut decoder = GzDecoder::new(&packed.body[..]);
    decoder.read_to_end(&mut unpacked).expect("gzip");
    assert_eq!(unpacked, plain.body);
    let (one, other) = (plain.header("etag"), packed.header("etag"));
    assert_ne!(one, other);

    let known = ("if-none-match", other.expect("an ETag"));
    let again = send(&service, "GET", &script, &[encoding, known], None).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    let again = send(&service, "GET", &script, &[known], None).await;
    assert_eq!(again.status, 200);

    // A page of another sidecar's version gets the file, but does not cache it.
    let old = "/console/assets/0123456789abcdef/app.js";
    let old = send(&service, "GET", old, &[], None).await;
    assert_eq!(
        (old.status, old.header("cache-control")),
        (200, Some("no-cache"))
    );
    let none = send(&service, "GET", "/console/assets/x/../http.rs", &[], None).await;
    assert_eq!(none.status, 404);
}

#[tokio::test]
async fn a_session_opens_what_its_key_opens_until_the_key_counts_no_more() {
    let service = Service::new().await;
    let (id, text) = service.key(1, new_key(&[Scope::LinksRead])).await;
    let answer = sign_in(&service, &text, &[MARK]).await;
    assert_eq!(answer.status, 201);
    let body = answer.json();
    assert_eq!(body["keyId"], json!(id));
    assert_eq!(body["scopes"], json!(["links:read"]));
    assert_eq!(body["expiresAt"], json!("2026-06-01T12:00:00Z"));
    let cookie = answer.header("set-cookie").expect("a cookie");
    assert!(
        cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    assert!(!cookie.contains(&text), "{cookie}");

    let cookie = session(&service, &text).await;
    let with = [("cookie", cookie.as_str()), MARK];
    let shown = send(&service, "GET", "/console/session", &with, None).await;
    assert_eq!((shown.status, shown.json()), (200, body));
    for (method, path, status) in [
        ("GET", "/v1/links", 200),
        ("DELETE", "/v1/links/abc", 403),
        ("GET", "/v1/audit", 403),
    ] {
        let answer = send(&service, method, path, &with, None).await;
        assert_eq!(answer.status, status, "{method} {path}");
    }
    // A key in a header outranks the session; other authorization schemes are ignored.
    let with_key = [with[0], ("x-api-key", "wrong")];
    let answer = send(&service, "GET", "/v1/links", &with_key, None).await;
    assert_eq!(answer.status, 401);
    let with_basic = [with[0], ("authorization", "Basic YTpi")];
    let answer = send(&service, "GET", "/v1/links", &with_basic, None).await;
    assert_eq!(answer.status, 200);

    let keys = &service.kept.store;
    let keys = shortlink_service::keys::Keys::new(
        std::sync::Arc::clone(keys),
        std::sync::Arc::clone(&service.clock) as _,
        rand::SeedableRng::seed_from_u64(7),
        None,
    );
    keys.revoke(&Actor::Operator, &id).await.expect("a store");
    service.clock.advance(SignedDuration::from_secs(1));
    for (path, status) in [("/v1/links", 401), ("/console/session", 204)] {
        let answer = send(&service, "GET", path, &with, None).await;
        assert_eq!(answer.status, status, "{path}");
    }
    // A missing session is not an error.
    let answer = send(&service, "GET", "/console/session", &[], None).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
}

#[tokio::test]
async fn a_session_ends_after_half_a_day_or_with_its_key_or_when_people_sign_out() {
    let service = Service::new().await;
    let expiring = NewKey {
        expires_at: Some("2026-06-01T01:00:00Z".parse().expect("a moment")),
        ..new_key(&[Scope::LinksRead])
    };
    let (_, expiring) = service.key(1, expiring).await;
    let answer = sign_in(&service, &expiring, &[MARK]).await;
    assert_eq!(answer.json()["expiresAt"], json!("2026-06-01T01:00:00Z"));
    let short = session(&service, &expiring).await;
    let long = session(&service, &service.reader).await;
    for (hours, of_short, of_long) in [(0, 200, 200), (1, 401, 200), (11, 401, 401)] {
        service.clock.advance(SignedDuration::from_hours(hours));
        for (cookie, status) in [(&short, of_short), (&long, of_long)] {
            let with = [("cookie", cookie.as_str())];
            let answer = send(&service, "GET", "/v1/links", &with, None).await;
            assert_eq!(answer.status, status, "{hours}");
        }
    }
    let cookie = session(&service, &service.reader).await;
    let (address, request_id) = (("x-real-ip", "192.0.2.7"), ("x-request-id", "abc"));
    let with = [("cookie", &*cookie), MARK, address, request_id];
    let answer = send(&service, "DELETE", "/console/session", &with, None).await;
    assert_eq!(answer.status, 204);
    // The cookie opens nothing any more, and its end is recorded once.
    let again = send(&service, "GET", "/v1/links", &with, None).await;
    assert_eq!(again.status, 401);
    send(&service, "DELETE", "/console/session", &with, None).await;
    let (_, admin) = service.key(2, new_key(&[Scope::Admin])).await;
    for (action, count, detail) in [
        (
            "session.end",
            1,
            json!({"address": "192.0.2.7", "requestId": "abc"}),
        ),
        ("session.begin", 4, json!({})),
    ] {
        let path = format!("/v1/audit?action={action}");
        let log = service.call(&admin, "GET", &path, None).await.json();
        let entries = log["entries"].as_array().expect("entries");
        assert_eq!((entries.len(), &entries[0]["detail"]), (count, &detail));
        assert!(entries[0]["subject"].as_str() > Some("key:"));
    }
    let cookie = answer.header("set-cookie").expect("a cookie");
    assert!(cookie.starts_with("shortlink_session=; "), "{cookie}");
    assert!(cookie.contains("Max-Age=0"), "{cookie}");
}

#[tokio::test]
async fn only_the_console_changes_anything_with_a_session() {
    let service = Service::new().await;
    let cookie = session(&service, &service.writer).await;
    let cookie = ("cookie", cookie.as_str());
    let host = ("host", "127.0.0.1:8081");
    let link = || Some(json!({"longUrl": "https://example.com/"}));
    for (headers, status) in [
        (vec![MARK], 201),
        (vec![MARK, ("sec-fetch-site", "same-origin")], 201),
        (vec![MARK, ("origin", "http://127.0.0.1:8081")], 201),
        (vec![], 403),
        (vec![("sec-fetch-site", "same-origin")], 403),
        (vec![MARK, ("sec-fetch-site", "same-site")], 403),
        (vec![MARK, ("sec-fetch-site", "cross-site")], 403),
        (vec![MARK, ("origin", "http://127.0.0.1:8082")], 403),
        (vec![MARK, ("origin", "null")], 403),
    ] {
        let headers = [&headers[..], &[cookie, host]].concat();
        let answer = send(&service, "POST", "/v1/links", &headers, link()).await;
        assert_eq!(answer.status, status, "{headers:?}");
        if status == 403 {
            let kind = answer.json()["type"].to_string();
            assert!(kind.contains("not-from-console"), "{kind}");
        }
    }
    // A page of another origin that makes a browser read something has no session.
    for (site, status) in [
        ("same-origin", 204),
        ("none", 204),
        ("same-site", 401),
        ("cross-site", 401),
    ] {
        let headers = [cookie, ("sec-fetch-site", site)];
        let answer = send(&service, "GET", "/console/admission", &headers, None).await;
        assert_eq!(answer.status, status, "{site}");
    }
    // Signing in and out requires the mark as well.
    let answer = sign_in(&service, &service.reader, &[]).await;
    assert_eq!(answer.status, 403);
    let answer = send(&service, "DELETE", "/console/session", &[cookie], None).await;
    assert_eq!(answer.status, 403);
    // A request with the key itself needs no mark.
    let body = json!({"longUrl": "https://example.com/"});
    assert_eq!(service.create(body).await.status, 201);
}

#[tokio::test]
async fn wrong_keys_do_not_sign_in_and_not_many_are_tried() {
    let service = Service::new().await;
    let at = |address| [MARK, ("x-real-ip", address)];
    let wrong = format!("{}0", &service.reader[..service.reader.len() - 1]);
    for text in ["", "wrong", &wrong] {
        let answer = sign_in(&service, text, &at("192.0.2.1")).await;
        assert_eq!(answer.status, 401, "{text}");
        assert_eq!(answer.pointers(), ["/apiKey"]);
        assert_eq!(answer.header("set-cookie"), None);
    }
    for body in [json!({}), json!({"apiKey": 1}), json!({"apiKey": null})] {
        let path = "/console/session";
        let answer = send(&service, "POST", path, &at("192.0.2.1"), Some(body)).await;
        assert_eq!(
            (answer.status, answer.pointers()),
            (422, vec!["/apiKey".to_owned()])
        );
    }
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(sign_in(&service, &wrong, &at("192.0.2.1")).await.status);
    }
    assert_eq!(statuses, [401, 401, 401, 401, 429]);
    let answer = sign_in(&service, &service.reader, &at("192.0.2.1")).await;
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (429, Some("1"))
    );
    // Other addresses are not limited, and this one only for a short time.
    let answer = sign_in(&service, &service.reader, &at("192.0.2.2")).await;
    assert_eq!(answer.status, 201);
    service.clock.advance(SignedDuration::from_secs(1));
    let answer = sign_in(&service, &service.reader, &at("192.0.2.1")).await;
    assert_eq!(answer.status, 201);
}

#[tokio::test]
async fn a_cookie_leaves_by_https_alone_where_people_came_by_it() {
    let service = Service::new().await;
    for (scheme, name) in [
        ("https", "__Host-shortlink_session="),
        ("http", "shortlink_session="),
    ] {
        let scheme = ("x-forwarded-proto", scheme);
        let answer = sign_in(&service, &service.reader, &[MARK, scheme]).await;
        let cookie = answer.header("set-cookie").expect("a cookie");
        let is_secure = name.starts_with("__Host");
        assert_eq!(cookie.ends_with("; Secure"), is_secure, "{cookie}");
        assert!(cookie.starts_with(name), "{cookie}");
        let cookie = cookie.split(';').next().expect("a pair");
        // Over https, another service of the host can set no cookie of this name.
        for other in ["https", "http"] {
            let with = [("cookie", cookie), ("x-forwarded-proto", other)];
            let status = if scheme.1 == other { 200 } else { 401 };
            let answer = send(&service, "GET", "/v1/links", &with, None).await;
            assert_eq!(answer.status, status, "{cookie} over {other}");
        }
    }
}
