//! Signs of a program that pretends to be a browser: it lacks what that browser sends.
//!
//! A sign is no proof, because an intercepting proxy or an app can remove headers. The rules count
//! it only together with another sign. They know only browsers whose user agents contain nothing
//! but the names that these browsers give themselves: apps, the built-in browsers of telephones and
//! other makers add names of their own, and some of their versions send less.

use vocabulary::visit::evidence::{Accept, Fetch, VisitEvidence};

/// The first versions that send `Sec-Fetch-*` with every request over TLS.
const CHROMIUM: Version = (80, 0);
const FIREFOX: Version = (90, 0);
const SAFARI: Version = (16, 4);

/// The names in the user agents of these browsers, in lower case: Chrome, Edge, Opera, Firefox, Safari.
const NAMES: [&str; 11] = [
    "mozilla",
    "applewebkit",
    "gecko",
    "version",
    "mobile",
    "safari",
    "chrome",
    "edg",
    "edga",
    "opr",
    "firefox",
];

/// Major and minor version.
type Version = (u32, u32);

/// Reports whether a request lacks what the browser that its user agent names sends with a
/// navigation.
pub fn is_pretended(observed: VisitEvidence, user_agent: &str) -> bool {
    is_lacking(observed) && is_known_browser(&user_agent.to_ascii_lowercase())
}

/// Reports whether a request lacks what known browsers send with a navigation:
///
/// - over TLS, the headers `Sec-Fetch-*`; browsers send none over plain HTTP,
/// - HTML in `Accept`.
pub(super) fn is_lacking(observed: VisitEvidence) -> bool {
    let lacks_fetch = observed.is_tls() && observed.fetch() == Some(Fetch::None);
    let lacks_html = observed.fetch() != Some(Fetch::Navigation)
        && observed.accept().is_some_and(|kind| kind != Accept::Html);
    lacks_fetch || lacks_html
}

/// Reports whether a user agent, in lower case, is that of a browser that sends `Sec-Fetch-*`.
pub(super) fn is_known_browser(agent: &str) -> bool {
    let mut found = [None; NAMES.len()];
    for product in products(agent) {
        let (name, version) = product.split_once('/').unwrap_or((product, ""));
        let Some(place) = NAMES.iter().position(|known| *known == name) else {
            return false;
        };
        found[place] = Some(parsed(version));
    }
    let version = |name| {
        let place = NAMES.iter().position(|known| *known == name)?;
        found[place]
    };
    // Android's WebView marks itself, or has the name Version.
    let is_web_view = agent.contains("; wv)");
    match (version("firefox"), version("chrome"), version("version")) {
        (Some(firefox), None, None) => firefox >= FIREFOX,
        (None, Some(chrome), None) => chrome >= CHROMIUM && !is_web_view,
        (None, None, Some(safari)) => version("safari").is_some() && safari >= SAFARI,
        _ => false,
    }
}

/// The products of a user agent: its words outside of comments in brackets.
fn products(agent: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    agent
        .split_inclusive(['(', ')'])
        .filter(move |piece| {
            let is_outside = depth == 0;
            match piece.as_bytes().last() {
                Some(b'(') => depth += 1,
                Some(b')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            is_outside
        })
        .flat_map(|piece| piece.trim_end_matches(['(', ')']).split_ascii_whitespace())
}

/// A version; what is no number is 0.
fn parsed(version: &str) -> Version {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vocabulary::visit::evidence::Request;

    use super::*;

    const CHROME: &str = "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 \
        (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36";

    #[test]
    fn only_plain_texts_of_known_browsers_count() {
        for agent in [
            CHROME,
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
             Chrome/80.0.3987.87 Safari/537.36",
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
             Chrome/126.0.0.0 Safari/537.36 Edg/126.0.0.0",
            "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
            "Mozilla/5.0 (Android 14; Mobile; rv:127.0) Gecko/127.0 Firefox/127.0",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 \
             (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 \
             (KHTML, like Gecko) Version/16.4 Safari/605.1.15",
        ] {
            assert!(is_known_browser(&agent.to_ascii_lowercase()), "{agent}");
        }
        for agent in [
            "",
            "curl/8.5.0",
            // Older than the headers.
            "Mozilla/5.0 (Windows NT 6.1) AppleWebKit/537.36 (KHTML, like Gecko) \
             Chrome/79.0.3945.130 Safari/537.36",
            "Mozilla/5.0 (Windows NT 6.1; rv:78.0) Gecko/20100101 Firefox/78.0",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 16_3 like Mac OS X) AppleWebKit/605.1.15 \
             (KHTML, like Gecko) Version/16.3 Mobile/15E148 Safari/604.1",
            // Built into apps.
            "Mozilla/5.0 (Linux; Android 14; Pixel 8; wv) AppleWebKit/537.36 \
             (KHTML, like Gecko) Version/4.0 Chrome/126.0.0.0 Mobile Safari/537.36",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 \
             (KHTML, like Gecko) Mobile/15E148",
            "Mozilla/5.0 (Linux; Android 13; V2231A) AppleWebKit/537.36 (KHTML, like Gecko) \
             Version/4.0 Chrome/107.0.5304.141 Mobile Safari/537.36 XWEB/5317 \
             MicroMessenger/8.0.48",
            "Mozilla/5.0 (Linux; U; Android 12; zh-cn; M2012K11AC) AppleWebKit/537.36 \
             (KHTML, like Gecko) Version/4.0 Chrome/100.0.4896.127 Mobile Safari/537.36 \
             XiaoMi/MiuiBrowser/18.2",
            "Mozilla/5.0 (Linux; U; Android 12; zh-CN; ABR-AL80) AppleWebKit/537.36 \
             (KHTML, like Gecko) Version/4.0 Chrome/100.0.4896.58 UCBrowser/15.2 Mobile \
             Safari/537.36",
            "Mozilla/5.0 (Linux; Android 13; SAMSUNG SM-S911B) AppleWebKit/537.36 \
             (KHTML, like Gecko) SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile Safari/537.36",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 \
             (KHTML, like Gecko) CriOS/126.0.6478.54 Mobile/15E148 Safari/604.1",
        ] {
            assert!(!is_known_browser(&agent.to_ascii_lowercase()), "{agent}");
        }
    }

    #[test]
    fn a_browser_lacks_nothing_over_plain_http_or_behind_an_older_edge() {
        let html = Some(&b"text/html,*/*;q=0.8"[..]);
        let request = |mode: Option<&'static [u8]>, accept: Option<&'static [u8]>, is_tls| {
            VisitEvidence::of(&Request {
                mode,
                accept,
                is_tls,
                ..Request::default()
            })
        };
        let navigate = Some(&b"navigate"[..]);
        for (observed, expected) in [
            (VisitEvidence::UNKNOWN, false),
            (request(navigate, html, true), false),
            (request(navigate, None, true), false),
            (request(None, html, false), false),
            (request(None, html, true), true),
            (request(None, Some(b"*/*"), false), true),
            (request(None, None, false), true),
        ] {
            assert_eq!(is_pretended(observed, CHROME), expected, "{observed:?}");
            assert!(!is_pretended(observed, "Mozilla/5.0 (iPhone) Mobile"));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(agent in "[a-z0-9/.;() é]{0,120}") {
            let _ = is_known_browser(&agent);
        }
    }
}
