//! Events besides visits and campaigns: each is stored once.

use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use shortlink_core::audit::{Action, ChangedBy};
use shortlink_core::blocks::Block;
use shortlink_core::link::{Change, Link, Second, UploadId};
use shortlink_core::testing::{link, moment};
use shortlink_core::webhook::{Clicks, EventType};
use vocabulary::CampaignId;

use super::webhooks::{created, webhook};
use crate::testing::*;
use crate::{Store, UploadEnd, WebhookChange, in_every_store};

in_every_store! {
    each_expiry_is_an_event_once,
    nothing_is_looked_for_while_no_webhook_wants_it,
    the_end_of_a_batch_is_an_event_once,
    a_suspected_block_is_an_event_once,
}

const AT: &str = "2026-06-01T12:00:00Z";

fn second(n: i64) -> Timestamp {
    moment(AT) + SignedDuration::from_secs(n)
}

fn until(code: &str, n: i64) -> Link {
    Link {
        valid_until: Second::at(second(n)),
        ..link(code)
    }
}

/// The types and the data of the events, in their order.
async fn events(store: &Store) -> Vec<(String, Value)> {
    let events = store.events_after(0, 1000).await.expect("a store");
    let events = events.into_iter().map(|event| {
        let data = event.data.expect("data");
        (event.event, serde_json::from_str(&data).expect("JSON"))
    });
    events.collect()
}

async fn expired(store: &Store) -> Vec<String> {
    let events = events(store).await.into_iter().map(|(event, data)| {
        assert_eq!(event, "link.expired");
        data["shortCode"].as_str().expect("a code").to_owned()
    });
    events.collect()
}

/// Changes a link at a time of its own.
async fn change(store: &Store, name: &str, now: i64, change: Change) {
    change_as(store, name, Action::LinkChange, now, change).await;
}

async fn change_as(store: &Store, name: &str, action: Action, now: i64, change: Change) {
    let by = ChangedBy {
        key_id: None,
        action,
    };
    let editor = Box::new(move |link: Link| link.change(&change, second(now)));
    let edited = store.edit_link(&code(name), &by, editor).await;
    edited.expect("a store").expect("a link");
}

fn ends(n: i64) -> Change {
    Change {
        valid_until: Some(Second::at(second(n))),
        ..Change::default()
    }
}

async fn each_expiry_is_an_event_once(fixture: Fixture) {
    let store = &*fixture.store;
    for it in [
        until("old", -1),
        until("b", 20),
        until("a", 20),
        until("c", 10),
        link("d"),
        link("e"),
    ] {
        create(store, it).await;
    }
    create(store, until("revoked", 15)).await;
    revoke(store, "revoked").await;
    created(store, webhook(Clicks::First)).await;
    let report = async |n: i64, limit: u32| {
        let reported = store.report_expired(second(n), limit, second(n));
        reported.await.expect("a store")
    };
    assert_eq!(report(9, 10).await, 0);
    // In steps, in the order of expiries, each once.
    let mut steps = 0;
    while report(25, 2).await > 0 {
        steps += 1;
    }
    assert_eq!((steps, expired(store).await.len()), (2, 3));
    assert_eq!(expired(store).await[0], "c");
    // One that ends before the place of the pass reports itself, and the pass has the others.
    change(store, "d", 26, ends(19)).await;
    change(store, "e", 26, ends(26)).await;
    assert_eq!(expired(store).await[3..], ["d"]);
    report(30, 10).await;
    assert_eq!(expired(store).await[3..], ["d", "e"]);
    // Another member of an expired link is no expiry. A further one is.
    let note = Change {
        note: Some(Some("note".to_owned())),
        ..Change::default()
    };
    change(store, "d", 31, note).await;
    change(store, "c", 31, ends(40)).await;
    report(39, 10).await;
    assert_eq!(expired(store).await.len(), 5);
    report(40, 10).await;
    assert_eq!(expired(store).await[5..], ["c"]);
    assert_eq!(report(100, 10).await, 0);
    let (_, data) = events(store).await[5].clone();
    let expected = json!({
        "shortCode": "c", "externalId": null, "campaignId": null, "validUntil": "2026-06-01T12:00:40Z",
        "reason": "time", "tags": [], "uploadId": null,
    });
    assert_eq!(data, expected);
    // Links that the service has ended: one that the pass finds, and those behind which it is already.
    let ended = [
        ("f", Action::LinkEnd, 120, "visits"),
        ("g", Action::LinkExpire, 119, "unvisited"),
        ("h", Action::LinkEnd, 118, "visits"),
        ("i", Action::LinkChange, 121, "time"),
    ];
    for (place, (name, action, n, reason)) in ended.into_iter().enumerate() {
        create(store, link(name)).await;
        change_as(store, name, action, n, ends(n)).await;
        report(140, 10).await;
        let (_, data) = events(store).await[6 + place].clone();
        let of = (&data["shortCode"], &data["reason"]);
        assert_eq!(of, (&json!(name), &json!(reason)));
    }
}

async fn nothing_is_looked_for_while_no_webhook_wants_it(fixture: Fixture) {
    let store = &*fixture.store;
    let mut other = webhook(Clicks::First);
    other.settings.events = vec![EventType::LinkClicked];
    created(store, other).await;
    for it in [until("a", 1), until("b", 10 * 3600)] {
        create(store, it).await;
    }
    let report = async |n: i64| {
        let reported = store.report_expired(second(n), 10, second(n));
        reported.await.expect("a store")
    };
    assert_eq!(report(5).await, 0);
    change(store, "a", 5, ends(2)).await;
    // From the change of a webhook on, an hour later.
    let wants = WebhookChange::Settings(Arc::new(|it| it.events.push(EventType::LinkExpired)));
    let hour = moment(AT) + SignedDuration::from_hours(1);
    let changed = store.change_webhook("wh_1", wants, "key", hour).await;
    changed.expect("a store").expect("a webhook");
    assert_eq!(report(2 * 3600).await, 0);
    assert_eq!(report(10 * 3600).await, 1);
    assert_eq!(expired(store).await, ["b"]);
}

async fn the_end_of_a_batch_is_an_event_once(fixture: Fixture) {
    let store = &*fixture.store;
    let end = |upload: u64, request: Option<&str>| UploadEnd {
        upload: UploadId::new(upload),
        campaign: CampaignId::new(7),
        request: request.map(|key| ("key".to_owned(), key.to_owned())),
        data: Map::from_iter([("rows".to_owned(), json!(NonZeroU64::MIN))]),
    };
    let finish = async |end| store.finish_upload(end, moment(AT)).await.expect("a store");
    finish(end(1, Some("a"))).await;
    assert_eq!(fixture.count("webhook_events").await, 0);
    created(store, webhook(Clicks::First)).await;
    for (upload, request) in [
        (1, Some("a")),
        (1, Some("a")),
        (1, Some("b")),
        (2, None),
        (2, None),
    ] {
        finish(end(upload, request)).await;
    }
    let events = events(store).await;
    let ids: Vec<&Value> = events.iter().map(|(_, data)| &data["uploadId"]).collect();
    let id = |n: u64| json!(UploadId::new(n).to_string());
    assert_eq!(ids, [&id(1), &id(1), &id(2), &id(2)]);
    let expected = json!({"uploadId": id(1), "campaignId": "7", "rows": 1});
    assert_eq!(events[0], ("upload.finished".to_owned(), expected));
}

async fn a_suspected_block_is_an_event_once(fixture: Fixture) {
    let store = &*fixture.store;
    created(store, webhook(Clicks::First)).await;
    let block = |network: Option<&str>| Block {
        domain: "a.example".to_owned(),
        network: network.map(str::to_owned),
        at: moment(AT),
        before: 100.0,
        since: 1.5,
    };
    let note = async |found, n| {
        let noted = store.note_blocks(found, second(n)).await;
        noted.expect("a store");
    };
    note(vec![block(Some("Example Mobile"))], 300).await;
    note(vec![block(Some("Example Mobile"))], 330).await;
    note(vec![block(None)], 360).await;
    let blocks = store.blocks().await.expect("a store");
    let lasting: Vec<&Block> = blocks.lasting(second(390)).collect();
    assert_eq!(lasting, [&block(None)]);
    let expected = |network: Value| {
        let data = json!({
            "domain": "a.example", "network": network, "at": AT, "before": 100.0, "since": 1.5,
        });
        ("domain.suspected_blocked".to_owned(), data)
    };
    let all = [expected(json!("Example Mobile")), expected(json!(null))];
    assert_eq!(events(store).await, all);
}
