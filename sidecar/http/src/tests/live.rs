//! The live feed of visits as clients see it.

use axum::body::BodyDataStream;
use axum::http::HeaderMap;
use futures_util::StreamExt;
use shortlink_core::testing::eventually;
use shortlink_service::live::LiveLimits;
use shortlink_service::testing::live::{MemoryTail, start, tap};
use tokio_util::sync::CancellationToken;

use super::*;

pub(super) const LIMITS: LiveLimits = LiveLimits {
    listeners: 2,
    per_key: 2,
    visits_per_s: 10_000,
};

struct Scene {
    service: Service,
    tail: Arc<MemoryTail>,
    feed: Arc<LiveVisits>,
    stop: CancellationToken,
    key_id: String,
    key: String,
}

/// A streamed answer.
struct Feed {
    headers: HeaderMap,
    body: BodyDataStream,
    text: String,
}

impl Feed {
    /// Waits for an event or a comment, up to its empty line; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        let limit = std::time::Duration::from_secs(20);
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = event.to_owned();
                self.text = rest.to_owned();
                return Some(event);
            }
            let part = tokio::time::timeout(limit, self.body.next()).await;
            let part = part.expect("something comes")?.expect("a whole body");
            self.text += str::from_utf8(&part).expect("text");
        }
    }
}

impl Scene {
    async fn new() -> Self {
        let tail = Arc::new(MemoryTail::new(1));
        let mut running = None;
        let service = Service::with(|app| {
            let (feed, stop) = start(&tail, Arc::clone(&app.store) as _, LIMITS);
            app.live = Some(Arc::clone(&feed));
            running = Some((feed, stop));
        })
        .await;
        let (feed, stop) = running.expect("a feed");
        let (key_id, key) = service.key(50, new_key(&[Scope::StatsRead])).await;
        Self {
            service,
            tail,
            feed,
            stop,
            key_id,
            key,
        }
    }

    fn request(&self, path: &str, last: Option<&str>) -> Request<Body> {
        let request = Request::builder().uri(path).header("x-api-key", &self.key);
        let request = match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        };
        request.body(Body::empty()).expect("a good request")
    }

    async fn open(&self, path: &str, last: Option<&str>) -> Feed {
        let request = self.request(path, last);
        let response = self.service.router.clone().oneshot(request).await;
        let (parts, body) = response.expect("an answer").into_parts();
        assert_eq!(parts.status, 200);
        let mut feed = Feed {
            headers: parts.headers,
            body: body.into_data_stream(),
            text: String::new(),
        };
        assert_eq!(feed.next().await.as_deref(), Some("retry: 1000"));
        let begun = feed.next().await.expect("an event");
        assert!(
            begun.starts_with("event: begun\ndata: {}\nid: 0:"),
            "{begun}"
        );
        feed
    }

    async fn refused(&self, path: &str, last: Option<&str>) -> Answer {
        self.service.send(self.request(path, last)).await
    }
}

#[tokio::test]
async fn visits_come_as_events() {
    let scene = Scene::new().await;
    let mut feed = scene.open("/v1/visits/live?class=human", None).await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(feed.headers[name], value, "{name}");
    }
    scene.tail.put(0, 7, tap(0));
    let event = feed.next().await.expect("an event");
    let (head, data) = event.split_once("\ndata: ").expect("data");
    let (data, id) = data.rsplit_once("\nid: ").expect("an id");
    assert_eq!((head, id), ("event: visit", "0:7-0:0:0"));
    let visit: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(visit["at"], "2026-06-01T12:00:00Z");
    assert_eq!(visit["shortCode"], "abc");
    assert_eq!(visit["domain"], "s.example.com");
    assert_eq!(visit["class"], "human");
    assert_eq!(visit["method"], "GET");
    // From where it was on a connection that broke.
    scene.tail.put(0, 8, tap(1));
    let mut again = scene.open("/v1/visits/live", Some("0:7-0:0:0")).await;
    let event = again.next().await.expect("an event");
    assert!(event.ends_with("\nid: 0:8-0:0:0"), "{event}");
    scene.tail.set_away(true);
    let away = "event: interrupted\ndata: {}";
    assert_eq!(again.next().await.as_deref(), Some(away));
    scene.tail.set_away(false);
    let back = "event: resumed\ndata: {}";
    assert_eq!(again.next().await.as_deref(), Some(back));
}

#[tokio::test]
async fn what_is_not_right_is_told_and_who_may_not_listen_does_not() {
    let scene = Scene::new().await;
    for (query, says) in [
        ("class=alien", "class must be one of"),
        ("code=a.b", "code must be"),
        ("domain=", "domain must be"),
        ("limit=5", "allowed parameters are class, code and domain"),
        (
            "campaignId=1",
            "allowed parameters are class, code and domain",
        ),
    ] {
        let path = format!("/v1/visits/live?{query}");
        let answer = scene.refused(&path, None).await;
        assert_eq!(answer.status, 400, "{query}");
        let detail = answer.json()["detail"].clone();
        assert!(
            detail.as_str().is_some_and(|it| it.contains(says)),
            "{detail}"
        );
    }
    let answer = scene.refused("/v1/visits/live", Some("nonsense")).await;
    assert_eq!(answer.status, 400);
    let detail = answer.json()["detail"].clone();
    assert!(
        detail
            .as_str()
            .is_some_and(|it| it.contains("Last-Event-ID"))
    );
    assert_eq!(scene.service.get("/v1/visits/live").await.status, 403);
    let nobody = scene
        .service
        .call("nonsense", "GET", "/v1/visits/live", None);
    assert_eq!(nobody.await.status, 401);
    assert_eq!(scene.feed.listeners(), 0);
    // A disabled feed is not found.
    let without = Service::new().await;
    let (_, key) = without.key(50, new_key(&[Scope::StatsRead])).await;
    let answer = without.call(&key, "GET", "/v1/visits/live", None).await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn no_more_listen_than_may() {
    let scene = Scene::new().await;
    let first = scene.open("/v1/visits/live", None).await;
    let _second = scene.open("/v1/visits/live", None).await;
    let metrics = scene.service.get("/metrics").await;
    let metrics = String::from_utf8(metrics.body).expect("text");
    assert!(
        metrics.contains("\nshortlink_live_listeners 2\n"),
        "{metrics}"
    );
    let answer = scene.refused("/v1/visits/live", None).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), Some("2"));
    let detail = answer.json()["detail"].clone();
    assert!(
        detail
            .as_str()
            .is_some_and(|it| it.contains("visits.live_listeners"))
    );
    drop(first);
    eventually("it is noticed", async || scene.feed.listeners() == 1).await;
    scene.open("/v1/visits/live", None).await;
}

#[tokio::test]
async fn the_feed_ends_with_its_key_and_with_the_service() {
    let scene = Scene::new().await;
    let mut feed = scene.open("/v1/visits/live", None).await;
    let day = jiff::SignedDuration::from_hours(24);
    let (_, brief) = {
        let mut key = new_key(&[Scope::StatsRead]);
        key.expires_at = Some(scene.service.clock.now() + day);
        scene.service.key(52, key).await
    };
    let request = Request::builder().uri("/v1/visits/live");
    let request = request.header("authorization", format!("Bearer {brief}"));
    let request = request.body(Body::empty()).expect("a good request");
    let response = scene.service.router.clone().oneshot(request).await;
    let mut expiring = Feed {
        headers: HeaderMap::new(),
        body: response.expect("an answer").into_body().into_data_stream(),
        text: String::new(),
    };
    for begin in ["retry: ", "event: begun\n"] {
        let event = expiring.next().await.expect("an event");
        assert!(event.starts_with(begin), "{event}");
    }
    scene.service.clock.advance(day);
    let ended = "event: end\ndata: {\"reason\":\"key\"}";
    assert_eq!(expiring.next().await.as_deref(), Some(ended));
    assert_eq!(expiring.next().await, None);

    let (_, admin) = scene
        .service
        .key(53, new_key(&[Scope::KeysAdmin, Scope::StatsRead]))
        .await;
    let path = format!("/v1/keys/{}", scene.key_id);
    let revoked = scene.service.call(&admin, "DELETE", &path, None).await;
    assert!(matches!(revoked.status, 200 | 204), "{}", revoked.status);
    assert_eq!(feed.next().await.as_deref(), Some(ended));
    assert_eq!(feed.next().await, None);

    let (_, key) = scene.service.key(54, new_key(&[Scope::StatsRead])).await;
    let scene = Scene { key, ..scene };
    let mut feed = scene.open("/v1/visits/live", None).await;
    scene.stop.cancel();
    let ended = "event: end\ndata: {\"reason\":\"shutdown\"}";
    assert_eq!(feed.next().await.as_deref(), Some(ended));
    assert_eq!(feed.next().await, None);
}
