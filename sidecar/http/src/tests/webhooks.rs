//! Webhooks as clients see them.

use async_trait::async_trait;
use shortlink_core::testing::moment;
use shortlink_core::webhook::{Answer, Message, MessageSender, SendError};

use super::*;

/// A sender whose endpoints accept nothing.
pub(super) struct Refusing;

#[async_trait]
impl MessageSender for Refusing {
    async fn send(&self, _message: Message) -> Result<Answer, SendError> {
        Ok(Answer {
            status: 503,
            retry_after: None,
        })
    }
}

/// A service and a key that manages webhooks.
async fn scene() -> (Service, String) {
    let service = Service::new().await;
    let (_, key) = service.key(50, new_key(&[Scope::WebhooksAdmin])).await;
    (service, key)
}

#[tokio::test]
async fn a_webhook_is_created_changed_and_deleted() {
    let (service, key) = scene().await;
    let call = async |method: &str, path: &str, body: Option<Value>| {
        service.call(&key, method, path, body).await
    };
    let body = json!({"name": "CRM", "url": "HTTPS://Hooks.example.com:443/a/../b?c"});
    let created = call("POST", "/v1/webhooks", Some(body)).await;
    let webhook = created.json();
    assert_eq!(created.status, 201, "{webhook}");
    let id = webhook["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/webhooks/{id}");
    assert_eq!(created.header("location"), Some(&*path));
    for (member, value) in [
        ("url", json!("https://hooks.example.com/b?c")),
        ("clicks", json!("first")),
        ("events", json!(shortlink_core::webhook::EventType::ALL)),
        ("campaignIds", json!(null)),
        ("maxBatch", json!(1)),
        ("state", json!("active")),
    ] {
        assert_eq!(webhook[member], value, "{member}");
    }
    let secret = webhook["secret"].as_str().expect("a secret");
    assert!(secret.starts_with("whsec_"), "{secret}");
    let shown = call("GET", &path, None).await.json();
    assert_eq!(shown.get("secret"), None);
    let body =
        json!({"clicks": "each", "campaignIds": ["1"], "tags": ["b", "a"], "classes": ["human"]});
    let changed = call("PATCH", &path, Some(body)).await.json();
    assert_eq!(changed["tags"], json!(["a", "b"]));
    let body = json!({"campaignIds": null, "tags": null});
    let changed = call("PATCH", &path, Some(body)).await.json();
    assert_eq!(
        (&changed["tags"], &changed["classes"]),
        (&json!(null), &json!(["human"]))
    );
    let rotate = Some(json!({"overlapSeconds": 60}));
    let rotated = call("POST", &format!("{path}/rotate"), rotate).await.json();
    assert_ne!(rotated["secret"], secret);
    assert_eq!(rotated["previousSecretUntil"], "2026-06-01T00:01:00Z");
    let attempt = call("POST", &format!("{path}/test"), None).await.json();
    assert_eq!(
        (&attempt["delivered"], &attempt["status"]),
        (&json!(false), &json!(503))
    );
    let attempts = call("GET", &format!("{path}/attempts"), None).await.json();
    assert_eq!(attempts["attempts"], json!([attempt]));
    let paused = call("POST", &format!("{path}/pause"), None).await.json();
    assert_eq!(
        (&paused["state"], &paused["pausedReason"]),
        (&json!("paused"), &json!("requested"))
    );
    let resumed = call("POST", &format!("{path}/resume"), None).await.json();
    assert_eq!(resumed["state"], "active");
    let list = call("GET", "/v1/webhooks", None).await.json();
    assert_eq!(list["webhooks"], json!([resumed]));
    assert_eq!(call("DELETE", &path, None).await.status, 200);
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/pause")),
        ("POST", format!("{path}/test")),
        ("GET", format!("{path}/attempts")),
    ] {
        assert_eq!(
            call(method, &path, None).await.status,
            404,
            "{method} {path}"
        );
    }
    let (_, admin) = service.key(52, new_key(&[Scope::Admin])).await;
    let log = service.call(&admin, "GET", "/v1/audit", None).await.json();
    let log = log.to_string();
    assert!(log.contains("webhook.rotate"), "{log}");
    // Neither the secret, nor one that the URL may have.
    assert!(!log.contains("whsec") && !log.contains("b?c"), "{log}");
}

#[tokio::test]
async fn faults_of_a_webhook_are_reported_together() {
    let (service, key) = scene().await;
    let create = async |body: Value| service.call(&key, "POST", "/v1/webhooks", Some(body)).await;
    for (body, pointers) in [
        (json!({}), vec!["/name", "/url"]),
        (
            json!({"name": " ", "url": "http://hooks.example.com/", "clicks": "all", "maxBatch": 0}),
            vec!["/name", "/clicks", "/maxBatch", "/url"],
        ),
        (
            json!({"name": "a", "url": "https://10.0.0.1/", "events": ["link.made"], "classes": ["ghost"]}),
            vec!["/events/0", "/classes/0", "/url"],
        ),
        (
            json!({"name": "a", "url": "https://a.example.com/", "events": [], "tags": [], "campaignIds": []}),
            vec!["/events", "/campaignIds", "/tags"],
        ),
        (
            json!({"name": "a", "url": "https://a.example.com/", "secret": "whsec_"}),
            vec!["/secret"],
        ),
    ] {
        let answer = create(body.clone()).await;
        assert_eq!(
            (answer.status, answer.pointers()),
            (422, pointers.iter().map(|it| (*it).to_owned()).collect()),
            "{body}"
        );
    }
    let body = json!({"name": "a", "url": "https://a.example.com/"});
    let created = create(body.clone()).await.json();
    let replay = format!(
        "/v1/webhooks/{}/replay",
        created["id"].as_str().expect("an id")
    );
    for since in [
        json!("2026-05-31T23:59:59Z"),
        json!("yesterday"),
        json!(null),
    ] {
        let body = Some(json!({"since": since}));
        let answer = service.call(&key, "POST", &replay, body).await;
        assert_eq!(
            (answer.status, answer.pointers()),
            (422, vec!["/since".to_owned()])
        );
    }
    for _ in 1..100 {
        assert_eq!(create(body.clone()).await.status, 201);
    }
    assert_eq!(create(body).await.status, 409);
    let (_, other) = service.key(51, new_key(&[Scope::StatsRead])).await;
    assert_eq!(
        service
            .call(&other, "GET", "/v1/webhooks", None)
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn metrics_have_the_state_and_the_lag_of_webhooks() {
    let (service, key) = scene().await;
    let body = json!({"name": "a", "url": "https://a.example.com/"});
    let created = service
        .call(&key, "POST", "/v1/webhooks", Some(body))
        .await
        .json();
    let id = created["id"].as_str().expect("an id");
    let store = &service.kept.store;
    let webhook = store.find_webhook(id).await.expect("a store").expect("one");
    let delivered = shortlink_store::Delivered {
        id: id.to_owned(),
        fence: webhook.fence,
        progress: webhook.progress,
        failing_since: Some(moment("2026-05-31T23:00:00Z")),
        waiting_since: Some(moment("2026-05-31T23:59:00Z")),
        events: 0,
        attempts: Vec::new(),
        pause: None,
    };
    let noted = store.note_delivered(vec![delivered], moment("2026-06-01T00:00:00Z"));
    noted.await.expect("a store");
    let page = service.call("", "GET", "/metrics", None).await;
    let text = String::from_utf8(page.body).expect("text");
    for line in [
        "shortlink_webhooks{state=\"failing\",reason=\"\"} 1\n",
        "shortlink_webhooks{state=\"paused\",reason=\"gone\"} 0\n",
        "shortlink_webhook_lag_seconds 60\n",
        "shortlink_webhook_messages_total{result=\"refused\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} is missing: {text}");
    }
}
