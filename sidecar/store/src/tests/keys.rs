//! API keys and the audit log.

use jiff::{SignedDuration, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};
use shortlink_core::api_key::{ApiKey, KeyPolicy, RateLimit, Scope};
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::codes::strategy::StrategyName;
use shortlink_core::ports::{AuditListing, KeyEdit, KeyListing, KeyPosition, KeyRefusal};
use shortlink_core::testing::moment;

use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    a_key_is_found_as_it_was_kept_and_as_it_was_changed,
    keys_are_listed_in_pages_the_latest_first,
    whoever_edits_a_key_is_told_of_other_administrators,
    what_is_refused_or_unchanged_leaves_no_trace_and_a_rotation_two,
    the_audit_log_is_filtered_and_paged,
    one_of_two_administrators_stays,
    nobody_is_found_by_a_text_that_a_database_may_not_hold,
}

pub(super) fn key(seed: u64, scopes: &[Scope]) -> ApiKey {
    let mut rng = StdRng::seed_from_u64(seed);
    let made_at = moment("2026-01-01T00:00:00Z");
    ApiKey::generate("a name".to_owned(), scopes.to_vec(), made_at, &mut rng).0
}

pub(crate) fn entry(action: Action, id: &str) -> AuditEntry {
    let mut detail = Map::new();
    detail.insert("name".to_owned(), json!("ü\n\""));
    AuditEntry {
        at: moment("2026-01-01T00:00:00.123Z"),
        key_id: Some("maker".to_owned()),
        action,
        subject: Subject::Key(id.to_owned()),
        detail,
    }
}

pub(super) async fn keep(fixture: &Fixture, key: &ApiKey) {
    let audit = entry(Action::KeyCreate, &key.id);
    let kept = fixture.store.create_key(key, &audit).await;
    kept.expect("room");
}

/// Has a key replaced by another version of it, with an entry in the audit log.
async fn replace(fixture: &Fixture, key: &ApiKey, successor: Option<&ApiKey>) {
    let audit = vec![entry(Action::KeyChange, &key.id)];
    let (changed, successor) = (Box::new(key.clone()), successor.cloned().map(Box::new));
    let editor = Box::new(move |_| KeyEdit::Changed {
        key: changed.clone(),
        successor: successor.clone(),
        audit: audit.clone(),
    });
    let edit = fixture.store.edit_key(&key.id, Timestamp::MAX, editor);
    assert!(edit.await.expect("a store").is_some());
}

pub(crate) async fn actions(fixture: &Fixture) -> Vec<String> {
    let listing = AuditListing {
        limit: 100,
        ..AuditListing::default()
    };
    let entries = fixture.store.list_audit(&listing).await.expect("a store");
    let entries = entries.items.into_iter();
    entries.map(|entry| entry.action).collect()
}

async fn a_key_is_found_as_it_was_kept_and_as_it_was_changed(fixture: Fixture) {
    let plain = key(1, &[Scope::LinksWrite, Scope::Admin]);
    let rules = ["example.com", "=b\u{fc}cher.example", "2001:db8::1"];
    let full = ApiKey {
        scopes: Scope::ALL.to_vec(),
        rate_limit: RateLimit::new(5, RateLimit::MOST),
        policy: KeyPolicy {
            strategies: Some(StrategyName::ALL.to_vec()),
            min_body_length: Some(6),
            max_body_length: Some(12),
            allowed_domains: Some(
                rules
                    .iter()
                    .map(|rule| rule.parse::<shortlink_core::target::domains::DomainRule>())
                    .collect::<Result<_, _>>()
                    .expect("rules"),
            ),
            custom_codes: false,
            min_custom_length: Some(16),
            max_links: std::num::NonZeroU64::new(1),
            own_links_only: true,
        },
        expires_at: Some(moment("2030-01-01T00:00:00.001Z")),
        revoked_at: Some(moment(REVOKED_AT)),
        successor_id: Some("another".to_owned()),
        sequence_ids: vec![key(2, &[]).id],
        ..key(2, &[])
    };
    for key in [&plain, &full] {
        keep(&fixture, key).await;
        let found = fixture.store.find_key(&key.id).await.expect("a store");
        assert_eq!(found.as_ref(), Some(key));
    }
    // Each becomes what the other is.
    for (changed, id) in [(&full, &plain.id), (&plain, &full.id)] {
        let changed = ApiKey {
            id: id.clone(),
            // Never changes.
            first_id: id.clone(),
            sequence_ids: match changed.policy.own_links_only {
                true => vec![id.clone()],
                false => Vec::new(),
            },
            secret_sha256: if *id == plain.id {
                plain.secret_sha256
            } else {
                full.secret_sha256
            },
            ..changed.clone()
        };
        replace(&fixture, &changed, None).await;
        let found = fixture.store.find_key(id).await.expect("a store");
        assert_eq!(found, Some(changed));
    }
    assert_eq!(
        fixture.store.find_key("nobody").await.expect("a store"),
        None
    );
}

async fn keys_are_listed_in_pages_the_latest_first(fixture: Fixture) {
    let mut expected = Vec::new();
    for seed in 0..5 {
        let made = ApiKey {
            // Two of the same millisecond.
            created_at: moment("2026-01-01T00:00:00Z") + SignedDuration::from_secs(seed / 2),
            ..key(seed.unsigned_abs(), &[])
        };
        keep(&fixture, &made).await;
        expected.push((made.created_at, made.id));
    }
    expected.sort();
    expected.reverse();
    let mut listed = Vec::new();
    loop {
        let after = listed.last().cloned();
        let after = after.map(|(created_at, id)| KeyPosition { created_at, id });
        let listing = KeyListing {
            people: false,
            after,
            limit: 2,
        };
        let page = fixture.store.list_keys(&listing).await;
        let page = page.expect("a store");
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|key| (key.created_at, key.id)));
    }
    assert_eq!(listed, expected);
}

async fn whoever_edits_a_key_is_told_of_other_administrators(fixture: Fixture) {
    let now = moment("2026-06-01T00:00:00Z");
    let edited = key(1, &[Scope::Admin]);
    keep(&fixture, &edited).await;
    let other = key(2, &[Scope::LinksRead, Scope::Admin]);
    keep(&fixture, &other).await;
    for (change, is_told) in [
        (other.clone(), true),
        (
            ApiKey {
                scopes: vec![Scope::KeysAdmin],
                ..other.clone()
            },
            false,
        ),
        (
            ApiKey {
                revoked_at: Some(now),
                ..other.clone()
            },
            false,
        ),
        (
            ApiKey {
                expires_at: Some(now),
                ..other.clone()
            },
            false,
        ),
        (
            ApiKey {
                expires_at: Some(now + SignedDuration::from_millis(1)),
                ..other.clone()
            },
            true,
        ),
        (
            ApiKey {
                successor_id: Some("a third".to_owned()),
                ..other.clone()
            },
            false,
        ),
    ] {
        replace(&fixture, &change, None).await;
        let before = edited.clone();
        let editor = Box::new(move |told: shortlink_core::ports::KeyToEdit| {
            assert_eq!(told.key, before);
            assert_eq!(told.has_other_admin, is_told, "{change:?}");
            KeyEdit::Refused(KeyRefusal::LastAdmin)
        });
        let edit = fixture.store.edit_key(&edited.id, now, editor).await;
        assert!(matches!(
            edit.expect("a store"),
            Some(KeyEdit::Refused(KeyRefusal::LastAdmin))
        ));
    }
}

async fn what_is_refused_or_unchanged_leaves_no_trace_and_a_rotation_two(fixture: Fixture) {
    let now = moment("2026-06-01T00:00:00Z");
    let made = key(1, &[]);
    keep(&fixture, &made).await;
    let unchanged = made.clone();
    let editors: [shortlink_core::ports::KeyEditor; 2] = [
        Box::new(|_| KeyEdit::Refused(KeyRefusal::Revoked)),
        Box::new(move |_| KeyEdit::Unchanged(Box::new(unchanged.clone()))),
    ];
    for editor in editors {
        let edit = fixture.store.edit_key(&made.id, now, editor).await;
        assert!(edit.expect("a store").is_some());
    }
    let editor = Box::new(|_| panic!("there is nothing to edit"));
    let edit = fixture.store.edit_key("nobody", now, editor).await;
    assert!(edit.expect("a store").is_none());
    assert_eq!(actions(&fixture).await, ["key.create"]);

    let successor = key(2, &[]);
    replace(&fixture, &made, Some(&successor)).await;
    let found = fixture.store.find_key(&successor.id).await;
    assert_eq!(found.expect("a store"), Some(successor));
    assert_eq!(actions(&fixture).await, ["key.change", "key.create"]);
}

async fn the_audit_log_is_filtered_and_paged(fixture: Fixture) {
    for seed in 1..=3 {
        keep(&fixture, &key(seed, &[])).await;
    }
    let (first, second) = (key(1, &[]).id, key(2, &[]).id);
    replace(&fixture, &key(1, &[]), None).await;
    let list = async |listing: AuditListing| {
        let entries = fixture.store.list_audit(&listing).await;
        let entries = entries.expect("a store").items;
        entries.iter().map(|entry| entry.id).collect::<Vec<_>>()
    };
    let all = AuditListing {
        limit: 10,
        ..AuditListing::default()
    };
    for (listing, expected) in [
        (all.clone(), &[4, 3, 2, 1][..]),
        (
            AuditListing {
                limit: 2,
                ..all.clone()
            },
            &[4, 3],
        ),
        (
            AuditListing {
                before: Some(3),
                ..all.clone()
            },
            &[2, 1],
        ),
        (
            AuditListing {
                subject: Some(format!("key:{first}")),
                ..all.clone()
            },
            &[4, 1],
        ),
        (
            AuditListing {
                subject: Some(format!("key:{first}")),
                action: Some("key.create".to_owned()),
                ..all.clone()
            },
            &[1],
        ),
        (
            AuditListing {
                subject: Some(second),
                ..all.clone()
            },
            &[],
        ),
        (
            AuditListing {
                key_id: Some("maker".to_owned()),
                action: Some("key.change".to_owned()),
                ..all.clone()
            },
            &[4],
        ),
        (
            AuditListing {
                key_id: Some("nobody".to_owned()),
                ..all.clone()
            },
            &[],
        ),
    ] {
        assert_eq!(list(listing.clone()).await, expected, "{listing:?}");
    }
    let entries = fixture.store.list_audit(&all).await.expect("a store");
    let oldest = entries.items.last().expect("entries");
    assert_eq!(oldest.at, moment("2026-01-01T00:00:00.123Z"));
    assert_eq!(oldest.key_id.as_deref(), Some("maker"));
    assert_eq!(oldest.subject, format!("key:{first}"));
    assert_eq!(
        Value::Object(oldest.detail.clone()),
        json!({"name": "ü\n\""})
    );
}

/// Each of two administrators revokes the other at the same time.
async fn one_of_two_administrators_stays(fixture: Fixture) {
    let now = moment(REVOKED_AT);
    let other = fixture.open().await;
    for round in 0..10 {
        let pair = [
            key(round * 2 + 1, &[Scope::Admin]),
            key(round * 2 + 2, &[Scope::Admin]),
        ];
        for key in &pair {
            keep(&fixture, key).await;
        }
        let edits = pair
            .iter()
            .zip([&fixture.store, &other])
            .map(|(key, store)| {
                let editor = Box::new(move |told: shortlink_core::ports::KeyToEdit| {
                    if !told.has_other_admin {
                        return KeyEdit::Refused(KeyRefusal::LastAdmin);
                    }
                    KeyEdit::Changed {
                        key: Box::new(ApiKey {
                            revoked_at: Some(now),
                            ..told.key
                        }),
                        successor: None,
                        audit: Vec::new(),
                    }
                });
                store.edit_key(&key.id, now, editor)
            });
        let edits = futures_util::future::join_all(edits).await;
        let mut left = Vec::new();
        for (edit, key) in edits.into_iter().zip(&pair) {
            if let Some(KeyEdit::Refused(_)) = edit.expect("a store") {
                left.push(key);
            }
        }
        assert_eq!(left.len(), 1);
        // Out of the way of the next two.
        let gone = ApiKey {
            revoked_at: Some(now),
            ..left[0].clone()
        };
        replace(&fixture, &gone, None).await;
    }
}

async fn nobody_is_found_by_a_text_that_a_database_may_not_hold(fixture: Fixture) {
    let store = &*fixture.store;
    keep(&fixture, &key(1, &[])).await;
    assert_eq!(store.find_key("a\0").await.expect("a store"), None);
    let editor = Box::new(|_| panic!("there is nothing to edit"));
    let edit = store.edit_key("a\0", Timestamp::MAX, editor).await;
    assert!(edit.expect("a store").is_none());
    let listing = AuditListing {
        subject: Some("a\0".to_owned()),
        limit: 10,
        ..AuditListing::default()
    };
    assert_eq!(store.list_audit(&listing).await.expect("a store").items, []);
}
