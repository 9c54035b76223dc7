use proptest::prelude::*;
use shortlink_core::testing::golden;
use shortlink_core::visit::class::networks::Network;
use shortlink_core::visit::class::{Evidence, classify};
use vocabulary::visit::VisitMethod;
use vocabulary::visit::evidence::VisitEvidence;

use super::*;

/// Compiling takes a second in a debug build, so all tests share one.
fn reader() -> &'static AgentReader {
    static READER: std::sync::LazyLock<AgentReader> =
        std::sync::LazyLock::new(|| AgentReader::new(100).expect("good rules"));
    &READER
}

fn shown(versioned: Option<&Versioned>) -> String {
    match versioned {
        None => "-".to_owned(),
        Some(Versioned { name, version }) => {
            let version = version.as_ref().map(|version| format!(" {version}"));
            format!("{name}{}", version.unwrap_or_default())
        }
    }
}

#[test]
fn user_agents_are_read_as_golden() {
    let mut wrong = Vec::new();
    for line in golden() {
        let agent = reader().agent(&line.user_agent);
        let classification = classify(&Evidence {
            method: VisitMethod::Get,
            purpose: "",
            observed: VisitEvidence::UNKNOWN,
            words: agent.words,
            listed: agent.listed,
            network: Network::default(),
        });
        let read = [
            classification.class.name().to_owned(),
            classification.reason.to_owned(),
            agent.app.unwrap_or("-").to_owned(),
            agent.device.kind.name().to_owned(),
            shown(agent.browser.as_ref()),
            shown(agent.os.as_ref()),
        ];
        let golden = [
            line.class,
            line.reason,
            line.app,
            line.device,
            line.browser,
            line.os,
        ];
        if read != golden {
            wrong.push(format!("{}\t{}", read.join("\t"), line.user_agent));
        }
    }
    assert!(wrong.is_empty(), "read otherwise:\n{}", wrong.join("\n"));
}

#[test]
fn devices_have_brands_and_models() {
    let device = |user_agent: &str| reader().agent(user_agent).device.clone();
    let iphone = device(
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, \
         like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
    );
    assert_eq!(iphone.brand.as_deref(), Some("Apple"));
    assert_eq!(iphone.model.as_deref(), Some("iPhone"));
    let galaxy = device(
        "Mozilla/5.0 (Linux; Android 14; SM-S928B) AppleWebKit/537.36 (KHTML, like Gecko) \
         SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile Safari/537.36",
    );
    assert_eq!(galaxy.brand.as_deref(), Some("Samsung"));
    assert_eq!(galaxy.model.as_deref(), Some("SM-S928B"));
    assert_eq!(device(""), Device::default());
}

#[test]
fn what_is_remembered_is_bounded_and_the_latest() {
    let reader = AgentReader::new(2).expect("good rules");
    let first = reader.agent("curl/1.0");
    assert!(Arc::ptr_eq(&first, &reader.agent("curl/1.0")));
    reader.agent("curl/2.0");
    reader.agent("curl/1.0");
    reader.agent("curl/3.0");
    assert_eq!(reader.remembered(), 2);
    assert!(Arc::ptr_eq(&first, &reader.agent("curl/1.0")));
    assert_eq!(*reader.agent("curl/1.0"), *first);
}

proptest! {
    #[test]
    fn any_text_is_read(text in "\\PC{0,200}") {
        let agent = reader().agent(&text);
        let texts = [&agent.browser, &agent.os].into_iter().flatten();
        for Versioned { name, version } in texts {
            prop_assert!(!name.is_empty() && name.len() <= MAX_AGENT_TEXT);
            prop_assert!(version.as_ref().is_none_or(|version| version.len() <= MAX_AGENT_TEXT));
        }
    }

    #[test]
    fn texts_with_words_of_user_agents_are_read(
        words in prop::collection::vec(
            prop_oneof![
                Just("Mozilla/5.0 ".to_owned()),
                Just("(Linux; Android 14; ".to_owned()),
                Just("Build/) AppleWebKit/".to_owned()),
                Just("Chrome/".to_owned()),
                Just("iPhone OS ".to_owned()),
                "[0-9._; ()/]{0,40}",
                "\\PC{0,60}",
            ],
            0..12,
        ),
    ) {
        let _ = reader().agent(&words.concat());
    }
}

#[test]
fn a_reader_that_is_made_late_reads_the_same() {
    let late = AgentReader::late(10);
    assert!(late.rules.get().is_none());
    for line in golden().iter().take(20) {
        let (read, same) = (
            late.agent(&line.user_agent),
            reader().agent(&line.user_agent),
        );
        assert_eq!(read, same);
    }
}
