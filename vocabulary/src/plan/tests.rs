use super::*;
use crate::target::is_servable;

struct Someone<'a> {
    agent: &'a str,
    languages: &'a str,
    place: [&'a str; 2],
    query: &'a str,
    address: &'a str,
}

const SOMEONE: Someone<'static> = Someone {
    agent: "",
    languages: "",
    place: ["", ""],
    query: "",
    address: "192.0.2.1",
};

impl Visitor for Someone<'_> {
    fn user_agent(&self) -> &[u8] {
        self.agent.as_bytes()
    }
    fn accept_language(&self) -> &[u8] {
        self.languages.as_bytes()
    }
    fn country(&self) -> &[u8] {
        self.place[0].as_bytes()
    }
    fn region(&self) -> &[u8] {
        self.place[1].as_bytes()
    }
    fn query(&self) -> &[u8] {
        self.query.as_bytes()
    }
    fn address(&self) -> &[u8] {
        self.address.as_bytes()
    }
}

/// A plan with rules that lead to `https://e.com/` and their place.
fn plan(rules: &[&str]) -> String {
    let mut text = Vec::new();
    push_section(&mut text, b'T', b"https://e.com/");
    for (place, conditions) in rules.iter().enumerate() {
        let rule = format!("{conditions} https://e.com/{place}");
        push_section(&mut text, b'R', rule.as_bytes());
    }
    String::from_utf8(text).expect("ASCII")
}

fn is_plan(text: &str) -> bool {
    Plan::parse(text.as_bytes(), is_servable, is_servable).is_some()
}

fn chosen(rules: &[&str], visitor: &Someone<'_>, now: u64) -> Option<usize> {
    let text = plan(rules);
    let plan = Plan::parse(text.as_bytes(), is_servable, is_servable).expect("a plan");
    let code = "abc".parse().expect("a code");
    let choice = plan.choose(&code, visitor, now).expect("a choice");
    let place = choice.rule.map(|rule| rule.to_string());
    let target = format!("https://e.com/{}", place.unwrap_or_default());
    assert_eq!(choice.target, target.as_bytes());
    choice.rule
}

#[test]
fn the_first_rule_is_followed_whose_conditions_are_met() {
    let rules = &["d=i;l=de", "d=ia", "l=de"];
    for (agent, languages, rule) in [
        ("(iPhone; CPU iPhone OS 17_0)", "de-AT,en;q=0.5", Some(0)),
        ("(iPhone; CPU iPhone OS 17_0)", "en,de;q=0.5", Some(1)),
        ("(Linux; Android 14)", "de", Some(1)),
        ("(Windows NT 10.0)", "de", Some(2)),
        ("(Windows NT 10.0)", "en", None),
    ] {
        let visitor = Someone {
            agent,
            languages,
            ..SOMEONE
        };
        assert_eq!(chosen(rules, &visitor, 0), rule, "{agent} {languages}");
    }
    assert_eq!(chosen(&["", "d=i"], &SOMEONE, 0), Some(0));
    assert_eq!(chosen(&[], &SOMEONE, 0), None);
}

#[test]
fn devices_are_found_by_their_systems() {
    for (agent, device) in [
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Safari",
            Device::Ios,
        ),
        ("Mozilla/5.0 (iPad; CPU OS 12_0 like Mac OS X)", Device::Ios),
        (
            "Mozilla/5.0 (Linux; Android 14; K) Chrome/120 Mobile",
            Device::Android,
        ),
        (
            "Mozilla/5.0 (Linux; Android 10; HarmonyOS; NOH) HuaweiBrowser",
            Device::Harmony,
        ),
        (
            "Mozilla/5.0 (Phone; OpenHarmony 5.0) ArkWeb/4.1",
            Device::Harmony,
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Edg/120",
            Device::Desktop,
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Safari",
            Device::Desktop,
        ),
        (
            "Mozilla/5.0 (X11; Linux x86_64) Firefox/120",
            Device::Desktop,
        ),
        ("Mozilla/5.0 (X11; CrOS x86_64 14541.0.0)", Device::Desktop),
        (
            "Mozilla/5.0 (Windows Phone 10.0; Android 6.0.1; Microsoft; like iPhone)",
            Device::Other,
        ),
        ("curl/8.0", Device::Other),
        ("", Device::Other),
    ] {
        assert_eq!(Device::of(agent.as_bytes()), device, "{agent}");
        assert_eq!(Device::from_name(device.name()), Some(device));
    }
}

#[test]
fn places_are_countries_or_regions() {
    for (condition, place, is_met) in [
        ("c=DE", ["DE", "BY"], true),
        ("c=DE", ["de", ""], true),
        ("c=AT,DE-BY", ["DE", "BY"], true),
        ("c=AT,DE-BY", ["DE", "BE"], false),
        ("c=DE-BY", ["DE", ""], false),
        ("c=DE", ["", ""], false),
        ("c=DE", ["AT", ""], false),
    ] {
        let visitor = Someone { place, ..SOMEONE };
        let found = chosen(&[condition], &visitor, 0);
        assert_eq!(found.is_some(), is_met, "{condition} {place:?}");
    }
}

#[test]
fn queries_are_compared_as_they_are_meant() {
    for (condition, query, is_met) in [
        ("q=src", "src", true),
        ("q=src", "a=b&src=", true),
        ("q=src", "srcs=1", false),
        ("q=src=", "src=1", false),
        ("q=src=", "src", true),
        ("q=src=a%20b", "src=a+b", true),
        ("q=src=a%20b", "%73rc=a%20b", true),
        ("q=src=ad", "src=no&src=ad", true),
        ("q=src=ad", "", false),
    ] {
        let visitor = Someone { query, ..SOMEONE };
        let found = chosen(&[condition], &visitor, 0);
        assert_eq!(found.is_some(), is_met, "{condition} {query}");
    }
}

#[test]
fn times_are_validities() {
    for (condition, now, is_met) in [
        ("t=5-7", 4, false),
        ("t=5-7", 5, true),
        ("t=5-7", 7, false),
        ("t=5-", 1 << 40, true),
        ("t=7", 6, true),
    ] {
        let found = chosen(&[condition], &SOMEONE, now);
        assert_eq!(found.is_some(), is_met, "{condition} {now}");
    }
}

#[test]
fn shares_divide_visitors_and_stay_with_them() {
    let addresses: Vec<String> = (0..10_000)
        .map(|number| format!("192.0.2.{number}"))
        .collect();
    let count = |rules: &[&str]| {
        let mut counts = [0_i64; 3];
        for address in &addresses {
            let visitor = Someone { address, ..SOMEONE };
            let rule = chosen(rules, &visitor, 0);
            assert_eq!(chosen(rules, &visitor, 9), rule);
            counts[rule.unwrap_or(2)] += 1;
        }
        counts
    };
    // Four standard deviations of a draw of 10,000.
    let is_near = |count: i64, of: i64| (count - of).abs() < 200;
    let [a, b, rest] = count(&["s=0.0-3000", "s=0.3000-8000"]);
    assert!(is_near(a, 3000) && is_near(b, 5000) && is_near(rest, 2000));
    // Another group draws anew, from those that are left.
    let [a, b, rest] = count(&["s=0.0-5000", "s=1.0-5000"]);
    assert!(is_near(a, 5000) && is_near(b, 2500) && is_near(rest, 2500));
    assert_eq!(count(&["s=7.0-10000"])[0], 10_000);
}

#[test]
fn a_rule_may_name_its_visits() {
    let text = plan(&["v=b-1;s=0.0-10000"]);
    let code = "abc".parse().expect("a code");
    let choice = Plan::from_checked(text.as_bytes()).choose(&code, &SOMEONE, 0);
    assert_eq!(choice.expect("a choice").variant, Some(&b"b-1"[..]));
}

#[test]
fn what_a_reader_does_not_know_is_skipped_only_if_it_may_be() {
    for text in [
        "T14:https://e.com/",
        "T14:https://e.com/x3:any",
        "T14:https://e.com/E14:https://e.com/P14:https://e.com/N14:https://e.com/",
        "T14:https://e.com/o4:t1:aR18:d=i https://e.com/",
        "T14:https://e.com/o8:t1:aq1:b",
    ] {
        assert!(is_plan(text), "{text}");
    }
    for text in [
        "",
        "T14:https://e.com",
        "T13:https://e.com/",
        "T013:https://e.com",
        "14:https://e.com/",
        "x3:anyT14:https://e.com/",
        "R16: https://e.com/1",
        "T14:https://e.com/T14:https://e.com/",
        "T14:https://e.com/E14:https://e.com/E14:https://e.com/",
        "T14:https://e.com/X3:any",
        "T14:https://e.com/o3:any",
        "T14:https://e.com/o4:d1:a",
        "T14:https://e.com/o4:t1:ao4:t1:a",
        "T14:https://e.com/x1:ao4:t1:a",
        "T14:https://e.com/E3:any",
        "T3:any",
        "T14:https://e.com/R18:z=1 https://e.com/1",
        "T14:https://e.com/R14:https://e.com/",
        "T14:https://e.com/R",
        "T14:https://e.com/R99999:",
    ] {
        assert!(!is_plan(text), "{text}");
    }
    assert!(is_plan(&plan(&[""; MAX_RULES])));
    assert!(!is_plan(&plan(&[""; MAX_RULES + 1])));
    for conditions in [
        "d=",
        "d=ii",
        "d=x",
        "l=",
        "l=d",
        "l=de,",
        "l=de_AT",
        "c=de",
        "c=D",
        "c=DE-",
        "c=DE-ABCD",
        "t=",
        "t=7-5",
        "q=",
        "q==a",
        "q=a=b=c",
        "q=a b",
        "s=0.5-5",
        "s=256.0-5",
        "s=0.0-10001",
        "s=0.5",
        "s=0.1-2-3",
        "v=",
        "v=a.b",
        "z=1",
        "d",
        "d=i;;l=de",
        "d=i;",
        ";d=i",
    ] {
        assert!(!is_plan(&plan(&[conditions])), "{conditions}");
    }
}

#[test]
fn a_preview_is_for_preview_agents_only() {
    let code = "abc".parse().expect("a code");
    let titled = |text: &str, agent| {
        let visitor = Someone { agent, ..SOMEONE };
        let plan = Plan::parse(text.as_bytes(), is_servable, is_servable).expect("a plan");
        let choice = plan.choose(&code, &visitor, 0).expect("a choice");
        choice.preview.map(|it| it.title.to_owned())
    };
    let with = "T14:https://e.com/o4:t1:aR18:d=o https://e.com/";
    assert_eq!(titled(with, "WhatsApp/2.23"), Some("a".to_owned()));
    assert_eq!(titled(with, "(iPhone; CPU iPhone OS 17_0)"), None);
    assert_eq!(titled("T14:https://e.com/", "WhatsApp/2.23"), None);
}

#[test]
fn targets_are_replaced_in_their_places() {
    let text = "T14:https://e.com/o4:t1:aR19:d=i https://e.com/iE15:https://e.com/ex3:any";
    let mut out = Vec::new();
    let mapped = Plan::from_checked(text.as_bytes()).map(&mut out, |section, target, out| {
        out.extend_from_slice(target);
        out.push(b'!');
        Ok::<_, ()>(!matches!(section, Section::Instead(..)))
    });
    assert_eq!(mapped, Ok(()));
    assert_eq!(out, b"T15:https://e.com/!o5:t1:a!R20:d=i https://e.com/i!");
}
