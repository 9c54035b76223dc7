//! The results of A/B tests, as clients read them.

use serde_json::{Value, json};
use shortlink_core::api_key::Scope;
use shortlink_core::testing::moment;
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use shortlink_service::testing::new_key;
use vocabulary::ClickId;

use super::Service;
use super::visits::visit;

const NOW: &str = "2026-06-01T00:00:00Z";

fn variants() -> Value {
    let variant = |name: &str| {
        let target = format!("https://{name}.example/");
        json!({"name": name, "weight": 1, "longUrl": target})
    };
    json!([variant("a"), variant("b")])
}

async fn keep(service: &Service, visits: Vec<Visit>) {
    let kept = service.kept.store.keep_visits(visits, moment(NOW)).await;
    kept.expect("a working store");
}

fn by(sequence: u64, code: &str, variant: Option<&str>) -> Visit {
    let mut visit = visit(sequence, code, NOW, Class::Human);
    visit.variant = variant.map(str::to_owned);
    visit.click = Some(ClickId((u128::from(sequence) + 1).to_be_bytes()));
    visit
}

async fn report(service: &Service, key: &str, rows: Value) {
    let path = "/v1/conversions";
    let answer = service.call(key, "POST", path, Some(rows)).await.json();
    let results = answer.as_array().expect("results");
    assert!(results.iter().all(|it| it["status"] == 201), "{answer}");
}

#[tokio::test]
async fn variants_of_a_link_are_compared_by_conversions_of_visits() {
    let service = Service::with(|app| app.body_limit_bytes = 1 << 16).await;
    let (_, key) = service
        .key(80, new_key(&[Scope::ConversionsWrite, Scope::StatsRead]))
        .await;
    let read = async || {
        let read = service
            .call(&key, "GET", "/v1/links/x/variants", None)
            .await;
        assert_eq!(read.status, 200);
        read.json()
    };
    let link = json!({"longUrl": "https://example.com/", "customSlug": "x"});
    assert_eq!(service.create(link).await.status, 201);
    // Before the test.
    keep(&service, vec![by(0, "x", None)]).await;
    let nothing = json!({"variants": [], "leader": null, "decided": false});
    assert_eq!(read().await, nothing);
    let path = "/v1/links/x";
    let changed = service.call(
        &service.writer,
        "PATCH",
        path,
        Some(json!({"variants": variants()})),
    );
    assert_eq!(changed.await.status, 200);
    let mut visits: Vec<Visit> = (1..41).map(|n| by(n, "x", Some("a"))).collect();
    visits.extend((41..61).map(|n| by(n, "x", Some("b"))));
    visits.push(by(61, "x", None));
    let mut preview = by(62, "x", Some("b"));
    preview.classification.class = Class::Preview;
    visits.push(preview);
    keep(&service, visits).await;
    let id = |n: u64| ClickId((u128::from(n) + 1).to_be_bytes()).to_string();
    let rows = (41..56).map(|n| {
        json!({"conversionId": n.to_string(), "clickId": id(n), "value": "1.5", "currency": "EUR"})
    });
    report(&service, &key, rows.collect()).await;
    // The second is of a link with several variants: it is unknown which one led to it.
    let others = json!([
        {"conversionId": "first", "clickId": id(1)},
        {"conversionId": "any", "shortCode": "x"},
    ]);
    report(&service, &key, others).await;
    let results = read().await;
    assert_eq!(results["leader"], "b");
    assert_eq!(results["decided"], true);
    let [rest, a, b] = &results["variants"].as_array().expect("variants")[..] else {
        panic!("{results}");
    };
    assert_eq!((&rest["variant"], &rest["clicks"]), (&json!(""), &json!(1)));
    assert_eq!((&a["clicks"], &a["conversions"]), (&json!(40), &json!(1)));
    assert_eq!(a["conversionRate"], 0.025);
    let values = json!([{"currency": "EUR", "conversions": 15, "value": "22.5"}]);
    assert_eq!((&b["variant"], &b["values"]), (&json!("b"), &values));
    assert_eq!(b["conversionRate"], 0.75);
    let share = b["share"].as_f64().expect("a share");
    assert!((share - 20.0 / 61.0).abs() < 1e-9, "{b}");
    let low = b["interval"]["low"].as_f64().expect("a bound");
    assert!((low - 0.531_299).abs() < 1e-6, "{b}");
}

#[tokio::test]
async fn variants_of_a_campaign_are_compared_by_links_with_conversions() {
    let service = Service::new().await;
    let (_, key) = service
        .key(80, new_key(&[Scope::ConversionsWrite, Scope::StatsRead]))
        .await;
    let body = json!({
        "name": "Spring", "longUrl": "https://e.example/{code}", "variants": variants(),
    });
    let created = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(body));
    assert_eq!(created.await.json()["id"], "1");
    for n in 1..=4 {
        let body = json!({
            "campaignId": "1", "customSlug": format!("m{n}"), "externalId": format!("m-{n}"),
        });
        assert_eq!(service.create(body).await.status, 201);
    }
    let visits = vec![
        by(0, "m1", Some("a")),
        by(1, "m1", Some("a")),
        by(2, "m2", Some("a")),
        by(3, "m3", Some("b")),
        by(4, "m4", Some("b")),
        by(5, "m4", Some("a")),
    ];
    keep(&service, visits).await;
    let row = |n: u32| json!({"conversionId": "o", "externalId": format!("m-{n}")});
    let again = json!({"conversionId": "p", "externalId": "m-1"});
    // The last one followed both.
    report(&service, &key, json!([row(1), again, row(3), row(4)])).await;
    let path = "/v1/campaigns/1/variants";
    let results = service.call(&key, "GET", path, None).await.json();
    let rows: Vec<Value> = results["variants"]
        .as_array()
        .expect("variants")
        .iter()
        .map(|it| {
            let members = ["variant", "clicks", "clicked", "converted", "conversions"];
            members.map(|name| it[name].clone()).into_iter().collect()
        })
        .collect();
    assert_eq!(rows, [json!(["a", 4, 3, 1, 2]), json!(["b", 2, 2, 1, 1])]);
    assert_eq!(results["leader"], "b");
    assert_eq!(results["decided"], false);
}
