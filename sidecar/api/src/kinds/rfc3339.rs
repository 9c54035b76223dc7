//! Times in request bodies.

use jiff::Timestamp;

/// Parses an RFC 3339 time. Rejects the other forms of ISO 8601 that the parser accepts, such as a
/// date without separators or a time without seconds.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let shape = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let (head, tail) = bytes.split_at_checked(shape.len())?;
    let has_shape = head.iter().zip(shape).all(|(byte, pattern)| match pattern {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        separator => byte == separator,
    });
    let zone = match tail.strip_prefix(b".") {
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit());
            let count = digits.count();
            if count == 0 {
                return None;
            }
            &fraction[count..]
        }
        None => tail,
    };
    let has_zone = match zone {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    if has_shape && has_zone {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_rfc_3339_writes_them() {
        for (text, second) in [
            ("1970-01-01T00:00:01Z", Some(1)),
            ("1970-01-01t00:00:01z", Some(1)),
            ("1970-01-01 00:00:01Z", Some(1)),
            ("1970-01-01T00:00:01.5Z", Some(1)),
            ("1970-01-01T02:00:01+02:00", Some(1)),
            ("1969-12-31T23:00:01-01:00", Some(1)),
            ("1970-01-01T00:00:01", None),
            ("1970-01-01T00:00Z", None),
            ("19700101T000001Z", None),
            ("1970-01-01", None),
            ("1970-01-01T00:00:01.Z", None),
            ("1970-01-01T00:00:01+02", None),
            ("1970-01-01T00:00:01+02:00[Europe/Berlin]", None),
            ("1970-02-30T00:00:00Z", None),
            ("1970-01-01T25:00:00Z", None),
            ("tomorrow", None),
            ("", None),
            ("1970-01-01T00:00:0\u{e9}", None),
        ] {
            assert_eq!(parse(text).map(Timestamp::as_second), second, "{text}");
        }
    }
}
