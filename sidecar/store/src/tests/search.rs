//! The search for links and campaigns.

use std::sync::Arc;

use jiff::SignedDuration;
use shortlink_core::campaign::{CampaignChange, CampaignEdit};
use shortlink_core::codes::strategy::CodeOrigin;
use shortlink_core::link::{Change, Destination, Link};
use shortlink_core::search::{FoundBy, Question};
use shortlink_core::target::Target;
use shortlink_core::testing::{campaign, changed_by, link, moment};

use crate::testing::*;
use crate::{Admission, Store, in_every_store};

in_every_store! {
    links_are_found_by_any_member,
    words_follow_changes_and_deletion,
    links_and_campaigns_from_before_the_search_get_their_words,
    campaigns_are_found_by_their_words,
    a_key_finds_its_own_links_only,
    a_question_finds_a_bounded_number_of_links,
}

fn question(text: &str) -> Question {
    Question::parse(text).expect("a question")
}

/// The links that a text finds: members and codes.
async fn found(store: &Store, text: &str) -> Vec<(FoundBy, String)> {
    found_of(store, text, None).await
}

async fn found_of(store: &Store, text: &str, own: Option<&[String]>) -> Vec<(FoundBy, String)> {
    let found = store.search_links(&question(text), own, false).await;
    let found = found.expect("a store").into_iter();
    found
        .map(|(by, link)| (by, link.code.to_string()))
        .collect()
}

fn by(member: FoundBy, codes: &[&str]) -> Vec<(FoundBy, String)> {
    let codes = codes.iter();
    codes.map(|code| (member, (*code).to_owned())).collect()
}

fn to(code: &str, url: &str) -> Link {
    Link {
        destination: Destination::Target(Target::from_stored(url.to_owned())),
        ..link(code)
    }
}

/// A link that was created some seconds later than others.
fn later(seconds: i64, link: Link) -> Link {
    let at = link.created_at + SignedDuration::from_secs(seconds);
    Link {
        created_at: at,
        updated_at: at,
        ..link
    }
}

async fn links_are_found_by_any_member(fixture: Fixture) {
    let store = &*fixture.store;
    let links = [
        Link {
            strategy: Some(CodeOrigin::Custom),
            ..to(
                "Spring-Sale",
                "https://shop.acme.example/men/trousers?utm=spring",
            )
        },
        Link {
            external_id: Some("+49151-17".to_owned()),
            ..later(1, to("b", "https://www.example.org/%C3%BCber"))
        },
        Link {
            tags: vec!["spring".to_owned(), "springtime".to_owned()],
            ..later(2, to("c", "https://example.org/"))
        },
        Link {
            note: Some("For the SPRING fair: 春季促销".to_owned()),
            ..later(3, to("d", "https://example.org/"))
        },
        later(4, to("e", "https://acme.example/spring/sale")),
    ];
    for link in links {
        create(store, link).await;
    }
    let spring = [
        by(FoundBy::Code, &["Spring-Sale"]),
        by(FoundBy::Tag, &["c"]),
        by(FoundBy::Target, &["e"]),
        by(FoundBy::Note, &["d"]),
    ];
    for text in ["spring", " Spring", "SPRING"] {
        assert_eq!(found(store, text).await, spring.concat(), "{text}");
    }
    for (text, expected) in [
        ("sprin", spring.concat()),
        ("springt", by(FoundBy::Tag, &["c"])),
        (
            "Spring-Sale",
            [
                by(FoundBy::Code, &["Spring-Sale"]),
                by(FoundBy::Target, &["e"]),
            ]
            .concat(),
        ),
        (
            "https://sms.example/Spring-Sale?x=1",
            by(FoundBy::Code, &["Spring-Sale"]),
        ),
        ("acme.example/sal", by(FoundBy::Target, &["e"])),
        (
            "https://shop.acme.example/men?other",
            by(FoundBy::Target, &["Spring-Sale"]),
        ),
        ("trousers", by(FoundBy::Target, &["Spring-Sale"])),
        ("utm", Vec::new()),
        ("über", by(FoundBy::Target, &["b"])),
        ("+49151", by(FoundBy::ExternalId, &["b"])),
        ("+49151-17", by(FoundBy::ExternalId, &["b"])),
        ("49151", Vec::new()),
        ("促销", by(FoundBy::Note, &["d"])),
        ("fair spring", by(FoundBy::Note, &["d"])),
        ("fair acme", Vec::new()),
        ("acme", by(FoundBy::Target, &["e", "Spring-Sale"])),
        ("nothing", Vec::new()),
        ("\u{10ffff}1", Vec::new()),
    ] {
        assert_eq!(found(store, text).await, expected, "{text}");
    }
    let with = fixture.finding_targets().await;
    while with.fill_targets(100).await.expect("a store") {}
    let whole = question("https://shop.acme.example/men/trousers?utm=spring");
    let found = with
        .search_links(&whole, None, true)
        .await
        .expect("a store");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, FoundBy::Target);
}

async fn change(store: &Store, text: &str, change: Change) {
    let editor = Box::new(move |link: Link| link.change(&change, moment(REVOKED_AT)));
    let (code, by) = (code(text), changed_by("key"));
    let edited = store.edit_link(&code, &by, editor).await;
    edited.expect("a store").expect("a link");
}

async fn words_follow_changes_and_deletion(fixture: Fixture) {
    let store = &*fixture.store;
    let noted = Link {
        note: Some("for Jane Doe".to_owned()),
        ..to("a", "https://example.com/summer")
    };
    create(store, noted).await;
    assert_eq!(found(store, "jane").await, by(FoundBy::Note, &["a"]));
    let other = Change {
        note: Some(Some("for the fair".to_owned())),
        ..Change::default()
    };
    change(store, "a", other).await;
    assert_eq!(found(store, "jane").await, []);
    assert_eq!(found(store, "fair").await, by(FoundBy::Note, &["a"]));
    assert_eq!(found(store, "summer").await, by(FoundBy::Target, &["a"]));
    let target = Target::from_stored("https://example.com/winter".to_owned());
    let moved = Change {
        target: Some(target),
        note: Some(None),
        ..Change::default()
    };
    change(store, "a", moved).await;
    assert_eq!(found(store, "fair").await, []);
    assert_eq!(found(store, "summer").await, []);
    assert_eq!(found(store, "winter").await, by(FoundBy::Target, &["a"]));
    revoke(store, "a").await;
    assert_eq!(found(store, "winter").await, by(FoundBy::Target, &["a"]));
    let revoked = store.find_link(&code("a")).await.expect("a store");
    let revision = revoked.expect("a link").revision;
    let deleted = store.delete_links(vec![(code("a"), revision)], moment(REVOKED_AT));
    assert_eq!(deleted.await.expect("a store"), 1);
    assert_eq!(found(store, "winter").await, []);
    assert_eq!(fixture.count("search_words").await, 0);
}

async fn fill(store: &Store) {
    let admission = Arc::new(Admission::of_walk());
    while store
        .fill_search(2, Arc::clone(&admission))
        .await
        .expect("a store")
    {}
}

async fn links_and_campaigns_from_before_the_search_get_their_words(fixture: Fixture) {
    let store = &*fixture.store;
    for name in ["a", "b", "c", "far-code"] {
        create(store, to(name, &format!("https://example.com/of-{name}x"))).await;
    }
    store.create_campaign(&campaign()).await.expect("a store");
    fixture.execute("DELETE FROM search_words").await;
    assert_eq!(found(store, "cx").await, []);
    fill(store).await;
    assert_eq!(found(store, "cx").await, by(FoundBy::Target, &["c"]));
    assert_eq!(
        found(store, "codex").await,
        by(FoundBy::Target, &["far-code"])
    );
    let campaigns = store.search_campaigns(&question("spring"), None).await;
    assert_eq!(campaigns.expect("a store").len(), 1);
    // The walk does not begin again, and adds nothing twice.
    let before = fixture.count("search_words").await;
    fill(store).await;
    assert_eq!(fixture.count("search_words").await, before);
}

async fn campaigns_are_found_by_their_words(fixture: Fixture) {
    let store = &*fixture.store;
    let first = store.create_campaign(&campaign()).await.expect("a store");
    let second = store.create_campaign(&campaign()).await.expect("a store");
    let found = async |text: &str, own: Option<&[String]>| {
        let found = store.search_campaigns(&question(text), own).await;
        let found = found.expect("a store").into_iter();
        found.map(|campaign| campaign.id).collect::<Vec<_>>()
    };
    assert_eq!(found("spring", None).await, [second, first]);
    assert_eq!(found("spr example.com", None).await, [second, first]);
    let own = |id: &str| [id.to_owned()];
    assert_eq!(found("spring", Some(&own("key"))).await, [second, first]);
    assert_eq!(found("spring", Some(&own("other"))).await, []);
    let change = CampaignChange {
        name: Some("Autumn".to_owned()),
        ..CampaignChange::default()
    };
    let editor = Box::new(move |campaign: shortlink_core::campaign::Campaign| {
        campaign.change(&change, moment(REVOKED_AT))
    });
    let edited = store.edit_campaign(first, &changed_by("key"), editor).await;
    assert!(matches!(edited, Ok(Some(CampaignEdit::Changed(_)))));
    assert_eq!(found("spring", None).await, [second]);
    assert_eq!(found("autumn", None).await, [first]);
    assert_eq!(found("au example", None).await, [first]);
    assert_eq!(found("nothing", None).await, []);
}

async fn a_key_finds_its_own_links_only(fixture: Fixture) {
    let store = &*fixture.store;
    for (name, key) in [("mine", "own"), ("theirs", "other")] {
        let link = Link {
            created_by: key.to_owned(),
            external_id: Some("order-7".to_owned()),
            tags: vec!["sale".to_owned()],
            note: Some("fair".to_owned()),
            strategy: Some(CodeOrigin::Custom),
            ..to(name, "https://example.com/summer")
        };
        create(store, link).await;
    }
    let own = ["own".to_owned(), "successor".to_owned()];
    for text in [
        "order-7", "order", "sale", "sal", "fair", "summer", "mine", "min",
    ] {
        let found = found_of(store, text, Some(&own)).await;
        let codes: Vec<&str> = found.iter().map(|(_, code)| code.as_str()).collect();
        assert_eq!(codes, ["mine"], "{text}");
    }
    for text in ["theirs", "thei"] {
        assert_eq!(found_of(store, text, Some(&own)).await, [], "{text}");
    }
}

async fn a_question_finds_a_bounded_number_of_links(fixture: Fixture) {
    let store = &*fixture.store;
    for number in 0..30 {
        let link = Link {
            tags: vec!["sale".to_owned(), format!("sale{number}")],
            external_id: Some(format!("sale{number:02}")),
            ..later(
                number,
                to(&format!("n{number}"), "https://example.com/sales"),
            )
        };
        create(store, link).await;
    }
    let found = found(store, "sale").await;
    let of = |member| {
        let of = found.iter().filter(|(by, _)| *by == member);
        of.map(|(_, code)| code.as_str()).collect::<Vec<_>>()
    };
    // Members of the same rank share the links, and each has the latest that are left.
    assert_eq!(of(FoundBy::Tag).len(), 10);
    assert_eq!(of(FoundBy::Tag)[..2], ["n29", "n28"]);
    assert_eq!(of(FoundBy::ExternalId).len(), 10);
    assert_eq!(of(FoundBy::Target).len(), 10);
    let mut all: Vec<&str> = found.iter().map(|(_, code)| code.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 30);
}
