//! Links of campaigns: creating, changing, showing, listing and resolving.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{Answer, Service};

pub(super) const TEMPLATE: &str = "https://shop.example.com/p?m={member}&c={code}";

/// Creates a campaign and returns its id.
async fn campaign(service: &Service, body: Value) -> String {
    let created = service
        .call(&service.campaigner, "POST", "/v1/campaigns", Some(body))
        .await;
    assert_eq!(created.status, 201);
    created.json()["id"].as_str().expect("an id").to_owned()
}

pub(super) async fn spring(service: &Service) -> String {
    campaign(service, json!({"name": "Spring", "longUrl": TEMPLATE})).await
}

pub(super) async fn post(service: &Service, path: &str) -> Answer {
    service.call(&service.campaigner, "POST", path, None).await
}

pub(super) async fn patch(service: &Service, path: &str, body: Value) -> Answer {
    service
        .call(&service.writer, "PATCH", path, Some(body))
        .await
}

#[tokio::test]
async fn a_link_of_a_campaign_is_shown_with_what_its_campaign_says() {
    let service = Service::new().await;
    let id = spring(&service).await;
    let body = json!({
        "campaignId": id,
        "parameters": {"member": "Zoë & co"},
        "customSlug": "zoe",
    });
    let created = service.create(body).await;
    assert_eq!(created.status, 201);
    let shown = json!({
        "shortCode": "zoe",
        "shortUrl": "https://s.example.com/zoe",
        "state": "live",
        "campaignState": "live",
        "longUrl": "https://shop.example.com/p?m=Zo%C3%AB%20%26%20co&c=zoe",
        "campaignId": id,
        "parameters": {"member": "Zoë & co"},
        "redirectStatus": 302,
        "forwardQuery": false,
        "validSince": null,
        "validUntil": null,
        "maxVisits": null,
        "strategy": "custom",
        "tags": [],
        "externalId": null,
        "note": null,
        "domain": null,
        "revision": 1,
        "createdAt": "2026-06-01T00:00:00Z",
        "updatedAt": "2026-06-01T00:00:00Z",
        "createdBy": created.json()["createdBy"],
    });
    let mut answered = created.json();
    assert_eq!(answered["published"], true);
    answered
        .as_object_mut()
        .and_then(|members| members.remove("published"));
    assert_eq!(answered, shown);
    let mut visited = shown;
    visited["createdByName"] = json!("test");
    visited["visits"] = json!({
        "total": 0, "human": 0, "refused": 0, "lastAt": null,
        "clicks": 0, "firstClickAt": null, "lastClickAt": null,
    });
    assert_eq!(service.get("/v1/links/zoe").await.json(), visited);
    let record = format!("c{id} Zo%C3%AB%20%26%20co");
    assert_eq!(service.redis.record("zoe"), Some(record));

    // The campaign's values apply.
    let change = json!({"redirectStatus": 307, "longUrl": "https://e.example/{member}"});
    let path = format!("/v1/campaigns/{id}");
    let changed = service
        .call(&service.campaigner, "PATCH", &path, Some(change))
        .await;
    assert_eq!(changed.status, 200);
    assert_eq!(post(&service, &format!("{path}/pause")).await.status, 200);
    let link = service.get("/v1/links/zoe").await.json();
    assert_eq!(link["redirectStatus"], 307);
    assert_eq!(link["longUrl"], "https://e.example/Zo%C3%AB%20%26%20co");
    assert_eq!(
        (&link["state"], &link["campaignState"]),
        (&json!("live"), &json!("paused"))
    );
    // Links without a campaign have no members of one.
    let plain = service
        .create(json!({"longUrl": "https://example.com/"}))
        .await
        .json();
    for member in ["campaignId", "campaignState", "parameters"] {
        assert!(plain.get(member).is_none(), "{plain}");
    }
}

#[tokio::test]
async fn what_does_not_fit_the_campaign_is_refused_by_name() {
    let service = Service::new().await;
    let id = spring(&service).await;
    let bare = json!({"name": "None", "longUrl": "https://example.com/{code}"});
    let bare = campaign(&service, bare).await;
    let revoked = spring(&service).await;
    let path = format!("/v1/campaigns/{revoked}");
    let gone = service.call(&service.campaigner, "DELETE", &path, None);
    assert_eq!(gone.await.status, 200);
    let values = json!({"member": "1"});
    let long = "ü".repeat(171);
    for (body, pointers) in [
        (json!({"campaignId": id}), vec!["/parameters/member"]),
        (
            json!({"campaignId": id, "parameters": {"member": 1, "other": "x"}}),
            vec!["/parameters/member", "/parameters/other"],
        ),
        (
            json!({"campaignId": id, "parameters": {"member": ""}}),
            vec!["/parameters"],
        ),
        (
            json!({"campaignId": id, "parameters": {"member": ".."}}),
            vec!["/parameters/member"],
        ),
        (
            json!({"campaignId": id, "parameters": {"member": "a\nb"}}),
            vec!["/parameters/member"],
        ),
        (
            json!({"campaignId": id, "parameters": {"member": long}}),
            vec!["/parameters/member"],
        ),
        (
            json!({"campaignId": id, "parameters": [1]}),
            vec!["/parameters", "/parameters/member"],
        ),
        (
            json!({
                "campaignId": id, "parameters": values, "longUrl": "nonsense",
                "redirectStatus": 301, "forwardQuery": true, "utm": {"source": "sms"},
            }),
            vec!["/longUrl", "/utm", "/redirectStatus", "/forwardQuery"],
        ),
        (
            json!({"campaignId": "zzzz", "parameters": values}),
            vec!["/campaignId"],
        ),
        (
            json!({"campaignId": "a-b", "parameters": values}),
            vec!["/campaignId"],
        ),
        (json!({"campaignId": 7}), vec!["/campaignId"]),
        (
            json!({"campaignId": revoked, "parameters": values}),
            vec!["/campaignId"],
        ),
        (
            json!({"longUrl": "https://example.com/", "parameters": values}),
            vec!["/parameters"],
        ),
        (
            json!({"parameters": values}),
            vec!["/parameters", "/longUrl"],
        ),
    ] {
        let refused = service.create(body.clone()).await;
        assert_eq!(
            (refused.status, refused.pointers()),
            (422, pointers.iter().map(|p| (*p).to_owned()).collect()),
            "{body}"
        );
    }
    // A campaign without parameters requires none.
    for body in [
        json!({"campaignId": bare}),
        json!({"campaignId": bare, "parameters": {}}),
        json!({"campaignId": bare, "longUrl": null, "forwardQuery": null}),
    ] {
        let created = service.create(body.clone()).await;
        assert_eq!(created.status, 201, "{body}");
    }
}

#[tokio::test]
async fn values_can_be_changed_and_nothing_that_the_campaign_says() {
    let service = Service::new().await;
    let id = spring(&service).await;
    let body = json!({"campaignId": id, "parameters": {"member": "1"}, "customSlug": "one"});
    assert_eq!(service.create(body).await.status, 201);
    let changed = patch(
        &service,
        "/v1/links/one",
        json!({"parameters": {"member": "2"}, "note": "was wrong"}),
    )
    .await;
    let changed = changed.json();
    assert_eq!(changed["longUrl"], "https://shop.example.com/p?m=2&c=one");
    assert_eq!(changed["revision"], 2);
    let record = format!("1 C{id} 2 0 2");
    assert_eq!(service.redis.record("one"), Some(record));
    let history = service.get("/v1/links/one/history").await.json();
    let before = &history["history"][0]["before"];
    assert_eq!(before["parameters"], json!({"member": "1"}));
    assert_eq!(before["campaignId"], json!(id));
    assert!(before.get("longUrl").is_none(), "{before}");

    for (body, pointers) in [
        (
            json!({"parameters": {"other": "2"}}),
            vec!["/parameters/member", "/parameters/other"],
        ),
        (json!({"parameters": null}), vec!["/parameters"]),
        (
            json!({"longUrl": "https://example.com/", "forwardQuery": true}),
            vec!["/longUrl", "/forwardQuery"],
        ),
        (json!({"redirectStatus": 301}), vec!["/redirectStatus"]),
        (json!({"campaignId": id}), vec!["/campaignId"]),
    ] {
        let refused = patch(&service, "/v1/links/one", body.clone()).await;
        assert_eq!(
            (refused.status, refused.pointers()),
            (422, pointers.iter().map(|p| (*p).to_owned()).collect()),
            "{body}"
        );
    }
    let plain = json!({"longUrl": "https://example.com/", "customSlug": "plain"});
    assert_eq!(service.create(plain).await.status, 201);
    let refused = patch(&service, "/v1/links/plain", json!({"parameters": {}})).await;
    assert_eq!(
        (refused.status, refused.pointers()),
        (422, vec!["/parameters".to_owned()])
    );
    let missing = patch(&service, "/v1/links/nobody", json!({"parameters": {}})).await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn the_links_of_a_campaign_are_listed_and_found_again() {
    let service = Service::new().await;
    let (id, other) = (spring(&service).await, spring(&service).await);
    let with = |id: &str, member: &str| json!({"campaignId": id, "parameters": {"member": member}, "dedupe": true});
    let first = service.create(with(&id, "1")).await.json();
    let again = service.create(with(&id, "1")).await;
    assert_eq!(
        (again.status, &again.json()["shortCode"]),
        (200, &first["shortCode"])
    );
    for (id, member) in [(&id, "2"), (&other, "1")] {
        assert_eq!(service.create(with(id, member)).await.status, 201);
    }
    for (query, count) in [
        (format!("campaignId={id}"), 2),
        (format!("campaignId={other}&state=live"), 1),
        (format!("campaignId={other}&state=revoked"), 0),
        ("campaignId=zz".to_owned(), 0),
        ("state=live".to_owned(), 3),
    ] {
        let listed = service.get(&format!("/v1/links?{query}")).await.json();
        let links = listed["links"].as_array().expect("links");
        assert_eq!(links.len(), count, "{query}");
        for link in links {
            assert!(link["longUrl"].is_string(), "{link}");
        }
    }
    let refused = service.get("/v1/links?campaignId=a-b").await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn a_batch_makes_links_of_campaigns_in_every_form() {
    let service = Service::new().await;
    let (id, other) = (spring(&service).await, spring(&service).await);
    let send = async |media_type: &str, key: Option<&str>, body: String| {
        let mut request = Request::builder()
            .method("POST")
            .uri("/v1/links/batch")
            .header("x-api-key", &service.writer)
            .header("content-type", media_type)
            .header("accept", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Body::from(body)).expect("a request");
        service.send(request).await.json()
    };
    let rows = json!([
        {"campaignId": id, "parameters": {"member": "1"}, "customSlug": "one"},
        {"campaignId": "zzzz", "parameters": {"member": "1"}},
        {"campaignId": other, "parameters": {"member": "2"}},
        {"longUrl": "https://example.com/"},
    ]);
    for _ in 0..2 {
        let answer = send("application/json", Some("spring"), rows.to_string()).await;
        let statuses: Vec<u64> = answer
            .as_array()
            .expect("results")
            .iter()
            .filter_map(|result| result["status"].as_u64())
            .collect();
        assert_eq!(statuses, [201, 422, 201, 201]);
        let target = "https://shop.example.com/p?m=1&c=one";
        assert_eq!(answer[0]["link"]["longUrl"], target);
        assert_eq!(answer[2]["link"]["campaignId"], json!(other));
        assert_eq!(answer[1]["problem"]["errors"][0]["pointer"], "/campaignId");
    }
    let lines = format!("campaignId,parameters.member,customSlug\n{id},Zoë,zoe\n{id},,none\n");
    let answer = send("text/csv", None, lines).await;
    assert_eq!(answer[0]["link"]["parameters"], json!({"member": "Zoë"}));
    assert_eq!(
        answer[1]["problem"]["errors"][0]["pointer"],
        "/parameters/member"
    );
}

#[tokio::test]
async fn a_batch_says_once_of_which_campaign_its_rows_are() {
    let service = Service::new().await;
    let (id, other) = (spring(&service).await, spring(&service).await);
    let send = async |query: String, key: &str, body: &str| {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/v1/links/batch?{query}"))
            .header("x-api-key", &service.writer)
            .header("content-type", "text/csv")
            .header("accept", "application/json")
            .header("idempotency-key", key)
            .body(Body::from(body.to_owned()));
        service.send(request.expect("a request")).await
    };
    let columns = "columns=parameters.member,,campaignId&delimiter=semicolon";
    let said = format!("campaignId={id}&{columns}");
    let rows = format!("member;name;of\n1;Li, Na;\n2;Zoë;{other}\n");
    let answer = send(said.clone(), "a", &rows).await.json();
    assert_eq!(answer[0]["link"]["campaignId"], json!(id));
    assert_eq!(answer[0]["link"]["parameters"], json!({"member": "1"}));
    assert_eq!(answer[1]["link"]["campaignId"], json!(other));
    let again = send(said, "a", &rows).await.json();
    assert_eq!(
        again[0]["link"]["shortCode"],
        answer[0]["link"]["shortCode"]
    );
    // The same rows of another campaign are another request.
    let elsewhere = send(format!("campaignId={other}&{columns}"), "a", &rows).await;
    assert_eq!(elsewhere.json()[0]["status"], 422);
    let nowhere = send("campaignId=zzzz".to_owned(), "b", &rows).await;
    assert_eq!(nowhere.status, 404);
    let unknown = send("campaign=1".to_owned(), "b", &rows).await;
    assert_eq!(unknown.status, 400);
    let wrong = send("columns=parameters.member,tags".to_owned(), "c", &rows).await;
    let told = wrong.json()[0]["problem"]["detail"].to_string();
    assert!(told.contains("the parameter columns"), "{told}");
}

#[tokio::test]
async fn a_campaign_tells_how_many_links_it_has() {
    let service = Service::new().await;
    let id = spring(&service).await;
    let path = format!("/v1/campaigns/{id}/links");
    let count = async |path: &str| service.call(&service.campaigner, "GET", path, None).await;
    assert_eq!(
        count(&path).await.json(),
        json!({"count": 0, "isAll": true})
    );
    for member in 0..3 {
        let body = json!({"campaignId": id, "parameters": {"member": member.to_string()}});
        assert_eq!(service.create(body).await.status, 201);
    }
    assert_eq!(
        count(&path).await.json(),
        json!({"count": 3, "isAll": true})
    );
    let bounded = count(&format!("{path}?most=2")).await;
    assert_eq!(bounded.json(), json!({"count": 2, "isAll": false}));
    assert_eq!(
        count(&format!("{path}?most=3")).await.json()["isAll"],
        json!(true)
    );
    for query in ["most=0", "most=1000001", "most=x", "limit=1"] {
        assert_eq!(
            count(&format!("{path}?{query}")).await.status,
            400,
            "{query}"
        );
    }
    assert_eq!(count("/v1/campaigns/zzzz/links").await.status, 404);
}

#[tokio::test]
async fn visitors_follow_links_of_campaigns_without_redis() {
    let service = Service::new().await;
    let id = spring(&service).await;
    let path = format!("/v1/campaigns/{id}");
    let of_campaign =
        |slug: &str| json!({"campaignId": id, "parameters": {"member": "1"}, "customSlug": slug});
    assert_eq!(service.create(of_campaign("one")).await.status, 201);
    let mut later = of_campaign("later");
    later["validSince"] = json!("2026-06-02T00:00:00Z");
    assert_eq!(service.create(later).await.status, 201);
    let patch = async |body: Value| {
        let answer = service.call(&service.campaigner, "PATCH", &path, Some(body));
        assert_eq!(answer.await.status, 200);
    };
    let follow = async |code: &str| {
        service.redis.restart();
        let request = Request::builder()
            .uri(format!("/resolve/{code}"))
            .header("x-shortlink-query", "x=y")
            .body(Body::empty());
        let answer = service.send(request.expect("a request")).await;
        let location = answer.header("location").map(str::to_owned);
        (answer.status, location)
    };
    let target = |rest: &str| Some(format!("https://shop.example.com/p?m=1&c=one{rest}"));
    assert_eq!(follow("one").await, (302, target("")));
    shortlink_core::testing::eventually("both records are written", async || {
        service.redis.record("one").is_some() && service.redis.campaign_record(&id).is_some()
    })
    .await;
    patch(json!({"redirectStatus": 308, "forwardQuery": true})).await;
    assert_eq!(follow("one").await, (308, target("&x=y")));
    assert_eq!(follow("later").await, (404, None));
    patch(json!({"validSince": "2026-06-02T00:00:00Z"})).await;
    assert_eq!(follow("one").await, (404, None));
    patch(json!({"validSince": null})).await;
    post(&service, &format!("{path}/pause")).await;
    assert_eq!(follow("one").await, (410, None));
    // The link is not valid yet, regardless of the campaign's state.
    assert_eq!(follow("later").await, (404, None));
    post(&service, &format!("{path}/resume")).await;
    assert_eq!(follow("one").await, (308, target("&x=y")));
    let revoked = service.call(&service.campaigner, "DELETE", &path, None);
    assert_eq!(revoked.await.status, 200);
    assert_eq!(follow("one").await, (410, None));
}

#[tokio::test]
async fn new_links_are_as_their_campaign_says_unless_they_say_otherwise() {
    let service = Service::new().await;
    let defaults = json!({
        "strategy": "pool", "codeLength": {"min": 5, "max": 6}, "maxVisits": 3,
        "tags": ["spring", "sms"],
    });
    let body = json!({
        "name": "Spring", "longUrl": "https://e.example/{code}", "defaults": defaults,
    });
    let id = campaign(&service, body).await;
    let path = format!("/v1/campaigns/{id}");
    let shown = service.look(&path).await.json();
    assert_eq!(
        shown["defaults"],
        json!({
            "strategy": "pool", "codeLength": {"min": 5, "max": 6}, "maxVisits": 3,
            "tags": ["sms", "spring"],
        })
    );
    let link = service.create(json!({"campaignId": id})).await.json();
    let code = link["shortCode"].as_str().expect("a code");
    // Five characters and one to check them by.
    assert_eq!(code.len(), 6);
    assert_eq!(
        (&link["maxVisits"], &link["tags"]),
        (&json!(3), &json!(["sms", "spring"]))
    );
    let own = json!({
        "campaignId": id, "maxVisits": null, "tags": ["own"], "strategy": "permuted",
        "codeLength": 8,
    });
    let link = service.create(own).await.json();
    assert_eq!(link["shortCode"].as_str().map(str::len), Some(9));
    assert_eq!(
        (&link["maxVisits"], &link["tags"]),
        (&json!(null), &json!(["own"]))
    );
    let patch = async |body: Value| {
        service
            .call(&service.campaigner, "PATCH", &path, Some(body))
            .await
    };
    let refused = patch(json!({
        "defaults": {"strategy": "magic", "tags": [""], "maxVisits": 0, "note": "x"},
    }));
    assert_eq!(
        refused.await.pointers(),
        [
            "/defaults/strategy",
            "/defaults/maxVisits",
            "/defaults/tags/0",
            "/defaults/note"
        ]
    );
    // An invalid tag does not hide that there are too many.
    let tags: Vec<String> = std::iter::once(String::new())
        .chain((0..21).map(|n| n.to_string()))
        .collect();
    let refused = patch(json!({"defaults": {"tags": tags}})).await;
    assert_eq!(refused.pointers(), ["/defaults/tags/0", "/defaults/tags"]);
    assert_eq!(patch(json!({"defaults": null})).await.status, 200);
    let link = service.create(json!({"campaignId": id})).await.json();
    assert_eq!(link["tags"], json!([]));
}
