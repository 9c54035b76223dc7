use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::Destination;
use shortlink_core::testing::{ManualClock, MemoryPublisher, link};
use shortlink_store::testing::TemporaryStore;

use super::*;

/// A visitor with an iPhone.
pub(crate) struct Phone;

impl Visitor for Phone {
    fn user_agent(&self) -> &[u8] {
        b"Mozilla/5.0 (iPhone; CPU iPhone OS 26_0 like Mac OS X)"
    }
    fn accept_language(&self) -> &[u8] {
        b"de-AT"
    }
    fn country(&self) -> &[u8] {
        b"AT"
    }
    fn region(&self) -> &[u8] {
        b""
    }
    fn query(&self) -> &[u8] {
        b""
    }
    fn address(&self) -> &[u8] {
        b"192.0.2.1"
    }
}

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
    let answer = resolver.resolve(b"orphan", &Phone).await;
    assert!(
        matches!(answer, Err(ResolveError::NoCampaign(id)) if id == campaign),
        "{answer:?}"
    );
    let answer = resolver.resolve(b"own", &Phone).await;
    assert!(
        matches!(&answer, Ok(it) if matches!(it.answer, Answer::Redirect { .. }) && it.followed.is_none()),
        "{answer:?}"
    );
    tasks.close();
    tasks.wait().await;
    assert_eq!(redis.record("orphan"), None);
    assert!(redis.record("own").is_some());
}
