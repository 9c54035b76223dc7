//! Holds every format against committed files: `golden/*.txt`.
//!
//! Each file is a table with one case a line. A change here is a change of what stands in
//! somebody's Redis: it needs a new version, not a new golden file.

use shortlink_vocabulary::visit::{VisitEvent, VisitFrames, VisitId, VisitMethod};
use shortlink_vocabulary::{
    Alphabet, BodyLengths, Check, CheckKeys, Code, CodeRules, KeyPrefix, Record, Verdict,
};

fn cases(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
}

fn alphabet(name: &str) -> Alphabet {
    Alphabet::by_name(name.as_bytes()).expect("a known alphabet")
}

#[test]
fn check_characters() {
    let keys = CheckKeys::parse(include_bytes!("../golden/check-keys.txt")).expect("keys");
    let mut seen = 0;
    for case in cases(include_str!("../golden/codes.txt")) {
        let [check, alphabet_name, body, code] = case[..] else {
            panic!("{case:?}")
        };
        let rules = CodeRules {
            alphabet: alphabet(alphabet_name),
            check: match check {
                "none" => Check::None,
                "luhn" => Check::Luhn,
                "keyed" => Check::Keyed(keys.clone()),
                other => panic!("{other}"),
            },
            bodies: BodyLengths::new(1, 12).expect("lengths"),
        };
        let made = rules.complete(body.as_bytes()).expect("a code");
        assert_eq!(made.as_str(), code, "{case:?}");
        assert_eq!(rules.judge(&made), Verdict::Issued, "{case:?}");
        seen += 1;
    }
    assert!(seen >= 12);
}

#[test]
fn redis_keys() {
    for case in cases(include_str!("../golden/keys.txt")) {
        let [prefix, kind, name, key] = case[..] else {
            panic!("{case:?}")
        };
        let keys = KeyPrefix::new(prefix.as_bytes()).expect("a prefix");
        match kind {
            "link" => {
                let code: Code = name.parse().expect("a code");
                assert_eq!(keys.link_key(&code), key);
                let mut pushed = Vec::new();
                keys.push_link_key(&code, &mut pushed);
                assert_eq!(pushed, key.as_bytes());
                assert_eq!(keys.code_of_link_key(key.as_bytes()), Some(code));
            }
            "campaign" => assert_eq!(keys.campaign_key(name.parse().expect("an id")), key),
            "visits" => assert_eq!(keys.visit_stream_key(name.parse().expect("a shard")), key),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn records() {
    for case in cases(include_str!("../golden/records.txt")) {
        let [text, read] = case[..] else {
            panic!("{case:?}")
        };
        let shown = match Record::parse(text.as_bytes()) {
            Ok(record) => {
                assert_eq!(
                    record.to_vec(),
                    text.as_bytes(),
                    "not written as it was read"
                );
                match record {
                    Record::Link(link) => format!(
                        "link {} revision {} expiry {} target {}",
                        link.status.code(),
                        link.revision,
                        link.expiry.map_or(0, |expiry| expiry.get()),
                        String::from_utf8_lossy(link.target)
                    ),
                    Record::Revoked { revision } => format!("revoked revision {revision}"),
                    Record::Unknown => "unknown".to_owned(),
                }
            }
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(shown, read, "{text}");
    }
}

#[test]
fn visits() {
    let event = VisitEvent {
        id: VisitId {
            origin: 0x0123_4567_89ab_cdef,
            sequence: 300,
        },
        time_ms: 1_767_225_600_123,
        status: 302,
        method: VisitMethod::Head,
        code: b"Ab3xK9q2",
        host: b"s.example.com",
        client: b"2001:db8::1",
        user_agent: b"curl/8",
        referrer: b"",
        accept_language: b"zh-CN",
        purpose: b"prefetch",
    };
    let mut batch = Vec::new();
    event.write(&mut batch);
    let hex: String = batch.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("../golden/visit.hex").trim());
    assert_eq!(VisitFrames::new(&batch).collect::<Vec<_>>(), [Ok(event)]);
}
