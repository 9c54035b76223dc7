//! Conversions as clients report and read them.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, Scope};
use shortlink_core::testing::moment;
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use shortlink_service::keys::NewKey;
use shortlink_service::testing::new_key;
use shortlink_store::testing::{code, erase_visits};
use vocabulary::ClickId;

use super::batch::lines;
use super::visits::visit;
use super::{Answer, Service};

const NOW: &str = "2026-06-01T00:00:00Z";

/// A service with a campaign of three links, one of which was clicked, and a link without a campaign.
struct Scene {
    service: Service,
    key: String,
}

impl Scene {
    async fn new() -> Self {
        let service = Service::with(|app| app.body_limit_bytes = 16 << 10).await;
        let body = json!({"name": "Spring", "longUrl": "https://e.example/{code}"});
        let created = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(body));
        assert_eq!(created.await.json()["id"], "1");
        for n in 1..=3 {
            let body = json!({
                "campaignId": "1", "customSlug": format!("m{n}"), "externalId": format!("m-{n}"),
            });
            assert_eq!(service.create(body).await.status, 201);
        }
        // Another link with an external id of the campaign.
        let plain = json!({
            "longUrl": "https://example.com/", "customSlug": "plain", "externalId": "m-3",
        });
        assert_eq!(service.create(plain).await.status, 201);
        let clicks = vec![
            visit(0, "m1", NOW, Class::Human),
            visit(1, "m2", NOW, Class::Human),
        ];
        let kept = service.kept.store.keep_visits(clicks, moment(NOW)).await;
        kept.expect("a working store");
        let scopes = [Scope::ConversionsWrite, Scope::StatsRead];
        let (_, key) = service.key(80, new_key(&scopes)).await;
        Self { service, key }
    }

    async fn send(&self, query: &str, media_type: &str, body: String) -> Answer {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/v1/conversions{query}"))
            .header("x-api-key", &self.key)
            .header("content-type", media_type)
            .body(Body::from(body));
        self.service.send(request.expect("a request")).await
    }

    async fn report(&self, rows: Value) -> Vec<Value> {
        let answer = self.send("", "application/json", rows.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
        answer.json().as_array().expect("an array").clone()
    }

    async fn read(&self, path: &str) -> Value {
        let answer = self.service.call(&self.key, "GET", path, None).await;
        assert_eq!(answer.status, 200);
        answer.json()
    }
}

fn statuses(results: &[Value]) -> Vec<u64> {
    let statuses = results.iter().map(|it| it["status"].as_u64());
    statuses.map(|it| it.expect("a status")).collect()
}

/// The pointer and the detail of the only fault of a result.
fn fault(result: &Value) -> (&str, &str) {
    let errors = result["problem"]["errors"].as_array().expect("errors");
    assert_eq!(errors.len(), 1, "{result}");
    let text = |name: &str| errors[0][name].as_str().expect("text");
    (text("pointer"), text("detail"))
}

#[tokio::test]
async fn conversions_are_counted_once_with_their_values() {
    let scene = Scene::new().await;
    let rows = json!([
        {"conversionId": "o-1", "externalId": "m-1", "value": "49.90", "currency": "EUR"},
        {"conversionId": "o-2", "externalId": "m-1", "value": "0.1", "currency": "EUR", "at": NOW},
        {"conversionId": "o-1", "externalId": "m-3", "campaignId": "1", "value": "1200", "currency": "JPY"},
        {"conversionId": "sign-up", "shortCode": "plain"},
        // Again, within the request.
        {"conversionId": "o-1", "shortCode": "m1", "value": "49.9", "currency": "EUR"},
        {"conversionId": "o-1", "externalId": "m-1", "value": "49.91", "currency": "EUR"},
    ]);
    let results = scene.report(rows.clone()).await;
    assert_eq!(statuses(&results), [201, 201, 201, 201, 200, 409]);
    let first = json!({"index": 0, "conversionId": "o-1", "status": 201, "shortCode": "m1"});
    assert_eq!(results[0], first);
    assert_eq!(results[2]["shortCode"], "m3");
    assert_eq!(fault(&results[5]).0, "/conversionId");
    assert_eq!(results[5]["problem"]["status"], 409);
    // Again, later.
    let again = scene.report(rows).await;
    assert_eq!(statuses(&again), [200, 200, 200, 200, 200, 409]);
    let expected = json!({
        "converted": 2, "clicked": 2, "conversionRate": 1.0, "conversions": 3,
        "values": [
            {"currency": "EUR", "conversions": 2, "value": "50"},
            {"currency": "JPY", "conversions": 1, "value": "1200"},
        ],
    });
    assert_eq!(scene.read("/v1/campaigns/1/conversions").await, expected);
    let expected = json!({
        "conversions": 2, "values": [{"currency": "EUR", "conversions": 2, "value": "50"}],
    });
    assert_eq!(scene.read("/v1/links/m1/conversions").await, expected);
    let expected = json!({"conversions": 1, "values": []});
    assert_eq!(scene.read("/v1/links/plain/conversions").await, expected);
    let none = json!({"conversions": 0, "values": []});
    assert_eq!(scene.read("/v1/links/m2/conversions").await, none);
    let metrics = scene.service.get("/metrics").await;
    let metrics = String::from_utf8(metrics.body).expect("text");
    for (outcome, rows) in [("counted", 4), ("repeated", 6), ("refused", 2)] {
        let line = format!("shortlink_conversions_total{{outcome=\"{outcome}\"}} {rows}\n");
        assert!(metrics.contains(&line), "{line}");
    }
}

#[tokio::test]
async fn invalid_rows_are_refused_with_the_pointer() {
    let scene = Scene::new().await;
    let ahead = "2026-06-01T00:05:01Z";
    let with = |more: Value| {
        let mut row = json!({"conversionId": "o", "shortCode": "m1"});
        for (name, value) in more.as_object().expect("members") {
            row[name] = value.clone();
        }
        row
    };
    for (row, pointer, part) in [
        (json!({"shortCode": "m1"}), "/conversionId", "is required"),
        (json!({"conversionId": "o"}), "/externalId", "is required"),
        (
            with(json!({"externalId": "m-1"})),
            "/shortCode",
            "cannot be combined",
        ),
        (
            with(json!({"shortCode": "."})),
            "/shortCode",
            "must be the code",
        ),
        (
            with(json!({"shortCode": "nothing"})),
            "/shortCode",
            "must name a link",
        ),
        (
            json!({"conversionId": "o", "externalId": "m-9"}),
            "/externalId",
            "must name a link",
        ),
        (
            json!({"conversionId": "o", "externalId": "m-3"}),
            "/externalId",
            "several links",
        ),
        (
            json!({"conversionId": "o", "externalId": "m-1", "campaignId": "7"}),
            "/externalId",
            "must name a link",
        ),
        (
            with(json!({"campaignId": "!"})),
            "/campaignId",
            "id of a campaign",
        ),
        (
            with(json!({"value": "1"})),
            "/currency",
            "is required with value",
        ),
        (
            with(json!({"currency": "EUR"})),
            "/value",
            "is required with currency",
        ),
        (
            with(json!({"value": 1.5, "currency": "EUR"})),
            "/value",
            "as a string",
        ),
        (
            with(json!({"value": "-1", "currency": "EUR"})),
            "/value",
            "decimal number",
        ),
        (
            with(json!({"value": "1", "currency": "eur"})),
            "/currency",
            "capital letters",
        ),
        (
            with(json!({"at": ahead})),
            "/at",
            "at most 300 seconds after",
        ),
        (with(json!({"at": "yesterday"})), "/at", "date and time"),
        (with(json!({"price": "1"})), "/price", "is not known"),
        (
            with(json!({"refunded": "some"})),
            "/refunded",
            "must be all, or",
        ),
        (
            with(json!({"refunded": "1", "value": "1", "currency": "EUR"})),
            "/value",
            "with refunded",
        ),
        (
            with(json!({"refunded": "all", "at": NOW})),
            "/at",
            "with refunded",
        ),
    ] {
        let results = scene.report(json!([row])).await;
        assert_eq!(statuses(&results), [422], "{row}");
        let (at, detail) = fault(&results[0]);
        assert_eq!(at, pointer, "{row}");
        assert!(detail.contains(part), "{row}: {detail}");
    }
    assert_eq!(
        scene.read("/v1/links/m1/conversions").await["conversions"],
        0
    );
    // The bound itself is allowed.
    let results = scene
        .report(json!([with(json!({"at": "2026-06-01T00:05:00Z"}))]))
        .await;
    assert_eq!(statuses(&results), [201]);
}

#[tokio::test]
async fn refunds_are_taken_from_what_is_counted() {
    let scene = Scene::new().await;
    let rows = json!([
        {"conversionId": "o-1", "externalId": "m-1", "value": "49.90", "currency": "EUR"},
        {"conversionId": "o-2", "externalId": "m-2", "value": "10", "currency": "EUR"},
        {"conversionId": "sign-up", "externalId": "m-3", "campaignId": "1"},
    ]);
    assert_eq!(statuses(&scene.report(rows.clone()).await), [201, 201, 201]);
    let refunds = json!([
        {"conversionId": "o-1", "shortCode": "m1", "refunded": "9.90"},
        // All together, in any order: a smaller one was before.
        {"conversionId": "o-1", "shortCode": "m1", "refunded": "5"},
        {"conversionId": "o-2", "shortCode": "m2", "refunded": "all"},
        {"conversionId": "o-2", "shortCode": "m2", "refunded": "10.0000"},
        {"conversionId": "o-3", "shortCode": "m2", "refunded": "all"},
        {"conversionId": "o-1", "shortCode": "m1", "refunded": "49.9001"},
        {"conversionId": "sign-up", "shortCode": "m3", "refunded": "1"},
        {"conversionId": "sign-up", "shortCode": "m3", "refunded": "all"},
    ]);
    let results = scene.report(refunds.clone()).await;
    let expected = [201, 200, 201, 200, 404, 422, 422, 201];
    assert_eq!(statuses(&results), expected);
    for (place, pointer) in [(4, "/conversionId"), (5, "/refunded"), (6, "/refunded")] {
        assert_eq!(fault(&results[place]).0, pointer);
    }
    // Neither a refund nor its conversion counts again.
    let again = scene.report(refunds).await;
    assert_eq!(statuses(&again), [200, 200, 200, 200, 404, 422, 422, 200]);
    assert_eq!(statuses(&scene.report(rows).await), [200, 200, 200]);
    let expected = json!({
        "converted": 1, "clicked": 2, "conversionRate": 0.5, "conversions": 1,
        "values": [{"currency": "EUR", "conversions": 1, "value": "40"}],
    });
    assert_eq!(scene.read("/v1/campaigns/1/conversions").await, expected);
    let none = json!({"conversions": 0, "values": []});
    assert_eq!(scene.read("/v1/links/m2/conversions").await, none);
    // Of CSV, with the conversion itself.
    let csv = "conversionId,shortCode,value,currency,refunded\no-4,m2,7,JPY,\no-4,m2,,,7\n";
    let answer = scene.send("", "text/csv", csv.to_owned()).await;
    assert_eq!(statuses(&lines(&answer)), [201, 201]);
    assert_eq!(scene.read("/v1/campaigns/1/conversions").await, expected);
}

#[tokio::test]
async fn a_click_id_leads_to_the_link_of_its_visit() {
    let scene = Scene::new().await;
    let service = &scene.service;
    let change = async |body: Value| {
        let path = "/v1/campaigns/1";
        service
            .call(&service.campaigner, "PATCH", path, Some(body))
            .await
    };
    let fragment = "https://e.example/{code}?a=b#f";
    let changed =
        change(json!({"clickId": "sl.click", "longUrl": fragment, "redirectStatus": 301}));
    assert_eq!(changed.await.json()["clickId"], "sl.click");
    let follow = async || {
        let request = Request::builder()
            .uri("/resolve/m1")
            .header("x-shortlink-query", "x=y")
            .body(Body::empty());
        service.send(request.expect("a request")).await
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = follow().await;
        assert_eq!(answer.status, 302);
        let id = answer
            .header("x-shortlink-click")
            .expect("an id")
            .to_owned();
        let location = format!("https://e.example/m1?a=b&sl.click={id}#f");
        assert_eq!(answer.header("location"), Some(&*location));
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
    let row = json!([{"conversionId": "a", "clickId": ids[0]}]);
    let results = scene.report(row.clone()).await;
    assert_eq!(statuses(&results), [404]);
    assert_eq!(fault(&results[0]).0, "/clickId");
    let id = ClickId::parse(ids[0].as_bytes());
    let clicked = Visit {
        click: id,
        ..visit(9, "m1", NOW, Class::Human)
    };
    let kept = service.kept.store.keep_visits(vec![clicked], moment(NOW));
    kept.await.expect("a working store");
    let results = scene.report(row.clone()).await;
    assert_eq!(statuses(&results), [201]);
    assert_eq!(results[0]["shortCode"], "m1");
    for path in ["/v1/visits", "/v1/visits?after=", "/v1/links/m1/visits"] {
        let listed = service.call(&scene.key, "GET", path, None).await;
        let visits = listed.json()["visits"].clone();
        let visits = visits.as_array().expect("visits").iter();
        let with_id: Vec<&str> = visits.filter_map(|it| it["clickId"].as_str()).collect();
        assert_eq!(with_id, [&ids[0]], "{path}");
    }
    for (row, pointer) in [
        (json!({"conversionId": "b", "clickId": "short"}), "/clickId"),
        (
            json!({"conversionId": "b", "clickId": ids[0], "shortCode": "m1"}),
            "/shortCode",
        ),
        (
            json!({"conversionId": "b", "clickId": ids[0], "externalId": "m-1"}),
            "/externalId",
        ),
    ] {
        let results = scene.report(json!([row])).await;
        assert_eq!(
            (statuses(&results), fault(&results[0]).0),
            (vec![422], pointer)
        );
    }
    // Erased with the visit, also for a conversion of a later time.
    erase_visits(&service.kept.store, &[code("m1")], moment(NOW)).await;
    let results = scene.report(row).await;
    assert_eq!(statuses(&results), [404]);
    for (body, pointer) in [
        (json!({"clickId": "a b"}), "/clickId"),
        (json!({"clickId": ""}), "/clickId"),
        (
            json!({"longUrl": format!("https://e.example/{}", "a".repeat(8160))}),
            "/clickId",
        ),
    ] {
        assert_eq!(change(body).await.pointers(), [pointer]);
    }
    assert_eq!(
        change(json!({"clickId": null})).await.json()["clickId"],
        Value::Null
    );
    let answer = follow().await;
    assert_eq!(answer.status, 301);
    assert_eq!(answer.header("x-shortlink-click"), None);
    assert_eq!(
        answer.header("location"),
        Some("https://e.example/m1?a=b#f")
    );
}

#[tokio::test]
async fn rows_are_sent_as_lines_and_csv() {
    let scene = Scene::new().await;
    let csv = "conversionId,externalId,value,currency\na,m-1,5,EUR\nb,m-3,,\nc,m-9,,\n";
    let answer = scene
        .send("?campaignId=1&summary=true", "text/csv", csv.to_owned())
        .await;
    let results = lines(&answer);
    assert_eq!(statuses(&results[..3]), [201, 201, 422]);
    let summary = json!({"rows": 3, "created": 2, "existing": 0, "refused": 1, "bytes": csv.len()});
    assert_eq!(results[3], json!({"summary": summary}));
    let text =
        "{\"conversionId\":\"a\",\"shortCode\":\"m1\",\"value\":\"5\",\"currency\":\"EUR\"}\nno\n";
    let answer = scene
        .send("", "application/x-ndjson", text.to_owned())
        .await;
    assert_eq!(statuses(&lines(&answer)), [200, 400]);
    for (query, status) in [
        ("?uploadId=3f0c9d24a6b1e857", 400),
        ("?campaignId=9", 404),
        ("?delimiter=tab", 400),
    ] {
        let answer = scene
            .send(query, "application/json", "[{}]".to_owned())
            .await;
        assert_eq!(answer.status, status, "{query}");
    }
    let path = "/v1/conversions";
    let rows = || Some(json!([{}]));
    let lacking = scene
        .service
        .call(&scene.service.writer, "POST", path, rows())
        .await;
    assert_eq!(lacking.status, 403);
    let (_, writer) = scene
        .service
        .key(81, new_key(&[Scope::ConversionsWrite]))
        .await;
    let path = "/v1/links/m1/conversions";
    assert_eq!(
        scene.service.call(&writer, "GET", path, None).await.status,
        403
    );
    for path in [
        "/v1/links/nothing/conversions",
        "/v1/campaigns/9/conversions",
    ] {
        let answer = scene.service.call(&scene.key, "GET", path, None).await;
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_key_that_reaches_its_own_links_reports_only_their_conversions() {
    let scene = Scene::new().await;
    let scopes = [Scope::LinksWrite, Scope::ConversionsWrite, Scope::StatsRead];
    let confined = NewKey {
        policy: KeyPolicy {
            own_links_only: true,
            ..KeyPolicy::default()
        },
        ..new_key(&scopes)
    };
    let (_, own) = scene.service.key(82, confined).await;
    let body = json!({"longUrl": "https://example.com/", "customSlug": "own", "externalId": "m-1"});
    let made = scene
        .service
        .call(&own, "POST", "/v1/links", Some(body))
        .await;
    assert_eq!(made.status, 201);
    let rows = json!([
        {"conversionId": "a", "externalId": "m-1"},
        {"conversionId": "b", "shortCode": "m1"},
        {"conversionId": "c", "shortCode": "nothing"},
        {"conversionId": "d", "externalId": "m-2"},
    ]);
    let answer = scene
        .service
        .call(&own, "POST", "/v1/conversions", Some(rows))
        .await;
    let results = answer.json();
    let results = results.as_array().expect("results");
    assert_eq!(statuses(results), [201, 422, 422, 422]);
    assert_eq!(results[0]["shortCode"], "own");
    let click = Some(ClickId([5; 16]));
    let clicked = Visit {
        click,
        ..visit(9, "m1", NOW, Class::Human)
    };
    let kept = scene
        .service
        .kept
        .store
        .keep_visits(vec![clicked], moment(NOW));
    kept.await.expect("a working store");
    let text = |id: ClickId| String::from_utf8(id.to_text().to_vec()).expect("ASCII");
    let [theirs, none] =
        [5, 6].map(|n| json!({"conversionId": "e", "clickId": text(ClickId([n; 16]))}));
    let rows = Some(json!([theirs, none]));
    let of_clicks = scene
        .service
        .call(&own, "POST", "/v1/conversions", rows)
        .await
        .json();
    assert_eq!(of_clicks[0]["status"], 404);
    assert_eq!(of_clicks[0]["problem"], of_clicks[1]["problem"]);
    // Those of others are as unknown as those that do not exist.
    assert_eq!(results[1]["problem"], results[2]["problem"]);
    // A key that reaches all links does not know which one is meant.
    let results = scene
        .report(json!([{"conversionId": "a", "externalId": "m-1"}]))
        .await;
    assert_eq!(fault(&results[0]).0, "/externalId");
}
