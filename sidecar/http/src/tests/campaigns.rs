//! `/v1/campaigns`: creating, changing, pausing, revoking and listing.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Answer, Service};

const TEMPLATE: &str = "https://shop.example.com/p?m={member}&c={code}";

async fn create(service: &Service, body: Value) -> Answer {
    service
        .call(&service.campaigner, "POST", "/v1/campaigns", Some(body))
        .await
}

async fn post(service: &Service, path: &str) -> Answer {
    service.call(&service.campaigner, "POST", path, None).await
}

async fn patch(service: &Service, path: &str, body: Value) -> Answer {
    service
        .call(&service.campaigner, "PATCH", path, Some(body))
        .await
}

#[tokio::test]
async fn a_campaign_lives_from_creation_to_revocation() {
    let service = Service::new().await;
    let body = json!({"name": "Spring", "longUrl": TEMPLATE, "externalId": "s-26"});
    let created = create(&service, body).await;
    assert_eq!(created.status, 201);
    let campaign = created.json();
    let id = campaign["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/campaigns/{id}");
    assert_eq!(created.header("location"), Some(&*path));
    assert_eq!(
        campaign,
        json!({
            "id": id,
            "name": "Spring",
            "longUrl": TEMPLATE,
            "parameters": ["member"],
            "redirectStatus": 302,
            "forwardQuery": false,
            "state": "live",
            "validSince": null,
            "validUntil": null,
            "externalId": "s-26",
            "note": null,
            "defaults": {},
            "maxLinks": null,
            "clickId": null,
            "revision": 1,
            "createdAt": "2026-06-01T00:00:00Z",
            "updatedAt": "2026-06-01T00:00:00Z",
            "published": true,
        })
    );
    let record = |service: &Service| service.redis.campaign_record(&id);
    let first = "1 302 1 0 https://shop.example.com/p?m={0}&c={code}";
    assert_eq!(record(&service).as_deref(), Some(first));

    // Retarget: a place may go, but its links have no value for another one.
    let refused = patch(
        &service,
        &path,
        json!({"longUrl": "https://e.example/{other}"}),
    )
    .await;
    assert_eq!(
        (refused.status, refused.pointers()),
        (422, vec!["/longUrl".to_owned()])
    );
    let change = json!({"longUrl": "https://e.example/{code}", "forwardQuery": true});
    for _ in 0..2 {
        let changed = patch(&service, &path, change.clone()).await.json();
        assert_eq!(changed["revision"], 2);
    }
    let second = "1 302q 2 0 https://e.example/{code}";
    assert_eq!(record(&service).as_deref(), Some(second));

    for (what, state, revision, kept) in [
        ("pause", "paused", 3, "1 410 3"),
        ("pause", "paused", 3, "1 410 3"),
        ("resume", "live", 4, "1 302q 4 0 https://e.example/{code}"),
    ] {
        let answer = post(&service, &format!("{path}/{what}")).await;
        let campaign = answer.json();
        assert_eq!(
            (&campaign["state"], &campaign["revision"]),
            (&json!(state), &json!(revision))
        );
        assert_eq!(record(&service).as_deref(), Some(kept));
    }

    let until = json!({"validSince": "2026-06-02T00:00:00Z", "validUntil": "2026-06-03T00:00:00Z"});
    let changed = patch(&service, &path, until).await.json();
    assert_eq!(changed["state"], "scheduled");
    for (state, hours) in [("live", 30), ("expired", 24)] {
        service.clock.advance(SignedDuration::from_hours(hours));
        assert_eq!(service.look(&path).await.json()["state"], state);
    }

    for _ in 0..2 {
        let revoked = service
            .call(&service.campaigner, "DELETE", &path, None)
            .await;
        assert_eq!(
            (revoked.status, &revoked.json()["state"]),
            (200, &json!("revoked"))
        );
    }
    assert_eq!(record(&service).as_deref(), Some("1 410 6"));
    let refused = patch(&service, &path, json!({"name": "x"})).await;
    assert_eq!(refused.status, 409);
}

#[tokio::test]
async fn what_is_wrong_with_a_campaign_is_told_at_once() {
    let service = Service::new().await;
    for (body, pointers) in [
        (json!({}), vec!["/longUrl", "/name"]),
        (
            json!({"name": " ", "longUrl": "https://{a}.example.com/"}),
            vec!["/longUrl", "/name"],
        ),
        (
            json!({"name": "x", "longUrl": "https://s.example.com/{a}"}),
            vec!["/longUrl"],
        ),
        (
            json!({"name": "x", "longUrl": TEMPLATE, "parameters": ["code"], "more": 1}),
            vec!["/longUrl", "/more"],
        ),
        (
            json!({"name": "x", "longUrl": TEMPLATE, "forwardQuery": 1, "redirectStatus": 303}),
            vec!["/forwardQuery", "/redirectStatus"],
        ),
        (
            json!({"name": "x", "longUrl": TEMPLATE, "validUntil": "2026-05-31T00:00:00Z"}),
            vec!["/validUntil"],
        ),
        (
            json!({"name": "x", "longUrl": TEMPLATE, "validSince": "2026-07-02T00:00:00Z",
                "validUntil": "2026-07-01T00:00:00Z"}),
            vec!["/validUntil"],
        ),
    ] {
        let refused = create(&service, body.clone()).await;
        assert_eq!(refused.status, 422, "{body}");
        let mut told = refused.pointers();
        told.sort();
        told.dedup();
        assert_eq!(told, pointers, "{body}");
    }
    for path in ["/v1/campaigns/zz", "/v1/campaigns/0", "/v1/campaigns/-"] {
        assert_eq!(service.look(path).await.status, 404, "{path}");
    }
    let refused = service
        .call(&service.reader, "POST", "/v1/campaigns", Some(json!({})))
        .await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn campaigns_are_listed_from_the_latest() {
    let service = Service::new().await;
    for number in 0..5 {
        let body = json!({"name": format!("c{number}"), "longUrl": TEMPLATE});
        assert_eq!(create(&service, body).await.status, 201);
    }
    let mut names = Vec::new();
    let mut path = "/v1/campaigns?limit=2".to_owned();
    loop {
        let page = service.look(&path).await.json();
        for campaign in page["campaigns"].as_array().expect("a list") {
            names.push(campaign["name"].as_str().expect("a name").to_owned());
        }
        let Some(cursor) = page["nextCursor"].as_str() else {
            break;
        };
        path = format!("/v1/campaigns?limit=2&cursor={cursor}");
    }
    assert_eq!(names, ["c4", "c3", "c2", "c1", "c0"]);
}

#[tokio::test]
async fn a_change_is_told_to_redis_when_it_is_back() {
    let service = Service::new().await;
    service.redis.set_away(true);
    let created = create(&service, json!({"name": "x", "longUrl": TEMPLATE})).await;
    assert_eq!(
        (created.status, &created.json()["published"]),
        (201, &json!(false))
    );
    let waiting = service.kept.store.waiting_campaigns().await;
    assert_eq!(waiting.expect("a store").len(), 1);
}
