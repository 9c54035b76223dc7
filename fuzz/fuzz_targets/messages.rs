//! Texts of messages: URLs are found at their places, variables are replaced, and segments are counted as a phone does.

#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use shortlink_core::message::{Encoding, MAX_SEGMENTS, SURELY_WITHIN, Segments, fill, replace, urls};

/// Measures a text character by character.
fn measured(text: &str) -> Segments {
    let alone = |character: char| Segments::of(character.encode_utf8(&mut [0; 4]));
    let is_gsm = text.chars().all(|it| alone(it).encoding == Encoding::Gsm7);
    let (encoding, whole, part) = match is_gsm {
        true => (Encoding::Gsm7, 160, 153),
        false => (Encoding::Ucs2, 70, 67),
    };
    let (mut length, mut count, mut room) = (0, 0, 0);
    for character in text.chars() {
        let units = if is_gsm { alone(character).length } else { character.len_utf16() };
        length += units;
        if units > room {
            (count, room) = (count + 1, part);
        }
        room -= units;
    }
    if length <= whole {
        count = usize::from(length > 0);
    }
    Segments { encoding, length, count }
}

fn check(text: &str) {
    let size = Segments::of(text);
    assert_eq!(size, measured(text));
    assert!(size.count <= MAX_SEGMENTS || text.len() > SURELY_WITHIN);
    let found = urls(text);
    let mut end = 0;
    for url in &found {
        assert!(url.start >= end && url.end <= text.len());
        end = url.end;
        let (scheme, rest) = text[url.clone()].split_once("://").expect("a scheme");
        assert!(["http", "https"].contains(&&*scheme.to_ascii_lowercase()) && !rest.is_empty());
        assert!(!rest.contains(|it: char| it.is_ascii_whitespace() || it.is_ascii_control()));
        // A URL without the text around it is the same one.
        assert_eq!(urls(&text[url.clone()]), [0..url.len()]);
    }
    let same = found.iter().map(|url| Cow::Borrowed(&text[url.clone()]));
    assert_eq!(replace(text, &found, same), text);
    // Short URLs are found where they were put.
    let short = replace(text, &found, found.iter().map(|_| Cow::Borrowed("https://s.example/Ab3xK9q2")));
    assert_eq!(urls(&short).len(), found.len());
}

fuzz_target!(|bytes: &[u8]| {
    // Some characters stand for texts that take long to guess.
    let text = String::from_utf8_lossy(bytes);
    let text = text.replace('\u{1}', "https://").replace('\u{2}', "{a}").replace('\u{3}', "€你😀");
    // The first line is a text, the second one has values of its variables a, b and c.
    let (text, values) = text.split_once('\n').unwrap_or((&text, ""));
    check(text);
    let values: Vec<&str> = values.split('\t').collect();
    let names = ["a", "b", "c"];
    let value = |name: &str| {
        let place = names.iter().position(|it| *it == name)?;
        values.get(place).copied()
    };
    match fill(text, value) {
        Ok(filled) => {
            check(&filled);
            assert!(filled == text || text.contains('{'));
        }
        Err(faults) => assert!(!faults.is_empty() && text.contains('{')),
    }
});
