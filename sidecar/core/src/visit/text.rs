//! Texts that clients sent, in the form that is stored.

/// Returns the text to store for bytes: at most `limit` bytes of UTF-8. Invalid UTF-8 is replaced
/// by U+FFFD, and so is NUL, which not every database can store in a text.
pub fn kept(bytes: &[u8], limit: usize) -> String {
    // The replacement makes texts longer, never shorter, so bytes beyond the limit are not needed.
    let bytes = &bytes[..bytes.len().min(limit)];
    // Nearly all texts are valid, which is found faster than what is not.
    let mut text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    };
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}");
    }
    cut(&mut text, limit);
    text
}

/// Cuts a text to at most `limit` bytes, between two characters.
pub fn cut(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_text_is_replaced() {
        assert_eq!(kept(b"plain", 512), "plain");
        assert_eq!(kept(b"a\xffb\0c", 512), "a\u{fffd}b\u{fffd}c");
        assert_eq!(kept("\u{4e2d}\u{56fd}".as_bytes(), 512), "\u{4e2d}\u{56fd}");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(kept("\u{4e2d}\u{56fd}".as_bytes(), 3), "\u{4e2d}");
        assert_eq!(kept(b"abcdef", 3), "abc");
        // Three bytes for each that is replaced.
        assert_eq!(kept(b"\xff\xff\xff", 4), "\u{fffd}");
        let mut text = "\u{4e2d}\u{56fd}".to_owned();
        cut(&mut text, 5);
        assert_eq!(text, "\u{4e2d}");
    }

    proptest! {
        #[test]
        fn any_bytes_become_a_text_within_the_limit(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            limit in 0_usize..64,
        ) {
            let text = kept(&bytes, limit);
            prop_assert!(text.len() <= limit);
            prop_assert!(!text.contains('\0'));
            prop_assert_eq!(kept(text.as_bytes(), limit), text);
        }
    }
}
