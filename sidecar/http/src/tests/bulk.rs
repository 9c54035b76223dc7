//! `/v1/jobs`: changes of many links.

use std::sync::Arc;

use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, Scope};
use shortlink_core::target::domains::{DomainRules, TargetDomains};
use shortlink_service::bulk::Bulk;

use super::{NewKey, Service, new_key};

impl Service {
    async fn job(&self, body: Value) -> Value {
        let answer = self
            .call(&self.writer, "POST", "/v1/jobs", Some(body))
            .await;
        assert_eq!(answer.status, 202, "{}", answer.json());
        let job = answer.json();
        let location = format!("/v1/jobs/{}", job["id"]);
        assert_eq!(answer.header("location"), Some(&*location));
        job
    }

    /// Works a job off, as the background job does.
    pub(super) async fn work_off(&self, id: &Value) -> Value {
        let bulk = Bulk {
            store: Arc::clone(&self.kept.store),
            delivery: Arc::clone(&self.delivery),
            clock: Arc::clone(&self.clock) as _,
            target_domains: TargetDomains::default(),
        };
        let number = id.as_u64().expect("an id");
        let found = bulk.store.find_bulk_job(number).await.expect("a store");
        let found = found.expect("a job");
        while !bulk.step(&found).await.expect("a store") {}
        self.get(&format!("/v1/jobs/{id}")).await.json()
    }

    async fn results(&self, id: &Value) -> Vec<Value> {
        let answer = self.get(&format!("/v1/jobs/{id}/results")).await;
        assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
        let text = String::from_utf8(answer.body).expect("text");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect()
    }
}

fn target(slug: &str, tag: &str) -> Value {
    json!({"longUrl": "https://example.com/", "customSlug": slug, "tags": [tag]})
}

#[tokio::test]
async fn a_job_revokes_its_links_and_tells_what_became_of_each() {
    let service = Service::new().await;
    for slug in ["a", "b", "c"] {
        service.create(target(slug, "spring")).await;
    }
    let codes = json!(["a", "nobody", "b", "a"]);
    let trial = service
        .job(json!({"action": "revoke", "codes": codes, "dryRun": true}))
        .await;
    assert_eq!(trial["state"], "running");
    assert_eq!(trial["selection"], json!({"codes": 3}));
    let trial = service.work_off(&trial["id"]).await;
    assert_eq!(
        (&trial["state"], &trial["changed"], &trial["failed"]),
        (&json!("done"), &json!(2), &json!(1))
    );
    assert_eq!(service.get("/v1/links/a").await.json()["state"], "live");
    let job = service
        .job(json!({"action": "revoke", "codes": codes}))
        .await;
    let job = service.work_off(&job["id"]).await;
    assert_eq!(
        (&job["selected"], &job["done"], &job["changed"]),
        (&json!(3), &json!(3), &json!(2))
    );
    assert!(
        job["finishedAt"].is_string() && job["reason"].is_null(),
        "{job}"
    );
    let results = service.results(&job["id"]).await;
    let told: Vec<(&Value, &Value)> = results
        .iter()
        .map(|it| (&it["shortCode"], &it["status"]))
        .collect();
    let expected = [("a", 200), ("nobody", 404), ("b", 200)]
        .map(|(code, status)| (json!(code), json!(status)));
    assert_eq!(
        told,
        expected.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>()
    );
    assert_eq!(results[1]["problem"]["status"], 404);
    for slug in ["a", "b"] {
        assert_eq!(
            service.get(&format!("/v1/links/{slug}")).await.json()["state"],
            "revoked"
        );
        assert_eq!(service.redis.record(slug).as_deref(), Some("1 410 2"));
    }
    assert_eq!(service.get("/v1/links/c").await.json()["state"], "live");
    let page = service.get("/v1/jobs?limit=1").await.json();
    assert_eq!(page["jobs"][0], job);
    let next = page["nextCursor"].as_str().expect("another page");
    let page = service.get(&format!("/v1/jobs?cursor={next}")).await.json();
    assert_eq!(page["jobs"][0]["id"], trial["id"]);
    assert!(page["nextCursor"].is_null());
}

#[tokio::test]
async fn a_job_changes_what_a_change_of_one_link_can() {
    let service = Service::new().await;
    for slug in ["a", "b"] {
        service.create(target(slug, "spring")).await;
    }
    let body = json!({
        "action": "change", "tag": "spring",
        "change": {"longUrl": "https://example.com/new", "validUntil": "2030-01-01T00:00:00Z", "note": null},
    });
    let job = service.job(body).await;
    let job = service.work_off(&job["id"]).await;
    assert_eq!(
        (&job["changed"], &job["selection"]),
        (&json!(2), &json!({"tag": "spring"}))
    );
    let link = service.get("/v1/links/b").await.json();
    assert_eq!(link["longUrl"], "https://example.com/new");
    assert_eq!(link["validUntil"], "2030-01-01T00:00:00Z");
    // Members that a link cannot have so are problems of this link.
    let job = service.job(json!({"action": "change", "tag": "spring", "change": {"validSince": "2031-01-01T00:00:00Z"}}));
    let job = job.await;
    let job = service.work_off(&job["id"]).await;
    assert_eq!(job["failed"], 2);
    let path = format!("/v1/jobs/{}/results", job["id"]);
    let request = axum::http::Request::get(path)
        .header("x-api-key", &service.reader)
        .header("accept", "text/csv")
        .body(axum::body::Body::empty());
    let table = service.send(request.expect("a request")).await;
    let text = String::from_utf8(table.body).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "shortCode,status,changed,problem");
    assert!(
        lines.len() == 3 && lines[1].contains(",422,false,"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_wrong_job_is_refused_as_a_whole() {
    let service = Service::new().await;
    for (body, pointers) in [
        (json!({}), &["/action", ""][..]),
        (json!({"action": "delete", "tag": "a"}), &["/action"]),
        (json!({"action": "revoke"}), &[""]),
        (
            json!({"action": "revoke", "tag": "a", "codes": ["a"]}),
            &["/tag"],
        ),
        (json!({"action": "revoke", "codes": []}), &["/codes"]),
        (
            json!({"action": "revoke", "codes": ["a", "."]}),
            &["/codes/1"],
        ),
        (json!({"action": "revoke", "uploadId": "1"}), &["/uploadId"]),
        (
            json!({"action": "revoke", "campaignId": "-"}),
            &["/campaignId"],
        ),
        (
            json!({"action": "revoke", "tag": "a", "change": {"note": "b"}}),
            &["/change"],
        ),
        (json!({"action": "change", "tag": "a"}), &["/change"]),
        (
            json!({"action": "change", "tag": "a", "change": {}}),
            &["/change"],
        ),
        (
            json!({"action": "change", "tag": "a", "change": {
                "longUrl": "ftp://a/", "parameters": {"a": "b"}, "validUntil": "2020-01-01T00:00:00Z", "other": 1}}),
            &[
                "/change/longUrl",
                "/change/other",
                "/change/parameters",
                "/change/validUntil",
            ],
        ),
        (
            json!({"action": "pause", "tag": "a", "other": 1}),
            &["/other"],
        ),
    ] {
        let answer = service
            .call(&service.writer, "POST", "/v1/jobs", Some(body.clone()))
            .await;
        assert_eq!(answer.status, 422, "{body}");
        let mut found = answer.pointers();
        found.sort();
        let mut expected = pointers.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{body}");
    }
    let many: Vec<String> = (0..100_001).map(|number| format!("c{number}")).collect();
    let answer = service.call(
        &service.writer,
        "POST",
        "/v1/jobs",
        Some(json!({"action": "revoke", "codes": many})),
    );
    assert_eq!(answer.await.pointers(), ["/codes"]);
    for (method, path) in [
        ("GET", "/v1/jobs/7"),
        ("DELETE", "/v1/jobs/x"),
        ("GET", "/v1/jobs/7/results"),
    ] {
        let answer = service.call(&service.writer, method, path, None).await;
        assert!(
            matches!(answer.status, 403 | 404),
            "{method} {path}: {}",
            answer.status
        );
    }
    let answer = service.call(
        &service.reader,
        "POST",
        "/v1/jobs",
        Some(json!({"action": "revoke", "tag": "a"})),
    );
    assert_eq!(answer.await.status, 403);
}

#[tokio::test]
async fn a_job_ends_with_its_key() {
    let service = Service::new().await;
    for slug in ["a", "b"] {
        service.create(target(slug, "spring")).await;
    }
    let policy = KeyPolicy {
        allowed_domains: Some(DomainRules::from_iter(["example.com"
            .parse()
            .expect("a rule")])),
        ..KeyPolicy::default()
    };
    let key = NewKey {
        policy,
        ..new_key(&[Scope::LinksWrite, Scope::LinksRead])
    };
    let (id, text) = service.key(7, key).await;
    let change = json!({"action": "change", "tag": "spring", "change": {"longUrl": "https://evil.example/"}});
    let answer = service.call(&text, "POST", "/v1/jobs", Some(change)).await;
    assert_eq!(answer.pointers(), ["/change/longUrl"]);
    let revoke = json!({"action": "revoke", "tag": "spring"});
    let job = service
        .call(&text, "POST", "/v1/jobs", Some(revoke))
        .await
        .json();
    let (_, admin) = service
        .key(8, new_key(&[Scope::KeysAdmin, Scope::Admin]))
        .await;
    let path = format!("/v1/keys/{id}");
    assert_eq!(
        service.call(&admin, "DELETE", &path, None).await.status,
        200
    );
    let job = service.work_off(&job["id"]).await;
    assert_eq!(
        (&job["state"], &job["reason"]),
        (&json!("failed"), &json!("the API key is revoked"))
    );
    assert_eq!(service.get("/v1/links/a").await.json()["state"], "live");
    // A cancelled one does nothing further.
    let job = service
        .job(json!({"action": "revoke", "tag": "spring"}))
        .await;
    let path = format!("/v1/jobs/{}", job["id"]);
    let ended = service
        .call(&service.writer, "DELETE", &path, None)
        .await
        .json();
    assert_eq!(ended["state"], "cancelled");
    service.work_off(&job["id"]).await;
    assert_eq!(service.get("/v1/links/a").await.json()["state"], "live");
}
