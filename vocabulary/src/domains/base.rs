//! Prefixes of short URLs, as nginx sends them to the sidecar: `https://a.example weight=3` for
//! each active domain, separated by commas.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use crate::campaign::CampaignId;
use crate::number::parse_decimal;

/// The largest weight of a domain.
pub const MAX_WEIGHT: u32 = 1000;

/// The most characters of the id of an API key.
const MAX_KEY_ID: usize = 64;

/// Restriction of a domain to some links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundTo {
    /// Those of a campaign.
    Campaign(CampaignId),
    /// Those that were asked for with an API key, by its id.
    Key(String),
}

impl BoundTo {
    /// The links of an API key; `None` when this is no id of one.
    pub fn key(id: &[u8]) -> Option<Self> {
        let is_id = (1..=MAX_KEY_ID).contains(&id.len())
            && id
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        let id = core::str::from_utf8(id).ok().filter(|_| is_id)?;
        Some(Self::Key(id.to_owned()))
    }
}

/// Prefix of the short URLs on a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Scheme, host and perhaps port, without a slash at the end.
    pub url: String,
    /// Its share of the links, relative to other domains: 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// Links that it is restricted to; `None` for no restriction.
    pub bound: Option<BoundTo>,
}

impl Base {
    /// Appends it as [`Base::parse_all`] reads it.
    pub fn push_to(&self, out: &mut String) {
        out.push_str(&self.url);
        if self.weight != 1 {
            out.push_str(&format!(" weight={}", self.weight));
        }
        match &self.bound {
            None => {}
            Some(BoundTo::Campaign(id)) => {
                // Writing to a string does not fail.
                let _written = write!(out, " campaign={id}");
            }
            Some(BoundTo::Key(id)) => {
                out.push_str(" key=");
                out.push_str(id);
            }
        }
    }

    /// Reads the list of active domains. An entry with an unknown parameter is skipped: a
    /// restricted domain must not be taken for an unrestricted one.
    pub fn parse_all(text: &str) -> impl Iterator<Item = Self> {
        text.split(',').filter_map(|one| Self::parse(one.trim()))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let mut base = Self {
            url: words.next()?.to_owned(),
            weight: 1,
            bound: None,
        };
        for word in words {
            let (name, value) = word.split_once('=')?;
            match name {
                "weight" => {
                    let weight = parse_decimal(value.as_bytes())?;
                    base.weight = u32::try_from(weight).ok()?;
                    if !(1..=MAX_WEIGHT).contains(&base.weight) {
                        return None;
                    }
                }
                "campaign" => base.bound = Some(BoundTo::Campaign(value.parse().ok()?)),
                "key" => base.bound = Some(BoundTo::key(value.as_bytes())?),
                _ => return None,
            }
        }
        Some(base)
    }
}
