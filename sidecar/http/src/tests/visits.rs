//! Visits and statistics as clients see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use jiff::SignedDuration;
use serde_json::{Value, json};
use shortlink_core::api_key::Scope;
use shortlink_core::testing::moment;
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::{Class, Classification};
use shortlink_core::visit::place::Place;
use shortlink_core::visit::visitor::VisitorId;
use shortlink_service::testing::new_key;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitId, VisitMethod};

use super::{Answer, Service};

pub(super) fn visit(sequence: u64, code: &str, at: &str, class: Class) -> Visit {
    Visit {
        id: VisitId {
            origin: 1,
            sequence,
        },
        at: moment(at),
        code: code.to_owned(),
        host: "s.example.com".to_owned(),
        client: None,
        visitor: None,
        user_agent: "a \"quoted\", agent".to_owned(),
        referrer: String::new(),
        referrer_host: None,
        language: None,
        method: VisitMethod::Get,
        status: 302,
        purpose: String::new(),
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: None,
        place: Place {
            country: Some(
                if sequence.is_multiple_of(2) {
                    "AT"
                } else {
                    "DE"
                }
                .to_owned(),
            ),
            ..Place::default()
        },
        agent: Arc::default(),
        classification: Classification {
            class,
            reason: "browser",
            ruleset: 1,
        },
    }
}

struct Scene {
    service: Service,
    reader: String,
}

impl Scene {
    async fn new() -> Self {
        let service = Service::new().await;
        let (_, reader) = service.key(50, new_key(&[Scope::StatsRead])).await;
        Self { service, reader }
    }

    async fn keep(&self, visits: Vec<Visit>) {
        let kept = self
            .service
            .kept
            .store
            .keep_visits(visits, moment("2026-06-01T00:00:00Z"));
        kept.await.expect("a working store");
    }

    async fn get(&self, path: &str) -> Answer {
        self.service.call(&self.reader, "GET", path, None).await
    }

    /// A service with visits, whose clock is at midnight.
    async fn with_visits() -> Self {
        let scene = Self::new().await;
        let body = json!({"name": "Spring", "longUrl": "https://e.example/{code}"});
        let created = scene.service.call(
            &scene.service.campaigner,
            "POST",
            "/v1/campaigns",
            Some(body),
        );
        assert_eq!(created.await.json()["id"], "1");
        for body in [
            json!({"campaignId": "1", "customSlug": "member", "externalId": "m-1"}),
            json!({"longUrl": "https://example.com/", "customSlug": "plain"}),
        ] {
            assert_eq!(scene.service.create(body).await.status, 201);
        }
        scene
            .keep(vec![
                visit(0, "member", "2026-05-31T22:10:00Z", Class::Human),
                visit(1, "member", "2026-05-31T22:20:00Z", Class::Preview),
                visit(2, "member", "2026-05-31T23:59:30Z", Class::Human),
                visit(3, "plain", "2026-05-30T12:00:00Z", Class::Bot),
            ])
            .await;
        scene
    }
}

#[tokio::test]
async fn visits_are_counted_for_a_link_a_campaign_and_all() {
    let scene = Scene::with_visits().await;
    let stats = scene.get("/v1/links/member/stats?by=country").await.json();
    assert_eq!(stats["interval"], "day");
    assert_eq!(stats["since"], "2026-05-25T00:00:00Z");
    assert_eq!(
        stats["visits"],
        json!({"total": 3, "human": 2, "preview": 1, "scanner": 0, "bot": 0, "unknown": 0, "refused": 0})
    );
    assert_eq!(stats["intervals"].as_array().map(Vec::len), Some(1));
    assert_eq!(stats["intervals"][0]["begin"], "2026-05-31T00:00:00Z");
    assert_eq!(stats["by"]["country"][0]["value"], "AT");
    assert_eq!(stats["by"]["country"][0]["human"], 2);
    assert_eq!(stats["by"]["country"][1]["preview"], 1);

    let path = "/v1/campaigns/1/stats?interval=hour&by=domain,device&since=2026-05-31T00:00:00Z";
    let stats = scene.get(path).await.json();
    let begins: Vec<&Value> = stats["intervals"]
        .as_array()
        .expect("intervals")
        .iter()
        .map(|interval| &interval["begin"])
        .collect();
    assert_eq!(begins, ["2026-05-31T22:00:00Z", "2026-05-31T23:00:00Z"]);
    assert_eq!(stats["by"]["domain"][0]["total"], 3);
    assert_eq!(stats["by"]["device"][0]["value"], "other");

    let path = "/v1/campaigns/1/stats?interval=hour&by=country,device&valueIntervals=true";
    let over_time = scene.get(path).await.json();
    let country = &over_time["by"]["country"][0];
    assert_eq!(
        country["intervals"],
        json!([
            {"begin": "2026-05-31T22:00:00Z", "total": 1, "human": 1, "preview": 0, "scanner": 0,
             "bot": 0, "unknown": 0, "refused": 0},
            {"begin": "2026-05-31T23:00:00Z", "total": 1, "human": 1, "preview": 0, "scanner": 0,
             "bot": 0, "unknown": 0, "refused": 0},
        ])
    );
    assert_eq!(over_time["by"]["device"][0]["intervals"][0]["total"], 2);
    assert!(stats["by"]["device"][0].get("intervals").is_none());

    let all = scene.get("/v1/stats?limit=1&by=country").await.json();
    assert_eq!(all["visits"]["total"], 4);
    assert_eq!(all["by"]["country"].as_array().map(Vec::len), Some(1));
    let domains = scene.get("/v1/domains/stats?minutes=120").await.json();
    assert_eq!(
        domains["domains"],
        json!([{
            "domain": "s.example.com",
            "visits": 3,
            "minutes": [
                {"begin": "2026-05-31T22:10:00Z", "visits": 1},
                {"begin": "2026-05-31T22:20:00Z", "visits": 1},
                {"begin": "2026-05-31T23:59:00Z", "visits": 1},
            ],
        }])
    );
    // The link itself has the counts as well.
    let link = scene.service.get("/v1/links/member").await.json();
    let visits = json!({
        "total": 3, "human": 2, "refused": 0, "lastAt": "2026-05-31T23:59:30Z",
        "clicks": 2, "firstClickAt": "2026-05-31T22:10:00Z", "lastClickAt": "2026-05-31T23:59:30Z",
    });
    assert_eq!(link["visits"], visits);
    let listed = scene.service.get("/v1/links?campaignId=1").await.json();
    assert_eq!(listed["links"][0]["visits"], visits);
}

#[tokio::test]
async fn periods_that_touch_count_each_visit_once_and_the_answer_has_their_bounds() {
    let scene = Scene::with_visits().await;
    let period = async |path: &str, query: &str| {
        let stats = scene.get(&format!("{path}?{query}")).await.json();
        let bounds = [&stats["since"], &stats["until"]].map(|at| at.as_str().map(str::to_owned));
        (
            bounds.map(|at| at.expect("a bound")),
            stats["visits"]["total"].as_u64(),
        )
    };
    let hour = |day: u32, hour: u32| format!("2026-05-{day}T{hour:02}:00:00Z");
    for path in [
        "/v1/stats",
        "/v1/campaigns/1/stats",
        "/v1/links/member/stats",
    ] {
        let halves = [
            ("21:40", "22:15"),
            ("22:15", "22:30"),
            ("22:30", "23:59:45"),
        ];
        let mut totals = Vec::new();
        for (since, until) in halves {
            let query = format!("since=2026-05-31T{since}Z&until=2026-05-31T{until}Z");
            let answer = scene.get(&format!("{path}?{query}")).await;
            if answer.status == 200 {
                totals.push(answer.json()["visits"]["total"].as_u64());
            }
        }
        // The second is empty, and refused.
        assert_eq!(totals, [Some(0), Some(2)], "{path}");
        let query = "since=2026-05-31T21:40:00Z&until=2026-05-31T23:59:45Z";
        assert_eq!(
            period(path, query).await,
            ([hour(31, 21), hour(31, 23)], Some(2)),
            "{path}"
        );
    }
    // Up to now, with the present hour, even if that is the whole period.
    scene
        .keep(vec![visit(9, "plain", "2026-06-01T00:00:00Z", Class::Bot)])
        .await;
    let [since, until] = ["2026-06-01T00:00:00Z", "2026-06-01T01:00:00Z"].map(str::to_owned);
    assert_eq!(
        period("/v1/stats", "since=2026-06-01T00:00:00Z").await,
        ([since.clone(), until], Some(1))
    );
    assert_eq!(
        period("/v1/stats", &format!("until={since}")).await,
        ([hour(25, 0), since], Some(4))
    );
    scene
        .service
        .clock
        .advance(SignedDuration::from_secs(57 * 60 + 26));
    let (bounds, total) = period("/v1/stats", "").await;
    assert_eq!(bounds, [hour(25, 0), "2026-06-01T01:00:00Z".to_owned()]);
    assert_eq!(total, Some(5));
    let domains = scene.get("/v1/domains/stats?minutes=58").await.json();
    assert_eq!(domains["since"], "2026-05-31T23:59:00Z");
    assert_eq!(domains["domains"][0]["visits"], 2);
    let query = "since=2026-05-31T22:10:00Z&until=2026-05-31T22:50:00Z";
    let refused = scene.get(&format!("/v1/stats?{query}")).await;
    assert_eq!(refused.status, 400);
    let detail = refused.json()["detail"].to_string();
    assert!(
        detail.contains("begins at 2026-05-31T22:00:00Z and ends at 2026-05-31T22:00:00Z"),
        "{detail}"
    );
}

#[tokio::test]
async fn the_last_two_days_are_counted_by_the_minute() {
    let scene = Scene::with_visits().await;
    for path in [
        "/v1/campaigns/1/stats",
        "/v1/links/member/stats",
        "/v1/stats",
    ] {
        let query = "interval=minute&since=2026-05-31T21:30:00Z&by=country,device";
        let stats = scene.get(&format!("{path}?{query}")).await.json();
        assert_eq!(stats["interval"], "minute");
        assert_eq!(stats["since"], "2026-05-31T21:00:00Z");
        assert_eq!(stats["until"], "2026-06-01T01:00:00Z");
        assert_eq!(stats["visits"]["total"], 3);
        assert_eq!(stats["by"]["country"][0]["human"], 2);
        let intervals = stats["intervals"].as_array().expect("intervals").iter();
        let intervals: Vec<Value> = intervals
            .map(|it| json!([it["begin"], it["human"], it["preview"], it["total"]]))
            .collect();
        let expected = json!([
            ["2026-05-31T22:10:00Z", 1, 0, 1],
            ["2026-05-31T22:20:00Z", 0, 1, 1],
            ["2026-05-31T23:59:00Z", 1, 0, 1],
        ]);
        assert_eq!(json!(intervals), expected, "{path}");
        // By default, the last 24 hours and the present one.
        let stats = scene.get(&format!("{path}?interval=minute")).await.json();
        assert_eq!(stats["since"], "2026-05-31T00:00:00Z");
        let first = "since=2026-05-30T00:00:00Z&until=2026-05-31T00:00:00Z";
        let first = scene.get(&format!("{path}?interval=minute&{first}")).await;
        assert_eq!(first.status, 200);
        for (query, fault) in [
            (
                "since=2026-05-30T00:00:00Z&until=2026-05-31T01:00:00Z",
                "interval=minute is for at most 24 hours, but the period begins at 2026-05-30T00:00:00Z and ends \
                 at 2026-05-31T01:00:00Z",
            ),
            (
                "since=2026-05-29T23:59:59Z&until=2026-05-30T01:00:00Z",
                "since is 2026-05-29T23:00:00Z: it can be 2026-05-30T00:00:00Z or later",
            ),
            (
                "by=country&valueIntervals=true",
                "valueIntervals cannot be combined with interval=minute",
            ),
        ] {
            let refused = scene.get(&format!("{path}?interval=minute&{query}")).await;
            assert_eq!(refused.status, 400);
            let detail = refused.json()["detail"].to_string();
            assert!(detail.contains(fault), "{detail}");
        }
    }
    let refused = scene.get("/v1/stats?interval=second").await;
    assert_eq!(refused.status, 400);
    let detail = refused.json()["detail"].to_string();
    assert!(detail.contains("minute, hour or day"), "{detail}");
}

#[tokio::test]
async fn days_are_those_of_a_time_zone() {
    let scene = Scene::with_visits().await;
    let at = |sequence, at| visit(sequence, "member", at, Class::Human);
    scene
        .keep(vec![
            at(20, "2026-05-30T15:59:59Z"),
            at(21, "2026-05-30T16:00:00Z"),
            at(22, "2026-05-31T15:59:59Z"),
        ])
        .await;
    let query =
        "since=2026-05-30T00:00:00Z&until=2026-05-31T16:00:00Z&interval=day&timezone=Asia/Shanghai";
    for path in [
        "/v1/links/member/stats",
        "/v1/campaigns/1/stats",
        "/v1/stats",
    ] {
        let path = format!("{path}?{query}&by=device&valueIntervals=true");
        let stats = scene.get(&path).await.json();
        assert_eq!(stats["timezone"], "Asia/Shanghai");
        let days = |intervals: &Value| -> Vec<(String, u64)> {
            let intervals = intervals.as_array().expect("intervals").iter();
            let day = |it: &Value| {
                (
                    it["begin"].as_str().expect("a time").to_owned(),
                    it["human"].as_u64(),
                )
            };
            intervals
                .map(day)
                .map(|(begin, visits)| (begin, visits.expect("a number")))
                .collect()
        };
        let expected = [
            ("2026-05-29T16:00:00Z".to_owned(), 1),
            ("2026-05-30T16:00:00Z".to_owned(), 2),
        ];
        let found = days(&stats["intervals"]);
        assert_eq!(found, expected, "{path}");
        let phones = stats["by"]["device"].as_array().expect("values");
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (begin, visits) in phones.iter().flat_map(|value| days(&value["intervals"])) {
            *sums.entry(begin).or_default() += visits;
        }
        assert_eq!(sums, BTreeMap::from(expected), "{path}");
    }
    let refused = scene.get("/v1/stats?timezone=Mars").await;
    assert_eq!(refused.status, 400);
    let detail = refused.json()["detail"].to_string();
    assert!(
        detail.contains("timezone must be the name of a time zone"),
        "{detail}"
    );
}

#[tokio::test]
async fn unique_visitors_are_those_of_the_period_or_unknown() {
    let scene = Scene::with_visits().await;
    let by = |sequence: u64, visitor: u8, at: &str| Visit {
        visitor: Some(VisitorId([visitor * 37; 16])),
        ..visit(sequence, "member", at, Class::Human)
    };
    scene
        .keep(vec![
            by(20, 1, "2026-05-30T09:59:59Z"),
            by(21, 2, "2026-05-30T10:00:00Z"),
            by(22, 3, "2026-05-31T10:00:00Z"),
            by(23, 4, "2026-05-31T12:00:00Z"),
            by(24, 5, "2026-06-01T00:00:00Z"),
        ])
        .await;
    let days = |counts: [(u32, Value); 3]| -> Value {
        let days = counts.into_iter().filter(|(_, count)| *count != json!(0));
        days.map(|(day, count)| {
            let month = if day == 1 { 6 } else { 5 };
            json!({"begin": format!("2026-{month:02}-{day:02}T00:00:00Z"), "visitors": count})
        })
        .collect()
    };
    let unknown = Value::Null;
    for (query, of_link, of_others) in [
        // The present day counts up to now.
        (
            "since=2026-05-30T00:00:00Z",
            [2, 2, 1].map(Value::from),
            [2, 2, 1].map(Value::from),
        ),
        (
            "since=2026-05-30T10:59:00Z&until=2026-05-31T11:59:00Z",
            [1, 1, 0].map(Value::from),
            [unknown.clone(), unknown.clone(), json!(0)],
        ),
        (
            "since=2026-05-30T11:00:00Z&until=2026-06-01T00:00:00Z",
            [0, 2, 0].map(Value::from),
            [unknown, json!(2), json!(0)],
        ),
    ] {
        let of = |counts: [Value; 3]| {
            let [first, second, third] = counts;
            days([(30, first), (31, second), (1, third)])
        };
        let stats = scene.get(&format!("/v1/links/member/stats?{query}")).await;
        assert_eq!(stats.json()["visitors"], of(of_link), "{query}");
        for path in ["/v1/campaigns/1/stats", "/v1/stats"] {
            let stats = scene.get(&format!("{path}?{query}")).await.json();
            assert_eq!(stats["visitors"], of(of_others.clone()), "{path} {query}");
        }
    }
}

#[tokio::test]
async fn what_can_not_be_counted_is_told_and_who_may_not_look_is_not_shown() {
    let scene = Scene::new().await;
    for (path, status) in [
        ("/v1/stats?interval=week", 400),
        ("/v1/stats?by=nothing", 400),
        ("/v1/stats?since=yesterday", 400),
        ("/v1/stats?since=2026-06-02T00:00:00Z", 400),
        ("/v1/stats?since=2020-01-01T00:00:00Z", 400),
        ("/v1/stats?nonsense=1", 400),
        ("/v1/stats?valueIntervals=yes", 400),
        (
            "/v1/stats?valueIntervals=true&interval=hour&since=2026-04-01T00:00:00Z",
            400,
        ),
        (
            "/v1/stats?valueIntervals=true&interval=day&since=2026-04-01T00:00:00Z",
            200,
        ),
        ("/v1/domains/stats?minutes=0", 400),
        ("/v1/domains/stats?hours=1", 400),
        ("/v1/visits?class=alien", 400),
        ("/v1/visits?code=a.b", 400),
        ("/v1/visits?cursor=nonsense", 400),
        ("/v1/visits?nonsense=1", 400),
        ("/v1/links/nobody/stats", 404),
        ("/v1/campaigns/77/stats", 404),
        ("/v1/stats", 200),
        ("/v1/visits", 200),
    ] {
        assert_eq!(scene.get(path).await.status, status, "{path}");
    }
    for path in [
        "/v1/stats",
        "/v1/visits",
        "/v1/links/a/visits",
        "/v1/domains/stats",
    ] {
        assert_eq!(scene.service.get(path).await.status, 403, "{path}");
    }
    for path in ["/v1/visits", "/v1/visits?nonsense=1"] {
        let refused = scene
            .service
            .call(&scene.service.writer, "DELETE", path, None);
        assert_eq!(refused.await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn visits_are_listed_page_by_page_and_exported_as_a_whole() {
    let scene = Scene::new().await;
    let visits = (0..2500).map(|n| Visit {
        referrer: "=HYPERLINK(\"http://evil\")".to_owned(),
        ..visit(n, "abc", "2026-05-31T12:00:00Z", Class::Human)
    });
    scene.keep(visits.collect()).await;
    let mut path = "/v1/links/abc/visits?limit=1000".to_owned();
    let mut seen = 0;
    loop {
        let page = scene.get(&path).await.json();
        seen += page["visits"].as_array().expect("visits").len();
        match page["nextCursor"].as_str() {
            Some(cursor) => path = format!("/v1/links/abc/visits?limit=1000&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, 2500);
    let export_of = async |path: &str, accept: &str, raw: &str| {
        let request = Request::builder()
            .uri(format!("{path}?class=human{raw}"))
            .header("x-api-key", &scene.reader)
            .header("accept", accept)
            .body(Body::empty());
        let answer = scene.service.send(request.expect("a request")).await;
        assert_eq!(answer.status, 200);
        String::from_utf8(answer.body).expect("text")
    };
    let export = async |accept: &str, raw: &str| export_of("/v1/visits", accept, raw).await;
    let lines = export("application/x-ndjson", "").await;
    assert_eq!(lines.lines().count(), 2500);
    let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["shortCode"], "abc");
    assert_eq!(first["userAgent"], "a \"quoted\", agent");
    let raw = export("text/csv", "&raw=true").await;
    assert!(raw.contains(",\"=HYPERLINK("), "{raw:.800}");
    let table = export("text/csv", "").await;
    assert_eq!(table, raw.replace("\"=HYPERLINK(", "\"'=HYPERLINK("));
    assert_eq!(table.lines().count(), 2501);
    assert!(
        table.starts_with("at,shortCode,domain,status,"),
        "{table:.80}"
    );
    assert!(table.ends_with("\"a \"\"quoted\"\", agent\",,\n"));
    // Those of one link, and of another.
    for (accept, raw, wanted) in [
        ("text/csv", "", &table),
        ("text/csv", "&raw=true", &raw),
        ("application/x-ndjson", "", &lines),
    ] {
        assert!(
            export_of("/v1/links/abc/visits", accept, raw).await == *wanted,
            "{accept} {raw}"
        );
    }
    assert_eq!(
        export_of("/v1/links/other/visits", "application/x-ndjson", "").await,
        ""
    );
    let refused = scene.get("/v1/links/abc/visits?code=abc").await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn visitors_are_erased_with_a_receipt_and_exports_are_recorded() {
    let scene = Scene::with_visits().await;
    let erase = async |path: &str| {
        let answer = scene
            .service
            .call(&scene.service.writer, "DELETE", path, None);
        let receipt = answer.await.json();
        let path = format!("/v1/jobs/{}", receipt["jobId"]);
        let job = scene
            .service
            .call(&scene.service.reader, "GET", &path, None);
        let job = job.await.json();
        assert_eq!(job["erased"], receipt["erased"]);
        // It names every place that may still have something.
        assert_eq!(job["elsewhere"], receipt["elsewhere"]);
        for place in [
            "Redis",
            "files of nginx",
            "access logs",
            "quarantine",
            "backups",
        ] {
            let text = receipt["elsewhere"].to_string();
            assert!(text.contains(place), "{place}: {text}");
        }
        (receipt["links"].clone(), receipt["visits"].clone())
    };
    assert_eq!(erase("/v1/links/plain/visits").await, (json!(1), json!(1)));
    assert_eq!(erase("/v1/links/unused/visits").await, (json!(0), json!(0)));
    assert_eq!(
        erase("/v1/visits?externalId=nobody").await,
        (json!(0), json!(0))
    );
    assert_eq!(erase("/v1/visits?campaignId=1").await, (json!(1), json!(3)));
    assert_eq!(
        erase("/v1/visits?externalId=m-1").await,
        (json!(1), json!(0))
    );
    let visits = scene.get("/v1/visits").await.json();
    assert_eq!(visits["visits"], json!([]));
    // Counts identify no visitor and stay.
    let stats = scene.get("/v1/campaigns/1/stats").await.json();
    assert_eq!(stats["visits"]["total"], 3);
    let (_, admin) = scene.service.key(51, new_key(&[Scope::Admin])).await;
    let accept = Request::builder()
        .uri("/v1/visits?code=plain&class=human")
        .header("x-api-key", &admin)
        .header("x-real-ip", "192.0.2.7")
        .header("accept", "text/csv")
        .body(Body::empty());
    scene.service.send(accept.expect("a request")).await;
    let exported = scene
        .service
        .call(&admin, "GET", "/v1/audit?action=visits.export", None)
        .await
        .json();
    let entry = &exported["entries"][0];
    assert_eq!(entry["subject"], "link:plain");
    let detail = json!({"address": "192.0.2.7", "class": "human"});
    assert_eq!(entry["detail"], detail);
    let log = scene
        .service
        .call(&admin, "GET", "/v1/audit?action=visits.erase", None)
        .await
        .json();
    assert_eq!(log["entries"].as_array().map(Vec::len), Some(5));
    assert_eq!(log["entries"][4]["subject"], "link:plain");
}
