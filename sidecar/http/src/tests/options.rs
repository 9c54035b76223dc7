//! Options of links: bounds in time, pauses, UTM parameters, tags, history, and idempotency.

use axum::body::Body;
use axum::http::Request;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Answer, Service};

pub(super) const URL: &str = "https://example.com/";

impl Service {
    /// Creates a link and returns its path.
    async fn path_of(&self, body: Value) -> String {
        let created = self.create(body.clone()).await;
        assert_eq!(created.status, 201, "{body}");
        created.header("location").expect("a path").to_owned()
    }

    pub(super) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.call(&self.writer, "PATCH", path, Some(body)).await
    }

    pub(super) async fn post(&self, path: &str) -> Answer {
        self.call(&self.writer, "POST", path, None).await
    }

    /// Returns the answer to a visitor with a query: the status and the target.
    async fn visit(&self, code: &str, query: &[u8]) -> (u16, Option<String>) {
        let mut request = Request::builder().uri(format!("/resolve/{code}"));
        if !query.is_empty() {
            request = request.header("x-shortlink-query", query);
        }
        let request = request.body(Body::empty()).expect("a good request");
        let answer = self.send(request).await;
        let location = answer.header("location").map(str::to_owned);
        (answer.status, location)
    }

    /// The codes of a listing.
    async fn codes(&self, query: &str) -> String {
        let page = self.get(&format!("/v1/links?{query}")).await;
        assert_eq!(page.status, 200, "{query}");
        let page = page.json();
        let links = page["links"].as_array().expect("links").iter();
        let codes: Vec<_> = links
            .filter_map(|link| link["shortCode"].as_str())
            .collect();
        codes.join(" ")
    }
}

#[tokio::test]
async fn all_that_is_said_of_a_link_is_kept_changed_and_cleared() {
    let service = Service::new().await;
    let body = json!({
        "longUrl": URL,
        "forwardQuery": true,
        "validSince": "2026-07-01T00:00:00.25Z",
        "validUntil": "2026-08-01T00:00:00.75Z",
        "maxVisits": 7,
        "tags": ["b", "a", "b"],
        "externalId": "order 7",
        "note": "two\nlines",
    });
    let kept = json!({
        "forwardQuery": true,
        "validSince": "2026-07-01T00:00:01Z",
        "validUntil": "2026-08-01T00:00:00Z",
        "maxVisits": 7,
        "tags": ["a", "b"],
        "externalId": "order 7",
        "note": "two\nlines",
        "state": "scheduled",
    });
    let holds = |answer: &Answer, expected: &Value| {
        let link = answer.json();
        for (name, value) in expected.as_object().expect("an object") {
            assert_eq!(&link[name], value, "{name}");
        }
    };
    let path = service.path_of(body).await;
    let found = service.get(&path).await;
    holds(&found, &kept);
    assert_eq!(found.header("etag"), Some("\"1\""));
    let cleared = json!({
        "forwardQuery": false, "validSince": null, "validUntil": null, "maxVisits": null,
        "tags": null, "externalId": null, "note": "",
    });
    let changed = service.patch(&path, cleared).await;
    assert_eq!(changed.header("etag"), Some("\"2\""));
    holds(
        &changed,
        &json!({
            "forwardQuery": false, "validSince": null, "validUntil": null, "maxVisits": null,
            "tags": [], "externalId": null, "note": null, "state": "live", "revision": 2,
        }),
    );
}

#[tokio::test]
async fn what_is_wrong_with_the_options_is_told_with_its_place() {
    let service = Service::new().await;
    let many: Vec<String> = (0..21).map(|number| number.to_string()).collect();
    for (member, value, pointers) in [
        (
            "validSince",
            json!("1969-01-01T00:00:00Z"),
            &["/validSince"][..],
        ),
        ("validSince", json!("soon"), &["/validSince"]),
        ("maxVisits", json!(0), &["/maxVisits"]),
        ("maxVisits", json!(-1), &["/maxVisits"]),
        ("maxVisits", json!(1.5), &["/maxVisits"]),
        ("maxVisits", json!(1u64 << 53), &["/maxVisits"]),
        ("forwardQuery", json!("yes"), &["/forwardQuery"]),
        ("tags", json!("a"), &["/tags"]),
        (
            "tags",
            json!(["a", 1, "", " "]),
            &["/tags/1", "/tags/2", "/tags/3"],
        ),
        ("tags", json!(["a".repeat(65)]), &["/tags/0"]),
        ("tags", json!(many), &["/tags"]),
        ("externalId", json!(""), &["/externalId"]),
        ("externalId", json!("a\nb"), &["/externalId"]),
        ("externalId", json!("a".repeat(129)), &["/externalId"]),
        ("note", json!("a\u{0}"), &["/note"]),
        ("utm", json!("sms"), &["/utm"]),
        (
            "utm",
            json!({"source": "", "medium": 1, "a/b": "x"}),
            &["/utm/source", "/utm/medium", "/utm/a~1b"],
        ),
    ] {
        let mut body = json!({"longUrl": URL, "customSlug": "abc"});
        body[member] = value.clone();
        let answer = service.create(body).await;
        assert_eq!(answer.status, 422, "{member} {value}");
        assert_eq!(answer.pointers(), pointers, "{member} {value}");
    }
    for (body, pointers) in [
        (json!({"strategy": "x"}), &["/strategy"][..]),
        (json!({"strategy": "x", "codeLength": 99}), &["/strategy"]),
        (json!({"strategy": 1}), &["/strategy"]),
        (json!({"codeLength": 0}), &["/codeLength"]),
        (json!({"codeLength": 13}), &["/codeLength"]),
        (json!({"codeLength": 6.5}), &["/codeLength"]),
        (json!({"codeLength": "7"}), &["/codeLength"]),
        (json!({"codeLength": [7]}), &["/codeLength"]),
        (
            json!({"strategy": "hash", "codeLength": 9}),
            &["/codeLength"],
        ),
        (
            json!({"strategy": "sequence", "codeLength": 3}),
            &["/codeLength"],
        ),
        (json!({"codeLength": {"min": 7}}), &["/codeLength/max"]),
        (
            json!({"codeLength": {"min": 0, "max": 13, "x": 1}}),
            &["/codeLength/min", "/codeLength/max", "/codeLength/x"],
        ),
        (
            json!({"codeLength": {"min": 8, "max": 7}}),
            &["/codeLength"],
        ),
        (
            json!({"customSlug": "abc", "codeLength": 7}),
            &["/codeLength"],
        ),
        (
            json!({"customSlug": "abc", "strategy": "hash"}),
            &["/strategy"],
        ),
        (json!({"customSlug": "abc", "dedupe": true}), &["/dedupe"]),
        (json!({"dedupe": 1}), &["/dedupe"]),
        (json!({"dedupe": {}}), &["/dedupe/within"]),
        (
            json!({"dedupe": {"within": "1w", "until": 1}}),
            &["/dedupe/within", "/dedupe/until"],
        ),
        (json!({"dedupe": {"within": "3651d"}}), &["/dedupe/within"]),
        (
            json!({"customSlug": "abc", "dedupe": {"within": "1h"}}),
            &["/dedupe"],
        ),
        (
            json!({"validSince": "2027-01-01T00:00:00Z", "validUntil": "2027-01-01T00:00:00Z"}),
            &["/validUntil"],
        ),
    ] {
        let mut body = body;
        body["longUrl"] = json!(URL);
        let answer = service.create(body.clone()).await;
        assert_eq!(answer.status, 422, "{body}");
        assert_eq!(answer.pointers(), pointers, "{body}");
    }
    let path = service
        .path_of(json!({"longUrl": URL, "validUntil": "2027-01-01T00:00:00Z"}))
        .await;
    for (body, pointers) in [
        (
            json!({"validSince": "2027-01-01T00:00:00Z"}),
            &["/validSince"][..],
        ),
        (json!({"redirectStatus": null}), &["/redirectStatus"]),
        (json!({"forwardQuery": null}), &["/forwardQuery"]),
        (json!({"utm": {"source": "a"}}), &["/utm"]),
        (
            json!({"customSlug": "abc", "dedupe": true}),
            &["/customSlug", "/dedupe"],
        ),
    ] {
        let answer = service.patch(&path, body.clone()).await;
        assert_eq!(answer.status, 422, "{body}");
        assert_eq!(answer.pointers(), pointers, "{body}");
    }
}

#[tokio::test]
async fn codes_are_as_long_as_was_asked_for() {
    let service = Service::new().await;
    for (strategy, length, expected) in [
        (json!("permuted"), json!(5), 6),
        (json!("pool"), json!(6), 7),
        (json!("sequence"), json!({"min": 9, "max": 10}), 10),
        (json!("hash"), json!(8), 9),
        (json!("hash"), Value::Null, 8),
        (Value::Null, json!({"min": 12, "max": 12}), 13),
        (Value::Null, Value::Null, 8),
    ] {
        let body = json!({"longUrl": URL, "strategy": strategy, "codeLength": length});
        let created = service.create(body).await;
        assert_eq!(created.status, 201, "{strategy} {length}");
        let code = created.json()["shortCode"].as_str().map(str::len);
        assert_eq!(code, Some(expected), "{strategy} {length}");
    }
}

#[tokio::test]
async fn who_asks_for_too_short_codes_is_told_when_there_are_no_more() {
    let service = Service::new().await;
    for strategy in ["permuted", "pool"] {
        let body = json!({"longUrl": URL, "strategy": strategy, "codeLength": 1});
        let mut made = 0;
        let refused = loop {
            let answer = service.create(body.clone()).await;
            match answer.status {
                201 if made < 62 => made += 1,
                _ => break answer,
            }
        };
        assert_eq!((refused.status, made > 0), (422, strategy == "permuted"));
        assert_eq!(refused.pointers(), ["/codeLength"]);
    }
}

#[tokio::test]
async fn marks_are_part_of_the_target() {
    let service = Service::new().await;
    let created = service
        .create(json!({
            "longUrl": "https://example.com/ü?utm_source=old&a=1+2#part",
            "utm": {"source": "sms", "medium": null, "campaign": "Früh ling+1"},
        }))
        .await;
    assert_eq!(
        created.json()["longUrl"],
        "https://example.com/%C3%BC?a=1+2&utm_source=sms&utm_campaign=Fr%C3%BCh%20ling%2B1#part"
    );
    let long = format!("https://example.com/{}", "a".repeat(8192 - 20));
    let body = json!({"longUrl": long, "utm": {"source": "a"}});
    // The body's limit applies first here; UTM parameters can also be too long by themselves.
    assert_eq!(service.create(body).await.status, 413);
}

#[tokio::test]
async fn pauses_begin_and_end_at_once() {
    let service = Service::new().await;
    let path = service
        .path_of(json!({"longUrl": URL, "customSlug": "abc"}))
        .await;
    for (step, state, revision, record, status) in [
        ("pause", "paused", 2, "1 410 2", 410),
        ("pause", "paused", 2, "1 410 2", 410),
        ("resume", "live", 3, "1 302 3 0 https://example.com/", 302),
        ("resume", "live", 3, "1 302 3 0 https://example.com/", 302),
        ("pause", "paused", 4, "1 410 4", 410),
    ] {
        let answer = service.post(&format!("{path}/{step}")).await;
        assert_eq!(answer.status, 200);
        let link = answer.json();
        assert_eq!(
            (&link["state"], &link["revision"]),
            (&json!(state), &json!(revision))
        );
        assert_eq!(link["published"], json!(true));
        assert_eq!(service.redis.record("abc").as_deref(), Some(record));
        assert_eq!(service.visit("abc", b"").await.0, status);
    }
    // A paused link can be changed, and stays paused.
    let changed = service.patch(&path, json!({"redirectStatus": 301})).await;
    assert_eq!(changed.json()["state"], "paused");
    service.call(&service.writer, "DELETE", &path, None).await;
    for step in ["pause", "resume"] {
        assert_eq!(service.post(&format!("{path}/{step}")).await.status, 409);
        assert_eq!(
            service
                .post(&format!("/v1/links/nobody/{step}"))
                .await
                .status,
            404
        );
        let path = format!("{path}/{step}");
        let reader = service.call(&service.reader, "POST", &path, None);
        assert_eq!(reader.await.status, 403);
    }
}

#[tokio::test]
async fn visitors_come_neither_too_early_nor_without_their_query() {
    let service = Service::new().await;
    service
        .path_of(json!({
            "longUrl": "https://example.com/a?b=1#c",
            "customSlug": "later",
            "forwardQuery": true,
            "validSince": "2026-06-01T00:00:30Z",
        }))
        .await;
    service
        .path_of(json!({"longUrl": "https://example.com/a?b=1#c", "customSlug": "alone"}))
        .await;
    assert_eq!(service.visit("later", b"").await, (404, None));
    service.clock.advance(SignedDuration::from_secs(30));
    for (code, query, location) in [
        ("later", &b""[..], "https://example.com/a?b=1#c"),
        (
            "later",
            b"x=1&y=+%20",
            "https://example.com/a?b=1&x=1&y=+%20#c",
        ),
        (
            "later",
            b"x=\xff\"<",
            "https://example.com/a?b=1&x=%FF%22%3C#c",
        ),
        ("alone", b"x=1", "https://example.com/a?b=1#c"),
    ] {
        let visit = service.visit(code, query).await;
        assert_eq!(visit, (302, Some(location.to_owned())), "{code} {query:?}");
    }
    // The record in Redis has the same data.
    let record = service.redis.record("later");
    assert_eq!(
        record.as_deref(),
        Some("1 302q 1 1780272030- https://example.com/a?b=1#c")
    );
}

#[tokio::test]
async fn only_the_revision_that_was_seen_is_changed() {
    let service = Service::new().await;
    let path = service.path_of(json!({"longUrl": URL})).await;
    let pause = format!("{path}/pause");
    let resume = format!("{path}/resume");
    for (method, path, if_match, status) in [
        ("POST", &pause, "\"2\"", 412),
        ("POST", &pause, "W/\"1\"", 412),
        ("POST", &pause, "1", 400),
        ("POST", &pause, "\"7\", \"1\"", 200),
        ("POST", &pause, "\"1\"", 412),
        ("POST", &resume, "\"2\"", 200),
        ("DELETE", &path, "\"2\"", 412),
        ("DELETE", &path, "\"3\"", 200),
        ("DELETE", &path, "*", 200),
        // Revoked is revoked, whatever the revision.
        ("POST", &resume, "\"3\"", 409),
    ] {
        let answer = service.call_if(method, path, if_match).await;
        assert_eq!(answer.status, status, "{method} {path} {if_match}");
        assert_eq!(answer.header("etag").is_some(), status == 200);
    }
    let request = Request::builder()
        .method("PATCH")
        .uri(service.path_of(json!({"longUrl": URL})).await)
        .header("x-api-key", &service.writer)
        .header("content-type", "application/json")
        .header("if-match", "\"2\"")
        .body(Body::from("{\"redirectStatus\": 301}"));
    let answer = service.send(request.expect("a good request")).await;
    assert_eq!(answer.status, 412);
    assert_eq!(
        answer.json()["type"],
        "urn:shortlink:problem:other-revision"
    );
}

#[tokio::test]
async fn a_history_tells_who_has_changed_what_and_when() {
    let service = Service::new().await;
    let path = service
        .path_of(json!({"longUrl": URL, "tags": ["a"]}))
        .await;
    let history = format!("{path}/history");
    assert_eq!(
        service.get(&history).await.json(),
        json!({"history": [], "nextCursor": null})
    );
    for number in 1..=3 {
        service.clock.advance(SignedDuration::from_secs(1));
        let change = json!({"longUrl": format!("https://example.com/{number}")});
        assert_eq!(service.patch(&path, change).await.status, 200);
    }
    service.post(&format!("{path}/pause")).await;
    service.call(&service.writer, "DELETE", &path, None).await;
    let mut seen = Vec::new();
    let mut page_path = format!("{history}?limit=2");
    loop {
        let page = service.get(&page_path).await.json();
        seen.extend(page["history"].as_array().expect("a list").clone());
        let Some(cursor) = page["nextCursor"].as_str() else {
            break;
        };
        page_path = format!("{history}?limit=2&cursor={cursor}");
    }
    let revisions: Vec<_> = seen
        .iter()
        .map(|change| &change["before"]["revision"])
        .collect();
    assert_eq!(revisions, [5, 4, 3, 2, 1]);
    assert_eq!(seen[0]["before"]["paused"], true);
    assert_eq!(
        seen[4],
        json!({
            "changedAt": "2026-06-01T00:00:01Z",
            "changedBy": service.writer.split('_').nth(1),
            "changedByName": "test",
            "before": {
                "revision": 1,
                "paused": false,
                "longUrl": URL,
                "redirectStatus": 302,
                "forwardQuery": false,
                "validSince": null,
                "validUntil": null,
                "maxVisits": null,
                "tags": ["a"],
                "externalId": null,
                "note": null,
                "domain": null,
                "updatedAt": "2026-06-01T00:00:00Z",
            },
        })
    );
    for (query, status) in [("limit=0", 400), ("cursor=x", 400), ("state=live", 400)] {
        let answer = service.get(&format!("{history}?{query}")).await;
        assert_eq!(answer.status, status, "{query}");
    }
    assert_eq!(service.get("/v1/links/nobody/history").await.status, 404);
    let other = service.call(&service.campaigner, "GET", &history, None);
    assert_eq!(other.await.status, 403);
}

#[tokio::test]
async fn links_are_listed_by_what_they_are() {
    let service = Service::new().await;
    let creator = service.writer.split('_').nth(1).expect("an id").to_owned();
    for (slug, extra) in [
        ("plain", json!({})),
        (
            "later",
            json!({"validSince": "2026-07-01T00:00:00Z", "tags": ["spring"]}),
        ),
        ("paused", json!({"tags": ["spring", "a b&c"]})),
        (
            "ended",
            json!({"validUntil": "2026-06-01T00:00:02Z", "externalId": "order 7"}),
        ),
        ("revoked", json!({"externalId": "order 7"})),
    ] {
        let mut body = json!({"longUrl": URL, "customSlug": slug});
        for (name, value) in extra.as_object().expect("an object") {
            body[name] = value.clone();
        }
        service.path_of(body).await;
        service.clock.advance(SignedDuration::from_millis(1));
    }
    service.post("/v1/links/paused/pause").await;
    service
        .call(&service.writer, "DELETE", "/v1/links/revoked", None)
        .await;
    service.clock.advance(SignedDuration::from_secs(5));
    for (query, expected) in [
        ("state=live", "plain"),
        ("state=scheduled", "later"),
        ("state=paused", "paused"),
        ("state=expired", "ended"),
        ("state=revoked", "revoked"),
        ("tag=spring", "paused later"),
        ("tag=a+b%26c", "paused"),
        ("tag=Spring", ""),
        ("externalId=order+7", "revoked ended"),
        ("externalId=order+7&state=expired", "ended"),
        ("tag=spring&state=paused", "paused"),
        ("createdBy=nobody", ""),
        (
            &format!("createdBy={creator}"),
            "revoked ended paused later plain",
        ),
        (&format!("createdBy={creator}&tag=spring&limit=1"), "paused"),
    ] {
        assert_eq!(service.codes(query).await, expected, "{query}");
    }
}
