use std::sync::Mutex;

use async_trait::async_trait;
use shortlink_core::audit::ChangedBy;
use shortlink_core::campaign::{CampaignEdit, ParameterValues};
use shortlink_core::ports::{AuditListing, Publisher, QueuedBatch, QueuedId};
use shortlink_core::testing::{ManualClock, MemoryPublisher, campaign, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::Agent;
use shortlink_core::visit::class::{Class, Classification};
use shortlink_core::visit::place::Place;
use shortlink_store::Claim;
use shortlink_store::testing::TemporaryStore;
use tokio_util::sync::CancellationToken;
use vocabulary::Validity;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitId, VisitMethod};

use super::*;
use crate::import::{ImportOptions, Importer};
use crate::jobs::{Outcome, Run};
use crate::outbox::outbox;
use crate::testing::claims;

/// A queue that reports only its depth.
#[derive(Default)]
struct Depth(Mutex<Option<QueueDepth>>);

impl Depth {
    fn set(&self, batches: u64, oldest: Option<&str>) {
        let oldest = oldest.map(moment);
        let depth = QueueDepth { batches, oldest };
        *self.0.lock().expect("no holder panics") = Some(depth);
    }
}

#[async_trait]
impl VisitQueue for Depth {
    async fn take(&self, _most: usize) -> Result<Vec<QueuedBatch>, PublishError> {
        Ok(Vec::new())
    }

    async fn take_over(
        &self,
        _idle: Duration,
        _most: usize,
    ) -> Result<Vec<QueuedBatch>, PublishError> {
        Ok(Vec::new())
    }

    async fn renew(&self, _batches: &[QueuedId]) -> Result<(), PublishError> {
        Ok(())
    }

    async fn settle(&self, _batches: &[QueuedId]) -> Result<(), PublishError> {
        Ok(())
    }

    async fn forget_readers(&self, _idle: Duration) -> Result<(), PublishError> {
        Ok(())
    }

    async fn trim(&self) -> Result<(), PublishError> {
        Ok(())
    }

    async fn depth(&self) -> Result<QueueDepth, PublishError> {
        let depth = *self.0.lock().expect("no holder panics");
        let operation = "look at the visits";
        depth.ok_or(PublishError::Away { operation })
    }
}

const NOW: &str = "2026-06-01T12:00:00Z";
const DAYS: u32 = 30;

struct Scene {
    kept: TemporaryStore,
    redis: Arc<MemoryPublisher>,
    clock: Arc<ManualClock>,
    queue: Arc<Depth>,
    outbox: Arc<dyn Delivery>,
    sequence: u64,
}

impl Scene {
    async fn new() -> Self {
        let kept = TemporaryStore::new().await;
        let redis = Arc::new(MemoryPublisher::default());
        let clock = Arc::new(ManualClock::at(NOW));
        let publisher: Arc<dyn Publisher> = Arc::clone(&redis) as _;
        let (outbox, _worker) = outbox(
            Arc::clone(&kept.store),
            publisher,
            Arc::clone(&clock) as Arc<dyn Clock>,
        );
        let queue = Arc::new(Depth::default());
        queue.set(0, None);
        Self {
            kept,
            redis,
            clock,
            queue,
            outbox: Arc::new(outbox),
            sequence: 0,
        }
    }

    /// A link that was created and last changed at a time.
    fn made(&self, code: &str, at: &str) -> Link {
        Link {
            created_at: moment(at),
            updated_at: moment(at),
            ..link(code)
        }
    }

    async fn keep(&self, link: Link) {
        let created = self.kept.store.create_links(vec![link]).await;
        assert!(created.expect("a working store").taken.is_empty());
    }

    async fn visit(&mut self, code: &str, class: Class, at: Timestamp) {
        self.sequence += 1;
        let visit = Visit {
            id: VisitId {
                origin: 1,
                sequence: self.sequence,
            },
            at,
            code: code.to_owned(),
            host: "s.example.com".to_owned(),
            client: None,
            visitor: None,
            user_agent: String::new(),
            referrer: String::new(),
            referrer_host: None,
            language: None,
            method: VisitMethod::Get,
            status: 302,
            purpose: String::new(),
            evidence: VisitEvidence::UNKNOWN,
            click: None,
            variant: None,
            place: Place::default(),
            agent: Arc::new(Agent::default()),
            classification: Classification {
                class,
                reason: "browser",
                ruleset: 1,
            },
        };
        let kept = self.kept.store.keep_visits(vec![visit], at).await;
        kept.expect("a working store");
    }

    /// Records visits of another link on so many days, the last of them yesterday.
    async fn record(&mut self, days: u32) {
        for day in 1..=i64::from(days) {
            let at = moment(NOW) - SignedDuration::from_hours(24 * day);
            self.visit("busy", Class::Bot, at).await;
        }
    }

    async fn run(
        &self,
        shutdown: &CancellationToken,
    ) -> (Expired, Result<Outcome, UnvisitedError>) {
        let unvisited = Unvisited {
            store: Arc::clone(&self.kept.store),
            queue: Arc::clone(&self.queue) as _,
            delivery: Arc::clone(&self.outbox),
            clock: Arc::clone(&self.clock) as _,
            days: DAYS,
            walk: None,
            done: Expired::default(),
        };
        let mut run = Run::new(unvisited, &claims(&self.kept.store, &self.clock, "one"));
        let outcome = run.finish(Duration::ZERO, shutdown, &mut |_| {}).await;
        (run.job.done, outcome)
    }

    async fn try_sweep(&self) -> Result<Expired, UnvisitedError> {
        let (done, outcome) = self.run(&CancellationToken::new()).await;
        outcome.map(|_| done)
    }

    async fn sweep(&self) -> Expired {
        self.try_sweep().await.expect("all servers work")
    }

    async fn state(&self, code: &str) -> State {
        let code = code.parse().expect("a code");
        let link = self.kept.store.find_link(&code).await;
        let link = link.expect("a working store").expect("a link");
        link.state(self.clock.now())
    }
}

#[tokio::test]
async fn a_link_that_nobody_visits_expires_as_by_any_other_change() {
    let mut scene = Scene::new().await;
    scene.record(DAYS).await;
    for (code, at) in [
        ("quiet", "2026-01-01T00:00:00Z"),
        ("seen", "2026-01-01T00:00:00Z"),
        ("past", "2026-01-01T00:00:00Z"),
        ("young", "2026-05-02T12:00:00Z"),
    ] {
        scene.keep(scene.made(code, at)).await;
    }
    // Visits of every class count.
    let (late, early) = ("2026-05-03T00:00:00Z", "2026-04-30T00:00:00Z");
    scene.visit("seen", Class::Scanner, moment(late)).await;
    scene.visit("past", Class::Human, moment(early)).await;
    let done = scene.sweep().await;
    assert_eq!((done.links, done.expired), (3, 2));
    assert_eq!(scene.state("quiet").await, State::Expired);
    assert_eq!(scene.state("past").await, State::Expired);
    assert_eq!(scene.state("seen").await, State::Live);
    assert_eq!(scene.state("young").await, State::Live);
    let record = scene.redis.record("quiet").expect("a record");
    assert!(record.contains("1780315200"), "{record}");
    let code = "quiet".parse().expect("a code");
    let history = scene.kept.store.link_history(&code, None, 10).await;
    let history = history.expect("a working store").expect("a link");
    assert_eq!((history.len(), history[0].before.revision), (1, 1));
    let audit = AuditListing {
        action: Some("link.expire".to_owned()),
        limit: 10,
        ..AuditListing::default()
    };
    let audit = scene.kept.store.list_audit(&audit).await;
    let audit = audit.expect("a working store").items;
    assert_eq!(audit.len(), 2);
    assert!(audit.iter().all(|entry| entry.key_id.is_none()));
    // The walk is daily, and a link expires only once.
    assert_eq!(scene.sweep().await, Expired::default());
    scene.clock.advance(SignedDuration::from_hours(24));
    scene.visit("busy", Class::Bot, moment(NOW)).await;
    // The link is old enough now.
    assert_eq!(scene.sweep().await.expired, 1);
    assert_eq!(scene.state("young").await, State::Expired);
    assert_eq!(scene.state("seen").await, State::Live);
}

#[tokio::test]
async fn days_without_any_visit_count_for_nothing() {
    let mut scene = Scene::new().await;
    // The link is far older than the first recorded day.
    scene
        .keep(scene.made("quiet", "2020-01-01T00:00:00Z"))
        .await;
    scene.record(DAYS - 1).await;
    // Today is not over.
    scene.visit("busy", Class::Bot, moment(NOW)).await;
    assert_eq!(scene.sweep().await, Expired::default());
    // A day before a long time without recording.
    let before = moment("2025-01-01T12:00:00Z");
    scene.visit("busy", Class::Bot, before).await;
    scene
        .keep(scene.made("later", "2025-01-01T01:00:00Z"))
        .await;
    assert_eq!(scene.sweep().await.expired, 1);
    assert_eq!(scene.state("quiet").await, State::Expired);
    assert_eq!(scene.state("later").await, State::Live);
}

#[tokio::test]
async fn nothing_expires_while_visits_wait_or_nobody_knows() {
    let mut scene = Scene::new().await;
    scene.record(DAYS).await;
    scene
        .keep(scene.made("quiet", "2026-01-01T00:00:00Z"))
        .await;
    *scene.queue.0.lock().expect("no holder panics") = None;
    let refused = scene.try_sweep().await;
    assert!(
        matches!(refused, Err(UnvisitedError::Queue(_))),
        "{refused:?}"
    );
    scene.queue.set(3, None);
    let refused = scene.try_sweep().await;
    assert!(
        matches!(refused, Err(UnvisitedError::Unknown)),
        "{refused:?}"
    );
    scene.queue.set(3, Some("2026-06-01T11:58:00Z"));
    let refused = scene.try_sweep().await;
    assert!(matches!(refused, Err(UnvisitedError::Late)), "{refused:?}");
    assert_eq!(scene.state("quiet").await, State::Live);
    scene.queue.set(3, Some("2026-06-01T11:59:30Z"));
    assert_eq!(scene.sweep().await.expired, 1);
}

#[tokio::test]
async fn changes_pauses_and_beginnings_are_signs_of_life() {
    let mut scene = Scene::new().await;
    scene.record(DAYS).await;
    let old = "2026-01-01T00:00:00Z";
    let recent = "2026-05-20T00:00:00Z";
    for link in [
        Link {
            updated_at: moment(recent),
            ..scene.made("changed", old)
        },
        Link {
            paused_at: Some(moment(old)),
            ..scene.made("paused", old)
        },
        Link {
            revoked_at: Some(moment(old)),
            ..scene.made("revoked", old)
        },
        Link {
            valid_since: Second::at(moment(recent)),
            ..scene.made("begun", old)
        },
        Link {
            valid_since: Second::at(moment("2027-01-01T00:00:00Z")),
            ..scene.made("coming", old)
        },
        Link {
            valid_until: Second::at(moment("2027-01-01T00:00:00Z")),
            max_visits: std::num::NonZeroU64::new(5),
            ..scene.made("ending", old)
        },
    ] {
        scene.keep(link).await;
    }
    assert_eq!(scene.sweep().await.expired, 1);
    assert_eq!(scene.state("ending").await, State::Expired);
    for (code, state) in [
        ("changed", State::Live),
        ("paused", State::Paused),
        ("revoked", State::Revoked),
        ("begun", State::Live),
        ("coming", State::Scheduled),
    ] {
        assert_eq!(scene.state(code).await, state, "{code}");
    }
}

#[tokio::test]
async fn links_of_campaigns_expire_while_their_campaign_redirects() {
    let mut scene = Scene::new().await;
    scene.record(DAYS).await;
    let old = moment("2026-01-01T00:00:00Z");
    let mut ids = Vec::new();
    for (code, paused_at, updated_at) in [
        ("plain", None, old),
        ("held", Some(old), old),
        ("touched", None, moment("2026-05-20T00:00:00Z")),
    ] {
        let campaign = Campaign {
            validity: Validity::default(),
            paused_at,
            revoked_at: None,
            created_at: old,
            updated_at,
            ..campaign()
        };
        let store = &scene.kept.store;
        let id = store.create_campaign(&campaign).await.expect("room");
        ids.push(id);
        let member = Link {
            destination: Destination::Campaign {
                id,
                values: ParameterValues::default(),
            },
            ..scene.made(code, "2026-01-01T00:00:00Z")
        };
        scene.keep(member).await;
    }
    assert_eq!(scene.sweep().await.expired, 1);
    assert_eq!(scene.state("plain").await, State::Expired);
    assert_eq!(scene.state("held").await, State::Live);
    assert_eq!(scene.state("touched").await, State::Live);
    // Resuming a campaign gives its links as much time as new ones.
    let by = ChangedBy {
        key_id: None,
        action: Action::CampaignResume,
    };
    let now = scene.clock.now();
    let resume = Box::new(move |campaign: Campaign| {
        CampaignEdit::Changed(Campaign {
            paused_at: None,
            revision: campaign.revision + 1,
            updated_at: now,
            ..campaign
        })
    });
    let edited = scene.kept.store.edit_campaign(ids[1], &by, resume).await;
    edited.expect("a working store").expect("a campaign");
    scene.clock.advance(SignedDuration::from_hours(24));
    assert_eq!(scene.sweep().await.expired, 0);
}

#[tokio::test]
async fn links_that_were_imported_with_their_past_count_from_then_on() {
    let mut scene = Scene::new().await;
    scene.record(DAYS).await;
    let now = scene.clock.now();
    let importer = Importer {
        store: Arc::clone(&scene.kept.store),
        publisher: Arc::clone(&scene.redis) as _,
        clock: Arc::clone(&scene.clock) as _,
        began: now,
        options: ImportOptions::default(),
    };
    let imported = Link {
        created_by: "import".to_owned(),
        ..scene.made("imported", "2026-01-01T00:00:00Z")
    };
    let done = importer.import(&[imported], &|_| {}).await;
    done.expect("a working store");
    scene
        .keep(scene.made("quiet", "2026-01-01T00:00:00Z"))
        .await;
    assert_eq!(scene.sweep().await.expired, 1);
    assert_eq!(scene.state("imported").await, State::Live);
}

#[tokio::test]
async fn a_walk_goes_on_where_it_was_left_and_one_does_it() {
    let mut scene = Scene::new().await;
    scene.record(DAYS).await;
    let many = BATCH + 20;
    for number in 0..many {
        let at = moment("2026-01-01T00:00:00Z") + SignedDuration::from_secs(i64::from(number));
        scene
            .keep(scene.made(&format!("q{number:04}"), &at.to_string()))
            .await;
    }
    let store = &scene.kept.store;
    let claimed = store.claim(Unvisited::NAME, "two", 1, None).await;
    assert_eq!(claimed.expect("a working store"), Claim::Ours);
    assert_eq!(scene.sweep().await, Expired::default());
    store
        .release(Unvisited::NAME, "two")
        .await
        .expect("a working store");
    // Stopped in the first batch, and started again.
    let shutdown = CancellationToken::new();
    let stopped = async {
        while store
            .note(Unvisited::NAME)
            .await
            .expect("a working store")
            .is_none()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shutdown.cancel();
    };
    let ((first, outcome), ()) = tokio::join!(scene.run(&shutdown), stopped);
    assert_eq!(outcome.expect("all servers work"), Outcome::Stopped);
    assert_eq!(first.expired, u64::from(BATCH));
    let second = scene.sweep().await;
    assert_eq!((second.links, second.expired), (20, 20));
    assert_eq!(scene.state("q0000").await, State::Expired);
}
