//! Holds every format against committed files: `golden/*.txt`.
//!
//! Each file is a table with one case a line. A change here changes the format of data in the
//! Redis of users: it needs a new version, not a new golden file.

use shortlink_vocabulary::visit::evidence::{Protocol, Request, VisitEvidence};
use shortlink_vocabulary::visit::{VisitEvent, VisitFrames, VisitId, VisitMethod};
use shortlink_vocabulary::{
    Alphabet, BodyLengths, Check, CheckKeys, ClickId, Code, CodeRules, Generation, KeyPrefix,
    Parameters, Preview, Record, Template, Validity, Verdict, encode_value,
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
            ignores_case: false,
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
            "campaign" => {
                let id = name.parse().expect("an id");
                assert_eq!(keys.campaign_key(id), key);
                assert_eq!(keys.campaign_of_key(key.as_bytes()), Some(id));
            }
            "visits" => assert_eq!(keys.visit_stream_key(name.parse().expect("a shard")), key),
            "generation" => {
                let tag = (!name.is_empty()).then(|| name.parse().expect("a tag"));
                assert_eq!(keys.generation_key(tag), key);
            }
            other => panic!("{other}"),
        }
    }
}

fn shown(validity: Validity) -> String {
    let since = validity.since().map_or(0, |since| since.get());
    let until = validity.until().map_or(0, |until| until.get());
    format!("since {since} until {until}")
}

/// The template of a campaign, the values of a link, and the resulting target.
#[test]
fn templates() {
    let mut seen = 0;
    for case in cases(include_str!("../golden/templates.txt")) {
        let [template, code, parameters, target] = case[..] else {
            panic!("{case:?}")
        };
        let parameters = Parameters::parse(parameters.as_bytes()).expect("parameters");
        let code: Code = code.parse().expect("a code");
        let made = match Template::parse(template.as_bytes()) {
            Ok(template) => {
                let mut out = Vec::new();
                match template.expand(&code, parameters, &mut out) {
                    Ok(()) => String::from_utf8(out).expect("ASCII"),
                    Err(error) => format!("error: {error}"),
                }
            }
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(made, target, "{template}");
        seen += 1;
    }
    assert!(seen >= 8);
}

/// The form in which a value is given, and its form in a record.
#[test]
fn values() {
    for case in cases(include_str!("../golden/values.txt")) {
        let [value, encoded] = case[..] else {
            panic!("{case:?}")
        };
        let mut out = Vec::new();
        encode_value(value, &mut out).expect("a value");
        assert_eq!(out, encoded.as_bytes(), "{value}");
        assert!(Parameters::parse(&out).is_some());
    }
}

#[test]
fn previews() {
    for case in cases(include_str!("../golden/previews.txt")) {
        let [text, read] = case[..] else {
            panic!("{case:?}")
        };
        let shown = match Preview::parse(text.as_bytes()) {
            Some(it) => format!("{} | {} | {}", it.title, it.description, it.image),
            None => "none".to_owned(),
        };
        assert_eq!(shown, read, "{text}");
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
                // One that could be compact and is not is written as one that is.
                if !text.starts_with("1 C") || !text.contains(" 1 0 ") {
                    assert_eq!(
                        record.to_vec(),
                        text.as_bytes(),
                        "not written as it was read"
                    );
                }
                assert_eq!(Record::parse(&record.to_vec()), Ok(record));
                match record {
                    Record::Link(link) => format!(
                        "link{} {}{}{} revision {} {} target {}",
                        if link.is_plan { " with plan" } else { "" },
                        link.status.code(),
                        if link.has_click_id {
                            " with click id"
                        } else {
                            ""
                        },
                        if link.forwards_query {
                            " with query"
                        } else {
                            ""
                        },
                        link.revision,
                        shown(link.validity),
                        String::from_utf8_lossy(link.target)
                    ),
                    Record::CampaignLink(link) => format!(
                        "link of campaign {} revision {} {} parameters {}",
                        link.campaign.get(),
                        link.revision,
                        shown(link.validity),
                        String::from_utf8_lossy(link.parameters.as_bytes())
                    ),
                    Record::Revoked { revision } => format!("revoked revision {revision}"),
                    Record::Unknown { generation } => format!("unknown generation {generation}"),
                }
            }
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(shown, read, "{text}");
    }
}

#[test]
fn generations() {
    for case in cases(include_str!("../golden/generations.txt")) {
        let [text, read] = case[..] else {
            panic!("{case:?}")
        };
        let shown = match Generation::parse(text.as_bytes()) {
            Some(value) => {
                assert_eq!(value.to_vec(), text.as_bytes());
                format!(
                    "generation {} watermark {} beat {}",
                    value.generation, value.watermark, value.beat
                )
            }
            None => "none".to_owned(),
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
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    };
    let hex = |event: &VisitEvent<'_>| {
        let mut batch = Vec::new();
        event.write(&mut batch);
        assert_eq!(VisitFrames::new(&batch).collect::<Vec<_>>(), [Ok(*event)]);
        batch
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let mut golden = include_str!("../golden/visit.hex").lines();
    assert_eq!(Some(&*hex(&event)), golden.next(), "without evidence");
    let evidence = VisitEvidence::of(&Request {
        site: Some(b"none"),
        mode: Some(b"navigate"),
        destination: Some(b"document"),
        user: Some(b"?1"),
        accept: Some(b"text/html,*/*;q=0.8"),
        protocol: Protocol::Http2,
        is_tls: true,
        is_truncated: false,
    });
    let event = VisitEvent { evidence, ..event };
    assert_eq!(Some(&*hex(&event)), golden.next(), "with evidence");
    let click = Some(ClickId(core::array::from_fn(|place| place as u8)));
    let event = VisitEvent { click, ..event };
    assert_eq!(Some(&*hex(&event)), golden.next(), "with a click id");
    let evidence = VisitEvidence::UNKNOWN;
    let event = VisitEvent { evidence, ..event };
    assert_eq!(
        Some(&*hex(&event)),
        golden.next(),
        "without evidence, with a click id"
    );
    let event = VisitEvent {
        click: None,
        variant: b"b",
        ..event
    };
    assert_eq!(Some(&*hex(&event)), golden.next(), "with a variant");
    assert_eq!(golden.next(), None);
}

/// Readers and writers of the same version differ in the fields that they know.
#[test]
fn visits_of_older_and_newer_writers() {
    let mut golden = include_str!("../golden/visit.hex").lines();
    let mut bytes = || {
        let hex = golden.next().expect("a frame");
        let bytes = (0..hex.len()).step_by(2);
        let bytes = bytes.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
        bytes.collect::<Vec<u8>>()
    };
    let (old, mut new) = (bytes(), bytes());
    let read = |frame: &[u8]| {
        let read: Vec<_> = VisitFrames::new(frame)
            .map(|it| it.map_err(|_| ()))
            .collect();
        assert_eq!(read.len(), 1);
        read[0].map(|event| (event.purpose.to_vec(), event.evidence))
    };
    let purpose = b"prefetch".to_vec();
    assert_eq!(read(&old), Ok((purpose.clone(), VisitEvidence::UNKNOWN)));
    let evidence = VisitEvidence::from_number(0x2_cc93);
    assert_eq!(read(&new), Ok((purpose.clone(), evidence)));
    // All that the reader of the first frames reads: the bytes up to the last text.
    assert_eq!(new[1..old.len()], old[1..]);
    // A later writer appends more.
    new[0] += 2;
    new.extend([0xff, 0xff]);
    assert_eq!(read(&new), Ok((purpose.clone(), evidence)));
    // A number that cannot be read is unknown, and the visit counts.
    let mut odd = old.clone();
    odd[0] += 1;
    odd.push(0x80);
    assert_eq!(read(&odd), Ok((purpose, VisitEvidence::UNKNOWN)));
}
