use jiff::Timestamp;
use vocabulary::plan::{Device, Devices};

use super::*;
use crate::campaign::{CampaignChange, CampaignEdit};
use crate::link::{Change, Destination, Edit, Link, Refusal, Second};
use crate::records::Records;
use crate::revised::Revised;
use crate::testing::{campaign, link, moment};

const IOS: &str = "R29:d=i https://apps.example.com/";

fn ios() -> Conditions {
    Conditions {
        devices: Devices::default().with(Device::Ios),
        ..Conditions::default()
    }
}

fn share(points: u16, variant: &str) -> Conditions {
    Conditions {
        points: Some(points),
        variant: Some(variant.to_owned()),
        ..Conditions::default()
    }
}

fn rule(conditions: Conditions, target: &str) -> Rule {
    Rule {
        conditions,
        target: target.to_owned(),
    }
}

fn instead(of: Instead, target: &str) -> PlanChange {
    let mut change = PlanChange::default();
    let place = Instead::ALL.iter().position(|it| *it == of);
    change.instead[place.expect("one of them")] = Some(Some(target.to_owned()));
    change
}

fn planned(plan: PlanChange) -> Link {
    let settings = Change {
        plan,
        ..Change::default()
    };
    let now: Timestamp = moment("2026-01-01T00:00:00Z");
    let plain = link("abc");
    Link::new(
        plain.code,
        plain.destination,
        settings,
        "key".to_owned(),
        now,
    )
}

#[test]
fn a_preview_stands_before_the_rules_and_stays_until_it_is_changed() {
    let preview = Preview {
        title: "Größe",
        description: "",
        image: "https://e.example/a.png",
    };
    let with = |preview: Option<Preview<'_>>| PlanChange {
        preview: Some(preview.map(preview_text)),
        ..PlanChange::default()
    };
    let text = planned(with(Some(preview))).plan.expect("a plan");
    assert_eq!(text.text(), "o37:t7:Größei23:https://e.example/a.png");
    assert_eq!(text.preview(), Some(preview));
    assert_eq!(text.targets(), ["https://e.example/a.png"]);
    let rules = PlanChange {
        rules: Some(IOS.to_owned()),
        ..PlanChange::default()
    };
    let both = planned(PlanChange {
        preview: with(Some(preview)).preview,
        ..rules.clone()
    });
    let both = both.plan.expect("a plan");
    assert_eq!(both.text(), format!("{}{IOS}", text.text()));
    assert_eq!(rules.text_after(Some(&text)), both.text());
    assert_eq!(with(None).text_after(Some(&both)), IOS);
    assert_eq!(
        PlanChange::of_text(both.text()).text_after(None),
        both.text()
    );
    assert_eq!(differences(Some(&text), Some(&both)), ["rules"]);
    assert_eq!(differences(Some(&text), None), ["preview"]);
    // Nothing is shown of a paused link.
    let paused = instead(Instead::Paused, "https://e.example/paused");
    let paused = Link {
        paused_at: Some(moment("2026-01-02T00:00:00Z")),
        ..planned(PlanChange {
            preview: with(Some(preview)).preview,
            ..paused
        })
    };
    let record = String::from_utf8(paused.record().to_vec()).expect("UTF-8");
    assert_eq!(record, "2 302 1 0 T24:https://e.example/paused");
}

#[test]
fn a_link_has_places_for_click_ids_in_the_targets_of_visitors() {
    let record = |link: &Link| String::from_utf8(link.record().to_vec()).expect("UTF-8");
    let named = |name: Option<&str>| PlanChange {
        click_id: Some(name.map(str::to_owned)),
        ..PlanChange::default()
    };
    let mut plain = planned(named(Some("c")));
    plain.redirect_status = RedirectStatus::MovedPermanently;
    assert_eq!(record(&plain), "1 302k 1 0 https://example.com/a?c= ");
    let full = PlanChange {
        rules: Some(IOS.to_owned()),
        ..instead(Instead::Expired, "https://e.example/over")
    };
    let full = planned(PlanChange {
        click_id: named(Some("c")).click_id,
        ..full
    });
    assert_eq!(
        record(&full),
        "2 302k 1 0 T25:https://example.com/a?c= R33:d=i https://apps.example.com/?c= E22:https://e.example/over"
    );
    let plan = full.plan.as_deref().expect("a plan");
    assert!(plan.text().ends_with("k1:c"), "{}", plan.text());
    assert!(plan.fits_link());
    let again = PlanChange::of_text(plan.text()).text_after(None);
    assert_eq!(again, plan.text());
    assert_eq!(PlanChange::default().text_after(Some(plan)), plan.text());
    let without = named(None).text_after(Some(plan));
    assert_eq!(format!("{without}k1:c"), plan.text());
    assert_eq!(
        differences(Some(plan), None),
        ["rules", "clickId", "expiredTarget"]
    );
    // The id belongs to the target.
    let longest = |room: usize| {
        let url = format!("https://e.example/{}", "a".repeat(8192 - 18 - room));
        let plan = Plan::of_link(again.clone(), &Target::from_stored(url));
        plan.expect("a plan").fits_link()
    };
    assert!(longest("?c=".len() + 22));
    assert!(!longest("?c=".len() + 21));
}

#[test]
fn rules_are_read_as_they_were_written() {
    let all = Conditions {
        devices: Devices::default().with(Device::Ios).with(Device::Other),
        languages: vec!["de".to_owned(), "pt-BR".to_owned()],
        places: vec!["DE".to_owned(), "US-CA".to_owned()],
        since: Second::at(moment("2026-01-01T00:00:00Z")),
        until: Second::at(moment("2026-02-01T00:00:00Z")),
        query: Some(("a b&".to_owned(), Some("ü;=,".to_owned()))),
        points: Some(3000),
        variant: Some("b".to_owned()),
    };
    let any = Conditions {
        query: Some(("src".to_owned(), None)),
        ..Conditions::default()
    };
    let rules = [
        rule(all, "https://e.example/all"),
        rule(any, "https://e.example/any"),
        rule(share(5000, "c"), "https://e.example/c"),
    ];
    let text = rules_text(&rules);
    assert!(text.contains("s=0.0-3000;v=b "), "{text}");
    assert!(text.contains("s=0.3000-8000;v=c "), "{text}");
    let target = Target::from_stored("https://example.com/a".to_owned());
    let plan = Plan::of_link(text, &target).expect("a plan");
    assert!(plan.fits_link());
    assert_eq!(plan.rules(), rules);
}

#[test]
fn rules_that_can_never_match_or_hide_others_are_refused() {
    let never = Conditions {
        since: Second::at(moment("2026-02-01T00:00:00Z")),
        until: Second::at(moment("2026-02-01T00:00:00Z")),
        ..Conditions::default()
    };
    let always = Conditions {
        variant: Some("a".to_owned()),
        ..Conditions::default()
    };
    let named = Conditions {
        variant: Some("a".to_owned()),
        ..ios()
    };
    for (rules, faults) in [
        (vec![ios(), share(10_000, "a")], vec![]),
        (vec![share(5000, "a"), share(5000, "a")], vec![]),
        (vec![always], vec![(0, RuleError::Always)]),
        (vec![ios(), named], vec![(1, RuleError::Covered(0))]),
        (vec![never], vec![(0, RuleError::NeverValid)]),
        (
            vec![share(6000, "a"), share(4001, "b"), share(4000, "c")],
            vec![(1, RuleError::Over)],
        ),
    ] {
        let rules: Vec<&Conditions> = rules.iter().collect();
        assert_eq!(check_rules(&rules), faults);
    }
}

#[test]
fn a_rule_whose_visitors_follow_earlier_ones_is_refused() {
    let texts = |all: &[&str]| all.iter().map(|&it| it.to_owned()).collect();
    let language = |all: &[&str]| Conditions {
        languages: texts(all),
        ..Conditions::default()
    };
    let place = |all: &[&str]| Conditions {
        places: texts(all),
        ..Conditions::default()
    };
    let query = |value: Option<&str>| Conditions {
        query: Some(("src".to_owned(), value.map(str::to_owned))),
        ..Conditions::default()
    };
    let period = |since: Option<&str>, until: Option<&str>| Conditions {
        since: since.and_then(|it| Second::at(moment(it))),
        until: until.and_then(|it| Second::at(moment(it))),
        ..Conditions::default()
    };
    let both = Conditions {
        places: texts(&["DE"]),
        ..ios()
    };
    let phones = Conditions {
        devices: ios().devices.with(Device::Android),
        ..Conditions::default()
    };
    let half = Conditions {
        points: Some(5000),
        ..ios()
    };
    let (early, late) = ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z");
    // The first rules, and the last one with the place of what covers it.
    for (mut rules, last, covered) in [
        (vec![ios()], both.clone(), Some(0)),
        (vec![both.clone()], ios(), None),
        (vec![phones.clone()], ios(), Some(0)),
        (vec![ios()], phones, None),
        (vec![language(&["de", "en"])], language(&["de-AT"]), Some(0)),
        (vec![language(&["de-AT"])], language(&["de"]), None),
        (vec![language(&["de"])], language(&["de", "fr"]), None),
        (vec![place(&["US", "DE"])], place(&["US-CA", "DE"]), Some(0)),
        (vec![place(&["US-CA"])], place(&["US"]), None),
        (vec![query(None)], query(Some("ad")), Some(0)),
        (vec![query(Some("ad"))], query(None), None),
        (vec![query(Some("ad"))], query(Some("mail")), None),
        (
            vec![period(None, Some(late))],
            period(None, Some(early)),
            Some(0),
        ),
        (
            vec![period(Some(early), None)],
            period(Some(late), None),
            Some(0),
        ),
        (
            vec![period(None, Some(early))],
            period(None, Some(late)),
            None,
        ),
        (
            vec![period(Some(late), None)],
            period(Some(early), None),
            None,
        ),
        (vec![period(Some(early), None)], ios(), None),
        // Shares: of all visitors, and of those of one rule.
        (vec![share(6000, "a"), share(4000, "b")], ios(), Some(1)),
        (vec![share(6000, "a"), share(3999, "b")], ios(), None),
        (vec![half.clone(), half.clone()], both, Some(1)),
        (vec![half.clone(), half.clone()], language(&["de"]), None),
        (vec![ios()], half, Some(0)),
    ] {
        rules.push(last);
        let rules: Vec<&Conditions> = rules.iter().collect();
        let faults = covered.map(|by| (rules.len() - 1, RuleError::Covered(by)));
        assert_eq!(check_rules(&rules), Vec::from_iter(faults), "{rules:?}");
    }
}

#[test]
fn a_change_replaces_what_it_names_and_leaves_the_rest() {
    let mut plan = instead(Instead::Paused, "https://e.example/paused");
    plan.rules = Some(rules_text(&[rule(ios(), "https://apps.example.com/")]));
    let before = planned(plan);
    let text = format!("{IOS}P24:https://e.example/paused");
    assert_eq!(before.plan.as_ref().map(|it| it.text()), Some(&*text));
    assert_eq!(PlanChange::of_text(&text).text_after(None), text);
    let now = moment("2026-02-01T00:00:00Z");
    let changed = |change: PlanChange| {
        let change = Change {
            plan: change,
            ..Change::default()
        };
        match before.clone().change(&change, now) {
            Edit::Changed(link) => link,
            other => panic!("{other:?}"),
        }
    };
    let without = changed(PlanChange {
        rules: Some(String::new()),
        ..PlanChange::default()
    });
    assert_eq!(without.differences(&before), ["rules"]);
    assert_eq!(
        without.record().to_vec(),
        b"2 302 2 0 T21:https://example.com/aP24:https://e.example/paused"
    );
    let mut none = PlanChange::default();
    none.instead[1] = Some(None);
    let only_rules = changed(none);
    assert_eq!(only_rules.differences(&before), ["pausedTarget"]);
    // Another default target stands in the same plan.
    let target = Change {
        target: Some(Target::from_stored("https://example.com/b".to_owned())),
        ..Change::default()
    };
    let Edit::Changed(moved) = only_rules.change(&target, now) else {
        panic!("it is changed");
    };
    let record = format!("2 302 3 0 T21:https://example.com/b{IOS}");
    assert_eq!(moved.record().to_vec(), record.as_bytes());
    let long = format!("https://e.example/{}", "a".repeat(8170));
    let mut change = instead(Instead::Expired, &long);
    change.instead[2] = Some(Some(long));
    let change = Change {
        plan: change,
        ..Change::default()
    };
    assert_eq!(
        before.clone().change(&change, now),
        Edit::Refused(Refusal::PlanTooLong)
    );
    let of_campaign = Link {
        destination: Destination::Campaign {
            id: vocabulary::CampaignId::FIRST,
            values: ParameterValues::default(),
        },
        plan: None,
        ..before
    };
    assert_eq!(
        of_campaign.change(&change, now),
        Edit::Refused(Refusal::OfCampaign)
    );
}

#[test]
fn a_link_with_targets_instead_of_answers_has_their_records() {
    let now = moment("2026-02-01T00:00:00Z");
    let until = Second::at(moment("2026-01-15T00:00:00Z"));
    let paused = planned(instead(Instead::Paused, "https://e.example/p"));
    let Edit::Changed(paused) = paused.pause(now) else {
        panic!("it is paused");
    };
    assert_eq!(
        paused.record().to_vec(),
        b"2 302 2 0 T19:https://e.example/p"
    );
    // A pause is over when the link is, and does not wait for its beginning.
    let mut both = paused.clone();
    both.valid_since = Second::at(moment("2026-03-01T00:00:00Z"));
    both.valid_until = Second::at(moment("2026-04-01T00:00:00Z"));
    let mut change = instead(Instead::Paused, "https://e.example/p");
    change.instead[0] = Some(Some("https://e.example/e".to_owned()));
    let change = Change {
        plan: change,
        ..Change::default()
    };
    let Edit::Changed(both) = both.change(&change, now) else {
        panic!("it is changed");
    };
    assert_eq!(
        both.record().to_vec(),
        b"2 302 3 1775001600 T19:https://e.example/pE19:https://e.example/e"
    );
    let Edit::Changed(revoked) = paused.revoke(now) else {
        panic!("it is revoked");
    };
    assert_eq!(revoked.record().to_vec(), b"1 410 3");
    for (of, is_short) in [(Instead::Expired, false), (Instead::NotYet, true)] {
        let mut link = planned(instead(of, "https://e.example/"));
        link.valid_until = until;
        let mut records = Records::at(now);
        records.push(&link);
        let record = records.get(0);
        assert_eq!(record.text == b"1 410 1", is_short);
        assert_eq!(record.ended_s.is_some(), is_short);
    }
}

#[test]
fn a_request_with_a_plan_has_a_digest_of_its_own() {
    let parts = |plan: PlanChange| {
        let mut parts = Vec::new();
        let change = Change {
            plan,
            ..Change::default()
        };
        change.write_parts(&mut |part| parts.push(part.to_vec()));
        parts
    };
    let none = parts(PlanChange::default());
    let empty = PlanChange {
        rules: Some(String::new()),
        ..PlanChange::default()
    };
    assert_eq!(parts(empty), none);
    let planned = parts(instead(Instead::Paused, "https://e.example/"));
    assert_eq!(planned[..none.len()], none);
    assert_eq!(planned.len(), none.len() + 2);
}

#[test]
fn changes_of_a_campaign_are_refused_by_the_campaign_that_they_meet() {
    let now = moment("2026-01-02T00:00:00Z");
    let long = format!("https://e.example/{}", "a".repeat(8170));
    let [expired, early] = [Instead::Expired, Instead::NotYet].map(|of| CampaignChange {
        plan: instead(of, &long),
        ..CampaignChange::default()
    });
    let present = campaign();
    for change in [&expired, &early] {
        let alone = present.clone().change(change, now);
        assert!(matches!(alone, CampaignEdit::Changed(_)));
    }
    // Both were read when neither was stored.
    let CampaignEdit::Changed(present) = present.change(&expired, now) else {
        panic!("a change");
    };
    let second = present.clone().change(&early, now);
    assert_eq!(second, CampaignEdit::Refused(Refusal::PlanTooLong));
    // It can be paused all the same.
    assert!(matches!(present.pause(now), CampaignEdit::Changed(_)));

    // A bound that another change has set stays.
    let at = |day: u8| Some(Second::at(moment(&format!("2026-02-{day:02}T00:00:00Z"))));
    let until = |day| CampaignChange {
        valid_until: at(day),
        ..CampaignChange::default()
    };
    let since = CampaignChange {
        valid_since: at(5),
        ..CampaignChange::default()
    };
    let CampaignEdit::Changed(begun) = campaign().change(&since, now) else {
        panic!("a change");
    };
    let ended = begun.clone().change(&until(9), now);
    let CampaignEdit::Changed(ended) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(ended.validity.since(), begun.validity.since());
    assert_eq!(
        begun.change(&until(5), now),
        CampaignEdit::Refused(Refusal::NeverValid)
    );

    let of = |name: &str| {
        let rules = rules_text(&[rule(share(5000, name), "https://e.example/")]);
        let plan = PlanChange {
            rules: Some(rules),
            ..PlanChange::default()
        };
        let change = CampaignChange {
            plan,
            ..CampaignChange::default()
        };
        match campaign().change(&change, now) {
            CampaignEdit::Changed(campaign) => campaign,
            edit => panic!("{edit:?}"),
        }
    };
    let names = vec!["b".to_owned()];
    let refused = CampaignEdit::Refused(Refusal::NoVariant { names });
    assert_eq!(of("b").win("a", now), refused);
    for winner in ["a", ""] {
        assert!(matches!(of("a").win(winner, now), CampaignEdit::Changed(_)));
    }
    assert!(matches!(
        campaign().win("a", now),
        CampaignEdit::Unchanged(_)
    ));
}
