//! Clicks of links and recipients of campaigns as clients see them.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, Scope};
use shortlink_core::testing::moment;
use shortlink_core::visit::class::Class;
use shortlink_service::keys::NewKey;
use shortlink_service::testing::new_key;
use shortlink_store::testing::{code, erase_visits};

use super::visits::visit;
use super::{Answer, Service};

const FIRST: &str = "2026-06-01T02:10:00Z";
const LAST: &str = "2026-06-01T03:59:59.999Z";

/// A campaign with five links, of which two were clicked.
async fn scene() -> Service {
    let service = Service::new().await;
    let body = json!({"name": "Spring", "longUrl": "https://e.example/{code}"});
    let created = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(body));
    assert_eq!(created.await.json()["id"], "1");
    for n in 1..=5 {
        let body = json!({
            "campaignId": "1", "customSlug": format!("m{n}"), "externalId": format!("=m+{n}"),
        });
        assert_eq!(service.create(body).await.status, 201);
    }
    let plain = json!({"longUrl": "https://example.com/", "customSlug": "plain"});
    assert_eq!(service.create(plain).await.status, 201);
    let visits = vec![
        visit(0, "m1", LAST, Class::Human),
        visit(1, "m1", FIRST, Class::Human),
        visit(2, "m1", "2026-06-01T01:00:00Z", Class::Preview),
        visit(3, "m2", LAST, Class::Human),
        visit(4, "m3", FIRST, Class::Scanner),
        visit(5, "plain", FIRST, Class::Human),
    ];
    let kept = service.kept.store.keep_visits(visits, moment(LAST));
    kept.await.expect("a working store");
    service
}

async fn read(service: &Service, path: &str) -> Answer {
    let (_, key) = service.key(70, new_key(&[Scope::StatsRead])).await;
    service.call(&key, "GET", path, None).await
}

async fn file(service: &Service, key: &str, query: &str, accept: &str) -> String {
    let request = Request::builder()
        .uri(format!("/v1/campaigns/1/recipients?{query}"))
        .header("x-api-key", key)
        .header("accept", accept)
        .body(Body::empty());
    let answer = service.send(request.expect("a request")).await;
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body).expect("text")
}

#[tokio::test]
async fn a_campaign_counts_its_clicked_links_by_hour() {
    let service = scene().await;
    let path = "/v1/campaigns/1/clicks";
    let body = read(&service, path).await.json();
    let expected = json!({
        "issued": 5, "clicked": 2, "clickRate": 0.4, "firstLinkAt": "2026-06-01T00:00:00Z",
        "hours": [
            {"begin": "2026-06-01T02:00:00Z", "hoursAfter": 2, "links": 1},
            {"begin": "2026-06-01T03:00:00Z", "hoursAfter": 3, "links": 1},
        ],
    });
    assert_eq!(body, expected);
    assert_eq!(service.get(path).await.status, 403);
    let (_, key) = service.key(71, new_key(&[Scope::StatsRead])).await;
    let unknown = service
        .call(&key, "GET", "/v1/campaigns/9/clicks", None)
        .await;
    assert_eq!(unknown.status, 404);
    // Erased visits are no clicks.
    let store = &service.kept.store;
    erase_visits(store, &[code("m1"), code("m2")], moment(LAST)).await;
    let body = service.call(&key, "GET", path, None).await.json();
    assert_eq!((&body["clicked"], &body["hours"]), (&json!(0), &json!([])));
    // Without links there is no rate.
    let empty = json!({"name": "Empty", "longUrl": "https://e.example/{code}"});
    let created = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(empty));
    assert_eq!(created.await.json()["id"], "2");
    let body = service
        .call(&key, "GET", "/v1/campaigns/2/clicks", None)
        .await;
    let expected = json!({
        "issued": 0, "clicked": 0, "clickRate": null, "firstLinkAt": null, "hours": [],
    });
    assert_eq!(body.json(), expected);
}

#[tokio::test]
async fn a_link_has_its_clicks_and_is_listed_by_them() {
    let service = scene().await;
    let visits = async |code: &str| {
        let link = service.get(&format!("/v1/links/{code}")).await.json();
        link["visits"].clone()
    };
    let expected = json!({
        "total": 3, "human": 2, "refused": 0, "lastAt": LAST,
        "clicks": 2, "firstClickAt": FIRST, "lastClickAt": LAST,
    });
    assert_eq!(visits("m1").await, expected);
    let none = visits("m4").await;
    assert_eq!(
        (&none["clicks"], &none["firstClickAt"]),
        (&json!(0), &Value::Null)
    );
    for (query, expected) in [
        ("campaignId=1&clicked=true", vec!["m1", "m2"]),
        ("campaignId=1&clicked=false", vec!["m3", "m4", "m5"]),
        ("clicked=true", vec!["m1", "m2", "plain"]),
        ("externalId=%3Dm%2B2&clicked=true", vec!["m2"]),
        ("externalId=%3Dm%2B2&clicked=false", vec![]),
    ] {
        let page = service.get(&format!("/v1/links?{query}")).await.json();
        let links = page["links"].as_array().expect("links");
        let mut codes: Vec<&str> = links
            .iter()
            .filter_map(|it| it["shortCode"].as_str())
            .collect();
        codes.sort_unstable();
        assert_eq!(codes, expected, "{query}");
        for link in links {
            let is_clicked = link["visits"]["firstClickAt"].is_string();
            assert_eq!(is_clicked, query.contains("true"), "{link}");
        }
    }
    let refused = service.get("/v1/links?clicked=maybe").await;
    assert_eq!(refused.status, 400);
    let detail = refused.json()["detail"].clone();
    assert_eq!(detail, "clicked must be true or false.");
}

#[tokio::test]
async fn recipients_are_listed_and_downloaded() {
    let service = scene().await;
    let rows = |page: &Value| -> Vec<(String, u64)> {
        let rows = page["recipients"].as_array().expect("recipients").iter();
        rows.map(|it| {
            let code = it["shortCode"].as_str().expect("a code").to_owned();
            (code, it["clicks"].as_u64().expect("a number"))
        })
        .collect()
    };
    // Page by page, the latest link first; the number of a code decides among links of one moment.
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = service
            .get(&format!("/v1/campaigns/1/recipients?limit=2{cursor}"))
            .await;
        let page = page.json();
        assert!(rows(&page).len() <= 2);
        seen.extend(rows(&page));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort_unstable();
    let all: Vec<(String, u64)> = [2, 1, 0, 0, 0]
        .into_iter()
        .zip(1..)
        .map(|(clicks, n)| (format!("m{n}"), clicks))
        .collect();
    assert_eq!(seen, all);
    let one = service
        .get("/v1/campaigns/1/recipients?clicked=true&limit=1")
        .await
        .json();
    assert!(one["nextCursor"].is_string());
    let row = service
        .get("/v1/campaigns/1/recipients?clicked=true")
        .await
        .json();
    let row = row["recipients"]
        .as_array()
        .expect("rows")
        .iter()
        .find(|it| it["shortCode"] == "m1");
    let expected = json!({
        "externalId": "=m+1", "shortCode": "m1", "firstClickAt": FIRST, "lastClickAt": LAST, "clicks": 2,
    });
    assert_eq!(row, Some(&expected));
    let table = file(&service, &service.reader, "clicked=true", "text/csv").await;
    let mut lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines.remove(0),
        "externalId,shortCode,firstClickAt,lastClickAt,clicks"
    );
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            format!("'=m+1,m1,{FIRST},{LAST},2"),
            format!("'=m+2,m2,{LAST},{LAST},1")
        ]
    );
    let raw = file(
        &service,
        &service.reader,
        "clicked=false&raw=true",
        "text/csv",
    )
    .await;
    let mut lines: Vec<&str> = raw.lines().skip(1).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["=m+3,m3,,,0", "=m+4,m4,,,0", "=m+5,m5,,,0"]);
    let lines = file(&service, &service.reader, "", "application/x-ndjson").await;
    assert_eq!(lines.lines().count(), 5);
    assert!(
        lines
            .lines()
            .all(|it| serde_json::from_str::<Value>(it).is_ok())
    );
    for (path, status) in [
        ("/v1/campaigns/9/recipients", 404),
        ("/v1/campaigns/1/recipients?cursor=x", 400),
        ("/v1/campaigns/1/recipients?code=m1", 400),
    ] {
        assert_eq!(service.get(path).await.status, status, "{path}");
    }
    assert_eq!(
        read(&service, "/v1/campaigns/1/recipients").await.status,
        403
    );
    // Files are in the audit log, pages are not.
    let (_, admin) = service.key(72, new_key(&[Scope::Admin])).await;
    let log = service
        .call(&admin, "GET", "/v1/audit?action=recipients.export", None)
        .await
        .json();
    let entries = log["entries"].as_array().expect("entries");
    let details: Vec<&Value> = entries.iter().map(|it| &it["detail"]).collect();
    assert_eq!(
        details,
        [
            &json!({}),
            &json!({"clicked": false}),
            &json!({"clicked": true})
        ]
    );
    assert!(entries.iter().all(|it| it["subject"] == "campaign:1"));
}

#[tokio::test]
async fn a_key_that_reaches_its_own_links_sees_only_their_recipients() {
    let service = Service::new().await;
    let scopes = [
        Scope::LinksRead,
        Scope::LinksWrite,
        Scope::CampaignsRead,
        Scope::CampaignsWrite,
    ];
    let confined = NewKey {
        policy: KeyPolicy {
            own_links_only: true,
            ..KeyPolicy::default()
        },
        ..new_key(&scopes)
    };
    let (_, own) = service.key(73, confined).await;
    let body = json!({"name": "Own", "longUrl": "https://e.example/{code}"});
    assert_eq!(
        service
            .call(&own, "POST", "/v1/campaigns", Some(body))
            .await
            .status,
        201
    );
    let link = |code: &str| json!({"campaignId": "1", "customSlug": code});
    assert_eq!(
        service
            .call(&own, "POST", "/v1/links", Some(link("own")))
            .await
            .status,
        201
    );
    assert_eq!(service.create(link("theirs")).await.status, 201);
    let rows = file(&service, &own, "raw=true", "text/csv").await;
    assert_eq!(
        rows,
        "externalId,shortCode,firstClickAt,lastClickAt,clicks\n,own,,,0\n"
    );
    let page = service
        .call(&own, "GET", "/v1/campaigns/1/recipients", None)
        .await
        .json();
    assert_eq!(page["recipients"].as_array().map(Vec::len), Some(1));
    let all = file(&service, &service.reader, "", "text/csv").await;
    assert_eq!(all.lines().count(), 3);
}
