use proptest::prelude::*;

use super::*;

fn found(text: &str) -> Vec<&str> {
    urls(text).into_iter().map(|range| &text[range]).collect()
}

fn size(text: &str) -> (&'static str, usize, usize) {
    let size = Segments::of(text);
    (size.encoding.name(), size.length, size.count)
}

#[test]
fn punctuation_quotes_and_brackets_stay_outside_of_urls() {
    for (text, expected) in [
        ("See https://example.com/a.", "https://example.com/a"),
        ("(see https://example.com/a)", "https://example.com/a"),
        ("https://example.com/a_(b)", "https://example.com/a_(b)"),
        ("(https://example.com/a_(b)).", "https://example.com/a_(b)"),
        (
            "\"https://example.com/?a=1&b=2\"!",
            "https://example.com/?a=1&b=2",
        ),
        ("“https://example.com/a”", "https://example.com/a"),
        ("'https://example.com/a'?!", "https://example.com/a"),
        ("<https://example.com/a>", "https://example.com/a"),
        ("[https://example.com/a]: now", "https://example.com/a"),
        ("请看https://example.com/a，谢谢", "https://example.com/a"),
        ("HTTP://EXAMPLE.COM/a#b", "HTTP://EXAMPLE.COM/a#b"),
        (
            "https://example.com/{member}.",
            "https://example.com/{member}",
        ),
    ] {
        assert_eq!(found(text), [expected], "{text}");
    }
    for text in [
        "https://",
        "https://.",
        "xhttps://a.example",
        "ftp://a.example",
        "a.example",
    ] {
        assert!(found(text).is_empty(), "{text}");
    }
    assert_eq!(found("http://a.example,http://b.example").len(), 1);
    assert_eq!(
        found("http://a.example, http://b.example"),
        ["http://a.example", "http://b.example"],
    );
}

#[test]
fn variables_are_filled_and_encoded_within_urls() {
    let value = |name: &str| match name {
        "name" => Some("Ann & Bob"),
        "url" => Some("https://example.com/x"),
        "dots" => Some(".."),
        _ => None,
    };
    let text = "Hi {name}: https://example.com/{name} {url} {} {no name} {";
    assert_eq!(
        fill(text, value).as_deref(),
        Ok(
            "Hi Ann & Bob: https://example.com/Ann%20%26%20Bob https://example.com/x {} {no name} {"
        ),
    );
    let faults = fill("{a} {b} {a} https://example.com/{dots}", value).expect_err("faults");
    let names: Vec<&str> = faults.iter().map(VariableError::name).collect();
    assert_eq!(names, ["a", "b", "dots"]);
}

#[test]
fn lengths_at_the_bounds_of_segments() {
    for (text, expected) in [
        (String::new(), ("GSM-7", 0, 0)),
        ("a".repeat(160), ("GSM-7", 160, 1)),
        ("a".repeat(161), ("GSM-7", 161, 2)),
        ("a".repeat(306), ("GSM-7", 306, 2)),
        ("a".repeat(307), ("GSM-7", 307, 3)),
        ("€".repeat(80), ("GSM-7", 160, 1)),
        // 76 escapes fill 152 of 153 septets.
        ("€".repeat(152), ("GSM-7", 304, 2)),
        ("€".repeat(153), ("GSM-7", 306, 3)),
        ("你".repeat(70), ("UCS-2", 70, 1)),
        ("你".repeat(71), ("UCS-2", 71, 2)),
        ("你".repeat(134), ("UCS-2", 134, 2)),
        ("你".repeat(135), ("UCS-2", 135, 3)),
        ("😀".repeat(35), ("UCS-2", 70, 1)),
        // 33 pairs fill 66 of 67 units.
        ("😀".repeat(66), ("UCS-2", 132, 2)),
        ("😀".repeat(67), ("UCS-2", 134, 3)),
        ("[~]".to_owned(), ("GSM-7", 6, 1)),
        ("`".to_owned(), ("UCS-2", 1, 1)),
    ] {
        assert_eq!(size(&text), expected, "{text}");
    }
}

#[test]
fn each_character_has_the_septets_of_its_table() {
    use segments::{BASIC, EXTENDED};

    for character in (0..=0x1_ffff).filter_map(char::from_u32) {
        let expected = if BASIC.contains(character) {
            ("GSM-7", 1, 1)
        } else if EXTENDED.contains(character) {
            ("GSM-7", 2, 1)
        } else {
            ("UCS-2", character.len_utf16(), 1)
        };
        assert_eq!(size(&character.to_string()), expected, "{character:?}");
    }
}

proptest! {
    #[test]
    fn urls_are_in_order_and_apart(text in "([a-z{}().,:/?! 你，]|https?://){0,30}") {
        let mut end = 0;
        for url in urls(&text) {
            prop_assert!(url.start >= end && url.end > url.start);
            let url_text = &text[url.clone()];
            prop_assert!(url_text.starts_with("http"));
            prop_assert!(!url_text.ends_with(PUNCTUATION));
            prop_assert!(!url_text.contains(' '));
            end = url.end;
        }
    }

    #[test]
    fn a_url_between_words_is_found_whole(
        path in "[a-z0-9/_-]{0,20}[a-z0-9/]",
        after in "[.,;:!?)\\]'\"]{0,4}( [a-z ]{0,9})?",
    ) {
        let url = format!("https://example.com/{path}");
        let text = format!("go {url}{after}");
        prop_assert_eq!(found(&text), [url.as_str()]);
        let ranges = urls(&text);
        let short = replace(&text, &ranges, [Cow::Borrowed("s")]);
        prop_assert_eq!(short, format!("go s{after}"));
    }

    #[test]
    fn segments_hold_the_text(text in "[a-z€\\[你😀]{0,400}|[a-z€]{0,400}") {
        let Segments { encoding, length, count } = Segments::of(&text);
        let (whole, part) = if encoding == Encoding::Gsm7 { (160, 153) } else { (70, 67) };
        if length <= whole {
            prop_assert_eq!(count, usize::from(length > 0));
        } else {
            // A segment that ends before a pair lacks one unit at most.
            prop_assert!(count >= length.div_ceil(part) && count <= length.div_ceil(part - 1));
        }
    }

    #[test]
    fn texts_of_one_septet_each_are_measured_as_others(text in "[ -Z_a-zé]{0,400}") {
        let (alone, with) = (Segments::of(&text), Segments::of(&format!("{text}é")));
        let length = text.chars().count();
        for (size, length) in [(alone, length), (with, length + 1)] {
            let count = if length > 160 { length.div_ceil(153) } else { length.min(1) };
            let expected = Segments { encoding: Encoding::Gsm7, length, count };
            prop_assert_eq!(size, expected);
        }
    }

    #[test]
    fn short_texts_surely_have_few_segments(text in "[a€é\\[你😀]{150,660}|a{0,7}😀{160,165}|a{600,660}|\\[{600,660}") {
        let mut text = text;
        while text.len() > SURELY_WITHIN {
            text.pop();
        }
        prop_assert!(Segments::of(&text).count <= MAX_SEGMENTS);
    }

    #[test]
    fn a_text_without_variables_stays(text in "[^{]{0,60}") {
        prop_assert_eq!(fill(&text, |_| None), Ok(text.clone()));
    }
}
