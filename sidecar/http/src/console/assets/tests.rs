use std::collections::BTreeSet;

use serde_json::{Map, Value};
use shortlink_core::audit::Action;

use super::*;

fn file(path: &str) -> &'static File {
    ASSETS.file(path).expect("a file of the console")
}

#[test]
fn all_of_it_is_small_and_of_this_server() {
    let all: usize = ASSETS.files.iter().map(|file| file.gzip.len()).sum();
    assert!(all < 150 * 1024, "{all} bytes");
    for (path, bytes) in all_files(&FILES) {
        // Every file of the folder is embedded, so no other kind may lie there.
        assert_ne!(media_type(path), "application/octet-stream", "{path}");
        let text = std::str::from_utf8(bytes).expect("text");
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        // The only texts with "https:" are the placeholder of a target, and its completion.
        let elsewhere = elsewhere.replace("placeholder: 'https://'", "");
        let elsewhere = elsewhere.replace("`https://${made.value.trim()}`", "");
        let is_text = path == "texts/en.json" || path == "texts/zh.json";
        assert!(is_text || !elsewhere.contains("://"), "{path}");
        assert!(!text.contains("innerHTML"), "{path}");
    }
    assert!(!String::from_utf8_lossy(&file(PAGE).plain).contains(VERSION_PLACE));
}

#[test]
fn both_languages_say_the_same_things() {
    let texts = |path| -> Map<String, Value> {
        serde_json::from_slice(&file(path).plain).expect("an object")
    };
    let (english, chinese) = (texts("texts/en.json"), texts("texts/zh.json"));
    let places = |text: &str| -> BTreeSet<String> {
        let parts = text.split('{').skip(1);
        parts
            .filter_map(|part| part.split_once('}'))
            .map(|(name, _)| name.to_owned())
            .collect()
    };
    let keys = |texts: &Map<String, Value>| texts.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(keys(&english), keys(&chinese));
    for (name, text) in &english {
        // A text with plural forms is an object of them. Chinese has one form.
        let other = chinese[name].as_str().expect("a text");
        let forms: Vec<&Value> = match text {
            Value::Object(forms) => {
                assert!(forms.keys().eq(["one", "other"]), "{name}: {text}");
                forms.values().collect()
            }
            text => vec![text],
        };
        for form in forms {
            let form = form.as_str().expect("a text");
            assert_eq!(places(form), places(other), "{name}");
        }
    }
}

#[test]
fn every_text_that_is_asked_for_is_there() {
    let texts: Map<String, Value> =
        serde_json::from_slice(&file("texts/en.json").plain).expect("an object");
    let mut asked = 0;
    for (path, bytes) in all_files(&FILES) {
        if !path.ends_with(".js") {
            continue;
        }
        let code = std::str::from_utf8(bytes).expect("text");
        for (start, _) in code.match_indices("t('") {
            let before = code[..start].chars().next_back();
            if before.is_some_and(|it| it.is_alphanumeric() || it == '_') {
                continue;
            }
            let name = code[start + 3..].split('\'').next().unwrap_or_default();
            assert!(texts.contains_key(name), "{path}: {name}");
            asked += 1;
        }
    }
    assert!(asked > 50, "only {asked} texts were found");
}

#[test]
fn every_audited_action_has_a_text_and_can_be_filtered_by() {
    let texts: Map<String, Value> =
        serde_json::from_slice(&file("texts/en.json").plain).expect("an object");
    let page = String::from_utf8_lossy(&file("pages/audit.js").plain);
    for action in Action::ALL {
        let name = action.name();
        assert!(texts.contains_key(&format!("action.{name}")), "{name}");
        assert!(page.contains(&format!("'{name}'")), "{name}");
    }
}

#[test]
fn encodings_are_read_as_they_are_weighed() {
    for (text, takes) in [
        ("gzip", true),
        ("br, GZIP;q=0.5", true),
        ("gzip;q=0", false),
        ("gzip; q=0.0", false),
        ("br", false),
        ("", false),
        ("gzipped", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
        assert_eq!(takes_gzip(&headers), takes, "{text:?}");
    }
}
