//! Visits: one followed link, as the edge reports it to the sidecar.
//!
//! Events travel in batches: one entry of a Redis stream holds any number of frames, one behind
//! the other, under the field [`BATCH_FIELD`]. Numbers are LEB128 (seven bits a byte, the least
//! significant first, the top bit set on all but the last byte).
//!
//! ```text
//! frame   := length(number, of what follows) version(1 byte) payload
//! payload := origin(8 bytes, little endian) sequence(number) time(number) status(number)
//!            method(1 byte) text × 7 evidence(number, may be missing)
//!            click(text, may be missing) variant(text, may be missing)
//! text    := length(number) bytes
//! ```
//!
//! The texts are, in order: code, host, client, user agent, referrer, accept language, purpose.
//! [`evidence`] describes the bits of the number behind them; without it nothing is known. The
//! [id of the click](crate::click) has 16 bytes; a text of another length is none. The
//! variant is the name of the [rule](crate::plan) that the visitor followed.
//! A reader skips what stands behind the fields that it knows, so that fields can be added within a
//! version; a frame of another version is handed over unread with its bytes, never guessed.

pub mod evidence;

use alloc::vec::Vec;
use core::fmt;

use crate::click::ClickId;
use crate::plan::MAX_VARIANT_LENGTH;
use evidence::VisitEvidence;

/// The version that this crate writes.
pub const VISIT_VERSION: u8 = 1;

/// The stream entry's field that holds the frames.
pub const BATCH_FIELD: &str = "b";

/// The most bytes stored of each text, in the order of the format. Longer texts are cut.
pub const TEXT_LIMITS: [usize; 7] = [64, 253, 45, 512, 512, 128, 32];

/// The most bytes that a frame has.
pub const MAX_FRAME_LENGTH: usize = 2048;

/// Names an event uniquely, so that one delivered twice is stored once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VisitId {
    /// A random number that a worker draws when it starts.
    pub origin: u64,
    /// Counts the worker's events from 0.
    pub sequence: u64,
}

/// The request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitMethod {
    /// GET.
    Get,
    /// HEAD: asked by a preview or a scanner, not followed by a person.
    Head,
    /// Any other.
    Other,
}

/// One followed link. Texts are bytes as the client sent them: not always UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitEvent<'a> {
    /// The event's name.
    pub id: VisitId,
    /// Time of the answer: milliseconds since 1970.
    pub time_ms: u64,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The request's method.
    pub method: VisitMethod,
    /// The link's code.
    pub code: &'a [u8],
    /// The short domain that was asked.
    pub host: &'a [u8],
    /// The client's address, in text.
    pub client: &'a [u8],
    /// The header `User-Agent`.
    pub user_agent: &'a [u8],
    /// The header `Referer`.
    pub referrer: &'a [u8],
    /// The header `Accept-Language`.
    pub accept_language: &'a [u8],
    /// The first of the headers `Sec-Purpose`, `Purpose`, `X-Purpose` and `X-Moz` that was sent.
    pub purpose: &'a [u8],
    /// Other properties of the request.
    pub evidence: VisitEvidence,
    /// The id that the target got.
    pub click: Option<ClickId>,
    /// The name of the rule that was followed; empty without one.
    pub variant: &'a [u8],
}

impl VisitEvent<'_> {
    /// Appends the event's frame. Texts over [`TEXT_LIMITS`] are cut.
    pub fn write(&self, out: &mut Vec<u8>) {
        let texts = [
            self.code,
            self.host,
            self.client,
            self.user_agent,
            self.referrer,
            self.accept_language,
            self.purpose,
        ];
        // The length stands before the payload, so the payload's is summed up first.
        let mut length = 1 + 8 + 1;
        length += number_length(self.id.sequence) + number_length(self.time_ms);
        length += number_length(self.status.into());
        for (text, limit) in texts.iter().zip(TEXT_LIMITS) {
            let kept = text.len().min(limit);
            length += number_length(kept as u64) + kept;
        }
        let evidence = u64::from(self.evidence.number());
        let variant = &self.variant[..self.variant.len().min(MAX_VARIANT_LENGTH)];
        // Each stands behind the one before.
        let has_click = self.click.is_some() || !variant.is_empty();
        let has_evidence = self.evidence != VisitEvidence::UNKNOWN || has_click;
        if has_evidence {
            length += number_length(evidence);
        }
        if has_click {
            length += 1 + self.click.map_or(0, |_| 16);
        }
        if !variant.is_empty() {
            length += 1 + variant.len();
        }
        out.reserve(length + 2);
        push_number(out, length as u64);
        out.push(VISIT_VERSION);
        out.extend_from_slice(&self.id.origin.to_le_bytes());
        push_number(out, self.id.sequence);
        push_number(out, self.time_ms);
        push_number(out, self.status.into());
        out.push(match self.method {
            VisitMethod::Get => 0,
            VisitMethod::Head => 1,
            VisitMethod::Other => 2,
        });
        for (text, limit) in texts.iter().zip(TEXT_LIMITS) {
            let kept = &text[..text.len().min(limit)];
            push_number(out, kept.len() as u64);
            out.extend_from_slice(kept);
        }
        if has_evidence {
            push_number(out, evidence);
        }
        match self.click {
            Some(ClickId(bytes)) => {
                push_number(out, 16);
                out.extend_from_slice(&bytes);
            }
            None if has_click => push_number(out, 0),
            None => {}
        }
        if !variant.is_empty() {
            push_number(out, variant.len() as u64);
            out.extend_from_slice(variant);
        }
    }
}

/// Reads the frames of a batch one after the other.
///
/// A frame that can't be read is an error in its place; reading goes on behind it as long as its
/// length can be trusted.
#[derive(Clone, Debug)]
pub struct VisitFrames<'a> {
    rest: &'a [u8],
}

impl<'a> VisitFrames<'a> {
    /// Begins at the first frame of a batch.
    pub fn new(batch: &'a [u8]) -> Self {
        Self { rest: batch }
    }

    /// Returns the bytes that are not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for VisitFrames<'a> {
    type Item = Result<VisitEvent<'a>, VisitError<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let whole = self.rest;
        let mut cursor = Cursor(whole);
        let frame = cursor
            .number()
            .and_then(|length| usize::try_from(length).ok())
            .filter(|&length| length <= MAX_FRAME_LENGTH)
            .and_then(|length| cursor.bytes(length));
        let Some(frame) = frame else {
            self.rest = &[];
            return Some(Err(VisitError::Cut(whole)));
        };
        self.rest = cursor.0;
        Some(match frame.split_first() {
            Some((&VISIT_VERSION, payload)) => {
                read_payload(payload).ok_or(VisitError::Malformed(frame))
            }
            Some(_) => Err(VisitError::Version(frame)),
            None => Err(VisitError::Malformed(frame)),
        })
    }
}

fn read_payload(payload: &[u8]) -> Option<VisitEvent<'_>> {
    let mut cursor = Cursor(payload);
    let mut origin = [0; 8];
    origin.copy_from_slice(cursor.bytes(8)?);
    Some(VisitEvent {
        id: VisitId {
            origin: u64::from_le_bytes(origin),
            sequence: cursor.number()?,
        },
        time_ms: cursor.number()?,
        status: u16::try_from(cursor.number()?).ok()?,
        method: match cursor.bytes(1)? {
            [0] => VisitMethod::Get,
            [1] => VisitMethod::Head,
            [2] => VisitMethod::Other,
            _ => return None,
        },
        code: cursor.text()?,
        host: cursor.text()?,
        client: cursor.text()?,
        user_agent: cursor.text()?,
        referrer: cursor.text()?,
        accept_language: cursor.text()?,
        purpose: cursor.text()?,
        evidence: cursor
            .number()
            .map_or(VisitEvidence::UNKNOWN, VisitEvidence::from_number),
        click: cursor
            .text()
            .and_then(|bytes| bytes.try_into().ok().map(ClickId)),
        variant: cursor.text().unwrap_or_default(),
    })
}

/// Reason for which a frame can't be read, with the bytes it concerns: they go to quarantine
/// unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitError<'a> {
    /// The frame's length is wrong or the batch ends within it. Nothing behind it can be read.
    Cut(&'a [u8]),
    /// The frame is of another version.
    Version(&'a [u8]),
    /// The frame is of this version but is not an event.
    Malformed(&'a [u8]),
}

impl fmt::Display for VisitError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut(_) => "the batch ends within a visit",
            Self::Version(_) => "the visit is of an unknown version",
            Self::Malformed(_) => "the visit can't be read",
        })
    }
}

impl core::error::Error for VisitError<'_> {}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for place in 0..10 {
            let byte = self.bytes(1)?[0];
            let bits = u64::from(byte & 0x7f);
            // The tenth byte only holds the top bit of a u64.
            if place == 9 && bits > 1 {
                return None;
            }
            value |= bits << (7 * place);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.bytes(length)
    }
}

fn push_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number_length(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}
