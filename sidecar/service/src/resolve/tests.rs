use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::Destination;
use shortlink_core::testing::{ManualClock, MemoryPublisher, link};
use shortlink_store::testing::TemporaryStore;

use super::*;

#[tokio::test]
async fn a_link_whose_campaign_is_missing_is_not_written_to_redis() {
    let kept = TemporaryStore::new().await;
    let redis = Arc::new(MemoryPublisher::default());
    let tasks = TaskTracker::new();
    let resolver = Resolver::new(
        Arc::clone(&kept.store),
        Arc::clone(&redis) as _,
        CodeRules::default(),
        Arc::new(ManualClock::at("2026-06-01T00:00:00Z")),
        tasks.clone(),
    );
    let campaign = CampaignId::parse(b"1").expect("an id");
    let orphan = Link {
        destination: Destination::Campaign {
            id: campaign,
            values: ParameterValues::from_stored(String::new()),
        },
        ..link("orphan")
    };
    let created = kept.store.create_links(vec![orphan, link("own")]).await;
    assert_eq!(created.expect("a store").taken, [0_usize; 0]);
    let answer = resolver.resolve(b"orphan").await;
    assert!(
        matches!(answer, Err(ResolveError::NoCampaign(id)) if id == campaign),
        "{answer:?}"
    );
    let answer = resolver.resolve(b"own").await;
    assert!(
        matches!(answer, Ok((Answer::Redirect { .. }, None))),
        "{answer:?}"
    );
    tasks.close();
    tasks.wait().await;
    assert_eq!(redis.record("orphan"), None);
    assert!(redis.record("own").is_some());
}
