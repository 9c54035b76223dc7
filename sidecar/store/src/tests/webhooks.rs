//! Webhooks: which first clicks are events, and who may write progress.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use shortlink_core::audit::{Action, ChangedBy};
use shortlink_core::campaign::CampaignEdit;
use shortlink_core::ports::{CampaignEditor, TimeSpan};
use shortlink_core::testing::{campaign, eventually, link, moment};
use shortlink_core::visit::class::{Class, Classification};
use shortlink_core::visit::stored::Verdict;
use shortlink_core::webhook::{
    Attempt, Clicks, EndpointUrl, EventType, PauseReason, Progress, Reached, Webhook,
    WebhookSettings,
};
use tokio::sync::Notify;
use vocabulary::CampaignId;

use super::visits::of_class;
use crate::testing::*;
use crate::webhooks::events::{NewEvent, report};
use crate::{
    Delivered, Scheme, Store, VisitsOptions, WebhookChange, WebhookChanged, in_every_store,
};

in_every_store! {
    the_first_human_visit_of_each_link_is_an_event,
    a_visit_that_is_judged_human_later_can_be_the_first,
    first_clicks_begin_with_the_webhook_and_end_with_erasure,
    a_webhook_is_found_as_it_was_stored_and_changed,
    progress_is_written_by_the_last_holder_only,
    a_replay_begins_at_the_place_of_its_time,
    the_log_has_the_latest_attempts,
    changes_of_campaigns_are_events,
}

const AT: &str = "2026-06-01T12:00:00Z";

pub(super) fn webhook(clicks: Clicks) -> Webhook {
    Webhook {
        id: "wh_1".to_owned(),
        settings: WebhookSettings {
            name: "CRM".to_owned(),
            url: EndpointUrl::from_stored("https://hooks.example.com/a?b=secret".to_owned()),
            events: EventType::ALL.to_vec(),
            clicks,
            campaigns: Some(vec![CampaignId::new(7).expect("an id")]),
            tags: Some(vec!["ü".to_owned()]),
            classes: Some(vec![Class::Human, Class::Bot]),
            max_batch: 20,
        },
        secret_version: 1,
        previous_until: None,
        created_at: moment(AT),
        created_by: "key".to_owned(),
        updated_at: moment(AT),
        revision: 1,
        paused: None,
        failing_since: None,
        waiting_since: None,
        delivered: 0,
        fence: 0,
        progress: Progress::default(),
    }
}

pub(super) async fn created(store: &Store, webhook: Webhook) -> Webhook {
    match store.create_webhook(webhook).await.expect("a store") {
        WebhookChanged::Done(webhook) => *webhook,
        other => panic!("{other:?}"),
    }
}

async fn change(store: &Store, change: WebhookChange) -> WebhookChanged {
    let now = moment(AT) + SignedDuration::from_hours(1);
    let changed = store.change_webhook("wh_1", change, "key", now).await;
    changed.expect("a store").expect("a webhook")
}

/// The codes and numbers of the visits of all events.
async fn firsts(store: &Store) -> Vec<(String, i64)> {
    let events = store.events_after(0, 1000).await.expect("a store");
    let firsts = events.into_iter().filter_map(|event| {
        assert_eq!(event.event, "link.clicked");
        Some((event.subject, event.visit?.visit.number))
    });
    firsts.collect()
}

async fn numbers(store: &Store) -> Vec<(String, i64)> {
    let page = store
        .visits_after(i64::MIN, TimeSpan::default(), 1000)
        .await;
    let visits = page.expect("a store").visits.into_iter();
    visits.map(|it| (it.code, it.number)).collect()
}

async fn the_first_human_visit_of_each_link_is_an_event(fixture: Fixture) {
    let store = &*fixture.store;
    created(store, webhook(Clicks::First)).await;
    for text in ["a", "b", "ABCDEFGHIJKLMNOP"] {
        create(store, link(text)).await;
    }
    let human = |n, code: &str| visit(n, code, AT);
    let bot = |n, code: &str| of_class(Class::Bot, visit(n, code, AT));
    let batch = vec![
        bot(0, "b"),
        human(1, "a"),
        human(2, "a"),
        human(3, "unknown"),
    ];
    keep(store, batch.clone()).await;
    // Delivered again, with others; a later visit at an earlier time is not the first.
    let earlier = visit(6, "a", "2026-05-01T12:00:00Z");
    let more = vec![human(4, "b"), human(5, "ABCDEFGHIJKLMNOP"), earlier];
    keep(store, [batch, more].concat()).await;
    let all = numbers(store).await;
    let number = |place: usize| all[place].clone();
    assert_eq!(firsts(store).await, [number(1), number(4), number(5)]);
    // Another link with the code has a first visit of its own, whatever becomes of the event of the former one.
    let deleted = store.delete_links(vec![(code("a"), 1)], moment(AT)).await;
    assert_eq!(deleted.expect("a store"), 1);
    let freed = store.free_codes(vec![code("a")]).await;
    freed.expect("a store");
    keep(store, vec![human(7, "a")]).await;
    assert_eq!(firsts(store).await.len(), 3);
    create(store, link("a")).await;
    keep(store, vec![human(8, "a"), human(9, "a")]).await;
    let all = numbers(store).await;
    assert_eq!(firsts(store).await[3], all[8]);
    assert_eq!(firsts(store).await.len(), 4);
}

async fn a_visit_that_is_judged_human_later_can_be_the_first(fixture: Fixture) {
    let store = &*fixture.store;
    created(store, webhook(Clicks::First)).await;
    create(store, link("a")).await;
    keep(store, vec![of_class(Class::Scanner, visit(0, "a", AT))]).await;
    assert_eq!(firsts(store).await, []);
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 10).await;
    let agent = visit(0, "a", AT).agent;
    let judged = page.expect("a store").visits.into_iter().map(|visit| {
        let classification = Classification {
            class: Class::Human,
            reason: "judged",
            ruleset: visit.ruleset + 1,
        };
        let agent = Arc::clone(&agent);
        let verdict = Verdict {
            classification,
            agent,
        };
        (visit, verdict)
    });
    let done = store.reclassify_visits(judged.collect(), None, moment(AT));
    done.await.expect("a store");
    keep(store, vec![visit(1, "a", AT)]).await;
    assert_eq!(firsts(store).await, [numbers(store).await[0].clone()]);
}

async fn first_clicks_begin_with_the_webhook_and_end_with_erasure(fixture: Fixture) {
    let store = &*fixture.store;
    for text in ["a", "b", "c"] {
        create(store, link(text)).await;
    }
    keep(store, vec![visit(0, "a", AT)]).await;
    let each = created(store, webhook(Clicks::Each)).await;
    assert_eq!(each.progress.least().visits, numbers(store).await[0].1);
    keep(store, vec![visit(1, "b", AT)]).await;
    assert_eq!(fixture.count("webhook_events").await, 0);
    let to_first = WebhookChange::Settings(Arc::new(|it| it.clicks = Clicks::First));
    assert!(matches!(
        change(store, to_first).await,
        WebhookChanged::Done(_)
    ));
    keep(
        store,
        ["a", "b", "c"]
            .iter()
            .zip(2..)
            .map(|(code, n)| visit(n, code, AT))
            .collect(),
    )
    .await;
    let all = numbers(store).await;
    assert_eq!(firsts(store).await, [all[4].clone()]);
    erase_visits(store, &[code("c")], moment("2026-06-02T00:00:00Z")).await;
    assert_eq!(fixture.count("webhook_events").await, 0);
    let last = store.last_event().await.expect("a store");
    // No number is used again.
    keep(store, vec![visit(9, "c", "2026-06-03T00:00:00Z")]).await;
    assert_eq!(store.last_event().await.expect("a store"), last + 1);
    change(store, WebhookChange::Delete).await;
    create(store, link("d")).await;
    keep(store, vec![visit(10, "d", AT)]).await;
    assert_eq!(fixture.count("webhook_events").await, 1);
}

async fn a_webhook_is_found_as_it_was_stored_and_changed(fixture: Fixture) {
    let store = &*fixture.store;
    let webhook = created(store, webhook(Clicks::First)).await;
    let found = async || store.find_webhook("wh_1").await.expect("a store");
    assert_eq!(found().await, Some(webhook.clone()));
    assert_eq!(store.find_webhook("wh\0").await.expect("a store"), None);
    let unfiltered = WebhookChange::Settings(Arc::new(|it| {
        (it.campaigns, it.tags, it.classes) = (None, None, None);
        it.max_batch = 1;
    }));
    for (action, revision, secret, paused) in [
        (unfiltered, 2, 1, None),
        (WebhookChange::Pause, 3, 1, Some(PauseReason::Requested)),
        (WebhookChange::Pause, 3, 1, Some(PauseReason::Requested)),
        (WebhookChange::Resume, 4, 1, None),
        (
            WebhookChange::Rotate(moment("2026-07-01T00:00:00Z")),
            5,
            2,
            None,
        ),
    ] {
        let WebhookChanged::Done(changed) = change(store, action).await else {
            panic!("not changed");
        };
        assert_eq!(found().await, Some(*changed.clone()));
        let reason = changed.paused.map(|(reason, _)| reason);
        let is = (changed.revision, changed.secret_version, reason);
        assert_eq!(is, (revision, secret, paused));
        assert_eq!(changed.fence, 0);
    }
    assert_eq!(found().await.expect("a webhook").settings.campaigns, None);
    let audit = fixture.count("audit_log").await;
    assert_eq!(audit, 5, "an entry for each change");
    change(store, WebhookChange::Delete).await;
    assert_eq!(found().await, None);
}

fn delivered(webhook: &Webhook, visits: i64) -> Delivered {
    Delivered {
        id: webhook.id.clone(),
        fence: webhook.fence,
        progress: Progress::at(Reached { visits, events: 3 }),
        failing_since: Some(moment(AT)),
        waiting_since: None,
        events: 5,
        attempts: Vec::new(),
        pause: None,
    }
}

async fn progress_is_written_by_the_last_holder_only(fixture: Fixture) {
    let store = &*fixture.store;
    created(store, webhook(Clicks::Each)).await;
    let found = async || {
        store
            .find_webhook("wh_1")
            .await
            .expect("a store")
            .expect("one")
    };
    let former = found().await;
    store.take_over_webhooks().await.expect("a store");
    let holder = found().await;
    let note = async |it| {
        store
            .note_delivered(vec![it], moment(AT))
            .await
            .expect("a store")
    };
    assert_eq!(note(delivered(&former, 100)).await, ["wh_1"]);
    assert_eq!(found().await, holder);
    assert!(note(delivered(&holder, 7)).await.is_empty());
    let noted = found().await;
    assert_eq!(
        noted.progress.least(),
        Reached {
            visits: 7,
            events: 3
        }
    );
    assert_eq!((noted.delivered, noted.revision), (5, holder.revision));
    // A pause of the holder is one that it reads itself.
    let paused = Delivered {
        pause: Some(PauseReason::Failing),
        ..delivered(&holder, 8)
    };
    assert!(note(paused).await.is_empty());
    let noted = found().await;
    assert_eq!(noted.paused, Some((PauseReason::Failing, moment(AT))));
    assert_eq!(noted.revision, holder.revision + 1);
    change(store, WebhookChange::Resume).await;
    assert_eq!(found().await.failing_since, None);
    // Events that it has delivered meanwhile stay delivered, unless that is replayed.
    assert!(note(delivered(&holder, 9)).await.is_empty());
    change(store, WebhookChange::Replay(moment(AT))).await;
    assert_eq!(note(delivered(&holder, 10)).await, ["wh_1"]);
    assert_eq!(found().await.progress.least().visits, 0);
}

async fn a_replay_begins_at_the_place_of_its_time(fixture: Fixture) {
    let store = &*fixture.store;
    created(store, webhook(Clicks::Each)).await;
    let minute = |n| moment(AT) + SignedDuration::from_mins(n);
    for n in 1..5 {
        let marked = store.mark_events(10 * n, minute(n)).await;
        marked.expect("a store");
    }
    let it = delivered(
        &store
            .find_webhook("wh_1")
            .await
            .expect("a store")
            .expect("one"),
        100,
    );
    store
        .note_delivered(vec![it], moment(AT))
        .await
        .expect("a store");
    for (since, visits) in [
        (minute(9), 40),
        (minute(3) + SignedDuration::from_secs(59), 30),
        (minute(3), 30),
        // Never forward.
        (minute(4), 30),
        (minute(0), 0),
    ] {
        let WebhookChanged::Done(it) = change(store, WebhookChange::Replay(since)).await else {
            panic!("not replayed");
        };
        assert_eq!(it.progress.least().visits, visits, "{since}");
    }
    let early = WebhookChange::Replay(minute(-1));
    assert_eq!(
        change(store, early).await,
        WebhookChanged::TooEarly(minute(0))
    );
}

async fn the_log_has_the_latest_attempts(fixture: Fixture) {
    let store = &*fixture.store;
    let webhook = created(store, webhook(Clicks::Each)).await;
    let attempt = |n: u32| Attempt {
        at: moment(AT),
        message_id: format!("m{n}"),
        events: n,
        attempt: 2,
        status: n.is_multiple_of(2).then_some(204),
        error: (!n.is_multiple_of(2)).then(|| "no answer".to_owned()),
        took: Duration::from_millis(7),
    };
    for part in 0..3 {
        let it = Delivered {
            attempts: (part * 400..part * 400 + 400).map(attempt).collect(),
            ..delivered(&webhook, 1)
        };
        store
            .note_delivered(vec![it], moment(AT))
            .await
            .expect("a store");
    }
    let page = store
        .webhook_attempts("wh_1", None, 2)
        .await
        .expect("a store");
    let found: Vec<&Attempt> = page.iter().map(|(_, it)| it).collect();
    assert_eq!(found, [&attempt(1199), &attempt(1198)]);
    let next = store.webhook_attempts("wh_1", Some(page[1].0), 5000).await;
    assert_eq!(next.expect("a store").len(), 998);
    assert_eq!(fixture.count("webhook_attempts").await, 1000);
}

async fn changes_of_campaigns_are_events(fixture: Fixture) {
    let store = &*fixture.store;
    store.create_campaign(&campaign()).await.expect("room");
    created(store, webhook(Clicks::First)).await;
    let id = store.create_campaign(&campaign()).await.expect("room");
    for (action, is_change) in [
        (Action::CampaignChange, true),
        (Action::CampaignChange, false),
        (Action::CampaignRevoke, true),
    ] {
        let by = ChangedBy {
            key_id: None,
            action,
        };
        let edit: CampaignEditor = Box::new(move |mut campaign| {
            if !is_change {
                return CampaignEdit::Unchanged(campaign);
            }
            campaign.revision += 1;
            campaign.name = format!("name {}", campaign.revision);
            CampaignEdit::Changed(campaign)
        });
        let edited = store.edit_campaign(id, &by, edit).await;
        edited.expect("a store").expect("a campaign");
    }
    let events = store.events_after(0, 10).await.expect("a store");
    let names: Vec<&str> = events.iter().map(|it| &*it.event).collect();
    assert_eq!(
        names,
        ["campaign.created", "campaign.changed", "campaign.revoked"]
    );
    assert!(events.iter().all(|it| it.campaign == Some(id)));
    let data = events[1].data.as_deref().expect("data");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["changed"], serde_json::json!({"name": "name 2"}));
    let forget = async |before| {
        let forgotten = store.forget_events(before, 2).await;
        forgotten.expect("a store");
        fixture.count("webhook_events").await
    };
    assert_eq!(forget(events[0].at).await, 3);
    let later = events[2].at + SignedDuration::from_secs(1);
    assert_eq!((forget(later).await, forget(later).await), (1, 0));
}

#[tokio::test]
async fn first_clicks_are_refused_with_visits_in_clickhouse() {
    let fixture = Fixture::with_clickhouse(Scheme::Sqlite).await;
    let refused = fixture.store.create_webhook(webhook(Clicks::First)).await;
    assert_eq!(refused.expect("a store"), WebhookChanged::NoFirstClicks);
    created(&fixture.store, webhook(Clicks::Each)).await;
    let to_first = WebhookChange::Settings(Arc::new(|it| it.clicks = Clicks::First));
    assert_eq!(
        change(&fixture.store, to_first).await,
        WebhookChanged::NoFirstClicks
    );
}

#[tokio::test]
async fn visits_do_not_move_to_clickhouse_while_first_clicks_are_events() {
    for scheme in [Scheme::Sqlite, Scheme::Postgres] {
        let fixture = Fixture::new(scheme).await;
        let store = &*fixture.store;
        let before = created(store, webhook(Clicks::First)).await;
        create(store, link("a")).await;
        keep(store, vec![visit(0, "a", AT)]).await;
        let mut options = fixture.options.clone();
        options.visits = Some(VisitsOptions {
            url: new_clickhouse(),
            retention_days: None,
        });
        let refused = crate::migrate(&options, &KEY)
            .await
            .expect_err("first clicks");
        assert!(refused.to_string().contains("--clicks each"), "{refused}");
        assert_eq!(firsts(store).await.len(), 1);
        let to_each = WebhookChange::Settings(Arc::new(|it| it.clicks = Clicks::Each));
        change(store, to_each).await;
        keep(store, vec![visit(1, "a", AT)]).await;
        crate::migrate(&options, &KEY).await.expect("a move");
        let moved = crate::open(&options).await.expect("a store");
        let found = moved.find_webhook("wh_1").await.expect("a store");
        let reached = found.expect("a webhook").progress.least().visits;
        // Visits keep their numbers: those behind the change are events.
        let last = moved.visits_to_export().await.expect("a store").stored;
        let behind = moved.exported_visits(reached, last, 10).await;
        assert_eq!(behind.expect("a store").len(), 1);
        assert!(reached > before.progress.least().visits);
    }
}

#[tokio::test]
async fn a_webhook_begins_after_changes_that_have_not_found_it() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    let store = &*fixture.store;
    let looked = Arc::new(Notify::new());
    let commit = Arc::new(Notify::new());
    let notices = (Arc::clone(&looked), Arc::clone(&commit));
    let change = store.run_tx("change something", notices, |db, (looked, commit)| {
        Box::pin(async move {
            let event = NewEvent {
                event: EventType::CampaignChanged,
                campaign: None,
                subject: "campaign:7".to_owned(),
                visit: None,
                data: None,
            };
            report(db, &[event], moment(AT)).await?;
            looked.notify_one();
            commit.notified().await;
            Ok(())
        })
    });
    let create = async {
        looked.notified().await;
        created(store, webhook(Clicks::First)).await;
    };
    let end = async {
        let waiting =
            "pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        eventually("the webhook waits", async || {
            fixture.count(waiting).await > 0
        })
        .await;
        commit.notify_one();
    };
    let (changed, (), ()) = tokio::join!(change, create, end);
    changed.expect("a store");
}
