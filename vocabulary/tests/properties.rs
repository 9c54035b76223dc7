//! Properties that hold for every value, tested on many.

use std::num::NonZeroU64;

use proptest::collection::vec;
use proptest::prelude::*;
use shortlink_vocabulary::judge::is_over;
use shortlink_vocabulary::parameters::{MAX_PARAMETERS, MAX_PARAMETERS_LENGTH};
use shortlink_vocabulary::plan::{MAX_VARIANT_LENGTH, Visitor, push_section};
use shortlink_vocabulary::record::{MAX_RECORD_LENGTH, MAX_REVISION};
use shortlink_vocabulary::target::{MAX_TARGET_LENGTH, is_servable, with_query};
use shortlink_vocabulary::validity::MAX_MOMENT;
use shortlink_vocabulary::visit::evidence::VisitEvidence;
use shortlink_vocabulary::visit::{
    MAX_FRAME_LENGTH, TEXT_LIMITS, VisitError, VisitEvent, VisitFrames, VisitId, VisitMethod,
};
use shortlink_vocabulary::{
    Alphabet, Answer, BodyLengths, CampaignId, CampaignLinkRecord, Check, CheckKey, CheckKeys,
    Code, CodeRules, Judgement, LinkRecord, Parameters, Phase, Plan, Record, RedirectStatus,
    Ruling, State, Template, Validity, Verdict, encode_parameters,
};

fn alphabets() -> impl Strategy<Value = Alphabet> {
    prop_oneof![Just(Alphabet::Base62), Just(Alphabet::Unambiguous)]
}

fn keys() -> impl Strategy<Value = CheckKeys> {
    vec(any::<[u8; 16]>(), 1..=CheckKeys::MOST).prop_map(|keys| {
        CheckKeys::new(&keys.into_iter().map(CheckKey::new).collect::<Vec<_>>()).expect("keys")
    })
}

fn checks() -> impl Strategy<Value = Check> {
    prop_oneof![
        Just(Check::None),
        Just(Check::Luhn),
        keys().prop_map(Check::Keyed)
    ]
}

fn rules(alphabet: Alphabet, check: Check) -> CodeRules {
    CodeRules {
        alphabet,
        check,
        bodies: BodyLengths::new(1, 12).expect("lengths"),
        ignores_case: false,
    }
}

fn body(alphabet: Alphabet, digits: &[u8]) -> Vec<u8> {
    digits
        .iter()
        .map(|&digit| alphabet.character(digit))
        .collect()
}

fn validities() -> impl Strategy<Value = Validity> {
    (0..=MAX_MOMENT, 0..=MAX_MOMENT).prop_filter_map("no span", |(since, until)| {
        Validity::new(NonZeroU64::new(since), NonZeroU64::new(until))
    })
}

/// Bytes that are codes at times.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..20),
        "[-_0-9A-Za-z]{0,70}".prop_map(String::into_bytes)
    ]
}

/// A template's text with the places that it has.
fn templates() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -~]{0,8}".prop_map(|text| text.replace(['{', '}', ' '], "")),
        (0..MAX_PARAMETERS).prop_map(|place| format!("{{{place}}}")),
        Just("{code}".to_owned()),
    ];
    (prop_oneof![Just("http"), Just("https")], vec(piece, 0..8))
        .prop_map(|(scheme, pieces)| format!("{scheme}://e.com/{}", pieces.concat()))
}

/// A visitor of whom nothing is known.
struct Stranger;

impl Visitor for Stranger {
    fn user_agent(&self) -> &[u8] {
        b""
    }
    fn accept_language(&self) -> &[u8] {
        b""
    }
    fn country(&self) -> &[u8] {
        b""
    }
    fn region(&self) -> &[u8] {
        b""
    }
    fn query(&self) -> &[u8] {
        b""
    }
    fn address(&self) -> &[u8] {
        b""
    }
}

proptest! {
    #[test]
    fn every_completed_code_is_judged_issued(
        alphabet in alphabets(), check in checks(), digits in vec(any::<u8>(), 1..=12)
    ) {
        let rules = rules(alphabet, check);
        let code = rules.complete(&body(alphabet, &digits)).unwrap();
        prop_assert_eq!(rules.judge(&code), Verdict::Issued);
        prop_assert_eq!(code.as_bytes().len(), digits.len() + rules.check.length());
    }

    /// Luhn's promise, for the even and the odd alphabet alike.
    #[test]
    fn luhn_notices_every_single_wrong_character(
        alphabet in alphabets(), digits in vec(any::<u8>(), 1..=12),
        place in any::<prop::sample::Index>(), shift in 1u8..57
    ) {
        let rules = rules(alphabet, Check::Luhn);
        let code = rules.complete(&body(alphabet, &digits)).unwrap();
        let mut wrong = code.as_bytes().to_vec();
        let place = place.index(wrong.len());
        let digit = alphabet.digit(wrong[place]).unwrap();
        wrong[place] = alphabet.character((digit + shift) % alphabet.size());
        prop_assert_eq!(rules.judge(&Code::parse(&wrong).unwrap()), Verdict::WrongCheck);
    }

    #[test]
    fn codes_made_with_any_key_in_force_are_accepted_and_the_first_makes_new_ones(
        alphabet in alphabets(), keys in keys(), digits in vec(any::<u8>(), 1..=12)
    ) {
        let body = body(alphabet, &digits);
        let all = rules(alphabet, Check::Keyed(keys.clone()));
        for key in keys.all() {
            let alone = rules(alphabet, Check::Keyed(CheckKeys::new(&[*key]).unwrap()));
            prop_assert_eq!(all.judge(&alone.complete(&body).unwrap()), Verdict::Issued);
        }
        let first = rules(alphabet, Check::Keyed(CheckKeys::new(&[*keys.current()]).unwrap()));
        prop_assert_eq!(all.complete(&body).unwrap(), first.complete(&body).unwrap());
    }

    #[test]
    fn lengths_that_are_not_issued_are_not_checked(
        digits in vec(any::<u8>(), 1..=16), check in checks()
    ) {
        let rules = CodeRules { check, ..CodeRules::default() };
        let code = Code::parse(&body(Alphabet::Base62, &digits)).unwrap();
        let issued = digits.len() == 7 + rules.check.length();
        prop_assert_eq!(rules.judge(&code) == Verdict::Foreign, !issued);
    }

    #[test]
    fn a_code_is_read_back_as_written_and_nothing_else_is_a_code(text in texts()) {
        let of_code = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let right = (1..=64).contains(&text.len()) && text.iter().all(of_code);
        match Code::parse(&text) {
            Ok(code) => {
                prop_assert!(right);
                prop_assert_eq!(code.as_bytes(), &text[..]);
                prop_assert_eq!(code.as_str().as_bytes(), &text[..]);
            }
            Err(_) => prop_assert!(!right),
        }
    }

    /// No code with a hyphen or underscore is confused with one that is issued, whatever the check.
    #[test]
    fn codes_with_separators_are_never_issued_ones(
        check in checks(), text in "[0-9A-Za-z]{0,40}[-_][-_0-9A-Za-z]{0,23}"
    ) {
        let rules = rules(Alphabet::Base62, check);
        prop_assert_eq!(rules.judge(&text.parse().unwrap()), Verdict::Foreign);
    }

    /// Text that is glued behind a code leads to it, unless the whole is a code; and case counts only if it is to count.
    #[test]
    fn candidates_begin_with_the_text_and_have_each_code_that_text_was_glued_to(
        check in checks(), ignores_case in any::<bool>(), text in "[0-9A-Z]{1,9}(-[A-Za-z_]{1,9}){0,3}"
    ) {
        let rules = CodeRules { ignores_case, ..rules(Alphabet::Base62, check) };
        let code: Code = text.parse().unwrap();
        let candidates: Vec<Code> = rules.candidates(&code).collect();
        prop_assert!(candidates.len() <= 8);
        prop_assert_eq!(candidates[0], code);
        for candidate in &candidates[1..] {
            prop_assert!(rules.judge(candidate) != Verdict::WrongCheck);
            let (it, of) = (candidate.as_str(), code.as_str());
            prop_assert!(of.starts_with(it) || ignores_case && of.to_ascii_lowercase().starts_with(it));
        }
        let first: Code = text.split(['-', '_']).next().unwrap().parse().unwrap();
        if rules.judge(&first) != Verdict::WrongCheck {
            prop_assert!(candidates.contains(&first));
            let folded = first.to_lower_case();
            let is_folded = ignores_case && rules.judge(&first) == Verdict::Foreign
                && rules.judge(&folded) == Verdict::Foreign;
            prop_assert_eq!(candidates.contains(&folded), is_folded || folded == first);
        }
    }

    #[test]
    fn a_link_record_is_read_as_written(
        status in prop::sample::select(vec![301u16, 302, 307, 308]),
        forwards_query in any::<bool>(),
        wants_click_id in any::<bool>(), is_plan in any::<bool>(),
        revision in 0..=MAX_REVISION, validity in validities(),
        target in vec(any::<u8>(), 1..200)
    ) {
        let record = Record::Link(LinkRecord {
            status: RedirectStatus::from_code(status).unwrap(),
            forwards_query,
            has_click_id: wants_click_id && matches!(status, 302 | 307),
            revision,
            validity,
            is_plan,
            target: &target,
        });
        let text = record.to_vec();
        prop_assert!(text.len() <= MAX_RECORD_LENGTH);
        prop_assert_eq!(Record::parse(&text), Ok(record));
    }

    #[test]
    fn a_campaign_s_link_is_read_as_written(
        id in 1..=CampaignId::LARGEST, revision in prop_oneof![Just(1), 0..=MAX_REVISION],
        validity in prop_oneof![Just(Validity::ALWAYS), validities()],
        values in vec("[ -~äß中]{0,9}", 0..=MAX_PARAMETERS)
    ) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let mut parameters = Vec::new();
        prop_assume!(encode_parameters(&values, &mut parameters).is_ok());
        let parameters = Parameters::parse(&parameters).expect("parameters");
        prop_assert_eq!(parameters.count(), values.len());
        let campaign = CampaignId::new(id).expect("an id");
        let record = Record::CampaignLink(CampaignLinkRecord {
            campaign, revision, validity, parameters,
        });
        let text = record.to_vec();
        prop_assert!(text.len() <= MAX_RECORD_LENGTH);
        prop_assert_eq!(Record::parse(&text), Ok(record));
        let is_compact = revision == 1 && validity == Validity::ALWAYS;
        prop_assert_eq!(text[0] == b'c', is_compact);
    }

    /// There is one way to write a record: what can be read is written back to the same bytes,
    /// unless it is a campaign's link that could be compact.
    #[test]
    fn what_is_read_is_written_back_the_same(
        text in "(1 |[01 ]{0,3})(30[1278]q?|410|404|C[0-9A-Za-z]{0,8}|c[0-9A-Za-z]{0,8}|[ -~]{0,4})\
                 ( [0-9]{1,2}| [0-9 ]{0,6})( [0-9]{0,3}-?[0-9]{0,3} )?[ -~]{0,20}"
    ) {
        if let Ok(record) = Record::parse(text.as_bytes()) {
            let written = record.to_vec();
            prop_assert_eq!(Record::parse(&written), Ok(record));
            if !(text.starts_with("1 C") && written[0] == b'c') {
                prop_assert_eq!(written, text.as_bytes());
            }
        }
    }

    #[test]
    fn a_validity_has_three_phases_at_most(validity in validities(), now in 0..=MAX_MOMENT + 2) {
        let since = validity.since().map_or(0, NonZeroU64::get);
        let until = validity.until().map_or(u64::MAX, NonZeroU64::get);
        prop_assert_eq!(validity.at(now), match now {
            _ if now < since => Phase::Early,
            _ if now >= until => Phase::Over,
            _ => Phase::Live,
        });
    }

    /// Whatever a recipient's values are, the target is that of the template, on its host.
    #[test]
    fn a_state_is_the_first_that_applies_and_a_judgement_holds_until_its_second(
        (since, until) in (0..20u64, 0..20u64), (early, later) in (0..24u64, 0..24u64),
        (is_paused, is_revoked) in any::<(bool, bool)>(), is_campaign in any::<bool>(),
    ) {
        let until = if until == 0 { 0 } else { since + until };
        let validity = Validity::new(NonZeroU64::new(since), NonZeroU64::new(until)).unwrap();
        let (is_early, is_over_now) = (early < since, until != 0 && early >= until);
        prop_assert_eq!(State::new(validity.at(early), is_paused, is_revoked), match () {
            () if is_revoked => State::Revoked,
            () if is_over_now => State::Expired,
            () if is_paused => State::Paused,
            () if is_early => State::Scheduled,
            () => State::Live,
        });
        let record = if is_campaign {
            Record::CampaignLink(CampaignLinkRecord {
                campaign: CampaignId::FIRST,
                revision: 1,
                validity,
                parameters: Parameters::default(),
            })
        } else {
            Record::Link(LinkRecord {
                status: RedirectStatus::Found,
                forwards_query: false,
                has_click_id: false,
                revision: 1,
                validity,
                is_plan: false,
                target: b"https://e.com/",
            })
        };
        let judgement = Judgement::of_link(Ok(record), early);
        let phase_of = |ruling: Ruling<'_>| match ruling {
            Ruling::Answer(Answer::Gone) => Phase::Over,
            Ruling::Answer(Answer::NotYet) => Phase::Early,
            Ruling::Answer(_) => Phase::Live,
            Ruling::Campaign { phase, .. } => phase,
        };
        prop_assert_eq!(phase_of(judgement.ruling) == Phase::Over, is_over_now);
        prop_assert_eq!(phase_of(judgement.ruling) == Phase::Early, is_early && !is_over_now);
        let later = early.max(later);
        let then = Judgement::of_link(Ok(record), later).ruling;
        match phase_of(judgement.ruling) {
            _ if !is_over(judgement.until, later) => prop_assert_eq!(then, judgement.ruling),
            Phase::Early => prop_assert_ne!(then, judgement.ruling),
            _ => prop_assert_eq!(phase_of(then), Phase::Over),
        }
    }

    #[test]
    fn what_a_template_becomes_is_what_replacing_its_places_gives(
        template in templates(), values in vec("\\PC{0,12}", 0..=MAX_PARAMETERS)
    ) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let mut parameters = Vec::new();
        prop_assume!(encode_parameters(&values, &mut parameters).is_ok());
        prop_assert!(parameters.len() <= MAX_PARAMETERS_LENGTH);
        let parameters = Parameters::parse(&parameters).expect("parameters");
        let read = Template::parse(template.as_bytes()).expect("a template");
        let code: Code = "Ab3xK9q2".parse().expect("a code");
        let mut out = Vec::new();
        let done = read.expand(&code, parameters, &mut out);
        let mut expected = template.replace("{code}", code.as_str());
        for place in 0..values.len() {
            let value = std::str::from_utf8(parameters.get(place).unwrap()).unwrap();
            expected = expected.replace(&format!("{{{place}}}"), value);
        }
        prop_assert_eq!(done.is_ok(), read.least_parameters() <= values.len());
        if done.is_ok() {
            prop_assert!(is_servable(&out));
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    /// A template from anywhere: it is refused, or makes targets that may be served.
    #[test]
    fn any_template_makes_targets_that_may_be_served(
        text in "https?://[ -~]{0,4}(/|[?]|#)?([ -~]{0,5}|[{][0-9]{0,2}[}]|[{]code[}]|[{]|[}]){0,4}",
        parameters in "[ -~]{0,30}"
    ) {
        let mut out = Vec::new();
        if let (Ok(template), Some(parameters)) =
            (Template::parse(text.as_bytes()), Parameters::parse(parameters.as_bytes()))
            && template.expand(&"abc".parse().unwrap(), parameters, &mut out).is_ok()
        {
            prop_assert!(is_servable(&out));
            let authority = |url: &[u8]| {
                let rest = url.splitn(3, |&b| b == b'/').nth(2).unwrap_or_default().to_vec();
                rest.split(|b| b"/?#".contains(b)).next().unwrap_or_default().to_vec()
            };
            prop_assert_eq!(authority(&out), authority(text.as_bytes()));
        }
    }

    #[test]
    fn a_query_never_makes_a_target_unservable(
        target in "https://e.com[ -~]{0,20}", query in vec(any::<u8>(), 0..20)
    ) {
        if is_servable(target.as_bytes())
            && let Some(pieces) = with_query(target.as_bytes(), &query)
        {
            let with = pieces.concat();
            prop_assert!(is_servable(&with));
            prop_assert!(with.len() <= MAX_TARGET_LENGTH);
            let fragment = |url: &[u8]| url.splitn(2, |&b| b == b'#').nth(1).map(<[u8]>::to_vec);
            prop_assert_eq!(fragment(&with), fragment(target.as_bytes()));
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = Record::parse(&bytes);
        prop_assert!(VisitFrames::new(&bytes).count() <= bytes.len());
        let _ = CheckKeys::parse(&bytes);
    }

    /// A plan is read to its end, and leads every visitor to one of its targets.
    #[test]
    fn a_plan_leads_to_one_of_its_targets(
        rules in vec(("[dlctqsv]=[iaDE0-9.=-]{1,6}", "[a-z]{0,4}"), 0..4), cut in 0..400usize, letter in any::<u8>()
    ) {
        let mut text = Vec::new();
        push_section(&mut text, b'T', b"https://e.com/");
        for (conditions, name) in &rules {
            push_section(&mut text, b'R', format!("{conditions} https://e.com/{name}").as_bytes());
        }
        push_section(&mut text, letter, b"https://e.com/instead");
        text.truncate(cut);
        if let Some(plan) = Plan::parse(&text, is_servable, is_servable) {
            let code = "abc".parse().unwrap();
            let choice = plan.choose(&code, &Stranger, 1000).unwrap();
            prop_assert!(is_servable(choice.target));
            let mut copy = Vec::new();
            let copied = plan.map(&mut copy, |_section, target, out| {
                out.extend_from_slice(target);
                Ok::<_, ()>(true)
            });
            prop_assert_eq!(copied, Ok(()));
            prop_assert!(copy == text || letter.is_ascii_lowercase());
        }
    }

    #[test]
    fn a_servable_target_can_not_end_a_header(target in vec(any::<u8>(), 0..40)) {
        let mut url = b"https://".to_vec();
        url.extend_from_slice(&target);
        if is_servable(&url) {
            prop_assert!(url.iter().all(u8::is_ascii_graphic));
        }
        prop_assert!(!is_servable(&target) || target.starts_with(b"http"));
    }

    #[test]
    fn a_batch_of_visits_is_read_as_written_up_to_the_limits(
        visits in vec((any::<[u64; 4]>(), any::<u16>(), 0..3u8, vec(vec(any::<u8>(), 0..600), 7)), 0..8)
    ) {
        let events: Vec<VisitEvent<'_>> = visits.iter().map(|(numbers, status, method, texts)| {
            VisitEvent {
                id: VisitId { origin: numbers[0], sequence: numbers[1] },
                time_ms: numbers[2],
                status: *status,
                method: [VisitMethod::Get, VisitMethod::Head, VisitMethod::Other][usize::from(*method)],
                code: &texts[0], host: &texts[1], client: &texts[2], user_agent: &texts[3],
                referrer: &texts[4], accept_language: &texts[5], purpose: &texts[6],
                evidence: VisitEvidence::from_number(numbers[3]),
                click: (numbers[1] % 2 == 0).then(|| shortlink_vocabulary::ClickId(u128::from(numbers[1]).to_le_bytes())),
                variant: if numbers[1] % 3 == 0 { &texts[5] } else { b"" },
            }
        }).collect();
        let mut batch = Vec::new();
        for event in &events {
            let before = batch.len();
            event.write(&mut batch);
            prop_assert!(batch.len() - before <= MAX_FRAME_LENGTH + 2);
        }
        let cut = |text: &[u8], limit: usize| text[..text.len().min(limit)].to_vec();
        let read: Vec<_> = VisitFrames::new(&batch).collect();
        prop_assert_eq!(read.len(), events.len());
        for (read, event) in read.into_iter().zip(&events) {
            let read = read.expect("an event");
            prop_assert_eq!((read.id, read.time_ms, read.status, read.method, read.evidence, read.click),
                            (event.id, event.time_ms, event.status, event.method, event.evidence, event.click));
            prop_assert_eq!(read.variant, &cut(event.variant, MAX_VARIANT_LENGTH)[..]);
            for (kept, (given, limit)) in [read.code, read.host, read.client, read.user_agent,
                read.referrer, read.accept_language, read.purpose].into_iter().zip(
                [event.code, event.host, event.client, event.user_agent, event.referrer,
                 event.accept_language, event.purpose].into_iter().zip(TEXT_LIMITS)) {
                prop_assert_eq!(kept, &cut(given, limit)[..]);
            }
        }
    }

    /// A batch cut anywhere yields the whole frames before the cut and one error.
    #[test]
    fn a_cut_batch_yields_what_stands_before_the_cut(cut in any::<prop::sample::Index>()) {
        let event = VisitEvent {
            id: VisitId { origin: 1, sequence: 2 }, time_ms: 3, status: 302,
            method: VisitMethod::Get, code: b"abc", host: b"h", client: b"c", user_agent: b"u",
            referrer: b"r", accept_language: b"a", purpose: b"p",
            evidence: VisitEvidence::UNKNOWN,
            click: None,
            variant: b"b",
        };
        let mut batch = Vec::new();
        event.write(&mut batch);
        let one = batch.len();
        event.write(&mut batch);
        let cut = cut.index(batch.len());
        let read: Vec<_> = VisitFrames::new(&batch[..cut]).collect();
        let whole = cut / one;
        prop_assert!(read[..whole].iter().all(|frame| *frame == Ok(event)));
        if cut % one == 0 {
            prop_assert_eq!(read.len(), whole);
        } else {
            prop_assert_eq!(read.len(), whole + 1);
            prop_assert!(matches!(read[whole], Err(VisitError::Cut(_))));
        }
    }
}
