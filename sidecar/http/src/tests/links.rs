//! `/v1/links`: creating, changing, revoking and listing.

use axum::body::Body;
use axum::http::Request;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::Service;

#[tokio::test]
async fn a_link_lives_from_creation_to_revocation() {
    let service = Service::new().await;
    let created = service
        .create(json!({"longUrl": "https://example.com/ü"}))
        .await;
    assert_eq!(created.status, 201);
    let link = created.json();
    let code = link["shortCode"].as_str().expect("a code").to_owned();
    let path = format!("/v1/links/{code}");
    assert_eq!(created.header("location"), Some(&*path));
    assert_eq!(code.len(), 8);
    assert_eq!(
        link,
        json!({
            "shortCode": code,
            "shortUrl": format!("https://s.example.com/{code}"),
            "longUrl": "https://example.com/%C3%BC",
            "redirectStatus": 302,
            "forwardQuery": false,
            "state": "live",
            "validSince": null,
            "validUntil": null,
            "maxVisits": null,
            "tags": [],
            "externalId": null,
            "note": null,
            "domain": null,
            "revision": 1,
            "createdBy": service.writer.split('_').nth(1),
            "strategy": "permuted",
            "createdAt": "2026-06-01T00:00:00Z",
            "updatedAt": "2026-06-01T00:00:00Z",
            "published": true,
        })
    );
    let record = service.redis.record(&code);
    assert_eq!(
        record.as_deref(),
        Some("1 302 1 0 https://example.com/%C3%BC")
    );

    let found = service.get(&path).await;
    assert_eq!(found.status, 200);
    assert_eq!(found.json().get("published"), None);

    service.clock.advance(SignedDuration::from_secs(1));
    let change = json!({
        "longUrl": "https://example.com/b",
        "redirectStatus": 301,
        "validUntil": "2026-07-01T02:00:00+02:00",
    });
    // The same change twice is one revision.
    for _ in 0..2 {
        let changed = service
            .call(&service.writer, "PATCH", &path, Some(change.clone()))
            .await;
        assert_eq!(changed.status, 200);
        let link = changed.json();
        assert_eq!(link["revision"], json!(2));
        assert_eq!(link["validUntil"], json!("2026-07-01T00:00:00Z"));
        assert_eq!(link["updatedAt"], json!("2026-06-01T00:00:01Z"));
        assert_eq!(link["published"], json!(true));
    }
    let record = service.redis.record(&code);
    assert_eq!(
        record.as_deref(),
        Some("1 301 2 1782864000 https://example.com/b")
    );

    let cleared = json!({"validUntil": null});
    let cleared = service
        .call(&service.writer, "PATCH", &path, Some(cleared))
        .await;
    assert_eq!(cleared.json()["validUntil"], Value::Null);

    // The answer states whether Redis has confirmed the revocation, also when it is repeated.
    for published in [true, false] {
        service.redis.set_away(!published);
        let revoked = service.call(&service.writer, "DELETE", &path, None).await;
        assert_eq!(revoked.status, 200);
        let link = revoked.json();
        assert_eq!(
            (&link["state"], &link["revision"]),
            (&json!("revoked"), &json!(4))
        );
        assert_eq!(link["published"], json!(published));
    }
    let late = json!({"redirectStatus": 302});
    let late = service
        .call(&service.writer, "PATCH", &path, Some(late))
        .await;
    assert_eq!(late.status, 409);
}

#[tokio::test]
async fn a_link_is_made_without_redis() {
    let service = Service::new().await;
    service.redis.set_away(true);
    let created = service
        .create(json!({"longUrl": "https://example.com/"}))
        .await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["published"], json!(false));
}

#[tokio::test]
async fn every_error_of_a_body_is_told_at_once() {
    let service = Service::new().await;
    let url = "https://example.com/";
    for (body, pointers) in [
        (json!({}), &["/longUrl"][..]),
        (json!({"longUrl": null}), &["/longUrl"]),
        (json!({"longUrl": 1}), &["/longUrl"]),
        (json!({"longUrl": "ftp://example.com/"}), &["/longUrl"]),
        (json!({"longUrl": "https://s.example.com/x"}), &["/longUrl"]),
        (json!({"longUrl": "https://OLD.example/x"}), &["/longUrl"]),
        (
            json!({"longUrl": url, "longURL": url, "a/b": 1}),
            &["/a~1b", "/longURL"],
        ),
        (json!({"longUrl": url, "customSlug": 1}), &["/customSlug"]),
        (json!({"longUrl": url, "customSlug": ""}), &["/customSlug"]),
        (
            json!({"longUrl": url, "customSlug": "a.b"}),
            &["/customSlug"],
        ),
        (
            json!({"longUrl": url, "customSlug": "a".repeat(65)}),
            &["/customSlug"],
        ),
        (
            json!({"longUrl": url, "customSlug": "Api"}),
            &["/customSlug"],
        ),
        (
            json!({"longUrl": url, "customSlug": "Ab3xK9qZ"}),
            &["/customSlug"],
        ),
        (
            json!({"longUrl": url, "redirectStatus": 303}),
            &["/redirectStatus"],
        ),
        (
            json!({"longUrl": url, "redirectStatus": "302"}),
            &["/redirectStatus"],
        ),
        (
            json!({"longUrl": url, "redirectStatus": 302.5}),
            &["/redirectStatus"],
        ),
        (
            json!({"longUrl": url, "validUntil": "soon"}),
            &["/validUntil"],
        ),
        (json!({"longUrl": url, "validUntil": 1}), &["/validUntil"]),
        (
            json!({"longUrl": url, "validUntil": "2026-06-01T00:00:00Z"}),
            &["/validUntil"],
        ),
        (
            json!({
                "longUrl": "x", "customSlug": "api", "redirectStatus": 1, "validUntil": "x",
                "more": 1,
            }),
            &[
                "/longUrl",
                "/redirectStatus",
                "/validUntil",
                "/customSlug",
                "/more",
            ],
        ),
        (json!([]), &[""]),
        (json!("text"), &[""]),
    ] {
        let answer = service.create(body.clone()).await;
        assert_eq!(answer.status, 422, "{body}");
        assert_eq!(answer.pointers(), pointers, "{body}");
    }
    // No link was created.
    assert_eq!(service.get("/v1/links").await.json()["links"], json!([]));
}

#[tokio::test]
async fn a_slug_is_had_once() {
    let service = Service::new().await;
    for (slug, status) in [
        ("summer", 201),
        ("summer", 409),
        ("Summer", 409),
        ("sum-mer26", 201),
        ("SUM-mer26", 409),
        // Of the length of issued codes, but not one.
        ("Summer-1", 201),
        // Of the length of issued codes, with the right check character.
        ("Ab3xK9qY", 201),
    ] {
        let body = json!({"longUrl": "https://example.com/", "customSlug": slug});
        let answer = service.create(body).await;
        assert_eq!(answer.status, status, "{slug}");
        if status == 409 {
            assert_eq!(answer.pointers(), ["/customSlug"]);
        }
    }
    // Codes of revoked links stay taken.
    service
        .call(&service.writer, "DELETE", "/v1/links/summer", None)
        .await;
    let body = json!({"longUrl": "https://example.com/", "customSlug": "summer"});
    assert_eq!(service.create(body).await.status, 409);
}

#[tokio::test]
async fn listings_are_paged_and_filtered() {
    let service = Service::new().await;
    for number in 0..5 {
        let mut body = json!({
            "longUrl": "https://example.com/",
            "customSlug": format!("c{number}"),
        });
        if number == 0 {
            body["validUntil"] = json!("2026-06-01T00:00:30Z");
        }
        assert_eq!(service.create(body).await.status, 201);
        service.clock.advance(SignedDuration::from_secs(1));
    }
    service
        .call(&service.writer, "DELETE", "/v1/links/c3", None)
        .await;
    service.clock.advance(SignedDuration::from_secs(60));
    for (query, expected) in [
        ("", "c4 c3 c2 c1 c0"),
        ("?limit=1000", "c4 c3 c2 c1 c0"),
        ("?state=live", "c4 c2 c1"),
        ("?state=expired", "c0"),
        ("?state=revoked", "c3"),
        ("?limit=2", "c4 c3"),
    ] {
        let page = service.get(&format!("/v1/links{query}")).await.json();
        let links = page["links"].as_array().expect("links");
        let codes: Vec<_> = links
            .iter()
            .filter_map(|link| link["shortCode"].as_str())
            .collect();
        assert_eq!(codes.join(" "), expected, "{query}");
        assert_eq!(page["nextCursor"].is_null(), query != "?limit=2", "{query}");
    }
    let mut path = "/v1/links?limit=2".to_owned();
    let mut pages = Vec::new();
    loop {
        let page = service.get(&path).await.json();
        pages.push(page["links"].as_array().expect("links").len());
        // A link that is created meanwhile is newer than every cursor.
        let meanwhile = service.create(json!({"longUrl": "https://example.com/"}));
        assert_eq!(meanwhile.await.status, 201);
        let Some(cursor) = page["nextCursor"].as_str() else {
            break;
        };
        path = format!("/v1/links?limit=2&cursor={cursor}");
    }
    assert_eq!(pages, [2, 2, 1]);
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "cursor=x",
        "cursor=",
        "state=x",
        "x=1",
    ] {
        let answer = service.get(&format!("/v1/links?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
    }
}

#[tokio::test]
async fn short_urls_need_an_origin() {
    let service = Service::new().await;
    let body = json!({"longUrl": "https://example.com/", "customSlug": "abc"});
    assert_eq!(service.create(body).await.status, 201);
    for (base, short_url) in [
        (
            Some("https://s.example.com"),
            Some("https://s.example.com/abc"),
        ),
        (
            Some("https://s.example.com/"),
            Some("https://s.example.com/abc"),
        ),
        (
            Some("http://localhost:8080"),
            Some("http://localhost:8080/abc"),
        ),
        (Some("https://s.example.com/path"), None),
        (Some("https://user@s.example.com"), None),
        (Some("ftp://s.example.com"), None),
        (Some("s.example.com"), None),
        (Some(""), None),
        (None, None),
    ] {
        let mut request = Request::builder()
            .uri("/v1/links/abc")
            .header("x-api-key", &service.reader);
        if let Some(base) = base {
            request = request.header("x-shortlink-base", base);
        }
        let request = request.body(Body::empty()).expect("a good request");
        let link = service.send(request).await.json();
        assert_eq!(link["shortUrl"], json!(short_url), "{base:?}");
    }
}
