//! Quotas of API keys and campaigns.

use std::num::NonZeroU64;
use std::sync::Arc;

use shortlink_core::api_key::{ApiKey, KeyPolicy};
use shortlink_core::campaign::{Campaign, CampaignTarget, ParameterValues};
use shortlink_core::link::{Destination, Link};
use shortlink_core::ports::{
    Chunk, ChunkCreated, ChunkKey, NewChunk, QuotaOwner, RowOutcome, UsedUp,
};
use shortlink_core::testing::{link, moment};
use vocabulary::CampaignId;

use super::keys::{keep, key};
use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    links_are_counted_with_their_keys_and_campaigns,
    a_quota_is_kept_by_processes_that_create_at_the_same_time,
    the_keys_of_a_rotation_share_a_quota,
    a_code_that_is_taken_uses_nothing_up,
    deduplicated_and_idempotent_links_keep_quotas_as_well,
    imports_are_counted_and_not_refused,
}

fn of(code: &str, key: &ApiKey, campaign: Option<CampaignId>) -> Link {
    let mut link = link(code);
    link.created_by.clone_from(&key.id);
    if let Some(id) = campaign {
        let values = ParameterValues::from_stored(String::new());
        link.destination = Destination::Campaign { id, values };
    }
    link
}

fn limited(seed: u64, max_links: Option<u64>) -> ApiKey {
    ApiKey {
        policy: KeyPolicy {
            max_links: max_links.and_then(NonZeroU64::new),
            ..KeyPolicy::default()
        },
        ..key(seed, &[])
    }
}

async fn campaign(fixture: &Fixture, max_links: Option<u64>) -> CampaignId {
    let template = "https://example.com/".to_owned();
    let target = CampaignTarget::from_stored(template, Vec::new());
    let now = moment("2026-01-01T00:00:00Z");
    let campaign = Campaign {
        max_links: max_links.and_then(NonZeroU64::new),
        ..Campaign::new("spring".to_owned(), target, "key".to_owned(), now)
    };
    let id = fixture.store.create_campaign(&campaign).await;
    id.expect("a store")
}

/// Returns how many links have been counted for an owner.
async fn counted(fixture: &Fixture, owner: QuotaOwner) -> u64 {
    let counts = fixture.store.created_links(std::slice::from_ref(&owner));
    let counts = counts.await.expect("a store");
    counts.get(&owner).copied().unwrap_or_default()
}

fn of_key(key: &ApiKey) -> QuotaOwner {
    QuotaOwner::Key(key.first_id.clone())
}

async fn links_are_counted_with_their_keys_and_campaigns(fixture: Fixture) {
    let store = &*fixture.store;
    let keys = [limited(1, None), limited(2, Some(100))];
    keep(&fixture, &keys[0]).await;
    keep(&fixture, &keys[1]).await;
    let id = campaign(&fixture, None).await;
    let links = vec![
        of("a", &keys[0], None),
        of("b", &keys[0], Some(id)),
        of("c", &keys[1], Some(id)),
        // Of a key that does not exist any more.
        link("d"),
    ];
    let created = store.create_links(links).await.expect("a store");
    assert_eq!((created.taken, created.over), (vec![], vec![]));
    create(store, of("e", &keys[1], None)).await;
    assert_eq!(counted(&fixture, of_key(&keys[0])).await, 2);
    assert_eq!(counted(&fixture, of_key(&keys[1])).await, 2);
    assert_eq!(counted(&fixture, QuotaOwner::Campaign(id)).await, 2);
    let own = QuotaOwner::Key(link("d").created_by);
    assert_eq!(counted(&fixture, own).await, 1);
    // A link that ends or is deleted stays counted.
    revoke(store, "a").await.expect("a link");
    let deleted = store.delete_links(vec![(code("a"), 2)], moment(REVOKED_AT));
    assert_eq!(deleted.await.expect("a store"), 1);
    assert_eq!(counted(&fixture, of_key(&keys[0])).await, 2);
}

async fn a_quota_is_kept_by_processes_that_create_at_the_same_time(fixture: Fixture) {
    let stores = [
        Arc::clone(&fixture.store),
        fixture.open().await,
        fixture.open().await,
    ];
    let keys = [limited(1, Some(57)), limited(2, None)];
    keep(&fixture, &keys[0]).await;
    keep(&fixture, &keys[1]).await;
    let id = campaign(&fixture, Some(40)).await;
    // The limited key is at its quota with links of its own, and the campaign with those of the other.
    let mut tasks = Vec::new();
    for turn in 0..12_usize {
        let store = Arc::clone(&stores[turn % 3]);
        let links = (0..10).map(|place| match turn % 2 {
            0 => of(&format!("k{turn}x{place}"), &keys[0], None),
            _ => of(&format!("c{turn}x{place}"), &keys[1], Some(id)),
        });
        let links: Vec<Link> = links.collect();
        tasks.push(tokio::spawn(async move { store.create_links(links).await }));
    }
    let mut refused = [0, 0];
    for task in tasks {
        let created = task.await.expect("no panic").expect("a store");
        assert_eq!(created.taken, [0; 0]);
        for (_, over) in created.over {
            match over.owner {
                QuotaOwner::Key(owner) => {
                    assert_eq!(
                        (owner, over.limit.get(), over.used),
                        (keys[0].id.clone(), 57, 57)
                    );
                    refused[0] += 1;
                }
                QuotaOwner::Campaign(owner) => {
                    assert_eq!((owner, over.limit.get(), over.used), (id, 40, 40));
                    refused[1] += 1;
                }
            }
        }
    }
    assert_eq!(refused, [3, 20]);
    assert_eq!(fixture.count("links").await, 97);
    assert_eq!(counted(&fixture, of_key(&keys[0])).await, 57);
    assert_eq!(counted(&fixture, QuotaOwner::Campaign(id)).await, 40);
    let owners = [
        QuotaOwner::Key(keys[0].id.clone()),
        QuotaOwner::Campaign(id),
        of_key(&keys[1]),
    ];
    let used_up = fixture.store.used_up_quotas(owners.clone().into()).await;
    let used_up: Vec<QuotaOwner> = used_up
        .expect("a store")
        .into_iter()
        .map(|it| it.owner)
        .collect();
    assert_eq!(used_up, owners[..2]);
}

async fn the_keys_of_a_rotation_share_a_quota(fixture: Fixture) {
    let first = limited(1, Some(3));
    let second = ApiKey {
        first_id: first.id.clone(),
        ..limited(2, Some(3))
    };
    keep(&fixture, &first).await;
    keep(&fixture, &second).await;
    let store = &*fixture.store;
    create(store, of("a", &first, None)).await;
    let links = ["b", "c", "d", "e"].map(|code| of(code, &second, None));
    let created = store.create_links(links.into()).await.expect("a store");
    let used_up = UsedUp {
        owner: QuotaOwner::Key(second.id.clone()),
        limit: NonZeroU64::new(3).expect("a number"),
        used: 3,
    };
    assert_eq!(created.over, [(2, used_up.clone()), (3, used_up)]);
    let created = store.create_links(vec![of("f", &first, None)]).await;
    assert_eq!(created.expect("a store").over.len(), 1);
}

async fn a_code_that_is_taken_uses_nothing_up(fixture: Fixture) {
    let key = limited(1, Some(2));
    keep(&fixture, &key).await;
    let store = &*fixture.store;
    create(store, link("taken")).await;
    let links = ["taken", "a", "b"].map(|code| of(code, &key, None));
    let created = store.create_links(links.into()).await.expect("a store");
    assert_eq!(created.taken, [0]);
    // It was refused while the place that the first one leaves was not free yet.
    assert_eq!(created.over.len(), 1);
    assert_eq!(counted(&fixture, of_key(&key)).await, 1);
    create(store, of("b", &key, None)).await;
    let created = store.create_links(vec![of("c", &key, None)]).await;
    assert_eq!(created.expect("a store").over.len(), 1);
}

async fn deduplicated_and_idempotent_links_keep_quotas_as_well(fixture: Fixture) {
    let key = limited(1, Some(2));
    keep(&fixture, &key).await;
    let store = &*fixture.store;
    let digest = identity;
    let links = vec![
        (of("a", &key, None), digest(1)),
        (of("b", &key, None), digest(1)),
        (of("c", &key, None), digest(2)),
        (of("d", &key, None), digest(3)),
        (of("e", &key, None), digest(3)),
    ];
    let done = store.find_or_create_links(links).await.expect("a store");
    // The second one equals the first, and the last one equals one that was refused.
    let over: Vec<usize> = done.over.iter().map(|(place, _)| *place).collect();
    assert_eq!((done.taken, over), (vec![], vec![3, 4]));
    assert_eq!(done.found.len(), 1);
    assert_eq!(fixture.count("link_digests").await, 2);

    let free = limited(2, Some(1));
    keep(&fixture, &free).await;
    let links = ["f", "g"].map(|code| of(code, &free, None));
    let chunk = Chunk {
        digest: [5; 32],
        rows: links
            .iter()
            .map(|link| RowOutcome::Link(link.code))
            .collect(),
    };
    let key = ChunkKey {
        key_id: free.id.clone(),
        idempotency_key: "once".to_owned(),
        chunk: 0,
    };
    let new = NewChunk {
        key: key.clone(),
        chunk: chunk.clone(),
        before: None,
        links: links.into(),
        places: vec![0, 1],
        now: moment(REVOKED_AT),
    };
    let ChunkCreated::Created(created) = store.create_chunk(new).await.expect("a store") else {
        panic!("it is new");
    };
    assert_eq!(created.over.len(), 1);
    let stored = store
        .find_chunk(&key)
        .await
        .expect("a store")
        .expect("a chunk");
    assert_eq!(stored.rows, [chunk.rows[0].clone(), RowOutcome::Pending]);
}

async fn imports_are_counted_and_not_refused(fixture: Fixture) {
    let key = limited(1, Some(1));
    keep(&fixture, &key).await;
    let links = ["a", "b"].map(|code| of(code, &key, None));
    let created = fixture.store.import_links(links.into()).await;
    assert_eq!(created.expect("a store").over, []);
    assert_eq!(counted(&fixture, of_key(&key)).await, 2);
}
