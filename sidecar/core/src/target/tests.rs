use super::*;

/// Returns the serialised target, or the name of the variant that refuses it.
fn verdict(text: &str, policy: TargetPolicy) -> Result<String, String> {
    let mut own = OwnHosts::default();
    for host in [
        "s.example.com",
        "Kurz.Example.",
        "bücher.example",
        "203.0.113.9",
        "*.wild.example",
    ] {
        own.add(host);
    }
    Target::parse(text, policy, &own)
        .map(|target| target.as_str().to_owned())
        .map_err(|error| {
            let debug = format!("{error:?}");
            let end = debug.find([' ', '{']).unwrap_or(debug.len());
            debug[..end].to_owned()
        })
}

#[test]
fn good_targets_are_kept_as_a_browser_would_write_them() {
    for (given, kept) in [
        ("https://example.com", "https://example.com/"),
        ("http://example.com/a?b=c", "http://example.com/a?b=c"),
        ("HTTPS://EXAMPLE.com/A", "https://example.com/A"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("https://example.com/a#part", "https://example.com/a#part"),
        ("https://example.com/#", "https://example.com/#"),
        ("https://example.com?q", "https://example.com/?q"),
        ("https://example.com/a/../b", "https://example.com/b"),
        ("https://example.com/a/%2e%2e/b", "https://example.com/b"),
        ("https://example.com/ü", "https://example.com/%C3%BC"),
        (
            "https://example.com/?q=ü&x=\"",
            "https://example.com/?q=%C3%BC&x=%22",
        ),
        (
            "https://example.com/%0d%0aSet-Cookie:x",
            "https://example.com/%0d%0aSet-Cookie:x",
        ),
        ("https://例え.jp/", "https://xn--r8jz45g.jp/"),
        ("https://xn--r8jz45g.jp/", "https://xn--r8jz45g.jp/"),
        ("https://example.com./", "https://example.com./"),
        ("https://example.com/@user", "https://example.com/@user"),
        (
            "https://example.com/?to=http://x@y",
            "https://example.com/?to=http://x@y",
        ),
        ("https://example.com/a//b", "https://example.com/a//b"),
        ("https://8.8.8.8/", "https://8.8.8.8/"),
        ("https://0x08080808/", "https://8.8.8.8/"),
        ("https://100.63.0.1/", "https://100.63.0.1/"),
        ("https://172.32.0.1/", "https://172.32.0.1/"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        (
            "https://localhost.example.com/",
            "https://localhost.example.com/",
        ),
        (
            "https://notlocal.example.com:81/",
            "https://notlocal.example.com:81/",
        ),
        (
            "https://internal.example.com/",
            "https://internal.example.com/",
        ),
        ("https://arpa.home/", "https://arpa.home/"),
        ("https://sub.s.example.com/", "https://sub.s.example.com/"),
        (
            "https://example.com/s.example.com",
            "https://example.com/s.example.com",
        ),
    ] {
        assert_eq!(
            verdict(given, TargetPolicy::default()).as_deref(),
            Ok(kept),
            "{given}"
        );
    }
}

#[test]
fn other_targets_are_refused_for_the_right_reason() {
    for (given, reason) in [
        ("", "Empty"),
        // Characters that a parser would drop, trim or replace.
        (" https://example.com/", "Character"),
        ("https://example.com/ ", "Character"),
        ("https://example.com/a b", "Character"),
        ("https://example.com/\t", "Character"),
        ("https://exam\nple.com/", "Character"),
        ("https://example.com/\r\nX: y", "Character"),
        ("https://example.com/\0", "Character"),
        ("https://example.com/\u{7f}", "Character"),
        ("https://example.com/\u{85}", "Character"),
        ("https://example.com/\u{a0}", "Character"),
        ("https://example.com/\u{2028}", "Character"),
        ("https://example.com/\u{3000}", "Character"),
        ("https:\\\\example.com/", "Character"),
        ("https://example.com\\@evil.example/", "Character"),
        // Schemes.
        ("example.com", "Scheme"),
        ("//example.com/", "Scheme"),
        ("/path", "Scheme"),
        ("ftp://example.com/", "Scheme"),
        ("javascript:alert(1)", "Scheme"),
        ("javascript://example.com/%0aalert(1)", "Scheme"),
        ("data:text/html,x", "Scheme"),
        ("file:///etc/passwd", "Scheme"),
        ("intent://example.com/", "Scheme"),
        ("http:example.com", "Scheme"),
        ("http:/example.com", "Scheme"),
        ("mailto:a@example.com", "Scheme"),
        // Hosts.
        ("http://", "Host"),
        ("https:///example.com", "Host"),
        ("https://?q", "Host"),
        ("https://#f", "Host"),
        ("https://:80/", "Malformed"),
        ("https://./", "Host"),
        ("https://a..b/", "Host"),
        ("https://.example.com/", "Host"),
        ("https://example.com../", "Host"),
        ("https://example.com:0/", "Port"),
        ("https://exa<mple.com/", "Malformed"),
        ("https://example.com:99999/", "Malformed"),
        ("https://[::1", "Malformed"),
        ("https://[fe80::1%25eth0]/", "Malformed"),
        ("https://1.2.3.256/", "Malformed"),
        ("https://xn--a/", "Malformed"),
        ("https://a%00b/", "Malformed"),
        // Credentials.
        ("https://user@example.com/", "Userinfo"),
        ("https://user:secret@example.com/", "Userinfo"),
        ("https://@example.com/", "Userinfo"),
        ("https://:@example.com/", "Userinfo"),
        ("https://example.com@evil.example", "Userinfo"),
        // Local names.
        ("http://localhost/", "Private"),
        ("http://LOCALHOST:8080/", "Private"),
        ("http://localhost./", "Private"),
        ("http://a.localhost/", "Private"),
        ("http://intranet/", "Private"),
        ("http://intranet./", "Private"),
        ("http://printer.local/", "Private"),
        ("http://metadata.google.internal/", "Private"),
        ("http://nas.home.arpa/", "Private"),
        ("http://x.onion./", "Private"),
        ("http://%6cocalhost/", "Private"),
        ("http://ｌｏｃａｌｈｏｓｔ/", "Private"),
        // IPv4 in each spelling that browsers know.
        ("http://127.0.0.1/", "Private"),
        ("http://127.1/", "Private"),
        ("http://0x7f.1/", "Private"),
        ("http://0177.0.0.1/", "Private"),
        ("http://2130706433/", "Private"),
        ("http://0x7f000001/", "Private"),
        ("http://127.0.0.1./", "Private"),
        ("http://１２７.0.0.1/", "Private"),
        ("http://0/", "Private"),
        ("http://0.0.0.0/", "Private"),
        ("http://10.0.0.1/", "Private"),
        ("http://100.64.0.1/", "Private"),
        ("http://100.127.255.255/", "Private"),
        ("http://169.254.169.254/latest/meta-data/", "Private"),
        ("http://172.16.0.1/", "Private"),
        ("http://172.31.255.255/", "Private"),
        ("http://192.168.1.1/", "Private"),
        ("http://192.0.0.8/", "Private"),
        ("http://192.0.2.1/", "Private"),
        ("http://192.88.99.1/", "Private"),
        ("http://198.18.0.1/", "Private"),
        ("http://198.19.255.255/", "Private"),
        ("http://198.51.100.7/", "Private"),
        ("http://203.0.113.7/", "Private"),
        ("http://224.0.0.1/", "Private"),
        ("http://240.0.0.1/", "Private"),
        ("http://255.255.255.255/", "Private"),
        // IPv6.
        ("http://[::]/", "Private"),
        ("http://[::1]/", "Private"),
        ("http://[0:0:0:0:0:0:0:1]/", "Private"),
        ("http://[::127.0.0.1]/", "Private"),
        ("http://[::ffff:127.0.0.1]/", "Private"),
        ("http://[::ffff:a00:1]/", "Private"),
        ("http://[64:ff9b::10.0.0.1]/", "Private"),
        ("http://[64:ff9b:1::1]/", "Private"),
        ("http://[100::1]/", "Private"),
        ("http://[2001::1]/", "Private"),
        ("http://[2001:db8::1]/", "Private"),
        ("http://[2002:7f00:1::]/", "Private"),
        ("http://[3fff::1]/", "Private"),
        ("http://[5f00::1]/", "Private"),
        ("http://[fc00::1]/", "Private"),
        ("http://[fd12:3456::1]/", "Private"),
        ("http://[fe80::1]/", "Private"),
        ("http://[fec0::1]/", "Private"),
        ("http://[ff02::1]/", "Private"),
        // Our own domains, however written.
        ("https://s.example.com/abc", "OwnDomain"),
        ("http://S.EXAMPLE.COM:8080/", "OwnDomain"),
        ("https://s.example.com./", "OwnDomain"),
        ("https://kurz.example/", "OwnDomain"),
        ("https://a.wild.example/", "OwnDomain"),
        ("https://A.b.wild.example./", "OwnDomain"),
        ("https://%73.example.com/", "OwnDomain"),
        ("https://s。example。com/", "OwnDomain"),
        ("https://xn--bcher-kva.example/", "OwnDomain"),
        ("https://BÜCHER.example/", "OwnDomain"),
        ("https://203.0.113.9/", "OwnDomain"),
        ("https://0xcb007109/", "OwnDomain"),
    ] {
        assert_eq!(
            verdict(given, TargetPolicy::default()),
            Err(reason.to_owned()),
            "{given:?}"
        );
    }
}

#[test]
fn private_targets_can_be_allowed_but_own_ones_never() {
    let policy = TargetPolicy {
        allow_private: true,
        ..TargetPolicy::default()
    };
    for allowed in [
        "http://localhost:3000/",
        "http://127.1/",
        "http://[::1]/",
        "http://10.0.0.1/",
    ] {
        assert!(verdict(allowed, policy).is_ok(), "{allowed}");
    }
    for refused in ["http://203.0.113.9/", "http://s.example.com/"] {
        assert_eq!(
            verdict(refused, policy),
            Err("OwnDomain".to_owned()),
            "{refused}"
        );
    }
}

#[test]
fn length_counts_as_given_and_as_serialised() {
    let policy = TargetPolicy {
        allow_private: false,
        min_bytes: 0,
        max_bytes: 40,
    };
    let stem = "https://example.com/";
    for (given, fits) in [
        (format!("{stem}{}", "a".repeat(20)), true),
        (format!("{stem}{}", "a".repeat(21)), false),
        // Two bytes as given, six as serialised.
        (format!("{stem}{}", "ü".repeat(3)), true),
        (format!("{stem}{}", "ü".repeat(4)), false),
        // Long as given, short as serialised.
        (format!("{stem}{}", "a/../".repeat(9)), false),
    ] {
        assert_eq!(verdict(&given, policy).is_ok(), fits, "{given}");
    }
    let wider_than_a_record = TargetPolicy {
        allow_private: false,
        min_bytes: 0,
        max_bytes: usize::MAX,
    };
    let longest = format!("{stem}{}", "a".repeat(MAX_TARGET_LENGTH - stem.len()));
    assert!(verdict(&longest, wider_than_a_record).is_ok());
    assert_eq!(
        verdict(&format!("{longest}a"), wider_than_a_record),
        Err("TooLong".to_owned())
    );
}

#[test]
fn a_target_has_as_many_bytes_as_the_policy_asks_for() {
    let policy = TargetPolicy {
        min_bytes: 40,
        ..TargetPolicy::default()
    };
    let stem = "https://example.com/";
    for (given, fits) in [
        (format!("{stem}{}", "a".repeat(20)), true),
        (format!("{stem}{}", "a".repeat(19)), false),
        // Two bytes as given, six as serialised.
        (format!("{stem}{}aa", "ü".repeat(3)), true),
        // Long as given, short as serialised.
        (format!("{stem}{}", "a/../".repeat(9)), false),
    ] {
        assert_eq!(verdict(&given, policy).is_ok(), fits, "{given}");
    }
    assert_eq!(verdict(stem, policy), Err("TooShort".to_owned()));
}

#[test]
fn debug_output_keeps_the_target_to_itself() {
    let target = Target::from_stored("https://example.com/secret".to_owned());
    assert_eq!(format!("{target:?}"), "Target(26 bytes)");
}
