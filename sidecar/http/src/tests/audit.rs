//! The audit log of links and campaigns.

use serde_json::{Value, json};
use shortlink_core::api_key::Scope;

use super::campaign_links::{TEMPLATE, patch, post, spring};
use super::{Service, new_key};

#[tokio::test]
async fn what_is_done_to_links_and_campaigns_is_in_the_audit_log() {
    let service = Service::new().await;
    let (_, admin) = service.key(7, new_key(&[Scope::Admin])).await;
    let id = spring(&service).await;
    let path = format!("/v1/campaigns/{id}");
    let renamed = json!({"name": "Easter"});
    service
        .call(&service.campaigner, "PATCH", &path, Some(renamed.clone()))
        .await;
    // A repeated change has no effect and is not recorded.
    service
        .call(&service.campaigner, "PATCH", &path, Some(renamed))
        .await;
    let planned = json!({
        "rules": [{
            "device": ["ios"], "country": ["DE"], "validUntil": "2027-01-01T00:00:00Z",
            "query": {"name": "a"}, "percent": 12.5, "variant": "b", "longUrl": "https://e.example/{member}",
        }],
        "expiredTarget": "https://e.example/{member}/ended",
        "preview": {"title": "Spring", "image": "https://e.example/i.png"},
    });
    let cleared = json!({"rules": null});
    for body in [planned.clone(), cleared] {
        service
            .call(&service.campaigner, "PATCH", &path, Some(body))
            .await;
    }
    for what in ["pause", "resume"] {
        post(&service, &format!("{path}/{what}")).await;
    }
    let body = json!({"campaignId": id, "parameters": {"member": "1"}, "customSlug": "one"});
    service.create(body).await;
    let body = json!({"parameters": {"member": "secret"}, "note": "was wrong"});
    patch(&service, "/v1/links/one", body).await;
    for what in ["pause", "resume"] {
        let path = format!("/v1/links/one/{what}");
        service.call(&service.writer, "POST", &path, None).await;
    }
    for (key, path) in [
        (&service.writer, "/v1/links/one"),
        (&service.campaigner, &*path),
    ] {
        assert_eq!(service.call(key, "DELETE", path, None).await.status, 200);
    }
    let log = async |query: &str| {
        let path = format!("/v1/audit?{query}");
        let answer = service.call(&admin, "GET", &path, None).await.json();
        let entries = answer["entries"].as_array().expect("entries").clone();
        entries
            .into_iter()
            .map(|entry| (entry["action"].clone(), entry["detail"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        log("subject=link:one").await,
        [
            (json!("link.revoke"), json!({"revision": 5})),
            (json!("link.resume"), json!({"revision": 4})),
            (json!("link.pause"), json!({"revision": 3})),
            (
                json!("link.change"),
                json!({"revision": 2, "changed": ["parameters", "note"]})
            ),
        ]
    );
    let of_campaign = log(&format!("subject=campaign:{id}")).await;
    let actions: Vec<&Value> = of_campaign.iter().map(|(action, _)| action).collect();
    assert_eq!(
        actions,
        [
            "campaign.revoke",
            "campaign.resume",
            "campaign.pause",
            "campaign.change",
            "campaign.change",
            "campaign.change",
            "campaign.create"
        ]
    );
    assert_eq!(of_campaign[3].1, json!({"revision": 4, "rules": []}));
    let mut detail = planned;
    detail["revision"] = json!(3);
    assert_eq!(of_campaign[4].1, detail);
    assert_eq!(of_campaign[5].1, json!({"revision": 2, "name": "Easter"}));
    assert_eq!(of_campaign[6].1["longUrl"], TEMPLATE);
}
