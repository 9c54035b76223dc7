//! Reads what is inside an aggregate.
//!
//! The decoder hands aggregates out whole and well-formed; this walks through them without
//! copying. Redis writes some values as an array to one client and as a map to another, so both are
//! read as a sequence.

use super::{length, line};

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A string of either kind, a number, a truth value or an error: its text.
    Text(&'a [u8]),
    /// Nothing.
    Null,
    /// An array, set, map or push: its elements, those of a map one after the other.
    Sequence(Elements<'a>),
}

/// The elements of an aggregate, one after the other; ends early when it is not well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements<'a> {
    rest: &'a [u8],
    left: u64,
}

impl<'a> Elements<'a> {
    /// The elements of an aggregate that begins the bytes.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        match read(bytes, 8)? {
            (Value::Sequence(elements), _) => Some(elements),
            _ => None,
        }
    }

    /// Returns the number of elements left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next element's text, if it is one.
    pub fn next_text(&mut self) -> Option<&'a [u8]> {
        match self.next()? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The next element's number, if it is one.
    pub fn next_number(&mut self) -> Option<u64> {
        vocabulary::number::parse_decimal(self.next_text()?)
    }

    /// The next element's elements, if it has some.
    pub fn next_sequence(&mut self) -> Option<Elements<'a>> {
        match self.next()? {
            Value::Sequence(elements) => Some(elements),
            _ => None,
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        match read(self.rest, 8) {
            Some((value, rest)) => {
                self.rest = rest;
                Some(value)
            }
            None => {
                self.left = 0;
                None
            }
        }
    }
}

/// Reads one value and returns it with the rest.
fn read(bytes: &[u8], depth: u8) -> Option<(Value<'_>, &[u8])> {
    let kind = *bytes.first()?;
    let (head, used) = line(bytes).ok()??;
    let rest = &bytes[used..];
    match kind {
        b'$' | b'=' | b'!' => match length(head).ok()? {
            None => Some((Value::Null, rest)),
            Some(length) => {
                let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                Some((Value::Text(text), rest.strip_prefix(b"\r\n")?))
            }
        },
        b'+' | b'-' | b':' | b',' | b'#' | b'(' => Some((Value::Text(head), rest)),
        b'_' => Some((Value::Null, rest)),
        b'*' | b'~' | b'>' | b'%' => {
            let Some(count) = length(head).ok()? else {
                return Some((Value::Null, rest));
            };
            let left = if kind == b'%' { count * 2 } else { count };
            let elements = Elements { rest, left };
            // Only a walk through it finds its end.
            let depth = depth.checked_sub(1)?;
            let mut behind = rest;
            for _ in 0..left {
                (_, behind) = read(behind, depth)?;
            }
            Some((Value::Sequence(elements), behind))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_of_every_kind_are_read() {
        for bytes in [
            "*4\r\n$1\r\na\r\n:7\r\n_\r\n*1\r\n+x\r\n",
            "~4\r\n$1\r\na\r\n:7\r\n$-1\r\n~1\r\n$1\r\nx\r\n",
            "%2\r\n+a\r\n:7\r\n*-1\r\n>1\r\n$1\r\nx\r\n",
        ] {
            let mut elements = Elements::of(bytes.as_bytes()).expect("a sequence");
            assert_eq!(elements.left(), 4);
            assert_eq!(elements.next_text(), Some(&b"a"[..]));
            assert_eq!(elements.next_number(), Some(7));
            assert_eq!(elements.next(), Some(Value::Null));
            let mut inner = elements.next_sequence().expect("a sequence");
            assert_eq!(inner.next_text(), Some(&b"x"[..]));
            assert_eq!((inner.next(), elements.next()), (None, None));
        }
        for bytes in [
            "",
            "$1\r\na\r\n",
            "*1\r\n",
            "*1\r\n$5\r\nab\r\n",
            "*2\r\n:1\r\n",
        ] {
            assert_eq!(Elements::of(bytes.as_bytes()), None, "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_walked_through(bytes in "[*%~>$:+_0-9a\r\n-]{0,60}") {
            if let Some(elements) = Elements::of(bytes.as_bytes()) {
                prop_assert!(elements.count() <= bytes.len());
            }
        }
    }
}
