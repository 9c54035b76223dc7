//! Scopes, rate limits and allowed target domains.

use jiff::SignedDuration;
use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, RateLimit, Scope};
use shortlink_core::target::domains::DomainRules;

use super::{NewKey, Service, new_key};
use crate::openapi;

#[tokio::test]
async fn each_route_asks_for_its_scope_and_admin_has_all() {
    let service = Service::new().await;
    let link = json!({"longUrl": "https://example.com/"});
    let key = json!({"name": "x", "scopes": []});
    let routes = [
        ("GET", "/v1/links", None, Scope::LinksRead),
        ("GET", "/v1/links/abc", None, Scope::LinksRead),
        ("POST", "/v1/links", Some(link), Scope::LinksWrite),
        ("PATCH", "/v1/links/abc", Some(json!({})), Scope::LinksWrite),
        ("DELETE", "/v1/links/abc", None, Scope::LinksWrite),
        ("GET", "/v1/keys", None, Scope::KeysAdmin),
        ("GET", "/v1/keys/abc", None, Scope::KeysAdmin),
        ("POST", "/v1/keys", Some(key), Scope::KeysAdmin),
        ("PATCH", "/v1/keys/abc", Some(json!({})), Scope::KeysAdmin),
        ("DELETE", "/v1/keys/abc", None, Scope::KeysAdmin),
        (
            "POST",
            "/v1/keys/abc/rotate",
            Some(json!({"overlapSeconds": 0})),
            Scope::KeysAdmin,
        ),
        ("GET", "/v1/audit", None, Scope::Admin),
    ];
    for (seed, scope) in (1..).zip(Scope::ALL) {
        let (_, text) = service.key(seed, new_key(&[scope])).await;
        for (method, path, body, needed) in &routes {
            let answer = service.call(&text, method, path, body.clone()).await;
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
            let is_allowed = scope == *needed || scope == Scope::Admin;
            assert_eq!(
                answer.status != 403,
                is_allowed,
                "{scope}: {method} {path} is answered {}",
                answer.status
            );
            if !is_allowed {
                let detail = answer.json()["detail"].to_string();
                assert!(detail.contains(needed.name()), "{detail}");
            }
        }
    }
}

#[tokio::test]
async fn the_key_is_checked_before_the_query() {
    let service = Service::new().await;
    let description = serde_json::from_str::<Value>(&openapi::text()).expect("JSON");
    for (path, methods) in description["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            if path.starts_with("/v1/") {
                let real = path.replace("{code}", "abc").replace("{id}", "1");
                let (method, real) = (method.to_uppercase(), format!("{real}?unheard=1"));
                let answer = service.call("", &method, &real, None).await;
                assert_eq!(answer.status, 401, "{method} {path}");
            }
        }
    }
    let answer = service.get("/v1/links/abc?unheard=1").await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn a_limit_is_told_with_how_long_to_wait() {
    let service = Service::new().await;
    let limited = NewKey {
        rate_limit: RateLimit::new(1, 3),
        ..new_key(&[Scope::LinksRead])
    };
    let (_, text) = service.key(1, limited).await;
    // A request that lacks the scope is charged as well.
    for (method, path, status, rate) in [
        ("GET", "/v1/links", 200, "\"key\";r=2;t=1"),
        ("GET", "/v1/links?x=1", 400, "\"key\";r=1;t=2"),
        ("DELETE", "/v1/links/abc", 403, "\"key\";r=0;t=3"),
        ("GET", "/v1/links", 429, "\"key\";r=0;t=3"),
    ] {
        let answer = service.call(&text, method, path, None).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("ratelimit"), Some(rate), "{method} {path}");
        let policy = answer.header("ratelimit-policy");
        assert_eq!(policy, Some("\"key\";q=3;w=3"));
        let retry_after = answer.header("retry-after");
        assert_eq!(retry_after, (status == 429).then_some("1"));
    }
    service.clock.advance(SignedDuration::from_millis(999));
    let answer = service.call(&text, "GET", "/v1/links", None).await;
    assert_eq!(answer.status, 429);
    // Other keys are not limited, and a wrong secret for this key does not charge it.
    let other = service.get("/v1/links").await;
    assert_eq!((other.status, other.header("ratelimit")), (200, None));
    let claim = format!("{}{}", &text[..text.len() - 1], "0");
    let answer = service.call(&claim, "GET", "/v1/links", None).await;
    assert_eq!((answer.status, answer.header("ratelimit")), (401, None));
    service.clock.advance(SignedDuration::from_millis(1));
    let answer = service.call(&text, "GET", "/v1/links", None).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn links_lead_only_where_the_service_and_the_key_allow() {
    let service = Service::new().await;
    let rule = "example.com".parse().expect("a rule");
    let narrow = NewKey {
        policy: KeyPolicy {
            allowed_domains: Some(DomainRules::from_iter([rule])),
            ..KeyPolicy::default()
        },
        ..new_key(&[Scope::LinksWrite])
    };
    let (_, narrow) = service.key(1, narrow).await;
    let (made, refused) = (201, 422);
    for (url, of_free, of_narrow) in [
        ("https://shop.example.com/", made, made),
        ("https://example.org/", made, refused),
        ("https://notexample.com/", made, refused),
        ("https://denied.example/", refused, refused),
        ("https://A.Denied.Example./", refused, refused),
        ("https://denied.example.org/", made, refused),
    ] {
        let body = json!({"longUrl": url});
        for (key, status) in [(&service.writer, of_free), (&narrow, of_narrow)] {
            let answer = service.call(key, "POST", "/v1/links", Some(body.clone()));
            let answer = answer.await;
            assert_eq!(answer.status, status, "{url}");
            if status == refused {
                assert_eq!(answer.pointers(), ["/longUrl"]);
                let detail = answer.json()["errors"][0]["detail"].to_string();
                assert!(detail.contains("domain"), "{detail}");
            }
        }
    }
    // A change must satisfy the same rules.
    let body = json!({"longUrl": "https://example.com/", "customSlug": "abc"});
    assert_eq!(service.create(body).await.status, made);
    for (url, status) in [
        ("https://denied.example/", refused),
        ("https://example.org/", refused),
        ("https://example.com/b", 200),
    ] {
        let body = json!({"longUrl": url});
        let answer = service.call(&narrow, "PATCH", "/v1/links/abc", Some(body));
        assert_eq!(answer.await.status, status, "{url}");
    }
}

#[tokio::test]
async fn codes_are_issued_only_in_the_lengths_that_the_key_allows() {
    let service = Service::new().await;
    // Seven characters by default, and the check character.
    for (seed, min, max, length) in [
        (1, None, Some(7), 8),
        (2, Some(8), None, 9),
        (3, None, Some(5), 6),
    ] {
        let bounded = NewKey {
            policy: KeyPolicy {
                min_body_length: min,
                max_body_length: max,
                ..KeyPolicy::default()
            },
            ..new_key(&[Scope::LinksWrite])
        };
        let (_, text) = service.key(seed, bounded).await;
        let issued = json!({"longUrl": "https://example.com/"});
        let answer = service.call(&text, "POST", "/v1/links", Some(issued)).await;
        assert_eq!(answer.status, 201, "{min:?} {max:?}");
        let link = answer.json();
        assert_eq!(link["shortCode"].as_str().map(str::len), Some(length));
        // The limits do not apply to custom codes.
        let slug = format!("mine{seed}");
        let chosen = json!({"longUrl": "https://example.com/", "customSlug": slug});
        let answer = service.call(&text, "POST", "/v1/links", Some(chosen)).await;
        assert_eq!(answer.status, 201, "{min:?} {max:?}");
    }
}

#[tokio::test]
async fn custom_codes_are_those_that_the_key_allows() {
    let service = Service::new().await;
    for (seed, policy, refused, allowed) in [
        (1, json!({"customCodes": false}), "abcdef", None),
        (2, json!({"minCustomLength": 4}), "abc", Some("abcd")),
        (3, json!({}), "api", Some("a")),
    ] {
        let request = json!({"name": "x", "scopes": ["links:write"], "policy": policy});
        let (_, admin) = service.key(10 + seed, new_key(&[Scope::Admin])).await;
        let made = service
            .call(&admin, "POST", "/v1/keys", Some(request))
            .await;
        assert_eq!(made.status, 201);
        let key = made.json()["secret"].as_str().expect("a secret").to_owned();
        let create = async |slug: Option<&str>| {
            let body = json!({"longUrl": "https://example.com/", "customSlug": slug});
            service.call(&key, "POST", "/v1/links", Some(body)).await
        };
        let answer = create(Some(refused)).await;
        assert_eq!(answer.status, 422, "{policy}");
        assert_eq!(answer.pointers(), ["/customSlug"]);
        if let Some(allowed) = allowed {
            assert_eq!(create(Some(allowed)).await.status, 201, "{policy}");
        }
        assert_eq!(create(None).await.status, 201, "{policy}");
    }
}

#[tokio::test]
async fn answers_of_writes_show_no_more_than_the_key_may_read() {
    let service = Service::new().await;
    let (_, links) = service.key(1, new_key(&[Scope::LinksWrite])).await;
    let (_, campaigns) = service.key(2, new_key(&[Scope::CampaignsWrite])).await;
    let body = json!({
        "longUrl": "https://secret.example/", "customSlug": "abc", "note": "secret"
    });
    let whole = service.create(body).await.json();
    assert_eq!(whole["longUrl"], "https://secret.example/");
    let body = json!({"name": "secret", "longUrl": "https://secret.example/{code}"});
    let made = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(body));
    let campaign = made.await.json();
    assert_eq!(campaign["name"], "secret");
    let id = campaign["id"].as_str().expect("an id");

    let receipt = json!({
        "shortCode": "abc", "shortUrl": "https://s.example.com/abc", "published": true
    });
    for (method, path) in [
        ("PATCH", "/v1/links/abc"),
        ("POST", "/v1/links/abc/pause"),
        ("POST", "/v1/links/abc/resume"),
        ("DELETE", "/v1/links/abc"),
    ] {
        let body = (method == "PATCH").then(|| json!({}));
        let answer = service.call(&links, method, path, body).await;
        assert_eq!(
            (answer.status, answer.json()),
            (200, receipt.clone()),
            "{path}"
        );
        // For If-Match.
        assert!(answer.header("etag").is_some());
    }
    // The target of a link of a campaign is the campaign's.
    let of_campaign = json!({"campaignId": id});
    let rows = json!([of_campaign]);
    let single = service
        .call(&links, "POST", "/v1/links", Some(of_campaign))
        .await;
    let batch = service
        .call(&links, "POST", "/v1/links/batch", Some(rows))
        .await;
    for link in [&single.json(), &batch.json()[0]["link"]] {
        let members = link.as_object().expect("a link").keys();
        let members: Vec<&str> = members.map(String::as_str).collect();
        assert_eq!(members, ["published", "shortCode", "shortUrl"]);
    }

    let path = format!("/v1/campaigns/{id}");
    let receipt = json!({"id": id, "published": true});
    for (method, path) in [
        ("PATCH", path.clone()),
        ("POST", format!("{path}/pause")),
        ("POST", format!("{path}/resume")),
        ("DELETE", path),
    ] {
        let body = (method == "PATCH").then(|| json!({}));
        let answer = service.call(&campaigns, method, &path, body).await;
        assert_eq!(
            (answer.status, answer.json()),
            (200, receipt.clone()),
            "{path}"
        );
    }
}
