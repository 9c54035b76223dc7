use super::*;

/// The value of a sample; the name is with its labels.
fn value<'m>(metrics: &'m str, name: &str) -> Option<&'m str> {
    let mut samples = metrics.lines().filter_map(|line| line.rsplit_once(' '));
    samples
        .find(|(found, _)| *found == name)
        .map(|found| found.1)
}

async fn metrics(service: &Service) -> String {
    let answer = service.get("/metrics").await;
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body).expect("text")
}

#[tokio::test]
async fn what_is_counted_is_there_from_the_beginning() {
    let service = Service::new().await;
    let shown = metrics(&service).await;
    for name in [
        "shortlink_answers_total{to=\"api\",status=\"5xx\"}",
        "shortlink_answers_total{to=\"visitor\",status=\"5xx\"}",
        "shortlink_visits_kept_total",
        "shortlink_visits_quarantined_total",
        "shortlink_visits_ahead_total",
        "shortlink_visit_quarantine_entries",
        "shortlink_outbox_waiting",
        "shortlink_pool_codes{length=\"8\",status=\"unused\"}",
        "shortlink_codes_used{length=\"8\"}",
    ] {
        assert_eq!(value(&shown, name), Some("0"), "{name} in {shown}");
    }
    for (name, expected) in [
        ("shortlink_database_up", "1"),
        ("shortlink_redis_up", "1"),
        ("shortlink_pool_low", "10"),
        ("shortlink_clock_seconds", "1780272000"),
    ] {
        assert_eq!(value(&shown, name), Some(expected), "{name} in {shown}");
    }
}

#[tokio::test]
async fn answers_are_counted_by_who_got_them() {
    let service = Service::new().await;
    let body = json!({ "longUrl": "https://example.com/", "customSlug": "abc" });
    service.create(body).await;
    assert_eq!(service.get("/resolve/abc").await.status, 302);
    assert_eq!(service.get("/resolve/abd").await.status, 404);
    assert_eq!(service.get("/v1/nothing").await.status, 404);
    let shown = metrics(&service).await;
    for (to, status, expected) in [
        ("api", "2xx", "1"),
        ("api", "4xx", "1"),
        ("visitor", "3xx", "1"),
        ("visitor", "4xx", "1"),
        ("visitor", "5xx", "0"),
    ] {
        let name = format!("shortlink_answers_total{{to=\"{to}\",status=\"{status}\"}}");
        assert_eq!(value(&shown, &name), Some(expected), "{name} in {shown}");
    }
}

#[tokio::test]
async fn a_redis_and_a_database_that_are_away_are_told_of() {
    let service = Service::new().await;
    service.redis.set_away(true);
    let body = json!({ "longUrl": "https://example.com/" });
    service.create(body).await;
    service.clock.advance(jiff::SignedDuration::from_mins(1));
    let shown = metrics(&service).await;
    assert_eq!(value(&shown, "shortlink_redis_up"), Some("0"), "{shown}");
    let waiting = value(&shown, "shortlink_outbox_waiting");
    assert_eq!(waiting, Some("1"), "{shown}");
    let errors = || value_of_errors(&service);
    let before = errors().await;
    service.kept.store.close().await;
    let shown = metrics(&service).await;
    assert_eq!(value(&shown, "shortlink_database_up"), Some("0"), "{shown}");
    assert_eq!(value(&shown, "shortlink_outbox_waiting"), None, "{shown}");
    // Other tests of this process increment the counter too.
    assert!(errors().await > before);
}

async fn value_of_errors(service: &Service) -> u64 {
    let shown = metrics(service).await;
    let value = value(&shown, "shortlink_database_errors_total");
    value.expect("a counter").parse().expect("a number")
}
