//! People and their sessions.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;
use shortlink_core::api_key::{ApiKey, Person, Role, Scope};
use shortlink_core::audit::Action;
use shortlink_core::ports::{KeyEdit, KeyListing, NewSession, SignIn, StoredSession};
use shortlink_core::testing::moment;

use super::keys::{actions, entry, keep, key};
use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    a_person_is_stored_once_and_is_no_key_of_the_listing,
    the_sessions_of_a_person_end_with_their_role_by_a_block_or_one_by_one,
    two_first_sign_ins_at_once_are_of_one_person,
}

const NOW: &str = "2026-06-01T00:00:00Z";

fn person(seed: u64, subject: &str, role: Option<Role>) -> ApiKey {
    let person = Person {
        issuer: "https://id.example.com".to_owned(),
        subject: subject.to_owned(),
        email: Some("ann@example.com".to_owned()),
        role,
        signed_in_at: moment(NOW),
    };
    let mut rng = StdRng::seed_from_u64(seed);
    ApiKey::of_person("Ann".to_owned(), person, moment(NOW), &mut rng)
}

fn session(id: &str) -> NewSession {
    NewSession {
        id: id.to_owned(),
        begun_at: moment(NOW),
        until: moment(NOW) + SignedDuration::from_hours(12),
    }
}

/// Signs a person in with a session, or without one.
async fn sign_in(fixture: &Fixture, drawn: &ApiKey, id: Option<&str>) -> ApiKey {
    let of_person = drawn.person.clone().expect("a person");
    let (drawn, session) = (drawn.clone(), id.map(session));
    let editor = move |found: Option<ApiKey>| {
        let action = match &found {
            Some(_) => Action::PersonChange,
            None => Action::PersonCreate,
        };
        let key = ApiKey {
            scopes: drawn.scopes.clone(),
            person: drawn.person.clone(),
            ..found.unwrap_or_else(|| drawn.clone())
        };
        Some(SignIn {
            audit: vec![entry(action, &key.id)],
            key,
            session: session.clone(),
        })
    };
    let (issuer, subject) = (&of_person.issuer, &of_person.subject);
    let stored = fixture
        .store
        .sign_in(issuer, subject, Box::new(editor))
        .await;
    stored.expect("a store").expect("a decision").key
}

async fn listed(fixture: &Fixture, people: bool) -> Vec<String> {
    let listing = KeyListing {
        people,
        after: None,
        limit: 10,
    };
    let listed = fixture.store.list_keys(&listing).await.expect("a store");
    listed.into_iter().map(|key| key.id).collect()
}

async fn find(fixture: &Fixture, id: &str) -> Option<StoredSession> {
    fixture
        .store
        .find_people_session(id)
        .await
        .expect("a store")
}

async fn a_person_is_stored_once_and_is_no_key_of_the_listing(fixture: Fixture) {
    let program = key(1, &[Scope::Admin]);
    keep(&fixture, &program).await;
    let (ann, again) = (
        person(2, "ann", Some(Role::Viewer)),
        person(3, "ann", Some(Role::Admin)),
    );
    assert_eq!(sign_in(&fixture, &ann, Some("one")).await, ann);
    let changed = sign_in(&fixture, &again, Some("two")).await;
    assert_eq!(
        (&changed.id, &*changed.scopes),
        (&ann.id, &[Scope::Admin][..])
    );
    let found = fixture.store.find_key(&ann.id).await.expect("a store");
    assert_eq!(found.as_ref(), Some(&changed));
    sign_in(&fixture, &person(4, "bob", None), None).await;
    assert_eq!(
        listed(&fixture, false).await,
        std::slice::from_ref(&program.id)
    );
    assert_eq!(listed(&fixture, true).await.len(), 2);
    let store = &fixture.store;
    let names = store
        .key_names(&[&ann.id, &program.id, "unknown", "a\0"])
        .await;
    let expected = [(&ann.id, "Ann"), (&program.id, "a name")];
    let expected = expected.map(|(id, name)| (id.clone(), name.to_owned()));
    assert_eq!(names.expect("a store"), HashMap::from(expected));
    // A person is no other administrator: the provider may be down.
    let editor = Box::new(|told: shortlink_core::ports::KeyToEdit| {
        assert!(!told.has_other_admin);
        KeyEdit::Unchanged(Box::new(told.key))
    });
    let edit = store.edit_key(&program.id, moment(NOW), editor).await;
    assert!(edit.expect("a store").is_some());
    assert_eq!(
        actions(&fixture).await,
        [
            "person.create",
            "person.change",
            "person.create",
            "key.create"
        ]
    );
}

async fn the_sessions_of_a_person_end_with_their_role_by_a_block_or_one_by_one(fixture: Fixture) {
    let ann = person(1, "ann", Some(Role::Viewer));
    let store = &fixture.store;
    let now = moment(NOW);
    for id in ["one", "two", "three"] {
        sign_in(&fixture, &ann, Some(id)).await;
    }
    let later = now + SignedDuration::from_mins(5);
    store
        .use_people_session("two", later)
        .await
        .expect("a store");
    let found = find(&fixture, "two").await.expect("a session");
    assert_eq!((&found.key_id, found.used_at), (&ann.id, later));
    let count = async |used_since: Timestamp| {
        let counts = store
            .count_people_sessions(&[&ann.id], later, used_since)
            .await;
        counts.expect("a store").get(&ann.id).copied()
    };
    assert_eq!(count(now - SignedDuration::from_secs(1)).await, Some(3));
    assert_eq!(count(now).await, Some(1));

    let end = || entry(Action::SessionEnd, &ann.id);
    for _ in 0..2 {
        store
            .end_people_session("one", end())
            .await
            .expect("a store");
    }
    assert!(find(&fixture, "one").await.is_none());
    let ended = store
        .end_sessions_of(&ann.id, entry(Action::PersonEndSessions, &ann.id))
        .await;
    assert_eq!(ended.expect("a store"), 2);
    sign_in(&fixture, &ann, Some("four")).await;
    let blocked = Box::new(
        move |told: shortlink_core::ports::KeyToEdit| KeyEdit::Changed {
            key: Box::new(ApiKey {
                revoked_at: Some(now),
                ..told.key
            }),
            successor: None,
            audit: Vec::new(),
        },
    );
    store
        .edit_key(&ann.id, now, blocked)
        .await
        .expect("a store");
    assert!(find(&fixture, "four").await.is_none());
    sign_in(&fixture, &ann, Some("five")).await;
    sign_in(&fixture, &person(2, "ann", None), None).await;
    assert!(find(&fixture, "five").await.is_none());
    let ends = actions(&fixture).await;
    let ends = ends
        .iter()
        .filter(|it| it.ends_with("end") || it.ends_with("end-sessions"));
    assert_eq!(ends.count(), 2);

    // A new session clears away those that have expired.
    sign_in(&fixture, &ann, Some("six")).await;
    let mut late = session("seven");
    late.begun_at = session("six").until;
    let ann_again = ann.clone();
    let editor = move |found: Option<ApiKey>| {
        Some(SignIn {
            key: found.unwrap_or_else(|| ann_again.clone()),
            audit: Vec::new(),
            session: Some(late.clone()),
        })
    };
    let stored = store
        .sign_in("https://id.example.com", "ann", Box::new(editor))
        .await;
    stored.expect("a store");
    assert!(find(&fixture, "six").await.is_none() && find(&fixture, "seven").await.is_some());
}

async fn two_first_sign_ins_at_once_are_of_one_person(fixture: Fixture) {
    for round in 0..5 {
        let subject = format!("subject {round}");
        let role = Some(Role::Viewer);
        let drawn = [1, 2].map(|it| person(round * 2 + it, &subject, role));
        let ids = [format!("{round} a"), format!("{round} b")];
        let (one, other) = futures_util::future::join(
            sign_in(&fixture, &drawn[0], Some(&ids[0])),
            sign_in(&fixture, &drawn[1], Some(&ids[1])),
        )
        .await;
        assert_eq!(one.id, other.id);
    }
    assert_eq!(listed(&fixture, true).await.len(), 5);
}
