//! Quotas of links.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use shortlink_core::api_key::Scope;

use super::{Answer, Service, new_key};

#[tokio::test]
async fn quotas_of_keys_and_campaigns_refuse_further_links() {
    let service = Service::new().await;
    let (_, admin) = service.key(1, new_key(&[Scope::Admin])).await;
    let send = async |method: &str, path: &str, body: Option<Value>| {
        service.call(&admin, method, path, body).await
    };
    let request = json!({
        "name": "x", "scopes": ["links:write"], "policy": {"maxLinks": 3}
    });
    let made = send("POST", "/v1/keys", Some(request)).await.json();
    let key = made["secret"].as_str().expect("a secret").to_owned();
    let key_path = format!("/v1/keys/{}", made["id"].as_str().expect("an id"));
    let request = json!({"name": "c", "longUrl": "https://example.com/", "maxLinks": 2});
    let made = send("POST", "/v1/campaigns", Some(request)).await.json();
    let campaign = made["id"].clone();
    let campaign_path = format!("/v1/campaigns/{}", campaign.as_str().expect("an id"));

    let row = json!({"campaignId": campaign});
    let answer = service.call(&admin, "POST", "/v1/links", Some(row.clone()));
    assert_eq!(answer.await.status, 201);
    // The second row takes the last place of the campaign, the fourth and the fifth that of the key.
    let plain = json!({"longUrl": "https://example.com/"});
    let rows = json!([plain, row, row, plain, plain]);
    let answer = service
        .call(&key, "POST", "/v1/links/batch", Some(rows.clone()))
        .await;
    let statuses = |answer: &Answer| -> Vec<Value> {
        let results = answer.json();
        let results = results.as_array().expect("results").iter();
        results.map(|it| it["status"].clone()).collect()
    };
    assert_eq!(statuses(&answer), [201, 201, 403, 201, 403]);
    let results = answer.json();
    let problem = &results[2]["problem"];
    assert_eq!(problem["type"], "urn:shortlink:problem:over-quota");
    assert_eq!(
        problem["quota"],
        json!({"of": "campaign", "limit": 2, "used": 2})
    );
    assert_eq!(problem["errors"][0]["pointer"], "/campaignId");
    let problem = &results[4]["problem"];
    assert_eq!(
        problem["quota"],
        json!({"of": "key", "limit": 3, "used": 3})
    );

    let single = service
        .call(&key, "POST", "/v1/links", Some(plain.clone()))
        .await;
    assert_eq!(single.status, 403);
    assert_eq!(single.json()["quota"], problem["quota"]);
    assert_eq!(send("GET", &key_path, None).await.json()["linksCreated"], 3);
    let shown = send("GET", &campaign_path, None).await.json();
    assert_eq!(
        (&shown["maxLinks"], &shown["linksCreated"]),
        (&json!(2), &json!(2))
    );

    // A request with an idempotency key can be repeated once the quota allows it.
    let once = async || {
        let request = Request::builder()
            .method("POST")
            .uri("/v1/links/batch")
            .header("x-api-key", &key)
            .header("idempotency-key", "once")
            .header("content-type", "application/json")
            .body(Body::from(json!([plain, plain]).to_string()));
        service.send(request.expect("a good request")).await
    };
    assert_eq!(statuses(&once().await), [403, 403]);
    let more = json!({"policy": {"maxLinks": 4}});
    assert_eq!(send("PATCH", &key_path, Some(more)).await.status, 200);
    let first = once().await;
    assert_eq!(statuses(&first), [201, 403]);
    let none = json!({"policy": null});
    assert_eq!(send("PATCH", &key_path, Some(none)).await.status, 200);
    let second = once().await;
    assert_eq!(statuses(&second), [201, 201]);
    let code = |answer: &Answer| answer.json()[0]["link"]["shortCode"].clone();
    assert_eq!(code(&first), code(&second));
    let none = json!({"maxLinks": null});
    let changed = send("PATCH", &campaign_path, Some(none)).await.json();
    assert_eq!(changed["maxLinks"], Value::Null);
    let answer = service.call(&key, "POST", "/v1/links", Some(row)).await;
    assert_eq!(answer.status, 201);
}
