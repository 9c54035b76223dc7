//! Targets that can be served.

use alloc::vec::Vec;

use crate::click::{CLICK_ID_LENGTH, ClickId};

/// The most bytes that a target has.
pub const MAX_TARGET_LENGTH: usize = 8192;

/// Reports whether a target may be put into a `Location` header unchanged.
///
/// The edge repeats this check on every redirect, because it does not trust Redis: an `http` or
/// `https` URL with something behind the scheme, at most [`MAX_TARGET_LENGTH`] bytes, each a
/// visible ASCII character. A serialised URL has no others; a space or a line break would end the
/// header and allow header injection to anyone with write access to Redis, and nginx would complete
/// a value without a scheme with its own host. The sidecar checks *new* targets once, and more
/// strictly.
#[inline]
pub fn is_servable(target: &[u8]) -> bool {
    let rest = match target {
        [b'h', b't', b't', b'p', b's', b':', b'/', b'/', rest @ ..]
        | [b'h', b't', b't', b'p', b':', b'/', b'/', rest @ ..] => rest,
        _ => return false,
    };
    target.len() <= MAX_TARGET_LENGTH
        // An empty authority: browsers would take what follows for the host.
        && !matches!(rest.first(), None | Some(b'/' | b'\\' | b'?' | b'#'))
        && rest.iter().all(|byte| matches!(byte, 0x21..=0x7e))
}

/// The byte that stands where a target gets the id of a click. No target that may be served has it.
const CLICK_ID_PLACE: u8 = b' ';

/// As [`is_servable`] for a target that gets the id of a click: it has one place for that, in its query or its fragment,
/// and is not too long with it.
pub fn is_servable_with_click_id(target: &[u8]) -> bool {
    let Some((head, tail)) = split_at_click_id(target) else {
        return false;
    };
    // Behind the host, whatever the id is.
    is_servable(head)
        && head.contains(&b'?')
        && tail.iter().all(|byte| matches!(byte, 0x21..=0x7e))
        && head.len() + CLICK_ID_LENGTH + tail.len() <= MAX_TARGET_LENGTH
}

fn split_at_click_id(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let place = target.iter().position(|&byte| byte == CLICK_ID_PLACE)?;
    Some((&target[..place], &target[place + 1..]))
}

/// Appends a parameter for the id of a click to a target's query, before its fragment, and a place for the id.
pub fn with_click_id_parameter(target: &[u8], name: &[u8]) -> Vec<u8> {
    let fragment = target.iter().position(|&byte| byte == b'#');
    let (head, fragment) = target.split_at(fragment.unwrap_or(target.len()));
    [
        head,
        separator(head),
        name,
        b"=",
        &[CLICK_ID_PLACE],
        fragment,
    ]
    .concat()
}

/// Puts the id of a click into its place. Returns the target, and where in it the id begins; `None` if the target has no
/// place for it.
pub fn with_click_id(target: &[u8], id: ClickId) -> Option<(Vec<u8>, usize)> {
    let (head, tail) = split_at_click_id(target)?;
    Some(([head, &id.to_text(), tail].concat(), head.len()))
}

/// The text between a target without its fragment and what its query gets.
fn separator(head: &[u8]) -> &'static [u8] {
    match (head.contains(&b'?'), head.last()) {
        (false, _) => b"?",
        (true, Some(b'?' | b'&')) => b"",
        (true, _) => b"&",
    }
}

/// A visitor's query as a browser would write it, by the URL standard: what can't stand in a
/// `Location` header, or means something else behind a query, is percent-encoded. Most queries
/// are so already and are returned as they are; otherwise `room` holds the new one.
#[inline]
pub fn encoded_query<'a>(query: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let is_special = |byte: u8| {
        matches!(
            byte,
            0..=b' ' | b'"' | b'#' | b'\'' | b'<' | b'>' | 0x7f..=0xff
        )
    };
    if !query.iter().any(|&byte| is_special(byte)) {
        return query;
    }
    room.clear();
    for &byte in query {
        if is_special(byte) {
            let (high, low) = (byte >> 4, byte & 0xf);
            room.extend_from_slice(&[b'%', DIGITS[usize::from(high)], DIGITS[usize::from(low)]]);
        } else {
            room.push(byte);
        }
    }
    room
}

/// Appends a visitor's query to a target: behind the target's own, and before its fragment. Returns
/// the pieces of the new target in their order; `None` if it could not be served.
pub fn with_query<'a>(target: &'a [u8], query: &'a [u8]) -> Option<[&'a [u8]; 4]> {
    let fragment = target.iter().position(|&byte| byte == b'#');
    let (head, fragment) = target.split_at(fragment.unwrap_or(target.len()));
    let separator = separator(head);
    let length = target.len() + separator.len() + query.len();
    // A number sign would end the query and begin another fragment.
    let is_clean = |byte: &u8| matches!(byte, 0x21..=0x7e) && *byte != b'#';
    (length <= MAX_TARGET_LENGTH && query.iter().all(is_clean))
        .then_some([head, separator, query, fragment])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(target: &str, query: &str) -> Option<String> {
        let pieces = with_query(target.as_bytes(), query.as_bytes())?;
        Some(String::from_utf8(pieces.concat()).expect("ASCII"))
    }

    #[test]
    fn a_query_stands_behind_the_target_s_own_and_before_the_fragment() {
        for (target, with) in [
            ("https://e.com", "https://e.com?a=b"),
            ("https://e.com/p", "https://e.com/p?a=b"),
            ("https://e.com/p?", "https://e.com/p?a=b"),
            ("https://e.com/p?x", "https://e.com/p?x&a=b"),
            ("https://e.com/p?x&", "https://e.com/p?x&a=b"),
            ("https://e.com/p#f", "https://e.com/p?a=b#f"),
            ("https://e.com/p?x#f", "https://e.com/p?x&a=b#f"),
            ("https://e.com/p#f?x", "https://e.com/p?a=b#f?x"),
            ("https://e.com/p#", "https://e.com/p?a=b#"),
        ] {
            assert_eq!(joined(target, "a=b").as_deref(), Some(with));
        }
    }

    #[test]
    fn a_query_is_written_as_a_browser_would() {
        let mut room = Vec::new();
        for (query, encoded) in [
            (&b""[..], &b""[..]),
            (b"x=1&y=%2B+%20%zz?/", b"x=1&y=%2B+%20%zz?/"),
            (b"a b", b"a%20b"),
            (b"a#b", b"a%23b"),
            (b"\"<'>\"", b"%22%3C%27%3E%22"),
            (b"\xc3\xbc=\xff\x7f\r\n", b"%C3%BC=%FF%7F%0D%0A"),
        ] {
            assert_eq!(encoded_query(query, &mut room), encoded);
        }
        let every: Vec<u8> = (0..=255).collect();
        let encoded = encoded_query(&every, &mut room);
        let pieces = with_query(b"https://e.com/", encoded).expect("it can be served");
        assert!(is_servable(&pieces.concat()));
    }

    #[test]
    fn a_click_id_stands_in_the_query_and_before_the_fragment() {
        let id = ClickId([7; 16]);
        let text = "BwcHBwcHBwcHBwcHBwcHBw";
        for (target, with) in [
            ("https://e.com", "https://e.com?c=ID"),
            ("https://e.com/p?x", "https://e.com/p?x&c=ID"),
            ("https://e.com/p?x&#f", "https://e.com/p?x&c=ID#f"),
            ("https://e.com/p#f?x", "https://e.com/p?c=ID#f?x"),
        ] {
            let place = with_click_id_parameter(target.as_bytes(), b"c");
            assert!(is_servable_with_click_id(&place), "{target}");
            assert!(!is_servable(&place), "{target}");
            let (made, at) = with_click_id(&place, id).expect("a place");
            assert_eq!(made, with.replace("ID", text).as_bytes());
            assert_eq!(&made[at..at + CLICK_ID_LENGTH], text.as_bytes());
            assert!(is_servable(&made));
            // The visitor's query comes behind it.
            let pieces = with_query(&made, b"a=b").expect("a target");
            let forwarded = with.replace("ID", &format!("{text}&a=b"));
            assert_eq!(pieces.concat(), forwarded.as_bytes());
        }
        for target in [
            "https://e.com/?c=",
            "https://e.com ",
            "https://e.com/ ?c=",
            "https://e.com/?c= &d= ",
            "https://e.com/?c= \n",
            "javascript:?c= ",
        ] {
            assert!(!is_servable_with_click_id(target.as_bytes()), "{target}");
        }
        let room = MAX_TARGET_LENGTH - "https://e.com/?c=".len() - CLICK_ID_LENGTH;
        let of_length = |length| format!("https://e.com/{}?c= ", "a".repeat(length));
        assert!(is_servable_with_click_id(of_length(room).as_bytes()));
        assert!(!is_servable_with_click_id(of_length(room + 1).as_bytes()));
    }

    #[test]
    fn what_can_not_be_served_is_not_appended() {
        for query in ["a b", "a\n", "ü", "a#b", "\u{7f}"] {
            assert_eq!(joined("https://e.com/", query), None, "{query}");
        }
        let target = "https://e.com/";
        let room = MAX_TARGET_LENGTH - target.len() - 1;
        let longest = joined(target, &"a".repeat(room)).expect("a target");
        assert_eq!(longest.len(), MAX_TARGET_LENGTH);
        assert_eq!(joined(target, &"a".repeat(room + 1)), None);
    }
}
