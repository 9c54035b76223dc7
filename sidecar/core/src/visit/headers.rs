//! Values parsed from headers that clients sent.

use url::Url;

/// Longer ones are no tags of spoken languages (RFC 5646, section 4.4.1).
const MAX_LANGUAGE_LENGTH: usize = 35;

/// Longer ones are no hosts.
const MAX_HOST_LENGTH: usize = 253;

/// The host that a referrer leads to, in lower case and without a port.
pub(super) fn referrer_host(referrer: &str) -> Option<String> {
    if referrer.is_empty() {
        return None;
    }
    let url = Url::parse(referrer).ok()?;
    // Android's apps send `android-app://com.example.mail/`.
    if !matches!(url.scheme(), "http" | "https" | "android-app" | "ios-app") {
        return None;
    }
    let host = url.host_str()?.to_ascii_lowercase();
    (!host.is_empty() && host.len() <= MAX_HOST_LENGTH).then_some(host)
}

/// The language that a header `Accept-Language` likes best: the first of those with the highest
/// weight.
pub(super) fn preferred_language(header: &str) -> Option<String> {
    let mut best: Option<(&str, u16)> = None;
    for range in header.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let tag = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        let weight = weight.map_or(Some(1000), thousandths).unwrap_or(0);
        if weight > best.map_or(0, |(_, weight)| weight) && is_tag(tag) {
            best = Some((tag, weight));
        }
    }
    best.map(|(tag, _)| canonical(tag))
}

/// A weight (`0.8`) in thousandths.
fn thousandths(text: &str) -> Option<u16> {
    let weight: f32 = text.parse().ok()?;
    // NaN is outside of every range.
    (0.0..=1.0)
        .contains(&weight)
        .then_some((weight * 1000.0) as u16)
}

fn is_tag(tag: &str) -> bool {
    let mut parts = tag.split('-');
    let language = parts.next().unwrap_or_default();
    tag.len() <= MAX_LANGUAGE_LENGTH
        && (2..=8).contains(&language.len())
        && language.bytes().all(|byte| byte.is_ascii_alphabetic())
        && parts.all(|part| {
            (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
}

/// The tag with the case that is usual, so that clients that write it otherwise are counted
/// together: `zh-Hans-CN`.
fn canonical(tag: &str) -> String {
    let mut canonical = String::with_capacity(tag.len());
    for part in tag.split('-') {
        if canonical.is_empty() {
            canonical.push_str(&part.to_ascii_lowercase());
            continue;
        }
        canonical.push('-');
        match part.len() {
            2 => canonical.push_str(&part.to_ascii_uppercase()),
            4 if part.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                canonical.push_str(&part[..1].to_ascii_uppercase());
                canonical.push_str(&part[1..].to_ascii_lowercase());
            }
            _ => canonical.push_str(&part.to_ascii_lowercase()),
        }
    }
    canonical
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_referrer_has_a_host() {
        for (referrer, host) in [
            (
                "https://www.Example.COM:8443/a?b#c",
                Some("www.example.com"),
            ),
            ("https://user:secret@example.com/", Some("example.com")),
            ("http://[2001:db8::1]/", Some("[2001:db8::1]")),
            (
                "https://b\u{fc}cher.example/x",
                Some("xn--bcher-kva.example"),
            ),
            (
                "android-app://com.google.android.gm/",
                Some("com.google.android.gm"),
            ),
            ("", None),
            ("about:blank", None),
            ("data:text/html,hello", None),
            ("example.com", None),
            ("/path", None),
        ] {
            assert_eq!(referrer_host(referrer).as_deref(), host, "{referrer}");
        }
    }

    #[test]
    fn the_language_that_is_liked_best_counts() {
        for (header, language) in [
            ("de-CH,de;q=0.9,en;q=0.8", Some("de-CH")),
            ("en;q=0.5, fr", Some("fr")),
            ("en;q=0.5, fr;q=0.5", Some("en")),
            ("ZH-hans-cn", Some("zh-Hans-CN")),
            ("es-419;q=0.3", Some("es-419")),
            ("*", None),
            ("*, nl;q=0.1", Some("nl")),
            ("en;q=0", None),
            ("en;q=much, de;q=0.1", Some("de")),
            ("en;q=nan, fr;q=-1, it;q=7, de;q=0.1", Some("de")),
            ("", None),
            ("<script>", None),
            ("e", None),
            ("en-", None),
        ] {
            assert_eq!(preferred_language(header).as_deref(), language, "{header}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC{0,80}") {
            let _ = referrer_host(&text);
            if let Some(language) = preferred_language(&text) {
                prop_assert!(is_tag(&language));
                prop_assert_eq!(preferred_language(&language), Some(language));
            }
        }
    }
}
