//! The names of Redis keys.
//!
//! | key | type | what |
//! |---|---|---|
//! | `<prefix>l:<code>` | string | the link's [record](crate::record) |
//! | `<prefix>c:<id>` | string | a campaign's record, of the same grammar |
//! | `<prefix>n:<name>` | string | a counter that all sidecars share |
//! | `<prefix>v:{<shard>}` | stream | batches of [visit events](crate::visit) |
//! | `<prefix>gen` | string | the [generation](crate::generation) of the data set |
//! | `<prefix>gen{<tag>}` | string | the same in a cluster, one for each master |
//!
//! Every command names one key, so that the same names work on Redis Cluster. The braces of the
//! visit streams are Redis' hash tags: they pin each shard's stream to one slot. The tags of
//! generations are the numbers below [`GENERATION_TAGS`]; of a master, the smallest one whose slot it
//! owns. Writers and readers find it in the cluster's map. A master that owns the slot of none, which
//! has few slots, has no generation.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::campaign::CampaignId;
use crate::code::{Code, MAX_CODE_LENGTH};

/// The number of tags for keys of generations in a cluster.
pub const GENERATION_TAGS: u16 = 1024;

/// Prefix of every key, so that several services can share one Redis.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPrefix {
    bytes: [u8; Self::LONGEST],
    length: u8,
}

impl KeyPrefix {
    /// The most bytes that a prefix has.
    pub const LONGEST: usize = 32;

    /// The most bytes that a link's key has.
    pub const LONGEST_LINK_KEY: usize = Self::LONGEST + 2 + MAX_CODE_LENGTH;

    /// Takes a prefix; it may be empty.
    ///
    /// # Errors
    /// Fails if it is longer than [`KeyPrefix::LONGEST`], or has a character that is not a visible
    /// ASCII one or is a brace: a brace would move every key to one slot of a cluster.
    pub fn new(text: &[u8]) -> Result<Self, KeyPrefixError> {
        if text.len() > Self::LONGEST {
            return Err(KeyPrefixError::TooLong);
        }
        if !text
            .iter()
            .all(|&byte| byte.is_ascii_graphic() && byte != b'{' && byte != b'}')
        {
            return Err(KeyPrefixError::Character);
        }
        let mut bytes = [0; Self::LONGEST];
        bytes[..text.len()].copy_from_slice(text);
        Ok(Self {
            bytes,
            length: text.len() as u8,
        })
    }

    /// The prefix's characters.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        // Every character was checked to be ASCII when the value was made.
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Appends the key of a link's record.
    #[inline]
    pub fn push_link_key(&self, code: &Code, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
        out.extend_from_slice(b"l:");
        out.extend_from_slice(code.as_bytes());
    }

    /// The key of a link's record.
    pub fn link_key(&self, code: &Code) -> String {
        alloc::format!("{}l:{code}", self.as_str())
    }

    /// The code whose record stands under `key`, or `None` for a key of another kind.
    pub fn code_of_link_key(&self, key: &[u8]) -> Option<Code> {
        let code = key.strip_prefix(self.as_bytes())?.strip_prefix(b"l:")?;
        Code::parse(code).ok()
    }

    /// The key of a campaign's record.
    pub fn campaign_key(&self, campaign: CampaignId) -> String {
        alloc::format!("{}c:{campaign}", self.as_str())
    }

    /// The key of a counter.
    pub fn counter_key(&self, name: &str) -> String {
        alloc::format!("{}n:{name}", self.as_str())
    }

    /// The campaign whose record stands under `key`, or `None` for a key of another kind.
    pub fn campaign_of_key(&self, key: &[u8]) -> Option<CampaignId> {
        let id = key.strip_prefix(self.as_bytes())?.strip_prefix(b"c:")?;
        CampaignId::parse(id)
    }

    /// The key of a shard's stream of visits.
    pub fn visit_stream_key(&self, shard: u16) -> String {
        alloc::format!("{}v:{{{shard}}}", self.as_str())
    }

    /// The key of the data set's generation; in a cluster of the master that owns the slot of `tag`,
    /// a number below [`GENERATION_TAGS`].
    pub fn generation_key(&self, tag: Option<u16>) -> String {
        match tag {
            Some(tag) => alloc::format!("{}gen{{{tag}}}", self.as_str()),
            None => alloc::format!("{}gen", self.as_str()),
        }
    }
}

impl Default for KeyPrefix {
    /// `sl:`
    fn default() -> Self {
        let mut bytes = [0; Self::LONGEST];
        bytes[..3].copy_from_slice(b"sl:");
        Self { bytes, length: 3 }
    }
}

impl fmt::Debug for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPrefix({})", self.as_str())
    }
}

/// Reason for which a text can't be a prefix of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPrefixError {
    /// It has more than [`KeyPrefix::LONGEST`] bytes.
    TooLong,
    /// A character is not a visible ASCII one, or is a brace.
    Character,
}

impl fmt::Display for KeyPrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "a key prefix has at most {} bytes", KeyPrefix::LONGEST),
            Self::Character => {
                f.write_str("a key prefix consists of visible ASCII characters without { and }")
            }
        }
    }
}

impl core::error::Error for KeyPrefixError {}
