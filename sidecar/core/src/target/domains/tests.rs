use super::*;
use crate::api_key::KeyPolicy;
use crate::target::{OwnHosts, TargetPolicy};

fn rules(texts: &[&str]) -> DomainRules {
    let rules = texts.iter().map(|text| text.parse::<DomainRule>());
    rules.collect::<Result<_, _>>().expect("good rules")
}

/// A target as the API would read it. Private ones too: the lists must hold where they are let in.
fn target(text: &str) -> Target {
    let policy = TargetPolicy {
        allow_private: true,
        ..TargetPolicy::default()
    };
    Target::parse(text, policy, &OwnHosts::default())
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn rules_are_read_in_every_spelling_and_written_in_one() {
    for (text, written) in [
        ("example.com", Some("example.com")),
        ("Example.COM", Some("example.com")),
        ("example.com.", Some("example.com")),
        ("=Example.com.", Some("=example.com")),
        ("com", Some("com")),
        ("_dmarc.example.com", Some("_dmarc.example.com")),
        ("bücher.example", Some("xn--bcher-kva.example")),
        ("BÜCHER.example", Some("xn--bcher-kva.example")),
        ("XN--BCHER-KVA.example", Some("xn--bcher-kva.example")),
        ("例え。jp", Some("xn--r8jz45g.jp")),
        ("faß.example", Some("xn--fa-hia.example")),
        ("ｅｘａｍｐｌｅ.com", Some("example.com")),
        ("203.0.113.9", Some("203.0.113.9")),
        ("=203.0.113.9", Some("203.0.113.9")),
        ("0xcb.0.0x71.9", Some("203.0.113.9")),
        ("[2001:DB8::1]", Some("2001:db8::1")),
        ("2001:db8:0::1", Some("2001:db8::1")),
        ("::ffff:203.0.113.9", Some("203.0.113.9")),
        ("", None),
        ("=", None),
        (".", None),
        ("==example.com", None),
        (".example.com", None),
        ("*.example.com", None),
        ("example..com", None),
        ("example.com..", None),
        (" example.com", None),
        ("https://example.com", None),
        ("example.com/", None),
        ("example.com:443", None),
        ("user@example.com", None),
        ("ex%61mple.com", None),
        ("exa mple.com", None),
        ("example.com,example.org", None),
        ("xn--\u{0}", None),
        ("xn--zzzzzzzzz-9.example", None),
        ("[::1", None),
        ("1.2.3.256", None),
    ] {
        let rule = text.parse::<DomainRule>().ok();
        let rule = rule.map(|rule| rule.to_string());
        assert_eq!(rule.as_deref(), written, "{text:?}");
        if let Some(written) = rule {
            let again = written.parse::<DomainRule>().map(|rule| rule.to_string());
            assert_eq!(again, Ok(written), "{text:?}");
        }
    }
}

#[test]
fn a_rule_is_about_a_host_in_every_spelling_and_about_no_other() {
    for (rule, url, is_about) in [
        // Borders of labels.
        ("example.com", "https://example.com/", true),
        ("example.com", "https://www.example.com/", true),
        ("example.com", "https://a.b.c.example.com/", true),
        ("example.com", "https://notexample.com/", false),
        ("example.com", "https://example.com.evil.example/", false),
        ("example.com", "https://example.comx/", false),
        ("example.com", "https://example.co/", false),
        ("example.com", "https://com/", false),
        ("com", "https://example.com/", true),
        ("com", "https://example.community/", false),
        ("=example.com", "https://example.com/", true),
        ("=example.com", "https://www.example.com/", false),
        // Only the host counts.
        ("example.com", "https://evil.example/example.com", false),
        ("example.com", "https://evil.example/?example.com", false),
        ("example.com", "https://evil.example/#.example.com", false),
        ("example.com", "https://evil.example/@example.com", false),
        (
            "example.com",
            "https://evil.example:443/.example.com",
            false,
        ),
        ("example.com", "http://example.com:8080/", true),
        // Case, trailing dots, encodings, other dots, invisible characters.
        ("example.com", "HTTPS://EXAMPLE.COM/", true),
        ("example.com", "https://example.com./", true),
        ("=example.com", "https://example.com./", true),
        ("example.com", "https://www.example.com./", true),
        ("example.com", "https://ex%61mple.com/", true),
        ("example.com", "https://example%2ecom/", true),
        ("example.com", "https://example。com/", true),
        ("example.com", "https://ｅｘａｍｐｌｅ．ｃｏｍ/", true),
        ("example.com", "https://exa\u{ad}mple.com/", true),
        ("example.com", "https://exa\u{200b}mple.com/", true),
        // Letters that only look like others.
        ("example.com", "https://ex\u{430}mple.com/", false),
        ("ex\u{430}mple.com", "https://example.com/", false),
        // Internationalised names.
        ("bücher.example", "https://xn--bcher-kva.example/", true),
        ("xn--bcher-kva.example", "https://BÜCHER.example/", true),
        ("bücher.example", "https://XN--BCHER-KVA.example/", true),
        ("bücher.example", "https://bu\u{308}cher.example/", true),
        ("bücher.example", "https://www.bücher.example/", true),
        ("bücher.example", "https://bucher.example/", false),
        ("faß.example", "https://fass.example/", false),
        // Addresses: in every spelling, and exactly.
        ("203.0.113.9", "https://203.0.113.9/", true),
        ("203.0.113.9", "https://0xcb007109/", true),
        ("203.0.113.9", "https://3405803785/", true),
        ("203.0.113.9", "https://0313.0.0161.011/", true),
        ("203.0.113.9", "https://203.0.113.9./", true),
        ("203.0.113.9", "https://[::ffff:203.0.113.9]/", true),
        ("203.0.113.9", "https://203.0.113.90/", false),
        ("113.9", "https://203.0.113.9/", false),
        ("9", "https://203.0.113.9/", false),
        ("203.0.113.9", "https://203.0.113.9.example/", false),
        ("2001:db8::1", "https://[2001:db8:0:0::1]/", true),
        ("2001:db8::1", "https://[2001:db8::11]/", false),
    ] {
        let url_target = target(url);
        let denies = TargetDomains {
            denied: rules(&[rule]),
            ..TargetDomains::default()
        };
        let allows = TargetDomains {
            allowed: rules(&[rule]),
            ..TargetDomains::default()
        };
        let key = KeyPolicy {
            allowed_domains: Some(rules(&[rule])),
            ..KeyPolicy::default()
        };
        let free = KeyPolicy::default();
        let verdicts = (
            denies.check(&url_target, free.allowed_domains.as_ref()),
            allows.check(&url_target, free.allowed_domains.as_ref()),
            TargetDomains::default().check(&url_target, key.allowed_domains.as_ref()),
        );
        let expected = if is_about {
            (Err(DomainError::Denied), Ok(()), Ok(()))
        } else {
            (
                Ok(()),
                Err(DomainError::NotAllowed),
                Err(DomainError::NotAllowedToKey),
            )
        };
        assert_eq!(verdicts, expected, "{rule} {url}");
    }
}

#[test]
fn deny_outranks_allow_and_a_key_only_narrows() {
    let service = TargetDomains {
        allowed: rules(&["example.com", "example.org"]),
        denied: rules(&["bad.example.com", "=example.org"]),
    };
    let key = KeyPolicy {
        allowed_domains: Some(rules(&[
            "bad.example.com",
            "shop.example.com",
            "example.net",
        ])),
        ..KeyPolicy::default()
    };
    let free = KeyPolicy::default();
    for (url, without, with) in [
        (
            "https://example.com/",
            Ok(()),
            Err(DomainError::NotAllowedToKey),
        ),
        ("https://shop.example.com/", Ok(()), Ok(())),
        (
            "https://bad.example.com/",
            Err(DomainError::Denied),
            Err(DomainError::Denied),
        ),
        (
            "https://very.bad.example.com/",
            Err(DomainError::Denied),
            Err(DomainError::Denied),
        ),
        (
            "https://example.org/",
            Err(DomainError::Denied),
            Err(DomainError::Denied),
        ),
        (
            "https://www.example.org/",
            Ok(()),
            Err(DomainError::NotAllowedToKey),
        ),
        (
            "https://example.net/",
            Err(DomainError::NotAllowed),
            Err(DomainError::NotAllowed),
        ),
    ] {
        let target = target(url);
        assert_eq!(
            service.check(&target, free.allowed_domains.as_ref()),
            without,
            "{url}"
        );
        assert_eq!(
            service.check(&target, key.allowed_domains.as_ref()),
            with,
            "{url}"
        );
    }
}

#[test]
fn without_rules_everything_is_allowed_and_what_has_no_host_never_is_with_them() {
    let free = KeyPolicy::default();
    let odd = Target::from_stored("mailto:somebody@example.com".to_owned());
    assert_eq!(
        TargetDomains::default().check(&odd, free.allowed_domains.as_ref()),
        Ok(())
    );
    for service in [
        TargetDomains {
            allowed: rules(&["example.com"]),
            ..TargetDomains::default()
        },
        TargetDomains {
            denied: rules(&["example.com"]),
            ..TargetDomains::default()
        },
    ] {
        let verdict = service.check(&odd, free.allowed_domains.as_ref());
        assert_eq!(verdict, Err(DomainError::Unreadable));
    }
}

#[test]
fn rules_are_listed_as_they_are_written() {
    let texts = ["b.example", "a.example", "=c.example", "2001:db8::1"];
    let listed: Vec<String> = rules(&texts).iter().map(|rule| rule.to_string()).collect();
    assert_eq!(
        listed,
        ["a.example", "b.example", "=c.example", "2001:db8::1"]
    );
}
