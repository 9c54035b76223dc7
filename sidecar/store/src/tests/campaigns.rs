//! Campaigns and their outbox.

use std::num::NonZeroU64;

use shortlink_core::audit::{Action, ChangedBy};
use shortlink_core::campaign::{
    Campaign, CampaignChange, CampaignDefaults, CampaignEdit, CampaignTarget, ParameterValues,
};
use shortlink_core::link::{Change, Destination, Edit, Link, Second};
use shortlink_core::plan::PlanChange;
use shortlink_core::ports::{AuditListing, Listing, Place, PublishedCampaign};
use shortlink_core::testing::{changed_by, link, moment};
use vocabulary::{CampaignId, RedirectStatus, Validity};

use crate::testing::*;
use crate::{Store, in_every_store};

in_every_store! {
    a_campaign_is_found_as_it_was_kept_and_as_it_was_changed,
    campaigns_are_listed_from_the_latest,
    changes_of_a_campaign_wait_until_they_are_published,
    links_of_a_campaign_are_kept_with_their_values,
    links_of_a_campaign_are_counted_up_to_a_bound,
}

/// A campaign as it is before a store has given it an id.
fn campaign(name: &str) -> Campaign {
    let made_at = moment("2026-01-01T00:00:00.5Z");
    let template = "https://example.com/{0}?c={code}".to_owned();
    Campaign {
        id: CampaignId::new(1).expect("an id"),
        name: name.to_owned(),
        target: CampaignTarget::from_stored(template, vec!["member".to_owned()]),
        redirect_status: RedirectStatus::Found,
        forward_query: false,
        revision: 1,
        validity: Validity::default(),
        paused_at: None,
        revoked_at: None,
        created_at: made_at,
        updated_at: made_at,
        created_by: "key".to_owned(),
        external_id: None,
        note: None,
        defaults: CampaignDefaults::default(),
        max_links: None,
        click_id: None,
        plan: None,
    }
}

fn plan() -> PlanChange {
    PlanChange::of_text("R28:d=i https://e.example/{0}xyzE23:https://e.example/ended")
}

fn defaults() -> CampaignDefaults {
    CampaignDefaults {
        domain: Some("s.example.com".to_owned()),
        max_visits: NonZeroU64::new(3),
        tags: vec!["spring".to_owned()],
        ..CampaignDefaults::default()
    }
}

/// A link of a campaign.
fn member(code: &str, id: CampaignId, values: &str) -> Link {
    Link {
        destination: Destination::Campaign {
            id,
            values: ParameterValues::from_stored(values.to_owned()),
        },
        ..link(code)
    }
}

async fn keep(store: &Store, campaign: Campaign) -> Campaign {
    let id = store.create_campaign(&campaign).await.expect("a store");
    Campaign { id, ..campaign }
}

async fn edit(store: &Store, id: CampaignId, change: CampaignChange) -> Option<CampaignEdit> {
    let at = moment(REVOKED_AT);
    let editor = Box::new(move |campaign: Campaign| campaign.change(&change, at));
    let by = ChangedBy {
        key_id: Some("key".to_owned()),
        action: Action::CampaignChange,
    };
    let edited = store.edit_campaign(id, &by, editor).await;
    edited.expect("a store")
}

async fn waiting(store: &Store) -> Vec<Campaign> {
    crate::testing::waiting(store).await.campaigns
}

async fn a_campaign_is_found_as_it_was_kept_and_as_it_was_changed(fixture: Fixture) {
    let store = &*fixture.store;
    let nobody = CampaignId::new(77).expect("an id");
    assert_eq!(store.find_campaign(nobody).await.expect("a store"), None);
    assert_eq!(edit(store, nobody, CampaignChange::default()).await, None);
    let validity = Validity::new(NonZeroU64::new(5), NonZeroU64::new(9)).expect("a time");
    let second = |second| Second::at(jiff::Timestamp::from_second(second).expect("a time"));
    let full = Campaign {
        redirect_status: RedirectStatus::PermanentRedirect,
        forward_query: true,
        validity,
        paused_at: Some(moment(REVOKED_AT)),
        revoked_at: Some(moment(REVOKED_AT)),
        external_id: Some("s-26".to_owned()),
        note: Some("two\nlines".to_owned()),
        defaults: defaults(),
        ..campaign("full")
    };
    let mut planned = campaign("planned");
    planned.plan_anew(&plan());
    for campaign in [campaign("plain"), full, planned] {
        let kept = keep(store, campaign).await;
        let found = store.find_campaign(kept.id).await.expect("a store");
        assert_eq!(found, Some(kept));
    }
    let plain = keep(store, campaign("changed")).await;
    let template = "https://example.com/{1}/{0}".to_owned();
    let names = vec!["a".to_owned(), "b".to_owned()];
    let change = CampaignChange {
        name: Some("another".to_owned()),
        target: Some(CampaignTarget::from_stored(template, names)),
        redirect_status: Some(RedirectStatus::TemporaryRedirect),
        forward_query: Some(true),
        valid_since: Some(second(5)),
        valid_until: Some(second(9)),
        paused: Some(true),
        note: Some(Some("a note".to_owned())),
        defaults: Some(defaults()),
        max_links: Some(NonZeroU64::new(9)),
        click_id: Some(Some("sl_click".to_owned())),
        plan: plan(),
    };
    let Some(CampaignEdit::Changed(changed)) = edit(store, plain.id, change).await else {
        panic!("it is changed");
    };
    assert_eq!(changed.revision, 2);
    let click_id = changed.click_id.as_ref().expect("a parameter");
    assert_eq!(
        click_id.template(),
        "https://example.com/{1}/{0}?sl_click= "
    );
    assert_eq!(
        changed.plan.as_ref().map(|plan| plan.record()),
        Some(
            &b"T38:https://example.com/{1}/{0}?sl_click= \
               R39:d=i https://e.example/{0}xyz?sl_click= E23:https://e.example/ended"[..]
        )
    );
    let found = store.find_campaign(plain.id).await.expect("a store");
    assert_eq!(found, Some(changed));
}

async fn campaigns_are_listed_from_the_latest(fixture: Fixture) {
    let store = &*fixture.store;
    let mut expected = Vec::new();
    for number in 0..5 {
        expected.push(keep(store, campaign(&number.to_string())).await);
    }
    expected.reverse();
    let mut listed: Vec<Campaign> = Vec::new();
    loop {
        let after = listed.last().map(|campaign| campaign.id);
        let page = store.list_campaigns(after, 2, None).await.expect("a store");
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert_eq!(listed, expected);
}

async fn changes_of_a_campaign_wait_until_they_are_published(fixture: Fixture) {
    let store = &*fixture.store;
    let now = moment("2026-03-01T00:00:00Z");
    let kept = keep(store, campaign("a")).await;
    assert_eq!(waiting(store).await, std::slice::from_ref(&kept));
    let ids = store.waiting_campaigns().await;
    assert_eq!(ids.expect("a store"), [kept.id]);
    assert_eq!(count_waiting(store, 9).await, 1);
    let change = CampaignChange {
        paused: Some(true),
        ..CampaignChange::default()
    };
    edit(store, kept.id, change.clone()).await;
    let published = |revision| {
        vec![PublishedCampaign {
            id: kept.id,
            revision,
        }]
    };
    // The first revision is confirmed late.
    settle_campaigns(store, published(1), now).await;
    assert_eq!(waiting(store).await.len(), 1);
    settle_campaigns(store, published(2), now).await;
    assert_eq!(waiting(store).await, []);
    // A repeated request for an earlier change publishes it again.
    let again = edit(store, kept.id, change).await;
    assert!(matches!(again, Some(CampaignEdit::Unchanged(_))));
    assert_eq!(waiting(store).await.len(), 1);
}

async fn links_of_a_campaign_are_kept_with_their_values(fixture: Fixture) {
    let store = &*fixture.store;
    let id = keep(store, campaign("a")).await.id;
    let other = keep(store, campaign("b")).await.id;
    let full = Link {
        note: Some("a note".to_owned()),
        valid_since: Second::at(moment("2026-01-02T00:00:00Z")),
        ..member("full", id, "b%20c")
    };
    let links = vec![
        member("wien", id, "Wien"),
        link("plain"),
        member("none", other, ""),
        full.clone(),
    ];
    let created = store.create_links(links.clone()).await.expect("a store");
    assert_eq!(created.taken, Vec::<usize>::new());
    for link in &links {
        let found = store.find_link(&link.code).await.expect("a store");
        assert_eq!(found.as_ref(), Some(link));
    }
    let listing = Listing {
        campaign: Some(id),
        limit: 10,
        ..Listing::default()
    };
    let listed = store.list_links(&listing).await.expect("a store");
    let mut listed = codes(&listed);
    listed.sort_unstable();
    assert_eq!(listed, ["full", "wien"]);

    // Its record is read without the link, and with it where there is more to say.
    let page = store.records_after(Place::START, 10, moment(REVOKED_AT));
    let page = page.await.expect("a store");
    let mut records: Vec<String> = page
        .records
        .iter()
        .map(|it| format!("{} {}", it.code, it.text.escape_ascii()))
        .collect();
    records.sort_unstable();
    assert_eq!(
        records,
        [
            format!("full 1 C{id} 1 1767312000- b%20c"),
            format!("none c{other} "),
            "plain 1 302 1 0 https://example.com/a".to_owned(),
            format!("wien c{id} Wien"),
        ]
    );

    let editor = Box::new(|link: Link| {
        let change = Change {
            values: Some(ParameterValues::from_stored("Graz".to_owned())),
            ..Change::default()
        };
        link.change(&change, moment(REVOKED_AT))
    });
    let edited = store
        .edit_link(&full.code, &changed_by("key"), editor)
        .await;
    let Some(Edit::Changed(changed)) = edited.expect("a store").map(|it| it.edit) else {
        panic!("it is changed");
    };
    let found = store.find_link(&full.code).await.expect("a store");
    assert_eq!(found, Some(changed));
    let history = store.link_history(&full.code, None, 10).await;
    let history = history.expect("a store").expect("a link");
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].before, full);
    let listing = AuditListing {
        subject: Some("link:full".to_owned()),
        limit: 10,
        ..AuditListing::default()
    };
    let told = store.list_audit(&listing).await.expect("a store").items;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].detail["changed"], serde_json::json!(["parameters"]));
}

async fn links_of_a_campaign_are_counted_up_to_a_bound(fixture: Fixture) {
    let store = &*fixture.store;
    let id = keep(store, campaign("a")).await.id;
    let other = keep(store, campaign("b")).await.id;
    let mut links: Vec<Link> = (0..5)
        .map(|it| member(&format!("l{it}"), id, "x"))
        .collect();
    links.push(link("plain"));
    links.push(member("other", other, "x"));
    store.create_links(links).await.expect("a store");
    for (of, most, expected) in [(id, 9, 5), (id, 5, 5), (id, 2, 2), (other, 9, 1)] {
        let count = store.count_campaign_links(of, most).await;
        assert_eq!(count.expect("a store"), expected);
    }
}
