//! Events of webhooks besides clicks, as an endpoint gets them from a running service.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::calendar::{format_time, since_1970};
use shortlink_tests::http;
use shortlink_tests::ports;
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::{Sidecar, api};
use shortlink_tests::stack::directory;
use shortlink_tests::visits::put_of;
use shortlink_tests::wait::until;
use vocabulary::visit::VisitId;

use super::webhooks::{Endpoint, PHONE, SETTINGS, STREAM, create};

/// The limit until the slowest event: an evaluation of domains every 30 seconds, or an expiry 10 to 20 seconds ago.
const IN_TIME: Duration = Duration::from_secs(60);

/// The data of the events of a type.
fn data(endpoint: &Endpoint, event: &str) -> Vec<Value> {
    let events = endpoint.received.events.lock().expect("no holder panics");
    let of_type = events.iter().filter(|it| it["type"] == event);
    of_type.map(|it| it["data"].clone()).collect()
}

fn now_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// Sends rows to create as lines; returns the lines of the answer.
fn batch(port: u16, key: &str, query: &str, rows: &[Value], once: &str) -> Vec<Value> {
    let body: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let headers = [
        ("X-Api-Key", key),
        ("Content-Type", "application/x-ndjson"),
        ("Idempotency-Key", once),
    ];
    let path = format!("/v1/links/batch?summary=true{query}");
    let request = http::request("POST", &path, &headers, body.as_bytes());
    let answer = http::try_send(port, "POST", &request).expect("an answer");
    let text = String::from_utf8(answer.body).expect("text");
    let lines = text.lines().map(serde_json::from_str);
    lines.map(|line| line.expect("JSON")).collect()
}

#[test]
fn expiries_uploads_and_blocks_are_events_once() {
    let directory = directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    let mut sidecar = Sidecar::start(
        &directory.path().join("sidecar"),
        ports::free(),
        redis.port,
        SETTINGS,
    );
    let key = sidecar.make_key(&["links:write", "stats:read", "webhooks:admin"]);
    let endpoint = Endpoint::start(0);
    let filter = json!({
        "events": ["link.expired", "upload.finished", "domain.suspected_blocked"],
        "maxBatch": 10,
    });
    create(&sidecar, &key, &endpoint, &filter);
    let port = sidecar.port;
    // Links that end by time, by a visit, and not now.
    let soon = format_time(now_ms() / 1000 + 3);
    let rows = [
        json!({"longUrl": "https://example.com/time", "externalId": "time", "validUntil": soon}),
        json!({"longUrl": "https://example.com/visit", "externalId": "visit", "maxVisits": 1}),
        json!({"longUrl": "https://example.com/none", "externalId": "none"}),
        json!({"longUrl": "no URL"}),
    ];
    let answer = batch(port, &key, "", &rows, "once");
    let summary = &answer.last().expect("a summary")["summary"];
    assert_eq!(
        (&summary["created"], &summary["refused"]),
        (&json!(3), &json!(1)),
        "{answer:?}"
    );
    assert_eq!(batch(port, &key, "", &rows, "once"), answer);
    let code = |place: usize| answer[place]["link"]["shortCode"].as_str().expect("a code");
    let visits = |codes: &[&str]| {
        let visits = codes.iter().zip(0..);
        let id = |sequence| VisitId {
            origin: 9,
            sequence,
        };
        let visits = visits.map(|(code, n)| (id(n), *code, now_ms()));
        put_of(redis.port, STREAM, visits, PHONE);
    };
    visits(&[code(1), code(2)]);
    // A domain that was visited steadily until ten minutes ago, and not since.
    let minute = now_ms() / 60_000 - 40;
    let steady = (0..30 * 30).map(|n| {
        let id = VisitId {
            origin: 10,
            sequence: n,
        };
        (id, code(2), (minute + n / 30) * 60_000 + n % 30)
    });
    put_of(redis.port, STREAM, steady, PHONE);
    // The events outlive a restart, and are not repeated after it.
    until("the end of the batch", IN_TIME, || {
        !data(&endpoint, "upload.finished").is_empty()
    });
    sidecar.stop();
    sidecar.start_again();
    until("all events", IN_TIME, || {
        data(&endpoint, "link.expired").len() >= 2
            && !data(&endpoint, "domain.suspected_blocked").is_empty()
    });
    let expired = data(&endpoint, "link.expired");
    let expired: BTreeMap<&str, &Value> = expired
        .iter()
        .map(|it| (it["externalId"].as_str().expect("an id"), it))
        .collect();
    assert_eq!(
        expired.keys().copied().collect::<Vec<_>>(),
        ["time", "visit"]
    );
    assert_eq!(expired["time"]["validUntil"], soon);
    assert_eq!(expired["visit"]["shortCode"], code(1));
    for (name, it) in &expired {
        let reason = if *name == "visit" { "visits" } else { *name };
        assert_eq!(it["reason"], reason, "{it}");
        assert_eq!(it["uploadId"], summary["uploadId"], "{it}");
    }
    let uploads = data(&endpoint, "upload.finished");
    let expected = json!({
        "uploadId": summary["uploadId"], "campaignId": null, "kind": "links",
        "rows": 4, "created": 3, "existing": 0, "refused": 1,
    });
    assert_eq!(uploads, [expected]);
    let blocked = data(&endpoint, "domain.suspected_blocked");
    assert_eq!(blocked.len(), 1, "{blocked:?}");
    assert_eq!(
        (&blocked[0]["domain"], &blocked[0]["network"]),
        (&json!("localhost"), &json!(null))
    );
    assert_eq!(blocked[0]["before"], 30.0);
    let path = "/metrics";
    let metrics = api(port, "", "GET", path, None);
    let metrics = String::from_utf8(metrics.body).expect("text");
    let gauge =
        "shortlink_domain_suspected_blocked{by=\"all\",domain=\"localhost\",network=\"\"} 1\n";
    assert!(metrics.contains(gauge), "{metrics}");
}
