use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use shortlink_core::visit::class::networks::Network;
use shortlink_core::visit::class::{Evidence, RULESET, Words, classify};
use vocabulary::visit::VisitMethod;
use vocabulary::visit::evidence::VisitEvidence;

use super::*;

/// User agents of programs, which came with the first list.
const BOTS: &str = include_str!("../../../../data/crawler-user-agents/instances.txt");

/// User agents of browsers, as a site counted them.
const BROWSERS: &str = include_str!("../../../../data/user-agents/agents.txt");

/// User agents of visitors that look like programs.
const PEOPLE: &str = include_str!("../../../../golden/people.txt");

fn lists() -> &'static Lists {
    static LISTS: std::sync::LazyLock<Lists> =
        std::sync::LazyLock::new(|| Lists::new().expect("good lists"));
    &LISTS
}

fn class(user_agent: &str, listed: Option<Listed>) -> Class {
    let evidence = Evidence {
        method: VisitMethod::Get,
        purpose: "",
        observed: VisitEvidence::UNKNOWN,
        words: Words::of(user_agent),
        listed,
        network: Network::default(),
    };
    classify(&evidence).class
}

/// The class with both lists.
fn judged(user_agent: &str) -> Class {
    class(user_agent, lists().find(user_agent))
}

/// The share of some user agents, and those that are not part of it.
fn share<'a>(all: &[&'a str], is_part: impl Fn(&str) -> bool) -> (f64, Vec<&'a str>) {
    let others: Vec<&str> = all.iter().copied().filter(|it| !is_part(it)).collect();
    let share = 1.0 - others.len() as f64 / all.len() as f64;
    (share, others)
}

#[test]
fn nearly_all_programs_are_recognised() {
    let bots: Vec<&str> = BOTS.lines().collect();
    let (found, missed) = share(&bots, |bot| judged(bot) != Class::Human);
    // The first list's user agents without the first list: it would recognise all of its own.
    let (held_out, _) = share(&bots, |bot| class(bot, lists().form(bot)) != Class::Human);
    let (without, _) = share(&bots, |bot| class(bot, None) != Class::Human);
    println!(
        "{} programs: {:.2} % are not human; {:.2} % without the list that has them, {:.2} % \
         without both lists; human: {missed:#?}",
        bots.len(),
        found * 100.0,
        held_out * 100.0,
        without * 100.0
    );
    assert!(found >= 0.99);
    assert!(held_out >= 0.98);
}

#[test]
fn nearly_all_people_are_human() {
    let browsers: Vec<&str> = BROWSERS.lines().collect();
    let (found, others) = share(&browsers, |agent| judged(agent) == Class::Human);
    println!(
        "{} browsers: {:.2} % are human",
        browsers.len(),
        found * 100.0
    );
    assert!(found >= 0.995, "{others:#?}");
    let people = PEOPLE.lines().filter(|line| !line.starts_with('#'));
    let people: Vec<&str> = people.collect();
    let (found, others) = share(&people, |agent| judged(agent) == Class::Human);
    println!("{} others: {:.2} % are human", people.len(), found * 100.0);
    assert_eq!(others, [""; 0]);
}

#[test]
fn a_short_pattern_is_found_at_the_start_of_a_word() {
    for (user_agent, is_listed) in [
        ("008/0.83", true),
        ("Phone Build/QP1A.190711.008/1", false),
        ("Phone X008/1", false),
    ] {
        let found = lists().program(user_agent);
        assert_eq!(found.is_some(), is_listed, "{user_agent}");
    }
}

#[test]
fn patterns_are_read_as_they_are_meant() {
    for (pattern, text) in [
        (r"Googlebot\/", Some("Googlebot/")),
        (r"archive\.org_bot", Some("archive.org_bot")),
        ("Y!J", Some("Y!J")),
        (r"\d+bot", None),
        ("^curl", None),
        ("a.b", None),
        (r"agent\b", None),
        (r"bot\", None),
    ] {
        assert_eq!(plain(pattern).as_deref(), text, "{pattern}");
    }
    let patterns = ["^b", r"(?<!cam)scan", "plain", "(?<! cu)bots?"];
    let patterns = Patterns::new(patterns.into_iter(), false).expect("patterns");
    for (text, place) in [
        ("a b", None),
        ("BA plain", Some(0)),
        ("a Plain scan", Some(1)),
        ("camscan", None),
        ("camscan plain bot", Some(2)),
        ("a cubot", None),
        ("a robot", Some(3)),
    ] {
        assert_eq!(patterns.first(text), place, "{text}");
    }
}

/// Stored classifications name their ruleset: other lists are another one. Increase [`RULESET`], unless no version with
/// it was released, and put here the hash that this test finds.
#[test]
fn other_lists_are_another_ruleset() {
    let digest = Sha256::digest(format!("{RULESET}{PROGRAMS}{FORMS}"));
    let digest: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(digest, "76c6501a776b1863");
}

#[test]
fn kinds_of_programs_have_classes() {
    let programs: Vec<Program> = serde_json::from_str(PROGRAMS).expect("a list");
    let mut kinds: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for program in &programs {
        let Listed { class, reason } = kind(&program.tags);
        *kinds.entry((class.name(), reason)).or_default() += 1;
    }
    println!("{kinds:#?}");
    assert!(kinds.len() > 8);
    assert!(
        kinds
            .keys()
            .all(|(class, _)| *class != "human" && *class != "unknown")
    );
}
