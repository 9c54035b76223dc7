//! Parameters of a campaign's links: values for the places of the campaign's template.
//!
//! The values stand in the link's record joined by `&`, each percent-encoded so that it only has
//! unreserved characters of URLs and percent escapes. So no value can end the field or change the
//! structure of the URL that it is put into.

use alloc::vec::Vec;
use core::fmt;

/// The most values that a link has.
pub const MAX_PARAMETERS: usize = 16;

/// The most bytes that all values of a link have together, encoded and joined.
pub const MAX_PARAMETERS_LENGTH: usize = 1024;

/// The values of a link, as they stand in its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters<'a>(&'a [u8]);

impl<'a> Parameters<'a> {
    /// Reads values; the empty text is that of a link without any. `None` when there are more than
    /// [`MAX_PARAMETERS`], they are longer than [`MAX_PARAMETERS_LENGTH`], or one has a character
    /// that would have to be encoded.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        if text.len() > MAX_PARAMETERS_LENGTH {
            return None;
        }
        let mut count = 1;
        let mut rest = text.iter();
        while let Some(&byte) = rest.next() {
            match byte {
                b'&' => count += 1,
                b'%' => {
                    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
                    if !is_hex(rest.next()) || !is_hex(rest.next()) {
                        return None;
                    }
                }
                _ if is_unreserved(byte) => {}
                _ => return None,
            }
        }
        (count <= MAX_PARAMETERS).then_some(Self(text))
    }

    /// Takes a text that [`Parameters::parse`] has accepted before.
    #[inline]
    pub fn from_checked(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The values as they stand in the record.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The value at a place, counted from 0, as it is put into a URL.
    #[inline]
    pub fn get(self, place: usize) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        self.0.split(|&byte| byte == b'&').nth(place)
    }

    /// Returns the number of values.
    pub fn count(self) -> usize {
        match self.0 {
            b"" => 0,
            text => text.iter().filter(|&&byte| byte == b'&').count() + 1,
        }
    }
}

/// Reports whether a character of a URL stands for itself everywhere (RFC 3986, section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Appends a value as it stands in a record: unreserved characters as they are, the bytes of all
/// others as percent escapes.
///
/// # Errors
/// Fails if the value is `.` or `..`, which would be taken for a step in a path; has a control
/// character; or is longer than [`MAX_PARAMETERS_LENGTH`] once encoded. Nothing is appended then.
pub fn encode_value(value: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if matches!(value, "." | "..") {
        return Err(ValueError::Dots);
    }
    if value.chars().any(char::is_control) {
        return Err(ValueError::Control);
    }
    let plain = value.bytes().filter(|&byte| is_unreserved(byte)).count();
    let length = plain + (value.len() - plain).saturating_mul(3);
    if length > MAX_PARAMETERS_LENGTH {
        return Err(ValueError::TooLong);
    }
    out.reserve(length);
    for byte in value.bytes() {
        if is_unreserved(byte) {
            out.push(byte);
        } else {
            let (high, low) = (byte >> 4, byte & 0xf);
            out.extend_from_slice(&[b'%', DIGITS[usize::from(high)], DIGITS[usize::from(low)]]);
        }
    }
    Ok(())
}

/// Appends the values of a link as they stand in its record.
///
/// # Errors
/// Fails if a value can't be encoded ([`encode_value`]), there are too many, they are too long
/// together, or the only one is empty. Nothing is appended then.
pub fn encode_parameters(values: &[&str], out: &mut Vec<u8>) -> Result<(), ParametersError> {
    if values.len() > MAX_PARAMETERS {
        return Err(ParametersError::TooMany);
    }
    // It would be read as no value at all.
    if values == [""] {
        return Err(ParametersError::OneEmpty);
    }
    let start = out.len();
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            out.push(b'&');
        }
        if let Err(error) = encode_value(value, out) {
            out.truncate(start);
            return Err(ParametersError::Value { place, error });
        }
    }
    if out.len() - start > MAX_PARAMETERS_LENGTH {
        out.truncate(start);
        return Err(ParametersError::TooLong);
    }
    Ok(())
}

/// Reason for which a value can't be a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// It is `.` or `..`.
    Dots,
    /// It has a control character.
    Control,
    /// It is longer than [`MAX_PARAMETERS_LENGTH`] once encoded.
    TooLong,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dots => f.write_str("a parameter is neither \".\" nor \"..\""),
            Self::Control => f.write_str("a parameter has no control characters"),
            Self::TooLong => write!(
                f,
                "a parameter has at most {MAX_PARAMETERS_LENGTH} bytes once encoded"
            ),
        }
    }
}

impl core::error::Error for ValueError {}

/// Reason for which values can't be the parameters of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParametersError {
    /// There are more than [`MAX_PARAMETERS`].
    TooMany,
    /// They are longer than [`MAX_PARAMETERS_LENGTH`] together.
    TooLong,
    /// The only one is empty.
    OneEmpty,
    /// One of them can't be a parameter.
    Value {
        /// Its place, from 0.
        place: usize,
        /// Cause.
        error: ValueError,
    },
}

impl fmt::Display for ParametersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "a link has at most {MAX_PARAMETERS} parameters"),
            Self::TooLong => write!(
                f,
                "a link's parameters have at most {MAX_PARAMETERS_LENGTH} bytes once encoded"
            ),
            Self::OneEmpty => f.write_str("a link's only parameter is not empty"),
            Self::Value { place, error } => write!(f, "parameter {place}: {error}"),
        }
    }
}

impl core::error::Error for ParametersError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(values: &[&str]) -> Result<String, ParametersError> {
        let mut out = b"before".to_vec();
        let done = encode_parameters(values, &mut out);
        let text = String::from_utf8(out).expect("ASCII");
        let text = text
            .strip_prefix("before")
            .expect("what was there")
            .to_owned();
        assert!(done.is_ok() || text.is_empty(), "{text}");
        done.map(|()| text)
    }

    #[test]
    fn values_are_encoded_and_joined() {
        for (values, text) in [
            (&[][..], ""),
            (&["a-b._~9"], "a-b._~9"),
            (
                &["a b&c", "", "ü/#?{}%"],
                "a%20b%26c&&%C3%BC%2F%23%3F%7B%7D%25",
            ),
            (&["", ""], "&"),
            (&["..."], "..."),
        ] {
            assert_eq!(encoded(values).as_deref(), Ok(text));
            let read = Parameters::parse(text.as_bytes()).expect("parameters");
            assert_eq!(read.count(), values.len());
            assert_eq!(read.get(values.len()), None);
        }
    }

    #[test]
    fn what_can_not_be_a_value_is_refused() {
        let value = |place, error| Err(ParametersError::Value { place, error });
        assert_eq!(encoded(&["a", ".."]), value(1, ValueError::Dots));
        assert_eq!(encoded(&["."]), value(0, ValueError::Dots));
        assert_eq!(encoded(&["a\n"]), value(0, ValueError::Control));
        assert_eq!(encoded(&["\u{85}"]), value(0, ValueError::Control));
        let long = "ü".repeat(171);
        assert_eq!(encoded(&[&long]), value(0, ValueError::TooLong));
        assert!(encoded(&[&long[2..], "1234"]).is_err());
        assert!(encoded(&[&long[2..], "123"]).is_ok());
        assert_eq!(encoded(&["a"; 17]), Err(ParametersError::TooMany));
        assert_eq!(encoded(&[""]), Err(ParametersError::OneEmpty));
    }

    #[test]
    fn what_would_have_to_be_encoded_is_not_read() {
        let long = "a".repeat(MAX_PARAMETERS_LENGTH + 1);
        let many = "&".repeat(MAX_PARAMETERS);
        for text in [
            "a b", "a/b", "%", "%2", "%2g", "%&0", "a=b", "ü", "{", "\n", &long, &many,
        ] {
            assert_eq!(Parameters::parse(text.as_bytes()), None, "{text}");
        }
        for text in ["", "&", "%2f", "%2F&a", &long[1..], &many[1..]] {
            assert!(Parameters::parse(text.as_bytes()).is_some(), "{text}");
        }
    }
}
