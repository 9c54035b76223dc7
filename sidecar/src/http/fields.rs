//! Reads the members of a JSON object one by one and notes everything that is wrong with them.
//!
//! A client that sends a form with three mistakes is told of three, and of every member that
//! there is no such thing as: a misspelt optional member must not be ignored.

mod nested;

use std::num::NonZeroU64;

use jiff::Timestamp;
use serde_json::{Map, Value};
use vocabulary::RedirectStatus;

use super::problem::{FieldError, Problem};

/// The largest number that every reader of JSON keeps exactly.
pub(super) const MAX_COUNT: u64 = (1 << 53) - 1;

/// What a member of an object holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Member<T> {
    /// There is no such member, or what it holds is wrong and has been noted.
    Absent,
    /// `null`.
    Null,
    /// A value.
    Value(T),
}

impl<T> Member<T> {
    /// The value, if there is one.
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }
}

/// The members that have not been read yet, and what was wrong with those that have.
pub(super) struct Fields {
    members: Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Fields {
    pub(super) fn new(members: Map<String, Value>) -> Self {
        Self {
            members,
            errors: Vec::new(),
        }
    }

    /// Notes that something is wrong with a member.
    pub(super) fn refuse(&mut self, name: &str, detail: impl Into<String>) {
        self.refuse_at(&[name], detail);
    }

    /// Notes that something is wrong within a member.
    pub(super) fn refuse_at(&mut self, path: &[&str], detail: impl Into<String>) {
        let steps = path.iter().map(|step| {
            let step = step.replace('~', "~0").replace('/', "~1");
            format!("/{step}")
        });
        self.errors.push(FieldError {
            pointer: steps.collect(),
            detail: detail.into(),
        });
    }

    /// Notes that a member is missing, unless something else is wrong with it or within it already.
    pub(super) fn require(&mut self, name: &str) {
        let is_noted = |error: &FieldError| error.pointer.split('/').nth(1) == Some(name);
        if !self.errors.iter().any(is_noted) {
            self.refuse(name, "is required");
        }
    }

    /// Whether there is a member that has not been read yet, and is not `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    /// Leaves a member unread.
    pub(super) fn ignore(&mut self, name: &str) {
        self.members.remove(name);
    }

    /// Reads a member; `None` of `read` is refused as not being what it `must` be.
    pub(super) fn member<T>(
        &mut self,
        name: &str,
        must: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Member<T> {
        match self.members.remove(name) {
            None => Member::Absent,
            Some(Value::Null) => Member::Null,
            Some(value) => match read(value) {
                Some(value) => Member::Value(value),
                None => {
                    self.refuse(name, format!("must be {must}"));
                    Member::Absent
                }
            },
        }
    }

    /// Reads a text of at most so many characters, none of them a control character.
    pub(super) fn short_text(&mut self, name: &str, most: usize) -> Member<String> {
        match self.text(name) {
            Member::Value(text) if text.chars().count() > most => {
                self.refuse(name, format!("must have at most {most} characters"));
                Member::Absent
            }
            Member::Value(text) if text.chars().any(|c| c.is_control() && c != '\n') => {
                self.refuse(name, "must not contain control characters");
                Member::Absent
            }
            member => member,
        }
    }

    /// Reads a text.
    pub(super) fn text(&mut self, name: &str) -> Member<String> {
        self.member(name, "a string", |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// Reads a truth value.
    pub(super) fn truth(&mut self, name: &str) -> Member<bool> {
        self.member(name, "true or false", |value| value.as_bool())
    }

    /// Reads how often something may be.
    pub(super) fn count(&mut self, name: &str) -> Member<NonZeroU64> {
        let must = format!("a whole number from 1 to {MAX_COUNT}");
        self.member(name, &must, |value| {
            let count = whole(&value).filter(|&count| count <= MAX_COUNT)?;
            NonZeroU64::new(count)
        })
    }

    /// Reads a list, whose values are for the caller to look at.
    pub(super) fn values(&mut self, name: &str) -> Member<Vec<Value>> {
        self.member(name, "a list", |value| match value {
            Value::Array(values) => Some(values),
            _ => None,
        })
    }

    /// Reads an object, whose members are for the caller to look at.
    pub(super) fn members(&mut self, name: &str) -> Member<Map<String, Value>> {
        self.member(name, "an object", |value| match value {
            Value::Object(members) => Some(members),
            _ => None,
        })
    }

    /// Reads the status of a redirect.
    pub(super) fn redirect_status(&mut self, name: &str) -> Member<RedirectStatus> {
        let must = format!("one of {}", RedirectStatus::CODES);
        self.member(name, &must, |value| {
            let code = u16::try_from(whole(&value)?).ok()?;
            RedirectStatus::from_code(code)
        })
    }

    /// Reads a moment.
    pub(super) fn moment(&mut self, name: &str) -> Member<Timestamp> {
        match self.text(name) {
            Member::Absent => Member::Absent,
            Member::Null => Member::Null,
            Member::Value(text) => match rfc3339(&text) {
                Some(moment) => Member::Value(moment),
                None => {
                    self.refuse(name, "must be a date and time like 2030-12-31T23:59:59Z");
                    Member::Absent
                }
            },
        }
    }

    /// Says what was wrong, members that nobody has asked for included.
    pub(super) fn finish(mut self) -> Result<(), Problem> {
        self.refuse_unknown();
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(Problem::validation(self.errors))
        }
    }
}

/// Reads a whole number, also one that is written with a fraction of zero: to JSON both are the same.
/// Larger ones of these may have been rounded when they were read, and are refused.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let is_whole = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        is_whole.then_some(number as u64)
    })
}

/// Reads a moment as RFC 3339 writes it. The parser alone would also take ISO 8601's other forms,
/// such as a date without separators or a time without seconds.
fn rfc3339(text: &str) -> Option<Timestamp> {
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
            assert_eq!(rfc3339(text).map(Timestamp::as_second), second, "{text}");
        }
    }

    #[test]
    fn whole_numbers_are_read_however_they_are_written() {
        for (text, number) in [
            ("0", Some(0)),
            ("7.0", Some(7)),
            ("7e0", Some(7)),
            ("9007199254740991", Some(MAX_COUNT)),
            ("4294967295.0", Some(u32::MAX.into())),
            ("9007199254740991.0", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("1e300", None),
            ("7.5", None),
            ("-1", None),
            ("-1.0", None),
            ("\"7\"", None),
        ] {
            let value = serde_json::from_str(text).expect("JSON");
            assert_eq!(whole(&value), number, "{text}");
        }
    }

    #[test]
    fn pointers_escape_what_json_pointers_escape() {
        let mut fields = Fields::new(Map::new());
        fields.refuse("a/b~c", "");
        assert_eq!(fields.errors[0].pointer, "/a~1b~0c");
    }
}
