use vocabulary::CampaignId;

use super::*;
use crate::plan::PlanChange;
use crate::testing::{link, moment};

fn second(text: &str) -> Option<Second> {
    Second::at(moment(text))
}

#[test]
fn states_change_at_the_very_second_and_have_their_ranks() {
    let before = moment("2026-05-31T23:59:59.999Z");
    let after = moment("2026-06-01T00:00:00Z");
    let bound = Second::at(after);
    let mut scheduled = link("abc");
    scheduled.valid_since = bound;
    assert_eq!(scheduled.state(before), State::Scheduled);
    assert_eq!(scheduled.state(after), State::Live);
    let mut ending = link("abc");
    ending.valid_until = bound;
    assert_eq!(ending.state(before), State::Live);
    assert_eq!(ending.state(after), State::Expired);
    for link in [&mut scheduled, &mut ending] {
        link.paused_at = Some(before);
    }
    assert_eq!(scheduled.state(before), State::Paused);
    assert_eq!(ending.state(before), State::Paused);
    assert_eq!(ending.state(after), State::Expired);
    ending.revoked_at = Some(before);
    assert_eq!(ending.state(after), State::Revoked);
}

#[test]
fn only_a_real_change_makes_a_revision() {
    let now = moment("2026-02-01T00:00:00Z");
    let target = |text: &str| Some(Target::from_stored(text.to_owned()));
    let none = Change::default();
    for (change, changes) in [
        (none.clone(), false),
        (
            Change {
                target: target("https://example.com/a"),
                values: None,
                plan: PlanChange {
                    rules: Some(String::new()),
                    variants: None,
                    instead: [const { Some(None) }; 3],
                    preview: Some(None),
                    click_id: Some(None),
                },
                valid_until: Some(None),
                valid_since: Some(None),
                max_visits: Some(None),
                domain: Some(None),
                external_id: Some(None),
                note: Some(None),
                tags: Some(Vec::new()),
                forward_query: Some(false),
                redirect_status: Some(RedirectStatus::Found),
            },
            false,
        ),
        (
            Change {
                target: target("https://example.com/b"),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                valid_until: Some(second("2027-01-01T00:00:00Z")),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                valid_since: Some(second("2027-01-01T00:00:00Z")),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                redirect_status: Some(RedirectStatus::MovedPermanently),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                forward_query: Some(true),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                max_visits: Some(NonZeroU64::new(5)),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                tags: Some(vec!["a".to_owned()]),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                domain: Some(Some("s.example.com".to_owned())),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                external_id: Some(Some("a".to_owned())),
                ..none.clone()
            },
            true,
        ),
        (
            Change {
                note: Some(Some("a".to_owned())),
                ..none
            },
            true,
        ),
    ] {
        match link("abc").change(&change, now) {
            Edit::Changed(link) => {
                assert!(changes, "{change:?}");
                assert_eq!((link.revision, link.updated_at), (2, now));
            }
            Edit::Unchanged(unchanged) => {
                assert!(!changes, "{change:?}");
                assert_eq!(unchanged, link("abc"));
            }
            Edit::Refused(refusal) => panic!("{change:?} was refused: {refusal:?}"),
        }
    }
}

#[test]
fn a_change_may_not_leave_a_link_that_is_never_valid() {
    let now = moment("2026-02-01T00:00:00Z");
    let mut link = link("abc");
    link.valid_until = second("2027-01-01T00:00:00Z");
    for (since, is_refused) in [
        ("2026-12-31T23:59:59Z", false),
        ("2027-01-01T00:00:00Z", true),
        ("2028-01-01T00:00:00Z", true),
    ] {
        let change = Change {
            valid_since: Some(second(since)),
            ..Change::default()
        };
        let edit = link.clone().change(&change, now);
        let refused = matches!(edit, Edit::Refused(Refusal::NeverValid));
        assert_eq!(refused, is_refused, "{since}");
    }
}

#[test]
fn a_revoked_link_is_final() {
    let now = moment("2026-02-01T00:00:00Z");
    let Edit::Changed(revoked) = link("abc").revoke(now) else {
        panic!("a live link can be revoked");
    };
    assert_eq!(revoked.revision, 2);
    assert_eq!(revoked.record(), Record::Revoked { revision: 2 });
    assert_eq!(
        revoked.clone().revoke(moment("2026-03-01T00:00:00Z")),
        Edit::Unchanged(revoked.clone())
    );
    let refused = Edit::Refused(Refusal::Revoked);
    assert_eq!(revoked.clone().change(&Change::default(), now), refused);
    assert_eq!(revoked.clone().pause(now), refused);
    assert_eq!(revoked.resume(now), refused);
}

#[test]
fn a_link_is_paused_and_resumed_as_often_as_wanted() {
    let now = moment("2026-02-01T00:00:00Z");
    let Edit::Changed(paused) = link("abc").pause(now) else {
        panic!("a live link can be paused");
    };
    assert_eq!(paused.record(), Record::Revoked { revision: 2 });
    let later = moment("2026-03-01T00:00:00Z");
    assert_eq!(paused.clone().pause(later), Edit::Unchanged(paused.clone()));
    let Edit::Changed(resumed) = paused.resume(later) else {
        panic!("a paused link can be resumed");
    };
    assert_eq!(resumed.state(later), State::Live);
    assert_eq!(resumed.revision, 3);
    assert!(matches!(resumed.record(), Record::Link(record) if record.revision == 3));
    assert_eq!(
        resumed.clone().resume(now),
        Edit::Unchanged(resumed.clone())
    );
}

#[test]
fn only_the_expected_revision_is_edited() {
    let now = moment("2026-02-01T00:00:00Z");
    for (expected, is_met) in [
        (Expected::Any, true),
        (Expected::OneOf(vec![1]), true),
        (Expected::OneOf(vec![7, 1]), true),
        (Expected::OneOf(vec![2]), false),
        (Expected::OneOf(Vec::new()), false),
    ] {
        let edit = link("abc").revoke(now).only_of(&expected, 1);
        assert_eq!(matches!(edit, Edit::Changed(_)), is_met, "{expected:?}");
    }
    // Revoked takes precedence.
    let mut revoked = link("abc");
    revoked.revoked_at = Some(now);
    let edit = revoked.pause(now).only_of(&Expected::OneOf(vec![9]), 1);
    assert_eq!(edit, Edit::Refused(Refusal::Revoked));
}

#[test]
fn a_link_stands_for_another_as_long_as_it_is_the_same_and_not_dead() {
    let now = moment("2026-02-01T00:00:00Z");
    let wanted = Link {
        created_by: "another key".to_owned(),
        created_at: now,
        ..link("other")
    };
    assert!(link("abc").stands_for(&wanted, now));
    let other_target = Target::from_stored("https://example.com/b".to_owned());
    for changed in [
        Link {
            destination: Destination::Target(other_target),
            ..link("abc")
        },
        Link {
            forward_query: true,
            ..link("abc")
        },
        Link {
            tags: vec!["a".to_owned()],
            ..link("abc")
        },
        Link {
            revoked_at: Some(now),
            ..link("abc")
        },
        Link {
            paused_at: Some(now),
            ..link("abc")
        },
    ] {
        assert!(!changed.stands_for(&wanted, now), "{changed:?}");
    }
    let ending = Link {
        valid_until: Second::at(now),
        ..link("abc")
    };
    let same = Link {
        valid_until: Second::at(now),
        ..wanted
    };
    assert!(!ending.stands_for(&same, now));
    assert!(ending.stands_for(&same, moment("2026-01-31T00:00:00Z")));
}

#[test]
fn the_record_says_when_and_how_a_link_redirects() {
    let begins = second("2026-02-01T00:00:00Z");
    let ends = second("2026-03-01T00:00:00Z");
    for (link, expected) in [
        (link("abc"), "1 302 1 0 https://example.com/a"),
        (
            Link {
                forward_query: true,
                ..link("abc")
            },
            "1 302q 1 0 https://example.com/a",
        ),
        (
            Link {
                valid_since: begins,
                ..link("abc")
            },
            "1 302 1 1769904000- https://example.com/a",
        ),
        (
            Link {
                valid_since: begins,
                valid_until: ends,
                ..link("abc")
            },
            "1 302 1 1769904000-1772323200 https://example.com/a",
        ),
        (
            Link {
                paused_at: Some(moment("2026-02-01T00:00:00Z")),
                revision: 2,
                ..link("abc")
            },
            "1 410 2",
        ),
    ] {
        let record = link.record().to_vec();
        assert_eq!(std::str::from_utf8(&record), Ok(expected));
    }
}

fn of_campaign(code: &str, values: &str) -> Link {
    Link {
        destination: Destination::Campaign {
            id: CampaignId::FIRST,
            values: ParameterValues::from_stored(values.to_owned()),
        },
        ..link(code)
    }
}

#[test]
fn a_link_of_a_campaign_says_no_more_than_its_values() {
    let now = moment("2026-02-01T00:00:00Z");
    let wien = of_campaign("abc", "Wien");
    assert_eq!(wien.record().to_vec(), b"c1 Wien");
    let ending = Link {
        valid_until: second("2026-03-01T00:00:00Z"),
        revision: 2,
        ..wien.clone()
    };
    assert_eq!(ending.record().to_vec(), b"1 C1 2 1772323200 Wien");
    let paused = Link {
        paused_at: Some(now),
        ..wien.clone()
    };
    assert_eq!(paused.record().to_vec(), b"1 410 1");

    let other = Change {
        values: Some(ParameterValues::from_stored("Graz".to_owned())),
        ..Change::default()
    };
    match wien.clone().change(&other, now) {
        Edit::Changed(graz) => assert_eq!(graz.record().to_vec(), b"1 C1 2 0 Graz"),
        edit => panic!("{edit:?}"),
    }
    assert_eq!(
        link("abc").change(&other, now),
        Edit::Refused(Refusal::OfNoCampaign)
    );
    let target = Target::from_stored("https://example.com/b".to_owned());
    for change in [
        Change {
            target: Some(target),
            ..Change::default()
        },
        Change {
            redirect_status: Some(RedirectStatus::Found),
            ..Change::default()
        },
        Change {
            forward_query: Some(false),
            ..Change::default()
        },
    ] {
        let edit = wien.clone().change(&change, now);
        assert_eq!(edit, Edit::Refused(Refusal::OfCampaign), "{change:?}");
    }
    assert!(wien.stands_for(&of_campaign("abd", "Wien"), now));
    assert!(!wien.stands_for(&of_campaign("abd", "Graz"), now));
    assert_ne!(
        wien.destination.text(),
        of_campaign("abc", "").destination.text()
    );
}
