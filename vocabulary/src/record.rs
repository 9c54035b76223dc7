//! The record that stands under a link's key in Redis.
//!
//! A record is text, so that an operator can read it in `redis-cli`: fields parted by single
//! spaces, numbers in decimal without leading zeros.
//!
//! ```text
//! 1 302 7 0 https://example.com/a?b=c     a link: version, status, revision, expiry, target
//! 1 410 8                                 a revoked link
//! 1 404 0                                 nobody knows this code (negative; expires in Redis)
//! 1 C 7 0 <campaign> <parameters…>        reserved: a link of a campaign
//! ```
//!
//! - **version**: `1`. A record of another version is a miss for its reader, never a guess.
//! - **kind**: the redirect status of a live link (301, 302, 307, 308), or 410, or 404. A kind
//!   that a reader does not know is a miss too; that is the room left for campaign links.
//! - **revision**: grows with every change of the link in SQL. Version, kind and revision stay
//!   the first three fields in every version to come, so that a writer can always tell whether
//!   what stands in Redis is newer than what it brings.
//! - **expiry**: the second since 1970 from which the link answers 410; 0 for never. The key
//!   itself does not expire with the link: an expired link must stay distinct from an unknown
//!   one.
//! - **target**: the rest, as it goes into the `Location` header ([`crate::target`]).

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU64;

use crate::number::{parse_decimal, push_decimal};
use crate::target;

/// The version that this crate writes.
pub const RECORD_VERSION: u8 = 1;

/// The largest revision: 2^53 - 1, the largest whole number that Redis' scripts compare exactly.
pub const MAX_REVISION: u64 = (1 << 53) - 1;

/// The last second that an expiry may name: the end of the year 9999.
pub const MAX_EXPIRY: u64 = 253_402_300_799;

/// The most bytes that a record of this version has.
pub const MAX_RECORD_LENGTH: usize =
    "1 302 9007199254740991 253402300799 ".len() + target::MAX_TARGET_LENGTH;

/// How a redirect is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedirectStatus {
    /// 301 Moved Permanently. Caches keep it: later visits and a revocation are not seen.
    MovedPermanently,
    /// 302 Found.
    #[default]
    Found,
    /// 307 Temporary Redirect: the method is kept.
    TemporaryRedirect,
    /// 308 Permanent Redirect: kept by caches like 301, and the method is kept.
    PermanentRedirect,
}

impl RedirectStatus {
    /// The status of each code that a link may have, for messages that list what is allowed.
    pub const CODES: &'static str = "301, 302, 307, 308";

    /// Finds a status by its number.
    pub fn from_code(code: u16) -> Option<Self> {
        match code {
            301 => Some(Self::MovedPermanently),
            302 => Some(Self::Found),
            307 => Some(Self::TemporaryRedirect),
            308 => Some(Self::PermanentRedirect),
            _ => None,
        }
    }

    /// The status' number.
    pub fn code(self) -> u16 {
        match self {
            Self::MovedPermanently => 301,
            Self::Found => 302,
            Self::TemporaryRedirect => 307,
            Self::PermanentRedirect => 308,
        }
    }

    /// Whether a client may keep the answer and skip the short link next time.
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::MovedPermanently | Self::PermanentRedirect)
    }
}

/// A record, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A link that redirects until it expires.
    Link(LinkRecord<'a>),
    /// A link that was revoked.
    Revoked {
        /// The link's revision, at most [`MAX_REVISION`].
        revision: u64,
    },
    /// A code that nobody knew when SQL was last asked.
    Unknown,
}

/// A link that redirects until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRecord<'a> {
    /// How the redirect is answered.
    pub status: RedirectStatus,
    /// The link's revision, at most [`MAX_REVISION`].
    pub revision: u64,
    /// The second since 1970 from which the link answers 410, at most [`MAX_EXPIRY`].
    pub expiry: Option<NonZeroU64>,
    /// Where the redirect leads. Reading a record does not check it: [`target::is_servable`].
    pub target: &'a [u8],
}

impl LinkRecord<'_> {
    /// Whether the link answers 410 at a moment, in seconds since 1970.
    #[inline]
    pub fn is_expired(&self, now: u64) -> bool {
        self.expiry.is_some_and(|expiry| now >= expiry.get())
    }
}

impl<'a> Record<'a> {
    /// Reads a record.
    ///
    /// # Errors
    /// When it is of another version or kind, or is not a record. Whatever the reason, the reader
    /// treats it as a miss.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let (version, rest) = field(bytes).ok_or(RecordError::Malformed)?;
        if version != b"1" {
            return Err(match parse_decimal(version) {
                Some(_) => RecordError::Version,
                None => RecordError::Malformed,
            });
        }
        let (kind, rest) = field(rest).ok_or(RecordError::Malformed)?;
        let status = match kind {
            b"302" => RedirectStatus::Found,
            b"301" => RedirectStatus::MovedPermanently,
            b"307" => RedirectStatus::TemporaryRedirect,
            b"308" => RedirectStatus::PermanentRedirect,
            b"410" => {
                let revision = revision(rest).ok_or(RecordError::Malformed)?;
                return Ok(Self::Revoked { revision });
            }
            b"404" if rest == b"0" => return Ok(Self::Unknown),
            b"404" | b"" => return Err(RecordError::Malformed),
            _ => return Err(RecordError::Kind),
        };
        let (revision_text, rest) = field(rest).ok_or(RecordError::Malformed)?;
        let (expiry, target) = field(rest).ok_or(RecordError::Malformed)?;
        let expiry = parse_decimal(expiry)
            .filter(|&second| second <= MAX_EXPIRY)
            .ok_or(RecordError::Malformed)?;
        if target.is_empty() {
            return Err(RecordError::Malformed);
        }
        Ok(Self::Link(LinkRecord {
            status,
            revision: revision(revision_text).ok_or(RecordError::Malformed)?,
            expiry: NonZeroU64::new(expiry),
            target,
        }))
    }

    /// Appends the record as [`Record::parse`] reads it. The caller keeps to the bounds that the
    /// fields name.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Link(link) => {
                out.extend_from_slice(b"1 ");
                push_decimal(out, link.status.code().into());
                out.push(b' ');
                push_decimal(out, link.revision);
                out.push(b' ');
                push_decimal(out, link.expiry.map_or(0, NonZeroU64::get));
                out.push(b' ');
                out.extend_from_slice(link.target);
            }
            Self::Revoked { revision } => {
                out.extend_from_slice(b"1 410 ");
                push_decimal(out, *revision);
            }
            Self::Unknown => out.extend_from_slice(b"1 404 0"),
        }
    }

    /// The record's text.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

/// The bytes up to the next space, and those behind it.
#[inline]
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().position(|&byte| byte == b' ')?;
    Some((&bytes[..space], &bytes[space + 1..]))
}

fn revision(text: &[u8]) -> Option<u64> {
    parse_decimal(text).filter(|&revision| revision <= MAX_REVISION)
}

/// Why a value under a link's key can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// It is of another version.
    Version,
    /// It is of a kind that this version's readers do not know.
    Kind,
    /// It is not a record at all.
    Malformed,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "the record is of an unknown version",
            Self::Kind => "the record is of an unknown kind",
            Self::Malformed => "the value is not a record",
        })
    }
}

impl core::error::Error for RecordError {}
