//! Short domains as nginx announces them and as the API lists them.

use axum::body::Body;
use axum::http::Request;
use jiff::SignedDuration;
use serde_json::{Value, json};
use shortlink_core::api_key::Scope;
use shortlink_core::testing::{eventually, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use shortlink_service::testing::new_key;
use vocabulary::visit::VisitId;

use super::visits::visit;
use super::{Answer, Service};
use crate::ProxySecret;

/// Sends a request as an nginx with these announcements passes it on.
async fn ask(service: &Service, key: &str, said: Option<[&str; 4]>) -> Answer {
    let mut request = Request::builder()
        .uri("/v1/domains")
        .header("x-api-key", key);
    if let Some([node, bases, names, states]) = said {
        request = request
            .header("x-shortlink-node", node)
            .header("x-shortlink-base", bases)
            .header("x-shortlink-domains", names)
            .header("x-shortlink-states", states);
    }
    let request = request.body(Body::empty());
    service.send(request.expect("a good request")).await
}

/// Waits until the latest announcements are stored.
async fn heard(service: &Service, key: &str, done: impl Fn(&Value) -> bool) -> Value {
    eventually("the announcement is stored", async || {
        done(&ask(service, key, None).await.json())
    })
    .await;
    ask(service, key, None).await.json()
}

#[tokio::test]
async fn every_node_is_heard_and_told_of() {
    let service = Service::new().await;
    let (_, key) = service.key(60, new_key(&[Scope::StatsRead])).await;
    let stranger = Some(["stranger", "https://evil.example", "evil.example", "a"]);
    for (key, status) in [("", 401), (&*service.writer, 403)] {
        assert_eq!(ask(&service, key, stranger).await.status, status);
    }
    let none = ask(&service, &key, None).await.json();
    assert_eq!((&none["nodes"], &none["domains"]), (&json!([]), &json!([])));
    let bases = "https://a.example:8443 weight=3,http://vip.example campaign=k1";
    let names = "a.example,vip.example,old.example,*.w.example";
    ask(&service, &key, Some(["edge1", bases, names, "aars"])).await;
    let other = [
        "edge2",
        "https://b.example key=crm",
        "b.example,a.example",
        "as",
    ];
    ask(&service, &key, Some(other)).await;
    let told = heard(&service, &key, |told| {
        told["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.len() == 2)
    })
    .await;
    assert_eq!(
        told["nodes"][0],
        json!({
            "node": "edge1", "heardAt": "2026-06-01T00:00:00Z", "changedAt": "2026-06-01T00:00:00Z",
            "domains": 4, "notTold": 0,
        })
    );
    let names: Vec<&Value> = told["domains"]
        .as_array()
        .expect("domains")
        .iter()
        .map(|it| &it["domain"])
        .collect();
    assert_eq!(
        names,
        [
            "a.example",
            "b.example",
            "vip.example",
            "*.w.example",
            "old.example"
        ]
    );
    assert_eq!(
        told["domains"][0]["announced"],
        json!([
            {"node": "edge1", "state": "active", "baseUrl": "https://a.example:8443", "weight": 3,
             "brand": null, "campaignId": null, "keyId": null},
            {"node": "edge2", "state": "serving", "baseUrl": null, "weight": null,
             "brand": null, "campaignId": null, "keyId": null},
        ])
    );
    assert_eq!(told["domains"][1]["announced"][0]["keyId"], "crm");
    assert_eq!(told["domains"][2]["announced"][0]["campaignId"], "k1");
    assert_eq!(told["domains"][4]["announced"][0]["state"], "retired");

    // A swap is stored at once, an unchanged announcement after a minute.
    service.clock.advance(SignedDuration::from_secs(90));
    ask(
        &service,
        &key,
        Some(["edge1", "https://c.example", "c.example", "a"]),
    )
    .await;
    ask(&service, &key, Some(other)).await;
    let told = heard(&service, &key, |told| {
        told["nodes"][1]["heardAt"] == "2026-06-01T00:01:30Z" && told["nodes"][0]["domains"] == 1
    })
    .await;
    assert_eq!(told["nodes"][0]["changedAt"], "2026-06-01T00:01:30Z");
    assert_eq!(told["nodes"][1]["changedAt"], "2026-06-01T00:00:00Z");
    let refused = service
        .call(&key, "GET", "/v1/domains?minutes=3", None)
        .await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn a_domain_that_nobody_reaches_any_more_comes_first() {
    let service = Service::new().await;
    let (_, key) = service.key(61, new_key(&[Scope::StatsRead])).await;
    service.clock.advance(SignedDuration::from_secs(30));
    let begin = moment("2026-05-31T23:00:00Z");
    let mut visits: Vec<Visit> = Vec::new();
    for minute in 0..60 {
        let at = begin + SignedDuration::from_mins(minute);
        for (host, count) in [
            ("z.example", if minute < 50 { 12 } else { 0 }),
            ("old.example", if minute < 50 { 12 } else { 0 }),
            ("under.w.example", 12),
            ("gone.example", 1),
        ] {
            for _ in 0..count {
                let sequence = visits.len() as u64;
                visits.push(Visit {
                    id: VisitId {
                        origin: 5,
                        sequence,
                    },
                    host: host.to_owned(),
                    ..visit(sequence, "abc", &at.to_string(), Class::Human)
                });
            }
        }
    }
    let kept = service
        .kept
        .store
        .keep_visits(visits, moment("2026-06-01T00:00:00Z"));
    kept.await.expect("a store");
    let said = [
        "edge1",
        "https://z.example",
        "a.example,*.w.example,z.example,old.example",
        "ssar",
    ];
    ask(&service, &key, Some(said)).await;
    let told = heard(&service, &key, |told| told["nodes"][0].is_object()).await;
    assert_eq!(told["since"], "2026-05-31T23:00:00Z");
    assert_eq!(told["visitsAreLate"], false);
    let domains = told["domains"].as_array().expect("domains");
    let names: Vec<&Value> = domains.iter().map(|it| &it["domain"]).collect();
    assert_eq!(
        names,
        [
            "z.example",
            "*.w.example",
            "a.example",
            "old.example",
            "gone.example"
        ]
    );
    assert_eq!(
        domains[0]["fall"],
        json!({"at": "2026-05-31T23:50:00Z", "before": 12.0, "since": 0.0})
    );
    assert_eq!(domains[0]["visits"], 600);
    assert_eq!(
        domains[0]["minutes"][49],
        json!({"begin": "2026-05-31T23:49:00Z", "visits": 12})
    );
    // Visits below a wildcard count for it, visits of retired domains do not count, and visited
    // domains that are not listed appear as well.
    assert_eq!(domains[1]["visits"], 720);
    assert_eq!(domains[4]["announced"], json!([]));
    assert!(domains[1..].iter().all(|it| it["fall"].is_null()));
}

#[tokio::test]
async fn headers_of_nginx_need_its_secret_if_there_is_one() {
    let line = "proxy_set_header X-Shortlink-Secret \"0123456789abcdef\";";
    let service = Service::with(|app| app.proxy_secret = ProxySecret::parse(line)).await;
    let (_, key) = service.key(60, new_key(&[Scope::StatsRead])).await;
    for (secret, is_believed) in [
        ("", false),
        ("0123456789abcdeF", false),
        ("0123456789abcdef", true),
    ] {
        let body = json!({"longUrl": "https://example.com/"}).to_string();
        let request = Request::builder()
            .method("POST")
            .uri("/v1/links")
            .header("x-api-key", &service.writer)
            .header("content-type", "application/json")
            .header("x-shortlink-base", "https://s.example.com")
            .header("x-shortlink-node", "edge1")
            .header("x-shortlink-domains", "s.example.com")
            .header("x-shortlink-states", "a")
            .header("x-shortlink-secret", secret);
        let made = service
            .send(request.body(Body::from(body)).expect("a request"))
            .await;
        assert_eq!(made.status, 201);
        let short = made.json()["shortUrl"]
            .as_str()
            .map(|url| url.starts_with("https://s.example.com/"));
        assert_eq!(short, is_believed.then_some(true), "{secret}");
        let nodes = heard(&service, &key, |it| {
            it["nodes"] != json!([]) || !is_believed
        })
        .await;
        assert_eq!(nodes["nodes"] != json!([]), is_believed, "{secret}");
    }
}
