//! RESP, the protocol of Redis, versions 2 and 3: the requests we send and the replies we read.
//!
//! Source: the Redis serialization protocol specification. The decoder reads a reply in place and
//! copies nothing; a reply that has not arrived whole is looked at again when more is there,
//! which costs little because a bulk's length is known from its first bytes.

pub mod value;

use vocabulary::record::MAX_RECORD_LENGTH;
use vocabulary::{Code, KeyPrefix, MAX_CODE_LENGTH};

use crate::key::Key;

/// Length of the input: enough for the largest single reply that is not skipped (a bulk of the
/// longest record with its header and end), with much to spare for many smaller ones in one read.
pub const INPUT_LENGTH: usize = 64 * 1024;

/// The most bytes of a bulk that a reply may have at its top level; a longer one is reported and
/// skipped, never buffered. No record is longer.
const MAX_BULK: u64 = MAX_RECORD_LENGTH as u64;

/// The most bytes of a line: a number, a status or an error.
const MAX_LINE: usize = 1024;

/// The deepest nesting of aggregates. Redis itself nests to 3 at most.
const MAX_DEPTH: u8 = 8;

/// Writes the commands that ask for records.
#[derive(Clone, Debug)]
pub struct GetEncoder {
    /// The command up to the code, by the code's length: only the key's length differs.
    heads: [Vec<u8>; MAX_CODE_LENGTH + 1],
    prefix: KeyPrefix,
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
        Self {
            heads,
            prefix: prefix.clone(),
        }
    }

    /// Appends the command that asks for a record.
    #[inline]
    pub fn push_get(&self, key: &Key, out: &mut Vec<u8>) {
        match key {
            Key::Link(code) => self.push_get_link(code, out),
            // Asked for once and kept: there is nothing to be gained by preparing it.
            Key::Campaign(id) => {
                push_command(&[b"GET", self.prefix.campaign_key(*id).as_bytes()], out);
            }
        }
    }

    #[inline]
    fn push_get_link(&self, code: &Code, out: &mut Vec<u8>) {
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
    /// A key has changed that was read on this connection or is broadcast to every client. One push
    /// of Redis may name any number of keys; they are handed out one by one.
    Invalidated(&'a [u8]),
    /// Every key may have changed.
    InvalidatedAll,
    /// Something else that Redis says of its own accord, in answer to no request: its bytes with
    /// the header.
    Push(&'a [u8]),
}

/// Beginning of the input, decoded.
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
/// used any more: the beginning of the next reply is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub &'static str);

/// Reads replies one after the other.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// The most bytes that an aggregate may take: those of the buffer it is read into.
    longest: usize,
    /// Bytes of an oversized bulk that are still to be passed over.
    skip: u64,
    /// Keys of an invalidation that are still to come.
    keys: u64,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(INPUT_LENGTH)
    }
}

impl Decoder {
    /// Begins to read what comes into a buffer of such a length.
    pub fn new(longest: usize) -> Self {
        Self {
            longest,
            skip: 0,
            keys: 0,
        }
    }

    /// Reads the beginning of `input`.
    ///
    /// # Errors
    /// Fails if it can't be a reply.
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
        if self.keys > 0 {
            return self.key(input, kind, rest, used);
        }
        if kind == b'>'
            && let Some(decoded) = self.invalidation(input, rest, used)?
        {
            return Ok(decoded);
        }
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
                    None if input.len() >= self.longest => {
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

impl Decoder {
    /// Reads the next key of an invalidation.
    fn key<'a>(
        &mut self,
        input: &'a [u8],
        kind: u8,
        rest: &[u8],
        used: usize,
    ) -> Result<Decoded<'a>, ProtocolError> {
        let (b'$', Some(length)) = (kind, length(rest)?) else {
            return Err(ProtocolError("an invalidation names no key"));
        };
        if length > MAX_BULK {
            // No link's key is so long.
            self.keys -= 1;
            self.skip = length + 2;
            return Ok(Decoded::Skip(used));
        }
        Ok(match bulk(input, used, length)? {
            Some((key, end)) => {
                self.keys -= 1;
                Decoded::Reply(Reply::Invalidated(key), end)
            }
            None => Decoded::Incomplete,
        })
    }

    /// Reads the beginning of a push with changed keys; `None` if it is another push.
    fn invalidation<'a>(
        &mut self,
        input: &'a [u8],
        rest: &[u8],
        used: usize,
    ) -> Result<Option<Decoded<'a>>, ProtocolError> {
        if rest != b"2" {
            return Ok(None);
        }
        let Some(what_end) = value_end(input, used, 1)? else {
            return Ok(Some(Decoded::Incomplete));
        };
        let what = &input[used..what_end];
        if what != b"$10\r\ninvalidate\r\n" && what != b"+invalidate\r\n" {
            return Ok(None);
        }
        let Some((keys, keys_used)) = line(&input[what_end..])? else {
            return Ok(Some(Decoded::Incomplete));
        };
        let end = what_end + keys_used;
        Ok(Some(match input[what_end] {
            b'_' => Decoded::Reply(Reply::InvalidatedAll, end),
            b'*' => match length(keys)? {
                None => Decoded::Reply(Reply::InvalidatedAll, end),
                Some(count) => {
                    self.keys = count;
                    Decoded::Skip(end)
                }
            },
            _ => {
                return Err(ProtocolError("an invalidation names no key"));
            }
        }))
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

/// Returns the end of the value that begins at `start`, or `None` if it has not arrived whole.
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
    // An attribute describes the next value; at the top level the caller reads on.
    if input[start] == b'|' && depth < MAX_DEPTH {
        return value_end(input, end, depth - 1);
    }
    Ok(Some(end))
}

#[cfg(test)]
mod tests;
