//! `/v1/utm-templates`: UTM parameters that a team shares.

use serde_json::{Value, json};
use shortlink_core::api_key::Scope;

use super::{Service, new_key};

const PATH: &str = "/v1/utm-templates";

#[tokio::test]
async fn templates_are_stored_replaced_and_deleted_for_all() {
    let service = Service::new().await;
    let (id, key) = service.key(1, new_key(&[Scope::Admin])).await;
    let store = async |name: &str, utm: Value| {
        let body = json!({"name": name, "utm": utm});
        service.call(&key, "PUT", PATH, Some(body)).await
    };
    for (name, utm) in [
        ("b/c", json!({"source": "news"})),
        ("A", json!({"source": "a", "medium": "sms", "term": null})),
        ("b/c", json!({"content": "ü"})),
    ] {
        assert_eq!(store(name, utm).await.status, 200, "{name}");
    }
    let all = service.get(PATH).await.json();
    let all = all["templates"].as_array().expect("templates");
    let pairs: Vec<_> = all.iter().map(|it| (&it["name"], &it["utm"])).collect();
    let (first, second) = (
        json!({"source": "a", "medium": "sms"}),
        json!({"content": "ü"}),
    );
    assert_eq!(pairs, [(&json!("A"), &first), (&json!("b/c"), &second)]);
    assert_eq!(all[0]["updatedBy"], id);
    let path = format!("{PATH}/b%2Fc");
    let deleted = service.call(&key, "DELETE", &path, None).await;
    assert_eq!((deleted.status, &deleted.json()["utm"]), (200, &second));
    assert_eq!(service.call(&key, "DELETE", &path, None).await.status, 404);
    let audit = service
        .call(&key, "GET", "/v1/audit?subject=utm-template:b/c", None)
        .await;
    let entries = audit.json();
    let actions = entries["entries"].as_array().expect("entries").iter();
    let actions: Vec<_> = actions
        .map(|it| it["action"].as_str().expect("text"))
        .collect();
    assert_eq!(
        actions,
        [
            "utm-template.delete",
            "utm-template.store",
            "utm-template.store"
        ]
    );
}

#[tokio::test]
async fn templates_that_cannot_be_are_refused_with_their_faults() {
    let service = Service::new().await;
    let (_, key) = service.key(1, new_key(&[Scope::Admin])).await;
    let long = "x".repeat(256);
    for (body, pointers) in [
        (json!({}), &["/name", "/utm"][..]),
        (json!({"name": " ", "utm": {}}), &["/name", "/utm"]),
        (
            json!({"name": "x".repeat(65), "utm": {"source": long}}),
            &["/name", "/utm/source"],
        ),
        (
            json!({"name": "a", "utm": {"other": "x"}, "more": 1}),
            &["/more", "/utm", "/utm/other"],
        ),
    ] {
        let answer = service.call(&key, "PUT", PATH, Some(body.clone())).await;
        assert_eq!(answer.status, 422, "{body}");
        let mut found = answer.pointers();
        found.sort();
        assert_eq!(found, pointers, "{body}");
    }
    for number in 0..200 {
        let body = json!({"name": format!("n{number}"), "utm": {"source": "a"}});
        let answer = service.call(&key, "PUT", PATH, Some(body)).await;
        assert_eq!(answer.status, 200);
    }
    let put = async |name: &str| {
        let body = json!({"name": name, "utm": {"source": "b"}});
        service.call(&key, "PUT", PATH, Some(body)).await
    };
    let full = put("one more").await;
    assert_eq!(full.status, 409);
    assert_eq!(
        full.json()["type"],
        "urn:shortlink:problem:too-many-templates"
    );
    assert_eq!(put("n7").await.status, 200);
}
