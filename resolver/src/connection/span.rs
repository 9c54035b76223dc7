//! Position of a reply in a connection's input.

use std::ops::Range;

use crate::resp::Reply;

/// A reply's place in the input; valid until more is read.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    kind: Kind,
    bytes: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Bulk,
    Null,
    Error,
    Line,
    Oversized,
    Aggregate,
    Invalidated,
    InvalidatedAll,
    Push,
}

impl Span {
    /// Returns the position of a reply that ends before `end`. The content of a reply is followed
    /// by a line's end, but aggregates are handed out whole.
    #[inline]
    pub(super) fn of(reply: &Reply<'_>, end: usize) -> Self {
        let (kind, length, behind) = match reply {
            Reply::Bulk(bytes) => (Kind::Bulk, bytes.len(), 2),
            Reply::Null => (Kind::Null, 0, 0),
            Reply::Error(bytes) => (Kind::Error, bytes.len(), 2),
            Reply::Line(bytes) => (Kind::Line, bytes.len(), 2),
            Reply::Oversized(_) => (Kind::Oversized, 0, 0),
            Reply::Aggregate(bytes) => (Kind::Aggregate, bytes.len(), 0),
            Reply::Invalidated(bytes) => (Kind::Invalidated, bytes.len(), 2),
            Reply::InvalidatedAll => (Kind::InvalidatedAll, 0, 0),
            Reply::Push(bytes) => (Kind::Push, bytes.len(), 0),
        };
        let end = end - behind;
        Self {
            kind,
            bytes: end - length..end,
        }
    }

    /// Reports whether it is a push.
    pub(super) fn is_unasked(&self) -> bool {
        matches!(
            self.kind,
            Kind::Push | Kind::Invalidated | Kind::InvalidatedAll
        )
    }

    /// Returns the reply at the position.
    #[inline]
    pub(super) fn reply<'a>(&self, input: &'a [u8]) -> Reply<'a> {
        let bytes = input.get(self.bytes.clone()).unwrap_or_default();
        match self.kind {
            Kind::Bulk => Reply::Bulk(bytes),
            Kind::Null => Reply::Null,
            Kind::Error => Reply::Error(bytes),
            Kind::Line => Reply::Line(bytes),
            Kind::Oversized => Reply::Oversized(self.bytes.len() as u64),
            Kind::Aggregate => Reply::Aggregate(bytes),
            Kind::Invalidated => Reply::Invalidated(bytes),
            Kind::InvalidatedAll => Reply::InvalidatedAll,
            Kind::Push => Reply::Push(bytes),
        }
    }
}
