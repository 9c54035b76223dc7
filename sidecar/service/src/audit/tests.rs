use std::sync::Arc;

use shortlink_core::campaign::Campaign;
use shortlink_core::clock::Clock;
use shortlink_core::link::{Link, Second};
use shortlink_core::ports::{PublishedCampaign, Publisher};
use shortlink_core::testing::{ManualClock, MemoryPublisher, campaign, link, moment};
use shortlink_store::Store;
use shortlink_store::testing::{TemporaryStore, settle, settle_campaigns};

use super::*;

struct Scene {
    kept: TemporaryStore,
    redis: Arc<MemoryPublisher>,
}

impl Scene {
    /// Links that are published in Redis.
    async fn with(codes: &[&str]) -> Self {
        let kept = TemporaryStore::new().await;
        let redis = Arc::new(MemoryPublisher::default());
        for code in codes {
            let link = Link {
                revision: 2,
                ..link(code)
            };
            let created = kept.store.create_links(vec![link.clone()]).await;
            redis.publish(&[link]).await.expect("a working Redis");
            let receipts = vec![created.expect("room").receipt];
            settle(&kept.store, receipts, moment(NOW)).await;
        }
        Self { kept, redis }
    }

    fn audit(&self, repair: bool) -> Audit {
        Audit {
            inspector: Inspector {
                store: Arc::clone(&self.kept.store),
                index: Arc::clone(&self.redis) as _,
                clock: Arc::new(ManualClock::at(NOW)) as Arc<dyn Clock>,
            },
            examples: 100,
            repair,
        }
    }

    async fn found(&self, repair: bool) -> Report {
        let report = self.audit(repair).run(&|_| {}).await;
        let mut report = report.expect("all servers work");
        report
            .examples
            .sort_unstable_by_key(|(kind, _)| *kind as usize);
        report
    }
}

const NOW: &str = "2026-06-01T00:00:00Z";
const GOOD: &str = "1 302 2 0 https://example.com/a";

#[tokio::test]
async fn each_kind_of_drift_is_found_and_repaired() {
    let codes = ["a1", "a2", "a3", "a4", "a5", "a6", "a7"];
    let scene = Scene::with(&codes).await;
    assert_eq!(scene.found(false).await.drift(), 0);
    scene.redis.lose("a1");
    scene.redis.set_record("a2", "1 404 0");
    scene
        .redis
        .set_record("a3", "1 302 1 0 https://example.com/a");
    scene
        .redis
        .set_record("a4", "1 302 9 0 https://example.com/a");
    scene
        .redis
        .set_record("a5", "1 302 2 0 https://example.com/b");
    scene
        .redis
        .set_record("b1", "1 302 1 0 https://example.com/b");
    scene.redis.set_record("b2", "1 404 0");
    let expected = [
        (Kind::Missing, "a1".to_owned()),
        (Kind::Negative, "a2".to_owned()),
        (Kind::Older, "a3".to_owned()),
        (Kind::Newer, "a4".to_owned()),
        (Kind::Different, "a5".to_owned()),
        (Kind::Orphan, "b1".to_owned()),
    ];
    let report = scene.found(false).await;
    assert_eq!(report.examples, expected);
    assert_eq!(report.found, [1, 1, 1, 1, 1, 0, 1]);
    assert_eq!((report.links, report.keys, report.repaired), (7, 8, 0));

    let report = scene.found(true).await;
    assert_eq!((report.drift(), report.repaired), (6, 6));
    for code in ["a1", "a2", "a3", "a5", "a6"] {
        assert_eq!(scene.redis.record(code).as_deref(), Some(GOOD), "{code}");
    }
    let overtaken = "1 302 10 0 https://example.com/a";
    assert_eq!(scene.redis.record("a4").as_deref(), Some(overtaken));
    assert_eq!(scene.redis.record("b1"), None);
    assert!(scene.redis.record("b2").is_some());
    assert_eq!(scene.found(false).await.drift(), 0);
}

#[tokio::test]
async fn what_waits_and_what_has_expired_is_no_drift() {
    let scene = Scene::with(&["a1"]).await;
    let store: &Arc<Store> = &scene.kept.store;
    store.create_links(vec![link("a2")]).await.expect("room");
    let expired = Link {
        valid_until: Second::at(moment("2026-05-01T00:00:00Z")),
        ..link("a3")
    };
    let created = store.create_links(vec![expired.clone()]).await;
    let receipts = vec![created.expect("room").receipt];
    settle(store, receipts, moment(NOW)).await;
    scene.redis.publish(&[expired]).await.expect("a Redis");
    let report = scene.found(false).await;
    assert_eq!((report.drift(), report.changing), (0, 1));
}

#[tokio::test]
async fn campaigns_are_compared_and_repaired_too() {
    let scene = Scene::with(&["a1"]).await;
    let store = &scene.kept.store;
    let mut campaigns = Vec::new();
    for _ in 0..5 {
        let mut campaign = campaign();
        campaign.id = store.create_campaign(&campaign).await.expect("room");
        campaigns.push(campaign);
    }
    // The last one waits for Redis.
    let settled = campaigns[..4].iter().map(|campaign| PublishedCampaign {
        id: campaign.id,
        revision: campaign.revision,
    });
    settle_campaigns(store, settled.collect(), moment(NOW)).await;
    let published = scene.redis.publish_campaigns(&campaigns[..2]).await;
    published.expect("a working Redis");
    let newer = Campaign {
        revision: 7,
        ..campaigns[1].clone()
    };
    let published = scene.redis.publish_campaigns(&[newer]).await;
    published.expect("a working Redis");
    let found = scene.found(false).await;
    let names: Vec<(Kind, String)> = [
        (Kind::Missing, campaigns[3].id),
        (Kind::Missing, campaigns[2].id),
        (Kind::Newer, campaigns[1].id),
    ]
    .map(|(kind, id)| (kind, format!("campaign {id}")))
    .into();
    assert_eq!((found.examples, found.changing), (names, 1));
    let repaired = scene.found(true).await;
    assert_eq!((repaired.drift(), repaired.repaired), (3, 3));
    let left = scene.found(false).await;
    // The last one still waits.
    assert_eq!((left.drift(), left.changing), (0, 1));
    let record = scene.redis.campaign_record(&campaigns[1].id.to_string());
    let expected = "1 302 8 0 https://example.com/{0}";
    assert_eq!(record.as_deref(), Some(expected));
}
