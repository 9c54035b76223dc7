//! The visitor's language, out of `Accept-Language`: RFC 9110, section 12.5.4, with the look-up of RFC 4647, section 3.4.

/// The most languages of a header that are looked at: browsers send a handful.
const MOST: usize = 32;

/// The language out of `known` that `Accept-Language` asks for most; the first of them when it asks
/// for none. A language that is asked for is also answered by a more general one: `zh-Hant-TW` by
/// `zh-Hant` or else `zh`, and an older name of a language by its present one. Names are compared in any case.
pub fn negotiate<'a>(header: &[u8], known: &'a [impl AsRef<[u8]>]) -> Option<&'a [u8]> {
    let default = known.first()?.as_ref();
    let found = most(header, |asked| match asked {
        b"*" => Some(default),
        asked => look_up(asked, known),
    });
    Some(found.unwrap_or(default))
}

/// The language that `Accept-Language` asks for most; `None` when it asks for none.
pub fn preferred(header: &[u8]) -> Option<&[u8]> {
    most(header, |asked| {
        (asked != b"*" && !asked.is_empty()).then_some(asked)
    })
}

/// Reports whether a language that is asked for is `known`, or a variety of it, as `de-AT` is of `de`. Names are compared
/// in any case.
pub fn is_variety(asked: &[u8], known: &[u8]) -> bool {
    asked
        .split_at_checked(known.len())
        .is_some_and(|(same, rest)| {
            same.eq_ignore_ascii_case(known) && matches!(rest.first(), None | Some(b'-'))
        })
}

/// Returns the result of `find` for the language that is asked for most, of those for which it has one.
fn most<'h, T>(header: &'h [u8], find: impl Fn(&'h [u8]) -> Option<T>) -> Option<T> {
    let mut best: Option<(u16, T)> = None;
    for range in header.split(|&byte| byte == b',').take(MOST) {
        let mut parts = range.split(|&byte| byte == b';');
        let asked = parts.next().unwrap_or_default().trim_ascii();
        let quality = parts.next().map_or(Some(1000), quality);
        let Some(quality) = quality.filter(|&quality| quality > 0) else {
            continue;
        };
        // Of two that are asked for alike, the first.
        if best.as_ref().is_some_and(|(most, _)| *most >= quality) {
            continue;
        }
        best = find(asked).map(|found| (quality, found)).or(best);
    }
    best.map(|(_, found)| found)
}

/// The known language that is `asked` or, step by step, more general.
fn look_up<'a>(asked: &[u8], known: &'a [impl AsRef<[u8]>]) -> Option<&'a [u8]> {
    let mut range = asked;
    loop {
        let find = |name: &[u8]| {
            let mut names = known.iter().map(AsRef::as_ref);
            names.find(|it| it.eq_ignore_ascii_case(name))
        };
        let found = find(range).or_else(|| find(present_name(range)?));
        if found.is_some() {
            return found;
        }
        let dash = range.iter().rposition(|&byte| byte == b'-')?;
        range = &range[..dash];
    }
}

/// The name under which a language is known today, where phones send an older one; of Chinese, the script of a region
/// (RFC 5646, section 3.1.1; CLDR, likely subtags).
fn present_name(asked: &[u8]) -> Option<&'static [u8]> {
    const NAMES: [(&[u8], &[u8]); 6] = [
        (b"in", b"id"),
        (b"iw", b"he"),
        (b"ji", b"yi"),
        (b"zh-TW", b"zh-Hant"),
        (b"zh-HK", b"zh-Hant"),
        (b"zh-MO", b"zh-Hant"),
    ];
    let mut names = NAMES.iter();
    let found = names.find(|(older, _)| older.eq_ignore_ascii_case(asked));
    found.map(|(_, present)| *present)
}

/// Reads ` q=0.8` in thousandths; `None` for what is none.
fn quality(parameter: &[u8]) -> Option<u16> {
    let text = parameter.trim_ascii();
    let value = text.strip_prefix(b"q=").or(text.strip_prefix(b"Q="))?;
    let (&whole, rest) = value.split_first()?;
    let fraction = match rest {
        [] => b"",
        [b'.', fraction @ ..] if fraction.len() <= 3 => fraction,
        _ => return None,
    };
    let mut thousandths = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (digit, worth) in fraction.iter().zip([100, 10, 1]) {
        if !digit.is_ascii_digit() {
            return None;
        }
        thousandths += u16::from(digit - b'0') * worth;
    }
    Some(thousandths).filter(|&thousandths| thousandths <= 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(header: &str) -> &'static str {
        static KNOWN: [&[u8]; 5] = [b"en", b"zh", b"zh-Hant", b"de", b"id"];
        let found = negotiate(header.as_bytes(), &KNOWN).expect("a language");
        std::str::from_utf8(found).expect("text")
    }

    #[test]
    fn the_language_that_is_asked_for_most_is_found() {
        for (header, language) in [
            ("", "en"),
            ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
            ("zh-Hant-TW, zh;q=0.9", "zh-Hant"),
            ("zh-TW,zh;q=0.9", "zh-Hant"),
            ("zh-hk", "zh-Hant"),
            ("zh-SG", "zh"),
            ("in-ID", "id"),
            ("in", "id"),
            ("iw", "en"),
            ("pl,de;q=0.8,en;q=0.5", "de"),
            ("pl, fr", "en"),
            ("de-AT", "de"),
            ("DE-at;Q=0.1", "de"),
            ("en;q=0.2, de;q=0.201", "de"),
            ("en;q=0.2, de;q=0.2", "en"),
            ("de;q=0, en;q=0.1", "en"),
            ("de;q=0", "en"),
            ("*, de;q=0.5", "en"),
            ("pl, *;q=0.1, de;q=0.5", "de"),
            ("de;q=1.001, zh;q=0.1", "zh"),
            ("de;q=0.1234, zh;q=0.1", "zh"),
            ("de;q=x", "en"),
            (";;,,-,--", "en"),
            ("deutsch", "en"),
        ] {
            assert_eq!(asked(header), language, "{header}");
        }
        assert_eq!(negotiate(b"de", &[b""; 0]), None);
        let regions: [&[u8]; 3] = [b"en", b"zh-Hant", b"zh-TW"];
        let found = |asked: &[u8]| negotiate(asked, &regions);
        assert_eq!(found(b"zh-TW"), Some(&b"zh-TW"[..]));
        assert_eq!(found(b"zh-MO"), Some(&b"zh-Hant"[..]));
    }

    #[test]
    fn a_long_header_takes_no_long_look() {
        let header = "pl,".repeat(MOST) + "de";
        assert_eq!(asked(&header), "en");
    }
}
