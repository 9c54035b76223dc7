//! Reports as clients see them.

use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, Scope};
use shortlink_core::testing::moment;
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use shortlink_service::keys::NewKey;
use shortlink_service::testing::new_key;

use super::visits::visit;
use super::{Answer, Service};

const NIGHT: &str = "2026-06-01T02:10:00Z";
const MORNING: &str = "2026-06-01T06:10:00Z";

fn from(network: &str, visit: Visit) -> Visit {
    let mut visit = visit;
    visit.place.isp = Some(network.to_owned());
    visit
}

/// Two campaigns, the first with four links, of which three were clicked; and links without a campaign.
async fn scene() -> (Service, String) {
    let service = Service::new().await;
    for name in ["Spring", "Summer"] {
        let body = json!({"name": name, "longUrl": "https://e.example/{code}"});
        let created = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(body));
        assert_eq!(created.await.status, 201);
    }
    for code in ["m1", "m2", "m3", "m4"] {
        let body =
            json!({"campaignId": "1", "customSlug": code, "externalId": format!("e-{code}")});
        assert_eq!(service.create(body).await.status, 201);
    }
    for code in ["p1", "p2"] {
        let body = json!({"longUrl": "https://example.com/", "customSlug": code});
        assert_eq!(service.create(body).await.status, 201);
    }
    let visits = vec![
        from("Alpha", visit(0, "m1", NIGHT, Class::Human)),
        from("Alpha", visit(1, "m1", MORNING, Class::Human)),
        from("Beta", visit(2, "m2", NIGHT, Class::Human)),
        from("Beta", visit(3, "m3", MORNING, Class::Human)),
        from("Cloud", visit(4, "m4", NIGHT, Class::Bot)),
        visit(5, "p2", NIGHT, Class::Human),
        visit(6, "p2", MORNING, Class::Human),
        visit(7, "p1", NIGHT, Class::Human),
    ];
    let kept = service.kept.store.keep_visits(visits, moment(MORNING));
    kept.await.expect("a working store");
    let (_, key) = service.key(70, new_key(&[Scope::StatsRead])).await;
    (service, key)
}

async fn read(service: &Service, key: &str, path: &str) -> Answer {
    service.call(key, "GET", path, None).await
}

#[tokio::test]
async fn campaigns_are_compared_from_their_counts() {
    let (service, key) = scene().await;
    let path = "/v1/reports/campaigns?id=1&id=2&by=network,status";
    let answer = read(&service, &key, path).await;
    assert_eq!(answer.status, 200);
    let report = answer.json();
    let [spring, summer] = report["campaigns"]
        .as_array()
        .expect("campaigns")
        .as_slice()
    else {
        panic!("{report}");
    };
    for (member, value) in [
        ("id", json!("1")),
        ("name", json!("Spring")),
        ("state", json!("live")),
        ("issued", json!(4)),
        ("clicked", json!(3)),
        ("clickRate", json!(0.75)),
        ("firstClickAt", json!("2026-06-01T02:00:00Z")),
        // Two of three in the first hour.
        ("hoursToHalf", json!(1)),
    ] {
        assert_eq!(spring[member], value, "{member}");
    }
    assert_eq!(
        (&spring["visits"]["human"], &spring["visits"]["bot"]),
        (&json!(4), &json!(1))
    );
    let networks: Vec<(&Value, &Value, &Value)> = spring["by"]["network"]
        .as_array()
        .expect("values")
        .iter()
        .map(|it| (&it["value"], &it["human"], &it["humanShare"]))
        .collect();
    let [two, zero] = [json!(2), json!(0)];
    assert_eq!(
        networks,
        [
            (&json!("Alpha"), &two, &json!(0.5)),
            (&json!("Beta"), &two, &json!(0.5)),
            (&json!("Cloud"), &zero, &json!(0.0)),
        ]
    );
    assert_eq!(spring["by"]["status"][0]["value"], "302");
    assert_eq!(spring["by"]["status"][0]["total"], 5);
    for (member, value) in [
        ("issued", json!(0)),
        ("clicked", json!(0)),
        ("clickRate", Value::Null),
        ("firstClickAt", Value::Null),
        ("hoursToHalf", Value::Null),
    ] {
        assert_eq!(summer[member], value, "{member}");
    }
    // All campaigns without ids, the latest first, and fewer values.
    let report = read(&service, &key, "/v1/reports/campaigns?by=network&limit=1")
        .await
        .json();
    let names: Vec<&Value> = report["campaigns"]
        .as_array()
        .expect("campaigns")
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["Summer", "Spring"]);
    assert_eq!(
        report["campaigns"][1]["by"]["network"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn links_are_ranked_by_their_clicks() {
    let (service, key) = scene().await;
    let report = read(&service, &key, "/v1/reports/links?campaignId=1")
        .await
        .json();
    assert_eq!(report["isComplete"], true);
    let links = report["links"].as_array().expect("links");
    let codes: Vec<&Value> = links.iter().map(|it| &it["shortCode"]).collect();
    // Of two with as many clicks, the one that was clicked later.
    assert_eq!(codes, ["m1", "m3", "m2"]);
    assert_eq!(
        links[0],
        json!({
            "externalId": "e-m1", "shortCode": "m1", "firstClickAt": NIGHT, "lastClickAt": MORNING, "clicks": 2,
        })
    );
    let report = read(&service, &key, "/v1/reports/links?limit=1")
        .await
        .json();
    assert_eq!(report["links"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["links"][0]["shortCode"], "p2");
}

#[tokio::test]
async fn reports_refuse_what_is_invalid_or_of_others() {
    let (service, key) = scene().await;
    let many = vec!["1"; 51].join(",");
    for (query, status) in [
        ("campaigns?id=9".to_owned(), 404),
        ("campaigns?id=1&id=9".to_owned(), 404),
        ("campaigns?id=1,".to_owned(), 400),
        (format!("campaigns?id={many}"), 400),
        ("campaigns?by=city".to_owned(), 400),
        ("campaigns?limit=101".to_owned(), 400),
        ("links?campaignId=9".to_owned(), 404),
        ("links?limit=1001".to_owned(), 400),
    ] {
        let answer = read(&service, &key, &format!("/v1/reports/{query}")).await;
        assert_eq!(answer.status, status, "{query}");
    }
    assert_eq!(service.get("/v1/reports/campaigns").await.status, 403);
    let policy = KeyPolicy {
        own_links_only: true,
        ..KeyPolicy::default()
    };
    let confined = NewKey {
        policy,
        ..new_key(&[Scope::StatsRead])
    };
    let (_, confined) = service.key(71, confined).await;
    for (path, status) in [
        ("campaigns?id=1", 404),
        ("links?campaignId=1", 404),
        ("links", 403),
        ("campaigns", 200),
    ] {
        let answer = read(&service, &confined, &format!("/v1/reports/{path}")).await;
        assert_eq!(answer.status, status, "{path}");
    }
    let none = read(&service, &confined, "/v1/reports/campaigns")
        .await
        .json();
    assert_eq!(none, json!({"campaigns": []}));
}
