//! Every reader of a stored or sent format takes any bytes; what it accepts it writes back the
//! same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shortlink_vocabulary::plan::{Section, push_section};
use shortlink_vocabulary::target::{
    is_servable, is_servable_with_click_id, with_click_id, with_click_id_parameter, with_query,
};
use shortlink_vocabulary::visit::VisitFrames;
use shortlink_vocabulary::{
    CheckKeys, ClickId, Code, Generation, KeyPrefix, Parameters, Plan, Preview, Record, Template, Validity,
    encode_parameters,
};

/// Returns the authority of a URL that is served.
fn authority(url: &[u8]) -> &[u8] {
    let begin = url.iter().position(|&byte| byte == b'/').map_or(0, |slash| slash + 2);
    let rest = &url[begin..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    &rest[..end.unwrap_or(rest.len())]
}

/// The first line is a template, the second the values of a link as a person gives them, the
/// third a query.
fn templates(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |&byte| byte == b'\n');
    let (text, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let query = lines.next().unwrap_or_default();
    let mut encoded = Vec::new();
    let given = String::from_utf8_lossy(values);
    let given: Vec<&str> = given.split('\t').collect();
    let parameters = match encode_parameters(&given, &mut encoded) {
        Ok(()) => {
            let parameters = Parameters::parse(&encoded).expect("what was encoded is read");
            assert_eq!(parameters.count(), given.len());
            parameters
        }
        Err(_) => {
            assert!(encoded.is_empty());
            Parameters::parse(values).unwrap_or_default()
        }
    };
    let Ok(template) = Template::parse(text) else { return };
    let mut target = Vec::new();
    let code = Code::parse(b"Ab3xK9q2").expect("a code");
    let done = template.expand(&code, parameters, &mut target);
    if template.least_parameters() > parameters.count() {
        assert!(done.is_err());
    }
    if done.is_ok() {
        assert!(is_servable(&target));
        assert_eq!(authority(&target), authority(text));
        if let Some(pieces) = with_query(&target, query) {
            let with = pieces.concat();
            assert!(is_servable(&with));
            assert_eq!(authority(&with), authority(text));
        }
        let with_place = with_click_id_parameter(&target, b"sl_click");
        if is_servable_with_click_id(&with_place) {
            let (with, at) = with_click_id(&with_place, ClickId([7; 16])).expect("a place");
            assert!(is_servable(&with));
            assert_eq!(ClickId::parse(&with[at..at + 22]), Some(ClickId([7; 16])));
            assert_eq!(authority(&with), authority(text));
        }
    }
}

/// A preview shows its texts in a page that has the same tags whatever they are, and a plan can have it.
fn previews(bytes: &[u8]) {
    let Some(preview) = Preview::parse(bytes) else { return };
    let mut written = Vec::new();
    preview.write(&mut written);
    assert_eq!(Preview::parse(&written), Some(preview));
    let plain = |text: &'static str, part: &str| if part.is_empty() { "" } else { text };
    let other = Preview {
        title: "a",
        description: plain("a", preview.description),
        image: plain("https://e.com/", preview.image),
    };
    let tags = |page: &str| page.matches(['<', '>', '"', '\'']).count();
    let page = preview.page(preview.title, preview.image);
    assert_eq!(tags(&page), tags(&other.page("a", "a")));
    let mut plan = Vec::new();
    push_section(&mut plan, b'T', b"https://e.com/");
    push_section(&mut plan, b'o', &written);
    let plan = Plan::parse(&plan, is_servable, is_servable).expect("a plan");
    assert_eq!(plan.preview(), Some(preview));
}

/// The sections of a plan that is accepted make the same plan, without those that this version does not know.
fn plans(bytes: &[u8]) {
    let Some(plan) = Plan::parse(bytes, is_servable, is_servable) else { return };
    let mut out = Vec::new();
    let keep = |_: Section<'_>, text: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(text);
        Ok::<_, ()>(true)
    };
    assert_eq!(plan.map(&mut out, keep), Ok(()));
    let again = Plan::parse(&out, is_servable, is_servable).expect("a plan");
    assert_eq!(again.target(), plan.target());
    assert_eq!(again.preview(), plan.preview());
    assert!(again.rules().eq(plan.rules()));
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::parse(bytes) {
        let written = record.to_vec();
        assert_eq!(Record::parse(&written), Ok(record));
        match record {
            Record::Link(link) if link.has_click_id && is_servable_with_click_id(link.target) => {
                let (with, _) = with_click_id(link.target, ClickId([0xff; 16])).expect("a place");
                assert!(is_servable(&with));
                assert_eq!(authority(&with), authority(link.target));
            }
            Record::Link(link) if is_servable(link.target) => {
                assert!(link.target.iter().all(u8::is_ascii_graphic));
            }
            // It may have been longer than it had to be.
            Record::CampaignLink(link)
                if link.revision == 1 && link.validity == Validity::ALWAYS =>
            {
                assert_eq!(written[0], b'c');
                assert!(written.len() <= bytes.len());
            }
            _ => assert_eq!(written, bytes),
        }
    }
    if let Some(generation) = Generation::parse(bytes) {
        assert_eq!(generation.to_vec(), bytes);
    }
    if let Some(id) = ClickId::parse(bytes) {
        assert_eq!(id.to_text(), bytes);
    }
    templates(bytes);
    previews(bytes);
    plans(bytes);
    for visit in VisitFrames::new(bytes).flatten() {
        let mut batch = Vec::new();
        visit.write(&mut batch);
        // Texts may have been cut, so a second round must change nothing more.
        let cut = VisitFrames::new(&batch).next().expect("a frame").expect("a visit");
        let mut again = Vec::new();
        cut.write(&mut again);
        assert_eq!(again, batch);
    }
    if let Ok(code) = Code::parse(bytes) {
        assert_eq!(code.as_bytes(), bytes);
        let keys = KeyPrefix::default();
        assert_eq!(keys.code_of_link_key(keys.link_key(&code).as_bytes()), Some(code));
    }
    let keys = KeyPrefix::default();
    if let Some(id) = keys.campaign_of_key(bytes) {
        assert_eq!(keys.campaign_key(id).as_bytes(), bytes);
    }
    let _ = CheckKeys::parse(bytes);
});
