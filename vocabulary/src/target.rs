//! Targets that can be served.

use alloc::vec::Vec;

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
    let separator: &[u8] = match (head.contains(&b'?'), head.last()) {
        (false, _) => b"?",
        (true, Some(b'?' | b'&')) => b"",
        (true, _) => b"&",
    };
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
