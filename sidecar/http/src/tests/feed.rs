//! The feed of stored visits as clients see it.

use std::time::Duration;

use serde_json::{Value, json};
use shortlink_core::api_key::KeyPolicy;
use shortlink_core::testing::moment;
use shortlink_core::visit::class::Class;
use shortlink_service::keys::NewKey;
use shortlink_store::testing::{code, erase_visits};

use super::visits::visit;
use super::*;

const AT: &str = "2026-06-01T00:00:00Z";

/// A service with a link of a campaign, one of a customer, and a key that reads visits.
async fn scene() -> (Service, String) {
    let service = Service::new().await;
    let body = json!({"name": "Spring", "longUrl": "https://e.example/{code}"});
    let created = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(body));
    assert_eq!(created.await.json()["id"], "1");
    for body in [
        json!({"campaignId": "1", "customSlug": "member", "externalId": "customer 1"}),
        json!({"longUrl": "https://example.com/", "customSlug": "plain", "externalId": "customer 2"}),
    ] {
        assert_eq!(service.create(body).await.status, 201);
    }
    let (_, key) = service.key(50, new_key(&[Scope::StatsRead])).await;
    (service, key)
}

/// Stores visits of codes, each with the next number of an origin.
async fn keep(service: &Service, first: u64, visits: &[(&str, Class)]) {
    let visits = visits.iter().zip(first..);
    let visits = visits.map(|((code, class), n)| visit(n, code, AT, *class));
    let kept = service.kept.store.keep_visits(visits.collect(), moment(AT));
    kept.await.expect("a working store");
}

async fn read(service: &Service, key: &str, query: &str) -> Value {
    let path = format!("/v1/visits?{query}");
    let answer = service.call(key, "GET", &path, None).await;
    assert_eq!(answer.status, 200, "{query}: {:?}", answer.body);
    answer.json()
}

fn cursor(page: &Value) -> String {
    page["nextCursor"].as_str().expect("a cursor").to_owned()
}

fn codes(page: &Value) -> Vec<&str> {
    let visits = page["visits"].as_array().expect("visits").iter();
    visits
        .map(|it| it["shortCode"].as_str().expect("a code"))
        .collect()
}

#[tokio::test]
async fn the_feed_has_each_visit_once_in_order_with_what_it_is_joined_by() {
    let (service, key) = scene().await;
    let (human, bot) = (Class::Human, Class::Bot);
    keep(&service, 0, &[("plain", human), ("member", bot)]).await;
    keep(&service, 2, &[("unknown", human), ("plain", human)]).await;
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = read(&service, &key, &format!("after={after}&limit=3")).await;
        seen.extend(codes(&page).into_iter().map(str::to_owned));
        if after == cursor(&page) {
            break;
        }
        after = cursor(&page);
    }
    assert_eq!(seen, ["plain", "member", "unknown", "plain"]);
    let page = read(&service, &key, "after=").await;
    let visits = page["visits"].as_array().expect("visits");
    let ids: Vec<i64> = visits
        .iter()
        .map(|it| it["id"].as_str().expect("an id").parse().expect("a number"))
        .collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    let expected = json!({
        "externalId": "customer 1", "campaignId": "1", "shortCode": "member",
        "domain": "s.example.com", "class": "bot", "reason": "browser",
    });
    for (member, value) in expected.as_object().expect("members") {
        assert_eq!(&visits[1][member], value, "{member}");
    }
    assert_eq!(visits[0]["campaignId"], Value::Null);
    assert_eq!(visits[2]["externalId"], Value::Null);
    // The page of a filter may be short, and its cursor goes on.
    for (query, expected) in [
        ("after=&class=bot", vec!["member"]),
        ("after=&campaignId=1", vec!["member"]),
        ("after=&code=plain&limit=1", vec!["plain"]),
        ("after=&class=scanner", vec![]),
    ] {
        let page = read(&service, &key, query).await;
        assert_eq!(codes(&page), expected, "{query}");
        let rest = read(&service, &key, &format!("after={}", cursor(&page))).await;
        let is_first = query.contains("limit=1");
        assert_eq!(codes(&rest).len(), if is_first { 3 } else { 0 }, "{query}");
    }
    // Erased visits are left out, and no number is used again.
    erase_visits(&service.kept.store, &[code("plain")], moment(AT)).await;
    let page = read(&service, &key, "after=").await;
    assert_eq!(codes(&page), ["member", "unknown"]);
}

#[tokio::test]
async fn a_request_waits_for_visits() {
    let (service, key) = scene().await;
    keep(&service, 0, &[("plain", Class::Human)]).await;
    let now = cursor(&read(&service, &key, "after=now").await);
    let query = format!("after={now}&wait=30&class=human");
    let waiting = read(&service, &key, &query);
    let storing = async {
        // Not what it waits for, and then it is.
        keep(&service, 1, &[("plain", Class::Bot)]).await;
        keep(&service, 2, &[("member", Class::Human)]).await;
    };
    let soon = tokio::time::timeout(Duration::from_secs(20), async {
        tokio::join!(waiting, storing).0
    });
    let page = soon.await.expect("an answer before the wait is over");
    assert_eq!(codes(&page), ["member"]);
    // Without visits, the wait ends.
    let rest = format!("after={}&wait=1", cursor(&page));
    let empty = read(&service, &key, &rest).await;
    assert_eq!(codes(&empty), [""; 0]);
    assert_eq!(cursor(&empty), cursor(&page));
}

#[tokio::test]
async fn waiting_requests_are_bounded_and_end_with_the_service() {
    let stop = CancellationToken::new();
    let token = stop.clone();
    let service = Service::with(|app| {
        let feed = VisitFeed::new(Arc::clone(&app.store), live::LIMITS, token);
        app.feed = Arc::new(feed);
    })
    .await;
    let (_, key) = service.key(50, new_key(&[Scope::StatsRead])).await;
    let refused = async {
        loop {
            let path = "/v1/visits?after=now&wait=1";
            let answer = service.call(&key, "GET", path, None).await;
            if answer.status != 200 {
                stop.cancel();
                return answer;
            }
        }
    };
    // The short wait may have the last place for a moment.
    let wait = || async {
        loop {
            let path = "/v1/visits?after=now&wait=30";
            let answer = service.call(&key, "GET", path, None).await;
            if answer.status == 200 {
                return answer.json();
            }
        }
    };
    let (one, two, refused) = tokio::join!(wait(), wait(), refused);
    assert_eq!(refused.status, 503);
    let detail = refused.json()["detail"].clone();
    assert_eq!(
        detail,
        "Too many requests wait for visits (visits.live_listeners)."
    );
    assert_eq!((codes(&one).len(), codes(&two).len()), (0, 0));
}

#[tokio::test]
async fn a_confined_key_sees_only_visits_of_its_links() {
    let (service, _) = scene().await;
    let policy = KeyPolicy {
        own_links_only: true,
        ..KeyPolicy::default()
    };
    let new = NewKey {
        policy,
        ..new_key(&[Scope::StatsRead, Scope::LinksWrite])
    };
    let (_, own) = service.key(51, new).await;
    let body = json!({"longUrl": "https://example.com/", "customSlug": "own"});
    let created = service.call(&own, "POST", "/v1/links", Some(body)).await;
    assert_eq!(created.status, 201);
    let visits = ["plain", "own", "unknown"].map(|code| (code, Class::Human));
    keep(&service, 0, &visits).await;
    let page = read(&service, &own, "after=").await;
    assert_eq!(codes(&page), ["own"]);
    for query in ["&code=plain", "&campaignId=1"] {
        let page = read(&service, &own, &format!("after={query}")).await;
        assert_eq!(codes(&page), [""; 0], "{query}");
    }
}

#[tokio::test]
async fn invalid_positions_and_combinations_are_refused() {
    let (service, key) = scene().await;
    let beyond = super::cursor::encode(super::cursor::FEED, 1000);
    let (listing, negative) = (
        super::cursor::encode(super::cursor::VISITS, 1),
        super::cursor::encode(super::cursor::FEED, -1),
    );
    for (query, status, detail) in [
        (
            format!("after={beyond}"),
            409,
            "The cursor is from a later state",
        ),
        (
            format!("after={listing}"),
            400,
            "after must be the nextCursor of",
        ),
        (
            format!("after={negative}"),
            400,
            "after must be the nextCursor of",
        ),
        ("after=x".into(), 400, "after must be the nextCursor of"),
        (
            "after=&cursor=x".into(),
            400,
            "cursor cannot be combined with after.",
        ),
        (
            format!("after=&since={AT}"),
            400,
            "since cannot be combined",
        ),
        (
            "after=&wait=31".into(),
            400,
            "wait must be a number of seconds from 0 to 30.",
        ),
        ("wait=1".into(), 400, "wait needs the parameter after."),
        (
            "campaignId=1".into(),
            400,
            "campaignId needs the parameter after.",
        ),
    ] {
        let path = format!("/v1/visits?{query}");
        let answer = service.call(&key, "GET", &path, None).await;
        let found = answer.json()["detail"].to_string();
        assert_eq!(answer.status, status, "{query}: {found}");
        assert!(found.contains(detail), "{query}: {found}");
    }
}
