//! The record that stands under a link's or a campaign's key in Redis.
//!
//! A record is text, so that an operator can read it in `redis-cli`: fields separated by single
//! spaces, numbers in decimal without leading zeros.
//!
//! ```text
//! 1 302 7 0 https://example.com/a?b=c     a link: version, kind, revision, validity, target
//! 1 302q 7 0 https://example.com/         the same, and the visitor's query is passed on
//! 1 302k 7 0 https://example.com/?c= #f   the same, and a click id goes to where the space is
//! 1 302 7 1760000000-1767225600 https://… the same, live in this time only
//! 1 410 8                                 a link that was revoked, or is paused
//! 1 404 3                                 an unknown code (negative; expires in Redis)
//! 2 302 7 0 T20:https://example.com/R29:d=i https://apps.example.com/    a link with a plan
//! 1 C4f 7 0 Wien&b%20c                    a link of the campaign 4f: its parameters
//! c4f Wien&b%20c                          the same with revision 1 and no bounds in time
//! ```
//!
//! - **version**: `1`, or `2` for a link or campaign whose target is a [plan](crate::plan), which older readers do not
//!   know. A record of another version is a miss for its reader, never a guess.
//! - **kind**: the redirect status of a live link (301, 302, 307, 308), with a `q` when the
//!   visitor's query is appended to the target, or a `k` or `kq` when the target has a place for
//!   the [id of the click](crate::click) (only 302 and 307); or 410, or 404; or `C` with the
//!   [id](crate::campaign) of the campaign that the link belongs to. A kind that a reader does not
//!   know is a miss too.
//! - **revision**: grows with every change of the link in SQL. Version, kind and revision stay
//!   the first three fields in every future version, so that a writer can always compare the
//!   revision in Redis with its own. The one exception is the compact form of a
//!   campaign's link, whose revision is 1. A negative record has the
//!   [generation](crate::generation) of the data set that it was written to in this place; its
//!   writers never take it for newer than a link. 0 is no generation: nothing proves such a record.
//! - **validity**: from when and until when the link redirects ([`crate::validity`]). Before, it is
//!   answered like an unknown code, afterwards with 410. The key itself does not expire with the
//!   link: an expired link must stay distinct from an unknown one.
//! - **target**: the rest, as it goes into the `Location` header ([`crate::target`]); of the kinds
//!   with `k`, one space in its query or fragment is the place of the click id. In version 2, a plan.
//! - **parameters**: the rest, what the campaign's template is filled with
//!   ([`crate::parameters`]); it may be empty.
//!
//! A link of a campaign is compact whenever it can be: there are millions of them, and a value of
//! at most 12 bytes lets Redis keep a link in 88 bytes instead of 104. Where it is not compact
//! although it could be, it is read all the same.
//!
//! The record under a campaign's key has the grammar of a link's, but its target is a
//! [template](crate::template), and it is of no campaign itself. Its status, its query, its 410 and
//! its validity, besides each link's own, apply to all its links.

use alloc::vec::Vec;
use core::fmt;

use crate::campaign::CampaignId;
use crate::number::{parse_decimal, push_decimal};
use crate::parameters::Parameters;
use crate::plan::MAX_PLAN_LENGTH;
use crate::validity::Validity;

/// The version of records without a plan.
pub const RECORD_VERSION: u8 = 1;

/// The version of records with a plan.
pub const PLAN_RECORD_VERSION: u8 = 2;

/// The largest revision: 2^53 - 1, the largest whole number that Redis' scripts compare exactly.
pub const MAX_REVISION: u64 = (1 << 53) - 1;

/// The revision of a campaign's link whose record is compact.
pub const COMPACT_REVISION: u64 = 1;

/// The most bytes that a record has.
pub const MAX_RECORD_LENGTH: usize =
    "2 302kq 9007199254740991  ".len() + Validity::LONGEST + MAX_PLAN_LENGTH;

/// Status of a redirect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedirectStatus {
    /// 301 Moved Permanently. Caches keep it: later visits and a revocation are not seen.
    MovedPermanently,
    /// 302 Found.
    #[default]
    Found,
    /// 307 Temporary Redirect: the method does not change.
    TemporaryRedirect,
    /// 308 Permanent Redirect: caches store it like 301, and the method does not change.
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

    /// The status that no client caches, with the same treatment of the method.
    pub fn temporary(self) -> Self {
        match self {
            Self::MovedPermanently => Self::Found,
            Self::PermanentRedirect => Self::TemporaryRedirect,
            temporary => temporary,
        }
    }

    /// Reports whether a client may cache the answer and skip the short link next time.
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::MovedPermanently | Self::PermanentRedirect)
    }
}

/// A record, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A link that redirects to a target of its own; or a campaign, whose target is a template.
    Link(LinkRecord<'a>),
    /// A link of a campaign.
    CampaignLink(CampaignLinkRecord<'a>),
    /// A link or campaign that was revoked or is paused.
    Revoked {
        /// The link's revision, at most [`MAX_REVISION`].
        revision: u64,
    },
    /// A code that SQL did not know when it was last queried.
    Unknown {
        /// The generation of the data set that the record was written to, at most
        /// [`MAX_REVISION`]; 0 of writers that knew none.
        generation: u64,
    },
}

/// A link that redirects to a target of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRecord<'a> {
    /// Status of the redirect.
    pub status: RedirectStatus,
    /// Appends the visitor's query to the target.
    pub forwards_query: bool,
    /// The target has a place for the id of a click. The redirect is not permanent: one id would be repeated.
    pub has_click_id: bool,
    /// The link's revision, at most [`MAX_REVISION`].
    pub revision: u64,
    /// Period in which it redirects.
    pub validity: Validity,
    /// The target is a [plan](crate::plan).
    pub is_plan: bool,
    /// Target of the redirect. Reading a record does not check it: see
    /// [`is_servable`](crate::target::is_servable), or
    /// [`Template::parse`](crate::template::Template::parse) for a campaign.
    pub target: &'a [u8],
}

/// A link of a campaign, which has the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CampaignLinkRecord<'a> {
    /// The campaign.
    pub campaign: CampaignId,
    /// The link's revision, at most [`MAX_REVISION`].
    pub revision: u64,
    /// Period in which it redirects, if its campaign does.
    pub validity: Validity,
    /// Parameters of the campaign's template.
    pub parameters: Parameters<'a>,
}

impl<'a> Record<'a> {
    /// Reads a record.
    ///
    /// # Errors
    /// Fails if it is of another version or kind, or is not a record. Whatever the reason, the
    /// reader treats it as a miss.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let (version, rest) = field(bytes).ok_or(RecordError::Malformed)?;
        if version != b"1" {
            return Self::parse_other_version(version, rest);
        }
        Self::parse_kind(rest, false)
    }

    #[inline]
    fn parse_kind(rest: &'a [u8], is_plan: bool) -> Result<Self, RecordError> {
        let (kind, rest) = field(rest).ok_or(RecordError::Malformed)?;
        let (status, forwards_query) = match kind {
            b"302" => (RedirectStatus::Found, false),
            b"301" => (RedirectStatus::MovedPermanently, false),
            b"307" => (RedirectStatus::TemporaryRedirect, false),
            b"308" => (RedirectStatus::PermanentRedirect, false),
            b"302q" => (RedirectStatus::Found, true),
            b"301q" => (RedirectStatus::MovedPermanently, true),
            b"307q" => (RedirectStatus::TemporaryRedirect, true),
            b"308q" => (RedirectStatus::PermanentRedirect, true),
            // Of links with a plan there are the kinds above only.
            [b'4' | b'C', ..] if is_plan => return Err(RecordError::Kind),
            b"410" => {
                let revision = revision(rest).ok_or(RecordError::Malformed)?;
                return Ok(Self::Revoked { revision });
            }
            b"404" => {
                let generation = revision(rest).ok_or(RecordError::Malformed)?;
                return Ok(Self::Unknown { generation });
            }
            b"" => return Err(RecordError::Malformed),
            [b'C', id @ ..] => {
                let campaign = CampaignId::parse(id).ok_or(RecordError::Kind)?;
                let (revision, validity, rest) = times(rest).ok_or(RecordError::Malformed)?;
                return Ok(Self::CampaignLink(CampaignLinkRecord {
                    campaign,
                    revision,
                    validity,
                    parameters: Parameters::parse(rest).ok_or(RecordError::Malformed)?,
                }));
            }
            _ => return Self::parse_with_click_id(kind, rest, is_plan),
        };
        Self::parse_link(status, forwards_query, false, rest, is_plan)
    }

    /// Reads the record of a link whose target gets the id of a click.
    #[cold]
    fn parse_with_click_id(
        kind: &[u8],
        rest: &'a [u8],
        is_plan: bool,
    ) -> Result<Self, RecordError> {
        let (status, forwards_query) = match kind {
            b"302k" => (RedirectStatus::Found, false),
            b"307k" => (RedirectStatus::TemporaryRedirect, false),
            b"302kq" => (RedirectStatus::Found, true),
            b"307kq" => (RedirectStatus::TemporaryRedirect, true),
            _ => return Err(RecordError::Kind),
        };
        Self::parse_link(status, forwards_query, true, rest, is_plan)
    }

    #[inline]
    fn parse_link(
        status: RedirectStatus,
        forwards_query: bool,
        has_click_id: bool,
        rest: &'a [u8],
        is_plan: bool,
    ) -> Result<Self, RecordError> {
        let (revision, validity, target) = times(rest).ok_or(RecordError::Malformed)?;
        if target.is_empty() {
            return Err(RecordError::Malformed);
        }
        Ok(Self::Link(LinkRecord {
            status,
            forwards_query,
            has_click_id,
            revision,
            validity,
            is_plan,
            target,
        }))
    }

    /// Reads what does not begin with the number of the first version.
    fn parse_other_version(version: &[u8], rest: &'a [u8]) -> Result<Self, RecordError> {
        if version == b"2" {
            return Self::parse_kind(rest, true);
        }
        let [b'c', id @ ..] = version else {
            return Err(match parse_decimal(version) {
                Some(_) => RecordError::Version,
                None => RecordError::Malformed,
            });
        };
        Ok(Self::CampaignLink(CampaignLinkRecord {
            campaign: CampaignId::parse(id).ok_or(RecordError::Malformed)?,
            revision: COMPACT_REVISION,
            validity: Validity::ALWAYS,
            parameters: Parameters::parse(rest).ok_or(RecordError::Malformed)?,
        }))
    }

    /// Appends the record as [`Record::parse`] reads it. The caller keeps to the bounds that the
    /// fields name.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Link(link) => {
                let version = match link.is_plan {
                    false => RECORD_VERSION,
                    true => PLAN_RECORD_VERSION,
                };
                push_decimal(out, version.into());
                out.push(b' ');
                push_decimal(out, link.status.code().into());
                if link.has_click_id {
                    out.push(b'k');
                }
                if link.forwards_query {
                    out.push(b'q');
                }
                push_times(out, link.revision, link.validity);
                out.extend_from_slice(link.target);
            }
            Self::CampaignLink(link) => {
                let is_compact =
                    link.revision == COMPACT_REVISION && link.validity == Validity::ALWAYS;
                out.extend_from_slice(if is_compact { b"c" } else { b"1 C" });
                link.campaign.with_text(|id| out.extend_from_slice(id));
                if is_compact {
                    out.push(b' ');
                } else {
                    push_times(out, link.revision, link.validity);
                }
                out.extend_from_slice(link.parameters.as_bytes());
            }
            Self::Revoked { revision } => {
                out.extend_from_slice(b"1 410 ");
                push_decimal(out, *revision);
            }
            Self::Unknown { generation } => {
                out.extend_from_slice(b"1 404 ");
                push_decimal(out, *generation);
            }
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

/// Reads the revision and the validity that begin `bytes`, and returns them with the rest.
#[inline]
fn times(bytes: &[u8]) -> Option<(u64, Validity, &[u8])> {
    let (revision_text, rest) = field(bytes)?;
    let (validity, rest) = field(rest)?;
    Some((revision(revision_text)?, Validity::parse(validity)?, rest))
}

fn push_times(out: &mut Vec<u8>, revision: u64, validity: Validity) {
    out.push(b' ');
    push_decimal(out, revision);
    out.push(b' ');
    validity.write(out);
    out.push(b' ');
}

fn revision(text: &[u8]) -> Option<u64> {
    parse_decimal(text).filter(|&revision| revision <= MAX_REVISION)
}

/// Reason for which the value of a link's or a campaign's key can't be read.
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
