//! Appends parameters to targets: a campaign's UTM parameters when a link is created, and the
//! visitor's query when it is followed.
//!
//! The target's own bytes never change: they may be signed.

use std::borrow::Cow;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::form_urlencoded;
use vocabulary::target::{encoded_query, with_query};

/// All but the characters that every reader of a query takes literally. A space is `%20`, which
/// every reader understands, while `+` is a space only for some.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The `utm_…` parameters of a target: the source of a visit, for web analytics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Utm([Option<String>; Self::MEMBERS.len()]);

impl Utm {
    /// The names of the parameters, without `utm_`.
    pub const MEMBERS: [&str; 5] = ["source", "medium", "campaign", "term", "content"];

    /// The parameters and their names without `utm_`.
    pub fn members(&mut self) -> impl Iterator<Item = (&'static str, &mut Option<String>)> {
        Self::MEMBERS.into_iter().zip(&mut self.0)
    }

    /// The parameters that are set, by their names without `utm_`.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let members = Self::MEMBERS.into_iter().zip(&self.0);
        members.filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// Appends the parameters to the query of a serialised URL, in place of parameters of the
    /// same names.
    pub fn appended(&self, url: &str) -> String {
        if self.parameters().next().is_none() {
            return url.to_owned();
        }
        let (head, query, fragment) = split(url);
        let is_replaced = |parameter: &str| {
            let name = form_urlencoded::parse(parameter.as_bytes()).next();
            let name = name
                .as_ref()
                .and_then(|(name, _)| name.strip_prefix("utm_"));
            name.is_some_and(|name| self.parameters().any(|(new, _)| new == name))
        };
        let mut parameters: Vec<Cow<'_, str>> = query
            .unwrap_or_default()
            .split('&')
            .filter(|parameter| !is_replaced(parameter))
            .map(Cow::Borrowed)
            .collect();
        // Behind a trailing `&`, or of a query without anything.
        while parameters.last().is_some_and(|last| last.is_empty()) {
            parameters.pop();
        }
        let new = self.parameters();
        parameters.extend(new.map(|(name, value)| {
            Cow::Owned(format!(
                "utm_{name}={}",
                utf8_percent_encode(value, ENCODED)
            ))
        }));
        format!("{head}?{}{fragment}", parameters.join("&"))
    }
}

/// The most templates of UTM parameters.
pub const MAX_TEMPLATES: u32 = 200;

/// The most characters of the name of a template.
pub const MAX_TEMPLATE_NAME: usize = 64;
/// The most characters of a value in a template.
pub const MAX_TEMPLATE_VALUE: usize = 255;

/// UTM parameters with a name, which a team shares for its new links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtmTemplate {
    /// Its name. No two have the same.
    pub name: String,
    /// The parameters.
    pub utm: Utm,
    /// Time of its last change.
    pub updated_at: Timestamp,
    /// The id of the API key that it was changed with.
    pub updated_by: String,
}

/// Appends a visitor's query to the query of a serialised URL, byte for byte as the edge does.
/// Bytes that a `Location` header can't hold are encoded. Returns `None` if there is nothing to
/// append, or if the result would be too long: losing the query is better than losing the page.
pub fn with_forwarded(url: &str, forwarded: &[u8]) -> Option<String> {
    if forwarded.is_empty() {
        return None;
    }
    let mut room = Vec::new();
    let query = encoded_query(forwarded, &mut room);
    let pieces = with_query(url.as_bytes(), query)?;
    String::from_utf8(pieces.concat()).ok()
}

/// Splits a URL into the part before the query, the query, and the fragment with its `#`.
fn split(url: &str) -> (&str, Option<&str>, &str) {
    let (rest, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    match rest.split_once('?') {
        Some((head, query)) => (head, Some(query), fragment),
        None => (rest, None, fragment),
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::target::{MAX_TARGET_LENGTH, is_servable};

    use super::*;

    fn utm(source: &str, campaign: Option<&str>) -> Utm {
        let mut utm = Utm::default();
        let source = Some(source.to_owned());
        let campaign = campaign.map(str::to_owned);
        for ((_, member), value) in utm.members().zip([source, None, campaign]) {
            *member = value;
        }
        utm
    }

    #[test]
    fn marks_are_appended_before_the_fragment_and_replace_their_like() {
        for (url, source, expected) in [
            ("https://e.com/", "sms", "https://e.com/?utm_source=sms"),
            ("https://e.com/?", "sms", "https://e.com/?utm_source=sms"),
            ("https://e.com/#f", "sms", "https://e.com/?utm_source=sms#f"),
            (
                "https://e.com/#f?a=1",
                "sms",
                "https://e.com/?utm_source=sms#f?a=1",
            ),
            (
                "https://e.com/?a=1#f",
                "sms",
                "https://e.com/?a=1&utm_source=sms#f",
            ),
            (
                "https://e.com/?a=1&",
                "sms",
                "https://e.com/?a=1&utm_source=sms",
            ),
            (
                "https://e.com/?a=1&&b",
                "sms",
                "https://e.com/?a=1&&b&utm_source=sms",
            ),
            // Existing parameters are not rewritten.
            (
                "https://e.com/?a=+%2b%20;%zz&b==",
                "x",
                "https://e.com/?a=+%2b%20;%zz&b==&utm_source=x",
            ),
            (
                "https://e.com/?utm_source=a&b=1&utm_source=c&utm_medium=m",
                "sms",
                "https://e.com/?b=1&utm_medium=m&utm_source=sms",
            ),
            // However the name is spelt.
            (
                "https://e.com/?%75tm_source=a",
                "sms",
                "https://e.com/?utm_source=sms",
            ),
            (
                "https://e.com/?utm_source",
                "sms",
                "https://e.com/?utm_source=sms",
            ),
            (
                "https://e.com/?utm_sourceful=a",
                "s",
                "https://e.com/?utm_sourceful=a&utm_source=s",
            ),
            (
                "https://e.com/",
                "a b+c&d=e#f",
                "https://e.com/?utm_source=a%20b%2Bc%26d%3De%23f",
            ),
            (
                "https://e.com/",
                "ü/\u{1f600}",
                "https://e.com/?utm_source=%C3%BC%2F%F0%9F%98%80",
            ),
            ("https://e.com/", "%41", "https://e.com/?utm_source=%2541"),
        ] {
            let appended = utm(source, None).appended(url);
            assert_eq!(appended, expected, "{url} {source}");
            // A parser reads the appended text back, and appending it again changes nothing.
            let read = url::Url::parse(&appended).expect("a URL");
            assert_eq!(String::from(read.clone()), appended);
            let found = read.query_pairs().find(|(name, _)| name == "utm_source");
            assert_eq!(found.expect("the mark").1, source);
            assert_eq!(utm(source, None).appended(&appended), appended);
        }
        let both = utm("a", Some("b")).appended("https://e.com/");
        assert_eq!(both, "https://e.com/?utm_source=a&utm_campaign=b");
        assert_eq!(
            Utm::default().appended("https://e.com/?#"),
            "https://e.com/?#"
        );
    }

    #[test]
    fn a_visitors_query_is_appended_before_the_fragment() {
        for (url, forwarded, expected) in [
            ("https://e.com/", "", None),
            ("https://e.com/", "a=1", Some("https://e.com/?a=1")),
            ("https://e.com/?", "a=1", Some("https://e.com/?a=1")),
            ("https://e.com/?b=2", "a=1", Some("https://e.com/?b=2&a=1")),
            (
                "https://e.com/?b=2#f",
                "a=1",
                Some("https://e.com/?b=2&a=1#f"),
            ),
            (
                "https://e.com/#f?x",
                "a=1&c=%20+",
                Some("https://e.com/?a=1&c=%20+#f?x"),
            ),
            ("https://e.com/", "?&=", Some("https://e.com/??&=")),
            (
                "https://e.com/",
                "a=#\"<>'\\ ",
                Some("https://e.com/?a=%23%22%3C%3E%27\\%20"),
            ),
            (
                "https://e.com/",
                "ü\r\nX: y\u{7f}",
                Some("https://e.com/?%C3%BC%0D%0AX:%20y%7F"),
            ),
        ] {
            let forwarded = with_forwarded(url, forwarded.as_bytes());
            assert_eq!(forwarded.as_deref(), expected, "{url}");
        }
        let every: Vec<u8> = (0..=255).collect();
        let url = with_forwarded("https://e.com/", &every).expect("room");
        assert!(is_servable(url.as_bytes()));
        let long = "a".repeat(MAX_TARGET_LENGTH);
        assert_eq!(with_forwarded("https://e.com/", long.as_bytes()), None);
    }
}
