//! RESP, the protocol of Redis, versions 2 and 3: the requests we send and the replies we read.
//!
//! Source: the Redis serialization protocol specification. The decoder reads a reply in place and
//! copies nothing; a reply that has not arrived whole is looked at again when more is there,
//! which costs little because a bulk's length is known from its first bytes.

use vocabulary::record::MAX_RECORD_LENGTH;
use vocabulary::{Code, KeyPrefix, MAX_CODE_LENGTH};

/// Room for the largest single reply that is not skipped: a bulk of the longest record with its
/// header and end, with much to spare for many smaller ones in one read.
pub const INPUT_LENGTH: usize = 64 * 1024;

/// The most bytes of a bulk that a reply may have at its top level; a longer one is reported and
/// skipped, never buffered. No record is longer.
const MAX_BULK: u64 = MAX_RECORD_LENGTH as u64;

/// The most bytes of a line: a number, a status or an error.
const MAX_LINE: usize = 1024;

/// How deep aggregates may be nested. Redis itself nests to 3 at most.
const MAX_DEPTH: u8 = 8;

/// Writes the commands that ask for link records.
#[derive(Clone, Debug)]
pub struct GetEncoder {
    /// The command up to the code, by the code's length: only the key's length differs.
    heads: [Vec<u8>; MAX_CODE_LENGTH + 1],
}

impl GetEncoder {
    /// Prepares for keys of a prefix.
    pub fn new(prefix: &KeyPrefix) -> Self {
        let heads = std::array::from_fn(|code_length| {
            let key_length = prefix.as_bytes().len() + 2 + code_length;
            let mut head = format!("*2\r\n$3\r\nGET\r\n${key_length}\r\n").into_bytes();
            head.extend_from_slice(prefix.as_bytes());
            head.extend_from_slice(b"l:");
            head
        });
        Self { heads }
    }

    /// Appends the command that asks for a link's record.
    #[inline]
    pub fn push_get(&self, code: &Code, out: &mut Vec<u8>) {
        let code = code.as_bytes();
        out.extend_from_slice(&self.heads[code.len()]);
        out.extend_from_slice(code);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends any command: an array of bulks.
pub fn push_command(arguments: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// One reply, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A string.
    Bulk(&'a [u8]),
    /// Nothing: the key does not exist.
    Null,
    /// An error, without the leading `-`.
    Error(&'a [u8]),
    /// A status, number, truth value or big number, as it stands on its line.
    Line(&'a [u8]),
    /// A string longer than any record: its length. Its bytes are skipped.
    Oversized(u64),
    /// An array, set or map: its bytes with the header.
    Aggregate(&'a [u8]),
    /// Something that Redis says of its own accord, in answer to no request: its bytes with the
    /// header.
    Push(&'a [u8]),
}

/// What stands at the beginning of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A reply and the number of bytes it takes.
    Reply(Reply<'a>, usize),
    /// Bytes that are not part of any reply: so many are passed over, decoding goes on behind.
    Skip(usize),
    /// Nothing whole: more must be read first.
    Incomplete,
}

/// The input is not RESP, or exceeds what a reply of our commands can be. The connection can't be
/// used any more: nobody knows where the next reply begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub &'static str);

/// Reads replies one after the other.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// Bytes of an oversized bulk that are still to be passed over.
    skip: u64,
}

impl Decoder {
    /// Reads what stands at the beginning of `input`.
    ///
    /// # Errors
    /// When it can't be a reply.
    #[inline]
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, ProtocolError> {
        if self.skip > 0 && !input.is_empty() {
            let skipped = usize::try_from(self.skip)
                .unwrap_or(usize::MAX)
                .min(input.len());
            self.skip -= skipped as u64;
            return Ok(Decoded::Skip(skipped));
        }
        let Some(&kind) = input.first() else {
            return Ok(Decoded::Incomplete);
        };
        if !b"$_-+:,#(*~%>|=!".contains(&kind) {
            return Err(ProtocolError("a reply begins with an unknown type"));
        }
        let Some((rest, used)) = line(input)? else {
            return Ok(Decoded::Incomplete);
        };
        Ok(match kind {
            b'$' => match length(rest)? {
                None => Decoded::Reply(Reply::Null, used),
                Some(length) if length > MAX_BULK => {
                    self.skip = length + 2;
                    Decoded::Reply(Reply::Oversized(length), used)
                }
                Some(length) => match bulk(input, used, length)? {
                    Some((value, end)) => Decoded::Reply(Reply::Bulk(value), end),
                    None => Decoded::Incomplete,
                },
            },
            b'_' => Decoded::Reply(Reply::Null, used),
            b'-' => Decoded::Reply(Reply::Error(rest), used),
            b'+' | b':' | b',' | b'#' | b'(' => Decoded::Reply(Reply::Line(rest), used),
            b'*' if length(rest)?.is_none() => Decoded::Reply(Reply::Null, used),
            _ => {
                match value_end(input, 0, MAX_DEPTH)? {
                    None if input.len() >= INPUT_LENGTH => {
                        return Err(ProtocolError("a reply is larger than the input buffer"));
                    }
                    None => Decoded::Incomplete,
                    Some(end) => match kind {
                        // An attribute says something of the reply behind it; nothing we need.
                        b'|' => Decoded::Skip(end),
                        b'>' => Decoded::Reply(Reply::Push(&input[..end]), end),
                        b'!' => Decoded::Reply(Reply::Error(&input[used..end - 2]), end),
                        _ => Decoded::Reply(Reply::Aggregate(&input[..end]), end),
                    },
                }
            }
        })
    }
}

/// The line that begins the input, without its first byte and its end, and where the next begins.
#[inline]
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let window = &input[..input.len().min(MAX_LINE)];
    let Some(end) = window.iter().position(|&byte| byte == b'\r') else {
        return if window.len() == MAX_LINE {
            Err(ProtocolError("a reply's line is too long"))
        } else {
            Ok(None)
        };
    };
    match input.get(end + 1) {
        // The type's byte must stand before the line's end.
        Some(b'\n') if end > 0 => Ok(Some((&input[1..end], end + 2))),
        Some(_) => Err(ProtocolError("a reply's line does not end in CR LF")),
        None => Ok(None),
    }
}

/// A length: `None` stands for RESP2's null, -1.
#[inline]
fn length(digits: &[u8]) -> Result<Option<u64>, ProtocolError> {
    if digits == b"-1" {
        return Ok(None);
    }
    // 512 MB is the most that Redis itself allows for a string.
    match vocabulary::number::parse_decimal(digits) {
        Some(length) if length <= 512 << 20 => Ok(Some(length)),
        _ => Err(ProtocolError("a reply's length is not a number in range")),
    }
}

/// The bulk of a length whose bytes begin at `start`, and where the next reply begins.
#[inline]
fn bulk(input: &[u8], start: usize, length: u64) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let Ok(length) = usize::try_from(length) else {
        return Err(ProtocolError("a reply's length is not a number in range"));
    };
    let end = start + length;
    match input.get(end..end + 2) {
        Some(b"\r\n") => Ok(Some((&input[start..end], end + 2))),
        Some(_) => Err(ProtocolError("a string does not end where its length says")),
        None => Ok(None),
    }
}

/// Where the value that begins at `start` ends, or `None` when it has not arrived whole.
fn value_end(input: &[u8], start: usize, depth: u8) -> Result<Option<usize>, ProtocolError> {
    let Some((rest, used)) = line(&input[start..])? else {
        return Ok(None);
    };
    let next = start + used;
    let per_element = match input[start] {
        b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => return Ok(Some(next)),
        b'$' | b'=' | b'!' => {
            return match length(rest)? {
                None => Ok(Some(next)),
                Some(length) => Ok(bulk(input, next, length)?.map(|(_, end)| end)),
            };
        }
        b'*' | b'~' | b'>' => 1,
        b'%' | b'|' => 2,
        _ => return Err(ProtocolError("a value begins with an unknown type")),
    };
    if depth == 0 {
        return Err(ProtocolError("a reply is nested too deeply"));
    }
    let mut end = next;
    for _ in 0..length(rest)?.unwrap_or(0) * per_element {
        match value_end(input, end, depth - 1)? {
            Some(element_end) => end = element_end,
            None => return Ok(None),
        }
    }
    // What an attribute is said of is the next value; at the top level the caller reads on.
    if input[start] == b'|' && depth < MAX_DEPTH {
        return value_end(input, end, depth - 1);
    }
    Ok(Some(end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every kind of reply, whole.
    fn replies() -> Vec<(Vec<u8>, Reply<'static>)> {
        let cases: [(&'static str, Reply<'static>); 15] = [
            ("$5\r\nhello\r\n", Reply::Bulk(b"hello")),
            ("$0\r\n\r\n", Reply::Bulk(b"")),
            ("$4\r\n\r\n\r\n\r\n", Reply::Bulk(b"\r\n\r\n")),
            ("$-1\r\n", Reply::Null),
            ("*-1\r\n", Reply::Null),
            ("_\r\n", Reply::Null),
            ("+OK\r\n", Reply::Line(b"OK")),
            (":-12\r\n", Reply::Line(b"-12")),
            (",1.5\r\n", Reply::Line(b"1.5")),
            ("#t\r\n", Reply::Line(b"t")),
            ("-ERR no\r\n", Reply::Error(b"ERR no")),
            ("!6\r\nERR no\r\n", Reply::Error(b"ERR no")),
            (
                "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
                Reply::Aggregate(b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n"),
            ),
            (
                "%1\r\n+a\r\n%0\r\n",
                Reply::Aggregate(b"%1\r\n+a\r\n%0\r\n"),
            ),
            (
                ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
                Reply::Push(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"),
            ),
        ];
        cases
            .into_iter()
            .map(|(text, reply)| (text.as_bytes().to_vec(), reply))
            .collect()
    }

    #[test]
    fn every_reply_is_read_whole_and_never_before_it_is_whole() {
        for (bytes, expected) in replies() {
            for cut in 0..bytes.len() {
                assert_eq!(
                    Decoder::default().decode(&bytes[..cut]),
                    Ok(Decoded::Incomplete),
                    "{expected:?} cut at {cut}"
                );
            }
            let mut more = bytes.clone();
            more.extend_from_slice(b"+next\r\n");
            let decoded = Decoder::default().decode(&more);
            assert_eq!(decoded, Ok(Decoded::Reply(expected, bytes.len())));
        }
    }

    #[test]
    fn an_attribute_is_passed_over() {
        let input = b"|1\r\n+ttl\r\n:3600\r\n$1\r\na\r\n";
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(input), Ok(Decoded::Skip(17)));
        assert_eq!(
            decoder.decode(&input[17..]),
            Ok(Decoded::Reply(Reply::Bulk(b"a"), 7))
        );
        // Within an aggregate it belongs to the element behind it.
        let nested = b"*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n";
        let whole = Reply::Aggregate(nested);
        assert_eq!(
            Decoder::default().decode(nested),
            Ok(Decoded::Reply(whole, nested.len()))
        );
    }

    #[test]
    fn an_oversized_string_is_reported_at_once_and_skipped_in_pieces() {
        let length = MAX_BULK + 1;
        let mut input = format!("${length}\r\n").into_bytes();
        let header = input.len();
        input.extend(std::iter::repeat_n(b'x', length as usize));
        input.extend_from_slice(b"\r\n$1\r\na\r\n");
        let mut decoder = Decoder::default();
        let first = decoder.decode(&input[..header]);
        assert_eq!(first, Ok(Decoded::Reply(Reply::Oversized(length), header)));
        assert_eq!(decoder.decode(b""), Ok(Decoded::Incomplete));
        let mut at = header;
        while let Ok(Decoded::Skip(skipped)) =
            decoder.decode(&input[at..input.len().min(at + 1000)])
        {
            at += skipped;
        }
        assert_eq!(&input[at..], b"$1\r\na\r\n");
        assert_eq!(
            decoder.decode(&input[at..]),
            Ok(Decoded::Reply(Reply::Bulk(b"a"), 7))
        );
    }

    #[test]
    fn what_is_not_resp_is_refused() {
        let deep = "*1\r\n".repeat(usize::from(MAX_DEPTH) + 1);
        for input in [
            "hello\r\n",
            "\r\n",
            "\n",
            "$\r\n",
            "$x\r\n",
            "$-2\r\n",
            "$01\r\na\r\n",
            "$99999999999\r\n",
            "$1\r\nab\r\n",
            "$1\r\na\rx",
            "+OK\rx",
            "*1\r\n?\r\n",
            "*x\r\n",
            &"+".repeat(MAX_LINE),
            &deep,
        ] {
            let refused = Decoder::default().decode(input.as_bytes());
            assert!(refused.is_err(), "{input:?}: {refused:?}");
        }
    }

    #[test]
    fn commands_are_arrays_of_bulks() {
        let mut out = Vec::new();
        push_command(&[b"HELLO", b"3"], &mut out);
        assert_eq!(out, b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
        let prefix = KeyPrefix::new(b"p:").expect("a prefix");
        let encoder = GetEncoder::new(&prefix);
        for code in ["a", "Ab3xK9q2", "ABCDEFGHIJKLMNOP"] {
            let code: Code = code.parse().expect("a code");
            let (mut fast, mut plain) = (Vec::new(), Vec::new());
            encoder.push_get(&code, &mut fast);
            push_command(&[b"GET", prefix.link_key(&code).as_bytes()], &mut plain);
            assert_eq!(fast, plain);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_panic_and_within_the_input(
            input in proptest::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"$*%>|-+:_\r\n0123456789".to_vec())], 0..64)
        ) {
            let mut decoder = Decoder::default();
            let mut at = 0;
            while let Ok(Decoded::Reply(_, used) | Decoded::Skip(used)) = decoder.decode(&input[at..]) {
                prop_assert!(used > 0 && at + used <= input.len());
                at += used;
            }
        }
    }
}
