//! The expected classes of user agents are in `golden/agents.tsv`, which the crate `enrich` tests with the public
//! lists.

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use vocabulary::preview::{PREVIEW_AGENTS, is_preview_agent};
use vocabulary::visit::evidence::Request;

use super::*;
use crate::testing::golden;

fn evidence(user_agent: &str) -> Evidence<'static> {
    Evidence {
        method: VisitMethod::Get,
        purpose: "",
        observed: VisitEvidence::UNKNOWN,
        words: Words::of(user_agent),
        listed: None,
        network: Network::default(),
    }
}

fn verdict(evidence: Evidence<'_>) -> (&'static str, &'static str) {
    let said = classify(&evidence);
    assert_eq!(said.ruleset, RULESET);
    (said.class.name(), said.reason)
}

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0";

/// nginx shows a preview to those that are counted as previews by their name.
#[test]
fn preview_agents_are_those_that_are_classified_by_their_name() {
    let names: Vec<&str> = PREVIEW_AGENTS.iter().map(|(program, _)| *program).collect();
    let mut found = 0;
    for line in golden() {
        let is_named = line.class == "preview" && names.contains(&&*line.reason);
        let is_agent = is_preview_agent(line.user_agent.as_bytes());
        assert_eq!(is_agent, is_named, "{}", line.user_agent);
        found += usize::from(is_agent);
    }
    assert!(found > 40, "{found}");
}

#[test]
fn every_rule_has_words_and_a_stable_reason() {
    let is_stable = |reason: &str| {
        !reason.is_empty()
            && reason
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    for rule in &*RULES {
        assert!(!rule.words.is_empty(), "{rule:?}");
        for word in &rule.words {
            assert_eq!(word.to_ascii_lowercase(), *word, "{rule:?}");
            assert!(bare(word).len() > 2, "{rule:?}");
        }
        assert!(is_stable(rule.reason), "{rule:?}");
        // A rule behind a wider one would never match.
        let agent: String = rule
            .words
            .iter()
            .map(|word| format!("{} ", bare(word)))
            .collect();
        let found = super::rule(&agent).expect("a rule");
        assert_eq!(
            (found.class, found.reason),
            (rule.class, rule.reason),
            "{rule:?}"
        );
    }
}

/// Stored classifications name their ruleset, so changed rules must have another number: increment
/// [`RULESET`], and put here the hash that this test finds.
#[test]
fn other_rules_are_another_ruleset() {
    let text = format!("{RULESET} {:?} {:?}", *RULES, networks::all());
    let digest = Sha256::digest(text.as_bytes());
    let digest: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(digest, "bad3d39b3ae3a46f");
}

#[test]
fn what_is_fetched_in_advance_is_a_preview() {
    for (purpose, reason) in [
        ("prefetch", "prefetch"),
        ("prefetch;prerender", "prefetch"),
        ("prefetch;anonymous-client-ip", "prefetch"),
        ("Prefetch", "prefetch"),
        ("preview", "purpose-preview"),
    ] {
        let evidence = Evidence {
            purpose,
            ..evidence(BROWSER)
        };
        assert_eq!(verdict(evidence), ("preview", reason), "{purpose}");
    }
    let other = Evidence {
        purpose: "something",
        ..evidence(BROWSER)
    };
    assert_eq!(verdict(other), ("human", "browser"));
}

#[test]
fn what_asks_for_heads_is_a_scanner_unless_it_has_a_name() {
    for (user_agent, class) in [
        (BROWSER, ("scanner", "head")),
        ("", ("scanner", "head")),
        ("Mozilla/5.0 Mobile Instagram 1", ("scanner", "head")),
        ("WhatsApp/2.23.20.0", ("preview", "whatsapp")),
        ("curl/8.5.0", ("bot", "curl")),
    ] {
        let evidence = Evidence {
            method: VisitMethod::Head,
            ..evidence(user_agent)
        };
        assert_eq!(verdict(evidence), class, "{user_agent}");
    }
    let other = Evidence {
        method: VisitMethod::Other,
        ..evidence(BROWSER)
    };
    assert_eq!(verdict(other), ("unknown", "method"));
}

#[test]
fn networks_of_scanners_are_told_though_they_pretend_to_be_browsers() {
    for (network, class) in [
        ("PROOFPOINT-ASN-US-EAST", ("scanner", "proofpoint")),
        ("Mimecast North America Inc", ("scanner", "mimecast")),
        ("Barracuda Networks, Inc.", ("scanner", "barracuda")),
        ("Example Telecom", ("human", "browser")),
    ] {
        let evidence = Evidence {
            network: Network {
                name: Some(network),
                asn: None,
            },
            ..evidence(BROWSER)
        };
        assert_eq!(verdict(evidence), class, "{network}");
    }
}

#[test]
fn a_pretender_in_a_network_of_servers_is_a_scanner() {
    const CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 \
        (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36";
    const IN_APP: &str = "Mozilla/5.0 (Linux; Android 14; wv) AppleWebKit/537.36 \
        (KHTML, like Gecko) Version/4.0 Chrome/126.0.0.0 Mobile Safari/537.36 MicroMessenger/8.0";
    let human = ("human", "browser");
    let servers = Network {
        name: None,
        asn: Some(16_509),
    };
    let access = Network {
        name: Some("Example Telecom"),
        asn: Some(64_496),
    };
    let lacking = Request {
        accept: Some(b"text/html"),
        is_tls: true,
        ..Request::default()
    };
    let navigation = Request {
        mode: Some(b"navigate"),
        ..lacking
    };
    let plain = Request {
        is_tls: false,
        ..lacking
    };
    let tool = Request {
        accept: Some(b"*/*"),
        ..plain
    };
    let scanner = ("scanner", "pretender");
    for (user_agent, request, network, class) in [
        (CHROME, lacking, servers, scanner),
        (CHROME, tool, servers, scanner),
        // A tunnel, a proxy, plain HTTP, an app.
        (CHROME, navigation, servers, human),
        (CHROME, lacking, access, human),
        (CHROME, tool, access, human),
        (CHROME, lacking, Network::default(), human),
        (CHROME, plain, servers, human),
        (IN_APP, lacking, servers, ("human", "app")),
    ] {
        let evidence = Evidence {
            observed: VisitEvidence::of(&request),
            network,
            ..evidence(user_agent)
        };
        assert_eq!(verdict(evidence), class, "{evidence:?}");
    }
    let older_edge = Evidence {
        network: servers,
        ..evidence(CHROME)
    };
    assert_eq!(verdict(older_edge), human);
}

fn observed(mode: &str, destination: &str) -> VisitEvidence {
    let sent = |text| Some(text).filter(|text: &&str| !text.is_empty());
    VisitEvidence::of(&Request {
        mode: sent(mode).map(str::as_bytes),
        destination: sent(destination).map(str::as_bytes),
        ..Request::default()
    })
}

#[test]
fn what_a_browser_fetches_without_navigating_is_a_preview() {
    const IN_APP: &str = "Mozilla/5.0 (iPhone) AppleWebKit/605.1.15 Mobile Instagram 336.0";
    let human = ("human", "browser");
    let fetched = ("preview", "fetched");
    for (mode, destination, class) in [
        ("navigate", "document", human),
        ("navigate", "iframe", human),
        ("navigate", "empty", human),
        ("navigate", "", human),
        ("", "", human),
        ("later", "later", human),
        ("no-cors", "image", fetched),
        ("no-cors", "script", fetched),
        ("cors", "empty", fetched),
        ("same-origin", "empty", fetched),
    ] {
        let evidence = |user_agent| Evidence {
            observed: observed(mode, destination),
            ..evidence(user_agent)
        };
        assert_eq!(verdict(evidence(BROWSER)), class, "{mode} {destination}");
        let in_app = if class == human {
            ("human", "app")
        } else {
            class
        };
        assert_eq!(verdict(evidence(IN_APP)), in_app, "{mode} {destination}");
        // A program with a name stays that program.
        assert_eq!(verdict(evidence("curl/8.5.0")), ("bot", "curl"));
        assert_eq!(verdict(evidence("Nokia3310")), ("human", "feature-phone"));
    }
}

#[test]
fn classes_have_names() {
    let names: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
    assert_eq!(names.join(", "), Class::NAMES);
    for class in Class::ALL {
        assert_eq!(Class::by_name(class.name()), Some(class));
    }
    assert_eq!(Class::by_name("Human"), None);
}

proptest! {
    #[test]
    fn anything_is_classified(
        user_agent in "\\PC{0,200}",
        purpose in "\\PC{0,32}",
        observed in any::<u64>(),
        name in prop::option::of("\\PC{0,32}"),
        asn in prop::option::of(any::<u32>()),
    ) {
        let said = classify(&Evidence {
            method: VisitMethod::Get,
            purpose: &purpose,
            observed: VisitEvidence::from_number(observed),
            words: Words::of(&user_agent),
            listed: None,
            network: Network { name: name.as_deref(), asn },
        });
        prop_assert!(!said.reason.is_empty());
        // Only the reason shows who was refused.
        let refused = said.answered(410);
        prop_assert_eq!((refused.class, refused.reason), (Class::Refused, said.reason));
        prop_assert_eq!(refused.class.is_of_person(said.reason), said.class == Class::Human);
        prop_assert_eq!(said.answered(302), said);
    }

    #[test]
    fn the_case_of_letters_and_space_around_do_not_matter(place in 0_usize..150) {
        let lines = golden();
        let line = &lines[place % lines.len()];
        let other = format!(" {} ", line.user_agent.to_uppercase());
        prop_assert_eq!(verdict(evidence(&other)), verdict(evidence(&line.user_agent)));
    }
}
