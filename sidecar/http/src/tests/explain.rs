//! Explanations of codes, and their QR codes.

use serde_json::{Value, json};

use super::Service;

async fn explain(service: &Service, code: &str) -> Value {
    explain_to(service, code, "").await
}

/// The explanation for the visitor of a query.
async fn explain_to(service: &Service, code: &str, visitor: &str) -> Value {
    let path = format!("/v1/links/{code}/explain?{visitor}");
    let answer = service.get(&path).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    answer.json()
}

/// Status, rule, source, agreement.
fn gist(explanation: &Value) -> (u64, &str, &str, &str) {
    let answer = &explanation["answer"];
    let text = |value: &'_ Value| -> String { value.as_str().unwrap_or_default().to_owned() };
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    (
        answer["status"].as_u64().expect("a status"),
        leak(text(&answer["rule"])),
        leak(text(&answer["source"])),
        leak(text(&explanation["agreement"])),
    )
}

async fn make(service: &Service, code: &str, more: Value) {
    let mut body = json!({"longUrl": "https://example.com/a", "customSlug": code});
    let members = body.as_object_mut().expect("an object");
    members.extend(more.as_object().cloned().unwrap_or_default());
    assert_eq!(service.create(body).await.status, 201);
}

#[tokio::test]
async fn what_sql_and_redis_agree_on_is_answered_by_the_link_s_state() {
    let service = Service::new().await;
    make(&service, "abc", json!({})).await;
    let live = explain(&service, "abc").await;
    assert_eq!(gist(&live), (302, "live", "redis", "same"));
    assert_eq!(live["answer"]["location"], json!("https://example.com/a"));
    let record = "1 302 1 0 https://example.com/a";
    assert_eq!(live["redis"], json!({"holds": "text", "record": record}));
    // No job settles published changes here, so this one still waits.
    assert_eq!(
        live["database"],
        json!({"state": "live", "revision": 1, "record": record, "waits": true})
    );
    make(
        &service,
        "later",
        json!({"validSince": "2026-07-01T00:00:00Z"}),
    )
    .await;
    let later = explain(&service, "later").await;
    assert_eq!(gist(&later), (404, "scheduled", "redis", "same"));
    for (method, path, rule) in [
        ("POST", "/v1/links/abc/pause", "paused"),
        ("DELETE", "/v1/links/abc", "revoked"),
    ] {
        let key = &service.writer;
        assert_eq!(service.call(key, method, path, None).await.status, 200);
        let ended = explain(&service, "abc").await;
        assert_eq!(gist(&ended), (410, rule, "redis", "same"));
        assert_eq!(ended["answer"]["location"], Value::Null);
    }
}

#[tokio::test]
async fn what_stands_in_redis_counts_where_it_differs() {
    let service = Service::new().await;
    make(&service, "abc", json!({})).await;
    for (record, expected) in [
        (
            "1 302 9 0 https://example.org/b",
            (302, "live", "redis", "newer"),
        ),
        ("1 410 9", (410, "gone", "redis", "newer")),
        ("1 404 0", (404, "negative", "redis", "negative")),
        (
            "1 302 1 0 https://example.org/b",
            (302, "live", "redis", "different"),
        ),
        (
            "1 302 1 1760000000 https://example.com/a",
            (410, "expired", "redis", "different"),
        ),
        ("nonsense", (302, "live", "database", "different")),
        // nginx does not serve it and asks the sidecar.
        (
            "1 302 9 0 javascript:alert(1)",
            (302, "live", "database", "newer"),
        ),
        (
            "2 302 1 0 https://example.org/",
            (302, "live", "database", "different"),
        ),
    ] {
        service.redis.set_record("abc", record);
        let explanation = explain(&service, "abc").await;
        assert_eq!(gist(&explanation), expected, "{record}");
        assert_eq!(explanation["redis"]["record"], json!(record));
    }
    service.redis.lose("abc");
    let lost = explain(&service, "abc").await;
    assert_eq!(gist(&lost), (302, "live", "database", "missing"));
    service.redis.set_away(true);
    let away = explain(&service, "abc").await;
    assert_eq!(gist(&away), (302, "live", "database", "unknown"));
    assert_eq!(away["redis"]["holds"], json!("away"));
}

#[tokio::test]
async fn codes_without_a_link_are_explained_too() {
    let service = Service::new().await;
    let unknown = explain(&service, "abc").await;
    assert_eq!(gist(&unknown), (404, "unknown", "database", "same"));
    assert_eq!(unknown["database"], Value::Null);
    service.redis.set_record("abc", "1 404 0");
    let noted = explain(&service, "abc").await;
    assert_eq!(gist(&noted), (404, "negative", "redis", "same"));
    service
        .redis
        .set_record("abc", "1 302 1 0 https://x.example/");
    let stray = explain(&service, "abc").await;
    assert_eq!(gist(&stray), (302, "live", "redis", "stray"));
    // An issued code with one wrong character.
    let made = service.create(json!({"longUrl": "https://example.com/"}));
    let made = made.await.json();
    let code = made["shortCode"].as_str().expect("a code");
    let (start, last) = code.split_at(code.len() - 1);
    let wrong = format!("{start}{}", if last == "a" { "b" } else { "a" });
    let typed = explain(&service, &wrong).await;
    assert_eq!(gist(&typed), (404, "wrong-check", "code", "same"));
    let answer = service.get("/v1/links/no.code/explain").await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn a_link_is_as_good_as_its_campaign() {
    let service = Service::new().await;
    let body = json!({"name": "Spring", "longUrl": "https://example.com/?m={member}"});
    let key = &service.campaigner;
    let made = service.call(key, "POST", "/v1/campaigns", Some(body)).await;
    assert_eq!(made.status, 201);
    let campaign = made.json();
    let id = campaign["campaignId"].as_str().or(campaign["id"].as_str());
    let id = id.expect("an id").to_owned();
    let link = json!({"campaignId": id, "customSlug": "abc", "parameters": {"member": "7"}});
    assert_eq!(service.create(link).await.status, 201);
    let live = explain(&service, "abc").await;
    assert_eq!(gist(&live), (302, "live", "redis", "same"));
    assert_eq!(
        live["answer"]["location"],
        json!("https://example.com/?m=7")
    );
    assert_eq!(
        live["campaign"],
        json!({"campaignId": id, "name": "Spring", "state": "live", "agrees": true})
    );
    let path = format!("/v1/campaigns/{id}/pause");
    assert_eq!(service.call(key, "POST", &path, None).await.status, 200);
    let paused = explain(&service, "abc").await;
    assert_eq!(gist(&paused), (410, "campaign-paused", "redis", "same"));
    // nginx finds another record of the campaign, or an unusable one.
    let number = id.parse().expect("an id");
    for (record, expected, location) in [
        (
            "1 302 9 0 https://example.org/{0}",
            (302, "live", "redis", "same"),
            json!("https://example.org/7"),
        ),
        ("1 410 9", (410, "gone", "redis", "same"), Value::Null),
        (
            "1 302 9 0 https://example.org/{1}",
            (410, "campaign-paused", "database", "same"),
            Value::Null,
        ),
    ] {
        let text = Some(record.as_bytes());
        service.redis.set_campaign_record(number, text);
        let explanation = explain(&service, "abc").await;
        assert_eq!(gist(&explanation), expected, "{record}");
        assert_eq!(explanation["answer"]["location"], location);
        assert_eq!(explanation["campaign"]["agrees"], json!(false));
    }
}

#[tokio::test]
async fn a_qr_code_is_drawn_for_a_link_that_is_there() {
    let service = Service::new().await;
    make(&service, "abc", json!({})).await;
    let answer = service.get("/v1/links/abc/qr").await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("image/svg+xml"))
    );
    assert!(answer.body.starts_with(b"<svg "));
    assert_eq!(service.get("/v1/links/nobody/qr").await.status, 404);
    let answer = service.call(&service.campaigner, "GET", "/v1/links/abc/qr", None);
    assert_eq!(answer.await.status, 403);
}

/// The explanation for a visitor: status, target, its pointer, and what it stands instead of.
async fn answered(service: &Service, code: &str, visitor: &str) -> (Value, Value) {
    let explained = explain_to(service, code, visitor).await;
    let answer = &explained["answer"];
    let gist = json!([
        answer["status"],
        answer["rule"],
        answer["location"],
        answer["pointer"],
        answer["insteadOf"]
    ]);
    (gist, explained)
}

#[tokio::test]
async fn the_rule_of_a_visitor_is_explained() {
    let service = Service::with(|app| app.body_limit_bytes = 1 << 16).await;
    let target = |name: &str| format!("https://e.example/{name}");
    let plan = json!({
        "rules": [
            {"device": ["ios"], "language": ["de"], "country": ["DE", "US-CA"], "longUrl": target("ios")},
            {"query": {"name": "src"}, "longUrl": target("src")},
            {"validSince": "2026-07-01T00:00:00Z", "device": ["android"], "longUrl": target("later")},
            {"percent": 50, "variant": "half", "longUrl": target("half")},
        ],
        "forwardQuery": true,
        "validUntil": "2027-01-01T00:00:00Z",
        "expiredTarget": target("expired"), "pausedTarget": target("paused"),
    });
    make(&service, "abc", plan).await;
    let live = |location: &str, pointer: &str| json!([302, "live", location, pointer, null]);
    let german = "userAgent=iPhone&language=de-AT,en;q=0.5&country=US-CA";
    let (gist, explained) = answered(&service, "abc", german).await;
    assert_eq!(gist, live(&target("ios"), "/rules/0/longUrl"));
    let expected = json!({"device": "ios", "language": "de-AT", "country": "US-CA"});
    assert_eq!(explained["visitor"], expected);
    let outcomes = |explained: &Value| {
        let rules = explained["rules"].as_array().expect("rules").iter();
        Vec::from_iter(rules.map(|rule| (rule["outcome"].clone(), rule["unmet"].clone())))
    };
    let (unmet, unreached) = (json!("unmet"), (json!("unreached"), Value::Null));
    let followed = (json!("followed"), Value::Null);
    let all = [&followed, &unreached, &unreached, &unreached];
    assert_eq!(outcomes(&explained).iter().collect::<Vec<_>>(), all);
    // The query is forwarded, as nginx does.
    let (gist, explained) = answered(&service, "abc", "userAgent=iPhone&query=src%3Dad").await;
    let src = format!("{}?src=ad", target("src"));
    assert_eq!(gist, live(&src, "/rules/1/longUrl"));
    assert_eq!(outcomes(&explained)[0], (unmet.clone(), json!("language")));
    // Of two visitors one is in the share, and stays there.
    let mut shares = Vec::new();
    for number in 0..20 {
        let visitor = format!("userAgent=Android&address=192.0.2.{number}");
        let (gist, explained) = answered(&service, "abc", &visitor).await;
        let outcomes = outcomes(&explained);
        assert_eq!(outcomes[2], (unmet.clone(), json!("validSince")));
        let share = match outcomes[3] == followed {
            true => {
                assert_eq!(explained["answer"]["variant"], "half");
                live(&target("half"), "/rules/3/longUrl")
            }
            false => {
                assert_eq!(outcomes[3], (unmet.clone(), json!("percent")));
                live("https://example.com/a", "/longUrl")
            }
        };
        assert_eq!(gist, share);
        shares.push(share);
    }
    shares.sort_by_key(Value::to_string);
    shares.dedup();
    assert_eq!(shares.len(), 2);
    // The same link at other times, for which SQL decides.
    let (gist, explained) = answered(
        &service,
        "abc",
        "userAgent=Android&time=2026-07-01T00:00:00Z",
    )
    .await;
    assert_eq!(gist, live(&target("later"), "/rules/2/longUrl"));
    assert_eq!(explained["answer"]["source"], "database");
    assert_eq!(explained["checkedAt"], "2026-07-01T00:00:00Z");
    let (gist, explained) = answered(&service, "abc", "time=2027-01-01T00:00:00Z").await;
    let expired = json!([302, "expired", target("expired"), "/expiredTarget", 410]);
    assert_eq!(gist, expired);
    assert_eq!(explained["rules"], Value::Null);
    let key = &service.writer;
    let paused = service.call(key, "POST", "/v1/links/abc/pause", None).await;
    assert_eq!(paused.status, 200);
    let paused = json!([302, "paused", target("paused"), "/pausedTarget", 410]);
    assert_eq!(answered(&service, "abc", german).await.0, paused);
    let (gist, _) = answered(&service, "abc", "time=2027-01-01T00:00:00Z").await;
    assert_eq!(gist, expired);
    // Other countries and parameters are refused.
    for (query, place) in [
        ("country=de", "country"),
        ("country=DE,AT", "country"),
        ("time=soon", "time"),
        ("agent=iPhone", "userAgent"),
    ] {
        let path = format!("/v1/links/abc/explain?{query}");
        let answer = service.get(&path).await;
        assert_eq!(answer.status, 400, "{query}");
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains(place), "{detail}");
    }
}

#[tokio::test]
async fn a_campaign_s_plan_is_explained_for_its_link() {
    let service = Service::new().await;
    let body = json!({
        "name": "Spring", "longUrl": "https://e.example/?m={member}",
        "rules": [{"device": ["ios"], "variant": "app", "longUrl": "https://app.example/{member}"}],
        "pausedTarget": "https://e.example/paused/{member}",
        "notYetTarget": "https://e.example/early/{member}",
        "clickId": "sl_click",
    });
    let key = &service.campaigner;
    let made = service.call(key, "POST", "/v1/campaigns", Some(body)).await;
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let link = |code: &str, more: Value| {
        let mut link = json!({"campaignId": id, "customSlug": code, "parameters": {"member": "7"}});
        let members = link.as_object_mut().expect("an object");
        members.extend(more.as_object().cloned().unwrap_or_default());
        service.create(link)
    };
    assert_eq!(link("abc", json!({})).await.status, 201);
    let later = json!({"validSince": "2026-07-01T00:00:00Z"});
    assert_eq!(link("later", later).await.status, 201);
    let (gist, explained) = answered(&service, "abc", "userAgent=iPhone").await;
    let target = "https://app.example/7?sl_click={clickId}";
    assert_eq!(gist, json!([302, "live", target, "/rules/0/longUrl", null]));
    assert_eq!(explained["answer"]["variant"], "app");
    let rule = json!({
        "device": ["ios"], "variant": "app", "longUrl": target, "outcome": "followed",
    });
    assert_eq!(explained["rules"], json!([rule]));
    let (gist, _) = answered(&service, "later", "").await;
    let target = "https://e.example/early/7";
    assert_eq!(
        gist,
        json!([302, "scheduled", target, "/notYetTarget", 404])
    );
    let path = format!("/v1/campaigns/{id}/pause");
    assert_eq!(service.call(key, "POST", &path, None).await.status, 200);
    let (gist, _) = answered(&service, "abc", "userAgent=iPhone").await;
    let target = "https://e.example/paused/7";
    let paused = json!([302, "campaign-paused", target, "/pausedTarget", 410]);
    assert_eq!(gist, paused);
}
