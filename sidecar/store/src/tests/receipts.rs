//! Delivery receipts: the last status of each message counts once, in whatever order receipts arrive.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Destination, Link};
use shortlink_core::receipt::{
    DeliveryReceipt, ReceiptCount, ReceiptOf, ReceiptOutcome, ReceiptStatus,
};
use shortlink_core::testing::{campaign, link, moment};
use vocabulary::CampaignId;

use crate::testing::*;
use crate::{Store, in_every_store};

in_every_store! {
    the_last_status_of_each_message_is_counted_in_any_order,
    a_deleted_link_has_no_receipt_and_stays_counted,
    without_a_time_a_status_replaces_only_earlier_ones,
    a_recipient_is_the_latest_link_that_the_caller_reaches,
}

/// Of clicks, which ClickHouse can have.
mod of_visits {
    use super::clicked_messages_are_counted_by_the_network_of_their_receipts;

    crate::in_every_store_of_visits! {
        clicked_messages_are_counted_by_the_network_of_their_receipts,
    }
}

const LINKS: usize = 12;

async fn members(store: &Store) -> CampaignId {
    let id = store.create_campaign(&campaign()).await.expect("room");
    for n in 0..LINKS {
        let member = Link {
            destination: Destination::Campaign {
                id,
                values: ParameterValues::default(),
            },
            external_id: Some(format!("e{n}")),
            ..link(&format!("m{n}"))
        };
        create(store, member).await;
    }
    id
}

fn random_receipt(random: &mut StdRng, id: CampaignId) -> (usize, DeliveryReceipt) {
    let n = random.random_range(0..LINKS);
    let of = match random.random_bool(0.5) {
        true => ReceiptOf::Code(code(&format!("m{n}"))),
        false => ReceiptOf::Recipient(id, format!("e{n}")),
    };
    let after = SignedDuration::from_secs(random.random_range(0..6));
    let receipt = DeliveryReceipt {
        of,
        at: moment("2026-06-01T00:00:00Z") + after,
        is_timed: true,
        status: *ReceiptStatus::ALL.choose(random).expect("some"),
        network: (*["", "Alpha", "Beta"].choose(random).expect("some")).to_owned(),
    };
    (n, receipt)
}

type Counts = BTreeMap<(String, ReceiptStatus), u64>;

async fn counted(store: &Store, id: CampaignId) -> Counts {
    let counts = store.count_receipts(id).await.expect("a store");
    counts
        .into_iter()
        .map(|it| ((it.network, it.status), it.messages))
        .collect()
}

async fn the_last_status_of_each_message_is_counted_in_any_order(fixture: Fixture) {
    let store = &*fixture.store;
    let id = members(store).await;
    let random = &mut StdRng::seed_from_u64(28);
    let receipts: Vec<_> = (0..300).map(|_| random_receipt(random, id)).collect();
    let mut last: BTreeMap<usize, (Timestamp, ReceiptStatus, String)> = BTreeMap::new();
    for (n, it) in &receipts {
        let new = (it.at, it.status, it.network.clone());
        let known = last.entry(*n).or_insert_with(|| new.clone());
        *known = new.max(known.clone());
    }
    let mut expected = Counts::new();
    for (_, status, network) in last.values() {
        *expected.entry((network.clone(), *status)).or_default() += 1;
    }
    // Several sidecars at once, each with all of them in another order.
    let others = join_all((0..3).map(|_| fixture.open())).await;
    let stores = [&fixture.store].into_iter().chain(&others);
    let done = stores.map(|store| {
        let mut receipts: Vec<DeliveryReceipt> =
            receipts.iter().map(|(_, it)| it.clone()).collect();
        receipts.shuffle(random);
        async move {
            for some in receipts.chunks(40) {
                let outcomes = store.keep_receipts(some.to_vec(), None).await;
                let outcomes = outcomes.expect("a store");
                assert_eq!(outcomes.len(), some.len());
                assert!(!outcomes.contains(&ReceiptOutcome::Unknown));
            }
        }
    });
    join_all(done).await;
    assert_eq!(counted(store, id).await, expected);
    assert_eq!(fixture.count("receipts").await, last.len() as i64);
    let again: Vec<DeliveryReceipt> = receipts.into_iter().map(|(_, it)| it).collect();
    let outcomes = store.keep_receipts(again, None).await.expect("a store");
    assert!(outcomes.iter().all(|it| *it == ReceiptOutcome::Unchanged));
}

async fn a_deleted_link_has_no_receipt_and_stays_counted(fixture: Fixture) {
    let store = &*fixture.store;
    let id = members(store).await;
    let delivered = |of| DeliveryReceipt {
        of,
        at: moment(NOW),
        is_timed: true,
        status: ReceiptStatus::Delivered,
        network: String::new(),
    };
    let known = delivered(ReceiptOf::Code(code("m1")));
    let outcomes = store.keep_receipts(vec![known.clone()], None).await;
    assert_eq!(outcomes.expect("a store"), [ReceiptOutcome::Stored]);
    let others = Some(vec!["another key".to_owned()]);
    let outcomes = store.keep_receipts(vec![known.clone()], others).await;
    assert_eq!(outcomes.expect("a store"), [ReceiptOutcome::Unknown]);
    let deleted = store.delete_links(vec![(code("m1"), 1)], moment(NOW)).await;
    assert_eq!(deleted.expect("a store"), 1);
    assert_eq!(fixture.count("receipts").await, 0);
    assert_eq!(counted(store, id).await.values().sum::<u64>(), 1);
    let outcomes = store.keep_receipts(vec![known], None).await;
    assert_eq!(outcomes.expect("a store"), [ReceiptOutcome::Unknown]);
}

async fn without_a_time_a_status_replaces_only_earlier_ones(fixture: Fixture) {
    let store = &*fixture.store;
    let id = members(store).await;
    let mut at = moment(NOW);
    for (status, outcome, counted_as) in [
        ("sent", ReceiptOutcome::Stored, "sent"),
        ("delivered", ReceiptOutcome::Stored, "delivered"),
        ("sent", ReceiptOutcome::Unchanged, "delivered"),
        ("delivered", ReceiptOutcome::Unchanged, "delivered"),
    ] {
        at += SignedDuration::from_secs(1);
        let receipt = DeliveryReceipt {
            of: ReceiptOf::Code(code("m1")),
            at,
            is_timed: false,
            status: ReceiptStatus::by_name(status).expect("a status"),
            network: String::new(),
        };
        let outcomes = store.keep_receipts(vec![receipt], None).await;
        assert_eq!(outcomes.expect("a store"), [outcome]);
        let messages = store.count_messages(id).await.expect("a store");
        let counted_as = ReceiptStatus::by_name(counted_as).expect("a status");
        assert_eq!(messages, [(counted_as, 1)]);
    }
}

async fn a_recipient_is_the_latest_link_that_the_caller_reaches(fixture: Fixture) {
    let store = &*fixture.store;
    let id = members(store).await;
    for (name, key, after) in [("k1", "one", 1), ("k2", "two", 2), ("k3", "two", 3)] {
        let member = Link {
            destination: Destination::Campaign {
                id,
                values: ParameterValues::default(),
            },
            external_id: Some("e1".to_owned()),
            created_by: key.to_owned(),
            created_at: moment(NOW) + SignedDuration::from_secs(after),
            ..link(name)
        };
        create(store, member).await;
    }
    let mut at = moment(NOW);
    for (keys, expected) in [(Some("one"), "k1"), (Some("two"), "k3"), (None, "k3")] {
        at += SignedDuration::from_secs(1);
        let receipt = DeliveryReceipt {
            of: ReceiptOf::Recipient(id, "e1".to_owned()),
            at,
            is_timed: true,
            status: ReceiptStatus::Failed,
            network: String::new(),
        };
        let keys = keys.map(|key| vec![key.to_owned()]);
        let outcomes = store.keep_receipts(vec![receipt.clone()], keys.clone());
        assert_eq!(outcomes.await.expect("a store"), [ReceiptOutcome::Stored]);
        // The same of its code.
        let of_code = DeliveryReceipt {
            of: ReceiptOf::Code(code(expected)),
            ..receipt
        };
        let outcomes = store.keep_receipts(vec![of_code], keys).await;
        assert_eq!(outcomes.expect("a store"), [ReceiptOutcome::Unchanged]);
    }
}

async fn clicked_messages_are_counted_by_the_network_of_their_receipts(fixture: Fixture) {
    let store = &*fixture.store;
    let id = members(store).await;
    let receipts = (0..LINKS).map(|n| DeliveryReceipt {
        of: ReceiptOf::Code(code(&format!("m{n}"))),
        at: moment(NOW),
        is_timed: true,
        status: match n % 4 {
            0 => ReceiptStatus::Failed,
            _ => ReceiptStatus::Delivered,
        },
        network: ["Alpha", "Beta"][n % 2].to_owned(),
    });
    let stored = store.keep_receipts(receipts.collect(), None).await;
    stored.expect("a store");
    let clicked = async || {
        let counts = store.count_receipts(id).await.expect("a store");
        ["Alpha", "Beta"].map(|network| {
            let is_delivered =
                |it: &&ReceiptCount| it.network == network && it.status == ReceiptStatus::Delivered;
            let count = counts.iter().find(is_delivered);
            count.and_then(|it| it.clicked).expect("few clicks")
        })
    };
    assert_eq!(clicked().await, [0, 0]);
    // Twice the same, a message that failed, and a link of no campaign.
    create(store, link("plain")).await;
    let codes = ["m1", "m1", "m0", "m2", "m3", "plain"].into_iter().zip(0..);
    let visits = codes.map(|(code, n)| visit(n, code, "2026-06-01T12:00:00Z"));
    keep(store, visits.collect()).await;
    assert_eq!(clicked().await, [1, 2]);
    erase_visits(store, &[code("m1")], moment(NOW)).await;
    assert_eq!(clicked().await, [1, 1]);
    let deleted = store.delete_links(vec![(code("m2"), 1)], moment(NOW)).await;
    assert_eq!(deleted.expect("a store"), 1);
    assert_eq!(clicked().await, [1, 1]);
}
