//! Lengths of codes that are full.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, Scope};

use super::batch::{NDJSON, lines, send};
use super::{NewKey, Service, new_key};

#[tokio::test]
async fn a_full_length_is_the_fault_of_each_request_that_asks_for_it() {
    let service = Service::new().await;
    let row = json!({"longUrl": "https://example.com/", "codeLength": 1});
    let batch = |key| {
        let body = format!("{row}\n").repeat(100);
        send(&service, NDJSON, key, Body::from(body))
    };
    for key in [None, Some("again")] {
        let results = lines(&batch(key).await);
        let full: Vec<&Value> = results.iter().filter(|it| it["status"] != 201).collect();
        assert!(full.len() > 30, "{results:?}");
        for result in full {
            assert_eq!(result["status"], 422);
            assert_eq!(result["problem"]["errors"][0]["pointer"], "/codeLength");
        }
    }
    let single = |key: Option<&str>| {
        let mut request = Request::builder()
            .method("POST")
            .uri("/v1/links")
            .header("x-api-key", &service.writer)
            .header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        service.send(
            request
                .body(Body::from(row.to_string()))
                .expect("a request"),
        )
    };
    for key in [None, Some("single")] {
        let answer = single(key).await;
        assert_eq!(answer.status, 422);
        assert_eq!(answer.json()["errors"][0]["pointer"], "/codeLength");
    }
}

#[tokio::test]
async fn batches_at_once_do_not_exceed_the_capacity_of_a_length() {
    let service = Service::new().await;
    // One of two codes may have a link.
    for (strategy, length, most) in [("permuted", 2, 1922), ("pool", 1, 31)] {
        let row = |n: u64| {
            let target = format!("https://example.com/{n}");
            json!({"longUrl": target, "codeLength": length, "strategy": strategy}).to_string()
        };
        let batch = || {
            let rows: Vec<String> = (0..most).map(row).collect();
            send(&service, NDJSON, None, Body::from(rows.join("\n")))
        };
        let (one, other, third) = tokio::join!(batch(), batch(), batch());
        let results = [one, other, third].map(|answer| lines(&answer));
        let count = |status| {
            let of_status = results.iter().flatten();
            of_status.filter(|it| it["status"] == status).count() as u64
        };
        assert_eq!((count(201), count(422)), (most, 2 * most), "{strategy}");
    }
}

#[tokio::test]
async fn a_full_length_is_the_fault_of_what_has_set_it() {
    let service = Service::new().await;
    let short = NewKey {
        policy: KeyPolicy {
            max_body_length: Some(1),
            ..KeyPolicy::default()
        },
        ..new_key(&[Scope::LinksWrite])
    };
    let (_, short) = service.key(1, short).await;
    let campaign = json!({
        "name": "x", "longUrl": "https://example.com/", "defaults": {"codeLength": 1},
    });
    let campaign = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(campaign));
    let id = campaign.await.json()["id"].clone();
    let own = json!({"longUrl": "https://example.com/"});
    let row = json!({"longUrl": "https://example.com/", "codeLength": 1});
    let fill = format!("{row}\n").repeat(100);
    send(&service, NDJSON, None, Body::from(fill)).await;
    let of_campaign = json!({"campaignId": id});
    let both = json!({"campaignId": id, "codeLength": 1});
    for (key, body, pointer, detail) in [
        (&service.writer, &row, "/codeLength", "of this length"),
        (&service.writer, &both, "/codeLength", "of this length"),
        (&service.writer, &of_campaign, "/campaignId", "defaults"),
        (&short, &row, "/codeLength", "of this length"),
        (&short, &own, "", "policy of the API key"),
    ] {
        let single = service.call(key, "POST", "/v1/links", Some(body.clone()));
        let single = single.await.json();
        let request = Request::builder()
            .method("POST")
            .uri("/v1/links/batch")
            .header("x-api-key", key)
            .header("content-type", NDJSON)
            .body(Body::from(body.to_string()));
        let batch = service.send(request.expect("a request")).await;
        for problem in [&single, &lines(&batch)[0]["problem"]] {
            assert_eq!(problem["status"], 422, "{body}: {problem}");
            let error = &problem["errors"][0];
            assert_eq!(error["pointer"], pointer, "{body}: {problem}");
            assert!(error["detail"].to_string().contains(detail), "{problem}");
        }
    }
}
