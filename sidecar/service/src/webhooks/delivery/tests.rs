use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rand::SeedableRng;
use shortlink_core::ports::TimeSpan;
use shortlink_core::testing::{ManualClock, moment};
use shortlink_core::webhook::{
    Clicks, EndpointPolicy, EndpointUrl, EventType, Message, WebhookSettings,
};
use shortlink_store::testing::{TemporaryStore, code, erase_visits, keep, visit};
use shortlink_store::{WebhookChange, WebhookChanged};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::live::LiveLimits;
use crate::webhooks::Webhooks;

const AT: &str = "2026-06-01T12:00:00Z";

/// An endpoint that accepts a message, unless it is to panic.
#[derive(Default)]
struct Endpoints {
    bodies: Mutex<Vec<String>>,
    panics: AtomicU64,
}

#[async_trait]
impl MessageSender for Endpoints {
    async fn send(&self, message: Message) -> Result<Answer, SendError> {
        let left = self.panics.load(Ordering::Relaxed);
        if left > 0 {
            self.panics.store(left - 1, Ordering::Relaxed);
            panic!("as a fault of a library would");
        }
        self.bodies.lock().push(message.body);
        Ok(Answer {
            status: 200,
            retry_after: None,
        })
    }
}

struct Scene {
    kept: TemporaryStore,
    endpoints: Arc<Endpoints>,
    webhooks: Webhooks,
}

impl Scene {
    async fn new() -> Self {
        let kept = TemporaryStore::new().await;
        let endpoints = Arc::new(Endpoints::default());
        let webhooks = Webhooks {
            store: Arc::clone(&kept.store),
            sender: Arc::clone(&endpoints) as _,
            policy: EndpointPolicy::default(),
            clock: Arc::new(ManualClock::at(AT)),
            counters: Arc::default(),
            rng: StdRng::seed_from_u64(1).into(),
        };
        Self {
            kept,
            endpoints,
            webhooks,
        }
    }

    async fn create(&self) -> String {
        let settings = WebhookSettings {
            name: "test".to_owned(),
            url: EndpointUrl::from_stored("https://hooks.example.com/".to_owned()),
            events: EventType::ALL.to_vec(),
            clicks: Clicks::Each,
            campaigns: None,
            tags: None,
            classes: None,
            max_batch: 1,
        };
        let created = self.webhooks.create(settings, "key").await;
        let WebhookChanged::Done(webhook) = created.expect("a store") else {
            panic!("no webhook");
        };
        webhook.id
    }

    async fn delivery(&self) -> Delivery {
        let limits = LiveLimits {
            listeners: 1,
            per_key: 1,
            visits_per_s: 1,
        };
        let feed = VisitFeed::new(
            Arc::clone(&self.kept.store),
            limits,
            CancellationToken::new(),
        );
        let mut delivery = Delivery::new(Parts {
            store: Arc::clone(&self.kept.store),
            feed: Arc::new(feed),
            sender: Arc::clone(&self.endpoints) as _,
            clock: Arc::clone(&self.webhooks.clock),
            describe: |visit| RawValue::from_string(visit.visit.number.to_string()).ok(),
            counters: Arc::default(),
            rng: StdRng::seed_from_u64(2),
        });
        delivery.begin().await.expect("a store");
        delivery
    }

    fn count(&self) -> usize {
        self.endpoints.bodies.lock().len()
    }

    async fn keep(&self, first: u64, count: u64) {
        let visits = (first..first + count).map(|n| visit(n, &format!("v{}", n % 7), AT));
        keep(&self.kept.store, visits.collect()).await;
    }
}

/// Does steps until something holds.
async fn until(delivery: &mut Delivery, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "it never holds");
        delivery.step().await.expect("a store");
    }
}

#[tokio::test]
async fn a_panic_while_sending_is_a_failed_attempt() {
    let scene = Scene::new().await;
    let id = scene.create().await;
    let mut delivery = scene.delivery().await;
    scene.endpoints.panics.store(3, Ordering::Relaxed);
    scene.keep(0, 20).await;
    until(&mut delivery, || scene.count() == 20).await;
    delivery.end().await.expect("a store");
    let bodies: BTreeSet<String> = scene.endpoints.bodies.lock().iter().cloned().collect();
    assert_eq!(bodies.len(), 20);
    let attempts = scene.kept.store.webhook_attempts(&id, None, 100).await;
    let attempts = attempts.expect("a store");
    assert_eq!(
        attempts.iter().filter(|(_, it)| it.error.is_some()).count(),
        3
    );
    assert_eq!(attempts.len(), 23);
}

#[tokio::test]
async fn a_holder_that_was_overtaken_writes_nothing_and_begins_anew() {
    let scene = Scene::new().await;
    let id = scene.create().await;
    let find = async || {
        scene
            .kept
            .store
            .find_webhook(&id)
            .await
            .expect("a store")
            .expect("one")
    };
    let mut former = scene.delivery().await;
    scene.keep(0, 5).await;
    until(&mut former, || scene.count() == 5).await;
    let mut next = scene.delivery().await;
    let before = find().await;
    former.end().await.expect("a store");
    assert_eq!(find().await.progress, before.progress);
    // The next holder sends what was not noted once more, and then goes on.
    scene.keep(5, 5).await;
    let different = || {
        let bodies = scene.endpoints.bodies.lock();
        bodies.iter().cloned().collect::<BTreeSet<String>>().len()
    };
    until(&mut next, || different() == 10).await;
    next.end().await.expect("a store");
    let mut last = scene.delivery().await;
    scene.keep(10, 1).await;
    let before = scene.count();
    until(&mut last, || scene.count() > before).await;
    assert_eq!(scene.count(), before + 1, "nothing else is sent");
}

#[tokio::test]
async fn a_change_takes_effect_and_a_replay_sends_everything_again() {
    let scene = Scene::new().await;
    let id = scene.create().await;
    let mut delivery = scene.delivery().await;
    scene.keep(0, 5).await;
    until(&mut delivery, || scene.count() == 5).await;
    let change = async |change| {
        let changed = scene.webhooks.change(&id, change, "key").await;
        changed.expect("a store").expect("a webhook")
    };
    change(WebhookChange::Pause).await;
    let is_quiet = |delivery: &Delivery| delivery.endpoints.is_empty();
    while !is_quiet(&delivery) {
        delivery.step().await.expect("a store");
    }
    scene.keep(5, 5).await;
    delivery.step().await.expect("a store");
    assert_eq!(scene.count(), 5);
    change(WebhookChange::Resume).await;
    let batches = Arc::new(|it: &mut WebhookSettings| it.max_batch = 100);
    change(WebhookChange::Settings(batches)).await;
    let events = || {
        let bodies = scene.endpoints.bodies.lock();
        let ids = bodies
            .iter()
            .flat_map(|body| body.split("\"click_").skip(1));
        ids.count()
    };
    tokio::time::sleep_until(delivery.next_look).await;
    until(&mut delivery, || events() == 10).await;
    assert!(scene.endpoints.bodies.lock()[5].starts_with(r#"{"type":"batch""#));
    change(WebhookChange::Replay(moment(AT))).await;
    tokio::time::sleep_until(delivery.next_look).await;
    until(&mut delivery, || events() == 20).await;
    assert_eq!(scene.webhooks.clock.now(), moment(AT));
}

#[tokio::test]
async fn erased_visits_that_wait_in_memory_are_not_sent() {
    let scene = Scene::new().await;
    scene.create().await;
    let mut delivery = scene.delivery().await;
    let left = &scene.endpoints.panics;
    left.store(u64::MAX, Ordering::Relaxed);
    scene.keep(0, 14).await;
    let have_failed = || left.load(Ordering::Relaxed) <= u64::MAX - 7;
    until(&mut delivery, have_failed).await;
    let store = &scene.kept.store;
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 100).await;
    let visits = page.expect("a store").visits.into_iter();
    let erased = visits.filter(|it| it.code == "v0");
    let erased: Vec<String> = erased
        .map(|it| format!(r#""data":{}}}"#, it.number))
        .collect();
    assert_eq!(erase_visits(store, &[code("v0")], moment(AT)).await, 2);
    // The next visit of the same link comes behind those that were erased.
    keep(store, vec![visit(14, "v0", "2026-06-01T13:00:00Z")]).await;
    tokio::time::sleep_until(delivery.next_look).await;
    delivery.step().await.expect("a store");
    left.store(0, Ordering::Relaxed);
    let has_last = || {
        let bodies = scene.endpoints.bodies.lock();
        bodies.iter().any(|body| body.contains("T13:00:00"))
    };
    until(&mut delivery, || has_last() && scene.count() >= 13).await;
    let bodies = scene.endpoints.bodies.lock();
    let has = |data: &String| bodies.iter().any(|body| body.ends_with(data));
    assert!(!erased.iter().any(has), "{bodies:?}");
}

#[tokio::test]
async fn events_expire_without_any_webhook() {
    let scene = Scene::new().await;
    let id = scene.create().await;
    let store = &scene.kept.store;
    let old = moment(AT) - EVENT_RETENTION - jiff::SignedDuration::from_secs(1);
    store.mark_events(0, old).await.expect("a store");
    let deleted = scene.webhooks.change(&id, WebhookChange::Delete, "key");
    deleted.await.expect("a store").expect("a webhook");
    let mut delivery = scene.delivery().await;
    delivery.step().await.expect("a store");
    let id = scene.create().await;
    let replay = WebhookChange::Replay(moment(AT) - jiff::SignedDuration::from_hours(1));
    let replayed = scene.webhooks.change(&id, replay, "key").await;
    let too_early = WebhookChanged::TooEarly(moment(AT));
    assert_eq!(replayed.expect("a store"), Some(too_early));
}
