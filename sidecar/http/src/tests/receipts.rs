//! Delivery receipts as clients see them.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, Scope};
use shortlink_core::testing::moment;
use shortlink_core::visit::class::Class;
use shortlink_service::keys::NewKey;
use shortlink_service::testing::new_key;

use super::Service;
use super::visits::visit;

/// Times before that of the service.
const EARLY: &str = "2026-05-31T10:00:00Z";
const LATE: &str = "2026-05-31T11:00:00Z";

/// A campaign with three links, and a key that may store receipts and read reports.
async fn scene() -> (Service, String) {
    let service = Service::new().await;
    let body = json!({"name": "Spring", "longUrl": "https://e.example/{code}"});
    let created = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(body));
    assert_eq!(created.await.status, 201);
    for code in ["m1", "m2", "m3"] {
        let body =
            json!({"campaignId": "1", "customSlug": code, "externalId": format!("e-{code}")});
        assert_eq!(service.create(body).await.status, 201);
    }
    let scopes = [Scope::StatsRead, Scope::ReceiptsWrite];
    let (_, key) = service.key(70, new_key(&scopes)).await;
    (service, key)
}

/// The statuses of the results of receipts, and the results.
async fn store(service: &Service, key: &str, rows: Value) -> (Vec<u64>, Vec<Value>) {
    let answer = service.call(key, "POST", "/v1/receipts", Some(rows)).await;
    assert_eq!(answer.status, 200);
    let results = answer.json().as_array().expect("results").clone();
    let statuses = results
        .iter()
        .map(|it| it["status"].as_u64().expect("a status"));
    (statuses.collect(), results)
}

async fn report(service: &Service, key: &str) -> Value {
    let report = service
        .call(key, "GET", "/v1/reports/campaigns?id=1", None)
        .await;
    report.json()["campaigns"][0].clone()
}

#[tokio::test]
async fn each_message_is_counted_once_with_its_last_status() {
    let (service, key) = scene().await;
    let rows = json!([
        {"shortCode": "m1", "status": "sent", "network": "Alpha", "at": EARLY},
        {"shortCode": "m1", "status": "delivered", "network": "Alpha", "at": LATE},
        {"campaignId": "1", "externalId": "e-m2", "status": "failed", "network": "Beta", "at": EARLY},
        {"shortCode": "m3", "status": "delivered", "network": "Beta", "at": EARLY},
    ]);
    assert_eq!(store(&service, &key, rows.clone()).await.0, [201; 4]);
    let visits = vec![visit(0, "m1", LATE, Class::Human)];
    let kept = service.kept.store.keep_visits(visits, moment(LATE));
    kept.await.expect("a working store");
    let expected = json!({"sent": 0, "rejected": 0, "expired": 0, "failed": 1, "delivered": 2});
    for _ in 0..2 {
        let found = report(&service, &key).await;
        assert_eq!(found["messages"], expected);
        assert_eq!(found["deliveredClickRate"], 0.5);
        assert_eq!(
            found["messagesByNetwork"],
            json!([
                {
                    "network": "Beta", "sent": 0, "rejected": 0, "expired": 0, "failed": 1, "delivered": 1,
                    "clicked": 0, "clickRate": 0.0,
                },
                {
                    "network": "Alpha", "sent": 0, "rejected": 0, "expired": 0, "failed": 0, "delivered": 1,
                    "clicked": 1, "clickRate": 1.0,
                },
            ])
        );
        // Repeated, nothing changes.
        assert_eq!(store(&service, &key, rows.clone()).await.0, [200; 4]);
    }
    // An earlier status that arrives later, a later one, and one of the same time that is worth less.
    let rows = json!([
        {"shortCode": "m3", "status": "sent", "at": "2026-05-30T00:00:00Z"},
        {"shortCode": "m2", "status": "delivered", "network": "Beta", "at": LATE},
        {"shortCode": "m1", "status": "sent", "network": "Alpha", "at": LATE},
    ]);
    assert_eq!(store(&service, &key, rows).await.0, [200, 201, 200]);
    let found = report(&service, &key).await;
    assert_eq!(found["messages"]["delivered"], 3);
    assert_eq!(found["messages"]["failed"], 0);
}

#[tokio::test]
async fn receipts_of_unknown_links_and_invalid_rows_are_reported_by_row() {
    let (service, key) = scene().await;
    let rows = json!([
        {"shortCode": "nothing", "status": "delivered"},
        {"campaignId": "1", "externalId": "e-m9", "status": "delivered"},
        {"shortCode": "m1", "status": "delivered", "at": "2999-01-01T00:00:00Z"},
        {"shortCode": "m1", "status": "read"},
        {"externalId": "e-m1", "status": "delivered"},
        {"status": "delivered"},
        {"shortCode": "m1", "externalId": "e-m1", "status": "delivered"},
        {"shortCode": "m1", "campaignId": "1", "status": "delivered"},
        {"shortCode": "m1", "network": "x".repeat(129), "colour": "red"},
        {"shortCode": "m1", "status": "delivered"},
    ]);
    let (statuses, results) = store(&service, &key, rows).await;
    assert_eq!(statuses, [404, 404, 422, 422, 422, 422, 422, 422, 422, 201]);
    let pointers = |result: &Value| -> Vec<String> {
        let errors = result["problem"]["errors"].as_array();
        let errors = errors.into_iter().flatten();
        errors
            .map(|it| it["pointer"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let pointers: Vec<Vec<String>> = results.iter().map(pointers).collect();
    assert_eq!(
        pointers[2..9],
        [
            vec!["/at"],
            vec!["/status"],
            vec!["/campaignId"],
            vec!["/shortCode"],
            vec!["/externalId"],
            vec!["/campaignId"],
            vec!["/network", "/status", "/colour"],
        ]
    );
    let detail = results[1]["problem"]["detail"].as_str().expect("text");
    assert!(detail.contains("e-m9"), "{detail}");
    assert_eq!(results[1]["externalId"], "e-m9");
}

#[tokio::test]
async fn receipts_need_their_scope_and_reach_only_own_links() {
    let (service, key) = scene().await;
    let (_, reader) = service.key(71, new_key(&[Scope::StatsRead])).await;
    let rows = json!([{"shortCode": "m1", "status": "delivered"}]);
    let refused = service
        .call(&reader, "POST", "/v1/receipts", Some(rows.clone()))
        .await;
    assert_eq!(refused.status, 403);
    let confined = NewKey {
        policy: KeyPolicy {
            own_links_only: true,
            ..KeyPolicy::default()
        },
        ..new_key(&[Scope::ReceiptsWrite])
    };
    let (_, confined) = service.key(72, confined).await;
    assert_eq!(store(&service, &confined, rows).await.0, [404]);
    assert_eq!(report(&service, &key).await["messages"]["delivered"], 0);
}

#[tokio::test]
async fn receipts_are_read_from_lines_and_csv_with_a_summary() {
    let (service, key) = scene().await;
    let send = async |query: &str, media: &str, body: &str| {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/v1/receipts{query}"))
            .header("x-api-key", &key)
            .header("content-type", media)
            .body(Body::from(body.to_owned()));
        service.send(request.expect("a request")).await
    };
    let lines = "{\"shortCode\":\"m1\",\"status\":\"delivered\"}\nnonsense\n";
    let answer = send("?summary=true", "application/x-ndjson", lines).await;
    let text = String::from_utf8(answer.body).expect("text");
    let lines: Vec<Value> = text
        .lines()
        .map(|it| serde_json::from_str(it).expect("JSON"))
        .collect();
    assert_eq!(lines[0], json!({"index": 0, "status": 201}));
    assert_eq!(lines[1]["status"], 400);
    assert_eq!(lines[2]["summary"]["rows"], 2);
    assert_eq!(
        (
            &lines[2]["summary"]["created"],
            &lines[2]["summary"]["refused"]
        ),
        (&json!(1), &json!(1))
    );
    let csv = "externalId;status;network\ne-m2;delivered;Alpha\ne-m3;failed;\n";
    let answer = send("?campaignId=1", "text/csv", csv).await;
    let text = String::from_utf8(answer.body).expect("text");
    assert_eq!(text.matches("\"status\":201").count(), 2, "{text}");
    assert_eq!(report(&service, &key).await["messages"]["delivered"], 2);
    for (query, status) in [
        ("?uploadId=3f0c9d24a6b1e857", 400),
        ("?campaignId=9", 404),
        ("?x=1", 400),
    ] {
        assert_eq!(send(query, "text/csv", csv).await.status, status, "{query}");
    }
}
